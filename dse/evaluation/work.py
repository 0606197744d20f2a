"""What the operators of one micro-batch do in every situation: sizes, bytes and counts. No chip enters.

A block's operators become tasks (forward and gradients); equal matrix products are priced once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.operators import Block, Matmul, Vector
from workloads.precision import Training
from workloads.training import PHASES, phase_dimensions, phase_resident

PLACES = ("first", "body", "last")
#: Sets of tasks that are summed: each block's forward and backward pass, and the attention core's forward pass.
CORE = ("body", "core")
SELECTIONS = (*((place, phase) for place in PLACES for phase in ("forward", "backward")), CORE)


@dataclass(frozen=True)
class Task:
    """One kernel of a step: an operator of a block in one phase.

    phase     "forward", "input_gradient", "weight_gradient", "gradient" (vectors) or "repeated": the forward
              scores product that a fused attention kernel does again in its backward pass
    launches  0 where a fused kernel covers it
    row       its row in the tables: equal products share one
    """

    place: str
    operator: str
    phase: str
    core: bool
    launches: float
    row: int

    @property
    def backward(self) -> bool:
        """True for gradients and what is repeated for them."""
        return self.phase != "forward"

    def within(self, selection: tuple[str, str]) -> bool:
        """Whether the task belongs to a selection."""
        if selection == CORE:
            return self.core and not self.backward
        return self.place == selection[0] and self.backward == (selection[1] == "backward")


@dataclass(frozen=True)
class Work:
    """Tasks and their tables by situation, (O, S) or, to meet chips (H, 1), (O, 1, S).

    matmuls, vectors   tasks of matrix products and of element-wise passes
    m, n, k, groups    sizes of the distinct products; output_bytes moved for an element of a result
    kept               bytes of scores that a fused kernel keeps on chip, by row
    operations, moved  vector operations and HBM bytes of the passes
    members            rows of products and of passes in each selection; launches: kernels in it
    macs, vector, vector_moved   sums of each selection
    """

    matmuls: tuple[Task, ...]
    vectors: tuple[Task, ...]
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    groups: np.ndarray
    output_bytes: np.ndarray
    kept: dict[int, Any]
    operations: np.ndarray
    moved: np.ndarray
    members: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]]
    launches: dict[tuple[str, str], float]
    macs: dict[tuple[str, str], Any]
    vector: dict[tuple[str, str], Any]
    vector_moved: dict[tuple[str, str], Any]


def row_sum(table: np.ndarray, rows: tuple[int, ...]) -> Any:
    """Sum of the listed rows, in their order: the same bits for any number of designs."""
    found: Any = 0.0
    for row in rows:
        found = found + table[row]
    return found


def work(blocks: dict[str, Block], training: Training, fields: dict[str, Any], *, paired: bool) -> Work:
    """The tasks of one micro-batch in the situations `fields` (tensor, micro_batch, sequence_parallel)."""
    matmuls, distinct = _matmul_tasks(blocks, training)
    sizes = [product.sizes(fields) for product in distinct]
    m, n, k, groups = (_stack([size[i] for size in sizes], paired) for i in range(4))
    output = _per_row([product.output_bytes for product in distinct], m.ndim)
    kept = {}
    if training.attention == "fused":
        for row, product in enumerate(distinct):
            if product.resident:
                kept[row] = _kept(product.resident, m[row], n[row], k[row], groups[row], training, product.output_bytes)
    vectors, operations, moved = _vector_tables(blocks, training, fields, paired)
    members = {
        chosen: (
            tuple(task.row for task in matmuls if task.within(chosen)),
            tuple(task.row for task in vectors if task.within(chosen)),
        )
        for chosen in SELECTIONS
    }
    macs = m * n * k * groups
    return Work(
        matmuls, vectors, m, n, k, groups, output, kept, operations, moved, members,
        launches={c: sum(task.launches for task in (*matmuls, *vectors) if task.within(c)) for c in SELECTIONS},
        macs={c: row_sum(macs, members[c][0]) for c in SELECTIONS},
        vector={c: row_sum(operations, members[c][1]) for c in SELECTIONS},
        vector_moved={c: row_sum(moved, members[c][1]) for c in SELECTIONS},
    )


@dataclass(frozen=True)
class _Product:
    """A matrix product of a step: whose it is, its phase, and bytes moved for an element of its result."""

    place: str
    matmul: Matmul
    phase: str
    output_bytes: float

    @property
    def math(self) -> str:
        return "forward" if self.phase == "repeated" else self.phase

    @property
    def resident(self) -> str:
        return phase_resident(self.matmul, self.math)

    def signature(self) -> tuple[Any, ...]:
        """Equal for products that have the same sizes in every situation."""
        op = self.matmul
        # a dimension: its size, and what divides or multiplies it
        m = (op.m, "samples" if op.weight else "", 0, 0)
        n = (op.n, "tensor" if op.split == "n" else "", op.n_groups, op.n_group_width)
        k = (op.k, "tensor" if op.split == "k" else "", 0, 0)
        sizes = phase_dimensions(m, n, k, self.math)
        return (*sizes, op.groups, op.split == "groups", op.weight, self.output_bytes, self.resident)

    def sizes(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        m, n, k, groups = self.matmul.shard(fields["tensor"], fields["micro_batch"])
        return (*phase_dimensions(m, n, k, self.math), groups)


def _matmul_tasks(blocks: dict[str, Block], training: Training) -> tuple[tuple[Task, ...], list[_Product]]:
    """Tasks of all matrix products, and the distinct products their rows stand for."""
    fused = training.attention == "fused"
    numbers: dict[tuple[Any, ...], int] = {}
    distinct: list[_Product] = []
    tasks: list[Task] = []
    for product in _products(blocks, training):
        row = numbers.setdefault(product.signature(), len(numbers))
        if row == len(distinct):
            distinct.append(product)
        op = product.matmul
        inside = fused and op.core and (op.resident != "c" or product.phase == "repeated")
        tasks.append(Task(product.place, op.name, product.phase, op.core, 0.0 if inside else 1.0, row))
    return tuple(tasks), distinct


def _products(blocks: dict[str, Block], training: Training) -> Iterator[_Product]:
    for place, block in blocks.items():
        for matmul in block.matmuls:
            for phase in PHASES:
                # a weight gradient is added to what is there: read and written
                adds = phase == "weight_gradient" and matmul.weight
                moved = 2.0 * training.gradient_bytes if adds else float(training.activation_bytes)
                yield _Product(place, matmul, phase, moved)
            if training.attention == "fused" and matmul.resident == "c":
                yield _Product(place, matmul, "repeated", float(training.activation_bytes))


def _kept(resident: str, m: Any, n: Any, k: Any, groups: Any, training: Training, output: float) -> Any:
    """Bytes of the scores tensor that a fused kernel neither reads nor writes."""
    if resident == "a":
        return groups * (m * k) * training.operand_bytes
    if resident == "b":
        return groups * (k * n) * training.operand_bytes
    return groups * (m * n) * output


def _vector_tables(
    blocks: dict[str, Block], training: Training, fields: dict[str, Any], paired: bool
) -> tuple[tuple[Task, ...], np.ndarray, np.ndarray]:
    """Tasks of the element-wise passes, their operations and their HBM bytes.

    Inside a fused attention kernel they move nothing and launch nothing; their backward pass repeats
    the forward operations.
    """
    passes: list[tuple[str, Vector, bool]] = [
        (place, vector, backward)
        for place, block in blocks.items()
        for vector in block.vectors
        for backward in (False, True)
    ]
    sharing = fields["sequence_parallel"] > 0
    elements = _stack([v.shard(fields["tensor"], sharing, fields["micro_batch"]) for _, v, _ in passes], paired)
    moved, operations, tasks = [], [], []
    for row, (place, vector, backward) in enumerate(passes):
        inside = training.attention == "fused" and vector.core
        words = vector.backward_reads + vector.backward_writes if backward else vector.reads + vector.writes
        moved.append(0.0 if inside else words * training.activation_bytes)
        repeated = vector.operations if inside and backward else 0.0
        operations.append((vector.backward_operations if backward else vector.operations) + repeated)
        phase = "gradient" if backward else "forward"
        tasks.append(Task(place, vector.name, phase, vector.core, 0.0 if inside else 1.0, row))
    per_element = [_per_row(values, elements.ndim) for values in (operations, moved)]
    return tuple(tasks), elements * per_element[0], elements * per_element[1]


def _stack(columns: list[Any], paired: bool) -> np.ndarray:
    """Columns (S,) of all rows as (O, S), or (O, 1, S) to meet chips (H, 1)."""
    length = max((np.size(column) for column in columns), default=1)
    table = np.empty((len(columns), length))
    for i, column in enumerate(columns):
        table[i] = column
    return table if paired else table[:, None, :]


def _per_row(values: list[float], ndim: int) -> np.ndarray:
    return np.array(values).reshape(-1, *([1] * (ndim - 1)))
