"""Area of the logic die by block: every count the chip has is paid for.

Not here: HBM dies, package, yield, cost (cost.py). Constants and their sources: data/technology.csv.
Theory and agreement with published dies: docs/models/area.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.memory.noc import NONE, noc_area
from hw_models.physical.phaze import is_template, template_blocks
from hw_models.technology import Technology

#: Blocks of the logic die.
BLOCKS = (
    "arrays", "vector", "local_sram", "shared_sram", "cores", "noc", "hbm_phy", "hbm_control", "links", "other",
    "unattributed",
)  # fmt: skip

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
    "unattributed_share",
)


def area_by_block(chip: Chip, technology: Technology) -> dict[str, Any]:
    """Area of each block of the logic die [m2], a scalar or (N,) each: counts times area constants.

    arrays      s n R C a_mac           n arrays of R x C multiply-adds
    vector      s l a_lane              l fp32 lanes
    local_sram  s k b a_local           k cores with b bytes each: registers, local SRAM
    cores       s k a_core              instruction fetch, control, load and store, special functions
    shared_sram B a_shared + b a_bank   a hardware cache on a chip of tensor cores, else a scratchpad; b banks
    noc         w sqrt(k) a_noc         w B/s between shared SRAM and cores, over a mean of sqrt(k) hops;
                                        `noc_area` of s k cores where the chip names its network
    hbm_phy     h a_phy                 analog: does not scale with the node
    hbm_control h a_controller
    links       v a_link                v B/s, all links, per direction
    other       a_other                 host interface, management, clocks, test
    unattributed  u/(1 - u) of the sum  of a systolic chip only: constants of tensor-core chips come from die photos,
                                        whose blocks cover the die
    s = 1 + spare_cores: dies carry cores beyond the enabled ones, for yield.
    The template phaze22nm has its own published areas instead, and leaves what it does not pay for at 0.
    Ignores sparse and graphics units, and the aspect ratio of the die."""
    if is_template(technology):
        return dict.fromkeys(BLOCKS, 0.0) | template_blocks(chip, technology)
    cached = chip.compute == "tensor_core"
    technology.need("area", *_NEEDED, "cache_area" if cached else "shared_sram_area")
    t = technology
    spare = 1.0 + t.spare_cores
    cores = chip.cores * spare
    blocks = {
        "arrays": chip.macs_per_cycle * (t.mac_area * spare),
        "vector": chip.vector_lanes * (t.vector_lane_area * spare),
        "local_sram": cores * chip.local_sram * t.local_sram_area,
        "shared_sram": chip.shared_sram * (t.cache_area if cached else t.shared_sram_area) + _banks(chip, t),
        "cores": cores * t.core_area,
        "noc": _network(chip, t, cores),
        "hbm_phy": chip.hbm_stacks * t.hbm_phy_area,
        "hbm_control": chip.hbm_stacks * t.hbm_controller_area,
        "links": chip.scale_up_bandwidth * t.link_area_per_bandwidth,
        "other": t.other_area,
    }
    explained = _total(blocks)
    missing = 0.0 if cached else t.unattributed_share / (1.0 - t.unattributed_share)
    return blocks | {"unattributed": explained * missing}


def _banks(chip: Chip, technology: Technology) -> Any:
    """Area of the banks of shared SRAM beyond its cells [m2]; 0 where they are not counted."""
    if not np.any(chip.sram_banks):
        return 0.0
    technology.need("banks", "bank_area")
    return chip.sram_banks * technology.bank_area


def _network(chip: Chip, technology: Technology, cores: Any) -> Any:
    """Area of the network on chip [m2]: of the topology that the chip names, else by bandwidth and hops."""
    t = technology
    generic = chip.shared_sram_bandwidth * (np.sqrt(cores) * t.noc_area_per_bandwidth)
    if not np.any(chip.noc):
        return generic
    t.need("network on chip", "wire_pitch", "router_area")
    named = noc_area(chip.noc, cores, width=chip.noc_width, wire_pitch=t.wire_pitch, router_area=t.router_area)
    return np.where(np.equal(chip.noc, NONE), generic, named)


def core_tile_area(chip: Chip, technology: Technology) -> Any:
    """Area of a core with its share of shared SRAM [m2]: how far apart the nodes of a network on chip lie."""
    blocks = area_by_block(chip, technology)
    tiles = blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["cores"] + blocks["shared_sram"]
    return tiles / chip.cores


def die_area(chip: Chip, technology: Technology) -> Any:
    """Area of the logic die, HBM excluded [m2]: the sum of its blocks. Several dies of a package count as one."""
    return _total(area_by_block(chip, technology))


def _total(blocks: dict[str, Any]) -> Any:
    total: Any = 0.0
    for name in BLOCKS:
        if name in blocks:
            total = total + blocks[name]
    return total


def sram_macro_area(
    capacity: Any, cell_area: Any, *, array_efficiency: Any = 0.65, banks: Any = 1.0, bank_overhead: Any = 0.0
) -> Any:
    """Area of an SRAM macro alone [m2], shape: broadcast.

    A = 8 b a_cell / e + n a_bank
    b capacity [B], a_cell bit cell [m2], e share of the macro that is cells: 0.65 in CACTI 7 from 16 KiB to 4 MiB at
    22, 32 and 45 nm (cell of 146 F^2), n banks, a_bank port, decoder and bus of a bank [m2].
    A chip's SRAM is larger: interconnect, ECC, tags, spare rows are in the constants of `area_by_block`.
    Valid: banks of 16 KiB and up; below, periphery dominates."""
    return 8.0 * capacity * cell_area / array_efficiency + banks * bank_overhead


def serdes_area_per_bandwidth(lane_rate: Any, *, lane_area: Any = 0.477e-6, controller_area: Any = 0.0) -> Any:
    """Area of SerDes lanes and controller for each B/s and direction [m2 s/B].

    a = a_lane / r + a_controller      r bytes/s of a lane, each direction
    a_lane 0.477 mm2: NVLink3 1.888 mm2 for 4 lanes of 50 Gb/s, NVLink4 0.965 mm2 for 2 lanes of 100 Gb/s (LLMCompass):
    a lane takes the same area at either rate, so twice the rate halves the area of a bandwidth."""
    return lane_area / lane_rate + controller_area
