"""Published chips against the area and power model: plain errors, and each chip predicted by a fit without it.

A target is a field that was read in a source; an upper bound is a one-sided test. What is not a target says why.
Constants: hw_models/data/technology.csv. Theory and results: docs/models/area.md, docs/models/power.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dse.evidence.measured.runs import Case, Row
from hw_models.chip import Chip
from hw_models.devices import chip, published
from hw_models.physical.area import area_by_block, die_area
from hw_models.physical.cost import silicon_area
from hw_models.physical.power import sustained_power, tdp
from hw_models.technology import Technology, technology

#: Chips of the published table by their name in the product.
CHIPS = {
    "TPUv2": "tpu-v2", "TPUv3": "tpu-v3", "TPUv4i": "tpu-v4i", "TPUv4": "tpu-v4", "V100-SXM2": "v100-sxm2",
    "A100-SXM-40GB": "a100-sxm-40gb", "A100-SXM-80GB": "a100-sxm-80gb", "H100-SXM5": "h100-sxm",
    "H200-SXM": "h200-sxm", "P100-SXM2": "p100-sxm2", "Gaudi2": "gaudi2", "B200-SXM": "b200-sxm",
    "GB200 (per GPU)": "gb200", "B300-SXM": "b300-sxm",
}  # fmt: skip
#: Dies published only as an upper bound [m2].
BOUNDS = {"TPUv2": 625e-6, "TPUv3": 700e-6, "TPUv4": 600e-6, "TPUv4i": 400e-6}
#: Why a chip of the published table with a verified area or power is no target.
EXCLUDED = {
    "TPUv1": "DDR3 memory and integer arrays are outside the chip model",
    "A100-PCIe-80GB": "the A100 die under the power limit of its slot",
    "H100-PCIe": "the H100 die under the power limit of its slot",
    "MI250X": "two dies in a package, no preset; its die is tested by the photo of MI210",
    "MI300X": "twelve chiplets of two processes, here of one; its boost clock is not sustained",
    "Gaudi3": "two dies of an undisclosed process, no preset",
    "Cerebras WSE-2": "a wafer, not a die",
    "Cerebras WSE-3": "a wafer, not a die",
    "Graphcore GC200 (Mk2 IPU)": "no HBM: outside the chip model",
}


@dataclass(frozen=True)
class Die:
    """A die that exists: the whole of it as a chip, spare parts included, and which other rows are the same die.

    name     die
    chip     what is on it, enabled or not
    area     published [m2]
    rows     chips of the published table that are made of it
    fp64     double-precision units a lane; the table's lane has half a unit
    """

    name: str
    chip: Chip
    area: float
    rows: tuple[str, ...]
    fp64: float = 0.5


def _whole(name: str, cores: int, *, stacks: int, shared_sram: float) -> Chip:
    """A preset with every core, memory site and cache slice of its die."""
    device = chip(name)
    grown = cores / device.cores
    return replace(
        device, array_count=round(device.array_count * grown), vector_lanes=round(device.vector_lanes * grown),
        shared_sram=shared_sram, shared_sram_bandwidth=device.shared_sram_bandwidth * grown, hbm_stacks=stacks,
    )  # fmt: skip


@cache
def dies() -> tuple[Die, ...]:
    """Dies of published area that the model describes, with what the whole die carries.

    Cores on the die: GK110 15, GP100 60, GV100 84, GA100 128 (48 MiB, 6 memory sites), GH100 144 (60 MiB, 6 sites):
    vendor white papers. Aldebaran 112 (LLMCompass configs/mi210.json); its area is the sum of the die photo's blocks.
    Local SRAM of a core of Aldebaran: 512 KiB vector and 13 KiB scalar registers, 64 KiB shared, 16 KiB cache, half of
    32 KiB of instructions and of 16 KiB of scalars (vendor's instruction set manual, recalled).
    GK110: lanes without matrix units are no array; 6 channels of GDDR5 of 64 bits."""
    kepler = Chip(
        name="k20x", compute="tensor_core", process="28nm", hbm="hbm2", array_count=15, array_rows=1, array_columns=1,
        arrays_per_core=1, vector_lanes=2880, local_sram=376832, shared_sram=1.5 * 2**20, shared_sram_bandwidth=4e11,
        hbm_stacks=6, hbm_stack_capacity=1e9, hbm_stack_bandwidth=4.2e10, links=0, link_bandwidth=1.0,
        clock=7.32e8, matmul_rates={"fp32": 1.0},
    )  # fmt: skip
    aldebaran = Chip(
        name="mi210", compute="tensor_core", process="6nm", hbm="hbm2e", array_count=448, array_rows=8,
        array_columns=16, arrays_per_core=4, vector_lanes=7168, local_sram=644096, shared_sram=8 * 2**20,
        shared_sram_bandwidth=7e12, hbm_stacks=4, hbm_stack_capacity=16e9, hbm_stack_bandwidth=4.096e11, links=8,
        link_bandwidth=5e10, clock=1.7e9, matmul_rates={"bf16": 1.0, "fp16": 1.0, "fp32": 0.25},
    )  # fmt: skip
    ampere = _whole("a100-sxm-40gb", 128, stacks=6, shared_sram=48 * 2**20)
    hopper = _whole("h100-sxm", 144, stacks=6, shared_sram=60 * 2**20)
    pascal, volta = chip("p100-sxm2"), chip("v100-sxm2")
    return (
        Die("GK110", kepler, 561e-6, ("K20X",), 1 / 3),
        Die("GP100", _whole("p100-sxm2", 60, stacks=4, shared_sram=pascal.shared_sram), 610e-6, ("P100-SXM2",)),
        Die("GV100", _whole("v100-sxm2", 84, stacks=4, shared_sram=volta.shared_sram), 815e-6, ("V100-SXM2",)),
        Die("GA100", ampere, 826e-6, ("A100-SXM-40GB", "A100-SXM-80GB")),
        Die("GH100", hopper, 814e-6, ("H100-SXM5", "H200-SXM")),
        Die("Aldebaran", aldebaran, 720.03e-6, ("MI210",), 1.0),
    )


# Constants that are fitted --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """The constants that are fitted to whole chips, and the die whose photo is not used.

    density        area of logic and SRAM at 28, 16 and 12 nm over the table's value
    core_area      area of a core's control over the table's value
    design_margin  design power of a chip of fixed clock over its peak dynamic power
    without        a die left out: constants measured on its photo come from the other die's
    """

    density: float = 1.0
    core_area: float = 1.0
    design_margin: float | None = None
    without: str = ""


#: Fields that scale with the fitted density of the old processes: logic, and SRAM with its periphery.
SRAM = ("local_sram_area", "shared_sram_area", "cache_area")
LOGIC = ("vector_lane_area", "core_area", "noc_area_per_bandwidth", "hbm_controller_area")
OLD = ("28nm", "16nm", "12nm")
#: PHY of a 16-lane PCIe4 host interface [m2], the part of `other_area` that does not scale (LLMCompass).
HOST_PHY = 7.7e-6
#: A 64-bit channel of graphics memory in place of a stack of HBM [m2 of PHY, transistors of controller]: DDR5 of
#: LLMCompass, 1.45 mm2 and 90.4 M a 32-bit unit; density of 28 nm logic, 15.3 M/mm2 (CSET).
GRAPHICS_PHY, GRAPHICS_CONTROLLER = 2 * 1.45e-6, 2 * 90.4464e6 / 15.3e12
#: Transistors of an fp32 unit with its integer unit, and of an fp64 unit (LLMCompass).
LANE, FP64 = 134_071 + 177_690, 685_300
#: Logic and SRAM of 7 nm in the area of 6 nm: 96.3/114.2 MTr/mm2, 0.14/0.17 um2 (LLMCompass).
TO_6NM_LOGIC, TO_6NM_SRAM = 96.3 / 114.2, 0.14 / 0.17


def fitted_technology(process: str, hbm: str, fit: Fit) -> Technology:
    """The table's constants with the fitted ones in place."""
    found = technology(process, hbm)
    if process == "6nm" and fit.without == "Aldebaran":
        found = _six_from_seven(hbm)
    elif fit.without == "GA100" and process != "6nm":
        found = _photo_of_the_other_die(found)
    changes: dict[str, Any] = {}
    if process in OLD:
        changes = {name: getattr(found, name) * fit.density for name in LOGIC + SRAM}
        changes["other_area"] = HOST_PHY + (found.other_area - HOST_PHY) * fit.density
    if process != "6nm" or fit.without == "Aldebaran":
        changes["core_area"] = changes.get("core_area", found.core_area) * fit.core_area
    if fit.design_margin is not None:
        changes["design_margin"] = fit.design_margin
    return replace(found, **changes)


def _six_from_seven(hbm: str) -> Technology:
    """6 nm by scaling alone, as if no die had been measured in it."""
    seven, six = technology("7nm", hbm), technology("6nm", hbm)
    changes = {name: getattr(seven, name) * TO_6NM_LOGIC for name in LOGIC}
    changes["cache_area"] = seven.cache_area * TO_6NM_SRAM
    changes["other_area"] = HOST_PHY + (seven.other_area - HOST_PHY) * TO_6NM_LOGIC
    return replace(
        six, **changes, hbm_phy_area=seven.hbm_phy_area, link_area_per_bandwidth=seven.link_area_per_bandwidth
    )


def _photo_of_the_other_die(found: Technology) -> Technology:
    """Cache, NoC and other area from the photo of Aldebaran instead of GA100's."""
    seven, six = technology("7nm", "hbm2e"), technology("6nm", "hbm2e")
    return replace(
        found,
        cache_area=found.cache_area * (six.cache_area / TO_6NM_SRAM / seven.cache_area),
        noc_area_per_bandwidth=found.noc_area_per_bandwidth
        * (six.noc_area_per_bandwidth / TO_6NM_LOGIC / seven.noc_area_per_bandwidth),
        other_area=max(found.other_area - seven.other_area, 0.0) + HOST_PHY,
    )


def area_of(die: Die, fit: Fit) -> float:
    """Area of a whole die [m2] with the fitted constants."""
    return float(die_area(die.chip, die_technology(die, fit)))


def die_technology(die: Die, fit: Fit) -> Technology:
    """Constants of a whole die: nothing is spare, since what is spare is counted; graphics memory where it has it."""
    found = fitted_technology(die.chip.process, die.chip.hbm, fit)
    lane = found.vector_lane_area * ((LANE + FP64 * die.fp64) / (LANE + FP64 * Die.fp64))
    found = replace(found, spare_cores=0.0, vector_lane_area=lane)
    if die.name == "GK110":
        return replace(found, hbm_phy_area=GRAPHICS_PHY, hbm_controller_area=GRAPHICS_CONTROLLER)
    return found


@cache
def refit(without: str = "") -> Fit:
    """Least squares of ln(model/published) over the dies, then over design powers of systolic chips, one left out.

    `without` is a die or a chip of the published table; every row of the same die goes with it. The control of a core
    is measured on the photo of GA100, so it is fitted only where GA100 is left out. Aldebaran has constants of its
    own, measured on its photo, so it never enters. Gauss-Newton, ten steps, from the table's values."""
    left = next((die.name for die in dies() if without == die.name or without in die.rows), without)
    used = [die for die in dies() if die.name not in (left, "Aldebaran")]
    density, core = _least_squares(used, left)
    margins = [name for name in DESIGN_POWER if name != without]
    return Fit(density, core, _margin(margins, Fit(density, core, None, left)), left)


def _least_squares(used: list[Die], without: str) -> tuple[float, float]:
    """(ln density, ln core area) by Gauss-Newton with numerical slopes; two unknowns are solved by hand."""

    def residuals(x: float, y: float) -> list[float]:
        fit = Fit(math.exp(x), math.exp(y), None, without)
        return [math.log(area_of(die, fit) / die.area) for die in used]

    x, y, step = 0.0, 0.0, 1e-4
    for _ in range(10):
        here = residuals(x, y)
        a = [(up - now) / step for up, now in zip(residuals(x + step, y), here, strict=True)]
        b = [(up - now) / step for up, now in zip(residuals(x, y + step), here, strict=True)]
        aa, ab = math.fsum(i * i for i in a), math.fsum(i * j for i, j in zip(a, b, strict=True))
        bb = math.fsum(j * j for j in b)
        ar = math.fsum(i * r for i, r in zip(a, here, strict=True))
        br = math.fsum(j * r for j, r in zip(b, here, strict=True))
        if without != "GA100":
            ab, bb, br = 0.0, 1.0, 0.0
        determinant = aa * bb - ab * ab
        x, y = x - (ar * bb - br * ab) / determinant, y - (br * aa - ar * ab) / determinant
    return math.exp(x), math.exp(y)


#: Systolic chips of published design power [W].
DESIGN_POWER: Mapping[str, float] = {"TPUv2": 280.0, "TPUv3": 450.0, "TPUv4i": 175.0, "Gaudi2": 600.0}


def _margin(names: list[str], fit: Fit) -> float:
    """Geometric mean of (design power - static power) / peak dynamic power."""
    logarithms = []
    for name in names:
        device = chip(CHIPS[name])
        low, high = (
            float(tdp(device, replace(fitted_technology(device.process, device.hbm, fit), design_margin=margin)))
            for margin in (1.0, 2.0)
        )
        logarithms.append(math.log(max(DESIGN_POWER[name] - (2.0 * low - high), 1.0) / (high - low)))
    return max(math.exp(math.fsum(logarithms) / len(logarithms)), 1.0)


# Cases -----------------------------------------------------------------------------------------------------------


def predicted(row: str, quantity: str, fit: Fit | None = None) -> float | None:
    """Area [m2] or TDP [W] of a chip of the published table; None: the product has no such chip.

    A chip whose power is the largest measured in production is compared with the sustained power."""
    constants = Fit() if fit is None else fit
    if quantity == "area":
        for die in dies():
            if row in die.rows:
                return area_of(die, constants)
    if row not in CHIPS:
        return None
    device = chip(CHIPS[row])
    found = fitted_technology(device.process, device.hbm, constants)
    if quantity == "area":
        return float(silicon_area(device, found))
    measured = published(CHIPS[row]).tdp_kind == "measured maximum"
    return float((sustained_power if measured else tdp)(device, found))


QUANTITIES = (("area", "die_area_mm2", "die", "m2", 1e-6), ("tdp", "tdp_W", "tdp", "W", 1.0))


def chip_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Die area [m2] and TDP [W] of chips, where the published value was read in a source."""
    for row in table:
        for name, column, word, unit, scale in QUANTITIES:
            case = Case(
                f"{stem}/{name}", f"{row.get('row_id') or row['chip']}: {name}", unit, split=row.get("split") or "",
                inputs=row["chip"], traits={"chip": row["chip"], "process": row["process_node_nm"]},
            )  # fmt: skip
            reason = obstacle(row, name, column, word)
            if reason:
                yield replace(case, skipped=reason)
            else:
                found = predicted(row["chip"], name)
                yield replace(case, measured=float(row[column]) * scale, predicted=found)


def obstacle(row: Row, name: str, column: str, word: str) -> str:
    """Why a field is no target; empty: it is one."""
    if not row[column]:
        return f"{column} is not published"
    verified = row["fields_verified"]
    said = verified.startswith("all") or re.search(rf"\b{word}\b", verified) is not None
    if name == "area" and row["chip"] in BOUNDS:
        return f"{column} is an upper bound: a one-sided test"
    if row["chip"] in EXCLUDED:
        return EXCLUDED[row["chip"]]
    if not said:
        return f"{column} was not read in a source"
    return "" if predicted(row["chip"], name) is not None else "the chip is not in the table of chips"


@dataclass(frozen=True)
class Held:
    """A published value, the model's with all chips in the fit, and predicted by a fit without the chip."""

    chip: str
    quantity: str
    unit: str
    published: float
    model: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error with the chip in the fit."""
        return self.model / self.published - 1.0

    @property
    def left_out(self) -> float:
        """Relative error of the prediction without the chip."""
        return self.predicted / self.published - 1.0


def leave_one_out(table: Iterable[Row]) -> tuple[Held, ...]:
    """Each target of the table, with the model's value and that of a fit that has not seen its die.

    The area of MI210 is the sum of the blocks of its die photo, which the table of chips does not hold."""
    everything = refit()
    found: list[Held] = []
    targets = [
        (row["chip"], name, unit, float(row[column]) * scale)
        for row in table
        for name, column, word, unit, scale in QUANTITIES
        if not obstacle(row, name, column, word)
    ]
    targets += [(row, "area", "m2", die.area) for die in dies() if die.name == "Aldebaran" for row in die.rows]
    for row, name, unit, value in targets:
        plain, apart = predicted(row, name, everything), predicted(row, name, refit(row))
        assert plain is not None and apart is not None, row
        found.append(Held(row, name, unit, value, plain, apart))
    return tuple(found)


def upper_bounds() -> tuple[tuple[str, float, float], ...]:
    """(chip, model [m2], bound [m2]) of dies published as an upper bound."""
    return tuple((row, predicted(row, "area") or 0.0, bound) for row, bound in BOUNDS.items())


#: Blocks of a die photo by the blocks of the model that fill them.
PHOTO_BLOCKS = {
    "SMs / CUs": ("arrays", "vector", "local_sram", "cores"),
    "on-chip interconnect": ("noc",),
    "L2/global buffer": ("shared_sram",),
    "memory PHY": ("hbm_phy",),
    "memory control": ("hbm_control",),
    "off-chip interconnect": ("links",),
    "other": ("other",),
}


def photo_blocks(name: str, fit: Fit | None = None) -> dict[str, float]:
    """Area of each block of a die photo [m2], by the model of the whole die."""
    die = next(die for die in dies() if die.name == name)
    blocks = area_by_block(die.chip, die_technology(die, Fit() if fit is None else fit))
    return {photo: math.fsum(float(blocks[block]) for block in group) for photo, group in PHOTO_BLOCKS.items()}
