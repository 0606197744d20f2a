"""Networks of depthwise convolutions: MobileNet, EfficientNet, ShuffleNet, ConvNeXt."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Activation, Add, ChannelShuffle, Concat, Dropout, GlobalPool, Scale, Slice
from workloads.networks.pieces import channels, classifier, conv_norm, image, squeeze_excite


def whole_channels(number: float, divisor: int = 8) -> int:
    """A number of channels that `divisor` divides, the nearest one that is not 10% smaller (MobileNet's rule)."""
    nearest = max(divisor, int(number + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * number else nearest


def inverted(
    graph: Graph, x: Value, filters: int, *, expanded: int, kernel: int = 3, stride: int = 1, activation: str = "relu6",
    squeeze: int = 0, gate: str = "sigmoid", inner: str = "relu", drop: float = 0.0,
) -> Value:  # fmt: skip
    """An inverted residual: 1 x 1 wider, depthwise, (squeeze-and-excitation), 1 x 1 back without activation.

    drop   of a sample's whole branch while it trains (stochastic depth)
    """
    y = x
    if expanded != channels(x):
        y = conv_norm(graph, y, expanded, activation=activation)
    y = conv_norm(graph, y, expanded, kernel=kernel, stride=stride, groups=expanded, activation=activation)
    if squeeze:
        y = squeeze_excite(graph, y, squeeze, activation=inner, gate=gate)
    y = conv_norm(graph, y, filters, activation="")
    if stride != 1 or channels(x) != filters:
        return y
    return graph.add(Add(), x, graph.add(Dropout(drop, samples=True), y) if drop else y)


#: Expansion, filters, blocks, stride of MobileNetV2.
V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class MobileNetV2:
    """Inverted residuals of ReLU6 (Sandler et al. 2018, table 2)."""

    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("mobilenet-v2")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = conv_norm(graph, x, 32, kernel=3, stride=2, activation="relu6")
        for row, (factor, filters, number, stride) in enumerate(V2):
            for block in range(number):
                with graph.cell(f"block {row + 1}.{block + 1}"):
                    step = stride if block == 0 else 1
                    x = inverted(graph, x, filters, expanded=factor * channels(x), stride=step)
        with graph.cell("last convolution"):
            x = conv_norm(graph, x, 1280, activation="relu6")
        classifier(graph, x, classes=self.classes, dropout=0.2)
        return graph


#: Kernel, expanded channels, filters, squeeze-and-excitation, hard swish, stride (Howard et al. 2019, tables 1 and 2).
LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip
SMALL = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip


@dataclass(frozen=True)
class MobileNetV3:
    """Inverted residuals with squeeze-and-excitation and hard swish."""

    rows: tuple[tuple[int, int, int, bool, bool, int], ...] = LARGE
    last: int = 1280
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("mobilenet-v3")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = conv_norm(graph, x, 16, kernel=3, stride=2, activation="hardswish")
        for number, (kernel, expanded, filters, gated, hard, stride) in enumerate(self.rows, 1):
            with graph.cell(f"block {number}"):
                x = inverted(
                    graph, x, filters, expanded=expanded, kernel=kernel, stride=stride, gate="hardsigmoid",
                    activation="hardswish" if hard else "relu", squeeze=whole_channels(expanded // 4) if gated else 0,
                )  # fmt: skip
        with graph.cell("last convolution"):
            x = conv_norm(graph, x, 6 * channels(x), activation="hardswish")
        with graph.cell("head"):
            x = graph.add(Linear(self.last), graph.add(GlobalPool(), x))
            x = graph.add(Dropout(0.2), graph.add(Activation("hardswish"), x))
            graph.add(CrossEntropy(), graph.add(Linear(self.classes), x, name="classifier"))
        return graph


#: Expansion, kernel, stride, filters, blocks of EfficientNet-B0 (Tan and Le 2019, table 1).
B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
      (6, 3, 1, 320, 1))  # fmt: skip


@dataclass(frozen=True)
class EfficientNet:
    """Inverted residuals with squeeze-and-excitation, scaled in width, depth and image.

    wide_squeeze   squeeze a quarter of the expanded channels ("widese"), not of the block's input
    """

    width: float = 1.0
    depth: float = 1.0
    dropout: float = 0.2
    wide_squeeze: bool = False
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("efficientnet")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = conv_norm(graph, x, whole_channels(32 * self.width), kernel=3, stride=2, activation="silu")
        for row, (factor, kernel, stride, filters, number) in enumerate(B0):
            for block in range(ceil(number * self.depth)):
                with graph.cell(f"block {row + 1}.{block + 1}"):
                    expanded = factor * channels(x)
                    x = inverted(
                        graph, x, whole_channels(filters * self.width), expanded=expanded, kernel=kernel,
                        stride=stride if block == 0 else 1, activation="silu", inner="silu",
                        squeeze=max(1, (expanded if self.wide_squeeze else channels(x)) // 4), drop=0.2,
                    )  # fmt: skip
        with graph.cell("last convolution"):
            x = conv_norm(graph, x, 4 * channels(x), activation="silu")
        classifier(graph, x, classes=self.classes, dropout=self.dropout)
        return graph


#: Fused, expansion, stride, filters, blocks of EfficientNetV2-S (Tan and Le 2021, table 4).
V2_S = ((True, 1, 1, 24, 2), (True, 4, 2, 48, 4), (True, 4, 2, 64, 4), (False, 4, 2, 128, 6), (False, 6, 1, 160, 9),
        (False, 6, 2, 256, 15))  # fmt: skip


@dataclass(frozen=True)
class EfficientNetV2:
    """Its early blocks fuse the widening and the depthwise convolution into one dense 3 x 3."""

    image: int = 384
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("efficientnet-v2")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = conv_norm(graph, x, 24, kernel=3, stride=2, activation="silu")
        for row, (fused, factor, stride, filters, number) in enumerate(V2_S):
            for block in range(number):
                step = stride if block == 0 else 1
                with graph.cell(f"block {row + 1}.{block + 1}"):
                    if fused:
                        x = _fused(graph, x, filters, factor * channels(x), step)
                    else:
                        x = inverted(graph, x, filters, expanded=factor * channels(x), stride=step, activation="silu",
                                     squeeze=channels(x) // 4, inner="silu", drop=0.2)  # fmt: skip
        with graph.cell("last convolution"):
            x = conv_norm(graph, x, 1280, activation="silu")
        classifier(graph, x, classes=self.classes, dropout=0.2)
        return graph


def _fused(graph: Graph, x: Value, filters: int, expanded: int, stride: int) -> Value:
    """A dense 3 x 3 and, if it widens, a 1 x 1 back."""
    if expanded == channels(x):
        y = conv_norm(graph, x, filters, kernel=3, stride=stride, activation="silu")
    else:
        y = conv_norm(graph, x, expanded, kernel=3, stride=stride, activation="silu")
        y = conv_norm(graph, y, filters, activation="")
    if stride != 1 or channels(x) != filters:
        return y
    return graph.add(Add(), x, graph.add(Dropout(0.2, samples=True), y))


@dataclass(frozen=True)
class ShuffleNetV2:
    """Half of the channels pass, half meet a depthwise block, then all are shuffled (Ma et al. 2018, table 5)."""

    filters: tuple[int, ...] = (24, 116, 232, 464, 1024)
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("shufflenet-v2")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = graph.add(Pool(3, 2, 1), conv_norm(graph, x, self.filters[0], kernel=3, stride=2))
        for stage, (filters, number) in enumerate(zip(self.filters[1:4], (4, 8, 4), strict=True), 2):
            for block in range(number):
                with graph.cell(f"block {stage}.{block + 1}"):
                    x = self._block(graph, x, filters, halves=block == 0)
        with graph.cell("last convolution"):
            x = conv_norm(graph, x, self.filters[-1])
        classifier(graph, x, classes=self.classes)
        return graph

    def _block(self, graph: Graph, x: Value, filters: int, *, halves: bool) -> Value:
        half = filters // 2
        if halves:
            still = conv_norm(graph, x, channels(x), kernel=3, stride=2, groups=channels(x), activation="")
            still, moved = conv_norm(graph, still, half), x
        else:
            still, moved = graph.add(Slice(0, half), x), graph.add(Slice(half, filters), x)
        moved = conv_norm(graph, moved, half)
        moved = conv_norm(graph, moved, half, kernel=3, stride=2 if halves else 1, groups=half, activation="")
        moved = conv_norm(graph, moved, half)
        return graph.add(ChannelShuffle(2), graph.add(Concat(), still, moved))


@dataclass(frozen=True)
class ConvNeXt:
    """Depthwise 7 x 7, layer norm over channels, two 1 x 1 with GELU, a trained scale (Liu et al. 2022, table 9)."""

    layers: tuple[int, ...] = (3, 3, 9, 3)
    filters: tuple[int, ...] = (96, 192, 384, 768)
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("convnext")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = graph.add(LayerNorm(axis=0), graph.add(Conv(self.filters[0], 4, 4), x))
        for stage, (filters, number) in enumerate(zip(self.filters, self.layers, strict=True), 1):
            if stage > 1:
                with graph.cell(f"downsample {stage}"):
                    x = graph.add(Conv(filters, 2, 2), graph.add(LayerNorm(axis=0), x))
            for block in range(number):
                with graph.cell(f"block {stage}.{block + 1}"):
                    y = graph.add(LayerNorm(axis=0), graph.add(Conv(filters, 7, 1, 3, groups=filters), x))
                    y = graph.add(Activation("gelu"), graph.add(Conv(4 * filters, 1), y))
                    y = graph.add(Scale(learned=True), graph.add(Conv(filters, 1), y))
                    x = graph.add(Add(), x, graph.add(Dropout(0.1, samples=True), y))
        with graph.cell("head"):
            x = graph.add(LayerNorm(), graph.add(GlobalPool(), x))
            graph.add(CrossEntropy(), graph.add(Linear(self.classes), x, name="classifier"))
        return graph


TAN = "Tan and Le 2019, EfficientNet, table 1 and section 4"
HOWARD = "Howard et al. 2019, Searching for MobileNetV3, table"
EXAMPLES = "NVIDIA DeepLearningExamples, PyTorch/Classification/ConvNets"

NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork("mobilenet-v2", MobileNetV2(), source="Sandler et al. 2018, MobileNetV2, table 2"),
    GraphNetwork("mobilenet-v3-large", MobileNetV3(), source=f"{HOWARD} 1; torchvision mobilenet_v3_large"),
    GraphNetwork("mobilenet-v3-small", MobileNetV3(SMALL, 1024), source=f"{HOWARD} 2; torchvision mobilenet_v3_small"),
    GraphNetwork("efficientnet-b0", EfficientNet(), source=TAN),
    GraphNetwork("efficientnet-b4", EfficientNet(1.4, 1.8, 0.4, image=380), source=TAN),
    GraphNetwork("efficientnet-widese-b0", EfficientNet(wide_squeeze=True), source=f"{TAN}; {EXAMPLES}, widese"),
    GraphNetwork("efficientnet-widese-b4", EfficientNet(1.4, 1.8, 0.4, wide_squeeze=True, image=380),
                 source=f"{TAN}; {EXAMPLES}, widese"),
    GraphNetwork("efficientnet-v2-s", EfficientNetV2(),
                 source="Tan and Le 2021, EfficientNetV2, table 4; torchvision efficientnet_v2_s at 384 x 384"),
    GraphNetwork("shufflenet-v2-1.0", ShuffleNetV2(), source="Ma et al. 2018, ShuffleNet V2, table 5"),
    GraphNetwork("convnext-tiny", ConvNeXt(), source="Liu et al. 2022, A ConvNet for the 2020s, table 9"),
)  # fmt: skip
