"""Compares predictions with what others measured, and says how wrong they are and which rows were not compared.

Without data it runs the small table the product ships (data/measured_runs.csv); with a folder, every table in it
whose headings it knows (`cases`).  Constants are as shipped: nothing is fitted here.  Errors and rules of what counts
are in `scores`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.evaluation.design import Design
from dse.evaluation.design import rows as rows_of
from dse.evaluation.evaluate import evaluate_rows
from dse.evaluation.layout import lay_out
from dse.evidence.measured.phaze import template_cases
from dse.evidence.measured.runs import MIXTURES, Case
from dse.evidence.validation.cases import Skipped, matches, read_cases
from dse.evidence.validation.networks import ALL_NETWORKS, NETWORKS, Scaling, is_network, scaling
from dse.evidence.validation.scores import (
    ALL_STRETCH,
    CALIBRATED,
    CAPACITIES,
    COMPLETE,
    STEP_TIME,
    STRETCH,
    UNSCORED,
    ZERO_SHOT,
    Compared,
    Score,
    compare,
    is_calibrated,
    is_complete,
    is_number,
    is_run,
    is_scored,
    score_of,
    why_not,
)
from hw_models.stacks import Constants, stack
from workloads.plan import Plan

if TYPE_CHECKING:
    import pandas


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
        reason = "" if is_number(time) else "the predicted time is not a number above 0"
        found.append((time, share, f"the plan breaks a rule of the product: {broken[0]}" if broken else reason))
    return found


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
