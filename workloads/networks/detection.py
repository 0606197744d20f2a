"""Detectors: a backbone, a pyramid of features, heads whose weights all levels share.

Proposals, matching and suppression are left out: they have no matrix product.  All layers are trained; recipes that
keep the first ones as they are do less backward work.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Graph, Operator, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy, Loss
from workloads.layers.norms import BatchNorm
from workloads.layers.pointwise import Activation, Add, Concat, Flatten, Permute, RoiAlign, Upsample
from workloads.networks.efficient import B0, inverted
from workloads.networks.pieces import channels, conv_norm, positions
from workloads.networks.resnets import SIZES, ResNet


class Shared:
    """Operators that run on several inputs with one set of parameters."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first: dict[str, Value] = {}

    def add(self, key: str, operator: Operator, x: Value) -> Value:
        """The operator called `key`: its parameters are those of its first use."""
        result = self.graph.add(operator, x, name=f"{key} {len(self.graph.nodes)}", shares=self.first.get(key))
        self.first.setdefault(key, result)
        return result


def levels(graph: Graph, build: ResNet, image: Value) -> list[Value]:
    """Results of the four groups of a residual network."""
    with graph.cell("stem"):
        x = build.stem(graph, image)
    found = []
    for group, number in enumerate(build.layers):
        x = build.group(graph, x, group, number)
        found.append(x)
    return found


def pyramid(graph: Graph, maps: list[Value], width: int = 256) -> list[Value]:
    """1 x 1 to one width, the coarser level added, 3 x 3 (Lin et al. 2017, Feature Pyramid Networks, figure 3)."""
    found: list[Value] = []
    with graph.cell("pyramid"):
        above: Value | None = None
        for x in reversed(maps):
            y = graph.add(Conv(width, 1), x)
            if above is not None:
                y = graph.add(Add(), y, graph.add(Upsample(size=positions(y)), above))
            above = y
            found.append(graph.add(Conv(width, 3, 1, 1), y))
    return found[::-1]


@dataclass(frozen=True)
class SSD:
    """Single-shot detector at 300 x 300: boxes and classes from six maps, 38 x 38 to 1 x 1 (Liu et al. 2016).

    The third group of the backbone keeps its positions, and the fourth is left out.
    maps    channels of the six maps;  inner   channels between each two
    norm    batch norm in the added layers, no biases
    """

    backbone: ResNet
    maps: tuple[int, ...]
    inner: tuple[int, ...]
    norm: bool
    classes: int = 81
    image: int = 300

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("ssd")
        x = graph.input((3, self.image, self.image), name="image")
        with graph.cell("stem"):
            x = self.backbone.stem(graph, x)
        for group in range(3):
            x = self.backbone.group(graph, x, group, self.backbone.layers[group], 1 if group == 2 else 0)
        found = [x]
        for number, (width, inner) in enumerate(zip(self.maps[1:], self.inner, strict=True)):
            with graph.cell(f"map {number + 2}"):
                halves = number < 3
                x = conv_norm(graph, x, inner, norm=self.norm, bias=not self.norm)
                x = conv_norm(graph, x, width, kernel=3, stride=2 if halves else 1, padding=1 if halves else 0,
                              norm=self.norm, bias=not self.norm)  # fmt: skip
                found.append(x)
        with graph.cell("heads"):
            _box_losses(graph, [self._head(graph, x, 4 * n) for x, n in zip(found, BOXES, strict=True)], 4, "l1")
            heads = [self._head(graph, x, self.classes * n) for x, n in zip(found, BOXES, strict=True)]
            _box_losses(graph, heads, self.classes, "softmax")
        return graph

    @staticmethod
    def _head(graph: Graph, x: Value, width: int) -> Value:
        return graph.add(Conv(width, 3, 1, 1), x)


#: Default boxes a position of SSD's six maps.
BOXES = (4, 6, 6, 6, 4, 4)


def _box_losses(graph: Graph, maps: list[Value], numbers: int, kind: str) -> None:
    """All maps as rows of so many numbers, joined, and their loss."""
    flat = [graph.add(Flatten((prod(x.shape) // numbers, numbers)), x) for x in maps]
    joined = graph.add(Concat(), *flat) if len(flat) > 1 else flat[0]
    graph.add(CrossEntropy() if kind == "softmax" else Loss(kind), joined)


@dataclass(frozen=True)
class MaskRCNN:
    """Two stages: regions proposed on a pyramid, then boxes, classes and masks of those that are sampled.

    rois     regions sampled an image, of which masked_rois contain an object and get a mask (a quarter: He et al. 2017)
    """

    backbone: ResNet = ResNet(SIZES[50], frozen=True)
    size: tuple[int, int] = (800, 1344)
    classes: int = 91
    rois: int = 512
    masked_rois: int = 128

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("mask rcnn")
        maps = pyramid(graph, levels(graph, self.backbone, graph.input((3, *self.size), name="image")))
        with graph.cell("proposals"):
            shared = Shared(graph)
            scores, boxes = [], []
            for x in (*maps, graph.add(Pool(1, 2), maps[-1])):
                y = graph.add(Activation(), shared.add("proposal convolution", Conv(256, 3, 1, 1), x))
                scores.append(shared.add("objectness", Conv(3, 1), y))
                boxes.append(shared.add("anchors", Conv(12, 1), y))
            _box_losses(graph, scores, 1, "sigmoid")
            _box_losses(graph, boxes, 4, "l1")
        self._boxes(graph, maps)
        self._masks(graph, maps)
        return graph

    def _boxes(self, graph: Graph, maps: list[Value]) -> None:
        with graph.cell("box head"):
            x = graph.add(RoiAlign(self.rois, 7), *maps)
            x = graph.add(Flatten((self.rois, 49 * channels(x))), graph.add(Permute((1, 0, 2, 3)), x))
            for _ in range(2):
                x = graph.add(Activation(), graph.add(Linear(1024), x))
            graph.add(CrossEntropy(), graph.add(Linear(self.classes), x))
            graph.add(Loss("l1"), graph.add(Linear(4 * self.classes), x))

    def _masks(self, graph: Graph, maps: list[Value]) -> None:
        with graph.cell("mask head"):
            x = graph.add(RoiAlign(self.masked_rois, 14), *maps)
            for _ in range(4):
                x = graph.add(Activation(), graph.add(Conv(256, (1, 3, 3), 1, (0, 1, 1)), x))
            x = graph.add(Activation(), graph.add(ConvTranspose(256, (1, 2, 2), (1, 2, 2)), x))
            graph.add(Loss("sigmoid"), graph.add(Conv(self.classes, 1), x))


@dataclass(frozen=True)
class RetinaNet:
    """One stage on a pyramid of five levels, with focal loss (Lin et al. 2017, Focal Loss, figure 3)."""

    backbone: ResNet = ResNet(SIZES[50], frozen=True)
    size: tuple[int, int] = (800, 1344)
    classes: int = 91
    anchors: int = 9

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("retinanet")
        maps = pyramid(graph, levels(graph, self.backbone, graph.input((3, *self.size), name="image"))[1:])
        with graph.cell("pyramid top"):
            six = graph.add(Conv(256, 3, 2, 1), maps[-1])
            maps += [six, graph.add(Conv(256, 3, 2, 1), graph.add(Activation(), six))]
        for name, numbers, kind in (("classes", self.classes, "focal"), ("boxes", 4, "l1")):
            with graph.cell(f"{name} head"):
                shared = Shared(graph)
                found = [self._head(graph, shared, x, numbers) for x in maps]
                _box_losses(graph, found, numbers, kind)
        return graph

    def _head(self, graph: Graph, shared: Shared, x: Value, numbers: int) -> Value:
        for number in range(4):
            x = graph.add(Activation(), shared.add(f"convolution {number + 1}", Conv(256, 3, 1, 1), x))
        return shared.add("prediction", Conv(self.anchors * numbers, 3, 1, 1), x)


@dataclass(frozen=True)
class EfficientDet:
    """EfficientNet-B0, three weighted two-way pyramids of 64 channels, shared heads (Tan, Pang and Le 2020, D0).

    repeats, depth   pyramids, and convolutions of a head before its prediction
    """

    size: int = 512
    width: int = 64
    repeats: int = 3
    depth: int = 3
    classes: int = 90
    anchors: int = 9

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("efficientdet")
        maps = self._backbone(graph, graph.input((3, self.size, self.size), name="image"))
        with graph.cell("pyramid top"):
            six = graph.add(Pool(3, 2, "same"), self._matched(graph, maps[-1]))
            maps += [six, graph.add(Pool(3, 2, "same"), six)]
        for number in range(self.repeats):
            with graph.cell(f"pyramid {number + 1}"):
                maps = self._pyramid(graph, maps)
        for name, numbers, kind in (("classes", self.classes, "focal"), ("boxes", 4, "l1")):
            with graph.cell(f"{name} head"):
                shared = Shared(graph)
                _box_losses(graph, [self._head(graph, shared, x, numbers) for x in maps], numbers, kind)
        return graph

    @staticmethod
    def _backbone(graph: Graph, x: Value) -> list[Value]:
        """Results of EfficientNet-B0 at strides 8, 16 and 32."""
        with graph.cell("stem"):
            x = conv_norm(graph, x, 32, kernel=3, stride=2, activation="silu")
        found = []
        for row, (factor, kernel, stride, filters, number) in enumerate(B0):
            for block in range(number):
                with graph.cell(f"block {row + 1}.{block + 1}"):
                    x = inverted(
                        graph, x, filters, expanded=factor * channels(x), kernel=kernel, activation="silu",
                        stride=stride if block == 0 else 1, squeeze=channels(x) // 4, inner="silu", drop=0.2,
                    )  # fmt: skip
            if row in (2, 4, 6):
                found.append(x)
        return found

    def _matched(self, graph: Graph, x: Value) -> Value:
        """A map with the pyramid's number of channels."""
        if channels(x) == self.width:
            return x
        return conv_norm(graph, x, self.width, bias=True, activation="")

    def _pyramid(self, graph: Graph, maps: list[Value]) -> list[Value]:
        """Down from the coarsest level, then up again; each node a weighted sum and a separable convolution."""
        down = [maps[-1]]
        for x in reversed(maps[:-1]):
            above = graph.add(Upsample(2), down[-1])
            down.append(self._node(graph, self._matched(graph, x), above))
        down.reverse()
        up = [down[0]]
        for x, middle in zip(maps[1:-1], down[1:-1], strict=True):
            up.append(self._node(graph, self._matched(graph, x), middle, graph.add(Pool(3, 2, "same"), up[-1])))
        up.append(self._node(graph, maps[-1], graph.add(Pool(3, 2, "same"), up[-1])))
        return up

    def _node(self, graph: Graph, *inputs: Value) -> Value:
        x = graph.add(Activation("silu"), graph.add(Add(weighted=True), *inputs))
        x = graph.add(Conv(self.width, 3, 1, 1, groups=self.width, bias=False), x)
        return graph.add(BatchNorm(), graph.add(Conv(self.width, 1), x))

    def _head(self, graph: Graph, shared: Shared, x: Value, numbers: int) -> Value:
        """Separable convolutions that all levels share; norms are each level's own."""
        for number in range(self.depth):
            x = self._separable(shared, x, f"convolution {number + 1}", self.width)
            x = graph.add(Activation("silu"), graph.add(BatchNorm(), x))
        return self._separable(shared, x, "prediction", self.anchors * numbers)

    def _separable(self, shared: Shared, x: Value, name: str, filters: int) -> Value:
        x = shared.add(f"{name}, depthwise", Conv(self.width, 3, 1, 1, groups=self.width, bias=False), x)
        return shared.add(f"{name}, pointwise", Conv(filters, 1), x)


EXAMPLES = "NVIDIA DeepLearningExamples"
FOCAL = "Lin et al. 2017, Focal Loss for Dense Object Detection"
LIU = "Liu et al. 2016, SSD"
SSD_MAPS, SSD_INNER = (512, 512, 256, 256, 256), (256, 256, 128, 128, 128)

NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork("ssd300-resnet50", SSD(ResNet(SIZES[50]), (1024, *SSD_MAPS), SSD_INNER, norm=True),
                 source=f"{LIU}; {EXAMPLES}, PyTorch/Detection/SSD/ssd/model.py"),
    GraphNetwork("ssd-resnet34", SSD(ResNet(SIZES[34], bottleneck=False), (256, *SSD_MAPS), SSD_INNER, norm=False),
                 source=f"{LIU}; MLCommons training, single_stage_detector/ssd/ssd300.py"),
    GraphNetwork("mask-rcnn-resnet50-fpn", MaskRCNN(),
                 source="He et al. 2017, Mask R-CNN; torchvision maskrcnn_resnet50_fpn, 512 sampled regions an image"),
    GraphNetwork("retinanet-resnet50-fpn", RetinaNet(),
                 source=f"{FOCAL}; torchvision retinanet_resnet50_fpn"),
    GraphNetwork("retinanet-resnext50-fpn",
                 RetinaNet(ResNet(SIZES[50], groups=32, width=4, frozen=True), (800, 800), 264),
                 source=f"{FOCAL}; MLCommons training, single_stage_detector (OpenImages, 264 classes)"),
    GraphNetwork("ssd320-resnet50-fpn", RetinaNet(ResNet(SIZES[50]), (320, 320), 91, 6),
                 source=f"{FOCAL}; {EXAMPLES}, TensorFlow/Detection/SSD"),
    GraphNetwork("efficientdet-d0", EfficientDet(), source="Tan, Pang and Le 2020, EfficientDet, table 1"),
)  # fmt: skip
