"""Convolutional networks before and beside residual ones: AlexNet, VGG, GoogLeNet, Inception, SqueezeNet, DenseNet."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import BatchNorm, LocalResponseNorm
from workloads.layers.pointwise import Activation, AdaptivePool, Concat, Dropout, Flatten, GlobalPool
from workloads.networks.pieces import classifier, conv_norm, image


def _dense_head(graph: Graph, x: Value, widths: tuple[int, ...], classes: int, first_dropout: bool) -> None:
    """Linear layers with ReLU and dropout, then the classes: AlexNet's and VGG's head."""
    x = graph.add(Flatten(), x)
    for number, width in enumerate(widths):
        with graph.cell(f"linear {number + 1}"):
            if first_dropout:
                x = graph.add(Dropout(), x)
            x = graph.add(Activation(), graph.add(Linear(width), x))
            if not first_dropout:
                x = graph.add(Dropout(), x)
    with graph.cell("head"):
        graph.add(CrossEntropy(), graph.add(Linear(classes), x, name="classifier"))


@dataclass(frozen=True)
class AlexNet:
    """Five convolutions and three linear layers.

    towers   the original of two GPUs: 96 filters first, groups of 2, local response norm; else the single-tower
             network of 64 filters first
    """

    towers: bool = True
    image: int = 227
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("alexnet")
        x = image(graph, self.image)
        groups = 2 if self.towers else 1
        filters = (96, 256, 384, 384, 256) if self.towers else (64, 192, 384, 256, 256)
        last = (3, 1, 1, groups)
        plan = ((11, 4, 0 if self.towers else 2, 1), (5, 1, 2, groups), (3, 1, 1, 1), last, last)
        for number, (width, (kernel, stride, padding, parts)) in enumerate(zip(filters, plan, strict=True)):
            with graph.cell(f"convolution {number + 1}"):
                x = graph.add(Activation(), graph.add(Conv(width, kernel, stride, padding, groups=parts), x))
                if number < 2 and self.towers:
                    x = graph.add(LocalResponseNorm(5), x)
                if number in (0, 1, 4):
                    x = graph.add(Pool(3, 2), x)
        _dense_head(graph, x, (4096, 4096), self.classes, first_dropout=not self.towers)
        return graph


VGG16, VGG19 = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)


@dataclass(frozen=True)
class VGG:
    """3 x 3 convolutions in five groups, each ended by a pool, and three linear layers."""

    layers: tuple[int, ...] = VGG16
    norm: bool = False
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("vgg")
        x = image(graph, self.image)
        for group, number in enumerate(self.layers):
            for layer in range(number):
                with graph.cell(f"convolution {group + 1}.{layer + 1}"):
                    x = conv_norm(graph, x, min(64 * 2**group, 512), kernel=3, bias=True, norm=self.norm)
                    if layer == number - 1:
                        x = graph.add(Pool(2), x)
        _dense_head(graph, x, (4096, 4096), self.classes, first_dropout=False)
        return graph


#: GoogLeNet's nine modules: 1 x 1; 3 x 3 after a reduction; 5 x 5 after a reduction; projection of a pool.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64), "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}  # fmt: skip


@dataclass(frozen=True)
class GoogLeNet:
    """Inception modules of the paper (local response norm, biases), or with batch norm as in torchvision.

    auxiliary   two more heads on 4a and 4d while it trains
    norm        batch norm, no biases, and 3 x 3 in place of 5 x 5: torchvision's network
    """

    auxiliary: bool = True
    norm: bool = False
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("googlenet")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = graph.add(Pool(3, 2, ceil=True), self._conv(graph, x, 64, 7, 2))
            x = x if self.norm else graph.add(LocalResponseNorm(5), x)
            x = self._conv(graph, self._conv(graph, x, 64, 1), 192, 3)
            x = x if self.norm else graph.add(LocalResponseNorm(5), x)
            x = graph.add(Pool(3, 2, ceil=True), x)
        for name, widths in MODULES.items():
            with graph.cell(f"module {name}"):
                x = self._module(graph, x, widths)
                if self.auxiliary and name in ("4a", "4d"):
                    self._head(graph, x)
                if name in ("3b", "4e"):
                    x = graph.add(Pool(2 if self.norm and name == "4e" else 3, 2, ceil=True), x)
        classifier(graph, x, classes=self.classes, dropout=0.2 if self.norm else 0.4)
        return graph

    def _conv(self, graph: Graph, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
        return conv_norm(graph, x, filters, kernel=kernel, stride=stride, norm=self.norm, bias=not self.norm)

    def _module(self, graph: Graph, x: Value, widths: tuple[int, ...]) -> Value:
        one, three_in, three, five_in, five, pool = widths
        parts = (
            self._conv(graph, x, one, 1),
            self._conv(graph, self._conv(graph, x, three_in, 1), three, 3),
            self._conv(graph, self._conv(graph, x, five_in, 1), five, 3 if self.norm else 5),
            self._conv(graph, graph.add(Pool(3, 1, 1), x), pool, 1),
        )
        return graph.add(Concat(), *parts)

    def _head(self, graph: Graph, x: Value) -> None:
        x = graph.add(AdaptivePool(4) if self.norm else Pool(5, 3, kind="average"), x)
        x = graph.add(Flatten(), self._conv(graph, x, 128, 1))
        x = graph.add(Dropout(0.7), graph.add(Activation(), graph.add(Linear(1024), x)))
        graph.add(CrossEntropy(), graph.add(Linear(self.classes), x, name="auxiliary classifier"))


@dataclass(frozen=True)
class InceptionV3:
    """Factorised inception modules (Szegedy et al. 2016, table 1), as torchvision builds them.

    auxiliary   one more head on the last 17 x 17 module while it trains
    """

    auxiliary: bool = True
    image: int = 299
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("inception-v3")
        x = image(graph, self.image)
        with graph.cell("stem"):
            for filters, kernel, stride, padding in ((32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)):
                x = conv_norm(graph, x, filters, kernel=kernel, stride=stride, padding=padding)
            x = graph.add(Pool(3, 2), x)
            x = conv_norm(graph, conv_norm(graph, x, 80, padding=0), 192, kernel=3, padding=0)
            x = graph.add(Pool(3, 2), x)
        for number, pooled in enumerate((32, 64, 64)):
            with graph.cell(f"module 35.{number + 1}"):
                x = _chains(graph, x, ((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)), pooled=pooled)
        with graph.cell("reduction 35"):
            x = _reduced(graph, x, ((384, 3),), ((64, 1), (96, 3), (96, 3)))
        for number, width in enumerate((128, 160, 160, 192)):
            with graph.cell(f"module 17.{number + 1}"):
                across, down = (1, 7), (7, 1)
                x = _chains(
                    graph, x, ((192, 1),), ((width, 1), (width, across), (192, down)),
                    ((width, 1), (width, down), (width, across), (width, down), (192, across)), pooled=192,
                )  # fmt: skip
                if self.auxiliary and number == 3:
                    self._head(graph, x)
        with graph.cell("reduction 17"):
            x = _reduced(graph, x, ((192, 1), (320, 3)), ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)))
        for number in range(2):
            with graph.cell(f"module 8.{number + 1}"):
                x = _widened(graph, x)
        classifier(graph, x, classes=self.classes, dropout=0.5)
        return graph

    def _head(self, graph: Graph, x: Value) -> None:
        x = conv_norm(graph, graph.add(Pool(5, 3, kind="average"), x), 128)
        x = graph.add(GlobalPool(), conv_norm(graph, x, 768, kernel=5, padding=0))
        graph.add(CrossEntropy(), graph.add(Linear(self.classes), x, name="auxiliary classifier"))


Chain = tuple[tuple[int, int | tuple[int, int]], ...]


def _chain(graph: Graph, x: Value, chain: Chain) -> Value:
    """Convolutions one after the other: filters and kernel of each."""
    for filters, kernel in chain:
        x = conv_norm(graph, x, filters, kernel=kernel)
    return x


def _chains(graph: Graph, x: Value, *chains: Chain, pooled: int) -> Value:
    """Chains side by side and a projected average pool, joined."""
    parts = [_chain(graph, x, chain) for chain in chains]
    parts.append(conv_norm(graph, graph.add(Pool(3, 1, 1, kind="average"), x), pooled))
    return graph.add(Concat(), *parts)


def _reduced(graph: Graph, x: Value, *chains: Chain) -> Value:
    """Chains whose last convolution halves the positions, beside a max pool."""
    parts = []
    for chain in chains:
        filters, kernel = chain[-1]
        parts.append(conv_norm(graph, _chain(graph, x, chain[:-1]), filters, kernel=kernel, stride=2, padding=0))
    return graph.add(Concat(), *parts, graph.add(Pool(3, 2), x))


def _widened(graph: Graph, x: Value) -> Value:
    """A module whose 3 x 3 chains end in 1 x 3 beside 3 x 1."""
    three = _chain(graph, x, ((384, 1),))
    double = _chain(graph, x, ((448, 1), (384, 3)))
    parts = [conv_norm(graph, x, 320)]
    parts += [conv_norm(graph, y, 384, kernel=kernel) for y in (three, double) for kernel in ((1, 3), (3, 1))]
    parts.append(conv_norm(graph, graph.add(Pool(3, 1, 1, kind="average"), x), 192))
    return graph.add(Concat(), *parts)


@dataclass(frozen=True)
class SqueezeNet:
    """Fire modules: a 1 x 1 squeeze, then 1 x 1 and 3 x 3 side by side.

    early   pools come earlier and the stem is 3 x 3 of 64 filters: version 1.1
    """

    early: bool = True
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("squeezenet")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = _plain(graph, x, 64 if self.early else 96, 3 if self.early else 7, 2)
            x = graph.add(Pool(3, 2, ceil=True), x)
        pools = (2, 4) if self.early else (3, 7)
        for number, inner in enumerate((16, 16, 32, 32, 48, 48, 64, 64), 1):
            with graph.cell(f"fire {number + 1}"):
                y = _plain(graph, x, inner, 1)
                x = graph.add(Concat(), _plain(graph, y, 4 * inner, 1), _plain(graph, y, 4 * inner, 3, padding=1))
                if number in pools:
                    x = graph.add(Pool(3, 2, ceil=True), x)
        with graph.cell("head"):
            x = _plain(graph, graph.add(Dropout(), x), self.classes, 1)
            graph.add(CrossEntropy(), graph.add(GlobalPool(), x))
        return graph


def _plain(graph: Graph, x: Value, filters: int, kernel: int, stride: int = 1, padding: int = 0) -> Value:
    """Convolution with bias and ReLU."""
    return graph.add(Activation(), graph.add(Conv(filters, kernel, stride, padding), x))


@dataclass(frozen=True)
class DenseNet:
    """Blocks in which each layer reads the results of all layers before it, `growth` channels each."""

    layers: tuple[int, ...] = (6, 12, 24, 16)
    growth: int = 32
    first: int = 64
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("densenet")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = graph.add(Pool(3, 2, 1), conv_norm(graph, x, self.first, kernel=7, stride=2))
        for group, number in enumerate(self.layers):
            made = [x]
            for layer in range(number):
                with graph.cell(f"layer {group + 1}.{layer + 1}"):
                    y = graph.add(Concat(), *made) if len(made) > 1 else made[0]
                    y = graph.add(Conv(4 * self.growth, 1, bias=False), _normed(graph, y))
                    made.append(graph.add(Conv(self.growth, 3, 1, 1, bias=False), _normed(graph, y)))
            with graph.cell(f"transition {group + 1}"):
                x = _normed(graph, graph.add(Concat(), *made))
                if group < len(self.layers) - 1:
                    x = graph.add(Conv(x.shape[0] // 2, 1, bias=False), x)
                    x = graph.add(Pool(2, kind="average"), x)
        classifier(graph, x, classes=self.classes)
        return graph


def _normed(graph: Graph, x: Value) -> Value:
    """Batch norm and ReLU before a convolution."""
    return graph.add(Activation(), graph.add(BatchNorm(), x))


KRIZHEVSKY = "Krizhevsky, Sutskever and Hinton 2012, ImageNet Classification with Deep Convolutional Neural Networks"
SIMONYAN = "Simonyan and Zisserman 2015, Very Deep Convolutional Networks, table 1 (D, E)"
SZEGEDY = "Szegedy et al. 2015, Going Deeper with Convolutions, table 1"
RETHINKING = "Szegedy et al. 2016, Rethinking the Inception Architecture for Computer Vision, table 1; torchvision"
IANDOLA = "Iandola et al. 2016, SqueezeNet, table 1; torchvision"
HUANG = "Huang et al. 2017, Densely Connected Convolutional Networks, table 1"

NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork("alexnet", AlexNet(towers=False, image=224),
                 source="Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks"),
    GraphNetwork("alexnet-two-towers", AlexNet(), source=f"{KRIZHEVSKY}; groups as in Caffe's bvlc_alexnet"),
    GraphNetwork("vgg16", VGG(), source=SIMONYAN),
    GraphNetwork("vgg19", VGG(VGG19), source=SIMONYAN),
    GraphNetwork("vgg16-bn", VGG(norm=True), source=f"{SIMONYAN}; batch norm as in torchvision"),
    GraphNetwork("vgg19-bn", VGG(VGG19, norm=True), source=f"{SIMONYAN}; batch norm as in torchvision"),
    GraphNetwork("googlenet", GoogLeNet(), source=f"{SZEGEDY}; with both auxiliary heads"),
    GraphNetwork("googlenet-plain", GoogLeNet(auxiliary=False), source=f"{SZEGEDY}; without auxiliary heads"),
    GraphNetwork("googlenet-bn", GoogLeNet(norm=True),
                 source=f"{SZEGEDY}; torchvision googlenet: batch norm, 3 x 3 for 5 x 5"),
    GraphNetwork("googlenet-bn-plain", GoogLeNet(auxiliary=False, norm=True),
                 source=f"{SZEGEDY}; torchvision googlenet without auxiliary heads"),
    GraphNetwork("inception-v3", InceptionV3(), source=f"{RETHINKING} inception_v3, with its auxiliary head"),
    GraphNetwork("inception-v3-plain", InceptionV3(auxiliary=False),
                 source=f"{RETHINKING} inception_v3, no auxiliary head"),
    GraphNetwork("squeezenet-1.0", SqueezeNet(early=False), source=f"{IANDOLA} squeezenet1_0"),
    GraphNetwork("squeezenet-1.1", SqueezeNet(), source=f"{IANDOLA} squeezenet1_1"),
    GraphNetwork("densenet121", DenseNet(), source=HUANG),
    GraphNetwork("densenet169", DenseNet((6, 12, 32, 32)), source=HUANG),
)  # fmt: skip
