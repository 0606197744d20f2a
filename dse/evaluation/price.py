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
    energies = tuple(operator_energy(rows, part) for part in parts)

    def total(tables: tuple[np.ndarray, ...], wanted: Callable[[Task], bool]) -> Any:
        """Sum of the tasks' rows in their order: the same bits for any number of designs."""
        found: Any = 0.0
        for part, table in zip(parts, tables, strict=True):
            for i, task in enumerate(part.tasks):
                if wanted(task):
                    found = found + table[i]
        return found

    times = tuple(part.time for part in parts)
    host = rows.stack.host_time_per_kernel
    forward, backward, forward_energy, backward_energy = {}, {}, {}, {}
    for place in PLACES:
        issue = host * blocks[place].kernels
        forward[place] = np.maximum(total(times, lambda t: t.place == place and not t.backward), issue)
        backward[place] = np.maximum(total(times, lambda t: t.place == place and t.backward), 2.0 * issue)
        forward_energy[place] = total(energies, lambda t: t.place == place and not t.backward)
        backward_energy[place] = total(energies, lambda t: t.place == place and t.backward)
    return Priced(
        forward=forward,
        backward=backward,
        core=total(times, lambda t: t.core and not t.backward),
        forward_energy=forward_energy,
        backward_energy=backward_energy,
        core_energy=total(energies, lambda t: t.core and not t.backward),
    )


def operator_energy(rows: Rows, prices: OperatorPrices) -> Any:
    """Dynamic energy of every task [J]: counts x energy per count."""
    return work_energy(
        rows.chip, rows.technology, precision=rows.training.precision, operand_bytes=rows.training.operand_bytes,
        macs=prices.macs, vector_operations=prices.vector, sram_bytes=prices.sram, hbm_bytes=prices.hbm,
    )
