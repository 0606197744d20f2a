"""Power of a chip: idle, the most that real work makes it draw, and what it is designed for (TDP).

Not here: temperature; voltage other than nominal (dvfs.py). Constants and their sources: data/technology.csv.
Theory and agreement with published chips: docs/models/power.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.memory.noc import shared_sram_supply
from hw_models.physical.cost import silicon_area
from hw_models.physical.energy import local_bytes_per_mac, shared_sram_byte_energy
from hw_models.technology import Technology

#: Blocks of the thermal design power.
BLOCKS = ("arrays", "vector", "local_sram", "shared_sram", "hbm", "links", "leakage", "idle")
#: Blocks that do not depend on what runs.
STATIC = ("leakage", "idle")

_NEEDED = (
    "mac_energy",
    "vector_energy",
    "local_sram_energy",
    "shared_sram_energy",
    "hbm_energy",
    "link_energy",
    "peak_activity",
    "vector_activity",
    "design_margin",
)


def _mac_energy_rate(chip: Chip, technology: Technology, precision: str | None) -> Any:
    """Array energy a cycle and multiply-add of the base rate [J]: of one precision, or of the hottest supported."""
    hottest: Any = 0.0
    for name in (precision,) if precision else tuple(chip.matmul_rates):
        hottest = np.maximum(hottest, chip.matmul_rate(name) * technology.mac_energy_of(name))
    return hottest


def dynamic_power_by_block(chip: Chip, technology: Technology, *, precision: str | None = None) -> dict[str, Any]:
    """Power of each block when everything that moves runs at its peak [W], a scalar or (N,) each.

    arrays n R C f r e_mac; vector l f g e_lane; local SRAM: what the arrays move at full rate;
    shared SRAM, HBM and links: bandwidth times energy a byte.
    f clock, r matrix rate of the precision over the base, g vector_activity.
    precision None: the supported one whose arrays draw most."""
    technology.need("power", *_NEEDED)
    t = technology
    macs = chip.macs_per_cycle * chip.clock
    return {
        "arrays": macs * _mac_energy_rate(chip, t, precision),
        "vector": chip.vector_lanes * chip.clock * (t.vector_energy * t.vector_activity),
        "local_sram": macs * local_bytes_per_mac(chip) * t.local_sram_energy,
        "shared_sram": shared_sram_supply(chip) * shared_sram_byte_energy(chip, t),
        "hbm": chip.hbm_bandwidth * t.hbm_energy,
        "links": chip.scale_up_bandwidth * t.link_energy,
    }


def static_power(chip: Chip, technology: Technology, *, area: Any = None) -> Any:
    """Power of a chip that is on and idle [W]: leakage x area of all logic (`area` where it is known) + idle power."""
    technology.need("power", "leakage", "idle_power")
    return technology.leakage * (silicon_area(chip, technology) if area is None else area) + technology.idle_power


def sustained_power_by_block(
    chip: Chip, technology: Technology, *, precision: str | None = None
) -> dict[str, Any]:
    """The most that sustained work draws, by block [W]: peak dynamic power x peak_activity, leakage, idle power.

    peak_activity: the hottest sustained step keeps arrays, memories and links together at this share of their
    peaks; accelerators sustain that share of their peak matrix rate."""
    technology.need("power", "leakage", "idle_power")
    dynamic = dynamic_power_by_block(chip, technology, precision=precision)
    blocks = {name: power * technology.peak_activity for name, power in dynamic.items()}
    blocks["leakage"] = technology.leakage * silicon_area(chip, technology)
    blocks["idle"] = technology.idle_power
    return blocks


def tdp_by_block(chip: Chip, technology: Technology, *, precision: str | None = None) -> dict[str, Any]:
    """Thermal design power by block [W].

    Tensor cores: the clock is a boost that firmware lowers at the limit, so the design power is the sustained one.
    Arrays and lanes share issue slots and register ports: either the arrays run (vector_activity of the lanes beside
    them) or every lane, whichever draws more. That is what a chip without matrix units is designed for.
    Systolic: the clock is fixed and nothing throttles, so cooling must hold when all arrays, all lanes (an
    instruction word feeds both) and all memories run at their peak at once, on the worst data: x design_margin."""
    blocks = sustained_power_by_block(chip, technology, precision=precision)
    t = technology
    lanes = chip.vector_lanes * chip.clock * t.vector_energy
    if chip.compute == "systolic":
        share = t.design_margin / t.peak_activity
        grown = {name: power if name in STATIC else power * share for name, power in blocks.items()}
        return grown | {"vector": lanes * t.design_margin}
    work = blocks["arrays"] + blocks["local_sram"] + blocks["vector"]
    all_lanes = lanes * t.peak_activity
    hotter = all_lanes > work
    return blocks | {
        "arrays": np.where(hotter, 0.0, blocks["arrays"]),
        "local_sram": np.where(hotter, 0.0, blocks["local_sram"]),
        "vector": np.where(hotter, all_lanes, blocks["vector"]),
    }


def sustained_power(chip: Chip, technology: Technology, *, precision: str | None = None) -> Any:
    """The most that sustained work draws [W]: the sum of its blocks."""
    return _total(sustained_power_by_block(chip, technology, precision=precision))


def tdp(chip: Chip, technology: Technology, *, precision: str | None = None) -> Any:
    """Thermal design power [W]: the sum of its blocks, at most the chip's power cap.

    A cap that no clock meets is a violation of the design, not a larger number here (`dvfs.capped_point`)."""
    total = _total(tdp_by_block(chip, technology, precision=precision))
    if not np.any(chip.power_cap):
        return total
    return np.where(np.greater(chip.power_cap, 0.0), np.minimum(total, chip.power_cap), total)


def _total(blocks: dict[str, Any]) -> Any:
    total = blocks[BLOCKS[0]]
    for name in BLOCKS[1:]:
        total = total + blocks[name]
    return total
