"""Residual networks: ResNet, ResNeXt, Wide ResNet, SE-ResNeXt."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Pool
from workloads.layers.pointwise import Activation, Add
from workloads.networks.pieces import channels, classifier, conv_norm, image, squeeze_excite

HE = "He et al. 2016, Deep Residual Learning for Image Recognition, table 1"
XIE = "Xie et al. 2017, Aggregated Residual Transformations for Deep Neural Networks, table 1"


@dataclass(frozen=True)
class ResNet:
    """A residual network of four groups of blocks.

    layers       blocks of each group
    bottleneck   1 x 1, 3 x 3, 1 x 1 with four times as many channels out; else two 3 x 3
    groups, width   of the 3 x 3 convolutions, and channels a group in the first of the four groups of blocks
    late_stride  the 3 x 3 convolution has the stride ("v1.5"), not the first 1 x 1 (the paper)
    squeeze      channels are divided by it in squeeze-and-excitation; 0: none
    frozen       batch norms are constants, as detectors that start from a trained network have them
    image, classes   size of a square image, and of the last layer
    """

    layers: tuple[int, int, int, int]
    bottleneck: bool = True
    groups: int = 1
    width: int = 64
    late_stride: bool = True
    squeeze: int = 0
    frozen: bool = False
    image: int = 224
    classes: int = 1000

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph; `sequence` says nothing of images."""
        graph = Graph("resnet")
        x = image(graph, self.image)
        with graph.cell("stem"):
            x = self.stem(graph, x)
        for group, number in enumerate(self.layers):
            x = self.group(graph, x, group, number)
        classifier(graph, x, classes=self.classes)
        return graph

    def stem(self, graph: Graph, x: Value) -> Value:
        """7 x 7 of stride 2 and a pool."""
        return graph.add(Pool(3, 2, 1), conv_norm(graph, x, 64, kernel=7, stride=2, frozen=self.frozen))

    def group(self, graph: Graph, x: Value, group: int, number: int, stride: int = 0) -> Value:
        """The blocks of one group, the first of which halves the positions (stride 0: as published)."""
        for block in range(number):
            with graph.cell(f"block {group + 1}.{block + 1}"):
                first = stride or (1 if group == 0 else 2)
                x = self.block(graph, x, 64 * 2**group, first if block == 0 else 1)
        return x

    def block(self, graph: Graph, x: Value, planes: int, stride: int) -> Value:
        """One residual block."""
        out, fixed = planes * (4 if self.bottleneck else 1), self.frozen
        if self.bottleneck:
            wide = planes * self.width * self.groups // 64
            early, late = (1, stride) if self.late_stride else (stride, 1)
            y = conv_norm(graph, x, wide, stride=early, frozen=fixed)
            y = conv_norm(graph, y, wide, kernel=3, stride=late, groups=self.groups, frozen=fixed)
            y = conv_norm(graph, y, out, activation="", frozen=fixed)
        else:
            y = conv_norm(graph, x, planes, kernel=3, stride=stride, frozen=fixed)
            y = conv_norm(graph, y, planes, kernel=3, activation="", frozen=fixed)
        if self.squeeze:
            y = squeeze_excite(graph, y, out // self.squeeze)
        if stride != 1 or channels(x) != out:
            x = conv_norm(graph, x, out, stride=stride, activation="", frozen=fixed)
        return graph.add(Activation("relu"), graph.add(Add(), x, y))


def _network(name: str, build: ResNet, source: str) -> GraphNetwork:
    return GraphNetwork(name, build, source=source)


SIZES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

NETWORKS: tuple[GraphNetwork, ...] = (
    *(_network(f"resnet{n}", ResNet(SIZES[n], bottleneck=n >= 50), f"{HE}; stride on the 3 x 3 (v1.5) as in torchvision"
               if n >= 50 else HE) for n in SIZES),
    *(_network(f"resnet{n}-v1", ResNet(SIZES[n], late_stride=False), f"{HE}; stride on the first 1 x 1 as in the paper")
      for n in (50, 101, 152)),
    _network("resnext50-32x4d", ResNet(SIZES[50], groups=32, width=4), XIE),
    _network("resnext101-32x4d", ResNet(SIZES[101], groups=32, width=4),
             f"{XIE}; NVIDIA DeepLearningExamples, PyTorch/Classification/ConvNets/resnext101-32x4d"),
    _network("resnext101-32x8d", ResNet(SIZES[101], groups=32, width=8), f"{XIE}; torchvision resnext101_32x8d"),
    _network("se-resnext101-32x4d", ResNet(SIZES[101], groups=32, width=4, squeeze=16),
             "Hu et al. 2018, Squeeze-and-Excitation Networks; NVIDIA DeepLearningExamples, "
             "PyTorch/Classification/ConvNets/se-resnext101-32x4d"),
    _network("wide-resnet50-2", ResNet(SIZES[50], width=128),
             "Zagoruyko and Komodakis 2016, Wide Residual Networks; torchvision wide_resnet50_2"),
)  # fmt: skip
