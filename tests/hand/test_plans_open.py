"""The plan space with every field open, of a small mixture: brute force as a set, the search's front, broken rules."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import small_network
from mixture import DEVICES, MIXTURE, SEQUENCE

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.exploration.plans import PlanSpace, enumerate_plans, plan_of
from dse.exploration.problem import NestedProblem, Scene
from dse.exploration.sweep import Goals
from dse.exploration.variables import Objective, Space, Variable
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from hw_models.technology import technology
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training

FEW = 4
SMALL = small_network(
    layers=3, hidden=256, heads=4, ffn=512, vocabulary=64, gated=True, experts=4, experts_per_token=2, expert_ffn=256,
    shared_ffn=256, lead_layers=1,
)  # fmt: skip
LITTLE = Workload(SMALL, 8, FEW)
OPEN: dict[str, tuple[int, ...]] = {
    "interleave": (1,), "sequence_parallel": (0, 1), "schedule": (1, 2), "zero_stage": (0, 3), "recompute": (0, 3),
    "overlap_data": (1,), "overlap_pipeline": (1,), "split": (0,), "order": (0,), "expert": (1, 2, 4),
    "expert_tensor": (0, 1), "zero_group": (0, 2), "reshard": (0, 1), "offload": (0, 2), "recompute_layers": (0, 1),
    "context_ring": (0, 1), "overlap_tensor": (0, 1), "overlap_expert": (0, 1),
}  # fmt: skip


@cache
def every_plan() -> dict[str, np.ndarray]:
    """Every combination of the fields that breaks no rule, by rules written out once more."""
    degrees = [d for d in product((1, 2, 4), repeat=4) if np.prod(d) == FEW and d[1] <= 3]
    grid = np.meshgrid(np.arange(len(degrees)), (1, 2, 4), *OPEN.values(), indexing="ij")
    index, micro_batch, *others = (axis.reshape(-1) for axis in grid)
    c = dict(zip(OPEN, others, strict=True)) | {"micro_batch": micro_batch}
    c |= dict(zip(("tensor", "pipeline", "data", "context"), np.array(degrees)[index].T, strict=True))
    ranks = c["data"] * c["context"]
    copies = np.where(c["expert_tensor"] > 0, ranks, ranks * c["tensor"])
    good = (FEW % (c["data"] * c["micro_batch"]) == 0) & (copies % c["expert"] == 0)
    good &= 8 % (c["context"] * np.where(c["sequence_parallel"] > 0, c["tensor"], 1)) == 0
    good &= (c["schedule"] == 1) | (c["pipeline"] > 1)
    group = np.where((c["zero_group"] > 0) & (c["zero_group"] < ranks), c["zero_group"], 1)
    same = np.maximum(copies // c["expert"], 1)
    good &= (ranks % group == 0) & (same % np.minimum(group, same) == 0)
    return {name: c[name][good] for name in Plan.names()}


def canonical(c: dict[str, np.ndarray]) -> set[tuple[int, ...]]:
    """The plans under the name of their neutral values."""
    c = {name: column.copy() for name, column in c.items()}
    ranks, count = c["data"] * c["context"], FEW // (c["data"] * c["micro_batch"])
    c["expert_tensor"][c["tensor"] == 1] = 1
    # whole experts may have copies on other tensor ranks, which ZeRO may split
    whole = np.where(c["expert_tensor"] == 0, c["tensor"] // c["expert"] > 1, False)
    c["zero_stage"][(ranks == 1) & ~whole] = 0
    c["sequence_parallel"][c["tensor"] == 1] = 0
    c["overlap_tensor"][c["sequence_parallel"] == 0] = 0
    c["overlap_expert"][c["expert"] == 1] = 0
    c["schedule"][c["pipeline"] == 1] = 1
    assert np.all(count >= 1)
    c["zero_group"][(c["zero_stage"] == 0) | (c["zero_group"] >= ranks)] = 0
    c["reshard"][c["zero_stage"] < 3] = 1
    c["context_ring"][c["context"] == 1] = 1
    # of three layers the first leads: two of one stage recompute, one of each of two
    most = np.where(c["pipeline"] == 1, 2, 1)
    c["recompute_layers"][(c["recompute"] == 0) | (c["recompute_layers"] >= most)] = 0
    return set(map(tuple, np.stack(list(c.values()), axis=-1).tolist()))


def open_space() -> PlanSpace:
    return replace(PlanSpace.of({name: list(values) for name, values in OPEN.items()}), context=None)


def test_the_table_of_plans_with_every_field_open_is_the_brute_force_as_a_set() -> None:
    found = enumerate_plans(LITTLE, FEW, open_space())
    listed = [tuple(row) for row in found.numbers(np.arange(len(found))).tolist()]
    assert len(listed) == len(set(listed)), "a plan twice"
    assert set(listed) == canonical(every_plan())
    for name, values in OPEN.items():
        assert set(found.columns[name].tolist()) == set(values), name


def test_the_nested_search_over_every_field_is_the_front_of_all_plans() -> None:
    """All valid plans, under every name they have, give no point that the search over the table lacks."""
    objectives = (
        Objective("throughput", "maximize", "token/s"), Objective("energy_per_token", "minimize", "J"),
        Objective("memory", "minimize", "B"),
    )  # fmt: skip
    fabric = Cluster(FEW, (Tier(2, latency=1e-6), Tier(FEW, bandwidth=2.5e10, latency=5e-6)))
    software = replace(stack("generic"), memory_reserve=1e6)
    space = Space(
        [Variable("chip.hbm_stack_capacity", (1e7, 2e9), "B"), Variable("chip.link_bandwidth", (1e9,), "B/s")]
    )
    scene = Scene(Chip(), fabric, LITTLE, Training(), software, technology)
    problem = NestedProblem(space, scene, Goals(objectives), open_space(), name="nested")
    chosen = np.asarray(space.index_to_row(np.arange(space.size)))
    plans, listed = every_plan(), len(enumerate_plans(LITTLE, FEW, open_space()))
    some_fit = []
    for row, outcome in zip(chosen, problem.evaluate(chosen), strict=True):
        values = {name.removeprefix("chip."): value for name, value in space.values(row).items()}
        found = evaluate(Design(replace(Chip(), **values), fabric, plan_of(plans), LITTLE, software))
        points = np.stack([found.column(objective.name) for objective in objectives], axis=-1)
        good = np.unique(points[found.feasible], axis=0)
        signed = good * [objective.sign for objective in objectives]
        best = [
            tuple(point)
            for point, own in zip(good.tolist(), signed, strict=True)
            if not np.any(np.all(signed <= own, axis=1) & np.any(signed < own, axis=1))
        ]
        assert {tuple(point) for point in outcome.front.tolist()} == set(best)
        assert outcome.evaluated == listed
        some_fit.append(len(best))
    assert max(some_fit) > 3


# --- Broken rules have names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "value", "plan"),
    [
        ("sequence % (context * tensor with sequence parallel)", 3.0, {"context": 5}),
        ("experts % expert", 2.0, {"data": 3, "expert": 3}),
        ("(data * context) % expert", 2.0, {"data": 2, "expert": 4}),
        ("(data * context) % expert", 2.0, {"context": 6, "expert": 4}),
        ("(data * context) % zero_group", 2.0, {"data": 8, "zero_stage": 3, "zero_group": 3}),
        # six copies of an expert's weights do not fall into groups of four, though twelve ranks do
        ("(data * context) % zero_group", 2.0, {"data": 12, "expert": 2, "zero_stage": 3, "zero_group": 4}),
        ("zero_bubble needs pipeline > 1, interleave 1", 1.0, {"schedule": "zero_bubble"}),
        ("leading layers on the first stage", 0.0, {"pipeline": 6}),
        ("tensor * pipeline * data * context == devices", 24.0, {"data": 4, "context": 12}),
    ],
)
def test_a_broken_rule_has_a_name_and_a_number(rule: str, value: float, plan: dict[str, Any]) -> None:
    chosen = Plan(**plan)
    devices = DEVICES if rule.startswith("tensor") else chosen.pipeline * chosen.data * chosen.context
    workload = Workload(MIXTURE, SEQUENCE, 24)
    found = evaluate(Design(chip("a100-sxm-80gb"), Cluster(devices, (Tier(devices),)), chosen, workload))
    assert found.violation(rule)[0] == value


def test_leading_layers_that_the_first_stage_cannot_hold_are_a_named_number() -> None:
    net = replace(MIXTURE, lead_layers=3)
    found = evaluate(
        Design(chip("a100-sxm-80gb"), Cluster(6, (Tier(6),)), Plan(pipeline=6), Workload(net, SEQUENCE, 6))
    )
    assert found.violated()["leading layers on the first stage"] == 2.0
