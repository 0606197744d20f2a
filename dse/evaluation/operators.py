"""Time, traffic and work of every operator of a step in every situation, stream by stream.

An operator takes as long as its slowest stream: arrays, shared SRAM, HBM or vector lanes; launches are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from hw_models.compute import matmul_time
from hw_models.memory.tiling import stream_traffic, traffic
from workloads.operators import Block, Matmul, Vector
from workloads.precision import Training
from workloads.training import PHASES, phase_dimensions, phase_resident

#: Bytes of an accumulator on chip: products of every precision are summed in fp32.
ACCUMULATOR_BYTES = 4


@dataclass(frozen=True)
class Task:
    """One kernel of a step: an operator of a block in one phase.

    phase     "forward", "input_gradient", "weight_gradient", "gradient" (vectors) or "repeated": the forward
              scores product that a fused attention kernel does again in its backward pass
    launches  0 where a fused kernel covers it
    row       its row in the price table: equal products are priced once
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


@dataclass(frozen=True)
class OperatorPrices:
    """Prices of distinct operators by situation: (O, S), or (O, H, S) for H chips; `tasks` say who uses which row.

    time           seconds of the slowest stream, without launch
    streams        seconds each stream alone would take
    macs, vector   multiply-adds or vector operations, 0 where the tasks have none
    sram, hbm      bytes from and to shared SRAM and HBM
    """

    tasks: tuple[Task, ...]
    time: np.ndarray
    streams: dict[str, np.ndarray]
    macs: Any
    vector: Any
    sram: np.ndarray
    hbm: np.ndarray

    def total(self, table: Any, wanted: Callable[[Task], bool]) -> Any:
        """Sum of a table over the wanted tasks, in their order: the same bits for any number of designs."""
        if np.ndim(table) == 0:
            return table
        found: Any = 0.0
        for task in self.tasks:
            if wanted(task):
                found = found + table[task.row]
        return found

    def launches(self, wanted: Callable[[Task], bool]) -> float:
        """Kernels launched for the wanted tasks."""
        return sum(task.launches for task in self.tasks if wanted(task))


@dataclass(frozen=True)
class _Product:
    """A matrix product of a step: who needs it, its sizes by name, and the operand a fused kernel keeps on chip."""

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
        m = ("m", op.m, op.weight)
        n = ("n", op.n, op.split == "n", op.n_groups, op.n_group_width)
        k = ("n", op.k, op.split == "k", 0, 0)
        if not op.weight and not op.n_groups and op.split == "groups":
            m, n, k = ("m", op.m, False), ("m", op.n, False), ("m", op.k, False)  # type: ignore[assignment]
        sizes = phase_dimensions(m, n, k, self.math)
        return (*sizes, op.groups, op.split == "groups", op.weight, self.output_bytes, self.resident)

    def sizes(self, fields: dict[str, np.ndarray]) -> tuple[Any, ...]:
        m, n, k, groups = self.matmul.shard(fields["tensor"], fields["micro_batch"])
        return (*phase_dimensions(m, n, k, self.math), groups)


def price_matmuls(rows: Rows, blocks: dict[str, Block], fields: dict[str, np.ndarray]) -> OperatorPrices:
    """Prices of all matrix products of one micro-batch: forward, input gradients, weight gradients.

    A fused attention kernel keeps scores on chip in every phase and repeats the forward scores product
    in its backward pass (Dao et al. 2022, arXiv 2205.14135, section 3.1).
    """
    training, chip, stack = rows.training, rows.chip, rows.stack
    fused = training.attention == "fused"
    needed = list(_products(blocks, training))
    number: dict[tuple[Any, ...], int] = {}
    distinct = []
    tasks = []
    for product in needed:
        row = number.setdefault(product.signature(), len(number))
        if row == len(distinct):
            distinct.append(product)
        inside = fused and product.matmul.core and (product.matmul.resident != "c" or product.phase == "repeated")
        tasks.append(
            Task(product.place, product.matmul.name, product.phase, product.matmul.core, 0.0 if inside else 1.0, row)
        )
    sizes = [product.sizes(fields) for product in distinct]
    m, n, k, groups = (_stack([size[i] for size in sizes], rows) for i in range(4))
    output = _per_task([product.output_bytes for product in distinct], m.ndim)
    operand = training.operand_bytes

    hbm = traffic(
        m, n, k, groups, capacity=chip.shared_sram, operand_bytes=operand,
        output_bytes=output, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    sram = stream_traffic(
        m, n, k, groups, local_capacity=chip.local_sram,
        array_outputs=chip.arrays_per_core * chip.array_rows * chip.array_columns,
        operand_bytes=operand, output_bytes=output, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    if fused:
        for row, product in enumerate(distinct):
            if product.resident:
                kept = _kept_on_chip(product.resident, m[row], n[row], k[row], groups[row], operand, product.output_bytes)
                hbm[row] -= kept
                sram[row] -= kept
    streams = {
        "array": matmul_time(chip, m, n, k, groups, precision=training.precision) / stack.matmul_efficiency,
        "sram": sram / chip.shared_sram_bandwidth,
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(np.maximum(streams["array"], streams["sram"]), streams["hbm"])
    return OperatorPrices(tuple(tasks), time, streams, m * n * k * groups, 0.0, sram, hbm)


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


def _kept_on_chip(resident: str, m: Any, n: Any, k: Any, groups: Any, operand: float, output: float) -> Any:
    """Bytes of the scores tensor that a fused kernel neither reads nor writes."""
    if resident == "a":
        return groups * (m * k) * operand
    if resident == "b":
        return groups * (k * n) * operand
    return groups * (m * n) * output


def _stack(columns: list[Any], rows: Rows) -> np.ndarray:
    """Columns (S,) of all operators as (O, S), or (O, 1, S) to meet chips (H, 1)."""
    length = max(np.size(column) for column in columns)
    table = np.empty((len(columns), length))
    for i, column in enumerate(columns):
        table[i] = column
    return table if rows.paired else table[:, None, :]


def _per_task(values: list[float], ndim: int) -> np.ndarray:
    return np.array(values).reshape(-1, *([1] * (ndim - 1)))


def price_vectors(rows: Rows, blocks: dict[str, Block], fields: dict[str, np.ndarray]) -> OperatorPrices:
    """Prices of all element-wise passes: the slower of memory traffic and vector lanes.

    Inside a fused attention kernel they move nothing and launch nothing; their backward pass repeats
    the forward operations.
    """
    training, chip, stack = rows.training, rows.chip, rows.stack
    fused = training.attention == "fused"
    work: list[tuple[str, Vector, bool]] = [
        (place, vector, backward)
        for place, block in blocks.items()
        for vector in block.vectors
        for backward in (False, True)
    ]
    elements = _stack(
        [vector.shard(fields["tensor"], fields["sequence_parallel"] > 0, fields["micro_batch"]) for _, vector, _ in work],
        rows,
    )
    moved, operations, tasks = [], [], []
    for row, (place, vector, backward) in enumerate(work):
        inside = fused and vector.core
        words = vector.backward_reads + vector.backward_writes if backward else vector.reads + vector.writes
        moved.append(0.0 if inside else words * training.activation_bytes)
        repeated = vector.operations if inside and backward else 0.0
        operations.append((vector.backward_operations if backward else vector.operations) + repeated)
        phase = "gradient" if backward else "forward"
        tasks.append(Task(place, vector.name, phase, vector.core, 0.0 if inside else 1.0, row))
    hbm = elements * _per_task(moved, elements.ndim)
    vector_operations = elements * _per_task(operations, elements.ndim)
    streams = {
        "vector": vector_operations / (chip.vector_lanes * chip.clock),
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(streams["vector"], streams["hbm"])
    return OperatorPrices(tuple(tasks), time, streams, 0.0, vector_operations, hbm, hbm)
