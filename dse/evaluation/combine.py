"""Step time and energy of every plan from block passes: column arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.layout import Layout
from dse.evaluation.passes import SPENT, BlockPasses
from dse.evaluation.schedule import StageTimes, pipeline_time
from dse.evaluation.stages import PLACES
from dse.evaluation.traffic import Traffic
from workloads.plan import SCHEDULE

ZERO_BUBBLE = SCHEDULE.index("zero_bubble")


@dataclass(frozen=True)
class Step:
    """Seconds of a step: its pipeline of micro-batches, waiting for the slowest device, exposed data-parallel
    communication, update, and all of it."""

    time: Any
    running: Any
    straggler: Any
    data: Any
    update: Any


def combine(rows: Rows, layout: Layout, blocks: dict[str, BlockPasses], traffic: Traffic) -> Step:
    """One optimizer step.

    step = pipeline of m micro-batches (1 + jitter / sqrt m x how far the slowest device is behind)
           + exposed gradient reduction + weight gather + tied embedding + update + overhead
    """
    plan, stack, stages = layout.plan, rows.stack, layout.stages
    times = stage_times(rows, layout, blocks)
    running = pipeline_time(
        times, stages, pipeline=plan.pipeline, interleave=plan.interleave,
        # one stage has one order of passes, whatever it is called
        is_gpipe=(plan.schedule == 0) & (plan.pipeline > 1),
        transfer=layout.transfers.spread(traffic.boundary), overlaps=plan.overlap_pipeline,
        is_zero_bubble=plan.schedule == ZERO_BUBBLE,
    )
    window = _of_first_stage(layout, blocks, "hides")
    if layout.moves_weights:  # the last pass of a stage is then one of weight gradients alone
        window = np.where(plan.schedule == ZERO_BUBBLE, _of_first_stage(layout, blocks, "hides_weights"), window)
    after = layout.reductions.spread(traffic.gather.time + traffic.tied.time)
    data = reduction(rows, layout, traffic, window) + after
    update = _update(rows, layout)
    straggler = running * (stack.jitter * layout.slowest / np.sqrt(stages.micro_batches))
    return Step(running + straggler + data + update + stack.step_overhead, running, straggler, data, update)


def _of_first_stage(layout: Layout, blocks: dict[str, BlockPasses], name: str) -> Any:
    """Seconds of all layers of the first stage, leading ones too."""
    spread, lead = layout.passes.spread, layout.blocks["lead"].count
    total = layout.stages.first * spread(getattr(blocks["body"], name))
    return total + float(lead) * spread(getattr(blocks["lead"], name)) if lead else total


def stage_times(rows: Rows, layout: Layout, blocks: dict[str, BlockPasses]) -> StageTimes:
    """Seconds of one micro-batch on each kind of stage: layers, those that recompute, embedding and head."""
    stages, at = layout.stages, layout.passes.spread
    body, lead = blocks["body"], blocks["lead"]
    forward, backward, again = at(body.forward.seconds), at(body.backward.seconds), at(body.again.seconds)
    first = [at(blocks["first"].forward.seconds), at(blocks["first"].backward.seconds)]
    if layout.blocks["lead"].count:
        count = float(layout.blocks["lead"].count)
        first[0] = first[0] + count * at(lead.forward.seconds)
        first[1] = first[1] + count * at(lead.backward.seconds + lead.again.seconds)
    last = at(blocks["last"].forward.seconds), at(blocks["last"].backward.seconds) + rows.stack.micro_batch_overhead

    def layers(count: Any, repeated: Any) -> tuple[Any, Any]:
        return count * forward, count * backward + repeated * again

    one, high, low, end = (
        layers(count, repeated)
        for count, repeated in zip((stages.first, stages.high, stages.low, stages.last), stages.repeated, strict=True)
    )
    return StageTimes(
        first=(
            one[0] + first[0] + stages.is_single * last[0],
            one[1] + first[1] + stages.is_single * last[1],
        ),
        high=high,
        low=low,
        last=((end[0] + last[0]) * stages.has_last, (end[1] + last[1]) * stages.has_last),
        **_weights(layout, blocks),
    )


def _weights(layout: Layout, blocks: dict[str, BlockPasses]) -> dict[str, Any]:
    """Seconds of weight gradients on each stage kind, where a schedule moves them."""
    if not layout.moves_weights:
        return {}
    stages, at = layout.stages, layout.passes.spread
    per_layer, first, last = (at(blocks[place].weights) for place in ("body", "first", "last"))
    lead = float(layout.blocks["lead"].count) * at(blocks["lead"].weights)
    return {
        "weights": (
            stages.first * per_layer + first + lead + stages.is_single * last, stages.high * per_layer,
            stages.low * per_layer, (stages.last * per_layer + last) * stages.has_last,
        )
    }  # fmt: skip


def reduction(rows: Rows, layout: Layout, traffic: Traffic, window: Any) -> Any:
    """Exposed gradient reduction: the last backward pass hides all but the last bucket, as far as it is long enough."""
    spread = layout.reductions.spread
    seconds = spread(traffic.gradients.time)
    held = layout.messages.reduced_once(rows.training.gradient_bytes)
    hidden = spread(1.0 - np.minimum(rows.stack.gradient_bucket / np.maximum(held, 1.0), 1.0))
    hides = rows.stack.overlap_efficiency * layout.plan.overlap_data
    return seconds - hides * np.minimum(seconds * hidden, window)


def _update(rows: Rows, layout: Layout) -> Any:
    """Seconds of the optimizer on the stage with most parameters: memory traffic, or the host's where it is offloaded.

    An offloaded update sends gradients to the host and weights back; the host's own work hides behind both.
    """
    held, plan = layout.memory, layout.plan
    split = plan.zero_stage >= 1
    parameters = held.dense / np.where(split, layout.shared.group, 1.0)
    if not layout.blocks["body"].sparse:  # rows of tables are updated in the passes
        parameters = parameters + held.expert / np.where(split, layout.shared.expert_group, 1.0)
    bandwidth = rows.chip.hbm_bandwidth * rows.stack.memory_efficiency
    update = parameters * (_bytes_per_update(rows) * rows.stack.update_passes) / bandwidth
    if not np.any(plan.offload > 0):
        return update
    return np.where(plan.offload > 0, parameters * _bytes_to_host(rows) / rows.cluster.host_bandwidth, update)


def _bytes_to_host(rows: Rows) -> float:
    """Bytes of a parameter whose update is offloaded: its gradient out, its weight back."""
    return float(rows.training.gradient_bytes) + rows.training.weight_bytes


def _bytes_per_update(rows: Rows) -> float:
    """HBM bytes of a parameter's update: gradient read for its norm and again, states read and written, weight out.

    A weight that is its own master (fp32) is read too.
    """
    training = rows.training
    weight = training.weight_bytes * (2.0 if training.is_own_master else 1.0)
    return 2.0 * training.gradient_bytes + 2.0 * training.state_bytes + weight


def parts(rows: Rows, layout: Layout, blocks: dict[str, BlockPasses], step: Step) -> dict[str, Any]:
    """Seconds of a step by what they are spent on; they add up to it.

    Work is the mean of all stages; what is left of the pipeline is bubble (fill, imbalance, transfers).
    """
    stages, at = layout.stages, layout.passes.spread
    share = stages.micro_batches / layout.plan.pipeline
    counts = {place: float(layout.blocks[place].count) for place in PLACES}
    once: dict[str, Any] = {}
    for kind in SPENT:
        total: Any = 0.0
        for place in PLACES:
            if not counts[place]:
                continue
            one = blocks[place]
            both = getattr(one.backward, kind) if kind == "device" else (
                getattr(one.forward, kind) + getattr(one.backward, kind)
            )
            total = total + counts[place] * both
        once[kind] = at(total)
    forward: Any = 0.0
    for place in PLACES:
        forward = forward + counts[place] * blocks[place].forward.device
    again = {kind: _repeated(layout, blocks, kind) for kind in SPENT}
    found = {
        "time_forward": share * at(forward),
        "time_backward": share * once["device"],
        "time_recompute": share * again["device"],
        "time_tensor": share * (once["tensor"] + again["tensor"]),
        "time_context": share * (once["context"] + again["context"]),
        "time_expert": share * (once["expert"] + again["expert"]),
        "time_shard": share * once["data"],
        # a recomputation that fits into what the backward pass waits for the host counts less than nothing there
        "time_host": np.maximum(share * (once["host"] + again["host"] + rows.stack.micro_batch_overhead), 0.0),
    }
    busy: Any = 0.0
    for seconds in found.values():
        busy = busy + seconds
    return found | {
        # rounding of the two sums may leave a hair below zero where there is no bubble
        "time_bubble": np.maximum(step.running - busy, 0.0),
        "time_straggler": step.straggler,
        "time_data": step.data,
        "time_update": step.update,
        "time_overhead": rows.stack.step_overhead,
    }


def _repeated(layout: Layout, blocks: dict[str, BlockPasses], kind: str) -> Any:
    """Seconds of one kind in what all recomputing layers repeat."""
    total = layout.stages.repeated_total * layout.passes.spread(getattr(blocks["body"].again, kind))
    lead = layout.blocks["lead"].count
    return total + float(lead) * layout.passes.spread(getattr(blocks["lead"].again, kind)) if lead else total


def energies(rows: Rows, layout: Layout, blocks: dict[str, BlockPasses], traffic: Traffic) -> tuple[Any, Any]:
    """Dynamic joules of the whole cluster in a step: operators and update; everything sent."""
    plan, stages, technology = layout.plan, layout.stages, rows.technology
    at = layout.passes.spread
    # device micro-batches: every replica of the model runs its share of the global batch
    work = plan.data * plan.context * plan.tensor * stages.micro_batches
    operators: Any = 0.0
    for place, block in layout.blocks.items():
        if block.count:
            operators = operators + float(block.count) * blocks[place].compute_energy
    repeated = stages.repeated_total * at(blocks["body"].again_energy)
    if layout.blocks["lead"].count:
        lead = float(layout.blocks["lead"].count)
        repeated = repeated + lead * at(blocks["lead"].again_energy)
    moved: Any = _bytes_per_update(rows)
    if np.any(plan.offload > 0):
        moved = np.where(plan.offload > 0, _bytes_to_host(rows), moved)
    compute = work * (at(operators) + repeated) + _updated(layout) * moved * technology.hbm_energy
    devices = plan.data * plan.context * plan.tensor * plan.pipeline
    return compute, devices * layout.ledger.fold(lambda line: getattr(traffic, line.call).energy)


def _updated(layout: Layout) -> Any:
    """Parameters that all devices together update: one copy of each in every group that splits the update."""
    plan, shared = layout.plan, layout.shared
    split = plan.zero_stage >= 1
    dense: Any = 0.0
    expert: Any = 0.0
    for block in layout.blocks.values():
        if block.count:
            dense = dense + float(block.count) * block.dense_parameters(plan.tensor)
            expert = expert + float(block.count) * float(block.parameters_expert)
    # a tied head on the embedding's own stage is the same table
    dense = dense - layout.stages.is_single * layout.blocks["last"].shared_on_device(plan.tensor)
    total = plan.tensor * np.where(split, shared.copies, shared.ranks) * dense
    if layout.blocks["body"].parameters_expert and not layout.blocks["body"].sparse:
        total = total + np.where(split, shared.expert_copies, shared.expert_ranks) * expert
    return total
