"""How a network is divided over devices and in time: degrees, schedule, sharding, order of the axes.

Fields are integers or columns of them; the named choices are stored as their index in the tuples below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import permutations
from typing import Any, Literal

import numpy as np

RECOMPUTE: tuple[Literal["none", "selective", "full", "per_operator"], ...] = (
    "none", "selective", "full", "per_operator",
)  # fmt: skip
NONE, SELECTIVE, FULL, PER_OPERATOR = range(4)
SCHEDULE = ("gpipe", "1f1b", "zero_bubble")
OFFLOAD = ("none", "optimizer", "all")
SPLIT = ("uniform", "balanced")
AXES = ("tensor", "data", "pipeline")
#: Orders of the parallel axes, innermost (neighbouring ranks) first.
ORDER = tuple("-".join(axes) for axes in permutations(AXES))

CHOICES = {"recompute": RECOMPUTE, "schedule": SCHEDULE, "split": SPLIT, "order": ORDER, "offload": OFFLOAD}
SWITCHES = (
    "sequence_parallel", "overlap_data", "overlap_pipeline", "expert_tensor", "reshard", "context_ring",
    "overlap_tensor", "overlap_expert",
)  # fmt: skip


def _index(name: str, value: Any) -> Any:
    """The stored number of a choice given by name, switch or number."""
    if isinstance(value, str):
        if name in CHOICES:
            if value in CHOICES[name]:
                return CHOICES[name].index(value)
            raise ValueError(f"{name}: found {value!r}, allowed: {', '.join(CHOICES[name])}")
        raise ValueError(f"{name}: found the text {value!r}, allowed: a whole number")
    if isinstance(value, (bool, np.bool_)):
        if name in SWITCHES:
            return int(value)
        raise ValueError(f"{name}: found {value!r}, allowed: a whole number")
    return value


def data_degree(devices: Any, *, tensor: Any, pipeline: Any, context: Any) -> Any:
    """Data-parallel ranks that are left of the devices: floor(N / (t p c)), at least 1; columns broadcast.

    N devices, t tensor, p pipeline and c context degree.  Where t p c does not divide N the plan breaks the rule
    that the product of all degrees is N."""
    return np.maximum(np.floor(np.asarray(devices, dtype=float) / (tensor * pipeline * context)), 1.0)


@dataclass(frozen=True)
class Plan:
    """One parallel plan, or a column of plans.

    tensor, pipeline, data, context   degrees; their product is the number of devices
    context            devices that split the tokens of a sample; neighbours on the data axis, with which they share
                       weights, gradients and what ZeRO splits
    context_ring       keys and values travel a ring behind the attention they are used in; else they are gathered
                       before it
    expert             devices of the data and context axes that split the routed experts of a layer
    expert_tensor      each expert is split over the tensor axis; else its tensor ranks are expert ranks too
    sequence_parallel  norms and dropout are split over the tensor axis too
    micro_batch        samples a device works on at once
    interleave         model chunks a stage (1: none)
    schedule           "gpipe" keeps all micro-batches in flight, "1f1b" at most as many as stages follow,
                       "zero_bubble" is 1f1b with weight gradients moved into its bubbles
    zero_stage         what the data and context axes split: 1 optimizer state, 2 and gradients, 3 and weights
    zero_group         ranks that split it together, each such group a copy of the others; 0: all of them
    reshard            ZeRO-3 frees gathered weights after the forward pass and gathers them again
    offload            to the host's memory: "optimizer" state and update, or "all" (weights too)
    recompute          "none", "selective" (attention core), "full" (whole blocks) or "per_operator" (element-wise
                       passes and every second product)
    recompute_layers   layers of a stage that recompute, the others keep everything; 0: all of them
    overlap_data       gradient reduction runs during the last backward pass
    overlap_tensor     exchanges over the tensor axis run in pieces behind the products beside them (async tensor
                       parallelism); needs sequence parallelism
    overlap_expert     rows go to experts and back while another micro-batch computes (DualPipe, and the 1f1b overlap of
                       Megatron Core)
    overlap_pipeline   transfers between stages run during computation
    split              "uniform": layers spread evenly; "balanced": embedding and head count as a layer each
    order              parallel axes from neighbouring ranks outwards, e.g. "tensor-data-pipeline"
    """

    tensor: Any = 1
    pipeline: Any = 1
    data: Any = 1
    sequence_parallel: Any = 0
    micro_batch: Any = 1
    interleave: Any = 1
    schedule: Any = 1
    zero_stage: Any = 0
    recompute: Any = 0
    overlap_data: Any = 1
    overlap_pipeline: Any = 1
    split: Any = 0
    order: Any = 0
    context: Any = 1
    expert: Any = 1
    expert_tensor: Any = 1
    zero_group: Any = 0
    reshard: Any = 1
    offload: Any = 0
    recompute_layers: Any = 0
    context_ring: Any = 1
    overlap_tensor: Any = 0
    overlap_expert: Any = 0

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[int, int | None]] = {name: (0, len(values) - 1) for name, values in CHOICES.items()}
        bounds |= {name: (0, 1) for name in SWITCHES} | {"zero_stage": (0, 3)}
        bounds |= {"zero_group": (0, None), "recompute_layers": (0, None)}
        problems = []
        for field in fields(self):
            try:
                value = _index(field.name, getattr(self, field.name))
                column = np.asarray(value)
                if column.dtype.kind not in "iuf" or np.any(column != np.floor(column)):
                    raise ValueError(f"{field.name}: found {value!r}, allowed: a whole number")
                low, high = bounds.get(field.name, (1, None))
                if np.any(column < low) or (high is not None and np.any(column > high)):
                    allowed = f">= {low}" if high is None else f"{low} to {high}"
                    raise ValueError(f"{field.name}: found {value!r}, allowed: {allowed}")
            except ValueError as error:
                problems.append(str(error))
                continue
            object.__setattr__(self, field.name, value if column.ndim == 0 else column)
        if problems:
            raise ValueError("; ".join(problems))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Field names in order."""
        return tuple(field.name for field in fields(cls))

    def named(self) -> dict[str, Any]:
        """The plan with names for its choices (scalar plans)."""
        values = {name: getattr(self, name) for name in self.names()}
        for name, choices in CHOICES.items():
            values[name] = choices[int(values[name])]
        for name in SWITCHES:
            values[name] = bool(values[name])
        return {name: value if isinstance(value, (str, bool)) else int(value) for name, value in values.items()}
