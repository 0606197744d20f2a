"""Predicted against measured, and residuals by size, degree, device and stack, as named arrays.

They are drawn in `dse.present.figures.validation` and written by `dse.record.validation`; nothing is predicted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.evidence.validation.scores import STRETCH, Compared

__all__ = ["Comparison", "Panel", "Residuals", "comparisons", "residual_figures"]

Floats = NDArray[np.float64]

#: Traits of a run that a residual is drawn over, and how an axis names them.
RUN_TRAITS: Mapping[str, str] = {
    "parameters": "parameters", "hidden": "hidden size", "sequence": "sequence [token]",
    "global_batch": "global batch [sample]", "micro_batch": "micro-batch [sample]", "devices": "devices",
    "tensor": "tensor degree", "pipeline": "pipeline degree", "data": "data degree", "context": "context degree",
    "expert": "expert degree", "zero_stage": "ZeRO stage", "recompute": "recompute", "device": "device",
    "stack": "stack",
}  # fmt: skip
#: Most sets with a colour of their own in one figure, and most values of a trait in words.
MOST_SETS, MOST_WORDS = 14, 14
OTHERS = "other sets"
#: Errors below this [%] depend on nothing but the digits that were printed.
EXACT = 0.05
#: Size and name of the unit an axis shows; times take the largest prefix under ten times their median.
UNITS: Mapping[str, tuple[float, str]] = {"m2": (1e-6, "mm²"), "B": (2.0**30, "GiB")}
TIMES = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Predicted against measured of one family of sets, in `unit`.

    sets   name, rows, mean absolute error [%], measured (N,), predicted (N,)
    """

    title: str
    subtitle: str
    unit: str
    sets: tuple[tuple[str, int, float, Floats, Floats], ...]


@dataclass(frozen=True, eq=False)
class Panel:
    """Errors [%] over one trait.

    places   (N,) numbers, or the index in `words` where the trait has no numbers
    sets     (N,) index of the row's set in the figure's names
    """

    name: str
    places: Floats
    errors: Floats
    sets: NDArray[np.int64]
    words: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Residuals:
    """Errors of one family of sets over every trait that varies in it; `names` in the order of colours."""

    title: str
    subtitle: str
    names: tuple[str, ...]
    panels: tuple[Panel, ...]

# What is shown ------------------------------------------------------------------------------------------------------


def families(rows: Iterable[Compared]) -> dict[str, list[Compared]]:
    """Rows by figure: training runs together, those without targets apart, other tables each by unit."""
    found: dict[str, list[Compared]] = {}
    for row in rows:
        stem = row.set.split("/")[0]
        if "stack" in row.traits and "tensor" in row.traits:
            name = "training runs"
        else:
            name = {"chips": {"m2": "die area of chips", "W": "TDP of chips"}.get(row.unit, stem)}.get(stem, stem)
        found.setdefault(name.replace("_", " ") + (STRETCH if row.set.endswith(STRETCH) else ""), []).append(row)
    return found


def _names(rows: Sequence[Compared]) -> list[str]:
    """Sets of a figure, largest first; what goes beyond the colours is one."""
    counts = Counter(row.set for row in rows)
    names = [name for name, _ in counts.most_common()]
    return names if len(names) <= MOST_SETS else [*names[: MOST_SETS - 1], OTHERS]


def _short(name: str) -> str:
    return name.split("/", 1)[-1].removesuffix(STRETCH)


def _summary(rows: Sequence[Compared]) -> str:
    errors = np.abs([row.error_percent for row in rows])
    within = float(np.mean(errors <= 10.0))
    count = f"{len(rows):,} row{'s' if len(rows) > 1 else ''}"
    return f"{count}; error: median {np.median(errors):.1f}%, mean {errors.mean():.1f}%; {within:.0%} within ±10%"


def comparisons(rows: Iterable[Compared]) -> dict[str, Comparison]:
    """A scatter a family: what is measured along, what is predicted up."""
    found = {}
    for family, members in families(rows).items():
        size, unit = _unit(members)
        names = _names(members)
        groups = []
        for name in names:
            mine = [row for row in members if row.set == name or (name == OTHERS and row.set not in names)]
            error = float(np.mean([abs(row.error_percent) for row in mine]))
            measured, predicted = (np.array([getattr(row, what) / size for row in mine]) for what in MEASURED)
            groups.append((_short(name), len(mine), error, measured, predicted))
        found[family] = Comparison(f"{family}: predicted against measured", _summary(members), unit, tuple(groups))
    return found


MEASURED = ("measured", "predicted")


def _unit(rows: Sequence[Compared]) -> tuple[float, str]:
    unit = rows[0].unit
    if unit != "s":
        return UNITS.get(unit, (1.0, unit))
    middle = float(np.median([row.measured for row in rows]))
    return next((step for step in reversed(TIMES) if 10.0 * middle >= step[0]), TIMES[0])


def residual_figures(rows: Iterable[Compared]) -> dict[str, Residuals]:
    """Errors of every family over each trait that has more than one value; none of a family without errors."""
    found = {}
    for family, members in families(rows).items():
        if max(abs(row.error_percent) for row in members) < EXACT:
            continue
        names = _names(members)
        places = {name: index for index, name in enumerate(names)}
        sets = np.array([places.get(row.set, len(names) - 1) for row in members])
        wanted = RUN_TRAITS if family.startswith("training runs") else _traits(members)
        panels = []
        for trait, label in wanted.items():
            values = [str(row.traits.get(trait, "")) for row in members]
            if 1 < len(set(values)):
                panels.append(_panel(label, values, np.array([row.error_percent for row in members]), sets))
        if panels:
            title = f"{family}: what the errors depend on"
            shown = tuple(_short(name) for name in names)
            found[family] = Residuals(title, _summary(members), shown, tuple(panels))
    return found


def _traits(rows: Sequence[Compared]) -> dict[str, str]:
    names = dict.fromkeys(name for row in rows for name in row.traits)
    return {name: name.replace("_", " ").replace("payload bytes", "payload [B]") for name in names}


def _panel(name: str, values: Sequence[str], errors: Floats, sets: NDArray[np.int64]) -> Panel:
    """Numbers where all known values are positive numbers, else words; rows without the trait are left out."""
    known = np.array([bool(value) for value in values])
    texts = [value for value in values if value]
    numbers = _numbers(texts)
    if numbers is not None:
        return Panel(name, numbers, errors[known], sets[known])
    order = [word for word, _ in Counter(texts).most_common()]
    if all(word.isdigit() for word in order):
        order.sort(key=int)
    if len(order) > MOST_WORDS:
        order = [*order[: MOST_WORDS - 1], "others"]
    places = np.array([order.index(text) if text in order else len(order) - 1 for text in texts], dtype=float)
    return Panel(name, places, errors[known], sets[known], tuple(order))


def _numbers(texts: Sequence[str]) -> Floats | None:
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return numbers if len(numbers) and bool(np.all(numbers > 0)) else None
