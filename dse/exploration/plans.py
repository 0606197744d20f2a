"""Every canonical parallel plan of a workload on a number of devices, as columns.

The rule of enumeration (docs/models/plans.md):
  tensor x pipeline x data = devices; tensor divides what the network says and lies in its allowed values;
  pipeline <= layers; micro_batch divides the batch of a data rank; interleave v > 1 needs 1f1b, pipeline > 1,
  layers % (pipeline v) = 0, micro_batches % pipeline = 0 and a uniform split; sequence parallelism needs
  sequence % tensor = 0.
  A field that changes nothing keeps one value, so no plan appears twice under two names:
  sequence_parallel with tensor = 1; zero_stage and overlap_data with data = 1; overlap_pipeline and split with
  pipeline = 1; schedule with pipeline = 1 or one micro-batch; split where both splits give the same layers;
  orders that differ only in axes of degree 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from workloads.network import Workload
from workloads.plan import ORDER, Plan

#: Value of a field where it has no effect.
NEUTRAL = {"sequence_parallel": 0, "zero_stage": 0, "overlap_data": 1, "overlap_pipeline": 1, "schedule": 1, "split": 0}


def divisors(number: int) -> list[int]:
    """Divisors of a whole number in increasing order."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return small + [number // i for i in reversed(small) if i * i != number]


@dataclass(frozen=True)
class PlanSpace:
    """Which values each field of a plan may take; None: every value that divides."""

    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    data: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    interleave: tuple[int, ...] | None = None
    sequence_parallel: tuple[int, ...] = (0, 1)
    schedule: tuple[int, ...] = (0, 1)
    zero_stage: tuple[int, ...] = (0, 1)
    recompute: tuple[int, ...] = (0, 1, 2)
    overlap_data: tuple[int, ...] = (0, 1)
    overlap_pipeline: tuple[int, ...] = (0, 1)
    split: tuple[int, ...] = (0, 1)
    order: tuple[int, ...] = field(default=tuple(range(len(ORDER))))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanSpace:
        """From names or numbers, e.g. {"tensor": [1, 2], "recompute": ["none", "full"]}."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"plan: found {', '.join(unknown)}, allowed: {', '.join(sorted(known))}")
        chosen: dict[str, tuple[int, ...]] = {}
        for name, given in values.items():
            listed = list(given) if isinstance(given, (list, tuple)) else [given]
            plans = [Plan(**{name: value}) for value in listed]
            chosen[name] = tuple(dict.fromkeys(int(getattr(plan, name)) for plan in plans))
        return cls(**chosen)


@dataclass(frozen=True)
class PlanTable:
    """Plans as whole-number columns (P,)."""

    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return int(next(iter(self.columns.values())).size)

    def rows(self, start: int, stop: int) -> Plan:
        """Plans start..stop-1 as float columns of a `Plan`."""
        return plan_of({name: column[start:stop] for name, column in self.columns.items()})

    def numbers(self, index: np.ndarray) -> np.ndarray:
        """Plans as rows of whole numbers (k, fields)."""
        return np.stack([self.columns[name][index].astype(np.int64) for name in Plan.names()], axis=-1)

    def select(self, which: np.ndarray) -> PlanTable:
        """The plans of a mask or of row numbers."""
        return PlanTable({name: column[which] for name, column in self.columns.items()})


def plan_of(columns: Mapping[str, np.ndarray]) -> Plan:
    """A Plan of columns that are known to be valid."""
    plan = object.__new__(Plan)
    for name in Plan.names():
        object.__setattr__(plan, name, np.asarray(columns[name], dtype=float))
    return plan


def enumerate_plans(workload: Workload, devices: int, space: PlanSpace = PlanSpace()) -> PlanTable:
    """All canonical plans of `space` for `workload` on `devices` devices."""
    layers = sum(block.count for block in workload.network.blocks(workload.sequence) if block.place == "body")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in Plan.names()}
    for tensor, pipeline, data in _degrees(workload, devices, layers, space):
        groups = _on_degrees(tensor, pipeline, data, workload.sequence, space)
        for micro_batch in _micro_batches(workload.global_batch // data, space):
            count = workload.global_batch // (data * micro_batch)
            shapes = _schedules(pipeline, count, layers, space)
            if not shapes or groups.size == 0:
                continue
            repeated = np.repeat(np.array(shapes, dtype=np.int32), len(groups), axis=0)
            tiled = np.tile(groups, (len(shapes), 1))
            fixed = {"tensor": tensor, "pipeline": pipeline, "data": data, "micro_batch": micro_batch}
            for name, value in fixed.items():
                parts[name].append(np.full(len(tiled), value, dtype=np.int32))
            for i, name in enumerate(_SHAPE_FIELDS):
                parts[name].append(repeated[:, i])
            for i, name in enumerate(_GROUP_FIELDS):
                parts[name].append(tiled[:, i])
    empty = np.zeros(0, dtype=np.int32)
    return PlanTable({name: np.concatenate(found) if found else empty for name, found in parts.items()})


_SHAPE_FIELDS = ("schedule", "interleave", "split", "overlap_pipeline")
_GROUP_FIELDS = ("sequence_parallel", "zero_stage", "recompute", "overlap_data", "order")


def _degrees(workload: Workload, devices: int, layers: int, space: PlanSpace) -> Iterator[tuple[int, int, int]]:
    """(tensor, pipeline, data) whose product is `devices`."""
    sizes = workload.network.divisors().values()
    for tensor in divisors(devices):
        if any(size % tensor for size in sizes) or (space.tensor and tensor not in space.tensor):
            continue
        for pipeline in divisors(devices // tensor):
            data = devices // tensor // pipeline
            if pipeline > layers or workload.global_batch % data:
                continue
            if (space.pipeline and pipeline not in space.pipeline) or (space.data and data not in space.data):
                continue
            yield tensor, pipeline, data


def _micro_batches(samples: int, space: PlanSpace) -> list[int]:
    return [b for b in divisors(samples) if not space.micro_batch or b in space.micro_batch]


def _effective(allowed: tuple[int, ...], name: str, has_effect: bool) -> tuple[int, ...]:
    return allowed if has_effect else (NEUTRAL[name],)


def _on_degrees(tensor: int, pipeline: int, data: int, sequence: int, space: PlanSpace) -> np.ndarray:
    """Choices that depend on the degrees alone, (k, 5) in the order of `_GROUP_FIELDS`."""
    switches = _effective(space.sequence_parallel, "sequence_parallel", tensor > 1)
    if sequence % tensor:
        switches = tuple(value for value in switches if value == 0)
    choices = (
        switches,
        _effective(space.zero_stage, "zero_stage", data > 1),
        space.recompute,
        _effective(space.overlap_data, "overlap_data", data > 1),
        _distinct_orders({"tensor": tensor, "pipeline": pipeline, "data": data}, space.order),
    )
    grid = np.meshgrid(*(np.array(values, dtype=np.int32) for values in choices), indexing="ij")
    return np.stack([axis.reshape(-1) for axis in grid], axis=-1)


def _distinct_orders(degrees: dict[str, int], allowed: tuple[int, ...]) -> tuple[int, ...]:
    """One order for each distinct arrangement of the axes above 1."""
    found: dict[tuple[str, ...], int] = {}
    for index in allowed:
        active = tuple(axis for axis in ORDER[index].split("-") if degrees[axis] > 1)
        found.setdefault(active, index)
    return tuple(found.values())


def _schedules(pipeline: int, count: int, layers: int, space: PlanSpace) -> list[tuple[int, int, int, int]]:
    """(schedule, interleave, split, overlap_pipeline) for `count` micro-batches."""
    plain = space.interleave is None or 1 in space.interleave
    if pipeline == 1:
        return [(NEUTRAL["schedule"], 1, NEUTRAL["split"], NEUTRAL["overlap_pipeline"])] if plain else []
    found = []
    splits = [split for split in space.split if split == 0 or _balanced_differs(pipeline, layers)]
    if 0 not in space.split and not splits:
        splits = [NEUTRAL["split"]]
    for overlap in space.overlap_pipeline:
        if plain:
            for schedule in _effective(space.schedule, "schedule", count > 1):
                found += [(schedule, 1, split, overlap) for split in splits]
        if 1 in space.schedule and 0 in space.split and count % pipeline == 0 and layers % pipeline == 0:
            for chunks in divisors(layers // pipeline):
                if chunks > 1 and (space.interleave is None or chunks in space.interleave):
                    found.append((1, chunks, 0, overlap))
    return found


def stage_layers(pipeline: int, layers: int, split: int) -> tuple[int, ...]:
    """Layers of every stage (see dse.evaluation.stages for the rule)."""
    if pipeline == 1:
        return (layers,)
    units = layers + 2 * split
    base, extra = divmod(units, pipeline)
    counts = [base + (1 if i < extra else 0) for i in range(pipeline)]
    counts[0] -= split
    counts[-1] -= split
    return tuple(counts)


def _balanced_differs(pipeline: int, layers: int) -> bool:
    return stage_layers(pipeline, layers, 1) != stage_layers(pipeline, layers, 0)


__all__ = ["PlanSpace", "PlanTable", "divisors", "enumerate_plans", "plan_of", "stage_layers"]
