"""Exact sweep: every plan on every chip, reduced on the way to each chip's best plans and failure counts.

Plans are cut into chunks and chips into groups so that one block of columns stays in cache; nothing grows
with the number of designs except the fronts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate_rows
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.metrics import Metric
from dse.evaluation.result import Result
from dse.exploration.pareto import non_dominated
from dse.exploration.plans import PlanTable
from dse.exploration.variables import Objective, Outcome
from workloads.plan import Plan

#: Elements of one block (chips x plans): large enough to pay for the plans' layout and the numpy calls.
BLOCK = 65536
#: Plans of one block.
PLANS = 8192


@dataclass(frozen=True)
class Goals:
    """What is wanted: objectives, and limits on metrics as (metric, "<=" or ">=", value).

    custom   metrics of the user's own that objectives and limits name"""

    objectives: tuple[Objective, ...]
    limits: tuple[tuple[str, str, float], ...] = ()
    custom: tuple[Metric, ...] = ()

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics of a result that are looked at."""
        own = {metric.name: metric.needs for metric in self.custom}
        named = (*(objective.name for objective in self.objectives), *(limit[0] for limit in self.limits))
        return frozenset(need for name in named for need in own.get(name, (name,)))

    def column(self, result: Result, name: str) -> Any:
        """One metric of every design, the result's or the user's."""
        own = next((metric for metric in self.custom if metric.name == name), None)
        return result.metrics[name] if own is None else own.column(result.metrics)

    def values(self, result: Result) -> np.ndarray:
        """Objectives of every design, natural sign (J, ...shape)."""
        return np.stack([np.broadcast_to(self.column(result, o.name), result.shape) for o in self.objectives])

    def signs(self) -> np.ndarray:
        """-1 for objectives that are maximised, so that all are minimised (J,)."""
        return np.array([-1.0 if o.direction == "maximize" else 1.0 for o in self.objectives])

    def violations(self, result: Result) -> dict[str, np.ndarray]:
        """Rules of the design and limits of the search, feasible at <= 0, relative to the limit."""
        found = dict(result.violations)
        for metric, relation, limit in self.limits:
            scale = abs(limit) if limit else 1.0
            value = self.column(result, metric)
            excess = value - limit if relation == "<=" else limit - value
            found[metric] = excess / scale
        return found


class Best:
    """The best plans of one chip so far, failure counts and the nearest miss."""

    def __init__(self, objectives: int) -> None:
        self.evaluated = 0
        self.feasible = 0
        self.failures: dict[str, int] = {}
        self.values = np.zeros((0, objectives))
        self.plans = np.zeros(0, dtype=np.int64)
        self.miss_total = np.inf
        self.miss: dict[str, float] = {}
        self.miss_plan: int | None = None
        self.miss_values = np.full(objectives, np.nan)

    def add(self, values: np.ndarray, plans: np.ndarray, signs: np.ndarray) -> None:
        """Merge feasible plans (k, J), (k,) into the front; equal points keep the earlier plan."""
        signed = values * signs
        if self.values.size:
            # a handful of points removes almost all: cheap before the exact test
            best = (self.values * signs)[:8]
            keep = np.ones(len(signed), dtype=bool)
            for point in best:
                keep &= ~np.all(signed >= point, axis=1)
            values, plans, signed = values[keep], plans[keep], signed[keep]
        else:
            pivot = signed[np.argmin(signed[:, 0])]
            keep = ~(np.all(signed >= pivot, axis=1) & np.any(signed > pivot, axis=1))
            values, plans, signed = values[keep], plans[keep], signed[keep]
        if not len(values):
            return
        joined = np.concatenate([self.values, values])
        numbers = np.concatenate([self.plans, plans])
        keep = non_dominated(joined * signs)
        joined, numbers = joined[keep], numbers[keep]
        _, first = np.unique(joined, axis=0, return_index=True)
        first = np.sort(first)
        self.values, self.plans = joined[first], numbers[first]


@dataclass(frozen=True)
class Piece:
    """Plans start..stop-1 of a table, for the chips whose numbers are listed."""

    start: int
    stop: int
    chips: np.ndarray


class Layouts:
    """Layouts of chunks of one plan table, kept for the next chips while they are few."""

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep
        self._kept: dict[tuple[int, int], Layout] = {}

    def of(self, plans: PlanTable, start: int, stop: int, design: Design) -> Layout:
        """The layout of plans start..stop-1 for the design's workload and training."""
        found = self._kept.get((start, stop))
        if found is None:
            found = lay_out(plans.rows(start, stop), design.workload, design.training, paired=False)
            if len(self._kept) < self._keep:
                self._kept[start, stop] = found
        return found


def sweep(
    design_of: Callable[[np.ndarray, Plan], Design], chips: int, plans: PlanTable, goals: Goals,
    pieces: Sequence[Piece] | None = None, layouts: Layouts | None = None,
) -> list[Outcome]:
    """The best plans of each of `chips` chips out of all `plans`, or of the pieces that concern it.

    design_of(chips, plan)   the design of numbered chips, hardware columns (H, 1), with a plan of columns
    Returns one `Outcome` a chip: inner front over the objectives, counts of violated constraints, nearest miss.
    """
    signs = goals.signs()
    layouts = layouts or Layouts()
    best = [Best(len(goals.objectives)) for _ in range(chips)]
    for piece in pieces or [Piece(0, len(plans), np.arange(chips))]:
        chunk = max(min(PLANS, piece.stop - piece.start), 1)
        width = max(1, BLOCK // chunk)
        groups = [piece.chips[at : at + width] for at in range(0, len(piece.chips), width)]
        first = plans.rows(piece.start, piece.start + 1)
        designs = [design_of(group, first) for group in groups]
        hardware = [rows(design) for design in designs]
        for start in range(piece.start, piece.stop, chunk):
            layout = layouts.of(plans, start, min(start + chunk, piece.stop), designs[0])
            for group, chosen in zip(groups, hardware, strict=True):
                result = evaluate_rows(replace(chosen, plan=layout.plan), layout, goals.metrics)
                _merge(best, group, _reduce(result, goals, signs, start), signs)
    return [_outcome(found, plans) for found in best]


@dataclass(frozen=True)
class _Block:
    evaluated: int
    feasible: np.ndarray
    failures: dict[str, np.ndarray]
    candidates: list[tuple[np.ndarray, np.ndarray]]
    misses: list[tuple[float, dict[str, float], int, np.ndarray] | None]


def _reduce(result: Result, goals: Goals, signs: np.ndarray, start: int) -> _Block:
    """Counts, candidates for the front and nearest misses of one block (H, P)."""
    chips, plans = result.shape
    violations = goals.violations(result)
    good: Any = np.ones(result.shape, dtype=bool)
    failures = {}
    for name, values in violations.items():
        bad = values > 0
        if bad.any():
            failures[name] = np.broadcast_to(bad, result.shape).sum(axis=1)
            good &= ~bad
    values = goals.values(result)
    broken = ~np.isfinite(values).all(axis=0)
    good &= ~broken
    if broken.any():
        failures["not a number"] = broken.sum(axis=1)
    candidates, misses = [], []
    for chip in range(chips):
        index = np.flatnonzero(good[chip])
        chosen = values[:, chip, index].T
        if len(chosen):
            signed = chosen * signs
            pivot = signed[np.argmin(signed[:, 0])]
            keep = ~(np.all(signed >= pivot, axis=1) & np.any(signed > pivot, axis=1))
            index, chosen = index[keep], chosen[keep]
            keep = non_dominated(chosen * signs)
            index, chosen = index[keep], chosen[keep]
        candidates.append((chosen, index + start))
        misses.append(None if len(index) else _nearest_miss(violations, values, chip, result.shape, start))
    return _Block(plans, good.sum(axis=1), failures, candidates, misses)


def _nearest_miss(
    violations: dict[str, np.ndarray], values: np.ndarray, chip: int, shape: tuple[int, ...], start: int
) -> tuple[float, dict[str, float], int, np.ndarray]:
    total: Any = np.zeros(shape[1])
    for name in violations:
        total = total + np.maximum(np.broadcast_to(violations[name], shape)[chip], 0.0)
    at = int(np.argmin(total))
    each = {name: float(np.broadcast_to(table, shape)[chip, at]) for name, table in violations.items()}
    return float(total[at]), {name: value for name, value in each.items() if value > 0}, at + start, values[:, chip, at]


def _merge(best: list[Best], group: np.ndarray, block: _Block, signs: np.ndarray) -> None:
    for i, chip in enumerate(group):
        found = best[chip]
        found.evaluated += block.evaluated
        found.feasible += int(block.feasible[i])
        for name, counts in block.failures.items():
            if counts[i]:
                found.failures[name] = found.failures.get(name, 0) + int(counts[i])
        values, index = block.candidates[i]
        if len(values):
            found.add(values, index, signs)
        miss = block.misses[i]
        if miss is not None and miss[0] < found.miss_total:
            found.miss_total, found.miss, found.miss_plan, found.miss_values = miss


def _outcome(found: Best, plans: PlanTable) -> Outcome:
    has_front = len(found.plans) > 0
    miss_plan = None if has_front or found.miss_plan is None else plans.numbers(np.array([found.miss_plan]))[0]
    return Outcome(
        evaluated=found.evaluated,
        feasible=found.feasible,
        failures=found.failures,
        front=found.values,
        plans=plans.numbers(found.plans),
        miss={} if has_front else found.miss,
        miss_plan=miss_plan,
        miss_objectives=None if miss_plan is None else found.miss_values,
    )
