"""Compares predictions with what others measured, and says how wrong they are and which rows were not compared.

Without data it runs the small table the product ships (data/measured_runs.csv); with a folder, every table in it
whose headings it knows.  Constants are as shipped: nothing is fitted here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.base.errors import ConfigError, Problem
from dse.evaluation.design import Design
from dse.evaluation.design import rows as rows_of
from dse.evaluation.evaluate import evaluate_rows
from dse.evaluation.layout import lay_out
from dse.evidence.measured.arrays import loop_nest_cases, systolic_cases
from dse.evidence.measured.chips import chip_cases
from dse.evidence.measured.collectives import collective_cases
from dse.evidence.measured.devices import DEVICES
from dse.evidence.measured.kernels import kernel_cases
from dse.evidence.measured.networks import network_cases
from dse.evidence.measured.parts import memory_cases
from dse.evidence.measured.phaze import template_cases
from dse.evidence.measured.runs import GENERIC, MIXTURES, STACKS, Case, Row, run_case
from dse.evidence.measured.tables import kind_of, read_table
from dse.evidence.validation.networks import ALL_NETWORKS, NETWORKS, Scaling, is_network, scaling
from hw_models.stacks import Constants, shipped, stack
from workloads.network import Network
from workloads.plan import Plan
from workloads.training import parameters

if TYPE_CHECKING:
    import pandas

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
#: Tables that the product ships.
SHIPPED = ("measured_runs.csv", "measured_networks.csv")
#: What is asked of an evaluation.
STEP_TIME = frozenset({"step_time"})
#: Violations that do not make a time impossible: a run was measured, so it fitted.
CAPACITIES = ("memory",)
#: Fields of a plan that a residual may depend on.
TRAITS_OF_PLAN = (
    "tensor", "pipeline", "data", "context", "expert", "micro_batch", "interleave", "zero_stage", "recompute",
)  # fmt: skip
#: What a reader raises at a row that makes no sense to it, and how the reason of such a row begins.
UNREADABLE = (ValueError, LookupError, ArithmeticError)
UNREAD = "the row makes no sense"
#: Most faults that one error lists.
MOST_PROBLEMS = 50


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

    n, n_fit   complete runs (of no other split than calibration and validation) whose plan the product can express,
               and those predicted to fit
    misses     (row_id, set, used over available memory) of the others
    unstated   the same for rows of other splits, many of which do not say how their optimizer was sharded and are
               read as not sharded; they are not counted in n
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
    """What a validation found.  `to_json` is the stable form.

    rows       every scored row where they were asked for, else None
    complete   by set: rows of the splits that are scored, with every input and a measured value
    scaling    of each scored row of several devices that has one of a single device beside it
    """

    sets: tuple[Score, ...]
    skipped: tuple[Skipped, ...] = ()
    rows: tuple[Compared, ...] | None = None
    fit: Fit = field(default_factory=Fit)
    source: str = ""
    complete: dict[str, int] = field(default_factory=dict)
    scaling: tuple[Scaling, ...] = ()

    def reasons(self) -> dict[str, int]:
        """How many rows were skipped for each reason, most frequent first."""
        return dict(Counter(item.reason for item in self.skipped).most_common())

    def to_plain(self) -> dict[str, Any]:
        """Sets and skipped rows; the compared rows too where they were asked for."""
        plain: dict[str, Any] = {
            "sets": [asdict(score) for score in self.sets],
            "skipped": [{"row_id": item.row_id, "reason": item.reason} for item in self.skipped],
        }
        if self.rows is not None:
            plain["rows"] = [asdict(row) for row in self.rows]
        if self.rows is not None and self.scaling:
            plain["scaling"] = [asdict(item) for item in self.scaling]
        return plain

    def to_json(self) -> str:
        """`to_plain` as JSON text."""
        return json.dumps(self.to_plain(), indent=1)

    def to_frame(self) -> pandas.DataFrame:
        """The compared rows with their traits, one column each."""
        import pandas

        rows = self.rows or ()
        plain = [{**{k: v for k, v in asdict(row).items() if k != "traits"}, **row.traits} for row in rows]
        return pandas.DataFrame(plain)


def validate(
    data: str | Path | None = None, sets: Sequence[str] = (), rows: bool = False, *, constants: Constants | None = None
) -> Validation:
    """Predict the rows of measured tables and score them by set.

    data   a folder of tables; None: the table that the product ships
    sets   names or patterns, of whole names ("training_runs/*") or of their last part ("korthikanti*"); empty: all.
           One that matches nothing is a set of no rows.  "phaze/*": the published template, shipped.
    rows   keep every compared row
    constants   fitted constants for the training runs; None: those that ship
    """

    def wanted(name: str) -> bool:
        whole = name == ALL_NETWORKS and any(glob.startswith(NETWORKS) for glob in sets)
        return not sets or whole or any(matches(name, glob) for glob in sets)

    found, empty = read_cases(data)
    if sets:  # the few numbers of a template, where they are asked for
        found += [case for case in template_cases() if wanted(case.set)]
    if constants is not None:
        found = [with_constants(case, constants) for case in found]
    asked = [name for name in SUMMARIES if data is not None and wanted(name)]
    summaries = [name for name in asked if any(map(is_network if name == ALL_NETWORKS else is_run, found))]
    of_runs, of_networks = set(summaries) - {ALL_NETWORKS}, ALL_NETWORKS in summaries
    found = [
        case for case in apart(found)
        if wanted(case.set) or (of_runs and is_run(case)) or (of_networks and is_network(case))
    ]  # fmt: skip
    found, fit = predicted_cases(found)
    groups: dict[str, list[Case]] = {name: [] for name in empty if wanted(name)}
    for case in found:
        if wanted(case.set):
            groups.setdefault(case.set, []).append(case)
    shown = [case for cases in groups.values() for case in cases]
    groups |= {name: [case for case in found if SUMMARIES[name](case, constants)] for name in summaries}
    groups |= {glob: [] for glob in sets if not any(matches(name, glob) for name in groups)}
    return Validation(
        tuple(score_of(name, cases, constants) for name, cases in groups.items()),
        tuple(Skipped(case.row_id, why_not(case), case.set) for case in shown if not is_scored(case)),
        tuple(compare(case) for case in shown if is_scored(case)) if rows else None,
        fit,
        "the shipped table" if data is None else str(data),
        {name: sum(map(is_complete, cases)) for name, cases in groups.items()},
        scaling(shown),
    )


def matches(name: str, glob: str) -> bool:
    """Whether a set's name, its part behind the table's name, or either without a suffix in brackets fits a pattern."""
    plain = name.split(" (")[0]
    forms = {name, plain, name.split("/", 1)[-1], plain.split("/", 1)[-1]}
    return any(fnmatchcase(form, glob) for form in forms)


def read_cases(data: str | Path | None) -> tuple[list[Case], list[str]]:
    """Every row of every known table as a case, and the names of known tables without a row.

    All faults of all tables are one error: a cell that is no number says its file, line and heading.
    """
    if data is None:
        with as_file(files("dse.evidence").joinpath("data")) as shipped_tables:
            return read_files([shipped_tables / name for name in SHIPPED])
    folder = Path(data)
    if not folder.is_dir():
        found = f"{str(data)!r}, which is no folder"
        raise ConfigError([Problem(found, "a folder of measured tables (CSV)", "data")])
    cases, empty = read_files(sorted(path for path in folder.glob("*.csv") if path.is_file()))
    if not cases and not empty:
        found = f"no table with known headings in {str(data)!r}"
        raise ConfigError([Problem(found, "training_runs.csv, kernels.csv, collectives.csv or the like", "data")])
    return cases, empty


def read_files(paths: Iterable[Path]) -> tuple[list[Case], list[str]]:
    """Cases of the files of known kinds, and the names of those without rows."""
    cases: list[Case] = []
    empty: list[str] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            kind, rows, faults = read_table(path)
        except OSError as error:
            problems.append(Problem(f"no access ({error.strerror})", "a readable file", file=path.name))
            continue
        problems += faults
        if kind is not None and not problems:
            found = cases_of(rows, path.stem)
            cases += found
            empty += [] if found else [path.stem]
    if problems:
        more = len(problems) - MOST_PROBLEMS
        last = [Problem(f"{more:,} more faults", "")] if more > 0 else []
        raise ConfigError(problems[:MOST_PROBLEMS] + last)
    return cases, empty


def cases_of(rows: Sequence[Row], stem: str) -> list[Case]:
    """`table_cases`; where a row makes no sense to its reader, that row alone is skipped."""
    try:
        return list(table_cases(rows, stem))
    except UNREADABLE:
        pass
    found = []
    for number, row in enumerate(rows, start=1):
        name = row.get("row_id") or f"{stem}:{number}"
        try:
            cases = list(table_cases([row], stem))
        except UNREADABLE as problem:
            reason = f"{UNREAD}: {type(problem).__name__} {problem}"
            cases = [Case(f"{stem}/unread", name, "", skipped=reason, split=row.get("split") or "")]
        found += [replace(case, row_id=name) if case.row_id == f"{stem}:1" else case for case in cases]
    return found


def table_cases(rows: Sequence[Row], stem: str) -> Iterable[Case]:
    """The cases of one table, told apart by its headings; tables of constants have none."""
    kind = kind_of(rows[0]) if rows else None
    if kind is None:
        return ()
    if kind.name == "runs":
        return (run_case(row, stem, number) for number, row in enumerate(rows, start=1))
    if kind.name == "throughputs":
        return network_cases(rows, stem)
    if kind.name == "transfer-level":
        reason = "a register-transfer simulation without its loop nest"
        return named_only(rows, "systolic", "", reason, stem)
    return PARTS[kind.name](rows, stem)


#: Readers of the tables of parts, by kind of table.
PARTS: dict[str, Callable[[Iterable[Row], str], Iterator[Case]]] = {
    "kernels": kernel_cases,
    "collectives": collective_cases,
    "systolic": systolic_cases,
    "loop nests": loop_nest_cases,
    "chips": chip_cases,
    "memory": memory_cases,
}


def is_run(case: Case) -> bool:
    """A row of a table of transformer training runs."""
    return "stack" in case.traits and "tensor" in case.traits


def apart(cases: Sequence[Case]) -> list[Case]:
    """Cases with the names of their sets: rows without targets, and several stacks of one group, do not mix.

    Of several stacks in a group, that which the group is named after, else that of most rows, keeps its name.
    """
    stacks_of: dict[str, Counter[str]] = {}
    for case in cases:
        if is_run(case) and case.split not in UNSCORED and case.split != "stretch":
            stacks_of.setdefault(case.set, Counter())[str(case.traits["stack"])] += 1
    keeper = {}
    for name, counts in stacks_of.items():
        group = name.split("/", 1)[-1].lower()
        named = [stack for stack, _ in counts.most_common() if stack and group.startswith(_first_word(stack))]
        keeper[name] = (named + [stack for stack, _ in counts.most_common()])[0]

    def named_set(case: Case) -> str:
        stack, suffix = str(case.traits.get("stack", "")), STRETCH if case.split == "stretch" else ""
        mixed = is_run(case) and len(stacks_of.get(case.set, ())) > 1
        return case.set + (f" ({stack or 'no stack'})" if mixed and stack != keeper[case.set] else "") + suffix

    return [replace(case, set=named_set(case)) for case in cases]


def _first_word(stack: str) -> str:
    return stack.lower().replace("-", " ").replace("_", " ").split()[0]


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


@cache
def fitted(known: Constants | None = None) -> frozenset[tuple[str, str]]:
    """(stack, device) pairs whose rows a constant was fitted to: it says so behind the colon of `where`."""
    found = set()
    for row in (known or shipped()).rows:
        for other in row["where"].partition(":")[2].split():
            found.add((row["name"], other) if row["scope"] == "stack" else (other, row["name"]))
    return frozenset(found)


def is_dense_target(case: Case) -> bool:
    """A run of a dense network that has targets: no mixture of experts, no row of another split."""
    dense = is_run(case) and not MIXTURES.search(str(case.traits.get("model", "")))
    return dense and case.split not in UNSCORED and case.split != "stretch" and is_complete(case)


#: Which cases a set over several tables holds, by the constants they were predicted with.
SUMMARIES: dict[str, Callable[[Case, Constants | None], bool]] = {
    CALIBRATED: lambda case, known: is_dense_target(case) and is_calibrated(case, known),
    ZERO_SHOT: lambda case, known: is_dense_target(case) and not is_calibrated(case, known),
    ALL_STRETCH: lambda case, known: is_run(case) and case.split == "stretch",
    ALL_NETWORKS: lambda case, known: is_network(case) and case.split not in UNSCORED and is_complete(case),
}


def with_constants(case: Case, known: Constants) -> Case:
    """A row whose stack has fitted constants of its own on the row's device."""
    if case.design is None:
        return case
    d = case.design
    return replace(case, design=replace(d, stack=stack(d.stack.name, d.chip.name, calibrated=known)))


def named_only(rows: Sequence[Row], stem: str, column: str, reason: str, group: str = "") -> Iterator[Case]:
    """Rows that no model predicts yet: counted, with the reason."""
    for number, row in enumerate(rows, start=1):
        name = row.get("row_id") or f"{group or stem}:{number}"
        yield Case(f"{stem}/{row[column] if column else group}", name, "", skipped=reason, split=row.get("split") or "")


def predicted_cases(cases: Sequence[Case]) -> tuple[list[Case], Fit]:
    """Step times of the cases that are designs, priced together where only plan and devices differ.

    A plan that breaks a rule of the product (other than capacity: it ran) is skipped with the rule's name.
    """
    batches: dict[tuple[Any, ...], list[int]] = {}
    for number, case in enumerate(cases):
        if case.design is not None:
            batches.setdefault(_priced_with(case.design), []).append(number)
    done, shares = list(cases), dict[int, float]()
    for numbers in batches.values():
        for number, (time, share, reason) in zip(numbers, _run([done[n].design for n in numbers]), strict=True):
            done[number] = replace(cases[number], skipped=reason) if reason else replace(cases[number], predicted=time)
            if not reason:
                shares[number] = share
    return done, fit_of(done, shares)


def _priced_with(d: Design) -> tuple[Any, ...]:
    """Equal for designs that one batch may hold: they differ in plan and in the size of the outermost tier."""
    outer = tuple(replace(tier, size=1) for tier in d.cluster.tiers[-1:])
    return (
        id(d.chip), d.cluster.name, d.cluster.tiers[:-1], outer, d.workload, d.stack, d.training, d.technology
    )  # fmt: skip


def _run(designs: Sequence[Design | None]) -> list[tuple[float, float, str]]:
    """Step time [s], used share of memory, and why there is no time, for each of the designs of a batch."""
    known = [design for design in designs if design is not None]
    try:
        with np.errstate(all="ignore"):
            r = rows_of(stacked(known))
            result = evaluate_rows(r, lay_out(r.plan, r.workload, r.training, paired=r.paired), STEP_TIME)
    except (ValueError, ArithmeticError) as problem:
        if len(known) > 1:
            return [found for design in known for found in _run([design])]
        return [(0.0, 0.0, f"the product refuses it: {problem}")]
    times, used = result.column("step_time"), result.violation("memory")
    found = []
    for place in range(len(known)):
        broken = [n for n in result.violations if n not in CAPACITIES and result.violation(n)[place] > 0]
        time, share = float(times[place]), float(used[place]) + 1.0
        reason = "" if _is_number(time) else "the predicted time is not a number above 0"
        found.append((time, share, f"the plan breaks a rule of the product: {broken[0]}" if broken else reason))
    return found


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0.0


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
    complete = {number for number in shares if cases[number].states_plan and cases[number].split in COMPLETE}
    full = [(number, cases[number], share) for number, share in shares.items() if share > 1.0]
    misses, unstated = (
        tuple((case.row_id, case.set, share) for number, case, share in full if (number in complete) is counted)
        for counted in (True, False)
    )
    without = Counter(
        case.skipped for case in cases if case.unit == "s" and case.measured and "no such plan" in case.skipped
    )
    return Fit(len(complete), len(complete) - len(misses), misses, unstated, dict(without.most_common()))


def is_scored(case: Case) -> bool:
    """A row with a prediction, a measurement, and no split that keeps it out."""
    return _is_number(case.predicted) and _is_number(case.measured) and case.split not in UNSCORED


def why_not(case: Case) -> str:
    """Why a row is not scored: what the product lacks first, then the split."""
    if case.skipped or case.split in UNSCORED:
        return case.skipped or UNSCORED[case.split]
    return "no measured value above 0" if _is_number(case.predicted) else "no prediction above 0"


def is_complete(case: Case) -> bool:
    """A row of a split that is scored, with a measured value and every input that a prediction needs."""
    return case.split not in UNSCORED and _is_number(case.measured) and not case.skipped.startswith("incomplete")


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
    for value, errors in sorted(groups.items(), key=lambda item: (not item[0].isdigit(), _order(item[0]))):
        bias, spread = float(np.mean(errors)), float(np.std(errors))
        found.append({"value": value, "n": len(errors), "bias_percent": bias, "spread_percent": spread})
    return found


def _order(text: str) -> tuple[float, str]:
    return (float(text), "") if text.isdigit() else (0.0, text)
