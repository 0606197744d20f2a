"""Time and energy of one call of every collective of a step, in its situations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.layout import Layout, Message
from hw_models.network.collective_time import collective_time


@dataclass(frozen=True)
class Call:
    """One call: seconds, joules a device, algorithm (index into ALGORITHMS)."""

    time: Any
    energy: Any
    algorithm: Any


@dataclass(frozen=True)
class Traffic:
    """The calls of a step, (S,) or (H, S) in the situations of the layout.

    exchange    one tensor-parallel exchange of a block's boundary: an all-reduce, or with sequence
                parallelism a reduce-scatter and an all-gather, which move the same bytes   [passes]
    transfer    one boundary sent to the next pipeline stage                                 [transfers]
    gradients   gradients over the data axis: all-reduce, with ZeRO-1 a reduce-scatter       [reductions]
    gather      ZeRO-1: all-gather of the updated weights                                    [reductions]
    tied        all-reduce of a tied embedding's gradient between first and last stage       [reductions]
    """

    exchange: Call
    transfer: Call
    gradients: Call
    gather: Call
    tied: Call


def price_traffic(rows: Rows, layout: Layout) -> Traffic:
    """Cost of one call of every collective of the layout."""
    # a reduce-scatter and an all-gather of one tensor cost the same
    scatter = _call(rows, "reduce_scatter", layout.exchange)
    both = Call(2.0 * scatter.time, 2.0 * scatter.energy, scatter.algorithm)
    in_parts = layout.at_pass["sequence_parallel"] > 0
    return Traffic(
        exchange=_where(in_parts, both, _call(rows, "all_reduce", layout.exchange)),
        transfer=_call(rows, "point_to_point", layout.transfer),
        gradients=_where(
            layout.at_reduction["sharded"] > 0,
            _call(rows, "reduce_scatter", layout.gradients),
            _call(rows, "all_reduce", layout.gradients),
        ),
        gather=_call(rows, "all_gather", layout.gather),
        tied=_call(rows, "all_reduce", layout.tied),
    )


def _call(rows: Rows, kind: str, sent: Message) -> Call:
    cost = collective_time(
        rows.cluster, rows.chip, rows.stack, kind, size=sent.size, stride=sent.distance, message=sent.message
    )
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
