"""Everything about a batch that no chip enters: stages, memory, distinct situations, messages, broken plan rules.

A sweep lays out a chunk of plans once and evaluates it on every chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.memory import Memory, memory
from dse.evaluation.situations import Situations, situations
from dse.evaluation.stages import Stages, blocks_by_place, stages, strides
from dse.evaluation.violations import plan_violations
from dse.evaluation.work import Work, work
from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import RECOMPUTE, Plan
from workloads.precision import Training
from workloads.training import hardware_flops, model_flops


@dataclass(frozen=True)
class Message:
    """What one call of a collective sends in each situation: ranks, distance between them, bytes of the full tensor."""

    size: Any
    distance: Any
    message: Any


@dataclass(frozen=True)
class Layout:
    """Plans and what follows from them without a chip; columns (P,), situations (S,).

    blocks        the network's block classes by place
    passes        situations of a block's pass: tensor, stride of ranks, micro-batch, sequence parallelism, recompute
    at_pass       the plan columns of those situations
    operators     distinct (tensor, micro-batch, sequence parallelism) among them, their columns and their work
    transfers     situations of a transfer to the next stage
    reductions    situations of the gradient reduction, weight gather and tied embedding, and their degrees
    sent          bytes a device sends in a step by parallel axis
    model_flops, hardware_flops   FLOP of a step, without and with what each plan recomputes
    """

    plan: Plan
    blocks: dict[str, Block]
    stages: Stages
    memory: Memory
    violations: dict[str, Any]
    passes: Situations
    at_pass: dict[str, Any]
    operators: Situations
    at_operator: dict[str, Any]
    work: Work
    exchange: Message
    transfers: Situations
    transfer: Message
    reductions: Situations
    at_reduction: dict[str, Any]
    gradients: Message
    gather: Message
    tied: Message
    sent: dict[str, Any]
    model_flops: float
    hardware_flops: Any
    paired: bool


def lay_out(plan: Plan, workload: Workload, training: Training, *, paired: bool) -> Layout:
    """Lay out plans (columns of at least one element); `paired`: every row is a situation of its own."""
    blocks = blocks_by_place(workload)
    layers = blocks["body"].count
    found = stages(plan, workload, layers)
    held = memory(plan, training, blocks, found)
    stride = strides(plan)
    boundary = blocks["body"].boundary * training.activation_bytes
    sharing = np.where(plan.sequence_parallel > 0, plan.tensor, 1.0)
    sharded = np.where(plan.zero_stage >= 1, 1.0, 0.0)

    per_pass = (plan.tensor, stride["tensor"], plan.micro_batch, plan.sequence_parallel, plan.recompute)
    passes = situations(*per_pass, paired=paired)
    names = ("tensor", "stride", "micro_batch", "sequence_parallel", "recompute")
    at_pass = {name: passes.pick(column) for name, column in zip(names, per_pass, strict=True)}
    wanted = ("tensor", "micro_batch", "sequence_parallel")
    operators = situations(*(at_pass[name] for name in wanted), paired=paired)
    at_operator = {name: operators.pick(at_pass[name]) for name in wanted}

    transfers = situations(plan.pipeline, stride["pipeline"], plan.micro_batch, sharing, paired=paired)
    hop = transfers.pick(plan.micro_batch * boundary / sharing)

    per_reduction = (plan.data, stride["data"], plan.tensor, plan.pipeline, stride["pipeline"], plan.split, sharded)
    reductions = situations(*per_reduction, paired=paired)
    pick = reductions.pick
    parameters = held.parameters
    shared = blocks["last"].shared_parameters
    copies = 1.0 + found.has_last
    tied_bytes = found.has_last * (shared / plan.tensor * training.gradient_bytes)
    gathered = sharded * (parameters * training.weight_bytes)
    gradient_bytes = parameters * training.gradient_bytes
    data_ranks = {"size": pick(plan.data), "distance": pick(stride["data"])}
    return Layout(
        plan=plan,
        blocks=blocks,
        stages=found,
        memory=held,
        violations=plan_violations(plan, workload, found, layers),
        passes=passes,
        at_pass=at_pass,
        operators=operators,
        at_operator=at_operator,
        work=work(blocks, training, at_operator, paired=paired),
        exchange=Message(at_pass["tensor"], at_pass["stride"], at_pass["micro_batch"] * boundary),
        transfers=transfers,
        transfer=Message(transfers.pick(plan.pipeline), transfers.pick(stride["pipeline"]), hop),
        reductions=reductions,
        at_reduction={
            "sharded": pick(sharded), "replicas": pick(plan.data * plan.tensor),
            "devices": pick(plan.data * plan.tensor * plan.pipeline),
        },
        gradients=Message(**data_ranks, message=pick(gradient_bytes)),
        gather=Message(**data_ranks, message=pick(gathered)),
        tied=Message(
            pick(copies), pick(stride["pipeline"] * np.maximum(plan.pipeline - 1.0, 1.0)), pick(tied_bytes)
        ),
        sent=_sent(plan, blocks, found, boundary, sharing, gradient_bytes * (2.0 - sharded) + gathered),
        model_flops=float(model_flops(workload)),
        hardware_flops=np.array([float(hardware_flops(workload, kind)) for kind in RECOMPUTE])[
            plan.recompute.astype(np.int64)
        ],
        paired=paired,
    )


def crossings(blocks: dict[str, Block], recompute: Any) -> Any:
    """Tensor-parallel exchanges of one micro-batch in all blocks: forward, as many backward, and what is recomputed."""
    body = blocks["body"]
    again = np.where(recompute >= 2, 1.0, 0.0)
    ends = float(blocks["first"].reductions + blocks["last"].reductions)
    return float(body.count * body.reductions) * (2.0 + again) + ends


def _sent(
    plan: Plan, blocks: dict[str, Block], found: Stages, boundary: float, sharing: Any, reduced: Any
) -> dict[str, Any]:
    """Bytes one device sends in a step by axis: 2 (n-1)/n S an all-reduce, whatever the algorithm."""
    share = found.micro_batches / plan.pipeline
    exchanged = 2.0 * (plan.tensor - 1.0) / plan.tensor * (plan.micro_batch * boundary)
    hops = 2.0 * (plan.pipeline * plan.interleave - 1.0)
    return {
        "communication_tensor": share * crossings(blocks, plan.recompute) * exchanged,
        "communication_pipeline": share * hops * (plan.micro_batch * boundary / sharing),
        "communication_data": (plan.data - 1.0) / plan.data * reduced,
    }

