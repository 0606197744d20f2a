"""What a simulated step consists of: the seconds of every chunk of every stage, read from the priced tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.combine import combine
from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import passes, settled
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.passes import BlockPasses
from dse.evaluation.traffic import price_traffic
from workloads.cuts import cut_cells
from workloads.plan import SCHEDULE

__all__ = ["Chunk", "Pieces", "pieces"]


@dataclass(frozen=True)
class Chunk:
    """Seconds of one micro-batch; `weights` are the part of `backward` that are weight gradients; parameters held."""

    forward: float
    backward: float
    weights: float
    parameters: float


@dataclass(frozen=True)
class Pieces:
    """Everything that happens in a step of one design, in seconds.

    chunks             [stage][chunk], chunk k of stage s being the (k p + s)-th part of the network
    transfer           a boundary to the next part; overlapped, or both stages wait
    reduction, gather, update   on the stage with most parameters; others by their share of parameters
    buckets            messages of that reduction; overlapped with the last backward pass
    tied               all-reduce of a tied embedding between first and last stage
    """

    schedule: str
    micro_batches: int
    chunks: tuple[tuple[Chunk, ...], ...]
    transfer: float
    overlaps_transfer: bool
    reduction: float
    buckets: int
    overlaps_reduction: bool
    overlap_efficiency: float
    gather: float
    tied: float
    update: float
    overhead: float

    @property
    def stages(self) -> int:
        """How many stages."""
        return len(self.chunks)


def pieces(design: Design) -> Pieces:
    """The pieces of one design (scalars); ValueError for columns."""
    r = rows(design)
    layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
    traffic = price_traffic(r, layout)
    r = settled(r, layout, traffic)
    blocks = passes(r, layout, traffic)
    step = combine(r, layout, blocks, traffic)
    if np.size(step.time) != 1:
        raise ValueError(f"design: found {np.size(step.time)} designs in columns, allowed: one design of scalars")
    once, plan = layout.reductions.spread, layout.plan
    held = _number(once(layout.messages.reduced_once(r.training.gradient_bytes)))
    return Pieces(
        schedule=SCHEDULE[int(_number(plan.schedule))],
        micro_batches=int(_number(layout.stages.micro_batches)),
        chunks=_chunks(layout, blocks, _number(r.stack.micro_batch_overhead)),
        transfer=_number(layout.transfers.spread(traffic.boundary)),
        overlaps_transfer=_number(plan.overlap_pipeline) > 0,
        reduction=_number(once(traffic.gradients.time)),
        # a stack without buckets reduces every gradient as it comes: buckets of a byte
        buckets=max(1, int(np.ceil(held / max(_number(r.stack.gradient_bucket), 1.0)))),
        overlaps_reduction=_number(plan.overlap_data) > 0,
        overlap_efficiency=_number(r.stack.overlap_efficiency),
        gather=_number(once(traffic.gather.time)),
        tied=_number(once(traffic.tied.time)),
        update=_number(step.update),
        overhead=_number(r.stack.step_overhead),
    )


def _number(value: Any) -> float:
    return float(np.asarray(value, dtype=float).reshape(-1)[0])


def _chunks(layout: Layout, blocks: dict[str, BlockPasses], overhead: float) -> tuple[tuple[Chunk, ...], ...]:
    """Layers dealt to parts in order; embedding in the first part, head in the last."""
    plan = layout.plan
    p = int(_number(plan.pipeline))
    v = int(_number(plan.interleave)) if p > 1 else 1
    most = _number(plan.recompute_layers) or float("inf")
    t = plan.tensor
    spread = layout.passes.spread

    def seconds(place: str) -> tuple[float, float, float, float]:
        one = blocks[place]
        found = (one.forward.seconds, one.backward.seconds, one.again.seconds, one.weights)
        return tuple(_number(spread(np.broadcast_to(value, np.shape(one.forward.seconds)))) for value in found)  # type: ignore[return-value]

    times = {place: seconds(place) for place in blocks if blocks[place] is not None}
    held = {place: _parameters(layout, place, t) for place in blocks}
    lead, layers = layout.blocks["lead"].count, layout.blocks["body"].count + layout.blocks["lead"].count
    cells = layout.blocks["body"].cells
    if cells:  # layers of several kinds: stages hold shares of them all
        counts: list[float] = list(cut_cells(cells, p, _number(plan.split) > 0).cost)
        most = most / len(cells)
    else:
        counts = list(_dealt(layers, p, v, balanced=_number(plan.split) > 0))
    found: list[list[Chunk]] = [[] for _ in range(p)]
    repeated, dealt = [0.0] * p, 0.0
    for part, count in enumerate(counts):
        stage, leading = part % p, min(max(lead - dealt, 0), count)
        dealt += count
        body = count - leading
        again = min(max(most - repeated[stage], 0.0), float(body))
        repeated[stage] += again
        numbers = {"lead": float(leading), "body": float(body), "first": float(part == 0),
                   "last": float(part == p * v - 1)}  # fmt: skip
        repeats = {"lead": float(leading), "body": again, "first": 0.0, "last": 0.0}
        forward = sum(n * times[place][0] for place, n in numbers.items())
        backward = sum(n * times[place][1] + repeats[place] * times[place][2] for place, n in numbers.items())
        found[stage].append(
            Chunk(
                forward,
                backward + numbers["last"] * overhead,
                sum(n * times[place][3] for place, n in numbers.items()),
                sum(n * held[place] for place, n in numbers.items()),
            )
        )
    return tuple(tuple(stage) for stage in found)


def _parameters(layout: Layout, place: str, tensor: Any) -> float:
    """Parameters of a block on one device."""
    block = layout.blocks[place]
    if not block.count:
        return 0.0
    held: Any = block.dense_parameters(tensor)
    if block.parameters_expert:
        held = held + block.expert_parameters(tensor, layout.plan.expert, layout.plan.expert_tensor)
    return _number(held)


def _dealt(layers: int, pipeline: int, chunks: int, *, balanced: bool) -> list[int]:
    """Layers of every part: dealt like cards, the ends holding one less where embedding and head count as one."""
    parts = pipeline * chunks
    ends = balanced and parts > 1 and chunks == 1  # chunks are even
    found = [0] * parts
    for unit in range(layers + 2 * ends):
        found[unit % parts] += 1
    if ends:
        found[0] -= 1
        found[-1] -= 1
    return found
