"""Everything about a batch that no chip enters: stages, memory, distinct situations, messages, broken plan rules.

A sweep lays out a chunk of plans once and evaluates it on every chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dse.evaluation.ledger import Ledger, ledger
from dse.evaluation.memory import Memory, memory
from dse.evaluation.messages import Message, Messages, pass_messages, reduction_messages
from dse.evaluation.situations import Situations, situations
from dse.evaluation.stages import Sharing, Stages, blocks_by_place, layer_counts, sharing, stages, strides
from dse.evaluation.violations import plan_violations
from dse.evaluation.work import Work, work
from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import OFFLOAD, RECOMPUTE, SCHEDULE, Plan
from workloads.precision import Training
from workloads.training import executed_flops, model_flops


@dataclass(frozen=True)
class Layout:
    """Plans and what follows from them without a chip; columns (P,), situations (S,).

    blocks        the network's block classes by place
    shared        who holds copies of weights, and ZeRO's groups
    passes        situations of a block's pass; at_pass: the plan columns of those situations
    operators     distinct situations of its operators among them, their columns and their work
    transfers     situations of a transfer to the next stage
    reductions    situations of the gradient reduction, weight gather and tied embedding, and their degrees
    ledger        every exchange of a step, with what it sends and how often
    model_flops   FLOP of a step as publications count them: full attention squares, direct convolutions
    once_flops, executed_flops   FLOP that the kernels do, without and with what each plan recomputes
    slowest       expected largest of as many standard normal numbers as devices: how far the slowest is behind
    repeats       kinds of recomputation among the plans; moves_weights: a schedule moves weight gradients
    """

    plan: Plan
    blocks: dict[str, Block]
    stages: Stages
    shared: Sharing
    memory: Memory
    violations: dict[str, Any]
    passes: Situations
    at_pass: dict[str, Any]
    operators: Situations
    at_operator: dict[str, Any]
    work: Work
    transfers: Situations
    at_transfer: dict[str, Any]
    reductions: Situations
    at_reduction: dict[str, Any]
    messages: Messages
    ledger: Ledger
    model_flops: float
    once_flops: float
    executed_flops: Any
    slowest: Any
    repeats: frozenset[int]
    moves_weights: bool
    paired: bool


def lay_out(plan: Plan, workload: Workload, training: Training, *, paired: bool) -> Layout:
    """Lay out plans (columns of at least one element); `paired`: every row is a situation of its own."""
    blocks = blocks_by_place(workload)
    layers, lead = layer_counts(blocks)
    found = stages(plan, workload, layers, lead, blocks["body"].cells)
    stride = strides(plan)
    shared = sharing(plan, stride)
    held = memory(plan, training, blocks, found, shared)
    passes, at_pass = _situations(_pass_columns(plan, stride, shared, blocks), paired)
    operators, at_operator = _situations({name: at_pass[name] for name in OPERATOR_COLUMNS}, paired)
    cut = np.where(plan.sequence_parallel > 0, plan.tensor, 1.0)
    # where layers are of several kinds, what crosses depends on where they are cut
    where = {} if found.held is None else {"split": plan.split}
    transfers, at_transfer = _situations(
        {"pipeline": plan.pipeline, "distance": stride["pipeline"], "micro_batch": plan.micro_batch,
         "context": plan.context, "sharing": cut, "tensor": plan.tensor, "tensor_distance": stride["tensor"]} | where,
        paired,
    )  # fmt: skip
    reductions, at_reduction = _situations(
        {"ranks": shared.ranks, "distance": shared.distance, "group": shared.group, "stage": plan.zero_stage,
         "expert_ranks": shared.expert_ranks, "expert_distance": shared.expert_distance,
         "expert_group": shared.expert_group, "tensor": plan.tensor, "pipeline": plan.pipeline,
         "pipeline_distance": stride["pipeline"], "split": plan.split, "expert": plan.expert,
         "expert_tensor": plan.expert_tensor}
        | ({"samples": found.micro_batches * plan.micro_batch} if blocks["body"].sparse else {}),
        paired,
    )  # fmt: skip
    boundary: Any = blocks["body"].boundary * training.activation_bytes
    if found.held is not None:
        boundary = transfers.pick(found.held.boundary) * training.activation_bytes
    messages = Messages(
        **pass_messages(at_pass, blocks, training),
        transfer=Message(
            at_transfer["pipeline"], at_transfer["distance"],
            at_transfer["micro_batch"] / at_transfer["context"] * boundary / at_transfer["sharing"],
        ),
        **reduction_messages(reductions, at_reduction, held, found, blocks, training),
    )
    return Layout(
        plan=plan,
        blocks=blocks,
        stages=found,
        shared=shared,
        memory=held,
        violations=plan_violations(plan, workload, found, blocks, shared),
        passes=passes,
        at_pass=at_pass,
        operators=operators,
        at_operator=at_operator,
        work=work(blocks, training, at_operator, paired=paired),
        transfers=transfers,
        at_transfer=at_transfer,
        reductions=reductions,
        at_reduction=at_reduction,
        messages=messages,
        ledger=ledger(
            plan, blocks, training, found, held, messages, passes, at_pass, transfers, at_transfer, reductions,
            at_reduction,
        ),
        model_flops=float(model_flops(workload)),
        once_flops=executed_flops(workload, training),
        # layers of several kinds are shares of one block
        executed_flops=_executed_flops(
            plan, workload, training, (found.repeated_total + lead) / (blocks["body"].count + lead)
        ),
        slowest=expected_largest(plan.tensor * plan.pipeline * plan.data * plan.context),
        repeats=frozenset(np.unique(plan.recompute).astype(int).tolist()),
        moves_weights=bool(np.any(plan.schedule == SCHEDULE.index("zero_bubble"))),
        paired=paired,
    )


def expected_largest(number: Any) -> Any:
    """Expected largest of n independent standard normal numbers: z((n - 0.375)/(n + 0.25)), z the normal quantile.

    0 for one; within 0.02 for 2 to 10,000.  Once for each number in the batch.                    [Blom 1958, p. 71]
    """
    distinct, index = np.unique(np.asarray(number, dtype=float), return_inverse=True)
    normal = NormalDist()
    values = [normal.inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0 for n in distinct.tolist()]
    return np.array(values)[index].reshape(np.shape(number))


def _executed_flops(plan: Plan, workload: Workload, training: Training, share: Any) -> Any:
    """FLOP of a step with what is repeated: all of it times the share of layers that recompute."""
    once = executed_flops(workload, training)
    again = np.array([executed_flops(workload, training, kind) - once for kind in RECOMPUTE])
    return once + again[plan.recompute.astype(np.int64)] * share


OPERATOR_COLUMNS = ("tensor", "micro_batch", "sequence_parallel", "context", "expert", "expert_tensor")


def _pass_columns(
    plan: Plan, stride: dict[str, np.ndarray], shared: Sharing, blocks: dict[str, Block]
) -> dict[str, np.ndarray]:
    """The plan columns that the time of a block's pass depends on; neutral where a feature is not used."""
    in_passes = plan.zero_stage >= 2
    spreads = plan.expert > 1
    splits = shared.group > 1
    if blocks["body"].parameters_expert:
        splits = splits | (shared.expert_group > 1)
    columns = {
        "tensor": plan.tensor,
        "distance": stride["tensor"],
        "micro_batch": plan.micro_batch,
        "sequence_parallel": plan.sequence_parallel,
        "recompute": plan.recompute,
        "overlap_tensor": plan.overlap_tensor * plan.sequence_parallel,
        "overlap_expert": np.where(spreads, plan.overlap_expert, 0.0),
        "context": plan.context,
        "context_distance": np.where(plan.context > 1, stride["data"], 1.0),
        "context_ring": np.where(plan.context > 1, plan.context_ring, 1.0),
        "expert": plan.expert,
        "expert_tensor": plan.expert_tensor if blocks["body"].parameters_expert else np.ones(1),
        "expert_distance": np.where(spreads, shared.exchange_distance, 1.0),
        "zero_stage": np.where(in_passes, plan.zero_stage, 0.0),
        # tells copies apart that are no whole numbers (broken plans)
        "ranks": np.where(in_passes, shared.ranks, 1.0),
        "group": np.where(in_passes, shared.group, 1.0),
        "copies": np.where(in_passes, shared.copies, 1.0),
        "group_distance": np.where(in_passes, shared.distance, 1.0),
        "reshard": np.where((plan.zero_stage >= 3) & splits, plan.reshard, 1.0),
        "overlap_data": np.where(in_passes, plan.overlap_data, 1.0),
        "hosted": np.where(
            plan.offload == OFFLOAD.index("all"), np.where(plan.zero_stage >= 3, shared.group, 1.0), 0.0
        ),
    }
    if blocks["body"].parameters_expert:
        columns["expert_group"] = np.where(in_passes, shared.expert_group, 1.0)
        columns["expert_copies"] = np.where(in_passes, shared.expert_copies, 1.0)
        columns["expert_group_distance"] = np.where(in_passes, shared.expert_distance, 1.0)
    return {name: np.asarray(column) for name, column in columns.items()}


def _situations(columns: dict[str, np.ndarray], paired: bool) -> tuple[Situations, dict[str, Any]]:
    """The distinct situations of the columns, and the columns at them."""
    found = situations(*columns.values(), paired=paired)
    return found, {name: found.pick(column) for name, column in columns.items()}
