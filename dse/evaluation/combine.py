"""Step time and energy of every plan from block prices: column arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.layout import Layout, crossings
from dse.evaluation.price import Priced
from dse.evaluation.schedule import StageTimes, pipeline_time
from dse.evaluation.traffic import Traffic


@dataclass(frozen=True)
class Passes:
    """One micro-batch in each pass situation, (S,) or (H, S): seconds with exchanges, and sums over the network.

    body, first, last   (forward, backward) of one block, recomputation in the backward
    forward, backward, recompute, tensor   seconds of all blocks, by what they are spent on
    energy              dynamic joules of one device of the tensor axis, exchanges included apart
    """

    body: tuple[Any, Any]
    first: tuple[Any, Any]
    last: tuple[Any, Any]
    forward: Any
    backward: Any
    recompute: Any
    tensor: Any
    compute_energy: Any
    exchange_energy: Any


@dataclass(frozen=True)
class Step:
    """Seconds of a step and its parts (they add up), and dynamic joules of the whole cluster."""

    time: Any
    parts: dict[str, Any]
    compute_energy: Any
    communication_energy: Any


def passes(layout: Layout, priced: Priced, traffic: Traffic) -> Passes:
    """Passes of every block in the pass situations, from operator prices and exchanges.

    backward = gradients + recomputed forward (2: the whole block with its exchanges, 1: the attention core)
    """
    at, blocks = layout.operators.spread, layout.blocks
    layers = float(blocks["body"].count)
    recompute = layout.at_pass["recompute"]
    forward = {place: at(table) for place, table in priced.forward.items()}
    backward = {place: at(table) for place, table in priced.backward.items()}
    repeated = np.where(recompute >= 2, forward["body"], np.where(recompute >= 1, at(priced.core), 0.0))
    energy_again = np.where(
        recompute >= 2, at(priced.forward_energy["body"]), np.where(recompute >= 1, at(priced.core_energy), 0.0)
    )
    exchange = traffic.exchange.time
    count = {place: float(block.reductions) for place, block in blocks.items()}
    again = np.where(recompute >= 2, count["body"], 0.0)
    number = crossings(blocks, recompute)
    body_energy = at(priced.forward_energy["body"] + priced.backward_energy["body"]) + energy_again
    end_energy = at(
        priced.forward_energy["first"] + priced.backward_energy["first"]
        + (priced.forward_energy["last"] + priced.backward_energy["last"])
    )
    return Passes(
        body=(
            forward["body"] + count["body"] * exchange,
            backward["body"] + repeated + (count["body"] + again) * exchange,
        ),
        first=(forward["first"] + count["first"] * exchange, backward["first"]),
        last=(forward["last"], backward["last"] + count["last"] * exchange),
        forward=layers * forward["body"] + forward["first"] + forward["last"],
        backward=layers * backward["body"] + backward["first"] + backward["last"],
        recompute=layers * repeated,
        tensor=number * exchange,
        compute_energy=layers * body_energy + end_energy,
        exchange_energy=number * traffic.exchange.energy,
    )


def combine(rows: Rows, layout: Layout, priced: Priced, traffic: Traffic) -> Step:
    """One optimizer step.

    step = pipeline of micro-batches + exposed gradient reduction + weight gather + tied embedding + update + overhead.
    The parts report stage means of work; what is left of the pipeline is bubble (fill, imbalance, transfers).
    """
    plan, stack, stages = layout.plan, rows.stack, layout.stages
    one = passes(layout, priced, traffic)
    at = layout.passes.spread
    body = at(one.body[0]), at(one.body[1])
    first = at(one.first[0]), at(one.first[1])
    last = at(one.last[0]), at(one.last[1])
    times = StageTimes(
        first=(
            stages.first * body[0] + first[0] + stages.is_single * last[0],
            stages.first * body[1] + first[1] + stages.is_single * last[1],
        ),
        high=(stages.high * body[0], stages.high * body[1]),
        low=(stages.low * body[0], stages.low * body[1]),
        last=((stages.last * body[0] + last[0]) * stages.has_last, (stages.last * body[1] + last[1]) * stages.has_last),
    )
    running = pipeline_time(
        times, stages, pipeline=plan.pipeline, interleave=plan.interleave, is_gpipe=plan.schedule == 0,
        transfer=layout.transfers.spread(traffic.transfer.time), overlaps=plan.overlap_pipeline,
    )

    # the last backward pass hides the gradient reduction of the layers behind it
    window = plan.overlap_data * stages.first * body[1]
    reduction = layout.reductions.spread(traffic.gradients.time)
    after = layout.reductions.spread(traffic.gather.time + traffic.tied.time)
    data = np.maximum(reduction - window, 0.0) + after
    bandwidth = rows.chip.hbm_bandwidth * stack.memory_efficiency
    update = layout.memory.parameters * _bytes_per_update(rows, layout) / bandwidth

    share = stages.micro_batches / plan.pipeline
    parts = {
        "time_forward": share * at(one.forward),
        "time_backward": share * at(one.backward),
        "time_recompute": share * at(one.recompute),
        "time_tensor": share * at(one.tensor),
    }
    busy = parts["time_forward"] + parts["time_backward"] + parts["time_recompute"] + parts["time_tensor"]
    parts |= {
        # rounding of the two sums may leave a hair below zero where there is no bubble
        "time_bubble": np.maximum(running - busy, 0.0),
        "time_data": data,
        "time_update": update,
        "time_overhead": stack.step_overhead,
    }
    compute, communication = energies(rows, layout, one, traffic)
    return Step(running + data + update + stack.step_overhead, parts, compute, communication)


def energies(rows: Rows, layout: Layout, one: Passes, traffic: Traffic) -> tuple[Any, Any]:
    """Dynamic joules of the whole cluster in a step: operators and update; everything sent."""
    plan, stages, technology = layout.plan, layout.stages, rows.technology
    # device micro-batches: every replica of the model runs its share of the global batch
    work = plan.data * plan.tensor * stages.micro_batches
    hops = 2.0 * (plan.pipeline * plan.interleave - 1.0) * work
    once = layout.at_reduction
    reduced = once["devices"] * (traffic.gradients.energy + traffic.gather.energy) + (
        2.0 * once["replicas"] * traffic.tied.energy
    )
    parameters: Any = 0.0
    for block in layout.blocks.values():
        parameters = parameters + block.count * block.parameters_per_device(plan.tensor)
    updated = plan.tensor * plan.data * parameters * _bytes_per_update(rows, layout)
    compute = work * layout.passes.spread(one.compute_energy) + updated * technology.hbm_energy
    sent = work * layout.passes.spread(one.exchange_energy) + hops * layout.transfers.spread(traffic.transfer.energy)
    return compute, sent + layout.reductions.spread(reduced)


def _bytes_per_update(rows: Rows, layout: Layout) -> Any:
    """HBM bytes of a parameter's update: read gradient and states, write states and weight; sharded by ZeRO-1."""
    training, plan = rows.training, layout.plan
    sharding = np.where(plan.zero_stage >= 1, plan.data, 1.0)
    return (training.gradient_bytes + 2.0 * training.state_bytes + training.weight_bytes) / sharding
