"""Chips by name: what was published, and what the model says of them.

The table is data/chips.csv, a row a chip, with its source and what was assumed; adding a chip is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from hw_models.chip import Chip
from hw_models.physical.cost import silicon_area
from hw_models.physical.power import sustained_power, tdp
from hw_models.tables import Row, distinct, number, pairs, table, unknown
from hw_models.technology import technology


@dataclass(frozen=True)
class Published:
    """What a vendor published of a chip; None: not published.

    die_area        [m2]; die_area_kind "published" or "upper bound"; None: "undisclosed", or "not a target" of a model
                    that takes dies of several processes as of one
    tdp             [W]; tdp_kind "design", or "measured maximum" where no design power was given; None: "undisclosed",
                    or "not a target" where it is of more than the model counts (`assumptions` says of what)
    measured_power  largest power measured in production [W]
    peaks           dense FLOP/s by precision
    """

    name: str
    die_area: float | None
    die_area_kind: str
    tdp: float | None
    tdp_kind: str
    measured_power: float | None
    peaks: Mapping[str, float]
    source: str
    assumptions: str


def names() -> tuple[str, ...]:
    """Chips of the table."""
    return distinct("chips", "name")


def _row(name: str) -> Row:
    for row in table("chips"):
        if row["name"] == name:
            return row
    raise unknown("chip", name, names())


def chip(name: str) -> Chip:
    """The chip of that name."""
    row = {heading.split(" ")[0]: text for heading, text in _row(name).items()}
    values: dict[str, Any] = {"matmul_rates": pairs(row["matmul_rates"])}
    for item in fields(Chip):
        if item.name in ("name", "compute", "process", "hbm", "dataflow"):
            values[item.name] = row[item.name]
        elif item.name in row and item.name != "matmul_rates":
            values[item.name] = number(row[item.name])
    return Chip(**values)


def _optional(text: str) -> float | None:
    return float(text) if text else None


def published(name: str) -> Published:
    """Published area, power and peaks of a chip, with their source."""
    row = _row(name)
    return Published(
        name=name,
        die_area=_optional(row["published_die_area [m2]"]),
        die_area_kind=row["die_area_kind"],
        tdp=_optional(row["published_tdp [W]"]),
        tdp_kind=row["tdp_kind"],
        measured_power=_optional(row["measured_max_power [W]"]),
        peaks=MappingProxyType(pairs(row["published_peaks [FLOP/s]"])),
        source=row["source"],
        assumptions=row["assumptions"],
    )


@dataclass(frozen=True)
class Comparison:
    """A number of the model beside the published one; error is model/published - 1, None without a published one."""

    chip: str
    quantity: str
    unit: str
    model: float
    published: float | None
    kind: str

    @property
    def error(self) -> float | None:
        """Relative error of the model."""
        return None if self.published is None else self.model / self.published - 1.0


def comparisons(name: str) -> tuple[Comparison, ...]:
    """Area, TDP and peaks of one chip, model beside published; power measured in production beside the sustained."""
    device, known = chip(name), published(name)
    constants = technology(device.process, device.hbm)
    power, sustained = float(tdp(device, constants)), float(sustained_power(device, constants))
    reference = sustained if known.tdp_kind == "measured maximum" else power
    rows = [
        Comparison(name, "die area", "m2", float(silicon_area(device, constants)), known.die_area, known.die_area_kind),
        Comparison(name, "TDP", "W", reference, known.tdp, known.tdp_kind),
    ]
    if known.measured_power is not None and known.tdp_kind == "design":
        rows.append(Comparison(name, "TDP", "W", sustained, known.measured_power, "measured maximum"))
    for precision in device.matmul_rates:
        peak = float(device.peak_flops(precision))
        rows.append(Comparison(name, f"peak {precision}", "FLOP/s", peak, known.peaks.get(precision), "dense"))
    return tuple(rows)


#: Headings of `table_rows`, with units.
HEADINGS = ("chip", "process", "quantity", "model", "published", "error [%]", "kind")

#: How a person reads the base units: factor and unit.
_SHOWN = {"m2": (1e6, "mm2"), "W": (1.0, "W"), "FLOP/s": (1e-12, "TFLOP/s")}


def table_rows() -> list[dict[str, str]]:
    """The comparison of every chip as text for people: mm2, W, TFLOP/s; what is not known reads n/a."""
    shown = []
    for name in names():
        process = chip(name).process
        for item in comparisons(name):
            factor, unit = _SHOWN[item.unit]
            known = "n/a" if item.published is None else f"{item.published * factor:,.4g}"
            error = "n/a" if item.error is None else f"{item.error * 100:+.1f}"
            cells = (name, process, f"{item.quantity} [{unit}]", f"{item.model * factor:,.4g}", known, error, item.kind)
            shown.append(dict(zip(HEADINGS, cells, strict=True)))
    return shown
