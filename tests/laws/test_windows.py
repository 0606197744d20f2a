"""A second of computation hides one exchange at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import a100
from mixture import MIXTURE

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.passes import _experts, hide
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan

EXCHANGES = ("time_tensor", "time_context", "time_expert", "time_shard", "time_data")


def test_what_ran_beside_a_window_is_gone_from_it() -> None:
    assert hide(3.0, 10.0, 1.0, 0.5) == (1.5, 7.0)
    assert hide(30.0, 10.0, 1.0, 0.5) == (25.0, 0.0)
    assert hide(3.0, 10.0, 0.0, 1.0) == (3.0, 10.0)


@pytest.mark.parametrize("recompute", ["none", "full", "per_operator"])
@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e10, 1e12])
@pytest.mark.parametrize("zero_stage", [0, 3])
def test_hidden_seconds_never_exceed_the_computation(recompute: str, bandwidth: float, zero_stage: int) -> None:
    def seconds(on: int) -> Any:
        plan = Plan(
            tensor=2, data=4, expert=2, sequence_parallel=1, recompute=recompute, zero_stage=zero_stage,
            overlap_tensor=on, overlap_expert=on, overlap_data=on,
        )
        fabric = Cluster(8, (Tier(8, bandwidth=bandwidth, latency=0.0),))
        return evaluate(Design(a100(), fabric, plan, Workload(MIXTURE, 48, 8), stack("ideal")))

    alone, hidden = seconds(0), seconds(1)
    gone = sum(alone.value(name) - hidden.value(name) for name in EXCHANGES)
    window = sum(hidden.value(f"time_{name}") for name in ("forward", "backward", "recompute"))
    if zero_stage == 0:  # a gradient reduction also runs beside what other axes expose in the backward pass
        window += hidden.value("time_tensor") + hidden.value("time_expert")
    assert np.isfinite(gone) and 0.0 < gone <= window * (1 + 1e-12)


def test_experts_of_a_plan_that_hides_nothing_cost_the_same_bits_beside_one_that_hides_them() -> None:
    """Three calls of a pass that recomputes: a third of three times x need not be x."""
    each, full = np.array([0.1, 0.1]), np.array([1.0, 1.0])
    windows = (np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    alone, _ = _experts(each[:1], full[:1], windows, np.array([0.0]), 0.9)
    mixed, left = _experts(each, full, windows, np.array([0.0, 1.0]), 0.9)
    assert 3.0 * 0.1 / 3.0 != 0.1 == alone[0] == mixed[0]
    assert [window[0] for window in left] == [1.0, 2.0, 1.0]
    assert mixed[1] == pytest.approx(0.01)
