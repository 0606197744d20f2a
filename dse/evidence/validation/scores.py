"""Scores of predictions: errors of a set of rows, and which rows count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dse.evidence.measured.devices import DEVICES
from dse.evidence.measured.runs import Case
from dse.evidence.measured.stack_rules import GENERIC, STACKS
from dse.evidence.validation.cases import natural_order
from hw_models.stacks import Constants, shipped
from workloads.network import Network
from workloads.training import parameters

__all__ = [
    "ALL_STRETCH", "CALIBRATED", "CAPACITIES", "COMPLETE", "STEP_TIME", "STRETCH", "UNSCORED", "ZERO_SHOT", "Compared",
    "Score", "compare", "fitted", "floor_percent", "is_calibrated", "is_complete", "is_number", "is_run", "is_scored",
    "residuals", "score_of", "statistics", "why_not",
]  # fmt: skip

#: Splits whose rows are listed and not scored, with the reason.
UNSCORED = {
    "calibration": "calibration row: for fitting, not for scoring",
    "context": "context row: an input is missing or noisy",
}
#: Splits of rows that say everything about a run.
COMPLETE = ("", "calibration", "validation")
#: Sets of rows without targets, scored apart from the others of their group.
STRETCH = " (stretch)"
#: Sets over all training runs of a folder: dense networks on a (stack, device) pair whose constants were fitted, or
#: on another pair; and the rows without targets.
CALIBRATED, ZERO_SHOT, ALL_STRETCH = "summary/calibrated", "summary/zero_shot", "summary/stretch"

#: What is asked of an evaluation.
STEP_TIME = frozenset({"step_time"})
#: Violations that do not make a time impossible: a run was measured, so it fitted.
CAPACITIES = ("memory",)
#: Fields of a plan that a residual may depend on.
TRAITS_OF_PLAN = (
    "tensor", "pipeline", "data", "context", "expert", "micro_batch", "interleave", "zero_stage", "recompute",
)  # fmt: skip


@dataclass(frozen=True)
class Score:
    """Errors of one set [percent]; predicted/measured - 1; None where no row was scored.

    n, n_scored      rows of the set, and those that were scored
    mape, median, p95, max   of the absolute error
    bias             mean error, negative where predictions are too small
    floor            the mean absolute error that no prediction of a set's repeated inputs can go below: the spread
                     of rows with equal inputs around their median; None where no inputs are repeated
    calibrated       constants of the set's device and software were fitted on its calibration rows
    """

    set: str
    n: int
    n_scored: int = 0
    mape_percent: float | None = None
    median_percent: float | None = None
    p95_percent: float | None = None
    max_percent: float | None = None
    bias_percent: float | None = None
    floor_percent: float | None = None
    calibrated: bool = False


@dataclass(frozen=True)
class Compared:
    """One scored row: predicted and measured in `unit`, error [percent], and what the error may depend on."""

    row_id: str
    set: str
    unit: str
    predicted: float
    measured: float
    error_percent: float
    traits: dict[str, Any] = field(default_factory=dict)


def is_scored(case: Case) -> bool:
    """A row with a prediction, a measurement, and no split that keeps it out."""
    return is_number(case.predicted) and is_number(case.measured) and case.split not in UNSCORED


def why_not(case: Case) -> str:
    """Why a row is not scored: what the product lacks first, then the split."""
    if case.skipped or case.split in UNSCORED:
        return case.skipped or UNSCORED[case.split]
    return "no measured value above 0" if is_number(case.predicted) else "no prediction above 0"


def is_complete(case: Case) -> bool:
    """A row of a split that is scored, with a measured value and every input that a prediction needs."""
    return case.split not in UNSCORED and is_number(case.measured) and not case.skipped.startswith("incomplete")


def compare(case: Case) -> Compared:
    """A scored row with its error."""
    assert case.predicted is not None and case.measured
    error = 100.0 * (case.predicted / case.measured - 1.0)
    return Compared(case.row_id, case.set, case.unit, case.predicted, case.measured, error, traits_of(case))


def traits_of(case: Case) -> dict[str, Any]:
    """What the error may depend on: traits of the row; of a run also its parameters, and its plan for blank cells."""
    traits = dict(case.traits)
    if case.design is None or not is_run(case):
        return traits
    plan, workload = case.design.plan.named(), case.design.workload
    for name, value in plan.items():
        if name in TRAITS_OF_PLAN and not traits.get(name):
            traits[name] = str(value)
    return traits | {"parameters": str(_parameters(workload.network, workload.sequence))}  # type: ignore[arg-type]


@cache
def _parameters(network: Network, sequence: int) -> int:
    return parameters(network, sequence)


def score_of(name: str, cases: list[Case], known: Constants | None = None) -> Score:
    """Statistics of one set, predicted with the fitted constants `known` (None: those that ship)."""
    scored = [case for case in cases if is_scored(case)]
    if not scored:
        return Score(name, len(cases))
    errors = [compare(case).error_percent for case in scored]
    found: dict[str, Any] = statistics(errors)
    told = all(is_calibrated(case, known) for case in scored)
    return Score(name, len(cases), len(scored), floor_percent=floor_percent(cases), calibrated=told, **found)


def statistics(errors: Sequence[float]) -> dict[str, float]:
    """Mean, median, 95th percentile and largest of the absolute errors, and the mean error."""
    signed = np.array(errors, dtype=float)
    size = np.abs(signed)
    return {
        "mape_percent": float(size.mean()),
        "median_percent": float(np.median(size)),
        "p95_percent": float(np.percentile(size, 95)),
        "max_percent": float(size.max()),
        "bias_percent": float(signed.mean()),
    }


def floor_percent(cases: Iterable[Case]) -> float | None:
    """Mean of |median / measured - 1| over rows whose inputs are repeated [percent]; None without such rows.

    The median of equal runs is about the best single prediction of them, so no model can be expected below this.
    """
    groups: dict[Any, list[float]] = {}
    for case in cases:
        if case.measured and case.inputs is not None:
            groups.setdefault(case.inputs, []).append(case.measured)
    spreads = [
        abs(float(np.median(group)) / value - 1.0) for group in groups.values() if len(group) > 1 for value in group
    ]
    return 100.0 * math.fsum(spreads) / len(spreads) if spreads else None


def residuals(rows: Sequence[Compared], trait: str) -> list[dict[str, Any]]:
    """Mean error and spread [percent] of the rows for every value of a trait, in the order of the values."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(str(row.traits.get(trait, "")), []).append(row.error_percent)
    found = []
    for value, errors in sorted(groups.items(), key=lambda item: (not item[0].isdigit(), natural_order(item[0]))):
        bias, spread = float(np.mean(errors)), float(np.std(errors))
        found.append({"value": value, "n": len(errors), "bias_percent": bias, "spread_percent": spread})
    return found


def is_run(case: Case) -> bool:
    """A row of a table of transformer training runs."""
    return "stack" in case.traits and "tensor" in case.traits


def is_calibrated(case: Case, known: Constants | None = None) -> bool:
    """Whether constants were fitted to rows of the case's (stack, device) pair, or device where it names no stack.

    known   the fitted constants; None: those that ship
    """
    device = DEVICES.get(str(case.traits.get("device", "")))
    chip = case.design.chip.name if case.design is not None else device.chip if device else ""
    if case.design is None and not is_run(case):
        return any(chip == pair[1] for pair in fitted(known))
    rules = STACKS.get(str(case.traits.get("stack", "")), GENERIC)
    return (case.design.stack.name if case.design is not None else rules.name, chip) in fitted(known)


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0.0


@cache
def fitted(known: Constants | None = None) -> frozenset[tuple[str, str]]:
    """(stack, device) pairs whose rows a constant was fitted to: it says so behind the colon of `where`."""
    found = set()
    for row in (known or shipped()).rows:
        for other in row["where"].partition(":")[2].split():
            found.add((row["name"], other) if row["scope"] == "stack" else (other, row["name"]))
    return frozenset(found)
