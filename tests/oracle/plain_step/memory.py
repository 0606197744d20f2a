"""Bytes that one device of each stage holds, by kind; the fullest stage decides."""

from __future__ import annotations

from typing import Any

from . import plan as laid
from .plan import SCHEDULE, Layout, Stage

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


def stages(layout: Layout) -> list[dict[str, float]]:
    """Bytes by kind of every stage."""
    return [_stage(layout, number, stage) for number, stage in enumerate(layout.stages)]


def with_reserve(layout: Layout) -> float:
    """Bytes of the fullest stage, with what libraries and the allocator take."""
    stack = layout.design.stack
    fullest = max(sum(kinds.values()) for kinds in stages(layout))
    return fullest + stack.memory_reserve + stack.fragmentation * fullest


def kept(layout: Layout, block: Any, kind: str) -> float:
    """Bytes a block keeps of one micro-batch until its backward pass, under a kind of recomputation.

    (x - fixed) w/2 + fixed for activations of w bytes: masks, statistics and logits do not widen.
    full keeps the input; per_operator half of what is outside the attention core; only "none" keeps the scores of
    materialized attention.  A fused kernel keeps fp32 statistics of its rows.
    """
    plan, saved, width = layout.design.plan, block.saved, layout.activation / 2.0
    rows = plan.tensor if plan.sequence_parallel else 1
    if kind == "full":
        return layout.samples * saved.input * width / rows

    def wide(name: str) -> float:
        fixed = getattr(saved, f"{name}_fixed", 0)
        return (getattr(saved, name) - fixed) * width + fixed

    outside = wide("sequence") / rows + wide("tensor") / plan.tensor
    if layout.design.training.attention == "materialized":
        core = wide("core") / plan.tensor if kind == "none" else 0.0
    else:
        core = saved.statistics / plan.tensor
    return layout.samples * (outside * (0.5 if kind == "per_operator" else 1.0) + core)


def in_flight(layout: Layout, number: int) -> float:
    """Micro-batches a stage holds at once: forward passes it has done whose backward passes have not begun.

    gpipe all; 1f1b as many as stages follow, itself included; interleaved 2 (p - 1 - s) + (v - 1) p + 1 chunks.
    """
    plan, m, p = layout.design.plan, layout.micro_batches, len(layout.stages)
    if p > 1 and SCHEDULE[int(plan.schedule)] == "gpipe":
        return float(m)
    if plan.interleave > 1:
        chunks = 2 * (p - 1 - number) + (plan.interleave - 1) * p + 1
        return float(min(chunks / plan.interleave, m))
    return float(min(p - number, m))


def _stage(layout: Layout, number: int, stage: Stage) -> dict[str, float]:
    plan, zero = layout.design.plan, layout.design.plan.zero_stage
    dense, sparse = laid.stage_dense(layout, stage), any(one.block.sparse for one in stage.layers)
    expert = laid.stage_expert(layout, stage)

    def state(size: float, least: int, *, tables: bool) -> float:
        """Bytes of what every parameter has; ZeRO splits it over its group from stage `least` on, never tables."""
        one = dense / (layout.group if zero >= least else 1.0)
        if not sparse:
            one += expert / (layout.expert_group if zero >= least else 1.0)
        elif tables:
            one += expert
        return one * size

    activations, logits = _activations(layout, number, stage)
    return {
        "weights": 0.0 if plan.offload == 2 else state(layout.activation, 3, tables=True),
        "gradients": state(layout.gradient, 2, tables=False),  # rows of tables are updated where they are read
        "optimizer": 0.0 if plan.offload else state(layout.state, 1, tables=True),
        "activations": activations,
        "logits": logits,
        "buffers": _buffers(layout, stage, dense + expert),
    }


def _buffers(layout: Layout, stage: Stage, held: float) -> float:
    """Gathered weights of the layer at work and the next, and the gradient of one before it is reduced.

    Embedding and head are whole from the forward pass to the reduction.  Without resharding ZeRO-3 keeps
    all it gathers.
    """
    plan = layout.design.plan
    largest, outside = 0.0, laid.ends(layout, stage)
    for one in {id(layer.block): layer.block for layer in layout.layers if layer.block.place == "body"}.values():
        cells = getattr(one, "cells", ())
        part = max(cell.parameters for cell in cells) / one.parameters if cells and one.parameters else 1.0
        size = laid.dense(one, plan.tensor)
        if not one.sparse:
            size = (size + laid.expert(one, plan)) * part
        largest = max(largest, size)
    shares = layout.group > 1
    bytes_held = 0.0
    if plan.zero_stage >= 3 and shares and not plan.reshard:
        bytes_held += held * layout.activation
    elif (plan.zero_stage >= 3 and shares) or plan.offload == 2:
        bytes_held += min(2.0 * largest + outside, held) * layout.activation
    if plan.zero_stage >= 2 and shares:
        bytes_held += min(largest + outside, held) * layout.gradient
    return bytes_held


def _activations(layout: Layout, number: int, stage: Stage) -> tuple[float, float]:
    """What is in flight, with one layer whole while it recomputes; and logits.

    A micro-batch's logits are gone when its layers recompute, so that the larger of both counts.
    """
    kind, p = layout.recompute, len(layout.stages)
    held = sum(n * kept(layout, layer.block, kind if layer.repeats else "none") for layer, n in stage.kinds)
    working = 0.0
    for one in {id(layer.block): layer.block for layer in layout.layers if layer.block.place == "body"}.values():
        cells = getattr(one, "cells", ())
        total = sum(cell.kept for cell in cells)
        part = max(cell.kept for cell in cells) / total if total else 1.0
        working = max(working, (kept(layout, one, "none") - kept(layout, one, kind)) * part)
    if stage.first is not None:
        held += kept(layout, stage.first, "none")
    logits = 0.0
    if stage.last is not None:
        one = kept(layout, stage.last, "none")
        working = max(working - one, 0.0)
        flying = in_flight(layout, number) if SCHEDULE[int(layout.design.plan.schedule)] == "gpipe" and p > 1 else 1.0
        logits = flying * one
    return in_flight(layout, number) * held + working, logits
