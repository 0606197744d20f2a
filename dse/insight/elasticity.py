"""What would help a design: how its step time follows every parameter of chip, network and software.

One batch call: each row is the design with one parameter moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dse.base.columns import unchecked
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate

__all__ = ["Elasticity", "elasticities"]


@dataclass(frozen=True)
class Elasticity:
    """How step time follows one parameter while the plan stays.

    elasticity  ln(step time ratio) / ln(parameter ratio): percent of step time for a percent of the parameter.
                -1: the step takes half as long with twice of it; 0: it does not matter.
    value, stepped   the parameter now and in the step that was tried;  step_time then [s]
    """

    parameter: str
    unit: str
    value: float
    stepped: float
    step_time: float
    elasticity: float


#: Chip fields whose neighbours are other chips, not a little more of the same.
_STRUCTURAL = ("dataflow", "double_buffered", "arrays_per_core", "noc", "dies")
#: Fields that double: a few more of them seldom fill a whole wave of tiles, so a small step would show nothing.
_DOUBLED = ("array_count", "array_rows", "array_columns")


def elasticities(
    design: Design, *, step: float = 0.01
) -> tuple[tuple[Elasticity, ...], tuple[str, ...], tuple[str, ...]]:
    """Percent of step time for a percent of every chip, network and stack parameter, by one batch of columns.

    e = ln(t'/t) / ln(x'/x)     t, t' step time [s] at the parameter's values x and x'
    step   relative step; whole numbers move by the nearest whole step (at least 1), the number of arrays, their rows
           and columns double; shares that end at 1 step down
    Returns those with an effect, largest first; names without effect; names that are 0 now and have no percent.
    The plan stays: a better plan for the changed hardware may gain more.
    """
    names, moves, zero = _moves(design, step)
    changed = _moved(design, names, moves)
    time = evaluate(changed).column("step_time")
    base = float(evaluate(design).column("step_time")[0])
    moved, unmoved = [], []
    for i, (name, (unit, value, stepped)) in enumerate(zip(names, moves, strict=True)):
        after = float(time[i])
        if after == base:
            unmoved.append(name)
        else:
            slope = math.log(after / base) / math.log(stepped / value)
            moved.append(Elasticity(name, unit, value, stepped, after, slope))
    return tuple(sorted(moved, key=lambda item: -abs(item.elasticity))), tuple(unmoved), tuple(zero)


def _moves(design: Design, step: float) -> tuple[list[str], list[tuple[str, float, float]], list[str]]:
    """Names of the parameters, (unit, value, stepped) of each, and the names of those that are 0."""
    names, moves, zero = [], [], []
    models: list[tuple[str, Any]] = [("chip", design.chip), ("stack", design.stack)]
    models += [(f"cluster.tiers.{i}", tier) for i, tier in enumerate(design.cluster.tiers)]
    for prefix, model in models:
        for item in fields(model):
            meta = item.metadata
            if "unit" not in meta or item.name in _STRUCTURAL or item.name == "size":
                continue
            value = float(getattr(model, item.name))
            name = f"{prefix}.{item.name}"
            if value == 0:
                zero.append(name)
                continue
            names.append(name)
            moves.append((meta["unit"], value, _stepped(item.name, value, meta, step)))
    return names, moves, zero


def _stepped(name: str, value: float, meta: Mapping[str, Any], step: float) -> float:
    if name in _DOUBLED:
        return 2.0 * value
    if meta.get("whole"):
        return value + max(1.0, round(step * value))
    high = meta.get("high")
    return value * (1.0 - step) if high is not None and value * (1.0 + step) > high else value * (1.0 + step)


def _moved(design: Design, names: list[str], moves: list[tuple[str, float, float]]) -> Design:
    """The design as columns: row i has parameter i stepped and all others as they are."""
    columns: dict[str, dict[str, np.ndarray]] = {}
    for i, (name, (_, value, stepped)) in enumerate(zip(names, moves, strict=True)):
        prefix, _, item = name.rpartition(".")
        column = np.full(len(names), value)
        column[i] = stepped
        columns.setdefault(prefix, {})[item] = column
    tiers = tuple(
        unchecked(tier, columns.get(f"cluster.tiers.{i}", {})) for i, tier in enumerate(design.cluster.tiers)
    )
    return Design(
        chip=unchecked(design.chip, columns.get("chip", {})),
        cluster=unchecked(design.cluster, {"tiers": tiers}),
        plan=design.plan,
        workload=design.workload,
        stack=unchecked(design.stack, columns.get("stack", {})),
        training=design.training,
        technology=design.constants,
    )
