"""Bytes a device holds, by kind, on its fullest pipeline stage. Depends on plan and workload, not on the chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.stages import Stages
from workloads.operators import Block
from workloads.plan import Plan
from workloads.precision import Training

KINDS = ("weights", "gradients", "optimizer", "activations", "logits")


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest stage by kind [B], and parameters of the stage with most of them.

    by_stage   bytes of the first, second and last stage; their maximum is `total`
    """

    by_kind: dict[str, Any]
    total: Any
    stage: Any
    parameters: Any
    by_stage: tuple[Any, Any, Any]


def saved_bytes(block: Block, plan: Plan, training: Training, *, recompute: Any) -> Any:
    """Bytes one block keeps of one micro-batch until its backward pass.

    Korthikanti et al. 2022, eq. 1-4, per operator; without dropout or with gated MLPs as the operators say.
    recompute 1 drops the attention core, 2 keeps the input only.  Wider activations widen everything but
    the logits, which are fp32 already (dropout masks too, which overstates fp32 training a little).
    """
    t, samples = plan.tensor, plan.micro_batch
    scale = training.activation_bytes / 2.0
    over_sequence = np.where(plan.sequence_parallel > 0, t, 1.0)
    kept = block.saved
    core: Any = kept.statistics / t
    if training.attention == "materialized":
        core = np.where(recompute >= 1, 0.0, kept.core * scale / t)
    inner = 1.0 if block.place == "last" else scale
    everything = kept.sequence * scale / over_sequence + kept.tensor * inner / t + core
    return samples * np.where(recompute >= 2, kept.input * scale / over_sequence, everything)


def in_flight(plan: Plan, stages: Stages) -> tuple[Any, Any, Any]:
    """Micro-batches that the first, second and last stage keep.

    gpipe: all m.  1f1b: min(p - stage, m).  Interleaved with v chunks: chunks 2 (p - 1 - stage) + (v - 1) p + 1
    of 1/v of a stage's layers each, at most m v.
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


def memory(plan: Plan, training: Training, blocks: dict[str, Block], stages: Stages) -> Memory:
    """Bytes by kind of the fullest of the first, second and last stage.

    Stages between the second and the last hold no more layers and fewer micro-batches than the second.
    A tied head that sits on another stage than the embedding stores its own copy.
    """
    t = plan.tensor
    embedding, body, head = blocks["first"], blocks["body"], blocks["last"]
    per_layer = body.parameters_per_device(t)
    per_embedding = embedding.parameters_per_device(t)
    per_head = head.parameters_per_device(t)
    head_on_single = per_head - head.shared_parameters / t
    parameters = (
        stages.first * per_layer + per_embedding + stages.is_single * head_on_single,
        np.where(stages.high_count > 0, stages.high, stages.low) * per_layer,
        (stages.last * per_layer + per_head) * stages.has_last,
    )
    kept = saved_bytes(body, plan, training, recompute=plan.recompute)
    # recomputing a block holds its full activations for the moment of its backward pass
    working = saved_bytes(body, plan, training, recompute=0.0 * plan.recompute) - kept
    flying = in_flight(plan, stages)
    ends = saved_bytes(embedding, plan, training, recompute=0.0 * plan.recompute)
    logits = saved_bytes(head, plan, training, recompute=0.0 * plan.recompute)
    mid_exists = np.where(plan.pipeline > 2, 1.0, 0.0)
    activations = (
        flying[0] * (stages.first * kept + ends) + working,
        (flying[1] * np.where(stages.high_count > 0, stages.high, stages.low) * kept + working) * mid_exists,
        (flying[2] * stages.last * kept + working) * stages.has_last,
    )
    logits_by_stage = (stages.is_single * logits, 0.0 * logits, stages.has_last * logits)
    sharding = np.where(plan.zero_stage >= 1, plan.data, 1.0)
    per_parameter = training.weight_bytes + training.gradient_bytes + training.state_bytes / sharding
    totals = [
        parameters[i] * per_parameter + activations[i] + logits_by_stage[i] for i in range(3)
    ]
    totals[1] = totals[1] * mid_exists
    total = np.maximum(np.maximum(totals[0], totals[1]), totals[2])
    stage = np.where(total == totals[0], 0, np.where(total == totals[2], 2, 1))

    def fullest(values: tuple[Any, Any, Any]) -> Any:
        return np.where(stage == 0, values[0], np.where(stage == 2, values[2], values[1]))

    held = fullest(parameters)
    return Memory(
        by_kind={
            "weights": held * training.weight_bytes,
            "gradients": held * training.gradient_bytes,
            "optimizer": held * training.state_bytes / sharding,
            "activations": fullest(activations),
            "logits": fullest(logits_by_stage),
        },
        total=total,
        stage=stage,
        parameters=np.maximum(np.maximum(parameters[0], parameters[1] * mid_exists), parameters[2]),
        by_stage=(totals[0], totals[1], totals[2]),
    )
