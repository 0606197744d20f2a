"""One micro-batch through a block: device kernels, exchanges, and the host that issues both.

Stages run `forward`, then `backward` and what recomputation repeats before it. Theory: docs/models/step.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.layout import Layout
from dse.evaluation.price import EVERY_SECOND, REPEATED, Priced
from dse.evaluation.traffic import Call, Traffic
from workloads.plan import FULL, PER_OPERATOR, SELECTIVE

#: What a pass is spent on; they add up to its seconds.
SPENT = ("device", "tensor", "context", "expert", "data", "host")


@dataclass(frozen=True)
class Pass:
    """Seconds of one pass of one block: device kernels, exposed exchanges by axis, and waiting for the host."""

    device: Any
    tensor: Any = 0.0
    context: Any = 0.0
    expert: Any = 0.0
    data: Any = 0.0
    host: Any = 0.0

    @property
    def seconds(self) -> Any:
        """All of it."""
        return self.device + self.tensor + self.context + self.expert + self.data + self.host


@dataclass(frozen=True)
class BlockPasses:
    """Passes of one block (again: what is repeated before the backward pass) and dynamic joules without exchanges.

    weights   seconds of the backward pass that are weight gradients, 0 where no schedule moves them
    hides, hides_weights   seconds of the backward pass, and of its weight gradients alone, that hid no exchange: they
              may hide the gradient reduction
    """

    forward: Pass
    backward: Pass
    again: Pass
    weights: Any
    hides: Any
    hides_weights: Any
    compute_energy: Any
    again_energy: Any


def hide(communication: Any, window: Any, switch: Any, efficiency: Any) -> tuple[Any, Any]:
    """Exposed seconds of communication beside a window of computation, and what it leaves of the window.

    run = switch min(c, w); exposed c - efficiency run; left w - run: a window is spent once, whether computation
    beside communication is free (efficiency 1) or not.
    """
    run = switch * np.minimum(communication, window)
    return communication - efficiency * run, window - run


def block_passes(rows: Rows, layout: Layout, priced: Priced, traffic: Traffic, place: str) -> BlockPasses:
    """Passes of the block at a place, (S,) or (H, S).

    A pass takes the longer of two streams: its kernels with the exchanges between them, and the host, which needs
    `host_time_per_operator` for each operator (twice backward) and `host_time_per_exchange` for every other rank
    that an exchange waits for.  Exchanges over the tensor and expert axes block unless the plan overlaps them, those of
    experts with the pass of another micro-batch, forward or backward; a ring over the context axis hides behind the
    attention core, and ZeRO's gathers and reductions behind the pass.  A second of computation hides one exchange: the
    ring's first, then the boundary's, then the experts', then ZeRO's.
    """
    block, at = layout.blocks[place], layout.at_pass
    spread = layout.operators.spread
    ends = {"first": (1.0, 0.0), "last": (0.0, 1.0)}.get(place, (1.0, 1.0))
    number = float(block.reductions)
    forward, backward = spread(priced.forward[place]), spread(priced.backward[place])
    repeated, repeated_energy, operators = _repeated(layout, priced, place)
    full = np.where(at["recompute"] == FULL, 1.0, 0.0)
    # per operator, scattered results are kept and the gathers of sequence parallelism repeated: half an exchange
    regathered = 0.5 * ((at["recompute"] == PER_OPERATOR) & (at["sequence_parallel"] > 0))
    keys, windows = _keys(rows, layout, priced, traffic, place, (forward, backward, repeated), full)
    exchanges, efficiency = number * traffic.exchange.time, rows.stack.overlap_efficiency
    parts = (ends[0] * exchanges, ends[1] * exchanges, (full + regathered) * exchanges)
    across, windows = _hide_each(parts, windows, at["overlap_tensor"], efficiency)
    each = 2.0 * float(block.routed > 0) * traffic.tokens.time
    tokens, windows = _experts(each, full, windows, at["overlap_expert"], efficiency)
    data = _data(rows, layout, traffic, place, windows[0], windows[1] + windows[2])

    host = rows.stack.host_time_per_operator
    waits = number * rows.stack.host_time_per_exchange * (at["tensor"] - 1.0)
    first = _paced(
        Pass(forward, across[0], keys[0], tokens, data[0]),
        host * block.kernels + ends[0] * waits,
    )
    late = Pass(backward, across[1], keys[1], tokens, data[1])
    issue = 2.0 * host * block.kernels + ends[1] * waits
    second = _paced(late, issue)
    again = Pass(repeated, across[2], keys[2], full * tokens)
    if place in REPEATED:
        together = paced(late.seconds + again.seconds, issue + host * operators + full * waits)
        # what the host still holds up once the backward pass has waited for it
        again = Pass(again.device, again.tensor, again.context, again.expert, 0.0,
                     together - second.seconds - again.seconds)  # fmt: skip
    weights = spread(priced.weights[place]) if priced.weights else 0.0
    return BlockPasses(
        first,
        second,
        again,
        weights,
        second.seconds - (backward - windows[1]),
        np.minimum(weights, windows[1]),
        spread(priced.forward_energy[place] + priced.backward_energy[place]),
        repeated_energy,
    )


def paced(busy: Any, issue: Any) -> Any:
    """Seconds of a pass whose kernels take `busy` and whose host takes `issue`: (busy^4 + issue^4)^(1/4).

    The slower stream paces the pass where it is much slower.  Where both are about as slow, long kernels wait for
    none and short ones for the host in turn, and neither stream runs ahead all the time: up to a fifth more than
    the slower alone.                                      [form: between max(sums) and sum(max) of the kernels]
    """
    device, host = busy * busy, issue * issue
    return np.sqrt(np.sqrt(device * device + host * host))


def _paced(work: Pass, issue: Any) -> Pass:
    """A pass with the time it waits for the host."""
    busy = work.seconds
    host = paced(busy, issue) - busy
    return Pass(work.device, work.tensor, work.context, work.expert, work.data, np.maximum(host, 0.0))


def _repeated(layout: Layout, priced: Priced, place: str) -> tuple[Any, Any, Any]:
    """Seconds and joules of what each plan repeats of a layer, and operators issued for it."""
    if place not in REPEATED:
        return 0.0, 0.0, 0.0
    kind = layout.at_pass["recompute"]
    spread, launches = layout.operators.spread, layout.work.launches
    counts = {
        SELECTIVE: launches[place, "core"],
        FULL: float(layout.blocks[place].kernels),
        PER_OPERATOR: launches[place, "vectors"] + EVERY_SECOND * launches[place, "products"],
    }
    seconds: Any = np.zeros(1)
    joules: Any = np.zeros(1)
    operators: Any = np.zeros(1)
    for one in priced.again[place]:
        chosen = kind == one
        seconds = np.where(chosen, spread(priced.again[place][one]), seconds)
        joules = np.where(chosen, spread(priced.again_energy[place][one]), joules)
        operators = np.where(chosen, counts[one], operators)
    return seconds, joules, operators


#: A quantity of the forward pass, the backward pass, and what recomputation repeats before it.
ByPass = tuple[Any, Any, Any]


def _hide_each(parts: ByPass, windows: ByPass, switch: Any, efficiency: Any) -> tuple[ByPass, ByPass]:
    """Each exchange beside its own pass: what is exposed, and what is left of the windows."""
    (a, x), (b, y), (c, z) = (
        hide(part, window, switch, efficiency) for part, window in zip(parts, windows, strict=True)
    )
    return (a, b, c), (x, y, z)


def _keys(
    rows: Rows, layout: Layout, priced: Priced, traffic: Traffic, place: str, windows: ByPass, full: Any
) -> tuple[ByPass, ByPass]:
    """Exposed exchange of keys and values: forward once; backward again, and their gradients back."""
    if layout.messages.keys is None or not layout.blocks[place].context_exchange:
        return (0.0, 0.0, 0.0), windows
    core = layout.operators.spread(priced.core[place])
    once = traffic.keys.time
    # the backward pass of attention is at least twice its forward pass
    behind = tuple(np.minimum(share * core, window) for share, window in zip((1.0, 2.0, 1.0), windows, strict=True))
    shown, left = _hide_each(
        (once, 2.0 * once, full * once), (behind[0], behind[1], behind[2]), layout.at_pass["context_ring"],
        rows.stack.overlap_efficiency,
    )  # fmt: skip
    rest = tuple(window - (had - has) for window, had, has in zip(windows, behind, left, strict=True))
    return shown, (rest[0], rest[1], rest[2])


def _experts(each: Any, full: Any, windows: ByPass, switch: Any, efficiency: Any) -> tuple[Any, ByPass]:
    """Exposed seconds of a pass's all-to-alls, which run beside any pass of another micro-batch."""
    if not np.any(switch > 0):
        return each, windows
    pool, calls = windows[0] + windows[1] + windows[2], 2.0 + full
    run = switch * np.minimum(calls * each, pool)
    share = np.where(pool > 0, (pool - run) / np.where(pool > 0, pool, 1.0), 1.0)
    # what hides is taken from each call: a plan that hides nothing keeps its bits beside plans that do
    return each - efficiency * (run / calls), (share * windows[0], share * windows[1], share * windows[2])


def _data(
    rows: Rows, layout: Layout, traffic: Traffic, place: str, forward: Any, backward: Any
) -> tuple[Any, Any]:
    """Exposed gathers and reductions of ZeRO-2 and 3 in a pass.

    Embedding and head are fetched before anything computes and reduced after everything has: nothing hides them.
    """
    if layout.messages.layer is None or place == "last":
        return 0.0, 0.0
    if place == "first":
        return traffic.fetch_ends.time, traffic.reduce_ends.time
    at = layout.at_pass
    fetch, reduce = _of_layer(traffic, place)
    late = at["reshard"] * fetch.time + reduce.time
    switch, efficiency = at["overlap_data"], rows.stack.overlap_efficiency
    return hide(fetch.time, forward, switch, efficiency)[0], hide(late, backward, switch, efficiency)[0]


def _of_layer(traffic: Traffic, place: str) -> tuple[Call, Call]:
    """Gather of a layer's weights, and reduction of its gradients."""
    return (traffic.fetch_lead, traffic.reduce_lead) if place == "lead" else (traffic.fetch, traffic.reduce)
