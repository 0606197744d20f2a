"""Convolutions of every form and pooling: shapes are (channels, *positions), 1 to 3 axes of positions.

Sizes follow PyTorch: out = floor((in + 2 pad - dilation (kernel - 1) - 1) / stride) + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from workloads.graph import Counts, Shape
from workloads.layers.checks import Sizes, at_least, need, spread
from workloads.operators import Matmul, Vector

#: Multiplications of 3 x 3 taps over those of F(2 x 2, 3 x 3): 36 for 16 of four outputs
#: [Lavin and Gray 2016, arXiv 1509.09308].
WINOGRAD = 2.25
#: Bytes of the index of a largest element: PyTorch's 64-bit integers.
INDEX = 8
Padding = int | tuple[int, ...] | Literal["same", "valid"]


def _positions(shape: Shape, kernel: Sizes) -> int:
    """Axes of positions of an input, which must have channels before them."""
    axes = len(shape) - 1
    if axes < 1 or axes > 3:
        raise ValueError(f"input: found shape {shape}, allowed: channels and 1 to 3 axes of positions")
    spread(kernel, axes, "kernel")
    return axes


def _divisible(groups: int, **numbers: int) -> None:
    """Every group has as many channels and filters as any other."""
    need([f"groups: {name} % groups: {number} % {groups} != 0" for name, number in numbers.items() if number % groups])


def padded(padding: Padding, kernel: tuple[int, ...], dilation: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Positions added on both sides together of each axis; "same" (of stride 1) keeps the size."""
    if padding == "valid":
        return (0,) * axes
    if padding == "same":
        return tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    return tuple(2 * size for size in spread(padding, axes, "padding"))


@dataclass(frozen=True)
class Conv:
    """A convolution, 1-D to 3-D by its input: filters of `kernel` taps over channels / groups.

    MACs = out positions x filters x (channels / groups) x taps.
    filters     output channels;   kernel, stride, padding, dilation   a number, or one an axis
    padding     on each side; "same": out = ceil(in / stride); "valid": none
    groups      input and output channels fall into as many independent parts; channels: depthwise
    """

    filters: int
    kernel: Sizes
    stride: Sizes = 1
    padding: Padding = 0
    dilation: Sizes = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        problems = at_least(
            1, filters=self.filters, kernel=self.kernel, stride=self.stride, dilation=self.dilation, groups=self.groups
        )
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                problems.append(f"padding: found {self.padding!r}, allowed: a whole number >= 0, same, valid")
        else:
            problems += at_least(0, padding=self.padding)
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Out positions by the size rule; one product a group."""
        if len(shapes) != 1:
            raise ValueError(f"inputs: found {len(shapes)}, allowed: 1")
        channels, *size = shapes[0]
        axes = _positions(shapes[0], self.kernel)
        kernel, stride = spread(self.kernel, axes, "kernel"), spread(self.stride, axes, "stride")
        dilation = spread(self.dilation, axes, "dilation")
        _divisible(self.groups, channels=channels, filters=self.filters)
        if self.padding == "same":
            out = tuple(-(-n // s) for n, s in zip(size, stride, strict=True))
        else:
            added = padded(self.padding, kernel, dilation, axes)
            out = tuple(
                (n + p - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(size, added, dilation, kernel, stride, strict=True)
            )
        if any(n < 1 for n in out):
            raise ValueError(f"kernel: found {self.kernel} on an input of {tuple(size)}, allowed: no larger than it")
        inner = channels // self.groups * prod(kernel)
        taps = prod(kernel)
        # a stride counts as far as windows still cover the input: a strided 1 x 1 kernel reads what it needs
        reach = prod(min(s, n) for s, n in zip(stride, size, strict=True))
        product = Matmul(
            "convolution", prod(out), self.filters // self.groups, inner, groups=self.groups, window=taps, stride=reach,
            winograd=WINOGRAD if (kernel, stride, dilation, self.groups) == ((3, 3), (1, 1), (1, 1), 1) else 1.0,
            convolution=True,
        )  # fmt: skip
        elements = self.filters * prod(out)
        return Counts(
            result=(self.filters, *out),
            parameters=self.filters * inner + (self.filters if self.bias else 0),
            products=(product,),
            # adding a bias costs no pass of its own: it is done where the product is written
            keeps=("inputs",),
            mixing="channels" if self.groups > 1 else "dense",
            passes=() if not self.bias else (_bias(elements),),
        )


def _bias(elements: int) -> Vector:
    """The gradient of a bias sums the gradient of the result; forward it is added where the product is written."""
    return Vector("bias", elements, reads=0, writes=0, backward_reads=1, backward_writes=0, operations=1,
                  backward_operations=1)  # fmt: skip


@dataclass(frozen=True)
class ConvTranspose:
    """A transposed convolution: out = (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.

    MACs = in positions x channels x (filters / groups) x taps.
    """

    filters: int
    kernel: Sizes
    stride: Sizes = 1
    padding: Sizes = 0
    output_padding: Sizes = 0
    dilation: Sizes = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        need(
            at_least(
                1, filters=self.filters, kernel=self.kernel, stride=self.stride, dilation=self.dilation,
                groups=self.groups,
            )
            + at_least(0, padding=self.padding, output_padding=self.output_padding)
        )

    def counts(self, *shapes: Shape) -> Counts:
        """Every input position writes taps x filters products, which are summed where they overlap."""
        if len(shapes) != 1:
            raise ValueError(f"inputs: found {len(shapes)}, allowed: 1")
        channels, *size = shapes[0]
        axes = _positions(shapes[0], self.kernel)
        names = ("kernel", "stride", "padding", "output_padding", "dilation")
        kernel, stride, padding, extra, dilation = (spread(getattr(self, name), axes, name) for name in names)
        _divisible(self.groups, channels=channels, filters=self.filters)
        out = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, s, p, d, k, e in zip(size, stride, padding, dilation, kernel, extra, strict=True)
        )
        if any(n < 1 for n in out):
            raise ValueError(f"padding: found {self.padding}: the result would have {out} positions")
        width = self.filters // self.groups * prod(kernel)
        product = Matmul(
            "transposed convolution", prod(size), width, channels // self.groups, groups=self.groups, convolution=True
        )
        elements = self.filters * prod(out)
        return Counts(
            result=(self.filters, *out),
            parameters=channels * width + (self.filters if self.bias else 0),
            products=(product,),
            passes=(_bias(elements),) if self.bias else (),
            keeps=("inputs",),
            mixing="channels" if self.groups > 1 else "dense",
        )


@dataclass(frozen=True)
class Pool:
    """Max or average pooling over windows of `kernel` positions.

    Its input is kept (PyTorch and cuDNN keep it for both kinds), and where each largest element was.
    ceil   the last window may reach beyond the input (GoogLeNet's pools)
    """

    kernel: Sizes
    stride: Sizes = 0
    padding: Padding = 0
    kind: Literal["max", "average"] = "max"
    ceil: bool = False

    def __post_init__(self) -> None:
        problems = at_least(1, kernel=self.kernel) + at_least(0, stride=self.stride)
        if not isinstance(self.padding, str):
            problems += at_least(0, padding=self.padding)
        if self.kind not in ("max", "average"):
            problems.append(f"kind: found {self.kind!r}, allowed: max, average")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Reads its input, writes its windows; max pooling writes and keeps the index that it chose."""
        if len(shapes) != 1:
            raise ValueError(f"inputs: found {len(shapes)}, allowed: 1")
        channels, *size = shapes[0]
        axes = _positions(shapes[0], self.kernel)
        kernel = spread(self.kernel, axes, "kernel")
        stride = spread(self.stride or self.kernel, axes, "stride")
        if self.padding == "same":
            out = tuple(-(-n // s) for n, s in zip(size, stride, strict=True))
        else:
            added = padded(self.padding, kernel, (1,) * axes, axes)
            half = tuple(p // 2 for p in added)
            out = tuple(_windows(n, k, s, p, h, self.ceil)
                        for n, k, s, p, h in zip(size, kernel, stride, added, half, strict=True))  # fmt: skip
        if any(n < 1 for n in out):
            raise ValueError(f"kernel: found {self.kernel} on an input of {tuple(size)}, allowed: no larger than it")
        elements, before = channels * prod(out), channels * prod(size)
        ratio = before / elements
        taps = float(prod(kernel))
        index = INDEX * (self.kind == "max")
        # backward: the gradient is read, with the index of the largest, and spread over the input
        one = Vector(
            f"{self.kind} pool", elements, reads=ratio, writes=1.0 + index / 2, backward_reads=1.0 + index / 2,
            backward_writes=ratio, operations=taps, backward_operations=taps,
        )  # fmt: skip
        return Counts(
            (channels, *out), passes=(one,), keeps=("inputs",), kept_bytes=index * elements,
            kept_fixed=index * elements, mixing="channels",
        )  # fmt: skip


def _windows(size: int, kernel: int, stride: int, added: int, before: int, ceil: bool) -> int:
    """Windows along an axis; one that would start beyond the input and its left padding is left out."""
    room = size + added - kernel
    if room < 0:
        return 0
    if not ceil:
        return room // stride + 1
    number = -(-room // stride) + 1
    return number - 1 if (number - 1) * stride >= size + before else number
