"""How sure the order of a front is: intervals of its step times, all designs under the same draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.base.columns import tiled
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS, Result
from dse.exploration.plans import plan_of
from dse.insight.uncertainty import (
    LEVEL,
    Floats,
    constants_drawn,
    market_drawn,
    priced,
    quantiles,
    residual_of,
    share_better,
)
from dse.problem.rows import hardware_of
from workloads.plan import Plan

if TYPE_CHECKING:
    from dse.problem.solved import Solved

__all__ = ["FRONT_COUNT", "FrontUncertainty", "front_results", "front_uncertainty"]

#: Draws a design, and designs, of the columns of a front; designs whose draws are evaluated together.
FRONT_COUNT, FRONT_MOST, AT_ONCE = 64, 200, 100


@dataclass(frozen=True)
class FrontUncertainty:
    """Uncertainty of a front's designs (N,), NaN beyond the first 200.

    low, high          90% interval of the step time [s]
    probability_best   that row 0, the best by the first objective, is better by it than this row (1/2 at row 0)
    """

    low: Floats
    high: Floats
    probability_best: Floats
    source: str


def front_uncertainty(
    report: Solved, *, most: int = FRONT_MOST, count: int = FRONT_COUNT, seed: int = 0
) -> FrontUncertainty:
    """Intervals of a front's step times, and how sure its order is, by the same draws for every design."""
    low, high, better = (np.full(len(report), math.nan) for _ in range(3))
    name, sources, first = report.problem.objectives[0].name, [], None
    for row, found in enumerate(front_results(report, min(len(report), most), count, seed)):
        pair = report.spec.stack.name, found.design.chip.name
        spread, source = residual_of(*pair)
        sources.append(source)
        low[row], _, high[row] = quantiles(
            found, "step_time", spread, pair="+".join(pair), count=count, seed=seed, level=LEVEL
        )
        first = first or (found, spread, pair)
        if name in METRICS:
            better[row] = share_better(first[0], found, name, spreads=[first[1], spread], same=first[2] == pair)
    return FrontUncertainty(low, high, better, "; ".join(dict.fromkeys(sources)))


def front_results(
    report: Solved, n: int, count: int, seed: int, metrics: Sequence[str] = tuple(METRICS)
) -> list[Result]:
    """Results (K,) of the first n designs of a front: all draws of the designs of a group are one paired batch."""
    found: list[Any] = [None] * n
    for start in range(0, n, AT_ONCE):
        _draw_block(report, slice(start, min(start + AT_ONCE, n)), found, count=count, seed=seed, metrics=metrics)
    return found


def _draw_block(
    report: Solved, block: slice, found: list[Any], *, count: int, seed: int, metrics: Sequence[str]
) -> None:
    """The results of a block of a front's designs, into their places."""
    problem, plans = report.problem, report.result.plans[block].astype(float)
    for hardware in hardware_of(problem, report.result.rows[block]):
        members = hardware.rows
        which = np.repeat(np.arange(len(members)), count)
        plan = plan_of({name: plans[members[which], i] for i, name in enumerate(Plan.names())})
        design = hardware.design(which, plan, problem.scene, paired=True)
        stack, constants = constants_drawn(design, count=count, seed=seed)
        prices = market_drawn(design, count=count, seed=seed)
        under = replace(design, stack=tiled(stack, len(members)), technology=tiled(constants, len(members)))
        result = priced(under, evaluate(under), prices and tiled(prices, len(members)))
        for i, row in enumerate(members.tolist()):
            rows = slice(i * count, (i + 1) * count)
            kept = {name: result.column(name)[rows] for name in metrics}
            broken = {name: result.violation(name)[rows] for name in result.violations}
            found[block.start + row] = Result(kept, broken, (count,), design)


