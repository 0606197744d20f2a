"""Prices of the collectives of a step: one call of each in every situation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.layout import Layout
from dse.evaluation.ledger import copies_sent
from dse.evaluation.messages import Message, Part, in_passes, once_a_step
from hw_models.network.collective_time import collective_time


@dataclass(frozen=True)
class Call:
    """One call: seconds, joules a device, algorithm (index into ALGORITHMS)."""

    time: Any
    energy: Any
    algorithm: Any

    def __add__(self, other: Call) -> Call:
        return Call(self.time + other.time, self.energy + other.energy, self.algorithm)

    def times(self, number: Any) -> Call:
        """So many calls, one after the other."""
        return Call(number * self.time, number * self.energy, self.algorithm)


NO_CALL = Call(0.0, 0.0, -1)


@dataclass(frozen=True)
class Traffic:
    """The calls of a step, (S,) or (H, S) in the situations of the layout.

    exchange    one tensor-parallel exchange of a block's boundary: an all-reduce, or with sequence
                parallelism a reduce-scatter and an all-gather, which move the same bytes         [passes]
    keys        keys and values of one block, gathered over the context axis                      [passes]
    tokens      one all-to-all of routed rows over the expert axis                                [passes]
    fetch, reduce    ZeRO-3: all-gather of a layer's weights; ZeRO-2: reduction of its gradients  [passes]
    fetch_lead, reduce_lead, fetch_ends, reduce_ends   the same of a leading layer, of embedding and head [passes]
    transfer    one boundary sent to the next pipeline stage                                      [transfers]
    rejoin      all-gather of its parts over the tensor axis, where the stack cuts it              [transfers]
    gradients   gradients over the data axis: all-reduce, with ZeRO-1 a reduce-scatter, with groups
                also an all-reduce of the parts across groups                                     [reductions]
    gather      ZeRO-1 and 2: all-gather of the updated weights                                   [reductions]
    tied        all-reduce of a tied embedding's gradient between first and last stage            [reductions]
    """

    exchange: Call
    keys: Call
    tokens: Call
    fetch: Call
    reduce: Call
    fetch_lead: Call
    reduce_lead: Call
    fetch_ends: Call
    reduce_ends: Call
    transfer: Call
    rejoin: Call
    gradients: Call
    gather: Call
    tied: Call

    @property
    def boundary(self) -> Any:
        """Seconds from one stage to the next."""
        return self.transfer.time + self.rejoin.time


def price_traffic(rows: Rows, layout: Layout) -> Traffic:
    """Cost of one call of every collective of the layout."""
    sent, at, once = layout.messages, layout.at_pass, layout.at_reduction
    # a reduce-scatter and an all-gather of one tensor cost the same
    scatter = _call(rows, "reduce_scatter", sent.exchange)
    exchange = _where(at["sequence_parallel"] > 0, scatter.times(2.0), _call(rows, "all_reduce", sent.exchange))
    fetch, reduce, fetch_ends, reduce_ends = NO_CALL, NO_CALL, NO_CALL, NO_CALL
    fetch_lead, reduce_lead = NO_CALL, NO_CALL
    if sent.layer is not None and sent.ends is not None:
        body = layout.blocks["body"]
        weights = float(sum(matmul.weight * matmul.repeats for matmul in body.matmuls))
        pieces = np.where(rows.stack.flat_gathers > 0, float(max(len(body.cells), 1)), weights)
        fetch, reduce = _in_passes(rows, sent.layer, at, at["copies"], pieces)
        fetch_ends, reduce_ends = _in_passes(rows, sent.ends, at, at["copies"])
        if sent.lead is not None:
            fetch_lead, reduce_lead = _in_passes(rows, sent.lead, at, at["copies"])
        if sent.layer_experts is not None:
            more, again = _in_passes(rows, sent.layer_experts, at, at["expert_copies"])
            fetch, reduce = fetch + more, reduce + again
    gradients, gather = _once(rows, sent.gradients, once["stage"], once["group"])
    if sent.experts is not None:
        more, again = _once(rows, sent.experts, once["stage"], once["expert_group"])
        gradients, gather = gradients + more, gather + again
    if sent.rows is not None:
        gradients = gradients + _call(rows, "all_gather", sent.rows)
    copies = copies_sent(layout.blocks, rows.training)
    transfer, rejoin = _transfer(rows, layout)
    return Traffic(
        exchange=exchange,
        keys=NO_CALL if sent.keys is None else _call(rows, "all_gather", sent.keys),
        tokens=NO_CALL if sent.tokens is None else _call(rows, "all_to_all", sent.tokens, copies),
        fetch=fetch,
        reduce=reduce,
        fetch_lead=fetch_lead,
        reduce_lead=reduce_lead,
        fetch_ends=fetch_ends,
        reduce_ends=reduce_ends,
        transfer=transfer,
        rejoin=rejoin,
        gradients=gradients,
        gather=gather,
        tied=_call(rows, "all_reduce", sent.tied),
    )


def _once(rows: Rows, sent: Message, stage: Any, group: Any) -> tuple[Call, Call]:
    """Gradients once a step, and weights gathered after the update; `sent` counts parameters."""
    reduced, gathered = once_a_step(sent, stage, group, rows.training)
    return _in_turn(rows, reduced), _in_turn(rows, gathered)


def _in_turn(rows: Rows, parts: list[Part]) -> Call:
    """Messages one after the other."""
    if not parts:
        return NO_CALL
    total = _call(rows, parts[0].kind, parts[0].message)
    for part in parts[1:]:
        total = total + _call(rows, part.kind, part.message)
    return total


def _in_passes(
    rows: Rows, sent: Message, at: dict[str, Any], copies: Any, pieces: Any = 1.0
) -> tuple[Call, Call]:
    """What ZeRO-3 fetches for a layer's pass and ZeRO-2 and 3 reduce after it, in `pieces` messages; `sent` counts
    parameters.

    Weights on the host cross its link first.
    """
    gathered, reduced = in_passes(sent, at, copies, rows.training, pieces)
    fetch, reduce = _in_turn(rows, gathered), _in_turn(rows, reduced)
    fetch, reduce = fetch.times(pieces), reduce.times(pieces)
    if np.any(at["hosted"] > 0):
        read = sent.message * rows.training.weight_bytes * ((at["hosted"] > 0) / np.maximum(at["hosted"], 1.0))
        fetch = fetch + Call(read / rows.cluster.host_bandwidth, 0.0 * read, -1)
    return fetch, reduce


def _transfer(rows: Rows, layout: Layout) -> tuple[Call, Call]:
    """A boundary sent to the next stage; a stack may send a part from every tensor rank and gather it there."""
    sent, at = layout.messages.transfer, layout.at_transfer
    whole = _call(rows, "point_to_point", sent)
    splits = rows.stack.split_boundary > 0
    if not np.any(splits):
        return whole, NO_CALL
    cut = at["tensor"] / at["sharing"]  # nothing is left to cut with sequence parallelism
    part = _call(rows, "point_to_point", Message(sent.size, sent.distance, sent.message / cut))
    again = _call(rows, "all_gather", layout.messages.rejoined(at))
    return _where(splits, part, whole), _where(splits, again, NO_CALL)


def _call(rows: Rows, kind: str, sent: Message, copies: int = 1) -> Call:
    cost = collective_time(
        rows.cluster, rows.chip, rows.stack, kind,
        size=sent.size, stride=sent.distance, message=sent.message, copies=copies,
    )  # fmt: skip
    technology = rows.technology
    energy: Any = cost.bytes_by_tier[0] * technology.link_energy
    for beyond in cost.bytes_by_tier[1:]:
        energy = energy + beyond * technology.network_energy
    return Call(cost.time, energy, cost.algorithm)


def _where(condition: Any, yes: Call, no: Call) -> Call:
    return Call(
        np.where(condition, yes.time, no.time),
        np.where(condition, yes.energy, no.energy),
        np.where(condition, yes.algorithm, no.algorithm),
    )
