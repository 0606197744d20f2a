"""What ONNX operators cost: counts from their inputs and the shapes of their results, and which of them are views.

Theory: docs/importers_onnx.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from workloads.graph import Counts, Shape
from workloads.importers import costs
from workloads.importers.onnx_model import OnnxNode
from workloads.importers.onnx_shape_rules import Inputs, axis_of, given, optional, whole, windows
from workloads.importers.onnx_shapes import einsum, gemm, reduced_axes
from workloads.importers.tracing import Tensor, sample
from workloads.layers.losses import CrossEntropy
from workloads.operators import Attention, Matmul

#: Counts of an operator, and the tensors it reads that a gradient may flow to (statistics of batch norm are none).
Work = tuple[Counts, list[Tensor]]
Cost = Callable[[OnnxNode, Inputs, list[Shape]], Work]

#: Element-wise functions by operator: the name of their passes.
UNARY = {
    "Relu": "relu", "LeakyRelu": "leaky_relu", "ThresholdedRelu": "relu", "Elu": "elu", "Celu": "elu", "Selu": "selu",
    "Gelu": "gelu", "Sigmoid": "sigmoid", "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Swish": "silu",
    "Tanh": "tanh", "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish", "Clip": "clip", "Abs": "abs",
    "Neg": "neg", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Erf": "erf", "Sin": "sin",
    "Cos": "cos", "Floor": "round", "Ceil": "round", "Round": "round", "Sign": "round",
    **dict.fromkeys(("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), "function"),
}  # fmt: skip
#: Element-wise functions of several tensors.
SEVERAL = {"Add": "add", "Sub": "sub", "Sum": "sum", "Mean": "mean", "Mul": "mul", "Div": "div", "Pow": "pow",
           "Max": "max", "Min": "min", "Where": "where", "Mod": "mod", "PRelu": "mul"}  # fmt: skip
#: Results that are whole numbers or truth values: no gradient, and next to no work.
WHOLE = frozenset(
    ("Shape", "Size", "ArgMax", "ArgMin", "NonZero", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not",
     "And", "Or", "Xor", "IsNaN", "IsInf", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseNot", "BitwiseXor")
)  # fmt: skip
#: Views: the elements stay where they are.  Casts are among them: formats of numbers are the search's to choose.
VIEWS = frozenset(
    ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Split", "Slice", "Expand", "Cast", "CastLike", "Shape",
     "Size", "StopGradient")
)  # fmt: skip
#: Copies without arithmetic.
COPIES = {"Concat": "concatenate", "Transpose": "permute", "Tile": "tile", "Pad": "pad",
          "DepthToSpace": "pixel shuffle", "SpaceToDepth": "pixel shuffle", "Trilu": "copy",
          "ReverseSequence": "copy", "TopK": "top k", "QuantizeLinear": "quantize",
          "DequantizeLinear": "dequantize", "OneHot": "one hot"}  # fmt: skip
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
              "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
#: Operators that make numbers of nothing: constants.
MADE = frozenset(("Constant", "ConstantOfShape", "Range", "EyeLike", "RandomNormal", "RandomUniform"))


def present(inputs: Inputs) -> list[Tensor]:
    """Inputs that are there."""
    return [tensor for tensor in inputs if tensor is not None]


def _conv(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    before, weight = given(inputs, 0), given(inputs, 1)
    _, padded, stride = windows(node, before.shape[2:], weight.shape[2:])
    dilation = tuple(node.attributes.get("dilations") or (1,) * len(stride))
    counts = costs.convolved(
        before.shape, weight.shape, shapes[0], stride=stride, dilation=dilation, padded=padded,
        groups=node.attributes.get("group", 1), biased=_learned(inputs, 2),
    )  # fmt: skip
    return counts, present(inputs)


def _learned(inputs: Inputs, at: int) -> bool:
    """Whether there is a bias that is trained (exporters write zeros where there is none)."""
    tensor = optional(inputs, at)
    return tensor is not None and bool(tensor.parameters or tensor.value)


def _conv_transpose(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    before, weight = given(inputs, 0), given(inputs, 1)
    axes = len(before.shape) - 2
    counts = costs.transposed(
        before.shape, weight.shape, shapes[0], stride=tuple(node.attributes.get("strides") or (1,) * axes),
        dilation=tuple(node.attributes.get("dilations") or (1,) * axes), groups=node.attributes.get("group", 1),
        biased=_learned(inputs, 2),
    )  # fmt: skip
    return counts, present(inputs)


def _pool(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    largest = node.op == "MaxPool"
    kernel = node.attributes.get("kernel_shape", ())
    return costs.pooled(given(inputs, 0).shape, shapes[0], taps=prod(kernel), largest=largest), [given(inputs, 0)]


def _global(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    return costs.reduced("global pool", given(inputs, 0).shape, shapes[0]), [given(inputs, 0)]


def matrix_product(left: Tensor, right: Tensor, shape: Shape) -> Counts:
    """A product of two tensors: of one that is data and one that is a weight, or of two that are data.

    A weight of two axes meets all rows; one with more is a product a group, as two tensors of data are."""
    a = left.shape if len(left.shape) > 1 else (1, *left.shape)
    b = right.shape if len(right.shape) > 1 else (*right.shape, 1)
    rows, inner, columns = a[-2], a[-1], b[-1]
    groups = prod(shape) // max(rows * columns, 1)
    if right.constant and prod(b[:-2]) == 1:
        return costs.product("linear", shape, Matmul("", groups * rows, columns, inner))
    if left.constant and prod(a[:-2]) == 1:
        return costs.product("linear", shape, Matmul("", groups * columns, rows, inner))
    if right.constant:
        weights = prod(b[:-2])
        return costs.product("linear", shape, Matmul("", groups // weights * rows, columns, inner, groups=weights))
    if left.constant:
        weights = prod(a[:-2])
        return costs.product("linear", shape, Matmul("", groups // weights * columns, rows, inner, groups=weights))
    return costs.product("product", shape, Matmul("", rows, columns, inner, groups=groups, weight=False))


def _matmul(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    return matrix_product(given(inputs, 0), given(inputs, 1), shapes[0]), present(inputs)


def _gemm(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    rows, columns, inner = gemm(node, inputs)
    left, right = given(inputs, 0), given(inputs, 1)
    biased = _learned(inputs, 2)
    weight = left.constant or right.constant
    if left.constant and not right.constant:
        rows, columns = columns, rows
    one = Matmul("", rows, columns, inner, weight=weight)
    return costs.product("linear" if weight else "product", shapes[0], one, biased=biased), present(inputs)


def _einsum(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    terms, result, sizes = einsum(node, inputs)
    tensors = present(inputs)
    if len(terms) == 1:
        kind = costs.copied("permute", shapes[0]) if set(terms[0]) == set(result) else None
        return kind or costs.reduced("sum", tensors[0].shape, shapes[0]), tensors
    if len(terms) != 2:
        raise ValueError(f"equation: found {len(terms)} inputs, allowed: one or two")
    if tensors[0].constant:
        terms, tensors = terms[::-1], tensors[::-1]
    left, right = (set(term) for term in terms)

    def size(letters: set[str]) -> int:
        return prod(sizes[letter] for letter in letters)

    kept = set(result)
    both = left & right & kept
    inner = left & right - kept
    if not inner and not ((left - right) & kept and (right - left) & kept):
        return costs.combined("mul", tensors, shapes[0]), tensors
    rows, columns, groups = size((left - right) & kept), size((right - left) & kept), size(both)
    one = Matmul("", rows, columns, size(inner), groups=groups, weight=tensors[1].constant)
    return costs.product("einsum", shapes[0], one), tensors


def _unary(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    kind = UNARY[node.op]
    if node.op == "Clip":
        limits = [node.attributes.get("min", 1), node.attributes.get("max", 0)]
        for at in (1, 2):
            bound = optional(inputs, at)
            if bound is not None and bound.known is not None and bound.known.size:
                limits[at - 1] = float(bound.known.reshape(-1)[0])
        kind = "relu6" if limits == [0, 6] else "clip"
    return costs.activation(kind, shapes[0]), [given(inputs, 0)]


def _several(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    tensors = present(inputs)
    kind = SEVERAL[node.op]
    if node.op == "Where":
        tensors = tensors[1:]
    if kind == "pow" and tensors[1].known is not None:
        power = tensors[1].known.reshape(-1)
        if power.size == 1 and float(power[0]) == 2.0:
            return costs.combined("mul", [tensors[0], tensors[0]], shapes[0]), tensors[:1]
        if power.size == 1 and float(power[0]) == 0.5:
            return costs.activation("sqrt", shapes[0]), tensors[:1]
    return costs.combined(kind, tensors, shapes[0]), [tensor for tensor in tensors if tensor.floating]


def _copy(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    if node.op == "Concat":
        return costs.copied("concatenate", shapes[0]), present(inputs)
    return costs.copied(COPIES[node.op], shapes[0], read=given(inputs, 0).elements), [given(inputs, 0)]


def _resize(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    before = given(inputs, 0)
    mode = node.attributes.get("mode", "nearest")
    axes = sum(1 for a, b in zip(before.shape, shapes[0], strict=True) if a != b)
    neighbours = {"linear": 2.0, "cubic": 4.0}.get(mode, 1.0) ** axes
    counts = costs.copied(f"resize {mode}", shapes[0], read=before.elements)
    operations = 2.0 * neighbours - 1.0
    passes = tuple(replace(one, operations=operations, backward_operations=operations) for one in counts.passes)
    return replace(counts, passes=passes), [before]


def _gather(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    """Rows of a table of parameters (an embedding), or of a tensor."""
    data, index = given(inputs, 0), given(inputs, 1)
    if data.constant and data.parameters and node.op == "Gather" and len(data.shape) == 2:
        return costs.embedded(data.shape, shapes[0]), [data, index]
    if data.constant and data.parameters:
        return costs.picked("embedding", shapes[0]), [data, index]
    return costs.picked("gather", shapes[0]), [data]


def _scatter(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    tensors = [given(inputs, 0), given(inputs, 2)]
    return costs.copied("scatter", shapes[0], read=tensors[0].elements + tensors[1].elements), tensors


def _reduce(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    kind = node.op.removeprefix("Reduce").lower()
    if not reduced_axes(node, inputs):
        return costs.activation("function", shapes[0]), [given(inputs, 0)]
    return costs.reduced(kind, given(inputs, 0).shape, shapes[0]), [given(inputs, 0)]


def _softmax(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    return costs.probabilities("log softmax" if node.op == "LogSoftmax" else "softmax", shapes[0]), [given(inputs, 0)]


def _batch_norm(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    return costs.batch_normalised(shapes[0]), present(inputs[:3])


def _norm(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    shape, tensors = shapes[0], present(inputs)
    if node.op == "LRN":
        return costs.locally_normalised(shape, node.attributes.get("size", 5)), tensors
    if node.op == "GroupNormalization":
        return costs.grouped(shape, node.attributes.get("num_groups", 1)), tensors
    if node.op in ("InstanceNormalization", "MeanVarianceNormalization"):
        return costs.grouped(shape, sample(shape)[0]), tensors
    axis = axis_of(node.attributes.get("axis", -1), shape)
    kind = "layer norm" if node.op == "LayerNormalization" else "rms norm"
    end = axis + 1 if node.op == "LpNormalization" else len(shape)
    return costs.normalised(kind, shape, rows=prod(shape) // max(prod(shape[axis:end]), 1)), tensors


def _recurrent(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    before, state = given(inputs, 0).shape, given(inputs, 2)
    steps, batch = (before[1], before[0]) if node.attributes.get("layout", 0) else (before[0], before[1])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[node.op]
    counts = costs.recurrent(
        node.op.lower(), shapes[0], steps=steps, batch=batch, inputs=before[2], hidden=state.shape[2], gates=gates,
        directions=state.shape[0],
    )  # fmt: skip
    weights = [tensor for tensor in inputs[:4] if tensor is not None]
    peepholes = optional(inputs, 7)
    return counts, [*weights, *([peepholes] if peepholes is not None else [])]


def _attention(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    """The operator of opset 23: query, key and value with heads apart or joined."""
    query, key, value = (given(inputs, at) for at in range(3))
    if len(query.shape) == 4:
        (batch, heads, queries, width), (_, shared, keys, _), columns = query.shape, key.shape, value.shape[3]
    else:
        heads, shared = node.attributes.get("q_num_heads", 1), node.attributes.get("kv_num_heads", 1)
        batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
        width, columns = query.shape[2] // heads, value.shape[2] // shared
    shared = max(shared // key.copies, 1)
    mask = optional(inputs, 3)
    causal = bool(node.attributes.get("is_causal", 0)) or (mask is not None and mask.causal)
    core = Attention(batch * heads, batch * shared, queries, keys, width, columns, causal)
    biased = mask is not None and bool(mask.parameters)
    return costs.attention(shapes[0], core, biased=biased), [query, key, value, *([mask] if biased and mask else [])]


def _dropout(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    return costs.dropped(shapes[0]), [given(inputs, 0)]


def _loss(node: OnnxNode, inputs: Inputs, shapes: list[Shape]) -> Work:
    """Logits (sample, classes, positions) or (rows, classes)."""
    shape = given(inputs, 0).shape
    classes = shape[1] if len(shape) > 1 else shape[0]
    return CrossEntropy().counts((prod(shape) // classes, classes)), [given(inputs, 0)]


COSTS: dict[str, Cost] = {
    "SoftmaxCrossEntropyLoss": _loss, "NegativeLogLikelihoodLoss": _loss,
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool,
    "GlobalAveragePool": _global, "GlobalMaxPool": _global, "GlobalLpPool": _global, "MatMul": _matmul, "Gemm": _gemm,
    "Einsum": _einsum, "Attention": _attention, "Resize": _resize, "Upsample": _resize, "Gather": _gather,
    "GatherND": _gather, "GatherElements": _gather, "ScatterND": _scatter, "ScatterElements": _scatter,
    "Softmax": _softmax, "LogSoftmax": _softmax, "Hardmax": _softmax, "CumSum": _unary,
    "BatchNormalization": _batch_norm, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent, "Dropout": _dropout,
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN",
                     "LpNormalization", "MeanVarianceNormalization"), _norm),
    **dict.fromkeys(UNARY, _unary), **dict.fromkeys(SEVERAL, _several), **dict.fromkeys(COPIES, _copy),
    **dict.fromkeys(REDUCTIONS, _reduce),
}  # fmt: skip
UNARY["CumSum"] = "function"


def is_view(node: OnnxNode, inputs: Inputs) -> bool:
    """Whether the result is the input seen otherwise: nothing moves."""
    if node.op == "Dropout":
        if node.attributes.get("works", 0):
            return False
        training = optional(inputs, 2)
        return training is None or (training.known is not None and not training.known.any())
    if node.op == "Gather":
        # a row picked by a number that is known, of data
        index = given(inputs, 1)
        return not given(inputs, 0).constant and index.known is not None and index.known.size == 1
    return node.op in VIEWS


def supported() -> frozenset[str]:
    """Standard operators that are read."""
    return frozenset(COSTS) | VIEWS | WHOLE | MADE


def attention_core(queries: Tensor, keys: Tensor, values: Tensor, shapes: Sequence[Shape], causal: bool) -> Attention:
    """Sizes of an attention that is written as two products: scores of shape shapes[0], context of shapes[1]."""
    scores, context = shapes
    heads = prod(scores[:-2])
    shared = max(heads // keys.copies, 1)
    return Attention(heads, shared, scores[-2], scores[-1], queries.shape[-1], context[-1], causal)


__all__ = ["COSTS", "Work", "attention_core", "is_view", "matrix_product", "present", "supported", "whole"]
