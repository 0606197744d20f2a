"""Which constants decide a design: every constant with a range at its low and at its high, all others as they are.

One batched evaluation: constants are columns.  Ranges are those of the draws of `dse.insight.uncertainty`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.base.columns import unchecked
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS, Result
from dse.inputs.serialize import plain
from dse.insight.uncertainty import PRICED, priced, range_of, uncertain_constants
from hw_models.physical.cost import market_of
from hw_models.tables import Row

__all__ = ["DECIDED", "Swing", "Tornado", "tornado"]

#: Metrics that constants are ranked by.
DECIDED = ("step_time", "energy_per_token", "die_area", "tdp", "chip_cost")
#: Path, row and ends of a constant.
Range = tuple[str, Row, float, float]


@dataclass(frozen=True)
class Swing:
    """One constant at the ends of its range.

    value, low, high   the constant now, and where it was tried; of a fitted one its 90% interval
    effects            metric -> its value at low and at high
    """

    constant: str
    unit: str
    value: float
    low: float
    high: float
    source: str
    confidence: str
    effects: Mapping[str, tuple[float, float]]

    def swing(self, metric: str) -> float:
        """How far apart a metric is at the ends of the range, in the metric's unit."""
        low, high = self.effects[metric]
        return abs(high - low)


@dataclass(frozen=True)
class Tornado:
    """Constants that move any of the metrics, and those that move none.

    values   the metrics with every constant as it is
    """

    design: Design
    values: Mapping[str, float]
    swings: tuple[Swing, ...]
    unmoved: tuple[str, ...]

    def ranked(self, metric: str, most: int | None = None) -> tuple[Swing, ...]:
        """Constants that move a metric, largest swing first; equal ones by name."""
        if metric not in self.values:
            raise KeyError(f"{metric!r}: a tornado has {', '.join(self.values)}")
        moved = [item for item in self.swings if item.swing(metric) > 0.0]
        return tuple(sorted(moved, key=lambda item: (-item.swing(metric), item.constant))[:most])

    def to_plain(self) -> dict[str, Any]:
        """The tornado as JSON-able data in base SI, constants of each metric in the order of their swing."""
        return {
            "metrics": dict(self.values),
            "units": {name: METRICS[name][0] for name in self.values},
            "ranked": {name: [item.constant for item in self.ranked(name)] for name in self.values},
            "constants": plain(self.swings),
            "unmoved": list(self.unmoved),
        }


def tornado(design: Design, metrics: Sequence[str] = DECIDED) -> Tornado:
    """How far each constant of technology, stack and market moves some metrics of a design of scalars.

    Row 2 i of one batch has constant i at its low, row 2 i + 1 at its high.  The plan stays: under another constant
    another plan may be better.  A constant without a range, or that is no table's value, is certain and not here; a
    metric that the design does not have (a cost where its process has no prices) is left out.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise ValueError(f"metric: found {metric!r}, allowed: {', '.join(METRICS)}")
    base = evaluate(design)
    if len(base) != 1:
        raise ValueError(f"design: found {len(base)} designs, allowed: one")
    values = {metric: base.value(metric) for metric in metrics if base.value(metric) == base.value(metric)}
    ranges = _ranges(design)
    columns = _effects(design, ranges, base, values)
    swings, unmoved = [], []
    for i, (name, row, low, high) in enumerate(ranges):
        effects = {metric: (float(column[2 * i]), float(column[2 * i + 1])) for metric, column in columns.items()}
        if all(end == values[metric] for metric, ends in effects.items() for end in ends):
            unmoved.append(name)
            continue
        swings.append(
            Swing(name, row["unit"], float(row["value"]), low, high, row["source"], row["confidence"], effects)
        )
    largest = sorted(swings, key=lambda item: (-_largest(item, values), item.constant))
    return Tornado(design, values, tuple(largest), tuple(unmoved))


def _largest(item: Swing, values: Mapping[str, float]) -> float:
    """The largest relative swing over all metrics."""
    shares = [item.swing(metric) / abs(value) for metric, value in values.items() if value]
    return max((share for share in shares if math.isfinite(share)), default=0.0)


def _ranges(design: Design) -> list[Range]:
    """Path, row and ends of every constant that has a range."""
    found = []
    for model, listed in uncertain_constants(design).items():
        for name, row in listed.items():
            low, high = range_of(row)
            if low < high:
                found.append((f"{model}.{name}", row, low, high))
    return found


def _effects(
    design: Design, ranges: Sequence[Range], base: Result, values: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Metrics (2 n,) of every constant at its low and high: what is evaluated first, then what only prices move."""
    work = [item for item in ranges if not item[0].startswith("market.")]
    prices = ranges[len(work) :]
    columns = {metric: np.full(2 * len(ranges), value) for metric, value in values.items()}
    if work:
        found = evaluate(_tried(design, work))
        for metric, column in columns.items():
            column[: 2 * len(work)] = found.column(metric)
    if prices and set(values) & set(PRICED):
        known = market_of(design.chip)
        assert known is not None
        found = priced(design, base, unchecked(known, _columns(prices)))
        for metric in set(values) & set(PRICED):
            columns[metric][2 * len(work) :] = found.column(metric)
    return columns


def _columns(ranges: Sequence[Range], model: str = "market") -> dict[str, np.ndarray]:
    """Columns (2 n,) of the constants of one model: its own two rows at the ends of its range."""
    found = {}
    for i, (path, row, low, high) in enumerate(ranges):
        column = np.full(2 * len(ranges), float(row["value"]))
        column[2 * i], column[2 * i + 1] = low, high
        if path.startswith(f"{model}."):
            found[path.partition(".")[2]] = column
    return found


def _tried(design: Design, ranges: Sequence[Range]) -> Design:
    """The design as 2 n rows of constants."""
    return Design(
        chip=design.chip,
        cluster=design.cluster,
        plan=design.plan,
        workload=design.workload,
        stack=unchecked(design.stack, _columns(ranges, "stack")),
        training=design.training,
        technology=unchecked(design.constants, _columns(ranges, "technology")),
    )
