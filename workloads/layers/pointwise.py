"""Element-wise operators, sums, joins and reshapes: passes over memory, no matrix product.

Norms are in `workloads.layers.norms`, losses in `workloads.layers.losses`.  Sources of operation counts and of what is
kept: docs/models/networks.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Mixing, Shape
from workloads.layers.checks import at_least, axis_of, need, one_shape
from workloads.operators import Vector

#: Vector operations an element, forward and backward, and what the backward pass reads.
ACTIVATIONS = {
    "relu": (1, 1, "result"), "relu6": (2, 2, "inputs"), "gelu": (10, 14, "inputs"), "silu": (6, 8, "inputs"),
    "hardswish": (4, 5, "inputs"), "sigmoid": (5, 3, "result"), "tanh": (6, 3, "result"),
    "hardsigmoid": (3, 2, "inputs"), "mish": (12, 16, "inputs"), "softplus": (6, 6, "inputs"),
    "leaky_relu": (2, 2, "result"), "elu": (6, 4, "result"),
}  # fmt: skip


#: Traffic of the composition over that of one kernel, forward and backward together, where a framework has no fused
#: kernel: a kernel an arithmetic operation.  gelu by tanh has eight forward, each two to three passes.
PIECES = {"gelu": 8.0, "mish": 6.0, "silu": 2.5, "hardswish": 3.0, "softplus": 2.0, "elu": 3.0}


def copy(name: str, elements: int, *, backward: bool = True) -> Vector:
    """A pass that moves each element once, and its gradient back."""
    moved = float(backward)
    return Vector(name, elements, backward_reads=moved, backward_writes=moved, operations=0, backward_operations=0)


@dataclass(frozen=True)
class Activation:
    """An element-wise function; `kind` is one of `ACTIVATIONS`."""

    kind: str = "relu"

    def __post_init__(self) -> None:
        if self.kind not in ACTIVATIONS:
            raise ValueError(f"kind: found {self.kind!r}, allowed: {', '.join(ACTIVATIONS)}")

    def counts(self, *shapes: Shape) -> Counts:
        """Read and written once; backward reads the gradient and what is kept."""
        shape = one_shape(shapes)
        forward, backward, keeps = ACTIVATIONS[self.kind]
        one = Vector(self.kind, prod(shape), operations=forward, backward_operations=backward,
                     pieces=PIECES.get(self.kind, 1.0))  # fmt: skip
        return Counts(shape, passes=(one,), keeps=(keeps,), mixing="channels")  # type: ignore[arg-type]


@dataclass(frozen=True)
class PReLU:
    """A ReLU whose slope below zero is trained, one a channel (the first axis)."""

    def counts(self, *shapes: Shape) -> Counts:
        """As an activation; the gradient of the slope is a sum beside that of the input."""
        shape = one_shape(shapes)
        one = Vector("prelu", prod(shape), operations=2, backward_operations=4)
        return Counts(shape, parameters=shape[0], passes=(one,), keeps=("inputs",), mixing="channels")


@dataclass(frozen=True)
class Add:
    """The sum of tensors of one shape.

    weighted   each times a number that is trained (EfficientDet)
    """

    weighted: bool = False

    def counts(self, *shapes: Shape) -> Counts:
        """Each read once, the sum written; a plain sum's gradient passes through unchanged."""
        number = float(_alike(shapes))
        trained = float(self.weighted)
        one = Vector("add", prod(shapes[0]), reads=number, writes=1, backward_reads=trained * (number + 1),
                     backward_writes=trained * number, operations=number - 1 + trained * number,
                     backward_operations=trained * 3 * number)  # fmt: skip
        return Counts(
            shapes[0], parameters=len(shapes) if self.weighted else 0, passes=(one,),
            keeps=("inputs",) if self.weighted else (), mixing="channels",
        )  # fmt: skip


@dataclass(frozen=True)
class Multiply:
    """The element-wise product of two tensors of one shape (gates)."""

    def counts(self, *shapes: Shape) -> Counts:
        """Both kept: the gradient of each is the gradient times the other."""
        if _alike(shapes) != 2:
            raise ValueError(f"inputs: found {len(shapes)}, allowed: 2")
        one = Vector("multiply", prod(shapes[0]), reads=2, writes=1, backward_reads=3, backward_writes=2, operations=1,
                     backward_operations=2)  # fmt: skip
        return Counts(shapes[0], passes=(one,), keeps=("inputs",), mixing="channels")


def _alike(shapes: tuple[Shape, ...]) -> int:
    """How many inputs, which must be two or more of one shape."""
    if len(shapes) < 2 or any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: two or more equal ones")
    return len(shapes)


@dataclass(frozen=True)
class Scale:
    """Each channel times a number: a gate that is the second input (squeeze-and-excitation), or one that is trained.

    learned   the number is a parameter, one a channel of `axis` (ConvNeXt's layer scale); else the second input has
              one element a channel of the first axis
    """

    learned: bool = False
    axis: int = 0

    def counts(self, *shapes: Shape) -> Counts:
        """Read, scaled and written; the gradient of a number sums over its channel."""
        shape = shapes[0] if shapes else ()
        if self.learned:
            channels = one_shape(shapes)[axis_of(self.axis, shape)]
        else:
            channels = shape[0] if shape else 0
            if len(shapes) != 2 or prod(shapes[1]) != channels or shapes[1][0] != channels:
                raise ValueError(
                    f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: a tensor, a number a channel"
                )
        small = channels / prod(shape)
        one = Vector("scale", prod(shape), reads=1.0 + small, writes=1, backward_reads=2.0 + small,
                     backward_writes=1.0 + small, operations=1, backward_operations=3,
                     # apart: the gate's gradient multiplies into a tensor and sums it, five passes more of eight
                     pieces=1.5)  # fmt: skip
        return Counts(
            shape, parameters=channels if self.learned else 0, passes=(one,), keeps=("inputs",), mixing="channels"
        )


@dataclass(frozen=True)
class Dropout:
    """Elements set to zero at random, the others scaled: `rate` says how many, and costs nothing by itself.

    A byte an element of mask is written and kept; of whole samples (stochastic depth) a number a sample, not counted.
    """

    rate: float = 0.5
    samples: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not isinstance(self.rate, int | float) or not 0 <= self.rate < 1:
            raise ValueError(f"rate: found {self.rate!r}, allowed: 0 <= rate < 1")

    def counts(self, *shapes: Shape) -> Counts:
        """Nothing at all where the rate is 0."""
        shape = one_shape(shapes)
        if not self.rate:
            return Counts(shape, mixing="channels")
        if self.samples:
            scaled = Vector("drop samples", prod(shape), backward_reads=1, operations=1, backward_operations=1)
            return Counts(shape, passes=(scaled,), mixing="channels")
        # apart: random numbers, comparison, scale and product are a kernel each
        one = Vector("dropout", prod(shape), writes=1.5, backward_reads=1.5, operations=4, backward_operations=1,
                     pieces=2.5)  # fmt: skip
        return Counts(shape, passes=(one,), kept_bytes=prod(shape), kept_fixed=prod(shape), mixing="channels")


@dataclass(frozen=True)
class Concat:
    """Tensors joined along an axis (the first: channels)."""

    axis: int = 0

    def counts(self, *shapes: Shape) -> Counts:
        """Each copied once, and its gradient copied back."""
        if not shapes:
            raise ValueError("inputs: found 0, allowed: one or more")
        at = axis_of(self.axis, shapes[0])
        rest = {shape[:at] + shape[at + 1 :] for shape in shapes}
        if len(rest) != 1 or any(len(shape) != len(shapes[0]) for shape in shapes):
            raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: equal but for axis {at}")
        result = (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])
        return Counts(result, passes=(copy("concatenate", prod(result)),), mixing="channels")


@dataclass(frozen=True)
class Slice:
    """Elements start .. stop - 1 of an axis: a view; its gradient is copied into zeros."""

    start: int
    stop: int
    axis: int = 0

    def __post_init__(self) -> None:
        need(at_least(0, start=self.start) + at_least(1, stop=self.stop))

    def counts(self, *shapes: Shape) -> Counts:
        """Nothing moves forward."""
        shape = one_shape(shapes)
        at = axis_of(self.axis, shape)
        if not self.start < self.stop <= shape[at]:
            raise ValueError(f"stop: found {self.start}:{self.stop}, allowed: a part of 0:{shape[at]}")
        result = (*shape[:at], self.stop - self.start, *shape[at + 1 :])
        one = Vector("slice", prod(result), reads=0, writes=0, backward_reads=1,
                     backward_writes=prod(shape) / prod(result), operations=0, backward_operations=0)  # fmt: skip
        return Counts(result, passes=(one,), mixing="channels" if at else "whole", view=True)


@dataclass(frozen=True)
class Flatten:
    """The same elements in another shape: () is one axis.  Nothing moves."""

    shape: Shape = ()

    def counts(self, *shapes: Shape) -> Counts:
        """No work."""
        shape = one_shape(shapes)
        result = self.shape or (prod(shape),)
        if prod(result) != prod(shape):
            raise ValueError(f"shape: found {result} for {shape}, allowed: as many elements")
        return Counts(result, mixing="channels", view=True)


@dataclass(frozen=True)
class Permute:
    """Axes in another order: `order` names for each axis of the result the axis it was.  Everything is copied."""

    order: tuple[int, ...]

    def counts(self, *shapes: Shape) -> Counts:
        """A copy forward and one back."""
        shape = one_shape(shapes)
        if sorted(self.order) != list(range(len(shape))):
            raise ValueError(f"order: found {self.order}, allowed: each of 0..{len(shape) - 1} once")
        result = tuple(shape[axis] for axis in self.order)
        return Counts(result, passes=(copy("permute", prod(shape)),), mixing="channels")


@dataclass(frozen=True)
class ChannelShuffle:
    """Channels of `groups` groups dealt out in turn (ShuffleNet)."""

    groups: int

    def __post_init__(self) -> None:
        need(at_least(1, groups=self.groups))

    def counts(self, *shapes: Shape) -> Counts:
        """A copy forward and one back; ranks of a channel split would have to exchange."""
        shape = one_shape(shapes)
        if shape[0] % self.groups:
            raise ValueError(f"groups: channels % groups: {shape[0]} % {self.groups} != 0")
        return Counts(shape, passes=(copy("channel shuffle", prod(shape)),))


@dataclass(frozen=True)
class PixelShuffle:
    """Channels become positions: (c f f, h, w) -> (c, f h, f w); f < 0 the other way (space to depth)."""

    factor: int

    def counts(self, *shapes: Shape) -> Counts:
        """A copy forward and one back."""
        channels, *size = one_shape(shapes)
        factor = abs(self.factor)
        area = factor ** len(size)
        if not factor or (channels % area if self.factor > 0 else any(n % factor for n in size)):
            raise ValueError(f"factor: found {self.factor} for {shapes[0]}, allowed: one that divides it")
        result = (
            (channels // area, *(n * factor for n in size))
            if self.factor > 0
            else (channels * area, *(n // factor for n in size))
        )
        return Counts(result, passes=(copy("pixel shuffle", prod(result)),))


@dataclass(frozen=True)
class Upsample:
    """Positions interpolated to `factor` times as many an axis, or to `size`.

    kind   "nearest": a read an element; "linear": 2 neighbours an axis are weighted
    """

    factor: int = 2
    size: tuple[int, ...] = ()
    kind: str = "nearest"

    def __post_init__(self) -> None:
        problems = at_least(1, factor=self.factor) + (at_least(1, size=self.size) if self.size else [])
        if self.kind not in ("nearest", "linear"):
            problems.append(f"kind: found {self.kind!r}, allowed: nearest, linear")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Reads the smaller, writes the larger; backward sums what came from one element."""
        channels, *size = one_shape(shapes)
        if self.size and len(self.size) != len(size):
            raise ValueError(f"size: found {self.size}, allowed: {len(size)} numbers")
        result = (channels, *(self.size or tuple(n * self.factor for n in size)))
        small = prod(shapes[0]) / prod(result)
        neighbours = 2.0 ** len(size) if self.kind == "linear" else 1.0
        one = Vector(f"upsample {self.kind}", prod(result), reads=small, writes=1, backward_reads=1,
                     backward_writes=small, operations=2 * neighbours - 1,
                     backward_operations=2 * neighbours - 1)  # fmt: skip
        return Counts(result, passes=(one,), mixing="channels")


@dataclass(frozen=True)
class GlobalPool:
    """The mean over all positions of each channel."""

    def counts(self, *shapes: Shape) -> Counts:
        """Reads everything, writes a number a channel."""
        shape = one_shape(shapes)
        return Counts((shape[0],), passes=(_mean("global pool", shape, shape[:1]),), mixing="channels")


@dataclass(frozen=True)
class AdaptivePool:
    """Averages over windows such that `size` positions an axis are left, whatever the input."""

    size: int

    def __post_init__(self) -> None:
        need(at_least(1, size=self.size))

    def counts(self, *shapes: Shape) -> Counts:
        """Reads everything, writes what is left; windows overlap by less than an element an axis."""
        shape = one_shape(shapes)
        result = (shape[0], *(self.size for _ in shape[1:]))
        return Counts(result, passes=(_mean("adaptive pool", shape, result),), mixing="channels")


@dataclass(frozen=True)
class Reduce:
    """The sum, mean or largest over `axes`; `keep` leaves them with size 1."""

    axes: tuple[int, ...]
    kind: str = "mean"
    keep: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("sum", "mean", "max"):
            raise ValueError(f"kind: found {self.kind!r}, allowed: sum, mean, max")

    def counts(self, *shapes: Shape) -> Counts:
        """Reads everything, writes what is left."""
        shape = one_shape(shapes)
        gone = {axis_of(axis, shape) for axis in self.axes}
        left = tuple(1 if at in gone else size for at, size in enumerate(shape))
        result = left if self.keep else tuple(size for at, size in enumerate(shape) if at not in gone) or (1,)
        one = _mean(self.kind, shape, left)
        kept = prod(left) * (self.kind == "max")
        mixing: Mixing = "whole" if 0 in gone else "channels"
        return Counts(result, passes=(one,), kept_bytes=kept, kept_fixed=kept, mixing=mixing)


def _mean(name: str, before: Shape, after: Shape) -> Vector:
    """A pass that reads `before`, writes `after`, and spreads the gradient back."""
    ratio = prod(before) / prod(after)
    return Vector(name, prod(after), reads=ratio, writes=1, backward_reads=1, backward_writes=ratio, operations=ratio,
                  backward_operations=ratio)  # fmt: skip


@dataclass(frozen=True)
class RoiAlign:
    """Features of `rois` regions cut out of maps (one or several levels) at size x size bins of 4 bilinear samples.

    Result (channels, rois, size, size).  Regions overlap and are read from cache: each map moves once.
    Source: He et al. 2017, Mask R-CNN, section 3.
    """

    rois: int
    size: int

    def __post_init__(self) -> None:
        need(at_least(1, rois=self.rois, size=self.size))

    def counts(self, *shapes: Shape) -> Counts:
        """16 weighted reads a bin."""
        if not shapes or any(shape[0] != shapes[0][0] or len(shape) != 3 for shape in shapes):
            raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: (channels, height, width), "
                             "as many channels each")  # fmt: skip
        result = (shapes[0][0], self.rois, self.size, self.size)
        maps = sum(prod(shape) for shape in shapes) / prod(result)
        one = Vector("roi align", prod(result), reads=maps, writes=1, backward_reads=1, backward_writes=maps,
                     operations=32, backward_operations=32)  # fmt: skip
        return Counts(result, passes=(one,), mixing="channels")
