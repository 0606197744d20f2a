"""Compares predictions with what others measured, and says how wrong they are and which rows were not compared.

Without data it runs the small table the product ships (data/measured_runs.csv); with a folder, every table in it
whose headings it knows.  Constants are as shipped: nothing is fitted here.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import ConfigError, Problem
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.measured_parts import chip_cases, collective_cases, kernel_cases, memory_cases, systolic_cases
from dse.measured_runs import Case, Row, run_case
from workloads.plan import Plan

if TYPE_CHECKING:
    import pandas

#: Splits whose rows are listed and not scored, with the reason.
UNSCORED = {
    "calibration": "calibration row: for fitting, not for scoring",
    "stretch": "stretch row: reported apart, without targets",
    "context": "context row: an input is missing or noisy",
}
#: Violations that do not make a time impossible: a run was measured, so it fitted.
CAPACITIES = ("memory",)


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


@dataclass(frozen=True)
class Skipped:
    """One row that was not scored, and why."""

    row_id: str
    reason: str
    set: str = ""


@dataclass(frozen=True)
class Fit:
    """Do measured runs fit in memory in the model?  They ran, so they should.

    n, n_fit   runs whose plan the product can express, and those predicted to fit
    misses     (row_id, set, used over available memory) of the others
    unstated   the same for incomplete rows that do not say how their optimizer was sharded, read as not sharded;
               they are not counted in n
    without_plan   complete dense runs whose plan is not expressible yet, by reason
    """

    n: int = 0
    n_fit: int = 0
    misses: tuple[tuple[str, str, float], ...] = ()
    unstated: tuple[tuple[str, str, float], ...] = ()
    without_plan: dict[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Share of runs predicted to fit."""
        return self.n_fit / self.n if self.n else None


@dataclass(frozen=True)
class Validation:
    """What a validation found.  `to_json` is the stable form; `rows` is empty unless asked for."""

    sets: tuple[Score, ...]
    skipped: tuple[Skipped, ...] = ()
    rows: tuple[Compared, ...] = ()
    fit: Fit = field(default_factory=Fit)
    source: str = ""

    def reasons(self) -> dict[str, int]:
        """How many rows were skipped for each reason, most frequent first."""
        return dict(Counter(item.reason for item in self.skipped).most_common())

    def to_plain(self) -> dict[str, Any]:
        """Sets and skipped rows; the compared rows too where they were asked for."""
        plain: dict[str, Any] = {
            "sets": [asdict(score) for score in self.sets],
            "skipped": [{"row_id": item.row_id, "reason": item.reason} for item in self.skipped],
        }
        if self.rows:
            plain["rows"] = [asdict(row) for row in self.rows]
        return plain

    def to_json(self) -> str:
        """`to_plain` as JSON text."""
        return json.dumps(self.to_plain(), indent=1)

    def to_frame(self) -> pandas.DataFrame:
        """The compared rows with their traits, one column each."""
        import pandas

        plain = [{**{k: v for k, v in asdict(row).items() if k != "traits"}, **row.traits} for row in self.rows]
        return pandas.DataFrame(plain)


def validate(data: str | Path | None = None, sets: Sequence[str] = (), rows: bool = False) -> Validation:
    """Predict the rows of measured tables and score them by set.

    data   a folder of tables; None: the table that the product ships
    sets   names or patterns, of whole names ("training_runs/*") or of their last part ("korthikanti*"); empty: all.
           One that matches nothing is a set of no rows.
    rows   keep every compared row
    """
    cases = [case for case in read_cases(data) if not sets or any(matches(case.set, glob) for glob in sets)]
    cases, fit = predicted_cases(cases)
    names = list(dict.fromkeys(case.set for case in cases))
    scores = [score_of(name, [case for case in cases if case.set == name]) for name in names]
    unmatched = [glob for glob in sets if not any(matches(name, glob) for name in names)]
    scores += [Score(glob, 0) for glob in unmatched]
    compared = tuple(compare(case) for case in cases if is_scored(case)) if rows else ()
    skipped = tuple(Skipped(case.row_id, why_not(case), case.set) for case in cases if not is_scored(case))
    return Validation(tuple(scores), skipped, compared, fit, "the shipped table" if data is None else str(data))


def matches(name: str, glob: str) -> bool:
    """Whether a set's name, or its part behind the table's name, fits a pattern."""
    return fnmatchcase(name, glob) or fnmatchcase(name.split("/", 1)[-1], glob)


def read_cases(data: str | Path | None) -> Iterator[Case]:
    """Every row of every known table as a case."""
    if data is None:
        text = files("dse").joinpath("data", "measured_runs.csv").read_text(encoding="utf-8")
        yield from table_cases(list(csv.DictReader(text.splitlines())), "measured_runs")
        return
    folder = Path(data)
    if not folder.is_dir():
        found = f"{str(data)!r}, which is no folder"
        raise ConfigError([Problem(found, "a folder of measured tables (CSV)", "data")])
    known = False
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        for case in table_cases(table, path.stem):
            known = True
            yield case
    if not known:
        found = f"no table with known headings in {str(data)!r}"
        raise ConfigError([Problem(found, "training_runs.csv, kernels.csv, collectives.csv or the like", "data")])


def table_cases(table: Sequence[Row], stem: str) -> Iterable[Case]:
    """The cases of one table, told apart by its headings; tables of constants have none."""
    headings = set(table[0]) if table else set()

    def has(*names: str) -> bool:
        return headings.issuperset(names)

    if has("layers", "hidden", "global_batch", "num_devices"):
        return (run_case(row, stem, number) for number, row in enumerate(table, start=1))
    if has("kernel", "M", "N", "K", "time_us"):
        return kernel_cases(table, stem)
    if has("collective", "payload_bytes", "time_us"):
        return collective_cases(table, stem)
    if has("dataflow", "rows", "cols", "M", "N", "K"):
        return systolic_cases(table, stem)
    if has("chip", "die_area_mm2", "tdp_W"):
        return chip_cases(table, stem)
    if has("quantity", "model", "mode", "value", "unit"):
        return memory_cases(table, stem)
    if has("task", "throughput_per_device_per_s"):
        return named_only(table, stem, "model", "network: no builder for it yet")
    if has("rtl_cycles") or has("rtl_cycle", "mapping"):
        reason = "loop nests of a register-transfer simulation are not compared yet"
        return named_only(table, "systolic", "", reason, stem)
    return ()


def named_only(table: Sequence[Row], stem: str, column: str, reason: str, group: str = "") -> Iterator[Case]:
    """Rows that no model predicts yet: counted, with the reason."""
    for number, row in enumerate(table, start=1):
        name = row.get("row_id") or f"{group or stem}:{number}"
        yield Case(f"{stem}/{row[column] if column else group}", name, "", skipped=reason, split=row.get("split") or "")


def predicted_cases(cases: list[Case]) -> tuple[list[Case], Fit]:
    """Step times of the cases that are designs, priced together where only plan and devices differ.

    A plan that breaks a rule of the product (other than capacity: it ran) is skipped with the rule's name.
    """
    batches: dict[tuple[Any, ...], list[int]] = {}
    for number, case in enumerate(cases):
        if case.design is not None:
            d = case.design
            outer = tuple(replace(tier, size=1) for tier in d.cluster.tiers[-1:])
            key = (d.chip.name, _one_of(d.chip.hbm_capacity), d.cluster.name, d.cluster.tiers[:-1], outer,
                   d.workload, d.stack.name, d.training)  # fmt: skip
            batches.setdefault(key, []).append(number)
    done, shares = list(cases), dict[int, float]()
    for numbers in batches.values():
        result = evaluate(stacked([cases[number].design for number in numbers]))  # type: ignore[misc]
        times, used = result.column("step_time"), result.violation("memory")
        for place, number in enumerate(numbers):
            broken = [n for n in result.violations if n not in CAPACITIES and result.violation(n)[place] > 0]
            if broken:
                done[number] = replace(cases[number], skipped=f"the plan breaks a rule of the product: {broken[0]}")
            else:
                done[number] = replace(cases[number], predicted=float(times[place]))
                shares[number] = float(used[place]) + 1.0
    return done, fit_of(done, shares)


def _one_of(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def stacked(designs: list[Design]) -> Design:
    """Designs that differ in plan and number of devices as one design of columns."""
    first = designs[0]
    devices = np.array([float(d.cluster.devices) for d in designs])
    sizes = np.array([float(d.cluster.tiers[-1].size) for d in designs])
    tiers = (*first.cluster.tiers[:-1], replace(first.cluster.tiers[-1], size=sizes))
    plan = Plan(**{name: np.array([float(getattr(d.plan, name)) for d in designs]) for name in Plan.names()})
    return replace(first, cluster=replace(first.cluster, devices=devices, tiers=tiers), plan=plan)


def fit_of(cases: list[Case], shares: dict[int, float]) -> Fit:
    """Which measured runs are predicted to fit; complete ones without a plan are counted by reason."""
    complete = [number for number in shares if cases[number].states_plan]
    full = [(cases[n], share) for n, share in shares.items() if share > 1.0]
    misses, unstated = (
        tuple((case.row_id, case.set, share) for case, share in full if case.states_plan is stated)
        for stated in (True, False)
    )
    without = Counter(
        case.skipped for case in cases if case.unit == "s" and case.measured and "no such plan" in case.skipped
    )
    return Fit(len(complete), len(complete) - len(misses), misses, unstated, dict(without.most_common()))


def is_scored(case: Case) -> bool:
    """A row with a prediction, a measurement, and no split that keeps it out."""
    return case.predicted is not None and bool(case.measured) and case.split not in UNSCORED


def why_not(case: Case) -> str:
    """Why a row is not scored: what the product lacks first, then the split."""
    return case.skipped or UNSCORED.get(case.split) or "no measured value"


def compare(case: Case) -> Compared:
    """A scored row with its error."""
    assert case.predicted is not None and case.measured
    error = 100.0 * (case.predicted / case.measured - 1.0)
    return Compared(case.row_id, case.set, case.unit, case.predicted, case.measured, error, dict(case.traits))


def score_of(name: str, cases: list[Case]) -> Score:
    """Statistics of one set."""
    scored = [case for case in cases if is_scored(case)]
    if not scored:
        return Score(name, len(cases))
    errors = [compare(case).error_percent for case in scored]
    found: dict[str, Any] = statistics(errors)
    return Score(name, len(cases), len(scored), floor_percent=floor_percent(cases), **found)


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
    for value, errors in sorted(groups.items(), key=lambda item: (not item[0].isdigit(), _order(item[0]))):
        bias, spread = float(np.mean(errors)), float(np.std(errors))
        found.append({"value": value, "n": len(errors), "bias_percent": bias, "spread_percent": spread})
    return found


def _order(text: str) -> tuple[float, str]:
    return (float(text), "") if text.isdigit() else (0.0, text)
