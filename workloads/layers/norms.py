"""Normalisations of feature maps and rows: passes over memory with a few parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Shape
from workloads.layers.checks import at_least, axis_of, need, one_shape
from workloads.operators import Vector


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation: statistics of each channel over samples and positions, then scale and shift.

    Forward reads twice (statistics, then the result) and writes once; backward reads input and gradient twice.
    affine   scale and shift are trained
    frozen   statistics, scale and shift are constants (detectors): one pass each way that keeps nothing
    """

    affine: bool = True
    frozen: bool = False

    def counts(self, *shapes: Shape) -> Counts:
        """Two parameters a channel."""
        shape = one_shape(shapes)
        if self.frozen:
            scaled = Vector("frozen norm", prod(shape), backward_reads=1, operations=2, backward_operations=1)
            return Counts(shape, passes=(scaled,), mixing="channels")
        one = Vector("batch norm", prod(shape), reads=2, writes=1, backward_reads=4, backward_writes=1, operations=6,
                     backward_operations=10)  # fmt: skip
        return Counts(shape, 2 * shape[0] if self.affine else 0, passes=(one,), keeps=("inputs",), mixing="channels")


@dataclass(frozen=True)
class GroupNorm:
    """Statistics of each sample over a group of channels and all positions; groups = channels: instance norm."""

    groups: int
    affine: bool = True

    def __post_init__(self) -> None:
        need(at_least(1, groups=self.groups))

    def counts(self, *shapes: Shape) -> Counts:
        """As batch norm; 8 B of statistics a group are kept."""
        shape = one_shape(shapes)
        if shape[0] % self.groups:
            raise ValueError(f"groups: channels % groups: {shape[0]} % {self.groups} != 0")
        one = Vector("group norm", prod(shape), reads=2, writes=1, backward_reads=4, backward_writes=1, operations=6,
                     backward_operations=10)  # fmt: skip
        return Counts(
            shape, 2 * shape[0] if self.affine else 0, passes=(one,), keeps=("inputs",), kept_bytes=8 * self.groups,
            kept_fixed=8 * self.groups, mixing="channels" if self.groups > 1 else "whole",
        )  # fmt: skip


@dataclass(frozen=True)
class InstanceNorm:
    """Statistics of each sample and channel over all positions."""

    affine: bool = True

    def counts(self, *shapes: Shape) -> Counts:
        """A group norm of as many groups as channels."""
        shape = one_shape(shapes)
        return GroupNorm(shape[0], self.affine).counts(shape)


@dataclass(frozen=True)
class LayerNorm:
    """Statistics of each row over one axis: the last (features), or 0 (channels of a map, ConvNeXt).

    A row is read once and stays on chip.  Its mean and deviation (8 B a row) are left out of what is kept, as those of
    batch norms are and as Korthikanti et al. 2022 do: 4 / width of its input.
    kind   "layer": scale and shift; "rms": no mean, scale alone
    scale, bias   the scale is trained; so is the shift
    """

    axis: int = -1
    kind: str = "layer"
    bias: bool = True
    scale: bool = True

    @property
    def weights(self) -> int:
        """Numbers it trains a column."""
        return self.scale + (self.kind == "layer" and self.bias)

    def __post_init__(self) -> None:
        if self.kind not in ("layer", "rms"):
            raise ValueError(f"kind: found {self.kind!r}, allowed: layer, rms")

    def counts(self, *shapes: Shape) -> Counts:
        """Parameters along the axis."""
        shape = one_shape(shapes)
        width = shape[axis_of(self.axis, shape)]
        mean = self.kind == "layer"
        one = Vector("norm", prod(shape), operations=8, backward_operations=16,
                     # apart: mean, difference, square, mean, root, product, scale and shift are a kernel each
                     pieces=4.0 if mean else 3.0)  # fmt: skip
        return Counts(shape, width * self.weights, passes=(one,), keeps=("inputs",))


@dataclass(frozen=True)
class LocalResponseNorm:
    """Each element divided by a power of the sum of squares of `size` neighbouring channels (AlexNet, GoogLeNet)."""

    size: int = 5

    def __post_init__(self) -> None:
        need(at_least(1, size=self.size))

    def counts(self, *shapes: Shape) -> Counts:
        """Input and result are kept, and the sums, 2 B an element."""
        shape = one_shape(shapes)
        one = Vector("local response norm", prod(shape), reads=1, writes=2, backward_reads=4, backward_writes=1,
                     operations=2.0 * self.size + 12, backward_operations=2.0 * self.size + 12)  # fmt: skip
        return Counts(shape, passes=(one,), keeps=("inputs", "result"), kept_bytes=2 * prod(shape))
