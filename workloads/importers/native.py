"""The operator of workloads/layers/ that an imported one is, where there is one: so that a network reads well as YAML.

A candidate is only taken where its counts for the same inputs are exactly those that were derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workloads.graph import Counts, Operator, Shape
from workloads.importers.onnx_model import OnnxNode
from workloads.layers.checks import Sizes
from workloads.layers.convolution import Conv, Pool
from workloads.layers.dense import Linear
from workloads.layers.embedding import Embedding
from workloads.layers.norms import BatchNorm, LayerNorm
from workloads.layers.pointwise import ACTIVATIONS, Activation, Add, Concat, Multiply

#: Norms of rows, told apart by their passes: written out, they are several nodes of a file.
NORMS = (LayerNorm(), LayerNorm(kind="rms"))


def candidate(node: OnnxNode, counts: Counts, shapes: Sequence[Shape], biased: bool) -> Operator | None:
    """What it may be.

    shapes   of its inputs as the file has them;  biased   a bias is among its parameters
    """
    name = counts.passes[0].name if counts.passes else ""
    if node.op == "Conv":
        return _convolution(node, shapes, biased)
    if node.op in ("MaxPool", "AveragePool"):
        return _pool(node)
    if counts.products and counts.products[0].name == "linear" and counts.mixing == "dense":
        return Linear(counts.products[0].n, biased)
    if name in ACTIVATIONS and not counts.products:
        return Activation(name)
    if name == "look-up":
        return Embedding(*shapes[0])
    if node.op == "BatchNormalization":
        return BatchNorm()
    if name == "norm":
        return next((one for one in NORMS if one.counts(counts.result).passes == counts.passes), None)
    if node.op == "Concat" and shapes:
        axis = node.attributes.get("axis", 0) % max(len(shapes[0]), 1)
        return Concat(axis - (len(shapes[0]) > 1 and shapes[0][0] == 1))
    if node.op == "Mul" and name == "multiply":
        return Multiply()
    return Add() if node.op == "Add" else None


def _one(numbers: Sequence[int]) -> Sizes:
    """One number where all are equal."""
    return numbers[0] if len(set(numbers)) == 1 else tuple(numbers)


def _padding(node: OnnxNode, axes: int) -> Sizes | None:
    """Positions on each side, None where the sides differ."""
    pads = tuple(node.attributes.get("pads") or (0,) * (2 * axes))
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or pads[:axes] != pads[axes:]:
        return None
    return _one(pads[:axes])


def _convolution(node: OnnxNode, shapes: Sequence[Shape], biased: bool) -> Operator | None:
    filters, _, *kernel = shapes[1]
    axes = len(kernel)
    padding = _padding(node, axes)
    if padding is None:
        return None
    settings: dict[str, Any] = {
        name: _one(tuple(node.attributes.get(f"{name}s") or (1,) * axes)) for name in ("stride", "dilation")
    }
    return Conv(filters, _one(kernel), padding=padding, groups=node.attributes.get("group", 1), bias=biased, **settings)


def _pool(node: OnnxNode) -> Operator | None:
    kernel = tuple(node.attributes.get("kernel_shape", ()))
    padding = _padding(node, len(kernel))
    if padding is None or not kernel:
        return None
    return Pool(
        _one(kernel), _one(tuple(node.attributes.get("strides") or (1,) * len(kernel))), padding,
        "max" if node.op == "MaxPool" else "average", bool(node.attributes.get("ceil_mode", 0)),
    )  # fmt: skip
