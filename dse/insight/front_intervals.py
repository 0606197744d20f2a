"""A front with its uncertainty: where each objective of each design lies, and how often a design stays on the front.

All designs are under the same draws of constants (common random numbers), so that what they share cancels between
them.  Draws and residuals are those of `dse.insight.uncertainty`; theory: docs/models/uncertainty.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.evaluation.result import METRICS, Result
from dse.exploration.pareto import non_dominated
from dse.insight.front_uncertainty import front_results
from dse.insight.uncertainty import residual_of, time_power, uniform

if TYPE_CHECKING:
    from dse.problem.solved import Solved

__all__ = ["LEVEL", "FrontIntervals", "front_intervals"]

Floats = NDArray[np.float64]

#: Probability between low and high; draws a design; most designs.
LEVEL, COUNT, MOST = 0.8, 256, 1_000
#: Metrics that say how a residual of the step time reaches the others.
_STATIC = ("energy_static", "energy_per_step", "energy_per_token")


@dataclass(frozen=True)
class FrontIntervals:
    """Uncertainty of a front's designs (N) by objective (J), all under the same draws.

    low, high       (N, J) ends of the interval of probability `level`, in the objective's unit; NaN where an objective
                    is no metric, and beyond the first `designs` designs
    on_front        (N,) share of draws in which none of the other designs beats it in every objective
    within_limits   (N,) share of draws in which memory fits and the search's limits hold
    source          what the intervals rest on, as of `dse.insight.uncertainty.Interval`
    """

    objectives: tuple[str, ...]
    level: float
    draws: int
    designs: int
    low: Floats
    high: Floats
    on_front: Floats
    within_limits: Floats
    source: str

    def to_plain(self) -> dict[str, Any]:
        """The uncertainty as JSON-able data in base SI, one entry a design."""
        rows = []
        for i in range(self.designs):
            ends = {
                name: {"low": float(self.low[i, j]), "high": float(self.high[i, j])}
                for j, name in enumerate(self.objectives)
            }
            shares = {"on_front": float(self.on_front[i]), "within_limits": float(self.within_limits[i])}
            rows.append({"row": i, "objectives": ends, **shares})
        return {"level": self.level, "draws": self.draws, "source": self.source, "designs": rows}


def front_intervals(
    report: Solved, *, level: float = LEVEL, count: int = COUNT, most: int = MOST, seed: int = 0
) -> FrontIntervals:
    """Intervals of every objective of a front, and the share of draws in which each design stays on it.

    In draw k every design has the constants of draw k and, by its pair of stack and chip, the same residual of the
    step time: a residual widens intervals and changes no order within a pair.  Only designs of the front meet: one
    that was beaten at the table's constants does not come back.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: found {level!r}, allowed: a number between 0 and 1")
    objectives = tuple(item.name for item in report.problem.objectives)
    n = min(len(report), most)
    low, high = (np.full((len(report), len(objectives)), math.nan) for _ in range(2))
    on_front, within = (np.full(len(report), math.nan) for _ in range(2))
    drawn, sources, kept = _drawn(report, n, count, seed, objectives=objectives)
    if n:
        low[:n], high[:n] = np.quantile(drawn, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=1)
        on_front[:n] = _share_on_front(report, drawn)
        within[:n] = kept
    return FrontIntervals(
        objectives, level, count, n, low, high, on_front, within, "; ".join(dict.fromkeys(sources))
    )


def _drawn(
    report: Solved, n: int, count: int, seed: int, *, objectives: tuple[str, ...]
) -> tuple[Floats, list[str], Floats]:
    """Objectives (N, K, J) under the draws, what each design rests on, and its share of draws within limits (N,)."""
    from scipy.special import ndtri

    limits = report.spec.constraints
    wanted = [name for name in dict.fromkeys([*objectives, *(c.metric for c in limits), *_STATIC]) if name in METRICS]
    values = np.full((n, count, len(objectives)), math.nan)
    sources, kept = [], np.empty(n)
    for i, result in enumerate(front_results(report, n, count, seed, wanted)):
        pair = report.spec.stack.name, result.design.chip.name
        spread, source = residual_of(*pair)
        sources.append(source)
        residual = spread * ndtri(uniform(f"residual {'+'.join(pair)}", count, seed))
        columns = {name: _under(result, name, residual) for name in wanted}
        for j, name in enumerate(objectives):
            if name in columns:
                values[i, :, j] = columns[name]
        kept[i] = np.mean(_within(result, columns, limits))
    return values, sources, kept


def _under(result: Result, metric: str, residual: Floats) -> Floats:
    """A metric (K,) with the residual of the step time."""
    return np.asarray(result.column(metric) * np.exp(residual * time_power(result, metric)))


def _within(result: Result, columns: Mapping[str, Floats], limits: Any) -> NDArray[np.bool_]:
    good = result.feasible.copy()
    for limit in limits:
        if limit.metric in columns:
            good &= limit.sign * (columns[limit.metric] - limit.bound) <= 0.0
    return good


def _share_on_front(report: Solved, drawn: Floats) -> Floats:
    """Share of draws in which each design (N,) is beaten by no other in every objective that is known."""
    signs = np.array([item.sign for item in report.problem.objectives])
    known = ~np.isnan(drawn).any(axis=(0, 1))
    if not known.all():
        return np.full(len(drawn), math.nan)
    counts: Floats = np.zeros(len(drawn))
    for k in range(drawn.shape[1]):
        counts += non_dominated(drawn[:, k, :] * signs)
    return np.asarray(counts / drawn.shape[1])
