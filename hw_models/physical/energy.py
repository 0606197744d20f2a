"""Energy of work: counts times cost, the same at every clock.

Static power times time is added where the time is known. Not here: voltage scaling, data-dependent switching.
Constants and their sources: data/technology.csv.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.memory.noc import NONE, noc_energy
from hw_models.physical.area import core_tile_area
from hw_models.technology import Technology


def local_bytes_per_mac(
    chip: Chip, *, rate: float = 1.0, operand_bytes: Any = 2.0, accumulator_bytes: float = 4.0, dataflow: Any = None
) -> Any:
    """Bytes an array moves from and to local SRAM or registers for each multiply-add [B].

    One operand held in the array:  x/C + 2 y/(R r)     one operand streams, a partial sum is read and written
    Outputs held in the array:      x/R + x/C           both operands stream, results drain once a fold
    R, C rows and columns; x operand bytes, y accumulator bytes; r matrix rate of the precision over the base:
    the array sums r R products before a partial sum moves.  Reloads of what is held are amortised.
    dataflow   of each product; None: the chip's, and where it is the best of all the form with partial sums, as for a
               design power"""
    dataflow = chip.dataflow if dataflow is None else dataflow
    streamed = operand_bytes / chip.array_columns
    partial_sums = 2.0 * accumulator_bytes / (chip.array_rows * rate)
    return streamed + np.where(np.equal(dataflow, 0), operand_bytes / chip.array_rows, partial_sums)


def shared_sram_byte_energy(chip: Chip, technology: Technology) -> Any:
    """Energy of one byte between shared SRAM and a core [J/B].

    none         e_shared, which holds a bank and wire of a fixed length
    a topology   e_bank + length e_wire + hops e_router, over the mean distance of its network (`noc_energy`)
    d dies       and (1 - 1/d) e_die: traffic is spread evenly, so that share of it crosses to another die"""
    technology.need("energy", "shared_sram_energy")
    on_a_die = _byte_energy_on_a_die(chip, technology)
    if not np.any(np.greater(chip.dies, 1)):
        return on_a_die
    technology.need("several dies", "die_to_die_energy")
    return on_a_die + (1.0 - 1.0 / chip.dies) * technology.die_to_die_energy


def _byte_energy_on_a_die(chip: Chip, technology: Technology) -> Any:
    """Energy of one byte between shared SRAM and a core, all on one die [J/B]."""
    t = technology
    if not np.any(chip.noc):
        return t.shared_sram_energy
    t.need("network on chip", "bank_energy", "wire_energy", "router_energy")
    carried = noc_energy(
        chip.noc, chip.cores, core_area=core_tile_area(chip, t), wire_energy=t.wire_energy,
        router_energy=t.router_energy,
    )  # fmt: skip
    return np.where(np.equal(chip.noc, NONE), t.shared_sram_energy, t.bank_energy + carried)


def work_energy(
    chip: Chip,
    technology: Technology,
    *,
    precision: str,
    operand_bytes: Any,
    macs: Any,
    vector_operations: Any,
    sram_bytes: Any,
    hbm_bytes: Any,
    local_bytes: Any = None,
) -> Any:
    """Dynamic energy of an operator on one chip [J], shape: broadcast of its counts and the chip.

    E = macs (e_mac + b_local e_local) + vector_operations e_lane + sram_bytes e_shared + hbm_bytes e_hbm
    macs multiply-adds (half the FLOPs), b_local bytes of `local_bytes_per_mac` unless `local_bytes` gives them
    (a multiply-add [B]), sram_bytes between shared SRAM and the cores [B], hbm_bytes [B].  e_mac depends on the
    precision.  Ignores control and instruction issue of the arrays; the lanes' register accesses are in e_lane."""
    technology.need("energy", "vector_energy", "local_sram_energy", "shared_sram_energy", "hbm_energy")
    t = technology
    local = local_bytes
    if local is None:
        local = local_bytes_per_mac(chip, rate=chip.matmul_rate(precision), operand_bytes=operand_bytes)
    energy = macs * (t.mac_energy_of(precision) + local * t.local_sram_energy)
    energy = energy + vector_operations * t.vector_energy
    energy = energy + sram_bytes * shared_sram_byte_energy(chip, t)
    return energy + hbm_bytes * t.hbm_energy


def communication_energy(link_bytes: Any, network_bytes: Any, technology: Technology) -> Any:
    """Energy of bytes a device sends [J]: chip-to-chip links, and the network between nodes.

    Each byte is counted once, at its sender; both ends are in the constants."""
    technology.need("energy", "link_energy", "network_energy")
    return link_bytes * technology.link_energy + network_bytes * technology.network_energy
