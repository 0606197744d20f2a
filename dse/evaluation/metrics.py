"""A metric of the user's own: what it is called, and how it follows from metrics of a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dse.evaluation.result import METRICS

__all__ = ["Metric", "check_metric"]


@dataclass(frozen=True)
class Metric:
    """A metric of a design that can be wanted or limited.

    name      a word of its own: heading of its column, name in rules
    unit      base SI, "" for a share
    meaning   what it is, one line
    better    higher, lower, or none (a metric that is only limited)
    needs     metrics of a result that its value is made of
    value     columns by name, of `needs` alone and of any shapes that broadcast -> its column, design by design;
              element-wise arithmetic, so that one design and many give the same bits"""

    name: str
    unit: str
    meaning: str
    better: Literal["higher", "lower", "none"]
    needs: tuple[str, ...]
    value: Callable[[Mapping[str, np.ndarray]], Any]

    def column(self, metrics: Mapping[str, Any]) -> np.ndarray:
        """Its value from the metrics of a result."""
        return np.asarray(self.value({name: np.asarray(metrics[name]) for name in self.needs}), dtype=float)


def check_metric(metric: Any) -> None:
    """The contract of a metric; ValueError lists what breaks it.

    A name that is new, needs that are known, and a value for every design, the same alone as among others.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"metric: found a {type(metric).__name__}, allowed: a dse.Metric")
    faults = []
    if not isinstance(metric.name, str) or not metric.name.isidentifier() or metric.name in METRICS:
        faults.append(f"name: found {metric.name!r}, allowed: a word that is no metric yet")
    if metric.better not in ("higher", "lower", "none"):
        faults.append(f"better: found {metric.better!r}, allowed: higher, lower, none")
    if not isinstance(metric.unit, str) or not isinstance(metric.meaning, str):
        faults.append("unit, meaning: found no text, allowed: texts")
    unknown = [name for name in metric.needs if name not in METRICS]
    if unknown or not metric.needs:
        faults.append(f"needs: found {', '.join(map(repr, unknown)) or 'none'}, allowed: {', '.join(METRICS)}")
    if not faults:
        faults += _faults_of_value(metric)
    if faults:
        raise ValueError("; ".join(f"metric {metric.name}: {fault}" for fault in faults))


def _faults_of_value(metric: Metric) -> list[str]:
    chips, plans = np.array([[0.5], [3.0]]), np.array([[0.25, 1.0, 7.0]])
    given = {name: (chips if i % 2 else chips * plans) for i, name in enumerate(metric.needs)}
    try:
        found = metric.column(given)
        alone = metric.column({name: np.broadcast_to(column, (2, 3))[1, 2] for name, column in given.items()})
    except (Exception, SystemExit) as error:  # foreign code: whatever it raises is about the metric
        return [f"value: raised {type(error).__name__}: {error}"]
    if found.shape != (2, 3):
        return [f"value: found the shape {found.shape}, allowed: that of the designs, (2, 3)"]
    if alone.shape != () or alone != found[1, 2]:
        return [f"value: found {alone} for a design alone, allowed: {found[1, 2]} as among others"]
    return []
