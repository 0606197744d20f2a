"""Why a design cannot be: every rule as a named number, feasible at <= 0.

Divisibility rules give the remainder; capacities give used / available - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.evaluation.stages import Sharing, Stages
from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import SCHEDULE, Plan
from workloads.splits import indivisible

ONE_F_ONE_B, ZERO_BUBBLE = SCHEDULE.index("1f1b"), SCHEDULE.index("zero_bubble")

#: The rules that depend on the plan alone.
DEVICES_RULE = "tensor * pipeline * data * context == devices"
PLAN_RULES = (
    "global_batch % (data * micro_batch)",
    "pipeline <= layers",
    "layers % (pipeline * interleave)",
    "micro_batches % pipeline (interleaved)",
    "interleave needs 1f1b and pipeline > 1",
    "sequence % (context * tensor with sequence parallel)",
    "experts % expert",
    "(data * context) % expert",
    "(data * context) % zero_group",
    "leading layers on the first stage",
    "zero_bubble needs pipeline > 1, interleave 1",
)


def remainder(value: Any, divisor: Any) -> Any:
    """value mod divisor for whole numbers stored as floats, exact below 2^53."""
    return value - np.floor(value / divisor) * divisor


def device_violation(plan: Plan, devices: Any) -> Any:
    """How far the degrees' product is from the number of devices."""
    return np.abs(plan.tensor * plan.pipeline * plan.data * plan.context - devices)


def plan_violations(
    plan: Plan, workload: Workload, stages: Stages, blocks: dict[str, Block], shared: Sharing
) -> dict[str, Any]:
    """Rules of the plan and the network."""
    lead = blocks["lead"].count
    layers = blocks["body"].layers + lead
    experts = float(blocks["body"].expert_count) if blocks["body"].parameters_expert else 1.0
    sparse = blocks["body"].sparse
    interleaved = plan.interleave > 1
    found = {
        "global_batch % (data * micro_batch)": remainder(
            float(workload.global_batch), plan.data * plan.micro_batch
        ),
        "pipeline <= layers": plan.pipeline - layers,
        "layers % (pipeline * interleave)": np.where(
            interleaved, remainder(layers + 2.0 * plan.split, plan.pipeline * plan.interleave), 0.0
        ),
        "micro_batches % pipeline (interleaved)": np.where(
            interleaved, remainder(stages.micro_batches, plan.pipeline), 0.0
        ),
        "interleave needs 1f1b and pipeline > 1": np.where(
            interleaved & ((plan.pipeline == 1) | (plan.schedule != ONE_F_ONE_B)), 1.0, 0.0
        ),
        "sequence % (context * tensor with sequence parallel)": remainder(
            float(workload.sequence), plan.context * np.where(plan.sequence_parallel > 0, plan.tensor, 1.0)
        ),
        # pieces of tables need not be even: the fullest device counts
        "experts % expert": np.maximum(plan.expert - experts, 0.0) if sparse else remainder(experts, plan.expert),
        "(data * context) % expert": remainder(
            shared.ranks * np.where(plan.expert_tensor > 0, 1.0, plan.tensor), plan.expert
        ),
        "(data * context) % zero_group": np.maximum(
            remainder(shared.ranks, shared.group),
            remainder(shared.expert_ranks, shared.expert_group) if blocks["body"].parameters_expert else 0.0,
        ),
        "leading layers on the first stage": np.where(
            plan.pipeline > 1, np.maximum(lead - np.floor(layers / plan.pipeline), 0.0), 0.0
        ),
        "zero_bubble needs pipeline > 1, interleave 1": np.where(
            (plan.schedule == ZERO_BUBBLE) & ((plan.pipeline == 1) | interleaved), 1.0, 0.0
        ),
    }
    if blocks["body"].cells:
        found["interleave needs layers of one kind"] = np.where(interleaved, 1.0, 0.0)
    for rule in indivisible(workload.network, workload.sequence):
        found[f"{rule.name} % tensor"] = rule.remainder(plan.tensor)
    return found
