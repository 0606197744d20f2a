"""The sweep equals looking at every plan of every chip one after another; nested and joint searches agree with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import small_network

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.exploration import sweep as sweep_module
from dse.exploration.plans import PlanSpace, PlanTable, enumerate_plans
from dse.exploration.problem import JointProblem, NestedProblem, Scene, joint_space
from dse.exploration.sweep import Goals, sweep
from dse.exploration.variables import Objective, Outcome, Space, Variable
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from hw_models.technology import technology
from workloads.network import Workload
from workloads.plan import CHOICES, Plan, data_degree
from workloads.precision import Training

DEVICES = 8
WORKLOAD = Workload(small_network(layers=4, hidden=512, heads=4, kv_heads=2, ffn=2048, vocabulary=1000), 128, 8)
CLUSTER = Cluster(DEVICES, (Tier(4, latency=1e-6), Tier(DEVICES, bandwidth=2.5e10, latency=5e-6)))
OBJECTIVES = (
    Objective("throughput", "maximize", "token/s"),
    Objective("energy_per_token", "minimize", "J"),
    Objective("memory", "minimize", "B"),
)
GOALS = Goals(OBJECTIVES)
#: Small memories, so that some plans fit and some do not.
CAPACITIES = (2.2e8, 2.6e8, 4e8, 8e8)
QUIET = replace(stack("generic"), memory_reserve=1e8)


@cache
def plans() -> PlanTable:
    return enumerate_plans(WORKLOAD, DEVICES)


def chip_columns(count: int = 5) -> Chip:
    rng = np.random.default_rng(17)
    return Chip(
        array_count=rng.integers(1, 9, (count, 1)).astype(float),
        hbm_stack_bandwidth=2e11 * (1 + rng.random((count, 1))),
        link_bandwidth=1e10 * (1 + 4 * rng.random((count, 1))),
        hbm_stack_capacity=np.resize(CAPACITIES, (count, 1)) / 4,
    )


def at(model: Chip, index: Any) -> Chip:
    return replace(
        model,
        **{
            name: value[index]
            for name, value in vars(model).items()
            if isinstance(value, np.ndarray) and value.ndim == 2
        },
    )


def design(chips: Chip, plan: Plan) -> Design:
    return Design(chips, CLUSTER, plan, WORKLOAD, QUIET)


def brute_force(chip: Chip, goals: Goals, table: PlanTable) -> dict[str, Any]:
    """Every plan on one chip: counts, the front as a set of points, the nearest miss."""
    result = evaluate(design(chip, table.rows(0, len(table))))
    violations = {name: result.violation(name) for name in result.violations}
    for metric, relation, limit in goals.limits:
        column = result.column(metric)
        violations[metric] = (column - limit if relation == "<=" else limit - column) / abs(limit)
    values = np.stack([result.column(objective.name) for objective in goals.objectives], axis=-1)
    positive = [np.maximum(column, 0.0) for column in violations.values()]
    total = np.zeros(len(table))
    for column in positive:
        total = total + column
    good = total == 0
    signed = values * [objective.sign for objective in goals.objectives]
    candidates = signed[good]
    front = set()
    for point, natural in zip(candidates, values[good], strict=True):
        beaten = np.all(candidates <= point, axis=1) & np.any(candidates < point, axis=1)
        if not beaten.any():
            front.add(tuple(natural))
    return {
        "evaluated": len(table),
        "feasible": int(good.sum()),
        "failures": {name: int((column > 0).sum()) for name, column in violations.items() if np.any(column > 0)},
        "front": front,
        "values": values,
        "total": total,
        "miss": int(np.argmin(total)),
    }


def check(outcome: Outcome, expected: dict[str, Any], table: PlanTable) -> None:
    assert outcome.evaluated == expected["evaluated"]
    assert outcome.feasible == expected["feasible"]
    assert dict(outcome.failures) == expected["failures"]
    points = [tuple(row) for row in outcome.front]
    assert len(points) == len(set(points)), "a point twice"
    assert set(points) == expected["front"]
    # each point of the front belongs to the plan beside it
    known = {tuple(row): i for i, row in enumerate(table.numbers(np.arange(len(table))))}
    for point, plan in zip(points, outcome.plans, strict=True):
        assert tuple(expected["values"][known[tuple(plan)]]) == point
    if points:
        assert not outcome.miss and outcome.miss_plan is None
    else:
        assert outcome.miss_plan is not None
        assert sum(outcome.miss.values()) == pytest.approx(expected["total"].min(), rel=1e-12)
        assert expected["total"][known[tuple(outcome.miss_plan)]] == expected["total"].min()


LIMITS: dict[str, tuple[tuple[str, str, float], ...]] = {
    "memory alone": (),
    "a step time that few plans keep": (("step_time", "<=", 4e-3),),
    "a throughput that no plan reaches": (("throughput", ">=", 1e12),),
}


@pytest.mark.parametrize("name", list(LIMITS))
def test_the_sweep_equals_brute_force(name: str) -> None:
    chips, goals, table = chip_columns(), Goals(OBJECTIVES, LIMITS[name]), plans()
    found = sweep(lambda part, plan: design(at(chips, part), plan), 5, table, goals)
    seen = []
    for i, outcome in enumerate(found):
        expected = brute_force(at(chips, slice(i, i + 1)), goals, table)
        check(outcome, expected, table)
        seen.append(expected["feasible"])
    if name == "memory alone":
        assert 0 < min(seen) < max(seen) <= len(table)


def as_tuple(outcome: Outcome) -> tuple[Any, ...]:
    return (
        outcome.evaluated,
        outcome.feasible,
        sorted(outcome.failures.items()),
        outcome.front.tolist(),
        outcome.plans.tolist(),
        sorted(outcome.miss.items()),
        None if outcome.miss_plan is None else outcome.miss_plan.tolist(),
        None if outcome.miss_objectives is None else np.asarray(outcome.miss_objectives).tolist(),
    )


def same(left: list[Outcome], right: list[Outcome]) -> None:
    for one, two in zip(left, right, strict=True):
        for a, b in zip(as_tuple(one), as_tuple(two), strict=True):
            # a missing objective may be NaN
            assert repr(a) == repr(b)


@pytest.mark.parametrize("name", list(LIMITS))
@pytest.mark.parametrize(("block", "chunk"), [(1, 1000), (503, 97), (65536, 8192), (4096, 1), (10**7, 10**6)])
def test_the_size_of_blocks_changes_nothing(name: str, block: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chips, goals = chip_columns(3), Goals(OBJECTIVES, LIMITS[name])
    table = plans().select(np.arange(0, len(plans()), 29 if chunk == 1 else 3))
    whole = sweep(lambda part, plan: design(at(chips, part), plan), 3, table, goals)
    monkeypatch.setattr(sweep_module, "BLOCK", block)
    monkeypatch.setattr(sweep_module, "PLANS", chunk)
    same(sweep(lambda part, plan: design(at(chips, part), plan), 3, table, goals), whole)


def test_a_sweep_without_plans_finds_nothing() -> None:
    empty = plans().select(np.zeros(len(plans()), dtype=bool))
    for outcome in sweep(lambda part, plan: design(at(chip_columns(), part), plan), 5, empty, GOALS):
        assert (outcome.evaluated, outcome.feasible, len(outcome.front)) == (0, 0, 0)
        assert outcome.miss_plan is None


# --- Nested and joint problems ---------------------------------------------------------------------------------------


def scene() -> Scene:
    return Scene(Chip(), CLUSTER, WORKLOAD, Training(), QUIET, technology)


def hardware_space() -> Space:
    return Space(
        [
            Variable("chip.array_count", (1, 2, 8)),
            Variable("chip.hbm_stack_capacity", tuple(value / 4 for value in CAPACITIES), "B"),
            Variable("chip.process", ("7nm", "16nm")),
            Variable("chip.link_bandwidth", (1e10, 5e10), "B/s"),
        ]
    )


#: Fewer choices, so that brute force over chips and plans stays quick.
SMALL = PlanSpace(recompute=(0, 2), overlap_pipeline=(1,), order=(0, 1, 3))


def nested(goals: Goals = GOALS, plan_space: PlanSpace = SMALL) -> NestedProblem:
    return NestedProblem(hardware_space(), scene(), goals, plan_space, name="nested")


def some_rows(problem: Any, count: int = 11) -> np.ndarray:
    numbers = np.random.default_rng(5).choice(problem.space.size, count, replace=False)
    return np.asarray(problem.space.index_to_row(numbers))


def chip_of(problem: Any, row: np.ndarray) -> Chip:
    values = problem.space.values(row)
    return replace(
        Chip(), **{name.removeprefix("chip."): value for name, value in values.items() if name.startswith("chip.")}
    )


def test_the_problem_counts_chips_times_plans() -> None:
    assert nested().designs == hardware_space().size * len(enumerate_plans(WORKLOAD, DEVICES, SMALL))


def test_a_nested_row_equals_brute_force_over_all_plans() -> None:
    problem, table = nested(), enumerate_plans(WORKLOAD, DEVICES, SMALL)
    chosen = some_rows(problem)
    found = problem.evaluate(chosen)
    for row, outcome in zip(chosen, found, strict=True):
        expected = brute_force(chip_of(problem, row), GOALS, table)
        assert (outcome.evaluated, outcome.feasible) == (expected["evaluated"], expected["feasible"])
        assert dict(outcome.failures) == expected["failures"]
        assert {tuple(point) for point in outcome.front} == expected["front"]
        assert len(outcome.front) == len(expected["front"])
    assert len({outcome.feasible for outcome in found}) > 2


def test_a_nested_row_alone_equals_the_same_row_in_a_batch() -> None:
    problem = nested()
    chosen = some_rows(problem, 13)
    together = problem.evaluate(chosen)
    same([nested().evaluate(row)[0] for row in chosen], together)
    same(problem.evaluate(chosen[::-1])[::-1], together)


def test_the_nearest_miss_is_the_nearest_of_all_plans_where_nothing_fits() -> None:
    tight = Space([Variable("chip.hbm_stack_capacity", (2.6e7, 2.7e7), "B"), Variable("chip.array_count", (1, 2))])
    problem = NestedProblem(tight, scene(), GOALS, PlanSpace(), name="tight")
    table = enumerate_plans(WORKLOAD, DEVICES, PlanSpace())
    chosen = tight.index_to_row(np.arange(4))
    for row, outcome in zip(chosen, problem.evaluate(chosen), strict=True):
        expected = brute_force(chip_of(problem, row), GOALS, table)
        assert expected["feasible"] == outcome.feasible == 0
        assert sum(outcome.miss.values()) == pytest.approx(expected["total"].min(), rel=1e-12)


def test_a_chip_over_its_own_limit_has_no_front_and_says_why() -> None:
    problem = nested(Goals(OBJECTIVES, (("die_area", "<=", 1e-6),)))
    for outcome in problem.evaluate(some_rows(problem, 5)):
        assert outcome.feasible == 0 and len(outcome.front) == 0
        assert outcome.failures["die_area"] == outcome.evaluated
        assert outcome.miss["die_area"] > 0


def test_every_constraint_that_fails_is_announced() -> None:
    problem = nested(Goals(OBJECTIVES, (("step_time", "<=", 1e-3),)))
    for outcome in problem.evaluate(some_rows(problem, 7)):
        assert set(outcome.failures) <= set(problem.constraints)


def test_a_joint_design_equals_the_same_plan_in_the_nested_front() -> None:
    inner = nested()
    outer = JointProblem(
        joint_space(hardware_space(), WORKLOAD, (DEVICES,), SMALL), scene(), GOALS, SMALL, name="joint"
    )
    rows = []
    expected = []
    for row, outcome in zip(some_rows(inner, 7), inner.evaluate(some_rows(inner, 7)), strict=True):
        chosen = inner.space.values(row)
        for point, plan in zip(outcome.front, outcome.plans, strict=True):
            values = dict(zip(Plan.names(), plan.tolist(), strict=True))
            values.pop("data")
            named = {f"plan.{k}": CHOICES[k][v] if k in CHOICES else v for k, v in values.items()}
            rows.append(outer.space.nearest({**chosen, **{k: v for k, v in named.items() if k in outer.space.names}}))
            expected.append((point.tolist(), plan.tolist()))
    assert len(rows) > 20
    together = outer.evaluate(np.array(rows))
    for outcome, (point, plan) in zip(together, expected, strict=True):
        assert outcome.feasible == 1
        assert outcome.front.tolist() == [point]
        assert outcome.plans.tolist() == [plan]
    for row, outcome in list(zip(rows, together, strict=True))[:9]:
        same(outer.evaluate(row), [outcome])


def test_a_joint_design_that_breaks_rules_is_a_miss_with_numbers() -> None:
    outer = JointProblem(
        joint_space(hardware_space(), WORKLOAD, (DEVICES,), SMALL), scene(), GOALS, SMALL, name="joint"
    )
    rows = some_rows(outer, 401)
    outcomes = outer.evaluate(rows)
    broken = [outcome for outcome in outcomes if not outcome.feasible]
    assert 0 < len(broken) < 401
    for outcome in broken:
        assert outcome.miss and all(value > 0 for value in outcome.miss.values())
        assert set(outcome.failures) == set(outcome.miss) <= set(outer.constraints)
        assert outcome.miss_plan is not None and outcome.miss_objectives is not None


def test_the_data_axis_takes_the_devices_that_all_other_axes_leave() -> None:
    assert int(data_degree(8, tensor=2, pipeline=1, context=2)) == 2
    assert int(data_degree(48, tensor=4, pipeline=3, context=1)) == 4
    assert data_degree(np.array([64.0, 8.0]), tensor=2, pipeline=4, context=np.array([4.0, 16.0])).tolist() == [2, 1]


def test_joint_rows_with_context_ranks_use_the_devices_that_there_are() -> None:
    """Every row whose degrees divide the devices uses all of them, whatever its axes, and some of them are feasible."""
    wide = PlanSpace(context=(1, 2, 4), tensor=(1, 2), pipeline=(1, 2))
    outer = JointProblem(
        joint_space(hardware_space(), WORKLOAD, (DEVICES,), wide), scene(), GOALS, wide, name="joint"
    )
    rows = some_rows(outer, 401)
    feasible = 0
    for row, outcome in zip(rows, outer.evaluate(rows), strict=True):
        number = outcome.plans[0] if outcome.feasible else outcome.miss_plan
        assert number is not None
        plan = dict(zip(Plan.names(), number.tolist(), strict=True))
        others = plan["tensor"] * plan["pipeline"] * plan["context"]
        assert plan["context"] == outer.space.values(row)["plan.context"]
        assert plan["data"] * others == DEVICES or DEVICES % others
        feasible += outcome.feasible and plan["context"] > 1
    assert feasible > 5


def test_feasible_joint_designs_never_beat_the_nested_front_of_their_chip() -> None:
    outer = JointProblem(
        joint_space(hardware_space(), WORKLOAD, (DEVICES,), SMALL), scene(), GOALS, SMALL, name="joint"
    )
    rows = some_rows(outer, 401)
    signs = [objective.sign for objective in OBJECTIVES]
    inner = nested()
    checked = 0
    for row, outcome in zip(rows, outer.evaluate(rows), strict=True):
        if outcome.feasible and checked < 23:
            values = outer.space.values(row)
            chip = inner.space.nearest({name: values[name] for name in inner.space.names})
            front = inner.evaluate(chip)[0].front * signs
            point = outcome.front[0] * signs
            assert np.any(np.all(front <= point, axis=1)), "a plan outside the table beats it"
            checked += 1
    assert checked > 5


def test_the_design_of_a_row_evaluates_to_the_bits_of_its_front() -> None:
    problem = nested()
    for row in some_rows(problem, 3):
        outcome = problem.evaluate(row)[0]
        for point, plan in list(zip(outcome.front, outcome.plans, strict=True))[:3]:
            result = evaluate(problem.design(row, plan))
            assert [result.value(objective.name) for objective in OBJECTIVES] == point.tolist()
