"""Encoders and decoders with skips, which label each position: U-Net, V-Net, 3D U-Net, nnU-Net."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Graph, Shape, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.losses import CrossEntropy, Loss
from workloads.layers.norms import BatchNorm, InstanceNorm
from workloads.layers.pointwise import Activation, Add, Concat, Dropout, PReLU, Slice, Upsample
from workloads.networks.pieces import channels, positions


def _cropped(graph: Graph, x: Value, size: Shape) -> Value:
    """The middle of a feature map."""
    for axis, (have, want) in enumerate(zip(positions(x), size, strict=True), 1):
        if have != want:
            start = (have - want) // 2
            x = graph.add(Slice(start, start + want, axis), x, name=f"crop {axis}")
    return x


@dataclass(frozen=True)
class UNet:
    """The two-dimensional U-Net: two 3 x 3 a level, pools down, doubled positions up, skips joined.

    filters    of each level, the last is the bottom
    padded     convolutions keep the size; else skips are cropped (the paper)
    up         "transposed": a transposed convolution of `up_kernel` and stride 2; "resized": nearest neighbours and a
               convolution of `up_kernel`
    up_active  a ReLU after it
    halved     the second convolution of a level going up has half of its filters already
    """

    filters: tuple[int, ...] = (64, 128, 256, 512, 1024)
    padded: bool = False
    up: str = "transposed"
    up_kernel: int = 2
    up_active: bool = False
    halved: bool = False
    image: int = 572
    channels: int = 1
    classes: int = 2

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("unet")
        x = graph.input((self.channels, self.image, self.image), name="image")
        skips: list[Value] = []
        for level, width in enumerate(self.filters):
            with graph.cell(f"down {level + 1}"):
                if skips:
                    x = graph.add(Pool(2), x)
                x = self._conv(graph, self._conv(graph, x, width), width)
                skips.append(x)
        bottom = len(self.filters) - 1
        for level in reversed(range(bottom)):
            with graph.cell(f"up {level + 1}"):
                if level == bottom - 1:
                    x = graph.add(Dropout(), x)
                x = self._up(graph, x, self._up_filters(level))
                x = graph.add(Concat(), x, _cropped(graph, skips[level], positions(x)))
                width = self.filters[level]
                x = self._conv(graph, x, width)
                x = self._conv(graph, x, width // 2 if self.halved and level else width)
        with graph.cell("head"):
            x = graph.add(Conv(self.classes, 1), x)
            graph.add(Loss("dice") if self.classes == 1 else CrossEntropy(axis=0), x)
        return graph

    def _up_filters(self, level: int) -> int:
        """Channels after the positions are doubled: as many as the level has, half of them where it says so."""
        if not self.halved:
            return self.filters[level]
        return self.filters[level + 1] // 2

    def _up(self, graph: Graph, x: Value, filters: int) -> Value:
        if self.up == "resized":
            x = graph.add(Conv(filters, self.up_kernel, 1, "same"), graph.add(Upsample(2), x))
        else:
            padding = (self.up_kernel - 1) // 2
            extra = 2 * padding + 2 - self.up_kernel
            x = graph.add(ConvTranspose(filters, self.up_kernel, 2, padding, extra), x)
        return graph.add(Activation(), x) if self.up_active else x

    def _conv(self, graph: Graph, x: Value, filters: int) -> Value:
        return graph.add(Activation(), graph.add(Conv(filters, 3, 1, "same" if self.padded else "valid"), x))


@dataclass(frozen=True)
class PlainUNet:
    """A U-Net of two convolutions with instance norm a level, which stride down and are transposed up (nnU-Net).

    size       positions an axis of the patch: two or three axes
    filters    of each level
    output     kernel of the last convolution
    """

    size: Shape
    filters: tuple[int, ...]
    channels: int
    classes: int
    activation: str = "leaky_relu"
    output: int = 1

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("plain unet")
        x = graph.input((self.channels, *self.size), name="patch")
        skips = []
        for level, width in enumerate(self.filters):
            with graph.cell(f"down {level + 1}"):
                x = self._conv(graph, self._conv(graph, x, width, 2 if level else 1), width)
                skips.append(x)
        for level in reversed(range(len(self.filters) - 1)):
            with graph.cell(f"up {level + 1}"):
                width = self.filters[level]
                x = graph.add(Concat(), graph.add(ConvTranspose(width, 2, 2), x), skips[level])
                x = self._conv(graph, self._conv(graph, x, width), width)
        with graph.cell("head"):
            x = graph.add(Conv(self.classes, self.output, 1, "same"), x)
            graph.add(CrossEntropy(axis=0), x)
            graph.add(Loss("dice"), x)
        return graph

    def _conv(self, graph: Graph, x: Value, filters: int, stride: int = 1) -> Value:
        x = graph.add(InstanceNorm(), graph.add(Conv(filters, 3, stride, 1, bias=False), x))
        return graph.add(Activation(self.activation), x)


@dataclass(frozen=True)
class VNet:
    """The volumetric V-Net: residual stages, strided 2 x 2 x 2 convolutions down, transposed up, skips joined.

    down, up   convolutions of each stage
    joined     the last level up joins its skip and has a stage of its own; else it convolves to the classes at once
    norm       batch norm and ReLU; else PReLU alone (the paper)
    """

    size: Shape = (128, 128, 64)
    kernel: int = 5
    down: tuple[int, ...] = (2, 3, 3, 3)
    up: tuple[int, ...] = (3, 3, 2, 1)
    joined: bool = True
    norm: bool = False
    classes: int = 2

    def __call__(self, sequence: int = 1) -> Graph:
        """Its graph."""
        graph = Graph("vnet")
        volume = graph.input((1, *self.size), name="volume")
        with graph.cell("down 1"):
            x = self._conv(graph, volume, 16, self.kernel)
            x = graph.add(Add(), x, graph.add(Concat(), *([volume] * 16), name="repeat the volume"))
        skips = [x]
        for level, number in enumerate(self.down):
            with graph.cell(f"down {level + 2}"):
                x = self._residual(graph, self._conv(graph, x, 2 * channels(x), 2, 2), number)
                skips.append(x)
        skips.pop()
        for number in self.up:
            with graph.cell(f"up {len(skips)}"):
                skip = skips.pop()
                x = graph.add(Concat(), self._doubled(graph, x, channels(skip)), skip)
                x = self._residual(graph, x, number)
        with graph.cell("head"):
            if not self.joined:
                x = self._doubled(graph, x, channels(skips.pop()))
            x = graph.add(Conv(self.classes, 1 if self.joined else self.kernel, 1, "same"), x)
            graph.add(Loss("dice"), x)
        return graph

    def _residual(self, graph: Graph, x: Value, number: int) -> Value:
        y = x
        for _ in range(number):
            y = self._conv(graph, y, channels(x), self.kernel)
        return graph.add(Add(), x, y)

    def _conv(self, graph: Graph, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
        return self._active(graph, graph.add(Conv(filters, kernel, stride, "same"), x))

    def _doubled(self, graph: Graph, x: Value, filters: int) -> Value:
        return self._active(graph, graph.add(ConvTranspose(filters, 2, 2), x))

    def _active(self, graph: Graph, x: Value) -> Value:
        if self.norm:
            return graph.add(Activation(), graph.add(BatchNorm(), x))
        return graph.add(PReLU(), x)


RONNEBERGER = "Ronneberger, Fischer and Brox 2015, U-Net, figure 1"
EXAMPLES = "NVIDIA DeepLearningExamples"
MILLETARI = "Milletari, Navab and Ahmadi 2016, V-Net, figure 2"
ISENSEE = f"Isensee et al. 2021, nnU-Net; {EXAMPLES}, PyTorch/Segmentation/nnUNet, Task01 (brain tumour)"
LEVELS = (32, 64, 128, 256, 320, 320)

NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork("unet", UNet(), source=RONNEBERGER),
    GraphNetwork("unet-medical", UNet(up_kernel=3, up_active=True),
                 source=f"{RONNEBERGER}; {EXAMPLES}, TensorFlow/Segmentation/UNet_Medical/model/layers.py"),
    GraphNetwork("unet-industrial", UNet((32, 32, 64, 128, 256), padded=True, up="resized", up_active=True, halved=True,
                                         image=512, classes=1),
                 source=f"{RONNEBERGER}; {EXAMPLES}, TensorFlow/Segmentation/UNet_Industrial/model/unet.py, tinyUNet"),
    GraphNetwork("unet-industrial-original", UNet(padded=True, up="resized", up_active=True, halved=True, image=512,
                                                  classes=1),
                 source=f"{RONNEBERGER}; {EXAMPLES}, TensorFlow/Segmentation/UNet_Industrial/model/unet.py, original"),
    GraphNetwork("vnet", VNet(), source=MILLETARI, sample="volume"),
    GraphNetwork("vnet-nvidia", VNet((32, 32, 32), 3, (3, 3, 3), (3, 3), joined=False, norm=True, classes=3),
                 source=f"{MILLETARI}; {EXAMPLES}, TensorFlow/Segmentation/VNet/model/vnet.py", sample="volume"),
    GraphNetwork("unet3d", PlainUNet((128, 128, 128), LEVELS, 1, 3, activation="relu"), sample="volume",
                 source="MLCommons training, image_segmentation/pytorch/model/unet3d.py (KiTS19)"),
    GraphNetwork("unet3d-medical", PlainUNet((128, 128, 128), LEVELS, 4, 4, output=3), sample="volume",
                 source=f"{EXAMPLES}, TensorFlow/Segmentation/UNet_3D_Medical/model/unet3d.py (BraTS)"),
    GraphNetwork("nnunet-2d", PlainUNet((192, 160), (32, 64, 128, 256, 512, 512), 4, 4), source=ISENSEE),
    GraphNetwork("nnunet-3d", PlainUNet((128, 128, 128), LEVELS, 4, 4), sample="volume", source=ISENSEE),
)  # fmt: skip
