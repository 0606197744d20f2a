"""What a step sends: every exchange, once, with its size and how often; bytes by axis are their sum.

Bytes are what one device sends whatever the algorithm: all-reduce 2 (n-1)/n S; reduce-scatter, all-gather and
all-to-all (n-1)/n S; point to point S.  Tensor, pipeline, context and expert axes: mean over stages.  Data axis: the
stage that sends most, of dense parameters and of experts each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from . import plan as laid
from .collectives import Sent, call
from .plan import Layout, Stage

AXES = ("tensor", "pipeline", "context", "expert", "data")


@dataclass(frozen=True)
class Call:
    """One exchange of one device: seconds, joules, and bytes by axis."""

    seconds: float = 0.0
    joules: float = 0.0
    sent: tuple[tuple[str, float], ...] = ()

    def __add__(self, other: Call) -> Call:
        return Call(self.seconds + other.seconds, self.joules + other.joules, self.sent + other.sent)

    def __rmul__(self, times: float) -> Call:
        return Call(times * self.seconds, times * self.joules, tuple((axis, times * size) for axis, size in self.sent))

    def bytes(self, axis: str) -> float:
        return sum(size for name, size in self.sent if name == axis)


def _call(layout: Layout, kind: str, axis: str, size: float, stride: float, message: float, copies: int = 1) -> Call:
    found: Sent = call(layout.design, kind, size=size, stride=stride, message=message, copies=copies)
    if kind == "all_to_all" and copies > 1:  # a row crosses once to each rank that wants it
        message *= size * (1.0 - (1.0 - 1.0 / size) ** copies) / copies
    share = {"all_reduce": 2.0 * (size - 1.0) / size, "point_to_point": float(size > 1)}.get(kind, (size - 1.0) / size)
    return Call(found.seconds, found.joules(layout.design.constants), ((axis, share * message),))


# In the passes of a layer --------------------------------------------------------------------------------------------


def exchange(layout: Layout, block: Any) -> Call:
    """One exchange of a block's boundary over the tensor axis: an all-reduce, or reduce-scatter and all-gather."""
    plan = layout.design.plan
    elements = block.exchanged or block.boundary or layout.body.exchanged or layout.body.boundary
    size = (plan.tensor, layout.distance["tensor"], layout.samples * elements * layout.activation)
    if plan.sequence_parallel:
        return _call(layout, "reduce_scatter", "tensor", *size) + _call(layout, "all_gather", "tensor", *size)
    return _call(layout, "all_reduce", "tensor", *size)


def keys(layout: Layout, block: Any) -> Call:
    """Keys and values of a layer, gathered over the context axis."""
    plan = layout.design.plan
    if plan.context == 1 or not block.context_exchange:
        return Call()
    heads = max(ceil(block.group_count / plan.tensor), 1)
    message = plan.micro_batch * (block.context_exchange / block.group_count) * layout.activation * heads
    return _call(layout, "all_gather", "context", plan.context, layout.distance["data"], message)


def tokens(layout: Layout, block: Any) -> Call:
    """Rows to experts and back: two all-to-alls.  Tensor ranks hold different rows with sequence parallelism, and
    where experts are whole."""
    plan = layout.design.plan
    if plan.expert == 1 or not block.routed:
        return Call()
    cut = plan.tensor if plan.sequence_parallel or not plan.expert_tensor else 1
    message = layout.samples * block.routed * layout.activation / cut
    copies = block.experts_per_token if layout.design.training.dispatch == "token" else 1
    return 2.0 * _call(layout, "all_to_all", "expert", plan.expert, layout.exchange_distance, message, copies)


def _gathered(layout: Layout, parameters: float, *, experts: bool = False, pieces: float = 1.0) -> tuple[Call, Call]:
    """(gather of weights, reduction of gradients) that ZeRO-3, and ZeRO-2, do in a pass.

    Groups that hold copies all-reduce the parts.  Weights on the host cross its link first, each rank its share.
    """
    plan, stage = layout.design.plan, layout.design.plan.zero_stage
    group, ranks, distance = layout.group, layout.ranks, layout.distance["data"]
    if experts:
        group, ranks, distance = layout.expert_group, layout.expert_ranks, layout.expert_distance
    fetch, reduce = Call(), Call()
    if stage >= 3:
        fetch = pieces * _call(layout, "all_gather", "data", group, distance, parameters / pieces * layout.activation)
    if stage >= 2:
        gradients = parameters / pieces * layout.gradient
        one = _call(layout, "reduce_scatter", "data", group, distance, gradients)
        one += _call(layout, "all_reduce", "data", ranks / group, distance * group, gradients / group)
        reduce = pieces * one
    if plan.offload == 2:
        read = parameters * layout.activation / (group if stage >= 3 else 1.0)
        fetch += Call(read / layout.design.cluster.host_bandwidth)
    return fetch, reduce


def of_layer(layout: Layout, block: Any) -> tuple[Call, Call]:
    """What a layer gathers and reduces in the passes."""
    if layout.design.stack.flat_gathers:
        pieces = float(max(len(getattr(block, "cells", ())), 1)) if block.place == "body" else 1.0
    else:
        pieces = float(sum(one.weight * one.repeats for one in block.matmuls)) if block.place == "body" else 1.0
    fetch, reduce = _gathered(layout, laid.dense(block, layout.design.plan.tensor), pieces=pieces)
    if block.parameters_expert and not block.sparse:
        more, again = _gathered(layout, laid.expert(block, layout.design.plan), experts=True)
        return fetch + more, reduce + again
    return fetch, reduce


def of_ends(layout: Layout, stage: Stage) -> tuple[Call, Call]:
    """What a stage gathers once and reduces once a micro-batch of its embedding and head."""
    return _gathered(layout, laid.ends(layout, stage))


def transfer(layout: Layout) -> Call:
    """A boundary to the next stage: whole, a part of the tokens with sequence parallelism, or a part from every tensor
    rank that is gathered on the other side (`split_boundary`)."""
    plan = layout.design.plan
    if plan.pipeline == 1:
        return Call()
    message = layout.samples * layout.body.boundary * layout.activation
    hop = (plan.pipeline, layout.distance["pipeline"])
    if plan.sequence_parallel or plan.tensor == 1:
        return _call(layout, "point_to_point", "pipeline", *hop, message / plan.tensor)
    if not layout.design.stack.split_boundary:
        return _call(layout, "point_to_point", "pipeline", *hop, message)
    part = _call(layout, "point_to_point", "pipeline", *hop, message / plan.tensor)
    return part + _call(layout, "all_gather", "tensor", plan.tensor, layout.distance["tensor"], message)


# Once a step ---------------------------------------------------------------------------------------------------------


def once(layout: Layout, parameters: float, *, experts: bool = False) -> tuple[Call, Call]:
    """(reduction of gradients, gather of weights) after the last backward pass.

    ZeRO-0 all-reduces; ZeRO-1 scatters in its group and all-reduces the parts between groups; ZeRO-1 and 2 gather the
    updated weights.
    """
    stage = layout.design.plan.zero_stage
    group, ranks, distance = layout.group, layout.ranks, layout.distance["data"]
    if experts:
        group, ranks, distance = layout.expert_group, layout.expert_ranks, layout.expert_distance
    gradients, weights = parameters * layout.gradient, parameters * layout.activation
    if stage == 0:
        return _call(layout, "all_reduce", "data", ranks, distance, gradients), Call()
    reduced, gathered = Call(), Call()
    if stage == 1:
        reduced = _call(layout, "reduce_scatter", "data", group, distance, gradients)
        reduced += _call(layout, "all_reduce", "data", ranks / group, distance * group, gradients / group)
    if stage <= 2:
        gathered = _call(layout, "all_gather", "data", group, distance, weights)
    return reduced, gathered


def touched_bytes(layout: Layout) -> float:
    """Bytes of gradients of the rows of sparse tables that a device's samples update in a step."""
    samples = layout.micro_batches * layout.design.plan.micro_batch
    return sum(layer.block.touched for layer in layout.layers if layer.block.sparse) * samples * layout.gradient


def rows(layout: Layout) -> Call:
    """All copies of a table gather the rows that any of them updated."""
    touched = touched_bytes(layout)
    if not touched:
        return Call()
    size = layout.expert_ranks
    return _call(layout, "all_gather", "data", size, layout.expert_distance, size * touched)


def tied(layout: Layout) -> Call:
    """First and last stage add up the gradients of a tied embedding: each sends all of it."""
    p = layout.design.plan.pipeline
    if p == 1:
        return Call()
    message = laid.shared(layout.last, layout.design.plan.tensor) * layout.gradient
    return _call(layout, "all_reduce", "pipeline", 2, layout.distance["pipeline"] * (p - 1), message)


# Bytes by axis -------------------------------------------------------------------------------------------------------


def crossings(layout: Layout, block: Any, repeats: bool) -> float:
    """Exchanges over the tensor axis of one micro-batch in a block, forward, backward and repeated."""
    if block.place in ("first", "last"):
        return float(block.reductions)
    again = {"full": 1.0, "per_operator": 0.5 * bool(layout.design.plan.sequence_parallel)}.get(layout.recompute, 0.0)
    return block.reductions * (2.0 + again * repeats)


def in_passes(layout: Layout, block: Any, repeats: bool) -> Call:
    """Everything a layer sends in the passes of one micro-batch."""
    full = 1.0 * (repeats and layout.recompute == "full")
    found = crossings(layout, block, repeats) * exchange(layout, block)
    if block.place in ("first", "last"):
        return found
    fetch, reduce = of_layer(layout, block)
    found += (3.0 + full) * keys(layout, block) + (2.0 + full) * tokens(layout, block)
    return found + (1.0 + reshards(layout)) * fetch + reduce


def reshards(layout: Layout) -> float:
    """1 where weights are gathered again for the backward pass."""
    splits = layout.design.plan.zero_stage >= 3 and max(layout.group, layout.expert_group) > 1
    return float(layout.design.plan.reshard) if splits else 1.0


def bytes_by_axis(layout: Layout) -> dict[str, float]:
    """Bytes one device sends in a step over each axis."""
    plan, m = layout.design.plan, layout.micro_batches
    p = plan.pipeline
    total = Call()
    for stage in layout.stages:
        for layer, number in stage.kinds:
            total += float(number) * in_passes(layout, layer.block, layer.repeats)
    total += in_passes(layout, layout.first, False) + in_passes(layout, layout.last, False)
    total = float(m) * (total + 2.0 * (p * plan.interleave - 1.0) * transfer(layout)) + 2.0 * tied(layout)
    found = {axis: total.bytes(axis) / p for axis in AXES}
    found["data"] = _data(layout)
    return found


def _data(layout: Layout) -> float:
    """Bytes over the data axis: of the stage that sends most for dense parameters, and for experts."""
    m, again = layout.micro_batches, 1.0 + reshards(layout)
    dense, expert = [], []
    for stage in layout.stages:
        late = sum(one.bytes("data") for one in once(layout, laid.stage_dense(layout, stage)))
        fetch, reduce = of_ends(layout, stage)
        early = fetch.bytes("data") + reduce.bytes("data")
        routed = sum(one.bytes("data") for one in once(layout, stage_routed(layout, stage), experts=True))
        for layer, number in stage.kinds:
            fetch, reduce = _gathered(layout, laid.dense(layer.block, layout.design.plan.tensor))
            early += number * (again * fetch.bytes("data") + reduce.bytes("data"))
            if not layer.block.sparse:
                fetch, reduce = _gathered(layout, laid.expert(layer.block, layout.design.plan), experts=True)
                routed += number * m * (again * fetch.bytes("data") + reduce.bytes("data"))
        dense.append(late + m * early)
        expert.append(routed)
    return max(dense) + max(expert) + rows(layout).bytes("data")


def stage_routed(layout: Layout, stage: Stage) -> float:
    """Parameters of routed experts of a stage on one device: sparse tables are never reduced or gathered whole."""
    return sum(n * laid.expert(layer.block, layout.design.plan) for layer, n in stage.kinds if not layer.block.sparse)
