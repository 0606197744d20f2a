"""How layers and samples fall on pipeline stages and micro-batches. Depends on the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import AXES, ORDER, Plan


@dataclass(frozen=True)
class Stages:
    """Layer counts of the stage kinds, in pipeline order: first, `high` x n, `low` x n, last.

    first, high, low, last   layers of one stage of the kind (p,); of two stages `low` repeats the first
    high_count, low_count    stages of the kind (p,); with one stage, `first` is it and `last` is empty
    is_single, has_last      1 where the pipeline has one stage / more than one
    micro_batches            micro-batches a step and device
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


def blocks_by_place(workload: Workload) -> dict[str, Block]:
    """The block class at each place ("first", "body", "last") of the network."""
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
    return found


def stages(plan: Plan, workload: Workload, layers: int) -> Stages:
    """Layers of each stage kind.

    uniform:  floor(L / p) layers a stage, one more on the first L mod p stages.
    balanced: the same with embedding and head counted as one layer each.
    """
    p, balanced = plan.pipeline, plan.split
    units = layers + 2.0 * balanced
    base = np.floor(units / p)
    extra = units - base * p
    is_single = np.where(p == 1, 1.0, 0.0)
    has_last = 1.0 - is_single
    first = np.maximum(base + np.minimum(extra, 1.0) - balanced, 0.0)
    return Stages(
        first=np.where(p == 1, float(layers), first),
        high=base + 1.0,
        low=np.where(p == 2, first, base),
        last=np.maximum(base - balanced, 0.0) * has_last,
        high_count=np.maximum(extra - 1.0, 0.0) * has_last,
        low_count=np.maximum(p - 2.0 - np.maximum(extra - 1.0, 0.0), 0.0),
        is_single=is_single,
        has_last=has_last,
        micro_batches=np.ceil(workload.global_batch / (plan.data * plan.micro_batch)),
    )


def strides(plan: Plan) -> dict[str, np.ndarray]:
    """Distance in ranks between neighbours of each parallel axis, from the order of the axes.

    An axis's stride is the product of the degrees of the axes inside it.
    """
    order = plan.order.astype(np.int64)
    degrees = {"tensor": plan.tensor, "data": plan.data, "pipeline": plan.pipeline}
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
