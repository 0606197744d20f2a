"""What the operators of one micro-batch do in every situation: sizes, bytes and counts. No chip enters.

A block's operators become tasks (forward and gradients); equal matrix products are priced once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.stages import PLACES
from workloads.operators import Attention, Block, Matmul, Vector
from workloads.precision import Precision, Training
from workloads.training import PHASES, gradient_phase, phase_dimensions

#: Sets of tasks that are summed, of every block: its passes; of the forward pass the attention core, the
#: element-wise passes and the products outside the core; of the backward pass the weight gradients.
SETS = ("forward", "backward", "core", "vectors", "products", "weights")
SELECTIONS = tuple((place, which) for place in PLACES for which in SETS)
#: An fp8 recipe keeps attention and head in the format of its activations.
WIDE: Precision = "bf16"


@dataclass(frozen=True)
class Task:
    """One kernel of a step: an operator of a block in one phase.

    kind      "product", "pass" or "attention": the table that holds it
    phase     "forward", "input_gradient", "weight_gradient" or "gradient" (passes and attention)
    launches  kernels one run of it is; times: how many runs of it a block has
    row       its row in the table: equal products share one
    """

    place: str
    operator: str
    kind: str
    phase: str
    core: bool
    launches: float
    row: int
    times: float = 1.0

    @property
    def backward(self) -> bool:
        """True for gradients and what is repeated for them."""
        return self.phase != "forward"

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets of its block (`SETS`) that the task belongs to."""
        if self.backward:
            return ("backward", "weights") if self.phase == "weight_gradient" else ("backward",)
        if self.core:
            return ("forward", "core")
        return ("forward", {"pass": "vectors"}.get(self.kind, "products"))


#: Rows of a table, and how many times each is run.
Members = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Fused:
    """Fused attention kernels by situation, (O, S) or (O, 1, S): one row a block and pass.

    groups            heads x samples of a device
    queries, keys     rows of Q, and of K and V
    shapes            head width and causality of the row's block, and whether it is the backward pass
    macs              multiply-adds, masked tiles not counted for causal attention
    """

    groups: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    shapes: tuple[tuple[Attention, bool], ...]
    macs: np.ndarray


@dataclass(frozen=True)
class Work:
    """Tasks and their tables by situation, (O, S) or, to meet chips (H, 1), (O, 1, S).

    tasks              every kernel, with the table and row that hold it
    m, n, k, groups    sizes of the distinct products; output_bytes moved for an element of a result
    distinct           part of the left operand that is distinct elements (windows of a convolution overlap); 1.0 where
                       all of every product is
    precisions         number format of each product's operands
    fast               multiply-adds over those that the array does (Winograd); 1.0 where it does all
    lanes              instructions of a multiply-add on vector lanes, for products that these may run instead of the
                       arrays (grouped convolutions, whose groups are too small to fill one), inf for others; None
                       where no product may
    operations, moved  vector operations and HBM bytes of the passes, each one fused kernel
    pieces             further kernels of a pass where a framework runs it piece by piece, over its own traffic; None
                       where no pass has any
    plain              True for passes that are one kernel whatever a framework fuses (layout conversions); None where
                       none is
    fused              attention kernels, None where attention is materialized
    members            (row, times) of products, passes and attention in each selection; launches: kernels in it
    macs, vector, vector_moved   sums of each selection
    """

    tasks: tuple[Task, ...]
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    groups: np.ndarray
    output_bytes: np.ndarray
    distinct: Any
    fast: Any
    lanes: np.ndarray | None
    precisions: tuple[Precision, ...]
    operations: np.ndarray
    moved: np.ndarray
    pieces: np.ndarray | None
    plain: np.ndarray | None
    fused: Fused | None
    members: dict[tuple[str, str], tuple[Members, Members, Members]]
    launches: dict[tuple[str, str], float]
    macs: dict[tuple[str, str], Any]
    vector: dict[tuple[str, str], Any]
    vector_moved: dict[tuple[str, str], Any]


def row_sum(table: np.ndarray, rows: Members) -> Any:
    """Sum of the listed rows, each so many times, in their order: the same bits for any number of designs."""
    found: Any = 0.0
    for row, times in rows:
        found = found + (table[row] if times == 1.0 else times * table[row])
    return found


#: Tables of tasks, in the order of `Work.members`.
KINDS = ("product", "pass", "attention")
#: A block's place, and a set of its tasks.
Selection = tuple[str, str]


def _members(tasks: tuple[Task, ...]) -> tuple[dict[Selection, tuple[Members, ...]], dict[Selection, float]]:
    """Rows of every table in each selection, equal ones together, and the kernels launched in it."""
    found: dict[Selection, tuple[dict[int, float], ...]] = {chosen: ({}, {}, {}) for chosen in SELECTIONS}
    launches = dict.fromkeys(SELECTIONS, 0.0)
    for task in tasks:
        if task.place not in PLACES:  # the nodes of a graph, which are scheduled one by one
            continue
        kind = KINDS.index(task.kind)
        for which in task.sets:
            chosen = task.place, which
            rows = found[chosen][kind]
            rows[task.row] = rows.get(task.row, 0.0) + task.times
            launches[chosen] += task.launches * task.times
    members = {chosen: tuple(tuple(rows.items()) for rows in tables) for chosen, tables in found.items()}
    return members, launches


def work(blocks: dict[str, Block], training: Training, fields: dict[str, Any], *, paired: bool) -> Work:
    """The tasks of one micro-batch in the situations `fields`.

    fields   columns tensor, micro_batch, sequence_parallel, context, expert, expert_tensor
    """
    matmuls, distinct = _matmul_tasks(blocks, training)
    sizes = [product.sizes(fields) for product in distinct]
    m, n, k, groups = (_stack([size[i] for size in sizes], paired) for i in range(4))
    parts = [size[4] for size in sizes]
    overlap: Any = _per_row(parts, m.ndim) if any(part != 1.0 for part in parts) else 1.0
    output = _per_row([product.output_bytes for product in distinct], m.ndim)
    vectors, operations, moved, pieces, plain = _vector_tables(blocks, training, fields, paired)
    kernels, fused = _attention_table(blocks, training, fields, paired)
    tasks = (*matmuls, *vectors, *kernels)
    members, launches = _members(tasks)
    faster = [product.matmul.winograd for product in distinct]
    fast: Any = 1.0
    if training.convolution == "winograd" and training.precision == "fp32" and any(gain != 1.0 for gain in faster):
        fast = _per_row(faster, m.ndim)
    macs = m * n * k * groups / fast

    def counted(chosen: tuple[str, str]) -> Any:
        total = row_sum(macs, members[chosen][0])
        return total + row_sum(fused.macs, members[chosen][2]) if fused is not None else total

    return Work(
        tasks, m, n, k, groups, output, overlap, fast, _lanes(distinct, m.ndim),
        tuple(product.precision for product in distinct), operations, moved, pieces, plain,
        fused, members,  # type: ignore[arg-type]
        launches=launches,
        macs={c: counted(c) for c in SELECTIONS},
        vector={c: row_sum(operations, members[c][1]) for c in SELECTIONS},
        vector_moved={c: row_sum(moved, members[c][1]) for c in SELECTIONS},
    )


def is_fused(training: Training, block: Block, core: bool) -> bool:
    """Whether an operator of the block runs inside its fused attention kernel."""
    return core and training.attention != "materialized" and bool(block.attentions)


#: Taps of kernels that libraries unroll (1, 3 x 3 and 5 x 5: PyTorch, DepthwiseConv2d.cu), and instructions of a
#: multiply-add on a lane there and in the general loop: itself and the load of a tap, addresses and borders; a loop
#: adds its indices and two bounds for every tap.  Assumptions, 2 to 8 and 8 to 16.
UNROLLED_TAPS = (1, 9, 25)
UNROLLED, LOOPED = 4.0, 12.0


def _lanes(distinct: list[_Product], ndim: int) -> np.ndarray | None:
    """Instructions of a multiply-add of grouped convolutions on lanes, inf for other products; None where all are."""
    matmuls = [product.matmul for product in distinct]
    if not any(matmul.convolution and matmul.groups > 1 for matmul in matmuls):
        return None
    counts = [
        (UNROLLED if matmul.window in UNROLLED_TAPS else LOOPED)
        if matmul.convolution and matmul.groups > 1 else np.inf
        for matmul in matmuls
    ]  # fmt: skip
    return np.array(counts).reshape(-1, *([1] * (ndim - 1)))


@dataclass(frozen=True)
class _Product:
    """A matrix product of a step: whose it is, its phase, format, and bytes moved for an element of its result."""

    place: str
    matmul: Matmul
    phase: str
    precision: Precision
    output_bytes: float

    def signature(self) -> tuple[Any, ...]:
        """Equal for products that have the same sizes in every situation."""
        op = self.matmul
        # a dimension: its size, and what divides or multiplies it
        m = (op.m, "samples" if op.weight else "", op.steps if self.phase != "weight_gradient" else 1, 0)
        n = (op.n, "tensor" if op.split == "n" else "", op.n_groups, op.n_group_width)
        k = (op.k, "tensor" if op.split == "k" else "", 0, 0)
        sizes = phase_dimensions(m, n, k, self.phase)
        taps = (op.window, op.stride, op.winograd, self.phase) if op.window > 1 else ()
        same = (op.groups, op.split == "groups", op.weight, op.experts, self.output_bytes, self.precision)
        return (*sizes, *same, *taps)

    def sizes(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        m, n, k, groups = self.matmul.shard(
            fields["tensor"], fields["micro_batch"], fields["context"], fields["expert"], fields["expert_tensor"]
        )
        if self.phase != "weight_gradient" and self.matmul.steps > 1:
            m = np.maximum(m / self.matmul.steps, 1.0)
        *sizes, distinct = self.matmul.phase_sizes(self.phase, m, n, k)
        return (*sizes, groups, distinct)


def _matmul_tasks(blocks: dict[str, Block], training: Training) -> tuple[tuple[Task, ...], list[_Product]]:
    """Tasks of all matrix products, and the distinct products their rows stand for."""
    numbers: dict[tuple[Any, ...], int] = {}
    distinct: list[_Product] = []
    tasks: list[Task] = []
    for product in _products(blocks, training):
        row = numbers.setdefault(product.signature(), len(numbers))
        if row == len(distinct):
            distinct.append(product)
        op = product.matmul
        # both gradients of a product of activations are input gradients: a schedule cannot put one off
        phase = gradient_phase(op) if product.phase == "weight_gradient" else product.phase
        steps = 1.0 if product.phase == "weight_gradient" else float(op.steps)
        tasks.append(Task(product.place, op.name, "product", phase, op.core, 1.0, row, steps * op.repeats))
    return tuple(tasks), distinct


def _products(blocks: dict[str, Block], training: Training) -> Iterator[_Product]:
    for place, block in blocks.items():
        for matmul in block.matmuls:
            if is_fused(training, block, matmul.core):
                continue
            wide = training.precision == "fp8" and (matmul.core or not matmul.weight or place == "last")
            for phase in PHASES:
                if phase == "input_gradient" and not matmul.input_gradient:
                    continue
                # a weight gradient is added to what is there: read and written
                adds = phase == "weight_gradient" and matmul.weight
                moved = 2.0 * training.gradient_bytes if adds else float(training.activation_bytes)
                yield _Product(place, matmul, phase, WIDE if wide else training.precision, moved)


def _vector_tables(
    blocks: dict[str, Block], training: Training, fields: dict[str, Any], paired: bool
) -> tuple[tuple[Task, ...], np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Tasks of the element-wise passes, their operations, HBM bytes, further pieces, and which are one kernel."""
    passes: list[tuple[str, Vector, bool]] = [
        (place, vector, backward)
        for place, block in blocks.items()
        for vector in block.vectors
        if not is_fused(training, block, vector.core) and not (vector.loss and training.cross_entropy == "fused")
        for backward in (False, True)
        if vector.gradient or not backward
    ]
    sharing = fields["sequence_parallel"] > 0
    samples = fields["micro_batch"] / fields["context"]
    columns = [v.shard(fields["tensor"], sharing, samples) for _, v, _ in passes]
    moved, operations, tasks = [], [], []
    for row, (place, vector, backward) in enumerate(passes):
        words = vector.backward_reads + vector.backward_writes if backward else vector.reads + vector.writes
        moved.append(_bytes_moved(vector, training, backward, words))
        operations.append(vector.backward_operations if backward else vector.operations)
        phase = "gradient" if backward else "forward"
        moves = words > 0
        tasks.append(Task(place, vector.name, "pass", phase, vector.core, float(vector.steps) * moves, row,
                          float(vector.repeats)))  # fmt: skip
    if training.precision == "fp8":
        for place, block in blocks.items():
            for backward in (False, True):
                cast = _cast_elements(place, block, fields, backward, training.weight_casts == "pass")
                if cast is None:
                    continue
                tasks.append(Task(place, "cast to fp8", "pass", "gradient" if backward else "forward", False, 1.0,
                                  len(columns)))  # fmt: skip
                columns.append(cast)
                moved.append(training.cast_bytes)
                operations.append(2.0)
    converts = len(columns)  # where conversions begin: they come last
    if training.layout == "channels_first" and training.precision in ("tf32", "fp16", "bf16", "fp8"):
        for place, backward, converted in _conversions(blocks, fields):
            tasks.append(Task(place, "layout", "pass", "gradient" if backward else "forward", False, 1.0, len(columns)))
            columns.append(converted)
            moved.append(2.0 * training.activation_bytes)
            operations.append(0.0)
    elements = _stack(columns, paired)
    per_element = [_per_row(values, elements.ndim) for values in (operations, moved)]
    further = [v.pieces - 1.0 for _, v, _ in passes] + [0.0] * (len(columns) - len(passes))
    pieces = _per_row(further, elements.ndim) if any(further) else None
    rows = np.arange(len(columns)) >= converts
    plain = rows.reshape(-1, *([1] * (elements.ndim - 1))) if rows.any() else None
    return tuple(tasks), elements * per_element[0], elements * per_element[1], pieces, plain


def _bytes_moved(vector: Vector, training: Training, backward: bool, words: float) -> float:
    """HBM bytes of a pass, per element: activations in their format, what has a width of its own, and the optimizer
    state of the rows of tables that it updates."""
    fixed = vector.backward_fixed if backward else vector.fixed
    moved = (words - fixed) * training.activation_bytes + fixed * 2.0
    return moved + vector.rows * training.row_state_moved(vector.row_width) if backward else moved


def _conversions(blocks: dict[str, Block], fields: dict[str, Any]) -> Iterator[tuple[str, bool, Any]]:
    """Elements converted between layouts around the convolutions of a block: input and result of each product."""
    for place, block in blocks.items():
        for backward in (False, True):
            total: Any = None
            for matmul in block.matmuls:
                if not matmul.convolution or (matmul.groups > 1 and matmul.k == matmul.window):
                    continue  # depthwise kernels take either layout
                m, n, k, groups = matmul.shard(fields["tensor"], fields["micro_batch"], fields["context"])
                read = m * k * (min(matmul.stride, matmul.window) / matmul.window)
                times = float(matmul.repeats) * ((1.0 + matmul.input_gradient) if backward else 1.0)
                converted = groups * (read + m * n) * times
                total = converted if total is None else total + converted
            if total is not None:
                yield place, backward, total


def _cast_elements(place: str, block: Block, fields: dict[str, Any], backward: bool, weights: bool) -> Any:
    """Elements that become fp8: inputs (and weights) of the linear layers forward, gradients of results backward."""
    total: Any = None
    for matmul in block.matmuls:
        if matmul.weight and not matmul.core and place != "last":
            m, n, k, groups = matmul.shard(
                fields["tensor"], fields["micro_batch"], fields["context"], fields["expert"], fields["expert_tensor"]
            )
            inputs = m * k + k * n if weights else m * k
            cast = (groups * (m * n) if backward else groups * inputs) * float(matmul.repeats)
            total = cast if total is None else total + cast
    return total


def _attention_table(
    blocks: dict[str, Block], training: Training, fields: dict[str, Any], paired: bool
) -> tuple[tuple[Task, ...], Fused | None]:
    """Fused attention kernels: one forward, and backward one with the pass over O and dO before it."""
    rows = [
        (place, sizes, backward)
        for place, block in blocks.items()
        for sizes in block.attentions
        if training.attention != "materialized"
        for backward in (False, True)
    ]
    if not rows:
        return (), None
    tasks = tuple(
        Task(place, "attention", "attention", ("forward", "gradient")[backward], True, 1.0 + backward, row,
             float(sizes.repeats))
        for row, (place, sizes, backward) in enumerate(rows)
    )
    heads = [np.ceil(sizes.heads / fields["tensor"]) * fields["micro_batch"] for _, sizes, _ in rows]
    groups = _stack(heads, paired)
    queries = _stack([np.ceil(sizes.queries / fields["context"]) for _, sizes, _ in rows], paired)
    keys = _stack([sizes.keys + 0.0 * fields["context"] for _, sizes, _ in rows], paired)
    # two products forward; backward scores again, and four gradients: each as wide as keys or values
    widths = [
        3.0 * sizes.head_dim + 2.0 * sizes.value_dim if backward else float(sizes.head_dim + sizes.value_dim)
        for _, sizes, backward in rows
    ]
    seen = [0.5 if sizes.causal else 1.0 for _, sizes, _ in rows]
    per_score = _per_row([width * share for width, share in zip(widths, seen, strict=True)], groups.ndim)
    shapes = tuple((sizes, backward) for _, sizes, backward in rows)
    return tasks, Fused(groups, queries, keys, shapes, groups * queries * keys * per_score)


def _stack(columns: list[Any], paired: bool) -> np.ndarray:
    """Columns (S,) of all rows as (O, S), or (O, 1, S) to meet chips (H, 1)."""
    length = max((np.size(column) for column in columns), default=1)
    table = np.empty((len(columns), length))
    for i, column in enumerate(columns):
        table[i] = column
    return table if paired else table[:, None, :]


def _per_row(values: list[float], ndim: int) -> np.ndarray:
    return np.array(values).reshape(-1, *([1] * (ndim - 1)))
