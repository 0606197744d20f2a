"""Numbers that ONNX operators give where their inputs are known and few: shapes, axes, scales, positions.

Exported models compute the shapes of reshapes with such numbers; tensors of more elements are never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from workloads.graph import Shape
from workloads.importers.onnx_file import FEW
from workloads.importers.onnx_model import TYPES, OnnxNode, Stored
from workloads.importers.onnx_shape_rules import Inputs, given
from workloads.importers.onnx_shapes import part, reduced_axes, slices

#: Numpy functions for numbers that are known, by operator: inputs as arrays.
FOLDED: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Mod": np.mod, "Neg": np.negative, "Abs": np.abs,
    "Floor": np.floor, "Ceil": np.ceil, "Round": np.round, "Sqrt": np.sqrt, "Not": np.logical_not,
    "Equal": np.equal, "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "Where": np.where, "Identity": lambda a: a, "Sign": np.sign, "Reciprocal": np.reciprocal,
    "Max": lambda *a: np.maximum.reduce(np.broadcast_arrays(*a)),
    "Min": lambda *a: np.minimum.reduce(np.broadcast_arrays(*a)),
    "Pow": lambda a, b: np.power(np.asarray(a, float), b).astype(a.dtype),
}  # fmt: skip


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Division; of whole numbers towards zero."""
    if np.issubdtype(a.dtype, np.integer):
        if not np.all(b):
            raise ValueError("division by zero")
        return np.asarray(np.trunc(a / b).astype(a.dtype))
    return np.asarray(a / b)


def folded(node: OnnxNode, inputs: Inputs, shape: Shape) -> np.ndarray | None:
    """The numbers of a first result that follow from shapes and known numbers, where they are few; else None."""
    if prod(shape) > FEW:
        return None
    op = node.op
    if op == "Shape":
        return np.array(part(node, given(inputs, 0).shape), np.int64)
    if op == "Size":
        return np.array(given(inputs, 0).elements, np.int64)
    if op == "Constant":
        return _constant_numbers(node)
    present = [tensor for tensor in inputs if tensor is not None]
    if not present or any(tensor.known is None for tensor in present):
        return None
    arrays = [tensor.known for tensor in present if tensor.known is not None]
    with np.errstate(all="ignore"):
        if op in FOLDED:
            return np.asarray(FOLDED[op](*arrays))
        return _folded(node, inputs, arrays, shape=shape)


def _folded(node: OnnxNode, inputs: Inputs, arrays: list[np.ndarray], *, shape: Shape) -> np.ndarray | None:
    """Operators on known numbers that need their settings."""
    op, first = node.op, arrays[0]
    axis = node.attributes.get("axis", 0)
    if op == "Div":
        return _divided(arrays[0], arrays[1])
    if op in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return first.reshape(shape)
    if op == "Expand":
        return np.array(np.broadcast_to(first, shape))
    if op == "Concat":
        return np.asarray(np.concatenate(arrays, axis))
    if op == "Gather":
        index = arrays[1].astype(np.int64)
        if index.size and not -first.shape[axis] <= index.min() <= index.max() < first.shape[axis]:
            raise ValueError(f"indices: found {index.min()} to {index.max()} for {first.shape[axis]}")
        return np.asarray(np.take(first, index, axis))
    if op == "Slice":
        return np.asarray(first[slices(node, inputs)])
    if op == "Transpose":
        return np.transpose(first, node.attributes.get("perm"))
    if op == "Range":
        return (float(first.reshape(-1)[0]) + float(arrays[2].reshape(-1)[0]) * np.arange(shape[0])).astype(first.dtype)
    if op == "ConstantOfShape":
        value = node.attributes.get("value")
        fill = value.known.reshape(-1)[0] if isinstance(value, Stored) and value.known is not None else np.float32(0)
        return np.full(shape, fill)
    if op == "Cast":
        return _cast(first, node.attributes.get("to", 1))
    if op in ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin"):
        axes = reduced_axes(node, inputs)
        runs: dict[str, Callable[..., Any]] = {
            "ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min,
        }  # fmt: skip
        run = runs[op]
        return np.asarray(run(first, axis=axes)).reshape(shape) if first.size else None
    if op == "GatherND" and not node.attributes.get("batch_dims", 0):
        at = np.moveaxis(arrays[1].astype(np.int64), -1, 0)
        return np.asarray(first[tuple(at)])
    if op == "CumSum" and not node.attributes.get("exclusive", 0) and not node.attributes.get("reverse", 0):
        return np.cumsum(first, int(arrays[1].reshape(-1)[0]))
    return None


def _cast(array: np.ndarray, to: int) -> np.ndarray | None:
    code = TYPES.get(to, ("", None))[1]
    return array.astype(code) if code else None


def _constant_numbers(node: OnnxNode) -> np.ndarray | None:
    for name, value in node.attributes.items():
        if isinstance(value, Stored):
            return value.known
        if name in ("value_int", "value_ints"):
            return np.array(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.array(value, np.float32)
    return None
