"""Counts of operators from the sizes of their tensors, for importers: whatever a file calls the operator.

Shapes are of whole tensors, the sample's axis of size 1 among them.  Passes are those of workloads/layers/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from workloads.graph import Counts, Shape
from workloads.importers.tracing import Tensor, sample
from workloads.layers.attention_core import core_matmuls, kept_scores, softmax
from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.dense import Linear
from workloads.layers.embedding import Embedding
from workloads.layers.norms import BatchNorm, GroupNorm, LayerNorm, LocalResponseNorm
from workloads.layers.pointwise import ACTIVATIONS, Activation, Add, Dropout, Multiply, copy
from workloads.layers.recurrent import GRU, LSTM
from workloads.operators import Attention, Matmul, Vector

Keeps = tuple[Literal["inputs", "result"], ...]

#: Unary functions that `ACTIVATIONS` has not: vector operations forward and backward, what backward reads.
FUNCTIONS: dict[str, tuple[int, int, Keeps]] = {
    "abs": (1, 2, ("inputs",)), "neg": (1, 1, ()), "sqrt": (4, 5, ("result",)), "reciprocal": (4, 3, ("result",)),
    "rsqrt": (4, 4, ("result",)), "exp": (4, 1, ("result",)), "log": (5, 4, ("inputs",)), "erf": (8, 8, ("inputs",)),
    "sin": (6, 7, ("inputs",)), "cos": (6, 7, ("inputs",)), "round": (1, 0, ()), "selu": (7, 5, ("result",)),
    "softsign": (5, 5, ("inputs",)), "clip": (2, 2, ("inputs",)), "function": (8, 8, ("inputs",)),
}  # fmt: skip


def activation(kind: str, shape: Shape) -> Counts:
    """An element-wise function: read and written once."""
    elements = prod(shape)
    if kind in ACTIVATIONS:
        return Activation(kind).counts(sample(shape))
    forward, backward, keeps = FUNCTIONS.get(kind, FUNCTIONS["function"])
    read = 1.0 + len(keeps)
    one = Vector(kind, elements, backward_reads=read, operations=forward, backward_operations=backward)
    return Counts(sample(shape), passes=(one,), keeps=keeps, mixing="channels")


def combined(kind: str, inputs: Sequence[Tensor], shape: Shape) -> Counts:
    """An element-wise function of several tensors that are broadcast.

    A sum passes its gradient on unchanged, summed where an input was broadcast; a product keeps its inputs, and reads
    gradient and other input for each gradient; a constant of one element is part of the instruction."""
    elements = prod(shape)
    real = [tensor for tensor in inputs if not (tensor.constant and tensor.elements == 1)]
    reads = sum(tensor.elements for tensor in real) / elements
    flowing = [tensor for tensor in real if tensor.value is not None or tensor.parameters]
    narrow = [tensor.elements / elements for tensor in flowing if tensor.elements < elements]
    number = max(len(inputs) - 1, 1)
    if kind in ("add", "mul") and len(flowing) == 2 and not narrow:
        return (Add() if kind == "add" else Multiply()).counts(sample(shape), sample(shape))
    if kind in ("add", "sub", "sum", "mean"):
        one = Vector(kind, elements, reads=reads, writes=1, backward_reads=float(bool(narrow)),
                     backward_writes=float(sum(narrow)), operations=float(number),
                     backward_operations=float(len(narrow)))  # fmt: skip
        return Counts(sample(shape), passes=(one,), mixing="channels")
    if kind in ("where", "max", "min"):
        one = Vector(kind, elements, reads=reads, writes=1.0, backward_reads=1.5, backward_writes=float(len(flowing)),
                     operations=number, backward_operations=number)  # fmt: skip
        return Counts(sample(shape), passes=(one,), kept_bytes=elements, kept_fixed=elements, mixing="channels")
    if len(real) < 2:  # scaled by a constant
        operations = 1 if kind in ("mul", "div") else 4
        one = Vector(kind, elements, reads=reads, writes=1, backward_reads=1.0 + (operations > 1), backward_writes=1,
                     operations=operations, backward_operations=operations)  # fmt: skip
        return Counts(sample(shape), passes=(one,), keeps=("inputs",) if operations > 1 else (), mixing="channels")
    written = sum(tensor.elements for tensor in flowing) / elements
    cost = 1 if kind == "mul" else 4 if kind == "div" else 8
    one = Vector(kind, elements, reads=reads, writes=1, backward_reads=1.0 + reads, backward_writes=written,
                 operations=cost, backward_operations=2 * cost)  # fmt: skip
    return Counts(sample(shape), passes=(one,), keeps=("inputs",), mixing="channels")


def copied(kind: str, shape: Shape, *, read: int | None = None) -> Counts:
    """Every element of the result written once, and its gradient copied back; read: elements of what is copied."""
    elements = prod(shape)
    one = copy(kind, elements)
    if read is not None and read != elements:
        share = read / elements
        one = replace(one, reads=share, backward_writes=share)
    return Counts(sample(shape), passes=(one,), mixing="channels")


def reduced(kind: str, before: Shape, shape: Shape) -> Counts:
    """Everything read, what is left written; the gradient is spread back."""
    ratio = prod(before) / prod(shape)
    one = Vector(kind, prod(shape), reads=ratio, writes=1, backward_reads=1, backward_writes=ratio, operations=ratio,
                 backward_operations=ratio)  # fmt: skip
    whole = len(before) < 3 or before[1] != shape[1] if len(shape) > 1 else True
    return Counts(sample(shape), passes=(one,), mixing="whole" if whole else "channels")


def pooled(before: Shape, shape: Shape, *, taps: int, largest: bool) -> Counts:
    """Windows of so many taps: the input read, the windows written."""
    ratio = prod(before) / prod(shape)
    counts = Pool(1, 1, kind="max" if largest else "average").counts((shape[1], prod(shape) // shape[1]))
    one = replace(counts.passes[0], reads=ratio, backward_writes=ratio, operations=float(taps),
                  backward_operations=float(taps))  # fmt: skip
    return replace(counts, result=sample(shape), passes=(one,))


def normalised(kind: str, shape: Shape, *, rows: int) -> Counts:
    """Statistics of `rows` rows."""
    counts = LayerNorm(kind="rms" if kind == "rms norm" else "layer").counts((rows, prod(shape) // rows))
    return replace(counts, result=sample(shape), parameters=0)


def grouped(shape: Shape, groups: int) -> Counts:
    """Statistics of groups of channels over all positions."""
    return replace(GroupNorm(groups).counts(sample(shape)), parameters=0)


def batch_normalised(shape: Shape) -> Counts:
    """Statistics of each channel over samples and positions."""
    return replace(BatchNorm().counts(sample(shape)), parameters=0)


def locally_normalised(shape: Shape, size: int) -> Counts:
    """Divided by a power of the sum of squares of neighbouring channels."""
    return LocalResponseNorm(size).counts(sample(shape))


def probabilities(kind: str, shape: Shape) -> Counts:
    """Softmax of rows, which it keeps."""
    one = Vector(kind, prod(shape), operations=6, backward_operations=4)
    return Counts(sample(shape), passes=(one,), keeps=("result",))


def picked(kind: str, shape: Shape) -> Counts:
    """Rows picked out of a tensor by index; their gradients are added to it."""
    one = Vector(kind, prod(shape), backward_reads=1, backward_writes=1, operations=0, backward_operations=1)
    return Counts(sample(shape), passes=(one,))


def embedded(table: Shape, shape: Shape) -> Counts:
    """Rows of a table of parameters."""
    counts = Embedding(prod(table[:-1]), table[-1]).counts((prod(shape) // table[-1],))
    return replace(counts, result=sample(shape), parameters=0)


def dropped(shape: Shape) -> Counts:
    """Elements set to zero at random, with a mask that is kept."""
    return Dropout().counts(sample(shape))


def bias(elements: int) -> Vector:
    """The gradient of a bias sums the gradient of the result; forward it is added where the product is written."""
    return Linear(1).counts((elements, 1)).passes[0]


def product(kind: str, shape: Shape, one: Matmul, *, biased: bool = False) -> Counts:
    """A matrix product with the result `shape`."""
    mixing: Literal["dense", "channels", "whole"] = "channels" if one.groups > 1 else "dense" if one.weight else "whole"
    return Counts(
        sample(shape), products=(replace(one, name=kind),), passes=(bias(prod(shape)),) if biased else (),
        keeps=("inputs",), mixing=mixing,
    )  # fmt: skip


def convolved(
    before: Shape, weight: Shape, shape: Shape, *, stride: tuple[int, ...], dilation: tuple[int, ...],
    padded: tuple[int, ...], groups: int, biased: bool,
) -> Counts:  # fmt: skip
    """A convolution; padded: positions of each axis with their padding."""
    one = Conv(weight[0], weight[2:], stride, 0, dilation, groups, biased)
    return _batched(one.counts((before[1], *padded)), before[0], shape)


def transposed(
    before: Shape, weight: Shape, shape: Shape, *, stride: tuple[int, ...], dilation: tuple[int, ...], groups: int,
    biased: bool,
) -> Counts:  # fmt: skip
    """A transposed convolution, its result cut to `shape`."""
    one = ConvTranspose(weight[1] * groups, weight[2:], stride, 0, 0, dilation, groups, biased)
    return _batched(one.counts(before[1:]), before[0], shape)


def _batched(counts: Counts, batch: int, shape: Shape) -> Counts:
    """Counts of `batch` images in one sample, with the result `shape`."""
    channels = prod(shape) // batch
    scale = [replace(one, m=one.m * batch) for one in counts.products]
    passes = [replace(one, elements=channels * batch) for one in counts.passes]
    return replace(counts, result=sample(shape), parameters=0, products=tuple(scale), passes=tuple(passes))


def attention(shape: Shape, core: Attention, *, biased: bool) -> Counts:
    """The core of attention: scores, softmax and context as one operator, which a fused kernel runs.

    biased   numbers that are trained are added to the scores.  Query, key, value and result are kept."""
    passes = [softmax(False, core)]
    if biased:
        passes.append(Vector("score bias", core.heads * core.queries * core.keys, backward_reads=1, backward_writes=0,
                             operations=1, backward_operations=1, split="tensor", core=True))  # fmt: skip
    return Counts(
        sample(shape), products=core_matmuls(core), passes=tuple(passes), keeps=("inputs", "result"),
        mixing="channels" if core.heads > 1 else "whole", attention=core, inner=1,
        kept_core=kept_scores(False, core)[0],
    )  # fmt: skip


def recurrent(
    kind: str, shape: Shape, *, steps: int, batch: int, inputs: int, hidden: int, gates: int, directions: int
) -> Counts:
    """A recurrent layer: the inputs' product for all steps at once, the state's a step at a time.

    Kept a step: gates and states."""
    if batch == 1 and gates > 1:
        layer = LSTM(hidden, bidirectional=directions > 1) if gates == 4 else GRU(hidden, directions > 1)
        return replace(layer.counts((steps, inputs)), result=sample(shape), parameters=0)
    rows = steps * batch
    wide = gates * hidden
    products = (
        Matmul("recurrent inputs", rows, wide, inputs, repeats=directions),
        Matmul("recurrent state", rows, wide, hidden, steps=steps, repeats=directions),
    )
    one = Vector(f"{kind} gates", rows * hidden, reads=2.0 * gates + 1, writes=2, backward_reads=gates + 3.0,
                 backward_writes=gates + 1.0, operations=6.0 * gates, backward_operations=8.0 * gates, steps=steps,
                 repeats=directions)  # fmt: skip
    return Counts(
        sample(shape), products=products, passes=(one,), keeps=("inputs",),
        kept_bytes=2 * rows * (wide + 2 * hidden) * directions,
    )  # fmt: skip
