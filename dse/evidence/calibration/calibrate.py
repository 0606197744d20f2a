"""Fits the constants of devices and software stacks to measured training steps, and says how well that went.

Only rows of the split "calibration" are fitted (all rows of a file without splits); rows of the split "validation"
are predicted and never fitted.  Method and rules: docs/calibration.md; the least squares are in `fit`, the
rows in `rows`, tables of constants in `constants`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dse.base.errors import ConfigError, Problem, listed, nearest, shorten
from dse.evidence.calibration.constants import without
from dse.evidence.calibration.fit import fit
from dse.evidence.calibration.priors import STACK_FIELDS, Fitted, Key, Observed, priors
from dse.evidence.calibration.rows import (
    FITTED_SPLITS,
    PREDICTED_SPLIT,
    STEPS,
    Pair,
    pair_of,
    situations,
    usable_cases,
    weights,
)
from dse.evidence.calibration.stages import (
    PartError,
    Point,
    fit_parts,
    is_of_parts,
    is_table_of,
    part_errors,
    part_rows,
    read_parts,
    same,
)
from dse.evidence.measured.runs import Case
from dse.evidence.validation.cases import read_cases, read_files
from dse.evidence.validation.networks import is_network
from dse.evidence.validation.scores import is_run
from dse.evidence.validation.validate import predicted_cases, with_constants
from dse.insight.uncertainty import PAIR, residual_row
from hw_models.chip import Chip
from hw_models.devices import chip
from hw_models.devices import names as all_chips
from hw_models.stack import DEVICE_FIELDS
from hw_models.stacks import GENERIC, Constants, shipped

__all__ = ["Calibration", "Error", "LeftOut", "calibrate", "leave_one_out"]

#: Constants that trainings of other networks than transformers are asked for, of their devices and stacks.
OF_NETWORKS = (
    "sustained_clock", "lane_efficiency", "memory_efficiency", "host_time_per_operator", "micro_batch_overhead",
    "step_overhead", "vector_passes", "eager", "update_passes", "overlap_efficiency", "jitter",
)  # fmt: skip
#: Digits of a constant as written: far more than it is known to.
DIGITS = 5
#: Distance from an end of its range, of the range, at which a constant is written as that end.
AT_END = 1e-6
Say = Callable[[str], None]


@dataclass(frozen=True)
class Error:
    """Errors of a (stack, device) pair's rows of one split [percent], before and after the fit."""

    stack: str
    device: str
    split: str
    n: int
    before_mape: float
    before_bias: float
    mape: float
    bias: float


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    fitted     constants that rows identify, of kernels and collectives first: they are written
    prior      constants that rows say less about than their priors: they stay as they are
    constants  the rows of a constants file
    errors     by pair and split, before (constants as stated or given) and after
    parts      the same of kernels, attention and collectives, by device and split
    n_rows, n_situations, skipped    rows fitted, how many different situations they hold, rows that could not be
    """

    fitted: tuple[Fitted, ...]
    prior: tuple[Fitted, ...]
    constants: Constants
    errors: tuple[Error, ...]
    parts: tuple[PartError, ...]
    n_rows: int
    n_situations: int
    skipped: Mapping[str, int]

    def to_plain(self) -> dict[str, Any]:
        """The stable form for programs."""
        return {
            "constants": [dict(row) for row in self.constants.rows],
            "not_identified": [dict(zip(("scope", "name", "field"), item.key, strict=True)) for item in self.prior],
            "errors": [asdict(error) for error in self.errors],
            "parts": [asdict(error) for error in self.parts],
            "n_rows": self.n_rows, "n_situations": self.n_situations, "skipped": dict(self.skipped),
        }  # fmt: skip


@dataclass(frozen=True)
class LeftOut:
    """A pair that was left out of the fit and predicted: errors of its validation rows [percent].

    mape, bias          nothing fitted to the pair's rows
    fitted_mape         with the pair's rows in the fit
    stated_mape         constants as stated, nothing fitted at all
    """

    stack: str
    device: str
    n: int
    mape: float
    bias: float
    fitted_mape: float
    stated_mape: float


def calibrate(
    cases: Sequence[Case] | str | Path | None, *, device: str = "", stack_name: str = "",
    parts: Sequence[Point] | None = None, start: Constants | None = None, say: Say = lambda text: None,
) -> Calibration:  # fmt: skip
    """Fit the constants of a device (a chip's name), of a stack, of both on their pair, or of all pairs jointly.

    Kernels and collectives are fitted first, and what they tell of devices is held while steps are fitted.
    cases   measured rows, or the folder of their tables; None: the table that the product ships
    parts   measured kernels and collectives; None: those of the folder, if any
    start   an earlier result: only its constants are free, and start there (see `calibration_fit.fit_residuals`)
    Of a device or a stack alone the other constants stay as shipped, and shipped rows are part of the result; so do
    what kernels told of the device, where there are none to fit.
    """
    usable, skipped = usable_cases(_read(cases))
    usable = _chosen(usable, device, stack_name)
    train = [case for case in usable if case.split in FITTED_SPLITS]
    if not train:
        raise ConfigError([Problem("no row to fit", 'training steps of the split "calibration", or without a split')])
    own = {("device", device), ("stack", stack_name)} if device or stack_name else set()
    points = _points(cases, parts) if device or not own else []
    known, told = _from_parts(points, own, device, start, say)
    fitted, prior, made = _fit_in_turn(train, own, known, say, start=start)
    before = predicted(usable, without(shipped(), own)) if own else usable
    after = predicted(usable, made)
    made = _with_residuals(made, after)
    groups = situations(train)
    asked = {item.key for item in (*fitted, *prior)}
    told = [item for item in told if item.identified or item.key not in asked]
    splits = {name: name or FITTED_SPLITS[0] for name in (*FITTED_SPLITS, PREDICTED_SPLIT)}
    return Calibration(
        (*(item for item in told if item.identified), *fitted),
        (*(item for item in told if not item.identified), *prior), made, tuple(_errors(before, after)),
        tuple(part_errors(points, splits, Constants(), made)), len(train), len(set(groups)), skipped,
    )  # fmt: skip


def _points(cases: Sequence[Case] | str | Path | None, parts: Sequence[Point] | None) -> Sequence[Point]:
    """Kernels and collectives as given, else of the folder."""
    if parts is not None:
        return parts
    return read_parts(cases) if isinstance(cases, (str, Path)) else []


def _from_parts(
    points: Sequence[Point], own: set[tuple[str, str]], device: str, start: Constants | None, say: Say
) -> tuple[Constants, list[Fitted]]:
    """What is held while steps are fitted: shipped rows of other owners, and what kernels and collectives tell."""
    at = _values(start)
    known = without(shipped(), own) if own else Constants()
    told = fit_parts(points, FITTED_SPLITS, known, device=device, start=at, say=say)
    rows = part_rows(told, points, FITTED_SPLITS, _row)
    if own:
        fresh = {row["field"] for row in rows}
        rows = [row for row in rows if row["name"] == device]
        kept = [
            dict(row) for row in shipped().rows
            if (row["scope"], row["name"]) not in own or (is_of_parts(row) and row["field"] not in fresh)
        ]  # fmt: skip
        rows = [*kept, *rows]
    return Constants(tuple(rows), "dse calibrate"), told


def _values(known: Constants | None) -> dict[Key, float] | None:
    """Constants by scope, name and field."""
    if known is None:
        return None
    rows = [row for row in known.rows if row["scope"] != PAIR]
    return {(row["scope"], row["name"], row["field"]): float(row["value"]) for row in rows}


def leave_one_out(
    cases: Sequence[Case] | str | Path | None, *, say: Say = lambda text: None
) -> tuple[LeftOut, ...]:
    """Each (stack, device) pair in turn is left out of the joint fit and its validation rows are predicted.

    Device constants then come from its kernels and collectives, from other stacks on that device, else from generic
    devices; stack constants from the stack on other devices, else from what it states and generic stacks.  A pair
    without validation rows is predicted on its calibration rows, which are left out as well.
    """
    usable, _ = usable_cases([case for case in _read(cases) if is_run(case)])
    pairs = sorted({pair_of(case) for case in usable if case.split in FITTED_SPLITS})
    known, _ = _from_parts(_points(cases, None), set(), "", None, say)
    cache: dict[Any, dict[Key, float]] = {}  # most stacks alone are fitted to the same rows each time
    everything = _fit([case for case in usable if case.split in FITTED_SPLITS], set(), known, say, cache=cache)[2]
    found = []
    for pair in pairs:
        held = [case for case in usable if pair_of(case) == pair]
        held = [case for case in held if case.split == PREDICTED_SPLIT] or held
        train = [case for case in usable if pair_of(case) != pair and case.split in FITTED_SPLITS]
        told = partial(_tell, say, f"without {' on '.join(pair)}: ")
        others = _fit(train, set(), known, told, cache=cache)[2] if train else known
        errors = [_percent(predicted(held, made)) for made in (others, everything, Constants())]
        sizes = [float(np.abs(error).mean()) for error in errors]
        found.append(LeftOut(*pair, len(held), sizes[0], float(errors[0].mean()), sizes[1], sizes[2]))
    return tuple(found)


def _tell(say: Say, head: str, text: str) -> None:
    say(head + text)


# Rows -------------------------------------------------------------------------------------------------------------


def _read(cases: Sequence[Case] | str | Path | None) -> Sequence[Case]:
    """Rows as given, or of the tables of steps in a folder: predicting the other tables takes as long as the fit."""
    if isinstance(cases, (str, Path)):
        steps = [path for path in sorted(Path(cases).glob("*.csv")) if any(is_table_of(path, kind) for kind in STEPS)]
        found = read_files(steps)[0] if steps else read_cases(cases)[0]
        # networks that the product ships ran on devices and stacks of their own
        return [*found, *filter(is_network, read_cases(None)[0])] if any(map(is_network, found)) else found
    return read_cases(cases)[0] if cases is None else cases


def _chosen(cases: Sequence[Case], device: str, stack_name: str) -> list[Case]:
    problems = []
    for flag, wanted, place in (("stack", stack_name, 0), ("device", device, 1)):
        have = sorted({pair_of(case)[place] for case in cases})
        if wanted and wanted not in have:
            allowed = f"one with measured rows: {listed(have)}" if have else "none has measured rows"
            problems.append(Problem(shorten(repr(wanted)), allowed, field=flag, nearest=nearest(wanted, have)))
    if problems:
        raise ConfigError(problems)
    kept = [case for case in cases if not stack_name or pair_of(case)[0] == stack_name]
    return [case for case in kept if not device or pair_of(case)[1] == device]

# Fit --------------------------------------------------------------------------------------------------------------


def _fit_in_turn(
    train: Sequence[Case], own: set[tuple[str, str]], known: Constants, say: Say, *, start: Constants | None
) -> tuple[list[Fitted], list[Fitted], Constants]:
    """Runs of transformers first, then, with all that they and parts tell held, other networks.

    What generic stacks and devices and those of the runs are stays as the runs have it.
    """
    fitted: list[Fitted] = []
    prior: list[Fitted] = []
    made, ran = known, [case for case in train if is_run(case)]
    others = [case for case in train if not is_run(case)]
    if ran:
        fitted, prior, made = _fit(ran, own, known, say, start=start)
    if others:
        held = {owner for case in ran for owner in zip(("stack", "device"), pair_of(case), strict=True)}
        held |= {("stack", GENERIC), ("device", GENERIC)}
        more, loose, made = _fit(others if own else on_dies(others), own, made, say, start=start, held=held)
        fitted, prior = [*fitted, *more], [*prior, *loose]
    return fitted, prior, made if own else _for_dies(made, others)


def on_dies(cases: Sequence[Case]) -> list[Case]:
    """The rows as if run on the first chip, by name, of the same die that any of them ran on: only capacity differs."""
    chips = {case.design.chip.name: case.design.chip for case in cases if case.design is not None}
    first: dict[tuple[object, ...], Chip] = {}
    for _, part in sorted(chips.items()):
        first.setdefault(same(part), part)
    return [replace(case, design=replace(case.design, chip=first[same(case.design.chip)])) for case in cases]  # type: ignore[union-attr, type-var]


def _for_dies(made: Constants, cases: Sequence[Case]) -> Constants:
    """With the rows of a chip for each other chip of its die that rows ran on and that has none of the field.

    What lanes sustain is written for all chips of the table whose cores are alike.
    """
    chips = {case.design.chip.name: case.design.chip for case in cases if case.design is not None}
    rows = list(made.rows)
    have = {(row["name"], row["field"]) for row in rows if row["scope"] == "device"}
    for row in [row for row in rows if row["scope"] == "device" and row["name"] in chips]:
        die = [name for name in sorted(chips) if same(chips[name]) == same(chips[row["name"]])]
        alike = [name for name in all_chips() if cores(chip(name)) == cores(chips[row["name"]])]
        for name in dict.fromkeys([*die, *(alike if row["field"] == "lane_efficiency" else [])]):
            if (name, row["field"]) not in have:
                where = row["where"] if name in die else f"of {row['name']}, whose cores are alike"
                rows.append({**row, "name": name, "where": where})
                have.add((name, row["field"]))
    return Constants(tuple(sorted(rows, key=lambda row: (row["scope"], row["name"], row["field"]))), made.source)


def cores(part: Chip) -> tuple[object, ...]:
    """Equal for chips of one kind of core, whatever their number and clock."""
    lanes = float(part.vector_lanes) / float(part.array_count)
    return part.compute, part.process, part.array_rows, part.array_columns, part.arrays_per_core, lanes


def _fit(
    train: Sequence[Case], own: set[tuple[str, str]], known: Constants, say: Say, *, start: Constants | None = None,
    cache: dict[Any, dict[Key, float]] | None = None, held: Collection[tuple[str, str]] | None = None,
) -> tuple[list[Fitted], list[Fitted], Constants]:  # fmt: skip
    """Constants that rows identify, those they do not, and the rows of a constants file with those known.

    held   of rows of other networks: owners of constants (scope, name) that stay as known
    """
    fixed = {(row["scope"], row["name"], row["field"]) for row in known.rows if is_of_parts(row)}
    fixed |= {(*owner, field) for owner in held or () for field in (*DEVICE_FIELDS, *STACK_FIELDS)}
    wanted = priors((pair_of(case) for case in train), known, fixed=fixed)
    if held is not None:
        wanted = {key: prior for key, prior in wanted.items() if key[2] in OF_NETWORKS}
    if own:
        wanted = {key: replace(prior, parent=None) for key, prior in wanted.items() if key[:2] in own}
    observed = [
        Observed(case.design, case.measured, weight)  # type: ignore[arg-type]
        for case, weight in zip(train, weights(train), strict=True)
    ]
    made = fit(observed, wanted, known, start=_values(start), cache=cache, by_stack=held is not None, say=say)
    fitted = [item for item in made if item.identified]
    rows = [*known.rows, *(_written(item, train) for item in fitted)]
    merged = tuple(sorted(rows, key=lambda row: (row["scope"], row["name"], row["field"])))
    return fitted, [item for item in made if not item.identified], Constants(merged, "dse calibrate")


def _written(item: Fitted, train: Sequence[Case]) -> dict[str, str]:
    """A fitted constant as a row of a constants file."""
    scope, name, field = item.key
    place = 1 if scope == "device" else 0
    told = [case for case in train if pair_of(case)[place] == name]
    others = sorted({pair_of(case)[1 - place] for case in told or train})
    tables = sorted({case.set.split("/", 1)[0] for case in told or train})
    where = f"{len(told)} rows, {len(set(situations(told)))} situations: {' '.join(others)}"
    if not told:
        where = f"centre of the fitted {scope}s that state no constant of their own"
    return _row(item, f"dse calibrate: {' '.join(tables)}", where)


def _row(item: Fitted, source: str, where: str) -> dict[str, str]:
    scope, name, field = item.key
    low, high = item.prior.low, item.prior.high
    # a solution approaches an end of its range and never reaches it
    value = next((end for end in (low, high) if abs(item.value - end) < AT_END * (high - low)), item.value)
    return {
        "scope": scope, "name": name, "field": field, "unit": item.prior.unit, "value": _text(value),
        "low": _text(item.prior.low), "high": _text(item.prior.high), "standard_error": _text(item.standard_error, 2),
        "source": source, "where": where, "confidence": "fitted",
    }  # fmt: skip


def _with_residuals(made: Constants, after: Sequence[Case]) -> Constants:
    """The constants with one row a pair: what its fitted rows leave unexplained (dse.insight.uncertainty)."""
    ratios: dict[Pair, list[float]] = {}
    for case in after:
        if case.split in FITTED_SPLITS:
            ratios.setdefault(pair_of(case), []).append(case.predicted / case.measured)  # type: ignore[operator]
    rows = [row for pair, found in sorted(ratios.items()) if (row := residual_row(*pair, found))]
    fresh = {f"{name}+{device}" for name, device in ratios}
    kept = [row for row in made.rows if not (row["scope"] == PAIR and row["name"] in fresh)]
    merged = sorted([*kept, *rows], key=lambda row: (row["scope"], row["name"], row["field"]))
    return Constants(tuple(merged), made.source)


def _text(value: float, digits: int = DIGITS) -> str:
    return repr(float(f"{value:.{digits}g}"))


def predicted(cases: Sequence[Case], known: Constants) -> list[Case]:
    """The rows as predicted with constants."""
    return predicted_cases([with_constants(case, known) for case in cases])[0]


def _percent(cases: Sequence[Case]) -> np.ndarray:
    return np.array([100.0 * (case.predicted / case.measured - 1.0) for case in cases])  # type: ignore[operator]


def _errors(before: Sequence[Case], after: Sequence[Case]) -> list[Error]:
    """Errors by pair and split, calibration first."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, case in enumerate(after):
        groups.setdefault((case.split or FITTED_SPLITS[0], *pair_of(case)), []).append(number)
    found = []
    for (split, name, device), numbers in sorted(groups.items()):
        old, new = (_percent([rows[n] for n in numbers]) for rows in (before, after))
        found.append(
            Error(
                name, device, split, len(numbers), float(np.abs(old).mean()), float(old.mean()),
                float(np.abs(new).mean()), float(new.mean()),
            )
        )  # fmt: skip
    return found
