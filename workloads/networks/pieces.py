"""What many convolutional networks share: convolution with norm, squeeze-and-excitation, a classifier."""

from __future__ import annotations

from workloads.graph import Graph, Shape, Value
from workloads.layers.checks import Sizes
from workloads.layers.convolution import Conv, Padding
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import BatchNorm
from workloads.layers.pointwise import Activation, Dropout, GlobalPool, Scale


def image(graph: Graph, size: int, channels: int = 3) -> Value:
    """A square image."""
    return graph.input((channels, size, size), name="image")


def conv_norm(
    graph: Graph, x: Value, filters: int, *, kernel: Sizes = 1, stride: Sizes = 1, padding: Padding | None = None,
    groups: int = 1, dilation: int = 1, activation: str = "relu", bias: bool = False, norm: bool = True,
    frozen: bool = False,
) -> Value:  # fmt: skip
    """Convolution (padded to keep its size where an odd kernel allows), batch norm, activation ("" for none)."""
    if padding is None:
        padding = tuple(k // 2 for k in kernel) if isinstance(kernel, tuple) else dilation * (kernel - 1) // 2
    x = graph.add(Conv(filters, kernel, stride, padding, dilation=dilation, groups=groups, bias=bias), x)
    if norm:
        x = graph.add(BatchNorm(frozen=frozen), x)
    return graph.add(Activation(activation), x) if activation else x


def squeeze_excite(
    graph: Graph, x: Value, inner: int, *, activation: str = "relu", gate: str = "sigmoid", bias: bool = True
) -> Value:
    """Each channel times a gate that two small linear layers make of all channels' means (Hu et al. 2018)."""
    y = graph.add(GlobalPool(), x, name="squeeze")
    y = graph.add(Activation(activation), graph.add(Linear(inner, bias), y))
    y = graph.add(Activation(gate), graph.add(Linear(x.shape[0], bias), y))
    return graph.add(Scale(), x, y, name="excite")


def classifier(graph: Graph, x: Value, *, classes: int = 1000, dropout: float = 0.0, cell: str = "head") -> Value:
    """Mean over positions, one linear layer, loss."""
    with graph.cell(cell):
        x = graph.add(GlobalPool(), x)
        if dropout:
            x = graph.add(Dropout(dropout), x)
        x = graph.add(Linear(classes), x, name="classifier")
        return graph.add(CrossEntropy(), x)


def channels(value: Value) -> int:
    """Channels of a feature map."""
    return value.shape[0]


def positions(value: Value) -> Shape:
    """Its other axes."""
    return value.shape[1:]
