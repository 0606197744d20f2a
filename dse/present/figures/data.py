"""What a figure of a search shows, as named arrays in base SI: the front, what it beat, what did not fit, known chips.

How it is drawn is in `dse.present.figures.front`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.exploration.problem import NestedProblem
from dse.exploration.variables import Floats, Integers, Objective, Outcome, Space, Variable
from dse.insight.front_intervals import FrontIntervals
from dse.problem.filter import kept_points, recorded_objectives
from dse.problem.solved import Solved
from hw_models.chip import Chip

__all__ = ["FrontData", "Reference", "front_data", "thinned"]

#: Clusters on which a reference chip is tried, where the cluster is searched too.
MOST_CLUSTERS = 64


@dataclass(frozen=True, eq=False)
class Reference:
    """A known chip with its best plan on the cluster of the search: objectives (J,), and the rules it breaks."""

    name: str
    values: Floats
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FrontData:
    """What a figure of a front shows, in base SI.

    front       (F, J) objectives, natural sign, best by the first objective first
    feasible    (N, J) other feasible plans of the inner fronts;  infeasible (M, J) nearest misses
    references  known chips;  omitted  chips that cannot be evaluated, and why
    subject     what was trained on what;  limits  what a design had to keep
    intervals   uncertainty of the front's designs; None: not asked for"""

    objectives: tuple[Objective, ...]
    front: Floats
    feasible: Floats
    infeasible: Floats
    references: tuple[Reference, ...]
    omitted: tuple[str, ...]
    subject: str
    limits: str
    evaluations: int
    hardware_rows: int
    lacks: Mapping[str, float]
    intervals: FrontIntervals | None = None


# Data ---------------------------------------------------------------------------------------------------------------


def front_data(report: Solved, intervals: FrontIntervals | None = None) -> FrontData:
    """The front of a search, what it beat, what did not fit, and the reference chips under the same rules."""
    result, spec = report.result, report.spec
    references, omitted = _references(report)
    limits = [
        f"{limit.metric.replace('_', ' ')} {limit.relation} "
        f"{_quantity(limit.metric, limit.bound, spec.unit_of(limit.metric))}"
        for limit in spec.constraints
    ]
    return FrontData(
        objectives=tuple(report.problem.objectives),
        front=result.values,
        feasible=_dominated(report),
        infeasible=_misses(report),
        references=references,
        omitted=omitted,
        subject=f"{spec.workloads[0].network.name} on {_devices(report)}",
        limits=", ".join(["memory fits", *limits]),
        evaluations=result.evaluations,
        hardware_rows=result.hardware_rows,
        lacks=result.miss,
        intervals=intervals,
    )


def _devices(report: Solved) -> str:
    counts = [f"{int(count):,}" for count in sorted(report.spec.cluster.values["devices"])]
    number = " or ".join(counts) if len(counts) <= 2 else f"{counts[0]} to {counts[-1]}"
    return f"{number} device{'' if counts == ['1'] else 's'}"


def _dominated(report: Solved) -> Floats:
    """Feasible archived plans that are not on the front."""
    _, _, values = kept_points(report)
    on_front = {row.tobytes() for row in np.ascontiguousarray(report.result.values)}
    beaten = [row.tobytes() not in on_front for row in np.ascontiguousarray(values)]
    return np.asarray(values[np.array(beaten, dtype=bool)])


def _misses(report: Solved) -> Floats:
    """Objectives of the nearest miss of every hardware row on which nothing is feasible, where they are recorded."""
    wanted, recorded = [item.name for item in report.problem.objectives], recorded_objectives(report.result)
    chunks = report.result.archive.chunks
    if not chunks or not set(wanted) <= set(recorded):
        return np.zeros((0, len(wanted)))
    values = np.concatenate([chunk.miss_objectives[chunk.missed & (np.diff(chunk.offsets) == 0)] for chunk in chunks])
    values = values[:, [recorded.index(name) for name in wanted]]
    return np.asarray(values[np.isfinite(values).all(axis=1)])


def _references(report: Solved) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    found, omitted = [], []
    for chip in report.spec.presets:
        try:
            found.append(_reference(report.problem, chip))
        except ValueError as fault:  # for example a number format that the chip does not have
            omitted.append(f"{chip.name}: {fault}")
    return tuple(found), tuple(omitted)


def reference_points(report: Solved) -> dict[str, Design]:
    """The known chips of the search as they are, each with its best plan by the first objective (feasible or not)."""
    found = {}
    for chip in report.spec.presets:
        alone, rows = _alone(report.problem, chip)
        outcomes = alone.evaluate(rows)
        signs = np.array([item.sign for item in report.problem.objectives])
        fronts = [(outcome.front * signs, outcome.plans, row) for outcome, row in zip(outcomes, rows, strict=True)]
        fitting = [item for item in fronts if len(item[0])]
        if fitting:
            values, plans, row = min(fitting, key=lambda item: item[0][:, 0].min())
            found[chip.name] = alone.design(row, plans[int(values[:, 0].argmin())])
        elif outcomes[0].miss_plan is not None:
            found[chip.name] = alone.design(rows[0], outcomes[0].miss_plan)
    return found


def _reference(problem: Any, chip: Chip) -> Reference:
    """The chip as it is, not its projection into the space, with its best plan by the first objective."""
    alone, rows = _alone(problem, chip)
    return _best(chip.name, alone.evaluate(rows), problem.objectives)


def _alone(problem: Any, chip: Chip) -> tuple[NestedProblem, Integers]:
    """The same problem with one chip, and the rows of its clusters."""
    variables = [Variable("chip.clock", (float(chip.clock),), "Hz")]
    variables += [item for item in problem.space.variables if item.name.startswith("cluster.")]
    space = Space(variables)
    scene = replace(problem.scene, chip=chip)
    if isinstance(problem, NestedProblem):
        alone = copy.copy(problem)  # shares the plans that were enumerated for the search
        alone.space, alone.scene = space, scene
    else:
        alone = NestedProblem(space, scene, problem.goals, problem.plan_space, name=problem.name)
    return alone, space.index_to_row(thinned(np.arange(space.size), MOST_CLUSTERS))


def _best(name: str, outcomes: Sequence[Outcome], objectives: Sequence[Objective]) -> Reference:
    fronts = np.concatenate([outcome.front for outcome in outcomes])
    if len(fronts):
        signed = fronts * np.array([item.sign for item in objectives])
        return Reference(name, fronts[np.lexsort(signed.T[::-1])[0]])
    missed = [outcome for outcome in outcomes if outcome.miss_objectives is not None]
    if not missed:
        raise ValueError("no plan exists")
    nearest = min(missed, key=lambda outcome: sum(outcome.miss.values()))
    return Reference(name, np.asarray(nearest.miss_objectives), tuple(nearest.miss))


def _quantity(name: str, value: float, unit: str) -> str:
    return f"{value:.1%}" if name in ("mfu", "hfu") else format_quantity(value, unit)


def thinned(values: NDArray[Any], most: int) -> NDArray[Any]:
    """At most `most` of the rows, evenly spread over their order: the same ones every time."""
    if len(values) <= most:
        return values
    return values[np.arange(most) * len(values) // most]
