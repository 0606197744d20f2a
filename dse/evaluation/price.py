"""Block prices: what one pass of a block costs in time and energy, by phase, in every situation.

The time of a block is the sum of its kernels' (one device stream), paced by the host that issues them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.operators import OperatorPrices, Task, price_matmuls, price_vectors
from hw_models.physical.energy import work_energy
from workloads.operators import Block

PLACES = ("first", "body", "last")


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


def price(rows: Rows, blocks: dict[str, Block], fields: dict[str, np.ndarray]) -> Priced:
    """Time and energy of every block in the situations `fields` (tensor, micro_batch, sequence_parallel)."""
    parts = (price_matmuls(rows, blocks, fields), price_vectors(rows, blocks, fields))
    host = rows.stack.host_time_per_kernel
    forward, backward, forward_energy, backward_energy = {}, {}, {}, {}
    for place in PLACES:
        issue = host * blocks[place].kernels
        ahead, back = _in_block(place, backward=False), _in_block(place, backward=True)
        forward[place] = np.maximum(_time(rows, parts, ahead), issue)
        backward[place] = np.maximum(_time(rows, parts, back), 2.0 * issue)
        forward_energy[place] = _energy(rows, parts, ahead)
        backward_energy[place] = _energy(rows, parts, back)
    return Priced(
        forward=forward,
        backward=backward,
        core=_time(rows, parts, _core_forward),
        forward_energy=forward_energy,
        backward_energy=backward_energy,
        core_energy=_energy(rows, parts, _core_forward),
    )


Parts = tuple[OperatorPrices, OperatorPrices]
Wanted = Callable[[Task], bool]


def _in_block(place: str, *, backward: bool) -> Wanted:
    return lambda task: task.place == place and task.backward == backward


def _core_forward(task: Task) -> bool:
    return task.core and not task.backward


def _time(rows: Rows, parts: Parts, wanted: Wanted) -> Any:
    """Seconds of the wanted tasks one after the other on the device stream, with their launches."""
    matmuls, vectors = parts
    kernels = matmuls.launches(wanted) + vectors.launches(wanted)
    busy = matmuls.total(matmuls.time, wanted) + vectors.total(vectors.time, wanted)
    return busy + kernels * rows.stack.kernel_launch


def _energy(rows: Rows, parts: Parts, wanted: Wanted) -> Any:
    """Dynamic joules of the wanted tasks: counts x energy per count."""
    matmuls, vectors = parts
    return work_energy(
        rows.chip, rows.technology, precision=rows.training.precision, operand_bytes=rows.training.operand_bytes,
        macs=matmuls.total(matmuls.macs, wanted),
        vector_operations=vectors.total(vectors.vector, wanted),
        sram_bytes=matmuls.total(matmuls.sram, wanted) + vectors.total(vectors.sram, wanted),
        hbm_bytes=matmuls.total(matmuls.hbm, wanted) + vectors.total(vectors.hbm, wanted),
    )
