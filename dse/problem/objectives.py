"""What can be wanted: every metric with the direction that is better."""

from __future__ import annotations

from collections.abc import Sequence

from dse.evaluation.metrics import Metric
from dse.evaluation.result import METRICS
from dse.exploration.variables import Objective

#: Metrics of which more is better; of all others less is.
MORE_IS_BETTER = (
    "throughput", "samples_per_second", "mfu", "hfu", "model_flops_rate", "throughput_per_tdp", "throughput_per_area",
    "die_yield",
)


def objective(name: str, custom: Sequence[Metric] = ()) -> Objective:
    """The objective of that name, a metric of results or of the user's own."""
    own = next((metric for metric in custom if metric.name == name), None)
    if own is not None:
        if own.better == "none":
            raise ValueError(f"objective: found {name!r}, of which neither more nor less is better")
        return Objective(name, "maximize" if own.better == "higher" else "minimize", own.unit)
    if name not in METRICS:
        raise ValueError(f"objective: found {name!r}, allowed: {', '.join(METRICS)}")
    return Objective(name, "maximize" if name in MORE_IS_BETTER else "minimize", METRICS[name][0])


def table() -> list[dict[str, str]]:
    """Every objective with direction, unit and meaning."""
    return [
        {"objective": name, "better": "more" if name in MORE_IS_BETTER else "less", "unit": unit, "meaning": meaning}
        for name, (unit, meaning) in METRICS.items()
    ]
