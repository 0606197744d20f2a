"""Hardware rows and plans of a search as columns: every metric of the designs of a front, to the bits of one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS
from dse.exploration.plans import plan_of
from dse.exploration.problem import Hardware, hardware_groups
from dse.exploration.variables import Floats, Integers, Space
from workloads.plan import CHOICES, SWITCHES, Plan

__all__ = ["blocks", "hardware_of", "metrics_of", "named_plans"]

#: Designs evaluated or written at once; the columns of one block stay in cache.
BLOCK = 8192


def metrics_of(problem: Any, rows: Integers, plans: Integers) -> dict[str, Floats]:
    """Every metric (N,), also the user's, of rows (N, V), each with its own plan (N, P), to the bits of one by one."""
    found = {name: np.empty(len(rows)) for name in METRICS}
    for block in blocks(len(rows)):
        numbers = plans[block].astype(float)
        for hardware in hardware_of(problem, rows[block]):
            members = hardware.rows
            plan = plan_of({name: numbers[members, i] for i, name in enumerate(Plan.names())})
            # one row alone is no column: hardware (1, 1) meets plan (1,)
            paired = len(members) > 1
            result = evaluate(hardware.design(np.arange(len(members)), plan, problem.scene, paired=paired))
            for name, column in found.items():
                column[block.start + members] = result.column(name)
    goals = getattr(problem, "goals", None)
    own = {metric.name: metric.column(found) for metric in (goals.custom if goals else ())}
    return found | own


def hardware_of(problem: Any, rows: Integers) -> list[Hardware]:
    """Hardware of rows, in groups of equal structure; what a row says about its plan is left out."""
    variables = problem.space.variables
    keep = [i for i, variable in enumerate(variables) if not variable.name.startswith("plan.")]
    if len(rows) == 0:
        return []
    return hardware_groups(Space([variables[i] for i in keep]), rows[:, keep], problem.scene)


def blocks(count: int) -> Iterator[slice]:
    """0 .. count - 1 in slices of BLOCK."""
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def named_plans(plans: Integers) -> dict[str, list[Any]]:
    """Columns of plans (N, P) as `Plan.named` gives them one by one."""
    named: dict[str, list[Any]] = {}
    for i, name in enumerate(Plan.names()):
        numbers = plans[:, i].tolist()
        if name in CHOICES:
            named[name] = [CHOICES[name][number] for number in numbers]
        else:
            named[name] = [bool(number) for number in numbers] if name in SWITCHES else numbers
    return named
