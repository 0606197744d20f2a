"""Time, traffic and work of every operator of a step in every situation, stream by stream.

An operator takes as long as its slowest stream: arrays, shared SRAM, HBM or vector lanes; plus one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from hw_models.compute import matmul_time
from hw_models.memory.tiling import stream_traffic, traffic
from workloads.operators import Block, Matmul, Vector
from workloads.training import PHASES, phase_dimensions, phase_resident

#: Bytes of an accumulator on chip: products of every precision are summed in fp32.
ACCUMULATOR_BYTES = 4


@dataclass(frozen=True)
class Task:
    """One kernel of a step: an operator of a block in one phase."""

    place: str
    operator: str
    phase: str
    core: bool

    @property
    def backward(self) -> bool:
        """True for gradients (and what a fused attention kernel repeats for them)."""
        return self.phase != "forward"


@dataclass(frozen=True)
class OperatorPrices:
    """Prices of tasks by situation: arrays (O, S), or (O, H, S) for H chips.

    time      seconds of the kernel, launch included
    streams   seconds each stream alone would take
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


def price_matmuls(rows: Rows, blocks: dict[str, Block], fields: dict[str, np.ndarray]) -> OperatorPrices:
    """Prices of all matrix products of one micro-batch: forward, input gradients, weight gradients.

    A fused attention kernel keeps scores on chip in every phase and repeats the forward scores product
    in its backward pass (Dao et al. 2022, arXiv 2205.14135, section 3.1).
    """
    training, chip, stack = rows.training, rows.chip, rows.stack
    fused = training.attention == "fused"
    work = list(_matmul_tasks(blocks, fused))
    sizes = [_dimensions(matmul, phase, fields) for _, matmul, phase in work]
    m, n, k, groups = (_stack([size[i] for size in sizes], rows) for i in range(4))
    output = _per_task([_output_bytes(matmul, phase, training) for _, matmul, phase in work], m.ndim)
    operand = training.operand_bytes

    macs = m * n * k * groups
    array = matmul_time(chip, m, n, k, groups, precision=training.precision) / stack.matmul_efficiency
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
        kept = _kept_on_chip(work, (m, n, k, groups), operand, output)
        hbm, sram = hbm - kept, sram - kept
    streams = {
        "array": array,
        "sram": sram / chip.shared_sram_bandwidth,
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(np.maximum(streams["array"], streams["sram"]), streams["hbm"])
    launches = _per_task([0.0 if fused and task.core and task.operator != "scores" else 1.0 for task, _, _ in work], m.ndim)
    time = time + launches * stack.kernel_launch
    return OperatorPrices(tuple(task for task, _, _ in work), time, streams, macs, 0.0, sram, hbm)


def _matmul_tasks(blocks: dict[str, Block], fused: bool) -> Any:
    for place, block in blocks.items():
        for matmul in block.matmuls:
            for phase in PHASES:
                yield Task(place, matmul.name, phase, matmul.core), matmul, phase
            if fused and matmul.resident == "c":
                yield Task(place, matmul.name, "repeated", matmul.core), matmul, "forward"


def _dimensions(matmul: Matmul, phase: str, fields: dict[str, np.ndarray]) -> tuple[Any, ...]:
    m, n, k, groups = matmul.shard(fields["tensor"], fields["micro_batch"])
    return (*phase_dimensions(m, n, k, phase), groups)


def _output_bytes(matmul: Matmul, phase: str, training: Any) -> float:
    """Bytes moved for an element of the result; a weight gradient is added to what is there."""
    if phase == "weight_gradient" and matmul.weight:
        return 2.0 * training.gradient_bytes
    return float(training.activation_bytes)


def _kept_on_chip(work: list[Any], sizes: tuple[Any, ...], operand: float, output: Any) -> Any:
    """Bytes of the scores tensor that a fused kernel neither reads nor writes, (O, ...)."""
    m, n, k, groups = sizes
    residents = [phase_resident(matmul, phase) for _, matmul, phase in work]
    left, right, result = (
        _per_task([float(resident == name) for resident in residents], m.ndim) for name in ("a", "b", "c")
    )
    return groups * (left * (m * k) * operand + right * (k * n) * operand + result * (m * n) * output)


def _stack(columns: list[Any], rows: Rows) -> np.ndarray:
    """Columns (S,) of all tasks as (O, S), or (O, 1, S) to meet chips (H, 1)."""
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
    work: list[tuple[Task, Vector, bool]] = [
        (Task(place, vector.name, phase, vector.core), vector, phase == "gradient")
        for place, block in blocks.items()
        for vector in block.vectors
        for phase in ("forward", "gradient")
    ]
    elements = _stack(
        [vector.shard(fields["tensor"], fields["sequence_parallel"] > 0, fields["micro_batch"]) for _, vector, _ in work],
        rows,
    )
    moved, operations, launches = [], [], []
    for task, vector, backward in work:
        inside = fused and task.core
        words = vector.backward_reads + vector.backward_writes if backward else vector.reads + vector.writes
        moved.append(0.0 if inside else words * training.activation_bytes)
        repeated = vector.operations if inside and backward else 0.0
        operations.append((vector.backward_operations if backward else vector.operations) + repeated)
        launches.append(0.0 if inside else 1.0)
    hbm = elements * _per_task(moved, elements.ndim)
    vector_operations = elements * _per_task(operations, elements.ndim)
    streams = {
        "vector": vector_operations / (chip.vector_lanes * chip.clock),
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(streams["vector"], streams["hbm"]) + _per_task(launches, elements.ndim) * stack.kernel_launch
    return OperatorPrices(tuple(task for task, _, _ in work), time, streams, 0.0, vector_operations, hbm, hbm)
