"""Bytes a device holds, by kind, on its fullest pipeline stage. Depends on plan and workload, not on the chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.stages import Sharing, Stages
from workloads.operators import Block
from workloads.plan import FULL, NONE, OFFLOAD, PER_OPERATOR, SCHEDULE, Plan
from workloads.precision import TABLE_BYTES, Training

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")
ALL = OFFLOAD.index("all")
GPIPE = SCHEDULE.index("gpipe")
#: Layers whose gathered weights ZeRO-3 holds at once: the one that computes and the one fetched for it.
GATHERED_LAYERS = 2.0


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest stage by kind [B], and what the stage with most parameters holds of them.

    by_stage   bytes of the first, second and last stage; their maximum is `total`
    dense, expert   parameters of one device outside routed experts and of its experts, before ZeRO, on the stage
               with most of them
    of_lead, of_ends   of `dense`, those of leading layers, and of embedding and head
    """

    by_kind: dict[str, Any]
    total: Any
    stage: Any
    dense: Any
    expert: Any
    of_lead: Any
    of_ends: Any
    by_stage: tuple[Any, Any, Any]


def saved_bytes(block: Block, plan: Plan, training: Training, *, recompute: Any) -> Any:
    """Bytes one block keeps of one micro-batch until its backward pass.

    Korthikanti et al. 2022, eq. 1-4, per operator; without dropout or with gated MLPs as the operators say.
    Selective recomputation drops the attention core, full keeps the input only, per operator keeps every second
    product's result and the attention's.  Context ranks keep their tokens' part.  Wider activations widen what is kept
    in their format; masks of a byte, fp32 statistics, probabilities and logits, and indices stay as wide as they are.
    """
    t, samples = plan.tensor, plan.micro_batch / plan.context
    over_sequence = np.where(plan.sequence_parallel > 0, t, 1.0)
    kept, width = block.saved, training.activation_bytes
    core: Any = kept.statistics / t
    if training.attention == "materialized":
        core = np.where(recompute == NONE, _at_width(kept.core, kept.core_fixed, width) / t, 0.0)
    dense = (
        _at_width(kept.sequence, kept.sequence_fixed, width) / over_sequence
        + _at_width(kept.tensor, kept.tensor_fixed, width) / t
    )
    everything = dense * np.where(recompute == PER_OPERATOR, 0.5, 1.0) + core
    return samples * np.where(recompute == FULL, _at_width(kept.input, 0, width) / over_sequence, everything)


def _at_width(total: int, fixed: int, width: float) -> float:
    """Bytes at activations of `width` bytes of what takes `total` at two, `fixed` of them whatever the width."""
    return (total - fixed) * (width / 2.0) + fixed


def largest_cell(block: Block) -> float:
    """Share of a block's parameters in the largest of its layers: 1 where it is one layer."""
    if not block.cells or not block.parameters:
        return 1.0
    return max(cell.parameters for cell in block.cells) / block.parameters


def largest_kept(block: Block) -> float:
    """Share of what a block keeps in the layer that keeps most: 1 where it is one layer."""
    total = sum(cell.kept for cell in block.cells)
    return max(cell.kept for cell in block.cells) / total if total else 1.0


def in_flight(plan: Plan, stages: Stages) -> tuple[Any, Any, Any]:
    """Micro-batches that the first, second and last stage keep.

    gpipe: all m.  1f1b and zero bubble (its memory-equal form): min(p - stage, m).  Interleaved with v chunks:
    chunks 2 (p - 1 - stage) + (v - 1) p + 1 of 1/v of a stage's layers each, at most m v.
    """
    p, v, m = plan.pipeline, plan.interleave, stages.micro_batches
    chunks = (v - 1.0) * p + 1.0
    interleaved = v > 1
    first = np.where(interleaved, np.minimum((2.0 * (p - 1.0) + chunks) / v, m), np.minimum(p, m))
    second = np.where(
        interleaved,
        np.minimum((2.0 * np.maximum(p - 2.0, 0.0) + chunks) / v, m),
        np.minimum(np.maximum(p - 1.0, 1.0), m),
    )
    last = np.where(interleaved, np.minimum(chunks / v, m), 1.0)
    keeps_all = (plan.schedule == 0) & (p > 1)
    return np.where(keeps_all, m, first), np.where(keeps_all, m, second), np.where(keeps_all, m, last)


def memory(plan: Plan, training: Training, blocks: dict[str, Block], stages: Stages, shared: Sharing) -> Memory:
    """Bytes by kind of the fullest of the first, second and last stage.

    Stages between the second and the last hold no more layers and fewer micro-batches than the second.
    A tied head that sits on another stage than the embedding stores its own copy.
    buffers: weights that ZeRO-3 (or weights on the host) gathered for the layers at work, and ZeRO-2's unreduced
    gradient of one layer.
    """
    t = plan.tensor
    embedding, lead, body, head = (blocks[place] for place in ("first", "lead", "body", "last"))
    head_dense = head.dense_parameters(t)
    on_first = embedding.dense_parameters(t) + lead.count * lead.dense_parameters(t)
    mid_exists = np.where(plan.pipeline > 2, 1.0, 0.0)
    on_stage = (stages.first, np.where(stages.high_count > 0, stages.high, stages.low), stages.last)
    if stages.held is not None:
        on_stage = stages.held.parameters
    per_layer = body.dense_parameters(t)
    dense = (
        on_stage[0] * per_layer + on_first + stages.is_single * (head_dense - head.shared_on_device(t)),
        on_stage[1] * per_layer * mid_exists,
        (on_stage[2] * per_layer + head_dense) * stages.has_last,
    )
    expert: tuple[Any, Any, Any] = (0.0 * t, 0.0 * t, 0.0 * t)
    if body.parameters_expert:
        per_layer_expert = body.expert_parameters(t, plan.expert, plan.expert_tensor)
        expert = (on_stage[0] * per_layer_expert, on_stage[1] * per_layer_expert * mid_exists,
                  on_stage[2] * per_layer_expert * stages.has_last)  # fmt: skip
    tables = tuple(_table_state(body, plan, training, held) for held in expert) if body.sparse else (None,) * 3
    activations, logits = _activations(plan, training, blocks, stages)
    exists = (1.0, mid_exists, stages.has_last)
    ends = (
        embedding.dense_parameters(t) + stages.is_single * (head_dense - head.shared_on_device(t)), 0.0,
        head_dense * stages.has_last,
    )  # fmt: skip
    kinds = [
        _state(dense[i], expert[i], plan, training, shared, tables=tables[i])
        | {
            "activations": activations[i],
            "logits": logits[i],
            "buffers": _buffers(blocks, plan, training, shared, held=dense[i] + expert[i], ends=ends[i]) * exists[i],
        }
        for i in range(3)
    ]
    totals = [_total(kind) for kind in kinds]
    total = np.maximum(np.maximum(totals[0], totals[1]), totals[2])
    stage = np.where(total == totals[0], 0, np.where(total == totals[2], 2, 1))

    fullest = np.where(dense[0] >= np.maximum(dense[1], dense[2]), 0, np.where(dense[2] >= dense[1], 2, 1))

    def most(values: tuple[Any, Any, Any]) -> Any:
        return np.maximum(np.maximum(values[0], values[1]), values[2])

    return Memory(
        by_kind={
            name: np.where(stage == 0, kinds[0][name], np.where(stage == 2, kinds[2][name], kinds[1][name]))
            for name in KINDS
        },
        total=total,
        stage=stage,
        dense=most(dense),
        expert=most(expert),
        of_lead=np.where(fullest == 0, lead.count * lead.dense_parameters(t), 0.0),
        of_ends=np.where(fullest == 0, ends[0], np.where(fullest == 2, ends[2], ends[1])),
        by_stage=(totals[0], totals[1], totals[2]),
    )


def _total(kinds: dict[str, Any]) -> Any:
    total: Any = 0.0
    for name in KINDS:
        total = total + kinds[name]
    return total


def _state(
    dense: Any, expert: Any, plan: Plan, training: Training, shared: Sharing, *, tables: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Weights, gradients and optimizer state of one device: what ZeRO splits is divided by its group.

    tables   weights and state of sparse tables [B], which are then the experts; None: experts are routed ones.  Rows
             are updated where they are read: no gradient is kept, and ZeRO and offloading leave them where they are
    """
    stage = plan.zero_stage
    found = {}
    for name, size, least in (
        ("weights", training.weight_bytes, 3), ("gradients", float(training.gradient_bytes), 2),
        ("optimizer", float(training.state_bytes), 1),
    ):  # fmt: skip
        split = stage >= least
        held = dense / np.where(split, shared.group, 1.0)
        if tables is None:
            held = held + expert / np.where(split, shared.expert_group, 1.0)
        found[name] = held * size
    found["weights"] = np.where(plan.offload == ALL, 0.0, found["weights"])
    found["optimizer"] = np.where(plan.offload > 0, 0.0, found["optimizer"])
    if tables is not None:
        found["weights"] = found["weights"] + tables[0]
        found["optimizer"] = found["optimizer"] + tables[1]
    return found


def _table_state(body: Block, plan: Plan, training: Training, parameters: Any) -> tuple[Any, Any]:
    """Weights and optimizer state [B] of sparse tables of which a device holds so many parameters.

    State is that of every row, touched or not: an element's, and a row's where the optimizer keeps one number a row.
    """
    element, row = training.table_state_bytes
    of_layer = body.expert_parameters(plan.tensor, plan.expert, plan.expert_tensor)
    rows = body.rows_on_device(plan.expert) * (parameters / of_layer)
    return parameters * TABLE_BYTES, parameters * element + rows * row


def _buffers(
    blocks: dict[str, Block], plan: Plan, training: Training, shared: Sharing, *, held: Any, ends: Any
) -> Any:
    """Whole weights of the layers at work where they are not kept, and the gradient of one before it is reduced.

    Embedding and head (`ends`) are gathered once for both passes and reduced after both, so they are whole meanwhile.
    Without resharding ZeRO-3 gathers all `held` parameters of the stage and keeps them until the backward pass.
    A rank that shares with no other keeps all of it anyway.
    """
    body, t = blocks["body"], plan.tensor
    layer = body.parameters_per_device(t, plan.expert, plan.expert_tensor) * largest_cell(body)
    if body.sparse:  # tables are never gathered
        layer = body.dense_parameters(t)
    splits = shared.group > 1
    gathers = (plan.zero_stage >= 3) & splits
    at_once = np.where(gathers & (plan.reshard == 0), held, np.minimum(GATHERED_LAYERS * layer + ends, held))
    weights = np.where(gathers | (plan.offload == ALL), at_once, 0.0)
    gradients = np.where((plan.zero_stage >= 2) & splits, np.minimum(layer + ends, held), 0.0)
    return weights * training.weight_bytes + gradients * float(training.gradient_bytes)


def _activations(
    plan: Plan, training: Training, blocks: dict[str, Block], stages: Stages
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Activations in flight and logits of the first, second and last stage."""
    whole = np.full_like(np.asarray(plan.recompute, dtype=float), NONE)
    kept = {place: saved_bytes(block, plan, training, recompute=plan.recompute) for place, block in blocks.items()}
    full = {place: saved_bytes(block, plan, training, recompute=whole) for place, block in blocks.items()}
    # recomputing a block holds its full activations for the moment of its backward pass
    working = (full["body"] - kept["body"]) * largest_kept(blocks["body"])
    mid_exists = np.where(plan.pipeline > 2, 1.0, 0.0)

    def of_layers(layers: Any, repeated: Any) -> Any:
        return repeated * kept["body"] + (layers - repeated) * full["body"]

    repeated = stages.repeated
    first, last = of_layers(stages.first, repeated[0]), of_layers(stages.last, repeated[3])
    middle = np.where(
        stages.high_count > 0, of_layers(stages.high, repeated[1]), of_layers(stages.low, repeated[2])
    )
    if stages.held is not None:
        # a stage's share of what is kept is not its share of the time
        first, middle, last = (
            of_layers(share, np.minimum(share, again * (share / np.maximum(cost, np.finfo(float).tiny))))
            for share, again, cost in zip(
                stages.held.kept, (repeated[0], repeated[1], repeated[3]), (stages.first, stages.high, stages.last),
                strict=True,
            )
        )
    flying = in_flight(plan, stages)
    at_ends = full["first"] + blocks["lead"].count * kept["lead"]
    # gpipe has the logits of all micro-batches before the first backward pass
    many = np.where(plan.schedule == GPIPE, flying[2], 1.0) * full["last"]
    logits = (stages.is_single * full["last"], 0.0 * full["last"], stages.has_last * many)
    # a micro-batch's logits are gone when its blocks are recomputed: the larger of both counts
    beside = np.maximum(working - full["last"], 0.0)
    activations = (
        flying[0] * (first + at_ends) + np.where(stages.is_single > 0, beside, working),
        (flying[1] * middle + working) * mid_exists,
        (flying[2] * last + beside) * stages.has_last,
    )
    return activations, logits
