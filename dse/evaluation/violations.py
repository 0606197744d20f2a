"""Why a design cannot be: every rule as a named number, feasible at <= 0.

Divisibility rules give the remainder; capacities give used / available - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.evaluation.stages import Stages
from workloads.network import Workload
from workloads.plan import Plan

#: The rules that depend on the plan alone.
DEVICES_RULE = "tensor * pipeline * data == devices"
PLAN_RULES = (
    "global_batch % (data * micro_batch)",
    "pipeline <= layers",
    "layers % (pipeline * interleave)",
    "micro_batches % pipeline (interleaved)",
    "interleave needs 1f1b, pipeline > 1, uniform split",
    "sequence % tensor (sequence parallel)",
)


def remainder(value: Any, divisor: Any) -> Any:
    """value mod divisor for whole numbers stored as floats, exact below 2^53."""
    return value - np.floor(value / divisor) * divisor


def device_violation(plan: Plan, devices: Any) -> Any:
    """How far the degrees' product is from the number of devices."""
    return np.abs(plan.tensor * plan.pipeline * plan.data - devices)


def plan_violations(plan: Plan, workload: Workload, stages: Stages, layers: int) -> dict[str, Any]:
    """Rules of the plan and the network."""
    interleaved = plan.interleave > 1
    found = {
        "global_batch % (data * micro_batch)": remainder(
            float(workload.global_batch), plan.data * plan.micro_batch
        ),
        "pipeline <= layers": plan.pipeline - layers,
        "layers % (pipeline * interleave)": np.where(
            interleaved, remainder(float(layers), plan.pipeline * plan.interleave), 0.0
        ),
        "micro_batches % pipeline (interleaved)": np.where(
            interleaved, remainder(stages.micro_batches, plan.pipeline), 0.0
        ),
        "interleave needs 1f1b, pipeline > 1, uniform split": np.where(
            interleaved & ((plan.pipeline == 1) | (plan.schedule == 0) | ((plan.split == 1) & (plan.pipeline > 2))),
            1.0, 0.0,
        ),
        "sequence % tensor (sequence parallel)": np.where(
            plan.sequence_parallel > 0, remainder(float(workload.sequence), plan.tensor), 0.0
        ),
    }
    for name, size in workload.network.divisors().items():
        found[f"{name} % tensor"] = remainder(float(size), plan.tensor)
    return found
