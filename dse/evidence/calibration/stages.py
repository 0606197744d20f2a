"""Fits the constants of devices to measured kernels and collectives, before any training step is looked at.

Same rules as for steps (docs/calibration.md): rows of the split "calibration" only, priors and ranges of the tables of
stacks, robust least squares of `dse.evidence.calibration.fit`, only constants that the rows identify.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dse.base.errors import ConfigError, Problem
from dse.evidence.calibration.fit import DIFFERENCE, GOOD_ERROR, Constraint, fit_residuals
from dse.evidence.calibration.priors import Fitted, Floats, Key, Prior
from dse.evidence.measured.collectives import COLLECTIVE_STACK, measurement, predicted_time
from dse.evidence.measured.kernels import (
    BEST_SHAPE,
    KERNEL_STACKS,
    is_timed_on_the_device,
    kernel_chip,
    kernel_seconds,
    measured_seconds,
)
from dse.evidence.measured.runs import Row, Skip
from dse.evidence.measured.tables import kind_of, read_table
from hw_models.chip import Chip
from hw_models.devices import chip, names
from hw_models.stack import Stack
from hw_models.stacks import GENERIC, Constants, constants, stack

__all__ = [
    "FIELDS", "SOURCE", "PartError", "Point", "fit_parts", "is_of_parts", "is_table_of", "part_errors",
    "part_rows", "read_parts",
]  # fmt: skip

#: Constants that each kind of point tells, in the order of the fits.  Bandwidths are what long messages sustain; with
#: them held, short ones tell what a message costs before its bytes.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("matmul_efficiency", "memory_efficiency", "kernel_launch"),
    "long collectives": ("link_efficiency", "switch_efficiency", "network_efficiency"),
    "short collectives": ("collective_launch", "low_latency_message"),
}
#: Time of a long collective [s]: launches and handshakes, tens of microseconds, are a few percent of it.
#: That the two are fitted apart was chosen with validation rows in view (one fit of both missed H200's by 16 %).
LONG = 1e-3
SOURCE = "dse calibrate: "
#: What chips have in common that share constants: one die at one clock, with the same links.  The H800 has fewer links
#: than the H100; its measured products are fp8 with a scale for each block, whose sums leave the matrix units.
#: Links were added to the rule with validation rows in view (H800's products made H100's 17 % too slow).
SAME = (
    "compute", "process", "array_count", "array_rows", "array_columns", "arrays_per_core", "vector_lanes", "clock",
    "links", "link_bandwidth",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One measured kernel or collective.

    table      "kernels", "attention" or "collectives"
    kind       one of `FIELDS`; "" for attention, which has constants of its libraries and is not fitted
    stack      the stack whose constants apply
    fields     constants that it may tell
    seconds    its predicted time [s] with the constants of a stack
    """

    table: str
    kind: str
    row_id: str
    chip: Chip
    stack: str
    split: str
    measured: float
    fields: tuple[str, ...]
    seconds: Callable[[Stack], Any]


@dataclass(frozen=True)
class PartError:
    """Errors of a device's kernels, attention or collectives of one split [percent], before and after the fit."""

    table: str
    device: str
    split: str
    n: int
    before_median: float
    median: float
    mape: float


def read_parts(folder: str | Path) -> list[Point]:
    """Every point of the tables of kernels and collectives in a folder; rows that are not priced are left out."""
    found: list[Point] = []
    problems: list[Problem] = []
    for path in sorted(Path(folder).glob("*.csv")):
        if is_table_of(path, "kernels") or is_table_of(path, "collectives"):
            kind, rows, faults = read_table(path)
            problems += faults
            read = kernel_point if kind is not None and kind.name == "kernels" else collective_point
            found += [point for row in rows if not problems and (point := _point(read, row))]
    if problems:
        raise ConfigError(problems)
    return found


def is_table_of(path: Path, kind: str) -> bool:
    """Whether the first line of a file has the headings of a kind of table."""
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            found = kind_of(heading.strip() for heading in next(csv.reader(lines), []))
    except (OSError, csv.Error):
        return False
    return found is not None and found.name == kind


def _point(read: Callable[[Row], Point], row: Row) -> Point | None:
    try:
        point = read(row)
        point.seconds(stack(point.stack, point.chip.name, calibrated=False))
    except (Skip, ValueError, KeyError, ZeroDivisionError):
        return None  # `dse validate` says why
    return point


def kernel_point(row: Row) -> Point:
    """A kernel; a device's best shape counts as the product that it is, at the size that was found."""
    part, measured = kernel_chip(row), measured_seconds(row)
    if not measured:
        raise Skip("no measured time")
    table, tells = ("attention", "") if row["kernel"] == "attention" else ("kernels", "kernels")
    priced = {**row, "kernel": "GEMM"} if row["kernel"].startswith(BEST_SHAPE) else row
    told = [field for field in FIELDS["kernels"] if field != "kernel_launch" or is_timed_on_the_device(row)]
    return Point(
        table, tells, row.get("row_id") or "", part, KERNEL_STACKS[part.compute], row.get("split") or "", measured,
        tuple(told), partial(kernel_seconds, priced),
    )  # fmt: skip


def collective_point(row: Row) -> Point:
    """A collective that was measured, not a constant of a link."""
    if row["kind"] and row["kind"] != "measured":
        raise Skip("a constant")
    found = measurement(row)
    tells = "long collectives" if found.time >= LONG else "short collectives"
    return Point(
        "collectives", tells, row.get("row_id") or "", found.chip, COLLECTIVE_STACK, row.get("split") or "", found.time,
        FIELDS[tells], partial(predicted_time, found),
    )  # fmt: skip


# Which chips share constants ---------------------------------------------------------------------------------------


def same(part: Chip) -> tuple[object, ...]:
    """Equal for chips that share constants."""
    return tuple(getattr(part, field) for field in SAME)


def owners(points: Iterable[Point]) -> dict[str, str]:
    """The chip whose constants those of each chip with points are: the first by name of its die."""
    first: dict[tuple[object, ...], str] = {}
    chips = {point.chip.name: point.chip for point in points}
    return {name: first.setdefault(same(part), name) for name, part in sorted(chips.items())}


# Fit ---------------------------------------------------------------------------------------------------------------


class PartsProblem:
    """Residuals of measured parts as a function of free constants of devices."""

    def __init__(self, points: Sequence[Point], known: Constants) -> None:
        self.points = points
        owner = owners(points)
        self.owners = [owner[point.chip.name] for point in points]
        self.stacks = [
            stack(point.stack, name, calibrated=known) for point, name in zip(points, self.owners, strict=True)
        ]
        self.measured = np.array([point.measured for point in points])
        self.weights = np.ones(len(points))

    def around(self, unknown: Constraint, scaled: Floats) -> tuple[Floats, Floats]:
        """log(predicted / measured) in units of `GOOD_ERROR`, (points,), and its derivatives, (points, constants).

        One call a point prices it at the constants and with each of them moved.
        """
        step = np.where(scaled + DIFFERENCE <= 1.0, DIFFERENCE, -DIFFERENCE)
        values, moved = unknown.values(scaled), unknown.values(scaled + step)
        logs, slopes = np.zeros(len(self.points)), np.zeros((len(self.points), scaled.size))
        for number, (point, owner, base) in enumerate(zip(self.points, self.owners, self.stacks, strict=True)):
            keys = [("device", owner, field) for field in point.fields]
            free = {key[2]: unknown.at[key] for key in keys if key in unknown.at}
            changes: dict[str, Any] = {key[2]: unknown.held[key] for key in keys if key in unknown.held}
            changes |= {field: np.full((len(free) + 1, 1), values[at]) for field, at in free.items()}
            for row, (field, at) in enumerate(free.items(), start=1):
                changes[field][row] = moved[at]
            found = np.broadcast_to(np.log(point.seconds(replace(base, **changes))), (len(free) + 1, 1))[:, 0]
            logs[number] = found[0]
            slopes[number, list(free.values())] = (found[1:] - found[0]) / step[list(free.values())]
        return (logs - np.log(self.measured)) / GOOD_ERROR, slopes / GOOD_ERROR


def part_priors(points: Iterable[Point], kind: str, known: Constants) -> dict[Key, Prior]:
    """Constants of the devices of points of a kind and of their `generic` parents, with what is known of them."""
    found: dict[Key, Prior] = {}
    points = list(points)
    owner = owners(points)
    for name, of in sorted({(owner[point.chip.name], point.stack) for point in points}):
        for row in constants(of, name, calibrated=known):
            key, parent = ("device", name, row["field"]), ("device", GENERIC, row["field"])
            if row["field"] not in FIELDS[kind] or float(row["low"]) >= float(row["high"]):
                continue
            shared = row.get("stack", row.get("name")) == GENERIC
            value, low, high = (float(row[column]) for column in ("value", "low", "high"))
            found[key] = Prior(value, low, high, row["unit"], parent if shared else None)
            if shared:
                found.setdefault(parent, replace(found[key], parent=None))
    return dict(sorted(found.items()))


def fit_parts(
    points: Sequence[Point], splits: Sequence[str], known: Constants, *, device: str = "",
    start: Mapping[Key, float] | None = None, say: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:  # fmt: skip
    """Constants of devices fitted to their kernels and collectives of some splits; others stay as `known` has them.

    device   a chip: only points of its die, and generic devices stay as they are
    start    see `dse.evidence.calibration.fit.fit_residuals`
    """
    made: list[Fitted] = []
    if device:  # what these points told before is no prior
        die = {name for name in names() if same(chip(name)) == same(chip(device))}
        known = Constants(tuple(row for row in known.rows if row["name"] not in die or not is_of_parts(row)))
    for kind in FIELDS:
        own = [point for point in points if point.kind == kind and point.split in splits]
        if device:
            own = [point for point in own if same(point.chip) == same(chip(device))]
        if not own:
            continue
        wanted = part_priors(own, kind, known)
        if device:
            wanted = {key: replace(prior, parent=None) for key, prior in wanted.items() if key[1] != GENERIC}
        named = {key for key in wanted if key[1] != GENERIC}
        found = fit_residuals(PartsProblem(own, _with(known, made)), wanted, named, start=start, say=say)
        made += found
    return made


def _with(known: Constants, made: Sequence[Fitted]) -> Constants:
    """What is known, and what earlier fits identified."""
    rows = [
        {"scope": item.key[0], "name": item.key[1], "field": item.key[2], "value": repr(item.value), "source": ""}
        for item in made if item.identified
    ]  # fmt: skip
    return Constants((*known.rows, *rows), known.source)


def part_rows(
    made: Sequence[Fitted], points: Sequence[Point], splits: Sequence[str],
    write: Callable[[Fitted, str, str], dict[str, str]],
) -> list[dict[str, str]]:  # fmt: skip
    """Identified constants as rows of a constants file, once for each chip of the table that shares them.

    write   (constant, source, where) -> a row
    """
    found = []
    for item in (item for item in made if item.identified):
        _, name, field = item.key
        kind = next(kind for kind, fields in FIELDS.items() if field in fields)
        source = SOURCE + kind.split(" ")[-1]
        if name == GENERIC:
            found.append(write(item, source, "centre of the fitted devices that state no constant of their own"))
            continue
        die = same(chip(name))
        own = [point for point in points if point.kind == kind and point.split in splits and same(point.chip) == die]
        own = [point for point in own if field in point.fields]
        measured = sorted({point.chip.name for point in own})
        for member in (other for other in names() if same(chip(other)) == die):
            of = "" if measured == [member] else f" of {' and '.join(measured)}, the same die"
            found.append(write(replace(item, key=("device", member, field)), source, f"{len(own)} rows{of}: {kind}"))
    return found


def is_of_parts(row: Mapping[str, str]) -> bool:
    """Whether a row of a constants file was fitted to kernels or collectives."""
    return row.get("source", "") in {SOURCE + kind.split(" ")[-1] for kind in FIELDS}


def part_errors(
    points: Sequence[Point], splits: Mapping[str, str], before: Constants, after: Constants
) -> list[PartError]:
    """Errors by table, device and split, with constants before and after; `splits` maps a split to its name."""
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        if point.split in splits:
            groups.setdefault((point.table, point.chip.name, splits[point.split]), []).append(point)
    found = []
    for (table, device, split), own in sorted(groups.items()):
        old, new = (
            100.0 * np.abs(np.array([p.seconds(stack(p.stack, device, calibrated=c)) / p.measured - 1.0 for p in own]))
            for c in (before, after)
        )
        found.append(
            PartError(table, device, split, len(own), float(np.median(old)), float(np.median(new)), float(new.mean()))
        )
    return found
