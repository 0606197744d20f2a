"""Shapes that several ONNX operators share: attributes, broadcasting, reshaping, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from workloads.graph import Shape
from workloads.importers.onnx_model import OnnxNode
from workloads.importers.tracing import Tensor

__all__ = [
    "Inputs", "Rule", "axis_of", "broadcast", "given", "known", "optional", "reshaped", "setting", "whole", "windows",
]  # fmt: skip

Inputs = Sequence[Tensor | None]
Rule = Callable[[OnnxNode, Inputs], list[Shape]]


def given(inputs: Inputs, at: int, what: str = "") -> Tensor:
    """An input that must be there."""
    tensor = inputs[at] if at < len(inputs) else None
    if tensor is None:
        raise ValueError(f"input {at}{f' ({what})' if what else ''} is missing")
    return tensor


def optional(inputs: Inputs, at: int) -> Tensor | None:
    """An input that may be left out."""
    return inputs[at] if at < len(inputs) else None


def known(inputs: Inputs, at: int, what: str) -> np.ndarray:
    """The numbers of an input that shapes depend on."""
    tensor = given(inputs, at, what)
    if tensor.known is None:
        raise ValueError(f"{what} depends on data, or its numbers are not in the file")
    return tensor.known


def whole(inputs: Inputs, at: int, what: str) -> tuple[int, ...]:
    """Whole numbers of an input."""
    return tuple(int(number) for number in known(inputs, at, what).reshape(-1))


def setting(node: OnnxNode, inputs: Inputs, name: str, at: int) -> tuple[int, ...] | None:
    """Whole numbers that older versions give as an attribute and newer ones as an input; None where there are none."""
    if name in node.attributes:
        value = node.attributes[name]
        return tuple(value) if isinstance(value, tuple) else (int(value),)
    return whole(inputs, at, name) if optional(inputs, at) is not None else None


def axis_of(axis: int, shape: Shape, *, more: int = 0) -> int:
    """An axis counted from the front; more: axes the result has beside those of the shape."""
    rank = len(shape) + more
    if not -rank <= axis < rank:
        raise ValueError(f"axis: found {axis}, allowed: {-rank} to {rank - 1} of {shape}")
    return axis % rank if rank else 0


def broadcast(*shapes: Shape) -> Shape:
    """The shape of an element-wise result."""
    rank = max(len(shape) for shape in shapes)
    found = []
    for at in range(-rank, 0):
        sizes = {shape[at] for shape in shapes if len(shape) >= -at} - {1}
        if len(sizes) > 1:
            raise ValueError(f"inputs of shapes {', '.join(map(str, shapes))} do not broadcast")
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def reshaped(shape: Shape, wanted: Sequence[int], *, zero_copies: bool = True) -> Shape:
    """The same elements in another shape; 0 copies a size, -1 takes what is left."""
    sizes = [shape[at] if size == 0 and zero_copies and at < len(shape) else size for at, size in enumerate(wanted)]
    if sizes.count(-1) == 1:
        rest = prod(size for size in sizes if size != -1)
        if rest > 0 and prod(shape) % rest == 0:
            sizes[sizes.index(-1)] = prod(shape) // rest
    if any(size < 0 for size in sizes) or prod(sizes) != prod(shape):
        raise ValueError(
            f"shape: found {tuple(wanted)} for {shape}, allowed: as many elements (was it exported for other sizes, or "
            "another batch?)"
        )
    return tuple(sizes)


def windows(
    node: OnnxNode, size: Shape, kernel: Sequence[int], *, ceil_mode: bool = False
) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Positions of windows over `size`, positions with their padding, and strides."""
    axes = len(size)
    stride = tuple(node.attributes.get("strides") or (1,) * axes)
    dilation = tuple(node.attributes.get("dilations") or (1,) * axes)
    pads = tuple(node.attributes.get("pads") or (0,) * (2 * axes))
    if not len(kernel) == len(stride) == len(dilation) == axes or len(pads) != 2 * axes:
        raise ValueError(f"kernel {tuple(kernel)}, strides {stride}, pads {pads}: allowed: a number an axis of {size}")
    if min((*kernel, *stride, *dilation), default=1) < 1:
        raise ValueError(f"kernel {tuple(kernel)}, strides {stride}, dilations {dilation}: allowed: numbers >= 1")
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(-(-n // s) for n, s in zip(size, stride, strict=True))
        return out, tuple(max((o - 1) * s + r, 1) for o, s, r in zip(out, stride, reach, strict=True)), stride
    if mode == "VALID":
        pads = (0,) * (2 * axes)
    padded = tuple(n + pads[at] + pads[at + axes] for at, n in enumerate(size))
    found = []
    for at, (n, r, s) in enumerate(zip(padded, reach, stride, strict=True)):
        room = n - r
        if room < 0:
            raise ValueError(f"kernel: found {tuple(kernel)} on an input of {size}, allowed: no larger than it")
        number = room // s + 1
        if ceil_mode:
            number = -(-room // s) + 1
            if (number - 1) * s >= size[at] + pads[at]:  # it would start beyond the input
                number -= 1
        found.append(number)
    return tuple(found), padded, stride
