"""Shapes of the results of ONNX operators, from shapes of their inputs and numbers that are known.

Source: operator specifications, https://onnx.ai/onnx/operators/; attributes that became inputs are taken from either.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, prod

from workloads.graph import Shape
from workloads.importers.onnx_model import OnnxNode, Stored
from workloads.importers.onnx_shape_rules import (
    Inputs,
    Rule,
    axis_of,
    broadcast,
    given,
    known,
    optional,
    reshaped,
    setting,
    whole,
    windows,
)


def _conv(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, weight = given(inputs, 0).shape, given(inputs, 1, "weight").shape
    groups = node.attributes.get("group", 1)
    if len(shape) < 3 or len(weight) != len(shape) or groups < 1 or weight[1] * groups != shape[1]:
        raise ValueError(f"input {shape} and weight {weight} in {groups} groups do not fit")
    out, _, _ = windows(node, shape[2:], weight[2:])
    return [(shape[0], weight[0], *out)]


def _conv_transpose(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, weight = given(inputs, 0).shape, given(inputs, 1, "weight").shape
    groups = node.attributes.get("group", 1)
    axes = len(shape) - 2
    if axes < 1 or len(weight) != len(shape) or weight[0] != shape[1]:
        raise ValueError(f"input {shape} and weight {weight} do not fit")
    stride = node.attributes.get("strides") or (1,) * axes
    dilation = node.attributes.get("dilations") or (1,) * axes
    extra = node.attributes.get("output_padding") or (0,) * axes
    pads = node.attributes.get("pads") or (0,) * (2 * axes)
    wanted = node.attributes.get("output_shape")
    if wanted:
        out = tuple(wanted[-axes:])
    elif node.attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(n * s for n, s in zip(shape[2:], stride, strict=True))
    else:
        out = tuple(
            (n - 1) * s + d * (k - 1) + 1 + e - pads[at] - pads[at + axes]
            for at, (n, s, d, k, e) in enumerate(zip(shape[2:], stride, dilation, weight[2:], extra, strict=True))
        )
    return [(shape[0], weight[1] * groups, *out)]


def _pool(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    kernel = node.attributes.get("kernel_shape", ())
    out, _, _ = windows(node, shape[2:], kernel, ceil_mode=bool(node.attributes.get("ceil_mode", 0)))
    return [(*shape[:2], *out)] * 2


def matmul(left: Shape, right: Shape) -> Shape:
    """The shape of a matrix product, batch axes broadcast."""
    if not left or not right:
        raise ValueError("a matrix product of a number")
    a, b = left if len(left) > 1 else (1, *left), right if len(right) > 1 else (*right, 1)
    if a[-1] != b[-2]:
        raise ValueError(f"inputs of shapes {left} and {right} do not fit")
    batch = broadcast(a[:-2], b[:-2]) if len(a) > 2 or len(b) > 2 else ()
    return (*batch, *(a[-2:-1] if len(left) > 1 else ()), *(b[-1:] if len(right) > 1 else ()))


def gemm(node: OnnxNode, inputs: Inputs) -> tuple[int, int, int]:
    """Rows, columns and inner size of a Gemm."""
    a, b = given(inputs, 0).shape, given(inputs, 1).shape
    if len(a) != 2 or len(b) != 2:
        raise ValueError(f"inputs of shapes {a} and {b}, allowed: two axes each")
    a = a[::-1] if node.attributes.get("transA", 0) else a
    b = b[::-1] if node.attributes.get("transB", 0) else b
    if a[1] != b[0]:
        raise ValueError(f"inputs of shapes {a} and {b} do not fit")
    return a[0], b[1], a[1]


def einsum(node: OnnxNode, inputs: Inputs) -> tuple[list[str], str, dict[str, int]]:
    """Letters of inputs and result of an Einsum, and the size of each."""
    equation = str(node.attributes.get("equation", "")).replace(" ", "")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "." in equation or len(terms) != len(inputs):
        raise ValueError(f"equation: found {equation!r} for {len(inputs)} inputs, allowed: letters, one term an input")
    sizes: dict[str, int] = {}
    for at, term in enumerate(terms):
        shape = given(inputs, at).shape
        if len(shape) != len(term):
            raise ValueError(f"equation: found {term!r} for an input of {shape}")
        for letter, size in zip(term, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    if "->" not in equation:
        right = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    if any(letter not in sizes for letter in right):
        raise ValueError(f"equation: found {equation!r}: the result has letters that no input has")
    return terms, right, sizes


def _einsum(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    _, right, sizes = einsum(node, inputs)
    return [tuple(sizes[letter] for letter in right)]


def reduced_axes(node: OnnxNode, inputs: Inputs) -> tuple[int, ...]:
    """Axes that a reduction removes."""
    shape = given(inputs, 0).shape
    axes = setting(node, inputs, "axes", 1)
    if axes is None or not axes:
        return () if node.attributes.get("noop_with_empty_axes", 0) else tuple(range(len(shape)))
    return tuple(axis_of(axis, shape) for axis in axes)


def _reduce(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, axes = given(inputs, 0).shape, reduced_axes(node, inputs)
    return [_without(shape, axes, bool(node.attributes.get("keepdims", 1)))]


def _arg(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axis = axis_of(node.attributes.get("axis", 0), shape)
    return [_without(shape, (axis,), bool(node.attributes.get("keepdims", 1)))]


def _without(shape: Shape, axes: Sequence[int], keep: bool) -> Shape:
    if keep:
        return tuple(1 if at in axes else size for at, size in enumerate(shape))
    return tuple(size for at, size in enumerate(shape) if at not in axes)


def _reshape(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    wanted = setting(node, inputs, "shape", 1) or ()
    return [reshaped(given(inputs, 0).shape, wanted, zero_copies=not node.attributes.get("allowzero", 0))]


def _flatten(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axis = axis_of(node.attributes.get("axis", 1), shape, more=1) if shape else 0
    return [(prod(shape[:axis]), prod(shape[axis:]))]


def _transpose(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    order = node.attributes.get("perm") or tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"perm: found {order}, allowed: each axis of {shape} once")
    return [tuple(shape[axis] for axis in order)]


def _squeeze(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axes = setting(node, inputs, "axes", 1)
    gone = {at for at, size in enumerate(shape) if size == 1} if axes is None else {axis_of(a, shape) for a in axes}
    if any(shape[at] != 1 for at in gone):
        raise ValueError(f"axes: found {axes} of {shape}, allowed: axes of size 1")
    return [_without(shape, tuple(gone), False)]


def _unsqueeze(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axes = setting(node, inputs, "axes", 1) or ()
    more = {axis_of(axis, shape, more=len(axes)) for axis in axes}
    left = iter(shape)
    return [tuple(1 if at in more else next(left) for at in range(len(shape) + len(more)))]


def _concat(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shapes = [given(inputs, at).shape for at in range(len(inputs))]
    axis = axis_of(node.attributes.get("axis", 0), shapes[0])
    rest = {(len(shape), *shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rest) != 1:
        raise ValueError(f"inputs of shapes {', '.join(map(str, shapes))}: allowed: equal but for axis {axis}")
    return [(*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])]


def _split(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axis = axis_of(node.attributes.get("axis", 0), shape)
    each = node.attributes.get("each", 0)
    sizes = setting(node, inputs, "split", 1)
    if each:
        sizes = (*(each,) * (shape[axis] // each), *((shape[axis] % each,) if shape[axis] % each else ()))
    if sizes is None:
        number = len(node.outputs)
        part = -(-shape[axis] // number)
        sizes = (*(part,) * (number - 1), shape[axis] - part * (number - 1))
    if sum(sizes) != shape[axis] or len(sizes) < len(node.outputs):
        raise ValueError(f"split: found {sizes} of {shape[axis]} in {len(node.outputs)} results")
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def slices(node: OnnxNode, inputs: Inputs) -> tuple[slice, ...]:
    """What a Slice takes of each axis."""
    shape = given(inputs, 0).shape
    starts, ends = setting(node, inputs, "starts", 1) or (), setting(node, inputs, "ends", 2) or ()
    axes = setting(node, inputs, "axes", 3) or tuple(range(len(starts)))
    steps = setting(node, inputs, "steps", 4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ValueError(
            f"starts {starts}, ends {ends}, axes {axes}, steps {steps}: allowed: as many of each, no step 0"
        )
    found = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis_of(axis, shape)]
        # the largest and smallest numbers stand for "to the end"
        low = None if step < 0 and end < -size else end
        found[axis_of(axis, shape)] = slice(start, low, step)
    return tuple(found)


def _slice(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    return [tuple(len(range(n)[part]) for n, part in zip(shape, slices(node, inputs), strict=True))]


def _gather(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, index = given(inputs, 0).shape, given(inputs, 1).shape
    axis = axis_of(node.attributes.get("axis", 0), shape)
    return [(*shape[:axis], *index, *shape[axis + 1 :])]


def _gather_nd(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, index = given(inputs, 0).shape, given(inputs, 1).shape
    first = node.attributes.get("batch_dims", 0) + index[-1]
    return [(*index[:-1], *shape[first:])]


def _expand(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    return [broadcast(given(inputs, 0).shape, whole(inputs, 1, "shape"))]


def _tile(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, repeats = given(inputs, 0).shape, whole(inputs, 1, "repeats")
    if len(repeats) != len(shape):
        raise ValueError(f"repeats: found {repeats} for {shape}")
    return [tuple(size * number for size, number in zip(shape, repeats, strict=True))]


def _pad(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    pads = setting(node, inputs, "pads", 1) or ()
    axes = [axis_of(axis, shape) for axis in (setting(node, inputs, "axes", 3) or range(len(shape)))]
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads: found {pads} for {len(axes)} axes")
    found = list(shape)
    for at, axis in enumerate(axes):
        found[axis] += pads[at] + pads[at + len(axes)]
    return [tuple(found)]


def _resize(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    older = node.op == "Upsample" or len(inputs) == 2
    sizes = None if older else optional(inputs, 3)
    axes = [axis_of(axis, shape) for axis in (node.attributes.get("axes") or range(len(shape)))]
    found = list(shape)
    if sizes is not None and sizes.elements:
        numbers = whole(inputs, 3, "sizes")
        if len(numbers) != len(axes):
            raise ValueError(f"sizes: found {numbers} for {len(axes)} axes")
        for axis, size in zip(axes, numbers, strict=True):
            found[axis] = size
        return [tuple(found)]
    scales = node.attributes.get("scales")
    if scales is None:
        scales = tuple(float(number) for number in known(inputs, 1 if older else 2, "scales").reshape(-1))
    if len(scales) != len(axes):
        raise ValueError(f"scales: found {scales} for {len(axes)} axes")
    for axis, scale in zip(axes, scales, strict=True):
        found[axis] = floor(shape[axis] * scale)
    return [tuple(found)]


def _blocks(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, size = given(inputs, 0).shape, node.attributes.get("blocksize", 1)
    if len(shape) != 4 or size < 1:
        raise ValueError(f"blocksize: found {size} for {shape}, allowed: a number >= 1, four axes")
    batch, channels, height, width = shape
    if node.op == "DepthToSpace":
        return [(batch, channels // (size * size), height * size, width * size)]
    return [(batch, channels * size * size, height // size, width // size)]


def _range(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    start, limit, step = (float(known(inputs, at, "limits").reshape(-1)[0]) for at in range(3))
    if step == 0:
        raise ValueError("step: found 0")
    return [(max(ceil((limit - start) / step), 0),)]


def _top(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    number = (setting(node, inputs, "k", 1) or (1,))[0]
    axis = axis_of(node.attributes.get("axis", -1), shape)
    return [(*shape[:axis], number, *shape[axis + 1 :])] * 2


def _recurrent(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape, state = given(inputs, 0).shape, given(inputs, 2, "R").shape
    if len(shape) != 3 or len(state) != 3:
        raise ValueError(f"input {shape} and weight {state}: allowed: three axes each")
    directions, hidden = state[0], state[2]
    if node.attributes.get("layout", 0):
        return [(shape[0], shape[1], directions, hidden), *[(shape[0], directions, hidden)] * 2]
    return [(shape[0], directions, shape[1], hidden), *[(directions, shape[1], hidden)] * 2]


def _constant(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    for name, value in node.attributes.items():
        if isinstance(value, Stored):
            return [value.shape]
        if name in ("value_ints", "value_floats", "value_strings"):
            return [(len(value),)]
    return [()]


def _one_hot(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    axis = axis_of(node.attributes.get("axis", -1), shape, more=1)
    return [(*shape[:axis], whole(inputs, 1, "depth")[0], *shape[axis:])]


def _attention(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    query, values = given(inputs, 0).shape, given(inputs, 2).shape
    if len(query) == 4:
        return [(*query[:3], values[3])]
    heads = node.attributes.get("kv_num_heads", 1)
    return [(*query[:2], values[2] // heads * node.attributes.get("q_num_heads", 1))]


def _same(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    return [given(inputs, 0).shape] * max(len(node.outputs), 1)


def _like_second(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    return [given(inputs, 1).shape]


def _elementwise(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    return [broadcast(*(given(inputs, at).shape for at in range(len(inputs))))]


def _first(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    """Normalisations: the result, then statistics that nothing but training reads."""
    return [given(inputs, 0).shape] + [(1,)] * max(len(node.outputs) - 1, 0)


def _global(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    shape = given(inputs, 0).shape
    return [(*shape[:2], *(1 for _ in shape[2:]))]


SHAPES: dict[str, Rule] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool,
    "GlobalAveragePool": _global, "GlobalMaxPool": _global, "GlobalLpPool": _global,
    "MatMul": lambda node, inputs: [matmul(given(inputs, 0).shape, given(inputs, 1).shape)],
    "Gemm": lambda node, inputs: [gemm(node, inputs)[:2]], "Einsum": _einsum, "Attention": _attention,
    "Reshape": _reshape, "Flatten": _flatten, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "GatherND": _gather_nd, "Expand": _expand,
    "GatherElements": _like_second, "Tile": _tile, "Pad": _pad, "Resize": _resize, "Upsample": _resize,
    "DepthToSpace": _blocks, "SpaceToDepth": _blocks, "Range": _range, "TopK": _top, "OneHot": _one_hot,
    "ConstantOfShape": lambda node, inputs: [whole(inputs, 0, "shape")], "Constant": _constant,
    "Shape": lambda node, inputs: [(len(part(node, given(inputs, 0).shape)),)], "Size": lambda node, inputs: [()],
    "ArgMax": _arg, "ArgMin": _arg, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
         "ReduceLogSumExp", "ReduceSumSquare"), _reduce),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
                     "RMSNormalization", "LRN", "LpNormalization", "MeanVarianceNormalization"), _first),
}  # fmt: skip


def part(node: OnnxNode, shape: Shape) -> Shape:
    """Axes of a shape that Shape gives."""
    return shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))]


#: Operators whose inputs are broadcast to one shape.
BROADCAST = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "Where", "PRelu", "Equal",
                       "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "BitShift", "BitwiseAnd",
                       "BitwiseOr", "BitwiseXor"))  # fmt: skip


def results(node: OnnxNode, inputs: Inputs) -> list[Shape]:
    """Shapes of the results of a node."""
    if node.op in BROADCAST:
        return _elementwise(node, inputs)
    return SHAPES.get(node.op, _same)(node, inputs)
