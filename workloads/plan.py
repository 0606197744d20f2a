"""How a network is divided over devices and in time: degrees, schedule, sharding, order of the axes.

Fields are integers or columns of them; the named choices are stored as their index in the tuples below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import permutations
from typing import Any, Literal

import numpy as np

RECOMPUTE: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
SCHEDULE = ("gpipe", "1f1b")
SPLIT = ("uniform", "balanced")
AXES = ("tensor", "data", "pipeline")
#: Orders of the parallel axes, innermost (neighbouring ranks) first.
ORDER = tuple("-".join(axes) for axes in permutations(AXES))

CHOICES = {"recompute": RECOMPUTE, "schedule": SCHEDULE, "split": SPLIT, "order": ORDER}
SWITCHES = ("sequence_parallel", "overlap_data", "overlap_pipeline")


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


@dataclass(frozen=True)
class Plan:
    """One parallel plan, or a column of plans.

    tensor, pipeline, data   degrees; their product is the number of devices
    sequence_parallel  norms and dropout are split over the tensor axis too
    micro_batch        samples a device works on at once
    interleave         model chunks a stage (1: none)
    schedule           "gpipe" keeps all micro-batches in flight, "1f1b" at most as many as stages follow
    zero_stage         1: the optimizer state is split over the data axis
    recompute          "none", "selective" (attention core) or "full" (whole blocks)
    overlap_data       gradient reduction runs during the last backward pass
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

    def __post_init__(self) -> None:
        bounds = {name: (0, len(values) - 1) for name, values in CHOICES.items()}
        bounds |= {name: (0, 1) for name in SWITCHES} | {"zero_stage": (0, 1)}
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
