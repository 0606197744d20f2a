"""ONNX's names for torch operators, and how their arguments are said there.

Source: https://docs.pytorch.org/docs/stable/torch.compiler_ir.html and the schemas of aten operators.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

#: Operators whose inputs are their tensor arguments, and whose settings do not matter to counts.
RENAMED: dict[str, str] = {
    "relu": "Relu", "relu6": "Clip", "leaky_relu": "LeakyRelu", "elu": "Elu", "selu": "Selu", "celu": "Celu",
    "gelu": "Gelu", "sigmoid": "Sigmoid", "silu": "Swish", "mish": "Mish", "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid", "hardtanh": "Clip", "tanh": "Tanh", "softplus": "Softplus", "softsign": "Softsign",
    "log_sigmoid": "Softplus", "prelu": "PRelu", "clamp": "Clip", "clamp_min": "Clip", "clamp_max": "Clip",
    "abs": "Abs", "neg": "Neg", "sqrt": "Sqrt", "exp": "Exp", "expm1": "Exp", "log": "Log", "log1p": "Log",
    "log2": "Log", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan", "floor": "Floor",
    "ceil": "Ceil", "round": "Round", "sign": "Sign", "reciprocal": "Reciprocal",
    "eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "logical_xor": "Xor", "and": "And", "or": "Or",
    "xor": "Xor", "bitwise_and": "And", "bitwise_or": "Or", "bitwise_not": "Not", "bitwise_xor": "Xor",
    "isnan": "IsNaN", "isinf": "IsInf", "isin": "Equal", "any": "Not", "all": "Not", "argmax": "ArgMax",
    "argmin": "ArgMin", "cumsum": "CumSum", "cumprod": "CumSum", "diff": "Sub", "tril": "Trilu", "triu": "Trilu",
    "softmax": "Softmax", "log_softmax": "LogSoftmax", "topk": "TopK", "sort": "TopK", "argsort": "ArgMax",
    "view": "Reshape", "reshape": "Reshape", "unsafe_view": "Reshape", "view_as": "Reshape", "flatten": "Reshape",
    "unflatten": "Reshape", "squeeze": "Squeeze", "unsqueeze": "Unsqueeze", "contiguous": "Identity",
    "clone": "Identity", "detach": "Identity", "alias": "Identity", "lift_fresh_copy": "Identity", "to": "Cast",
    "to_copy": "Cast", "type_as": "CastLike", "float": "Cast", "expand": "Expand", "expand_as": "Expand",
    "broadcast_to": "Expand", "slice": "Slice", "select": "Slice", "narrow": "Slice", "diagonal": "Slice",
    "split": "Split", "split_with_sizes": "Split", "chunk": "Split", "unbind": "Split", "tensor_split": "Split",
    "permute": "Transpose", "transpose": "Transpose", "t": "Transpose", "movedim": "Transpose",
    "numpy_T": "Transpose", "mT": "Transpose", "adjoint": "Transpose", "swapaxes": "Transpose",
    "roll": "Tile", "repeat": "Tile", "repeat_interleave": "Tile", "flip": "Tile", "constant_pad_nd": "Pad",
    "pad": "Pad", "unfold": "Tile", "im2col": "Tile", "pixel_shuffle": "DepthToSpace",
    "pixel_unshuffle": "SpaceToDepth",
    "channel_shuffle": "Transpose", "one_hot": "Not",
    "adaptive_avg_pool1d": "GlobalAveragePool", "adaptive_avg_pool2d": "GlobalAveragePool",
    "adaptive_avg_pool3d": "GlobalAveragePool", "adaptive_max_pool2d": "GlobalMaxPool",
    "upsample_nearest1d": "Resize", "upsample_nearest2d": "Resize", "upsample_nearest3d": "Resize",
    "upsample_bilinear2d": "Resize", "upsample_bicubic2d": "Resize", "upsample_trilinear3d": "Resize",
    "upsample_linear1d": "Resize", "grid_sampler": "Resize",
    "amax": "ReduceMax", "amin": "ReduceMin", "logsumexp": "ReduceLogSumExp", "norm": "ReduceL2",
    "linalg_vector_norm": "ReduceL2", "prod": "ReduceProd",
    "index_select": "Gather", "gather": "GatherElements", "where": "Where", "maximum": "Max", "minimum": "Min",
    "weight_norm": "Mul", "reshape_as": "Reshape",
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy",
                     "binary_cross_entropy_with_logits", "margin_ranking_loss", "cosine_similarity"), "ReduceMean"),
    "fill": "Identity", "zero": "Identity", "triu_indices": "Range", "tril_indices": "Range", "linspace": "Range",
}  # fmt: skip
#: Tensors made of nothing.
MADE = ("arange", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros",
        "new_ones", "new_full", "new_empty", "scalar_tensor", "rand", "randn", "rand_like", "randn_like", "eye",
        "randint", "bernoulli")  # fmt: skip
#: Sums and products of two arguments, of which one may be a number.
TWO = {"add": "Add", "sub": "Sub", "rsub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "true_divide": "Div",
       "floor_divide": "Div", "remainder": "Mod", "fmod": "Mod", "atan2": "Mul"}  # fmt: skip


def _argument(node: Any, at: int, name: str, default: Any) -> Any:
    """An argument by its place or name."""
    if at < len(node.args):
        return node.args[at]
    return node.kwargs.get(name, default)


def _numbers(value: Any, axes: int) -> tuple[int, ...]:
    """One whole number an axis."""
    found = tuple(int(one) for one in value) if isinstance(value, (list, tuple)) else (int(value),)
    return found * axes if len(found) == 1 else found


def _convolution(t: Any, node: Any) -> None:
    """conv1d to conv3d: (input, weight, bias, stride, padding, dilation, groups)."""
    x, weight = t.operand(node.args[0]), t.operand(node.args[1])
    axes = len(t.shape(weight)) - 2
    if len(t.shape(x)) == axes + 1:  # without the sample's axis
        x = t.emit("Unsqueeze", [x], (1, *t.shape(x)))
    stride = _numbers(_argument(node, 3, "stride", 1), axes)
    dilation = _numbers(_argument(node, 5, "dilation", 1), axes)
    padding = _argument(node, 4, "padding", 0)
    settings: dict[str, Any] = {"strides": stride, "dilations": dilation, "group": int(_argument(node, 6, "groups", 1))}
    if isinstance(padding, str):
        settings["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        settings["pads"] = _numbers(padding, axes) * 2
    t.finish(node, "Conv", [x, weight, t.operand(_argument(node, 2, "bias", None))], **settings)


def _transposed(t: Any, node: Any) -> None:
    """conv_transpose: (input, weight, bias, stride, padding, output_padding, groups, dilation)."""
    x, weight = t.operand(node.args[0]), t.operand(node.args[1])
    axes = len(t.shape(weight)) - 2
    t.finish(
        node, "ConvTranspose", [x, weight, t.operand(_argument(node, 2, "bias", None))],
        strides=_numbers(_argument(node, 3, "stride", 1), axes), group=int(_argument(node, 6, "groups", 1)),
        dilations=_numbers(_argument(node, 7, "dilation", 1), axes),
    )  # fmt: skip


def _general(t: Any, node: Any) -> None:
    """convolution: (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    x, weight, bias = (t.operand(node.args[at]) for at in range(3))
    axes = len(t.shape(weight)) - 2
    settings = {"strides": _numbers(node.args[3], axes), "dilations": _numbers(node.args[5], axes),
                "group": int(node.args[8])}  # fmt: skip
    if node.args[6]:
        t.finish(node, "ConvTranspose", [x, weight, bias], **settings)
    else:
        t.finish(node, "Conv", [x, weight, bias], pads=_numbers(node.args[4], axes) * 2, **settings)


def _linear(t: Any, node: Any) -> None:
    """linear: (input, weight, bias), the weight stored (outputs, inputs)."""
    x, weight = t.operand(node.args[0]), t.operand(node.args[1])
    bias = t.operand(_argument(node, 2, "bias", None))
    turned = t.emit("Transpose", [weight], t.shape(weight)[::-1])
    if len(t.shape(x)) == 1:
        x = t.emit("Unsqueeze", [x], (1, *t.shape(x)))
    if not bias:
        t.finish(node, "MatMul", [x, turned])
        return
    shape = (*t.shape(x)[:-1], t.shape(weight)[0])
    t.finish(node, "Add", [t.emit("MatMul", [x, turned], shape), bias])


def _addmm(t: Any, node: Any) -> None:
    """addmm: (bias, left, right)."""
    bias, left, right = (t.operand(node.args[at]) for at in range(3))
    shape = (*t.shape(left)[:-1], t.shape(right)[-1])
    t.finish(node, "Add", [t.emit("MatMul", [left, right], shape), bias])


def _product(t: Any, node: Any) -> None:
    """matmul, bmm, mm, dot."""
    t.finish(node, "MatMul", [t.operand(node.args[0]), t.operand(node.args[1])])


def _einsum(t: Any, node: Any) -> None:
    """einsum: (equation, tensors)."""
    t.finish(node, "Einsum", [t.operand(one) for one in node.args[1]], equation=node.args[0])


def _attention(t: Any, node: Any) -> None:
    """scaled_dot_product_attention: (query, key, value, mask, dropout, causal); heads are all axes but the last two."""
    inputs = [t.operand(node.args[at]) for at in range(3)]
    mask = t.operand(_argument(node, 3, "attn_mask", None))
    apart = []
    for one in inputs:
        shape = t.shape(one)
        whole = (1, prod(shape[:-2]), *shape[-2:])
        apart.append(one if len(shape) == 4 else t.emit("Reshape", [one], whole))
    causal = int(bool(_argument(node, 5, "is_causal", False)))
    t.finish(node, "Attention", [*apart, *([mask] if mask else [])], is_causal=causal)


def _two(op: str) -> Callable[[Any, Any], None]:
    def handle(t: Any, node: Any) -> None:
        t.finish(node, op, [t.operand(node.args[0]), t.operand(node.args[1])])

    return handle


def _power(t: Any, node: Any) -> None:
    """pow: squares are products."""
    if isinstance(node.args[1], (int, float)) and node.args[1] == 2:
        x = t.operand(node.args[0])
        t.finish(node, "Mul", [x, x])
    else:
        t.finish(node, "Pow", [t.operand(node.args[0]), t.operand(node.args[1])])


def _rsqrt(t: Any, node: Any) -> None:
    x = t.operand(node.args[0])
    t.finish(node, "Reciprocal", [t.emit("Sqrt", [x], t.shape(x))])


def _made(t: Any, node: Any) -> None:
    """Neither data nor trained, whatever its arguments are."""
    shape, real = t.results(node)[0]
    t.names[node] = t.constant(node.name, shape, real=real)


def _batch_norm(t: Any, node: Any) -> None:
    """batch_norm: (input, weight, bias, mean, variance, ...)."""
    t.finish(node, "BatchNormalization", [t.operand(node.args[at]) for at in range(3)])


def _group_norm(t: Any, node: Any) -> None:
    """group_norm: (input, groups, weight, bias)."""
    weights = [t.operand(_argument(node, at, name, None)) for at, name in ((2, "weight"), (3, "bias"))]
    t.finish(node, "GroupNormalization", [t.operand(node.args[0]), *weights], num_groups=int(node.args[1]))


def _instance_norm(t: Any, node: Any) -> None:
    """instance_norm: (input, weight, bias, ...)."""
    t.finish(node, "InstanceNormalization", [t.operand(node.args[at]) for at in range(3)])


def _layer_norm(op: str) -> Callable[[Any, Any], None]:
    def handle(t: Any, node: Any) -> None:
        weights = [t.operand(_argument(node, at, name, None)) for at, name in ((2, "weight"), (3, "bias"))]
        kept = weights if op == "LayerNormalization" else weights[:1]
        t.finish(node, op, [t.operand(node.args[0]), *kept], axis=-len(node.args[1]))

    return handle


def _pool(op: str) -> Callable[[Any, Any], None]:
    def handle(t: Any, node: Any) -> None:
        x = t.operand(node.args[0])
        shape = t.results(node)[0][0]
        axes = min(len(shape) - 1, 3) if len(shape) < 4 else len(shape) - 2
        t.finish(node, op, [x], kernel_shape=_numbers(node.args[1], axes))

    return handle


def _reduction(op: str) -> Callable[[Any, Any], None]:
    def handle(t: Any, node: Any) -> None:
        x = t.operand(node.args[0])
        rank = len(t.shape(x))
        axes = _argument(node, 1, "dim", None)
        listed = axes if isinstance(axes, (list, tuple)) else [axes] if isinstance(axes, int) else range(rank)
        t.finish(node, op, [x], axes=tuple(int(axis) for axis in listed) or tuple(range(rank)))

    return handle


def _max(op: str, reduce: str) -> Callable[[Any, Any], None]:
    """max and min: of two tensors, over an axis, or over all."""

    def handle(t: Any, node: Any) -> None:
        if len(node.args) > 1 and hasattr(node.args[1], "op"):
            _two(op)(t, node)
        else:
            _reduction(reduce)(t, node)

    return handle


def _join(t: Any, node: Any) -> None:
    """cat and stack: (tensors, axis)."""
    axis = _argument(node, 1, "dim", 0)
    inputs = [t.operand(one) for one in node.args[0]]
    t.finish(node, "Concat", [one for one in inputs if prod(t.shape(one))], axis=int(axis))


def _embedding(t: Any, node: Any) -> None:
    """embedding: (table, indices)."""
    t.finish(node, "Gather", [t.operand(node.args[0]), t.operand(node.args[1])], axis=0)


def _bags(t: Any, node: Any) -> None:
    """embedding_bag: (table, indices, offsets, ...): rows are picked, and summed in bags."""
    table, rows = t.operand(node.args[0]), t.operand(node.args[1])
    picked = t.emit("Gather", [table, rows], (*t.shape(rows), t.shape(table)[-1]), axis=0)
    t.finish(node, "ReduceSum", [picked], axes=(0,))


def _index(t: Any, node: Any) -> None:
    """index: (tensor, indices of each axis)."""
    indices = [t.operand(one) for one in node.args[1] if one is not None]
    t.finish(node, "GatherND", [t.operand(node.args[0]), *indices])


def _put(t: Any, node: Any) -> None:
    """scatter and index_put: what is put is the last argument that is a tensor."""
    tensors = [t.operand(one) for one in node.args if hasattr(one, "op")]
    t.finish(node, "ScatterND", [tensors[0], tensors[-1], tensors[-1]])


def _masked_fill(t: Any, node: Any) -> None:
    """masked_fill: (tensor, mask, number)."""
    t.finish(node, "Where", [t.operand(node.args[1]), t.operand(node.args[2]), t.operand(node.args[0])])


def _copied(t: Any, node: Any) -> None:
    """copy_: (target, source)."""
    t.finish(node, "Expand", [t.operand(node.args[1])])


def _dropout(t: Any, node: Any) -> None:
    """dropout: (input, rate, training)."""
    works = bool(_argument(node, 2, "train", False)) and float(_argument(node, 1, "p", 0.5)) > 0
    t.finish(node, "Dropout" if works else "Identity", [t.operand(node.args[0])], **({"works": 1} if works else {}))


def _cross_entropy(t: Any, node: Any) -> None:
    """cross_entropy_loss and nll_loss: (logits, target, ...)."""
    t.finish(node, "SoftmaxCrossEntropyLoss", [t.operand(node.args[0])])


def _recurrent(op: str, gates: int) -> Callable[[Any, Any], None]:
    """lstm, gru, rnn: (input, states, weights, biased, layers, dropout, training, both directions, batch first)."""

    def handle(t: Any, node: Any) -> None:
        if not isinstance(node.args[2], (list, tuple)):
            raise ValueError(f"{node.name}: packed sequences cannot be read; give padded ones")
        x, weights, biased, layers = t.operand(node.args[0]), node.args[2], bool(node.args[3]), int(node.args[4])
        directions, first = 2 if node.args[7] else 1, bool(node.args[8])
        each = 4 if biased else 2
        if len(weights) != each * directions * layers:
            raise ValueError(f"{node.name}: recurrent layers with projections cannot be read")
        names = [t.operand(one) for one in weights]
        shown = t.results(node)
        for layer in range(layers):
            group = names[layer * each * directions : (layer + 1) * each * directions]
            parts = [[group[direction * each + at] for direction in range(directions)] for at in range(each)]
            hidden = t.shape(parts[1][0])[1]
            joined = [t.emit("Concat", part, (directions, *t.shape(part[0])), axis=0) for part in parts[:2]]
            if biased:
                joined.append(t.emit("Concat", [*parts[2], *parts[3]], (directions, 2 * gates * hidden), axis=0))
            if layer < layers - 1:
                shape = (*t.shape(x)[:-1], directions * hidden)
                x = t.emit(op, [x, *joined], shape, layout=int(first))
            else:
                names_out = tuple(f"{node.name}.{at}" for at in range(len(shown)))
                t.add(op, node.name, [x, *joined], names_out, shown, layout=int(first))
                t.names[node] = names_out

    return handle


HANDLERS: dict[str, Callable[[Any, Any], None]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution), "convolution": _general,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    "linear": _linear, "addmm": _addmm, "baddbmm": _addmm, **dict.fromkeys(("matmul", "bmm", "mm", "mv"), _product),
    "einsum": _einsum, "scaled_dot_product_attention": _attention, **{name: _two(op) for name, op in TWO.items()},
    "pow": _power, "square": _power, "rsqrt": _rsqrt, **dict.fromkeys(MADE, _made), "batch_norm": _batch_norm,
    "group_norm": _group_norm, "instance_norm": _instance_norm, "layer_norm": _layer_norm("LayerNormalization"),
    "rms_norm": _layer_norm("RMSNormalization"),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices"), _pool("MaxPool")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool("AveragePool")),
    "mean": _reduction("ReduceMean"), "sum": _reduction("ReduceSum"), "var": _reduction("ReduceMean"),
    "std": _reduction("ReduceMean"), "max": _max("Max", "ReduceMax"), "min": _max("Min", "ReduceMin"),
    "cat": _join, "concat": _join, "stack": _join, "hstack": _join, "vstack": _join, "embedding": _embedding,
    "embedding_bag": _bags,
    "index": _index, **dict.fromkeys(("index_put", "scatter", "scatter_add", "index_add", "slice_scatter"), _put),
    "masked_fill": _masked_fill, "copy": _copied, "dropout": _dropout, "feature_dropout": _dropout,
    "cross_entropy_loss": _cross_entropy, "nll_loss": _cross_entropy, "nll_loss_nd": _cross_entropy,
    "lstm": _recurrent("LSTM", 4), "gru": _recurrent("GRU", 3), "rnn_tanh": _recurrent("RNN", 1),
    "rnn_relu": _recurrent("RNN", 1),
}  # fmt: skip
