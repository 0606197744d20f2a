"""Area of the logic die by block: every count the chip has is paid for.

Not here: HBM dies, package, yield, cost. Constants and their sources: data/technology.csv.
"""

from __future__ import annotations

from typing import Any

from hw_models.chip import Chip
from hw_models.technology import Technology

#: Blocks of the logic die.
BLOCKS = ("arrays", "vector", "local_sram", "shared_sram", "cores", "noc", "hbm_phy", "links", "other")

_NEEDED = (
    "mac_area",
    "vector_lane_area",
    "local_sram_area",
    "core_area",
    "noc_area_per_bandwidth",
    "hbm_phy_area",
    "hbm_controller_area",
    "link_area_per_bandwidth",
    "other_area",
    "spare_cores",
)


def area_by_block(chip: Chip, technology: Technology) -> dict[str, Any]:
    """Area of each block of the logic die [m2], a scalar or (N,) each: counts times area constants.

    arrays      s n R C a_mac           n arrays of R x C multiply-adds
    vector      s l a_lane              l fp32 lanes
    local_sram  s k b a_local           k cores with b bytes each
    cores       s k a_core
    shared_sram B a_shared              a hardware cache on a chip of tensor cores, else a scratchpad
    noc         w a_noc                 w B/s between shared SRAM and cores
    hbm_phy     h (a_phy + a_controller)
    links       v a_link                v B/s, all links, per direction
    other       a_other
    s = 1 + spare_cores: dies carry cores beyond the enabled ones, for yield.
    Ignores double precision, sparse and graphics units, white space, and the aspect ratio of the die."""
    cached = chip.compute == "tensor_core"
    technology.need("area", *_NEEDED, "cache_area" if cached else "shared_sram_area")
    t = technology
    spare = 1.0 + t.spare_cores
    cores = chip.cores * spare
    return {
        "arrays": chip.macs_per_cycle * (t.mac_area * spare),
        "vector": chip.vector_lanes * (t.vector_lane_area * spare),
        "local_sram": cores * chip.local_sram * t.local_sram_area,
        "shared_sram": chip.shared_sram * (t.cache_area if cached else t.shared_sram_area),
        "cores": cores * t.core_area,
        "noc": chip.shared_sram_bandwidth * t.noc_area_per_bandwidth,
        "hbm_phy": chip.hbm_stacks * (t.hbm_phy_area + t.hbm_controller_area),
        "links": chip.scale_up_bandwidth * t.link_area_per_bandwidth,
        "other": t.other_area,
    }


def die_area(chip: Chip, technology: Technology) -> Any:
    """Area of the logic die, HBM excluded [m2]: the sum of its blocks."""
    blocks = area_by_block(chip, technology)
    total = blocks[BLOCKS[0]]
    for name in BLOCKS[1:]:
        total = total + blocks[name]
    return total
