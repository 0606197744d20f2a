"""Everything about a batch that no chip enters: stages, memory, distinct situations, messages, broken plan rules.

A sweep lays out a chunk of plans once and evaluates it on every chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dse.evaluation.memory import Memory, memory
from dse.evaluation.situations import Situations, situations
from dse.evaluation.stages import Sharing, Stages, blocks_by_place, layer_counts, sharing, stages, strides
from dse.evaluation.violations import plan_violations
from dse.evaluation.work import Work, work
from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import FULL, OFFLOAD, RECOMPUTE, SCHEDULE, Plan
from workloads.precision import Training
from workloads.training import executed_flops, model_flops


@dataclass(frozen=True)
class Message:
    """What one call of a collective sends in each situation: ranks, distance between them, bytes of the full tensor."""

    size: Any
    distance: Any
    message: Any


@dataclass(frozen=True)
class Messages:
    """What the collectives of a step send.  None: no plan of the batch has it.

    exchange        a block's boundary over the tensor axis                                      [passes]
    keys            keys and values of a block over the context axis                             [passes]
    tokens          rows that one rank sends to experts                                          [passes]
    layer, layer_experts, lead, ends   weights (in parameters) that ZeRO-3 gathers and ZeRO-2 reduces for a body
                    layer outside and inside its experts, for a leading layer, and for embedding and head
                    together                                                                     [passes]
    transfer        a boundary sent to the next stage                                            [transfers]
    gradients       dense parameters of a stage                                                  [reductions]
    experts         parameters of its routed experts                                             [reductions]
    rows            rows of sparse tables that all copies of a piece updated, gathered by each   [reductions]
    tied            a tied embedding's gradient between first and last stage                     [reductions]
    """

    exchange: Message
    keys: Message | None
    tokens: Message | None
    layer: Message | None
    layer_experts: Message | None
    lead: Message | None
    ends: Message | None
    transfer: Message
    gradients: Message
    experts: Message | None
    rows: Message | None
    tied: Message

    def reduced_once(self, gradient_bytes: float) -> Any:
        """Bytes of gradients one device reduces after its last backward pass, dense, of experts and of touched rows.

        Buckets are filled from all of them; `rows` counts the rows of every rank, of which a device owns one share.
        """
        held = self.gradients.message * gradient_bytes
        if self.experts is not None:
            held = held + self.experts.message * gradient_bytes
        if self.rows is not None:
            held = held + self.rows.message / self.rows.size
        return held


@dataclass(frozen=True)
class Layout:
    """Plans and what follows from them without a chip; columns (P,), situations (S,).

    blocks        the network's block classes by place
    shared        who holds copies of weights, and ZeRO's groups
    passes        situations of a block's pass; at_pass: the plan columns of those situations
    operators     distinct situations of its operators among them, their columns and their work
    transfers     situations of a transfer to the next stage
    reductions    situations of the gradient reduction, weight gather and tied embedding, and their degrees
    sent          bytes a device sends in a step by parallel axis
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
    sent: dict[str, Any]
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
        messages=Messages(
            **_pass_messages(at_pass, blocks, training),
            transfer=Message(
                at_transfer["pipeline"], at_transfer["distance"],
                at_transfer["micro_batch"] / at_transfer["context"] * boundary / at_transfer["sharing"],
            ),
            **_reduction_messages(reductions, at_reduction, held, found, blocks, training),
        ),
        sent=_sent(plan, blocks, found, shared, held, training),
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


def _pass_messages(at: dict[str, Any], blocks: dict[str, Block], training: Training) -> dict[str, Any]:
    """What a block's pass sends: boundary, keys and values, routed rows, weights that ZeRO splits."""
    body, t = blocks["body"], at["tensor"]
    samples = at["micro_batch"] / at["context"]
    exchanged = (body.exchanged or body.boundary) * training.activation_bytes
    exchange = Message(t, at["distance"], samples * exchanged)
    keys = tokens = layer = layer_experts = lead = ends = None
    if np.any(at["context"] > 1):
        groups = np.maximum(np.ceil(body.group_count / t), 1.0)
        width = body.context_exchange / body.group_count * training.activation_bytes
        keys = Message(at["context"], at["context_distance"], at["micro_batch"] * width * groups)
    if np.any(at["expert"] > 1):
        # tensor ranks hold different tokens with sequence parallelism, and where experts are whole
        cut = np.where((at["sequence_parallel"] > 0) | (at["expert_tensor"] == 0), t, 1.0)
        tokens = Message(
            at["expert"], at["expert_distance"], samples * (body.routed * training.activation_bytes) / cut
        )
    if np.any((at["zero_stage"] >= 2) | (at["hosted"] > 0)):
        outside = blocks["first"].dense_parameters(t) + blocks["last"].dense_parameters(t)
        outside = outside - blocks["last"].shared_on_device(t)
        split = (at["group"], at["group_distance"])
        layer, ends = Message(*split, body.dense_parameters(t)), Message(*split, outside)
        if blocks["lead"].count:
            lead = Message(*split, blocks["lead"].dense_parameters(t))
        if body.parameters_expert and not body.sparse:
            held = body.expert_parameters(t, at["expert"], at["expert_tensor"])
            layer_experts = Message(at["expert_group"], at["expert_group_distance"], held)
    return {
        "exchange": exchange, "keys": keys, "tokens": tokens, "layer": layer, "layer_experts": layer_experts,
        "lead": lead, "ends": ends,
    }


def _reduction_messages(
    reductions: Situations, at: dict[str, Any], held: Memory, found: Stages, blocks: dict[str, Block],
    training: Training,
) -> dict[str, Any]:  # fmt: skip
    """Parameters whose gradients are reduced, of the stage with most of them, and a tied embedding's gradient."""
    pick = reductions.pick
    shared = blocks["last"].shared_on_device(at["tensor"])
    has_last = pick(found.has_last)
    experts = rows = None
    if blocks["body"].sparse:
        # a piece's rows are read for the samples of all its expert peers: as many elements as of one device's samples
        touched = at["samples"] * (float(blocks["body"].touched) * training.gradient_bytes)
        rows = Message(at["expert_ranks"], at["expert_distance"], at["expert_ranks"] * touched)
    elif blocks["body"].parameters_expert:
        experts = Message(at["expert_ranks"], at["expert_distance"], pick(held.expert))
    return {
        "gradients": Message(at["ranks"], at["distance"], pick(held.dense)),
        "experts": experts,
        "rows": rows,
        "tied": Message(
            1.0 + has_last,
            at["pipeline_distance"] * np.maximum(at["pipeline"] - 1.0, 1.0),
            has_last * (shared * training.gradient_bytes),
        ),
    }


def crossings(blocks: dict[str, Block], repeats: Any, lead_repeats: Any) -> Any:
    """Tensor-parallel exchanges of one micro-batch in all blocks: forward, as many backward, and what is recomputed.

    repeats, lead_repeats   layers of the body, and leading ones, whose forward exchanges are repeated
    """
    body, lead = blocks["body"], blocks["lead"]
    ends = float(blocks["first"].reductions + blocks["last"].reductions)
    layers = float(body.count * body.reductions + lead.count * lead.reductions)
    return 2.0 * layers + repeats * float(body.reductions) + lead_repeats * float(lead.reductions) + ends


def _sent(
    plan: Plan, blocks: dict[str, Block], found: Stages, shared: Sharing, held: Memory, training: Training
) -> dict[str, Any]:
    """Bytes one device sends in a step by axis: 2 (n-1)/n S an all-reduce, whatever the algorithm."""
    body, lead = blocks["body"], blocks["lead"]
    share = found.micro_batches / plan.pipeline
    samples = plan.micro_batch / plan.context
    boundary = samples * (body.boundary * training.activation_bytes)
    if found.held is not None:
        boundary = samples * (found.held.boundary * training.activation_bytes)
    exchange = samples * ((body.exchanged or body.boundary) * training.activation_bytes)
    cut = np.where(plan.sequence_parallel > 0, plan.tensor, 1.0)
    exchanged = 2.0 * (plan.tensor - 1.0) / plan.tensor * exchange
    hops = 2.0 * (plan.pipeline * plan.interleave - 1.0)
    full = np.where(plan.recompute == FULL, 1.0, 0.0)
    again, again_lead = full * found.repeated_total, full * float(lead.count)
    layers = float(body.count + lead.count)
    sent = {
        "communication_tensor": share * (crossings(blocks, again, again_lead) * exchanged),
        "communication_pipeline": share * hops * (boundary / cut),
        "communication_data": _sent_data(plan, blocks, found, shared, held, training),
    }
    if body.context_exchange:
        groups = np.maximum(np.ceil(body.group_count / plan.tensor), 1.0)
        shown = plan.micro_batch * (body.context_exchange / body.group_count * training.activation_bytes) * groups
        passes = (plan.context - 1.0) / plan.context * shown
        sent["communication_context"] = share * ((3.0 * layers + again + again_lead) * passes)
    if body.routed:
        whole = (plan.sequence_parallel > 0) | (plan.expert_tensor == 0)
        rows = samples * (body.routed * training.activation_bytes) / np.where(whole, plan.tensor, 1.0)
        passes = (plan.expert - 1.0) / plan.expert * rows
        sent["communication_expert"] = share * ((4.0 * body.count + 2.0 * again) * passes)
    return {"communication_context": 0.0, "communication_expert": 0.0} | sent


def _sent_data(
    plan: Plan, blocks: dict[str, Block], found: Stages, shared: Sharing, held: Memory, training: Training
) -> Any:
    """Bytes sent over the data axis: gradients once a step, or with ZeRO-2 and 3 in every micro-batch, weights too."""
    stage, gradient, weight = plan.zero_stage, float(training.gradient_bytes), float(training.weight_bytes)
    in_passes = np.where(stage >= 2, found.micro_batches, 1.0)
    reduced = gradient * np.where(stage >= 1, 1.0, 2.0) * in_passes
    reread = np.where(stage >= 3, in_passes * (1.0 + plan.reshard), np.where(stage >= 1, 1.0, 0.0))
    moved = reduced + weight * reread
    dense = held.dense * ((shared.ranks - 1.0) / shared.ranks)
    if blocks["body"].sparse:
        return moved * dense
    expert = held.expert * ((shared.expert_ranks - 1.0) / shared.expert_ranks)
    return moved * (dense + expert)
