"""Seconds of a step by what they are spent on: passes of layers, pipeline, reduction, update, overhead.

The window rule.  A layer has three windows of device seconds for one micro-batch: F forward, R repeated, B backward.
An exchange of c seconds that may hide behind what is left w of a window runs beside min(c, w) of it; eta (the stack's
`overlap_efficiency`) of that is hidden, and the window is w - min(c, w) afterwards: a window is spent once.
They take it in this order:
  1. keys and values on a ring: behind the attention core C: F min(c, C), R likewise, B min(2 c, 2 C)
  2. exchanges over the tensor axis: n forward, n backward; repeated n (full) or n/2 (per operator, sequence parallel)
  3. rows to experts: beside another micro-batch's pass, so that the three windows are one pool
  4. ZeRO's gathers and reductions: fetch behind F; fetch again and reduce behind B + R
  5. the gradient reduction after the last backward pass: behind what the layers of the first stage have left of it
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

from . import plan as laid
from . import traffic
from .layers import LayerWork, layer_work
from .pipeline import Pipeline
from .pipeline import seconds as pipeline_seconds
from .plan import SCHEDULE, Layer, Layout

SPENT = ("device", "tensor", "context", "expert", "data", "host")


@dataclass
class Pass:
    """Seconds of one pass of one block: kernels, exposed exchanges by axis, waiting for the host."""

    device: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    data: float = 0.0
    host: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(getattr(self, name) for name in SPENT)


@dataclass
class Passes:
    """forward, backward and repeated pass of a layer; weights: device seconds of weight gradients; left: of B."""

    forward: Pass
    backward: Pass
    again: Pass
    weights: float
    left: float


def paced(busy: float, issue: float) -> float:
    """(busy^4 + issue^4)^(1/4): the slower of device and host, a fifth more where both are as slow."""
    return float((busy**4 + issue**4) ** 0.25)


class Windows:
    """What exchanges leave of the device seconds of a layer."""

    def __init__(self, eta: float, **left: float) -> None:
        self.eta, self.left = eta, left

    def exposed(self, seconds: float, *names: str, on: float = 1.0, most: float = float("inf")) -> float:
        """Seconds of an exchange that stay visible; it takes its share of the windows `names` together."""
        pool = sum(self.left[name] for name in names)
        run = on * min(seconds, pool, most)
        for name in names:
            self.left[name] -= run * self.left[name] / pool if pool else 0.0
        return seconds - self.eta * run


def layer_passes(layout: Layout, layer: Layer, work: LayerWork) -> Passes:
    """Forward, backward and repeated pass of a layer."""
    plan, stack, block = layout.design.plan, layout.design.stack, layer.block
    kind = layout.recompute if layer.repeats else "none"
    full = 1.0 * (kind == "full")
    repeated = work.repeated(kind)
    windows = Windows(stack.overlap_efficiency, F=work.forward.seconds, R=repeated.seconds, B=work.backward.seconds)
    forward, backward, again = Pass(work.forward.seconds), Pass(work.backward.seconds), Pass(repeated.seconds)

    ring, once, core = bool(plan.context_ring), traffic.keys(layout, block).seconds, work.core.seconds
    forward.context = windows.exposed(once, "F", on=ring, most=core)
    again.context = windows.exposed(full * once, "R", on=ring, most=core)
    backward.context = windows.exposed(2.0 * once, "B", on=ring, most=2.0 * core)

    overlap = plan.overlap_tensor * plan.sequence_parallel
    across = block.reductions * traffic.exchange(layout, block).seconds
    regathered = 0.5 * (kind == "per_operator" and bool(plan.sequence_parallel))
    forward.tensor = windows.exposed(across, "F", on=overlap)
    again.tensor = windows.exposed((full + regathered) * across, "R", on=overlap)
    backward.tensor = windows.exposed(across, "B", on=overlap)

    routed = traffic.tokens(layout, block).seconds
    visible = windows.exposed((2.0 + full) * routed, "F", "R", "B", on=plan.overlap_expert) / (2.0 + full)
    forward.expert, backward.expert, again.expert = visible, visible, full * visible
    left = windows.left["B"]

    fetch, reduce = (one.seconds for one in traffic.of_layer(layout, block))
    hides = plan.overlap_data if plan.zero_stage >= 2 else 1
    forward.data = windows.exposed(fetch, "F", on=hides)
    backward.data = windows.exposed(traffic.reshards(layout) * fetch + reduce, "B", "R", on=hides)

    host = stack.host_time_per_operator
    waits = block.reductions * stack.host_time_per_exchange * (plan.tensor - 1)
    forward.host = paced(forward.seconds, host * block.kernels + waits) - forward.seconds
    busy, issue = backward.seconds, 2.0 * host * block.kernels + waits
    backward.host = paced(busy, issue) - busy
    operators = {"none": 0.0, "full": float(block.kernels)}.get(kind, repeated.launches)
    together = paced(busy + again.seconds, issue + host * operators + full * waits)
    again.host = together - backward.seconds - again.seconds
    return Passes(forward, backward, again, work.weights.seconds, left)


def end_passes(layout: Layout, block: Any, work: LayerWork, gathers: tuple[float, float]) -> Passes:
    """Passes of the embedding (exchanges forward only) or the head (backward only); nothing hides their gathers."""
    plan, stack = layout.design.plan, layout.design.stack
    is_first = block.place == "first"
    windows = Windows(stack.overlap_efficiency, F=work.forward.seconds, B=work.backward.seconds)
    across = block.reductions * traffic.exchange(layout, block).seconds
    overlap = plan.overlap_tensor * plan.sequence_parallel
    forward = Pass(work.forward.seconds, data=gathers[0])
    backward = Pass(work.backward.seconds, data=gathers[1])
    if is_first:
        forward.tensor = windows.exposed(across, "F", on=overlap)
    else:
        backward.tensor = windows.exposed(across, "B", on=overlap)
    issue = stack.host_time_per_operator * block.kernels
    waits = block.reductions * stack.host_time_per_exchange * (plan.tensor - 1)
    forward.host = paced(forward.seconds, issue + waits * is_first) - forward.seconds
    backward.host = paced(backward.seconds, 2.0 * issue + waits * (not is_first)) - backward.seconds
    return Passes(forward, backward, Pass(), work.weights.seconds, windows.left["B"])


@dataclass
class Step:
    """One optimizer step: seconds by part (they add up), and what the pipeline was made of."""

    parts: dict[str, float]
    line: Pipeline
    schedule: str
    running: float

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def work_of(layout: Layout) -> dict[int, LayerWork]:
    """Kernels of each class of blocks, by its identity."""
    blocks = [layout.first, layout.last, *(layer.block for layer in layout.layers)]
    return {key: layer_work(layout, block) for key, block in {id(one): one for one in blocks}.items()}


def step(layout: Layout, works: dict[int, LayerWork]) -> Step:
    """Passes of every stage, then the pipeline of m micro-batches, then what happens once."""
    plan, stack, m, p = layout.design.plan, layout.design.stack, layout.micro_batches, layout.design.plan.pipeline

    @cache
    def of_layer(number: int, repeats: bool) -> Passes:
        block = next(one.block for one in layout.layers if id(one.block) == number)
        return layer_passes(layout, Layer(block, repeats), works[number])

    spent = dict.fromkeys(("forward", "backward", "recompute", "tensor", "context", "expert", "shard", "host"), 0.0)
    forward, backward, weights = [], [], []
    for stage in layout.stages:
        found = [of_layer(id(layer.block), layer.repeats) for layer in stage.layers]
        ahead = [sum(one.forward.seconds for one in found) / plan.interleave] * plan.interleave
        late = [sum(one.backward.seconds + one.again.seconds for one in found) / plan.interleave] * plan.interleave
        gathers = tuple(one.seconds for one in traffic.of_ends(layout, stage))
        for block, chunk in ((stage.first, 0), (stage.last, -1)):
            if block is None:
                continue
            mine = gathers if block is stage.first or stage.first is None else (0.0, 0.0)
            one = end_passes(layout, block, works[id(block)], mine)  # type: ignore[arg-type]
            found.append(one)
            ahead[chunk] += one.forward.seconds
            late[chunk] += one.backward.seconds
        if stage.last is not None:
            late[-1] += stack.micro_batch_overhead
            spent["host"] += stack.micro_batch_overhead
        forward.append(ahead)
        backward.append(late)
        weights.append(sum(one.weights for one in found))
        for one in found:
            spent["forward"] += one.forward.device
            spent["backward"] += one.backward.device
            spent["recompute"] += one.again.device
            for name, part in zip(("tensor", "context", "expert", "shard", "host"), SPENT[1:], strict=True):
                spent[name] += sum(getattr(each, part) for each in (one.forward, one.backward, one.again))
    hop = traffic.transfer(layout).seconds
    line = Pipeline(forward, backward, weights, m, hop, not plan.overlap_pipeline)
    schedule = SCHEDULE[int(plan.schedule)] if p > 1 else "1f1b"
    running = pipeline_seconds(line, schedule)
    parts = {name: m / p * value for name, value in spent.items()}
    parts["host"] = max(parts["host"], 0.0)
    parts["bubble"] = max(running - sum(parts.values()), 0.0)
    parts["straggler"] = running * stack.jitter * slowest(plan.tensor * p * plan.data * plan.context) / m**0.5
    parts["data"] = _data(layout, of_layer, schedule)
    parts["update"] = _update(layout)
    parts["overhead"] = stack.step_overhead
    return Step(parts, line, schedule, running)


def slowest(n: int) -> float:
    """Expected largest of n standard normal numbers (Blom 1958)."""
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0


def _data(layout: Layout, of_layer: Any, schedule: str) -> float:
    """Exposed gradient reduction of the fullest stage, gather of the updated weights, tied embedding.

    The last backward pass of the first stage hides all but the last bucket; buckets hold every gradient that is reduced
    then: dense ones, experts' and touched rows of tables.
    """
    plan, stack = layout.design.plan, layout.design.stack
    dense = max(laid.stage_dense(layout, stage) for stage in layout.stages)
    routed = max(traffic.stage_routed(layout, stage) for stage in layout.stages)
    reduced, gathered = traffic.once(layout, dense)
    more, again = traffic.once(layout, routed, experts=True)
    seconds = reduced.seconds + more.seconds + traffic.rows(layout).seconds
    held = (dense + routed) * layout.gradient + traffic.touched_bytes(layout)
    share = 1.0 - min(stack.gradient_bucket / max(held, 1.0), 1.0)
    window = 0.0
    for layer in layout.stages[0].layers:
        one = of_layer(id(layer.block), layer.repeats)
        if schedule == "zero_bubble":
            window += min(one.weights, one.left)
        else:
            window += one.backward.seconds - (one.backward.device - one.left)
    hidden = stack.overlap_efficiency * plan.overlap_data * min(seconds * share, window)
    return seconds - hidden + gathered.seconds + again.seconds + traffic.tied(layout).seconds


def update_bytes(layout: Layout) -> float:
    """HBM bytes of a parameter's update: gradient twice (norm, use), states in and out, weight out; a weight that is
    its own master is read too."""
    weight = layout.activation * (2.0 if layout.activation == 4.0 else 1.0)
    return 2.0 * layout.gradient + 2.0 * layout.state + weight


def _update(layout: Layout) -> float:
    """The optimizer on the fullest stage: HBM traffic, or gradients to the host and weights back."""
    design = layout.design
    splits = design.plan.zero_stage >= 1
    held = max(laid.stage_dense(layout, stage) for stage in layout.stages) / (layout.group if splits else 1.0)
    routed = max(traffic.stage_routed(layout, stage) for stage in layout.stages)
    held += routed / (layout.expert_group if splits else 1.0)
    if design.plan.offload:
        return held * (layout.gradient + layout.activation) / design.cluster.host_bandwidth
    hbm = design.chip.hbm_stacks * design.chip.hbm_stack_bandwidth * design.stack.memory_efficiency
    return held * update_bytes(layout) * design.stack.update_passes / hbm
