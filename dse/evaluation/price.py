"""Prices of operators and of passes of a block: seconds and joules in every situation.

An operator takes as long as its slowest stream: arrays, shared SRAM, HBM or vector lanes. The time of a
block is the sum of its kernels' with their launches (one device stream), paced by the host that issues them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.work import CORE, PLACES, Work, row_sum
from hw_models.compute import matmul_time
from hw_models.compute.vector import vector_time
from hw_models.memory.tiling import stream_traffic, traffic
from hw_models.physical.energy import work_energy
from workloads.operators import Block

#: Bytes of an accumulator on chip: products of every precision are summed in fp32.
ACCUMULATOR_BYTES = 4


@dataclass(frozen=True)
class OperatorPrices:
    """Prices of the rows of a `Work` table, (O, S) or (O, H, S).

    time       seconds of the slowest stream, without launch
    streams    seconds each stream alone would take
    sram, hbm  bytes from and to shared SRAM and HBM
    """

    time: np.ndarray
    streams: dict[str, np.ndarray]
    sram: np.ndarray
    hbm: np.ndarray


@dataclass(frozen=True)
class Priced:
    """Seconds and joules of one micro-batch on one device of the tensor axis, by block place, (S,) or (H, S).

    forward, backward   of a block; core: the part of forward that selective recomputation repeats
    *_energy            dynamic energy of the same
    """

    forward: dict[str, np.ndarray]
    backward: dict[str, np.ndarray]
    core: np.ndarray
    forward_energy: dict[str, np.ndarray]
    backward_energy: dict[str, np.ndarray]
    core_energy: np.ndarray


def price_matmuls(rows: Rows, work: Work) -> OperatorPrices:
    """Time and traffic of the matrix products.

    A fused attention kernel keeps scores on chip in every phase (Dao et al. 2022, arXiv 2205.14135, section 3.1).
    """
    chip, stack = rows.chip, rows.stack
    sizes = (work.m, work.n, work.k, work.groups)
    operand = rows.training.operand_bytes
    hbm = traffic(
        *sizes, capacity=chip.shared_sram, operand_bytes=operand,
        output_bytes=work.output_bytes, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    sram = stream_traffic(
        *sizes, local_capacity=chip.local_sram,
        array_outputs=chip.arrays_per_core * chip.array_rows * chip.array_columns,
        operand_bytes=operand, output_bytes=work.output_bytes, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    for row, kept in work.kept.items():
        hbm[row] -= kept
        sram[row] -= kept
    streams = {
        "array": matmul_time(chip, *sizes, precision=rows.training.precision) / stack.matmul_efficiency,
        "sram": sram / chip.shared_sram_bandwidth,
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(np.maximum(streams["array"], streams["sram"]), streams["hbm"])
    return OperatorPrices(time, streams, sram, hbm)


def price_vectors(rows: Rows, work: Work) -> OperatorPrices:
    """Time and traffic of the element-wise passes: the slower of HBM and vector lanes."""
    chip, stack = rows.chip, rows.stack
    streams = {
        "vector": vector_time(chip, work.operations),
        "hbm": work.moved / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    return OperatorPrices(np.maximum(streams["vector"], streams["hbm"]), streams, work.moved, work.moved)


def price(rows: Rows, blocks: dict[str, Block], work: Work) -> Priced:
    """Time and energy of every block's passes."""
    matmuls, vectors = price_matmuls(rows, work), price_vectors(rows, work)
    host = rows.stack.host_time_per_kernel

    def time(selection: tuple[str, str]) -> Any:
        products, passes = work.members[selection]
        busy = row_sum(matmuls.time, products) + row_sum(vectors.time, passes)
        return busy + work.launches[selection] * rows.stack.kernel_launch

    def energy(selection: tuple[str, str]) -> Any:
        products, _ = work.members[selection]
        moved = work.vector_moved[selection]
        return work_energy(
            rows.chip, rows.technology, precision=rows.training.precision, operand_bytes=rows.training.operand_bytes,
            macs=work.macs[selection], vector_operations=work.vector[selection],
            sram_bytes=row_sum(matmuls.sram, products) + moved, hbm_bytes=row_sum(matmuls.hbm, products) + moved,
        )

    issue = {place: host * blocks[place].kernels for place in PLACES}
    return Priced(
        forward={place: np.maximum(time((place, "forward")), issue[place]) for place in PLACES},
        backward={place: np.maximum(time((place, "backward")), 2.0 * issue[place]) for place in PLACES},
        core=time(CORE),
        forward_energy={place: energy((place, "forward")) for place in PLACES},
        backward_energy={place: energy((place, "backward")) for place in PLACES},
        core_energy=energy(CORE),
    )
