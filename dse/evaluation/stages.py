"""How layers and samples fall on pipeline stages and micro-batches. Depends on the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.cuts import cut_cells
from workloads.network import Workload
from workloads.operators import Block, Cell, Saved
from workloads.plan import AXES, NONE, ORDER, Plan


@dataclass(frozen=True)
class Stages:
    """Layer counts of the stage kinds, in pipeline order: first, `high` x n, `low` x n, last.

    first, high, low, last   layers of one stage of the kind (p,); of two stages `low` repeats the first
    high_count, low_count    stages of the kind (p,); with one stage, `first` is it and `last` is empty
    repeated                 of (first, high, low, last), and of all stages together, the layers that recompute
    is_single, has_last      1 where the pipeline has one stage / more than one
    micro_batches            micro-batches a step and device
    held         where layers are of several kinds, what memory asks of the first, fullest middle and last stage; None:
                 as many layers as above
    """

    first: Any
    high: Any
    low: Any
    last: Any
    high_count: Any
    low_count: Any
    is_single: Any
    has_last: Any
    micro_batches: Any
    repeated: tuple[Any, Any, Any, Any] = (0.0, 0.0, 0.0, 0.0)
    repeated_total: Any = 0.0
    held: Held | None = None


@dataclass(frozen=True)
class Held:
    """Shares of a network of layers of several kinds on the first, fullest middle and last stage (p,) each.

    boundary   most elements a sample that cross between two stages
    """

    parameters: tuple[Any, Any, Any]
    kept: tuple[Any, Any, Any]
    boundary: Any


PLACES = ("first", "lead", "body", "last")
NO_LEAD = Block("none", 0, "lead", (), (), 0, 0, 0, 0, Saved(0, 0, 0, 0, 0), 0)


def blocks_by_place(workload: Workload) -> dict[str, Block]:
    """The block class at each of `PLACES`; a network without leading layers has none of that class."""
    found: dict[str, Block] = {}
    for block in workload.network.blocks(workload.sequence):
        if block.place in found:
            raise ValueError(
                f"network {workload.network.name!r}: found two block classes with place {block.place!r}, allowed: one"
            )
        found[block.place] = block
    missing = [place for place in ("first", "body", "last") if place not in found]
    if missing:
        raise ValueError(f"network {workload.network.name!r}: found no block class with place {', '.join(missing)}")
    return {place: found.get(place, NO_LEAD) for place in PLACES}


def layer_counts(blocks: dict[str, Block]) -> tuple[int, int]:
    """Layers of the pipeline in all, and how many of them lead the body."""
    return blocks["body"].layers + blocks["lead"].count, blocks["lead"].count


def stages(plan: Plan, workload: Workload, layers: int, lead: int = 0, cells: tuple[Cell, ...] = ()) -> Stages:
    """Layers of the body on each stage kind, of `layers` in all; the first `lead` are of another kind.

    uniform:  floor(L / p) layers a stage, one more on the first L mod p stages.
    balanced: the same with embedding and head counted as one layer each.
    cells     layers of several kinds instead: stages hold shares of them all (`_of_cells`)
    """
    if cells:
        return _of_cells(plan, workload, cells)
    p, balanced = plan.pipeline, plan.split
    units = layers + 2.0 * balanced
    base = np.floor(units / p)
    extra = units - base * p
    is_single = np.where(p == 1, 1.0, 0.0)
    has_last = 1.0 - is_single
    ends = np.maximum(base + np.minimum(extra, 1.0) - balanced, 0.0)
    first = np.maximum(np.where(p == 1, float(layers), ends) - lead, 0.0)
    high, low = base + 1.0, np.where(p == 2, ends, base)
    last = np.maximum(base - balanced, 0.0) * has_last
    high_count = np.maximum(extra - 1.0, 0.0) * has_last
    low_count = np.maximum(p - 2.0 - high_count, 0.0)
    most = np.where(plan.recompute_layers > 0, plan.recompute_layers, np.inf)
    most = np.where(plan.recompute == NONE, 0.0, most)
    repeated = tuple(np.minimum(most, count) for count in (first, high, low, last))
    return Stages(
        first=first,
        high=high,
        low=low,
        last=last,
        high_count=high_count,
        low_count=low_count,
        is_single=is_single,
        has_last=has_last,
        micro_batches=np.ceil(workload.global_batch / (plan.data * plan.micro_batch)),
        repeated=(repeated[0], repeated[1], repeated[2], repeated[3]),
        repeated_total=repeated[0] + repeated[1] * high_count + repeated[2] * low_count + repeated[3],
    )


def _of_cells(plan: Plan, workload: Workload, cells: tuple[Cell, ...]) -> Stages:
    """Shares of a chain of different layers: the first stage, the slowest and the mean other middle stage, the last.

    uniform: as many layers a stage; balanced: the cut with the least largest cost (workloads/cuts.py).  A share of the
    cost is taken as the same share of every time and exchange.  Each number of stages is cut once.
    """
    p, balanced = np.broadcast_arrays(plan.pipeline, plan.split)
    table: dict[str, Any] = {name: np.zeros(p.shape) for name in (
        "first", "high", "low", "last", "high_count", "low_count", "w0", "w1", "w2", "k0", "k1", "k2", "boundary",
    )}  # fmt: skip
    for number, by_cost in sorted({(int(a), bool(b)) for a, b in zip(p.ravel(), balanced.ravel(), strict=True)}):
        here = (p == number) & ((balanced > 0) == by_cost)
        for name, value in _kinds_of(cells, number, by_cost).items():
            table[name][here] = value
    most = np.where(plan.recompute_layers > 0, plan.recompute_layers / len(cells), np.inf)
    most = np.where(plan.recompute == NONE, 0.0, most)
    shares = [np.minimum(most, table[name]) for name in ("first", "high", "low", "last")]
    is_single = np.where(plan.pipeline == 1, 1.0, 0.0)
    return Stages(
        **{name: table[name] for name in ("first", "high", "low", "last", "high_count", "low_count")},
        is_single=is_single,
        has_last=1.0 - is_single,
        micro_batches=np.ceil(workload.global_batch / (plan.data * plan.micro_batch)),
        repeated=(shares[0], shares[1], shares[2], shares[3]),
        repeated_total=shares[0] + shares[1] * table["high_count"] + shares[2] * table["low_count"] + shares[3],
        held=Held(
            (table["w0"], table["w1"], table["w2"]), (table["k0"], table["k1"], table["k2"]), table["boundary"]
        ),
    )


def _kinds_of(cells: tuple[Cell, ...], number: int, by_cost: bool) -> dict[str, float]:
    """Stage kinds of a pipeline of so many stages: shares of cost, parameters (w) and kept bytes (k)."""
    found = cut_cells(cells, number, by_cost)
    cost = found.cost
    middle = cost[1:-1]
    slowest = max(middle, default=0.0)
    others = len(middle) - 1

    def ends(shares: tuple[float, ...]) -> tuple[float, float, float]:
        return shares[0], max(shares[1:-1], default=0.0), shares[-1] if len(shares) > 1 else 0.0

    held = dict(zip(("w0", "w1", "w2", "k0", "k1", "k2"), (*ends(found.parameters), *ends(found.kept)), strict=True))
    return held | {
        "first": cost[0],
        "high": slowest,
        "low": (sum(middle) - slowest) / others if others > 0 else 0.0,
        "last": cost[-1] if len(cost) > 1 else 0.0,
        "high_count": float(bool(middle)),
        "low_count": float(max(others, 0)),
        "boundary": found.boundary,
    }


def strides(plan: Plan) -> dict[str, np.ndarray]:
    """Distance in ranks between neighbours of each parallel axis, from the order of the axes.

    An axis's stride is the product of the degrees of the axes inside it.  Context ranks are the inner neighbours
    on the data axis, whose stride is that of both together.
    """
    order = plan.order.astype(np.int64)
    degrees = {"tensor": plan.tensor, "data": plan.data * plan.context, "pipeline": plan.pipeline}
    found = {}
    for axis in AXES:
        stride: Any = 1.0
        for other in AXES:
            if other != axis:
                inside = np.array([float(_is_inside(name, other, axis)) for name in ORDER])[order]
                stride = stride * np.where(inside > 0, degrees[other], 1.0)
        found[axis] = stride
    return found


def _is_inside(order: str, inner: str, outer: str) -> bool:
    names = order.split("-")
    return names.index(inner) < names.index(outer)


@dataclass(frozen=True)
class Sharing:
    """Which ranks hold copies of weights, and which of them share what ZeRO splits.

    ranks, distance     the ranks with the same dense weights: data and context together
    group, copies       of them, those of one ZeRO group, and how many groups there are
    expert_*            the same of a routed expert's weights: fewer copies, because expert ranks hold others
    exchange_distance   between expert ranks
    """

    ranks: Any
    distance: Any
    group: Any
    copies: Any
    expert_ranks: Any
    expert_distance: Any
    expert_group: Any
    expert_copies: Any
    exchange_distance: Any


def sharing(plan: Plan, stride: dict[str, np.ndarray]) -> Sharing:
    """Copies of dense and of expert weights; zero_group ranks share, 0 (or no fewer than there are) means all."""
    ranks = plan.data * plan.context
    asked = np.where((plan.zero_group > 0) & (plan.zero_group < ranks), plan.zero_group, np.inf)
    group = np.minimum(asked, ranks)
    whole = plan.expert_tensor > 0
    holders = np.where(whole, ranks, ranks * plan.tensor)
    expert_ranks = np.maximum(holders / plan.expert, 1.0)
    expert_group = np.minimum(asked, expert_ranks)
    between = np.where(whole | (plan.tensor == 1), stride["data"], stride["tensor"])
    return Sharing(
        ranks, stride["data"], group, ranks / group, expert_ranks, between * plan.expert, expert_group,
        expert_ranks / expert_group, between,
    )
