"""A chip, or two side by side, as text: what `dse explain --chip X` and `dse compare X Y` print without a network.

Texts only: the numbers come from dse.insight.floor_plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from dse.base.units import format_quantity
from dse.insight.floor_plan import Block, ChipComparison, ChipPair, FloorPlan
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import in_bytes, input_text, join, percent, section
from hw_models import devices
from hw_models.chip import DATAFLOW, NOC, Chip

__all__ = [
    "BLOCK_WORDS", "chip_comparison_text", "chip_name", "counted", "floor_plan_text", "in_binary", "short_number",
]  # fmt: skip

#: Words for blocks of area and power, parts of cost and carbon.
BLOCK_WORDS: Mapping[str, str] = {
    "arrays": "matrix arrays",
    "vector": "vector lanes",
    "local_sram": "registers, local SRAM",
    "shared_sram": "shared SRAM",
    "cores": "control of cores",
    "noc": "network on chip",
    "hbm_phy": "HBM PHYs",
    "hbm_control": "HBM controllers",
    "hbm": "HBM",
    "links": "chip-to-chip links",
    "die_to_die": "links between dies",
    "other": "host interface, clocks, test",
    "unattributed": "wires, spares, margins",
    "leakage": "leakage",
    "idle": "clock root, refresh, host",
    "dies": "good logic dies",
    "memory": "HBM stacks",
    "interposer": "interposer",
    "assembly": "substrate and assembly",
    "test": "test",
    "lost_in_package": "lost in assembly",
    "package": "package",
}

#: Facts that are bytes in decimal units, and those that read as a share.
_BYTES = ("hbm_capacity",)
_SHARES = ("reticle_share", "die_yield")
_WHOLE = ("dies_per_wafer", "good_dies_per_wafer")


def chip_name(plan: FloorPlan) -> str:
    """The name, process and memory of a chip."""
    return f"{plan.chip.name} ({plan.chip.process}, {plan.chip.hbm})"


def floor_plan_text(plan: FloorPlan) -> str:
    """The floor plan as an architect would print it: what it is, then where area, watts and dollars go."""
    return join(
        [
            wrapped(_head(plan)),
            _changes(plan),
            section(
                "Area of the logic die (HBM excluded)",
                _bars(plan.area, "m2", total=plan.fact("die_area")),
                wrapped(_which_die(plan), indent=2),
            ),
            section(
                "Design power (TDP: package, HBM included, at its hottest precision)",
                _bars(plan.power, "W", total=plan.fact("tdp")),
                _cap_words(plan),
                f"  sustained at most {_shown(plan, 'sustained_power')}, on and idle {_shown(plan, 'static_power')}, "
                f"{plan.fact('power_density') / 1e6:.2f} W/mm2 of die",
            ),
            _peak_section(plan),
            _memory_section(plan),
            _making_section(plan),
            _published_section(plan),
            _source_section(plan),
        ]
    )


def _head(plan: FloorPlan) -> str:
    chip = plan.chip
    kind = "tensor cores" if chip.compute == "tensor_core" else f"systolic arrays ({_dataflow(chip)})"
    return (
        f"{chip_name(plan)}: {counted(plan.fact('cores'), 'core')}, {int(chip.array_count):,} {kind} of "
        f"{int(chip.array_rows)} x {int(chip.array_columns)} multiply-adds, {int(chip.vector_lanes):,} vector lanes, "
        f"{_shown(plan, 'clock')}. Die {_shown(plan, 'die_area')}, TDP {_shown(plan, 'tdp')}"
        f"{_cap_of(plan)}, "
        f"{format_quantity(plan.peaks[0].flops, 'FLOP/s')} {plan.peaks[0].precision}, "
        f"{in_bytes(plan.fact('hbm_capacity'))} at {_shown(plan, 'hbm_bandwidth')}."
    )


def counted(number: float, what: str) -> str:
    """A number of things: 1 core, 132 cores."""
    return f"{number:,.4g} {what}{'' if number == 1 else 's'}"


def _dataflow(chip: Any) -> str:
    name = DATAFLOW[int(chip.dataflow)]
    kept = {"os": "output", "ws": "weight", "is": "input"}
    return f"{kept[name]} stationary" if name in kept else f"{name} dataflow"


def _changes(plan: FloorPlan) -> str | None:
    """What was changed of a preset."""
    if plan.published is not None or plan.chip.name not in devices.names():
        return None
    known = devices.chip(plan.chip.name)
    changed = [
        f"{item.name} {_input(item, plan.chip)} instead of {_input(item, known)}"
        for item in fields(known)
        if getattr(plan.chip, item.name) != getattr(known, item.name)
    ]
    return wrapped(f"changed: {'; '.join(changed)}")


def _input(item: Any, chip: Chip) -> str:
    """A field of a chip as people write it."""
    value, names = getattr(chip, item.name), item.metadata.get("names")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} x{rate:g}" for key, rate in value.items())
    if item.name == "power_cap" and not value:
        return "none"
    return str(names[int(value)]) if names else input_text(value, item.metadata.get("unit", ""))


def _cap_of(plan: FloorPlan) -> str:
    """The cap, where it is below the design power."""
    return f" capped at {_shown(plan, 'power_cap')}" if 0.0 < float(plan.chip.power_cap) < plan.fact("tdp") else ""


def _cap_words(plan: FloorPlan) -> str | None:
    """At which clock the chip keeps its cap."""
    if not float(plan.chip.power_cap):
        return None
    clock = format_quantity(plan.fact("capped_clock"), "Hz") if plan.fact("capped_clock") else "no clock"
    firmware = plan.chip.compute == "tensor_core" and 0.0 < plan.fact("capped_clock") < float(plan.chip.clock)
    follows = "; work that draws less runs faster" if firmware else ""
    return f"  capped at {_shown(plan, 'power_cap')}: the design power fits at {clock}{follows}"


def _which_die(plan: FloorPlan) -> str:
    spare = plan.spare_cores
    if not spare:
        return "The die has the parts that the chip is described with, none spare."
    return (
        f"The die has the parts that are enabled and {percent(spare)} more cores as spares; "
        '`dse validate --set "chips/*"` judges whole dies, with every part that the product sold has switched off.'
    )


def _bars(parts: Sequence[Block], unit: str, *, total: float) -> str:
    rows = [
        [BLOCK_WORDS[part.name], short_number(part.value, unit), percent(part.share), "#" * round(40 * part.share)]
        for part in parts
    ]
    rows.append(["total", short_number(total, unit), "100.0%", ""])
    return columns_text(["part" if unit in ("USD", "kg") else "block", _HEADING[unit], "share", ""], rows, indent=2)


#: Columns of one unit, so that blocks compare at a glance: heading, factor, digits behind the point.
_COLUMN = {"m2": ("mm2", 1e6, 1), "W": ("W", 1.0, 1), "USD": ("USD", 1.0, 2), "kg": ("kg CO2", 1.0, 2)}
_HEADING = {unit: name for unit, (name, _, _) in _COLUMN.items()}


def short_number(value: float, unit: str) -> str:
    """A value in the unit of its column: mm2, W, USD, kg."""
    _, factor, digits = _COLUMN[unit]
    return f"{value * factor:,.{digits}f}"


def _peak_section(plan: FloorPlan) -> str:
    rows = [
        [peak.precision, format_quantity(peak.flops, "FLOP/s"), f"{peak.hbm_bytes_per_flop:.3g}",
         f"{1.0 / peak.hbm_bytes_per_flop:,.0f}", f"{peak.sram_bytes_per_flop:.3g}"]
        for peak in plan.peaks
    ]  # fmt: skip
    return section(
        "Peaks (dense)",
        columns_text(["precision", "matrix peak", "HBM B/FLOP", "FLOP/B of HBM", "SRAM B/FLOP"], rows, indent=2),
        f"  vector lanes {_shown(plan, 'vector_flops')} fp32",
    )


def _memory_section(plan: FloorPlan) -> str:
    chip = plan.chip
    stacks, links = int(chip.hbm_stacks), int(chip.links)
    rows = [
        ["registers, local SRAM", in_binary(plan.fact("local_sram")), "",
         f"{counted(plan.fact('cores'), 'core')} x {in_binary(float(chip.local_sram))}"],
        ["shared SRAM", in_binary(plan.fact("shared_sram")), _shown(plan, "shared_sram_bandwidth"), _network(chip)],
        ["HBM", in_bytes(plan.fact("hbm_capacity")), _shown(plan, "hbm_bandwidth"),
         f"{counted(stacks, 'stack')} of {chip.hbm}: {in_bytes(float(chip.hbm_stack_capacity))}, "
         f"{format_quantity(float(chip.hbm_stack_bandwidth), 'B/s')} each"],
        ["chip-to-chip links", "", _shown(plan, "link_bandwidth"),
         f"{links} x {format_quantity(float(chip.link_bandwidth), 'B/s')} per direction"],
    ]  # fmt: skip
    return section("Memories and links", columns_text(["what", "capacity", "bandwidth", "of"], rows, indent=2))


def _network(chip: Any) -> str:
    """How shared SRAM reaches the cores."""
    banks, noc = int(chip.sram_banks), NOC[int(chip.noc)]
    words = [f"{banks} banks"] if banks else []
    words += [noc] if noc != "none" else []
    return ", ".join(words) or "all cores"


def in_binary(value: float) -> str:
    """Bytes of an SRAM in binary units."""
    for scale, unit in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if value >= scale:
            return f"{value / scale:,.4g} {unit}"
    return f"{value:g} B"


def _making_section(plan: FloorPlan) -> str:
    if not plan.cost:
        return section("Making it", f"  n/a: no prices of the process {plan.chip.process}")
    over = plan.fact("reticle_share")
    reticle = f"{percent(over)} of the reticle" + (": it cannot be made" if over > 1 else "")
    dies = int(plan.fact("dies"))
    several = f"{dies} dies, each " if dies > 1 else ""
    yields = (
        f"{several}{reticle}; {plan.fact('dies_per_wafer'):,.0f} dies on a wafer, {percent(plan.fact('die_yield'))} "
        f"of them work: {plan.fact('good_dies_per_wafer'):,.1f} at "
        f"{format_quantity(plan.fact('good_die_cost'), 'USD')} each. "
        "Cores that could be switched off for yield are not counted as saved."
    )
    cost, carbon = plan.fact("chip_cost"), plan.fact("embodied_carbon")
    return join(
        [
            section("Cost of making one (packaged; no design, masks, margin)", _bars(plan.cost, "USD", total=cost)),
            wrapped(yields, indent=2),
            section("Embodied carbon of one", _bars(plan.carbon, "kg", total=carbon)),
        ]
    )


def _published_section(plan: FloorPlan) -> str | None:
    """What the vendor says, beside the model: the rows of `dse list chips`."""
    if plan.published is None:
        return None
    rows = []
    for item in devices.comparisons(plan.chip.name):
        known = "n/a" if item.published is None else format_quantity(item.published, item.unit)
        error = "n/a" if item.error is None else f"{item.error * 100:+.1f}%"
        rows.append([item.quantity, format_quantity(item.model, item.unit), known, error, item.kind])
    headings = ["", "model", "published", "error", "kind"]
    return section("Beside what is published", columns_text(headings, rows, indent=2))


def _source_section(plan: FloorPlan) -> str:
    lines = []
    for item in plan.constants:
        what = "prices and carbon" if item.table.endswith("cost.csv") else "area and energy"
        counts = ", ".join(f"{count} {name}" for name, count in item.confidence.items())
        first = [source for source in item.sources if source][:4]
        more = len(item.sources) - len(first)
        tail = f"; and {more} more" if more > 0 else ""
        text = f"{what} of {item.of}: {counts}, from {'; '.join(first)}{tail} ({item.table})"
        lines.append(wrapped(text, indent=4, first="  "))
    if not lines:
        lines = [f"  {plan.technology.name}: given with the design"]
    return section("Where the constants come from", *lines)


def _shown(plan: FloorPlan, name: str) -> str:
    item = next(fact for fact in plan.facts if fact.name == name)
    return fact_text(item.name, item.value, item.unit)


def fact_text(name: str, value: float | None, unit: str) -> str:
    """A fact as people read it."""
    if value is None:
        return "n/a"
    if name in _SHARES:
        return percent(value)
    if name in _WHOLE:
        return f"{value:,.1f}".removesuffix(".0")
    if unit == "B":
        return in_bytes(value) if name in _BYTES else in_binary(value)
    if unit == "W/m2":
        return f"{value / 1e6:.3g} W/mm2"
    return format_quantity(value, unit)


# Two chips ---------------------------------------------------------------------------------------------------------


def chip_comparison_text(found: ChipComparison) -> str:
    """Two floor plans side by side, with the ratio of each number."""
    names = [wrapped(_head(side), indent=3, first=f"{mark}: ") for mark, side in (("A", found.a), ("B", found.b))]
    unit = {"area": "m2", "power": "W", "cost": "USD", "carbon": "kg"}
    titles = {
        "area": "Area of the logic die by block", "power": "TDP by block", "cost": "Cost of making one",
        "carbon": "Embodied carbon of one",
    }  # fmt: skip
    parts: list[str | None] = [
        *names,
        section("Peaks (dense)", _pairs(found.table("peaks"), lambda item: item.name)),
        section("The chip", _pairs(found.table("facts"), lambda item: item.name.replace("_", " "))),
    ]
    for table, title in titles.items():
        pairs = found.table(table)
        if pairs:
            parts.append(section(f"{title} [{_HEADING[unit[table]]}]", _shares(found, table, unit[table])))
    spares = {side.spare_cores for side in (found.a, found.b)}
    note = f"Dies have the parts that are enabled and {' or '.join(percent(s) for s in sorted(spares))} spare cores."
    return join([*parts, "", wrapped(note)])


def _pairs(pairs: Sequence[ChipPair], name: Any) -> str:
    rows = [
        [name(item), fact_text(item.name, item.a, item.unit), fact_text(item.name, item.b, item.unit), _ratio(item)]
        for item in pairs
    ]
    return columns_text(["", "A", "B", "B/A"], rows, indent=2)


def _ratio(item: ChipPair) -> str:
    return "-" if item.ratio is None else f"{item.ratio:.3g}"


def _shares(found: ChipComparison, table: str, unit: str) -> str:
    """Parts of both sides in one unit, each with its share of its own whole."""
    pairs = found.table(table)
    wholes = [sum(block.value for block in getattr(side, table)) for side in (found.a, found.b)]
    rows = []
    for item in pairs:
        cells = []
        for value, whole in zip((item.a, item.b), wholes, strict=True):
            cells += ["n/a", "n/a"] if value is None else [short_number(value, unit), percent(value / whole)]
        rows.append([BLOCK_WORDS[item.name], *cells, _ratio(item)])
    known = [short_number(whole, unit) if whole else "n/a" for whole in wholes]
    ratio = f"{wholes[1] / wholes[0]:.3g}" if all(wholes) else "-"
    rows.append(["total", known[0], "", known[1], "", ratio])
    return columns_text(["block", "A", "of A", "B", "of B", "B/A"], rows, indent=2)
