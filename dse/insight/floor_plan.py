"""What a chip is made of: area and TDP by block, peaks, memories, links, yield, cost and carbon, as data, no text.

`floor_plan` opens one chip, `chip_comparison` sets two beside each other; no network is needed.  Every number is
that of the formulas in hw_models that a search uses.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dse.inputs.serialize import plain
from hw_models import devices, technology
from hw_models.chip import Chip
from hw_models.memory.noc import shared_sram_supply
from hw_models.physical import cost
from hw_models.physical.area import area_by_block, die_area
from hw_models.physical.dvfs import power_capped_clock
from hw_models.physical.phaze import is_template
from hw_models.physical.power import static_power, sustained_power, tdp_by_block
from hw_models.tables import Row
from hw_models.technology import Technology

__all__ = [
    "Block", "ChipComparison", "ChipPair", "Constants", "Fact", "FloorPlan", "Peak", "chip_comparison", "floor_plan",
]

#: Groups that a block of the die belongs to, for colours and sums.
GROUPS: Mapping[str, str] = {
    "arrays": "compute", "vector": "compute", "cores": "compute", "local_sram": "memory", "shared_sram": "memory",
    "noc": "wires", "hbm_phy": "hbm", "hbm_control": "hbm", "hbm": "hbm", "links": "links", "die_to_die": "links",
    "other": "other",
    "unattributed": "unattributed", "leakage": "static", "idle": "static",
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A part of a whole, in the whole's unit, and its share of it (the shares of a whole add up to 1)."""

    name: str
    value: float
    share: float


@dataclass(frozen=True)
class Peak:
    """Peak of a number format: dense matrix FLOP/s, and bytes that HBM and shared SRAM deliver for each FLOP."""

    precision: str
    flops: float
    hbm_bytes_per_flop: float
    sram_bytes_per_flop: float


@dataclass(frozen=True)
class Fact:
    """One number of a chip with its unit; None where no constant is known."""

    name: str
    value: float | None
    unit: str
    meaning: str


@dataclass(frozen=True)
class Constants:
    """Where constants come from: how many rows of a table by confidence (read, derived, scaled, ...), and sources."""

    table: str
    of: str
    confidence: Mapping[str, int]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class FloorPlan:
    """A chip of scalars opened: see `floor_plan`.

    area    blocks of the logic die, HBM excluded [m2];  power  blocks of the TDP at its hottest precision, HBM
            included [W]
    cost    parts of making a packaged chip [USD], carbon likewise [kg]; empty where its process has no prices
    published   what a vendor says of a chip of `dse list chips`, as it is; else None
    """

    chip: Chip
    technology: Technology
    area: tuple[Block, ...]
    power: tuple[Block, ...]
    peaks: tuple[Peak, ...]
    facts: tuple[Fact, ...]
    cost: tuple[Block, ...]
    carbon: tuple[Block, ...]
    published: devices.Published | None
    constants: tuple[Constants, ...]

    def fact(self, name: str) -> float:
        """A number of the chip by name; NaN where it is not known."""
        found = next((item.value for item in self.facts if item.name == name), None)
        if name not in {item.name for item in self.facts}:
            raise KeyError(f"{name!r}: a floor plan has {', '.join(item.name for item in self.facts)}")
        return math.nan if found is None else found

    @property
    def spare_cores(self) -> float:
        """Cores on the die beyond the enabled ones, for each of them; the template has none."""
        return 0.0 if is_template(self.technology) else float(self.technology.spare_cores or 0.0)

    def to_plain(self) -> dict[str, Any]:
        """The floor plan as JSON-able data in base SI."""
        tables = {item.name: plain(getattr(self, item.name)) for item in fields(self)}
        return tables | {"units": {"area": "m2", "power": "W", "flops": "FLOP/s", "cost": "USD", "carbon": "kg"}}


def floor_plan(chip: Chip, constants: Technology | None = None) -> FloorPlan:
    """What a chip of scalars is made of, with what it costs to make.

    constants   None: the table's rows for the chip's process and memory
    The die is that of the chip as given, with the technology's share of spare cores: a preset has the enabled parts,
    so a die counted whole (`dse validate --set "chips/*"`) is larger where more is switched off than that share."""
    for item in fields(chip):
        if np.size(getattr(chip, item.name)) > 1:
            raise ValueError(f"chip.{item.name}: found a column, allowed: one chip of scalars")
    known = constants or technology.technology(chip.process, chip.hbm)
    market = cost.market_of(chip)
    area, power = _area(chip, known), tdp_by_block(chip, known)
    return FloorPlan(
        chip=chip,
        technology=known,
        area=_blocks(area),
        power=_blocks(power),
        peaks=_peaks(chip),
        facts=tuple(_facts(chip, known, market, area=_sum(area), power=_sum(power))),
        cost=_blocks(cost.chip_cost(chip, known, market=market)) if market else (),
        carbon=_blocks(cost.embodied_carbon(chip, known, market=market)) if market else (),
        published=_published(chip),
        constants=_sources(chip, known, market),
    )


def _area(chip: Chip, known: Technology) -> dict[str, Any]:
    """Blocks of all dies, and what several dies take for links between them."""
    blocks = area_by_block(chip, known)
    return blocks | {"die_to_die": cost.silicon_area(chip, known) - die_area(chip, known)}


def _scalar(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _sum(parts: Mapping[str, Any]) -> float:
    return math.fsum(_scalar(value) for value in parts.values())


def _blocks(parts: Mapping[str, Any]) -> tuple[Block, ...]:
    """Parts with their share of the sum, those that are 0 left out."""
    total = _sum(parts)
    values = {name: _scalar(value) for name, value in parts.items()}
    return tuple(Block(name, value, value / total) for name, value in values.items() if value)


def _peaks(chip: Chip) -> tuple[Peak, ...]:
    """Peak of every number format, fastest first."""
    found = []
    for precision in chip.matmul_rates:
        flops = _scalar(chip.peak_flops(precision))
        moved = _scalar(chip.hbm_bandwidth) / flops, _scalar(shared_sram_supply(chip)) / flops
        found.append(Peak(precision, flops, *moved))
    return tuple(sorted(found, key=lambda item: -item.flops))


def _facts(chip: Chip, known: Technology, market: cost.Market | None, *, area: float, power: float) -> list[Fact]:
    """Everything else worth a line."""
    local = _scalar(chip.cores) * _scalar(chip.local_sram)
    found: list[tuple[str, Any, str, str]] = [
        ("die_area", area, "m2", "logic die, HBM excluded"),
        ("tdp", power, "W", "design power of the package, HBM included, at its hottest precision"),
        ("sustained_power", sustained_power(chip, known), "W", "the most that real work draws"),
        ("static_power", static_power(chip, known), "W", "on and idle"),
        ("power_density", power / area, "W/m2", "TDP over the logic die"),
        *_capped(chip, known),
        ("cores", chip.cores, "", "groups of arrays with one local SRAM"),
        ("macs_per_cycle", chip.macs_per_cycle, "", "multiply-adds of all arrays a cycle, at the base precision"),
        ("clock", chip.clock, "Hz", "arrays and lanes"),
        ("vector_flops", chip.vector_flops, "FLOP/s", "fp32 lanes"),
        ("local_sram", local, "B", "registers and local SRAM of all cores"),
        ("shared_sram", chip.shared_sram, "B", "shared by all cores"),
        ("on_chip_sram", local + _scalar(chip.shared_sram), "B", "local and shared"),
        ("shared_sram_bandwidth", shared_sram_supply(chip), "B/s", "between shared SRAM and cores"),
        ("hbm_stacks", chip.hbm_stacks, "", "stacks of memory"),
        ("hbm_capacity", chip.hbm_capacity, "B", "all stacks"),
        ("hbm_bandwidth", chip.hbm_bandwidth, "B/s", "all stacks"),
        ("links", chip.links, "", "chip-to-chip links"),
        ("link_bandwidth", chip.scale_up_bandwidth, "B/s", "all links, per direction"),
        *_making(chip, known, market),
    ]
    return [Fact(name, None if value is None else _scalar(value), unit, words) for name, value, unit, words in found]


def _capped(chip: Chip, known: Technology) -> list[tuple[str, Any, str, str]]:
    """The power cap of a chip that has one, and the clock that fits it."""
    if not _scalar(chip.power_cap):
        return []
    clock = power_capped_clock(chip, known, chip.power_cap)
    return [
        ("power_cap", chip.power_cap, "W", "most power it may draw"),
        ("capped_clock", clock, "Hz", "clock at which its design power fits the cap"),
    ]


def _making(chip: Chip, known: Technology, market: cost.Market | None) -> list[tuple[str, Any, str, str]]:
    """How many of the dies that a wafer holds work, and what a chip takes to make."""
    if market is None:
        return _named_making((chip.dies, *(None,) * 7))
    one = cost.area_per_die(die_area(chip, known), market=market, dies=chip.dies)
    rim = {"diameter": market.wafer_diameter, "edge_exclusion": market.edge_exclusion, "scribe": market.scribe}
    good = cost.die_yield(one, market.defect_density, clustering=market.clustering)
    on_wafer = cost.dies_per_wafer(one, **rim)
    spent = cost.total(cost.chip_cost(chip, known, market=market))
    emitted = cost.total(cost.embodied_carbon(chip, known, market=market))
    return _named_making((
        chip.dies, one / market.reticle_limit, good, on_wafer, good * on_wafer,
        cost.good_die_cost(one, market=market), spent, emitted,
    ))  # fmt: skip


def _named_making(values: tuple[Any, ...]) -> list[tuple[str, Any, str, str]]:
    names = (
        ("dies", "", "equal dies that share the logic of a package"),
        ("reticle_share", "", "a die over the largest that a scanner exposes; above 1 it cannot be made"),
        ("die_yield", "", "dies without a killing defect"),
        ("dies_per_wafer", "", "whole dies on a wafer"),
        ("good_dies_per_wafer", "", "of them working"),
        ("good_die_cost", "USD", "one working die"),
        ("chip_cost", "USD", "packaged chip: what it costs to make, no design, no margin"),
        ("embodied_carbon", "kg", "CO2 of making it"),
    )
    return [(name, value, unit, meaning) for (name, unit, meaning), value in zip(names, values, strict=True)]


def _published(chip: Chip) -> devices.Published | None:
    """What is published of a preset that nobody changed."""
    if chip.name not in devices.names() or devices.chip(chip.name) != chip:
        return None
    return devices.published(chip.name)


def _sources(chip: Chip, known: Technology, market: cost.Market | None) -> tuple[Constants, ...]:
    found = []
    try:
        rows = technology.constants(chip.process, chip.hbm)
    except ValueError:
        rows = ()
    given = {row["constant"]: float(row["value"]) for row in rows}
    own = [name for name, value in given.items() if _scalar(getattr(known, name)) != value]
    if rows:
        found.append(_origin("hw_models/data/technology.csv", known.name, rows, own))
    if market:
        found.append(_origin("hw_models/data/cost.csv", market.name, cost.constants(chip.process, chip.hbm), []))
    return tuple(found)


def _origin(name: str, of: str, rows: tuple[Row, ...], own: list[str]) -> Constants:
    kept = [row for row in rows if row["constant"] not in own]
    counts = Counter(row["confidence"] for row in kept) + Counter({"changed by hand": len(own)})
    sources = Counter(part for row in kept for part in re.split(r";\s*(?![^()]*\))", row["source"]))
    return Constants(name, of, dict(counts.most_common()), tuple(source for source, _ in sources.most_common()))


# Two chips ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChipPair:
    """A number of both chips; ratio b / a, None where either is not known or a is 0."""

    table: str
    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None


@dataclass(frozen=True)
class ChipComparison:
    """Two floor plans side by side, number by number."""

    a: FloorPlan
    b: FloorPlan
    pairs: tuple[ChipPair, ...]

    def to_plain(self) -> dict[str, Any]:
        """The comparison as JSON-able data in base SI."""
        return {"a": self.a.to_plain(), "b": self.b.to_plain(), "pairs": plain(self.pairs)}

    def table(self, name: str) -> tuple[ChipPair, ...]:
        """The pairs of one table: facts, peaks, area, power, cost or carbon."""
        return tuple(item for item in self.pairs if item.table == name)


def chip_comparison(a: FloorPlan, b: FloorPlan) -> ChipComparison:
    """Two floor plans number by number; a block that one does not have counts 0 there."""
    pairs: list[ChipPair] = []
    for item in {item.name: item for item in (*a.facts, *b.facts)}.values():
        values = [_value(side.facts, item.name) for side in (a, b)]
        pairs.append(_pair("facts", item.name, item.unit, *values))
    peaks = [{peak.precision: peak.flops for peak in side.peaks} for side in (a, b)]
    for name in dict.fromkeys([*peaks[0], *peaks[1]]):
        pairs.append(_pair("peaks", name, "FLOP/s", peaks[0].get(name), peaks[1].get(name)))
    for table, unit in (("area", "m2"), ("power", "W"), ("cost", "USD"), ("carbon", "kg")):
        sides = [{block.name: block.value for block in getattr(side, table)} for side in (a, b)]
        for name in dict.fromkeys([*sides[0], *sides[1]]):
            values = [side.get(name, 0.0) if side else None for side in sides]
            pairs.append(_pair(table, name, unit, *values))
    return ChipComparison(a, b, tuple(pairs))


def _value(facts: tuple[Fact, ...], name: str) -> float | None:
    return next((item.value for item in facts if item.name == name), None)


def _pair(table: str, name: str, unit: str, a: float | None, b: float | None) -> ChipPair:
    return ChipPair(table, name, unit, a, b, b / a if a and b is not None else None)

