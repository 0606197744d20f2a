"""Every canonical parallel plan of a workload on a number of devices, as columns.

The rule of enumeration (docs/models/plans.md):
  tensor x pipeline x data x context = devices; tensor divides what the network says and lies in its allowed values;
  pipeline <= layers; micro_batch divides the batch of a data rank; interleave v > 1 needs 1f1b, pipeline > 1,
  micro_batches % pipeline = 0 and (layers, with a balanced split + 2) % (pipeline v) = 0; context and sequence
  parallelism need sequence % (context x tensor) = 0; expert divides the experts and the ranks that share them;
  zero_group divides the ranks that share weights.
  A field that changes nothing keeps one value, so no plan appears twice under two names:
  sequence_parallel with tensor = 1; zero_stage and overlap_data where nothing has copies (data x context = 1);
  zero_group without ZeRO or where it is all ranks; reshard without ZeRO-3 in groups above 1; recompute_layers without
  recomputation or where it is a whole stage; context_ring with context = 1; overlap_tensor without sequence
  parallelism; expert without experts; expert_tensor without experts or with tensor = 1; overlap_pipeline and split with
  pipeline = 1; schedule with pipeline = 1, gpipe with one micro-batch; split without interleaving where both splits
  give the same layers; orders that differ only in axes of degree 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from workloads.network import Workload
from workloads.plan import ORDER, SCHEDULE, Plan
from workloads.splits import indivisible

ZERO_BUBBLE = SCHEDULE.index("zero_bubble")
#: Value of a field where it has no effect.
NEUTRAL = {
    "sequence_parallel": 0, "zero_stage": 0, "overlap_data": 1, "overlap_pipeline": 1, "schedule": 1, "split": 0,
    "expert": 1, "expert_tensor": 1, "zero_group": 0, "reshard": 1, "recompute_layers": 0, "context_ring": 1,
    "overlap_tensor": 0, "overlap_expert": 0,
}  # fmt: skip


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
    context: tuple[int, ...] | None = (1,)
    expert: tuple[int, ...] | None = None
    expert_tensor: tuple[int, ...] = (1,)
    zero_group: tuple[int, ...] = (0,)
    reshard: tuple[int, ...] = (1,)
    offload: tuple[int, ...] = (0,)
    recompute_layers: tuple[int, ...] = (0,)
    context_ring: tuple[int, ...] = (1,)
    overlap_tensor: tuple[int, ...] = (0,)
    overlap_expert: tuple[int, ...] = (0,)

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


@dataclass(frozen=True)
class Strategy:
    """A rule of the user's own for the plans that are looked at.

    name   what it goes by
    keep   plans as whole-number columns (P,) by field (choices by their number, as `Plan` holds them) -> which are
           looked at, a mask (P,); each plan by itself"""

    name: str
    keep: Callable[[Mapping[str, np.ndarray]], Any]

    def chosen(self, table: PlanTable) -> PlanTable:
        """The plans of a table that are looked at."""
        mask = np.asarray(self.keep(dict(table.columns)))
        if mask.shape != (len(table),) or mask.dtype != bool:
            found = f"{mask.dtype} of shape {mask.shape}"
            raise ValueError(f"strategy {self.name}: found {found}, allowed: a mask, bool of shape ({len(table)},)")
        return table.select(mask)


def plan_of(columns: Mapping[str, np.ndarray]) -> Plan:
    """A Plan of columns that are known to be valid."""
    plan = object.__new__(Plan)
    for name in Plan.names():
        object.__setattr__(plan, name, np.asarray(columns[name], dtype=float))
    return plan


def enumerate_plans(workload: Workload, devices: int, space: PlanSpace = PlanSpace()) -> PlanTable:
    """All canonical plans of `space` for `workload` on `devices` devices."""
    blocks = workload.network.blocks(workload.sequence)
    layers = sum(block.layers for block in blocks if block.place in ("lead", "body"))
    lead = sum(block.count for block in blocks if block.place == "lead")
    experts = max((block.expert_count for block in blocks if block.parameters_expert), default=1)
    sparse = any(block.sparse for block in blocks)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in Plan.names()}
    for degrees in _degrees(workload, devices, layers, space):
        pipeline, data = degrees["pipeline"], degrees["data"]
        groups = _on_degrees(degrees, workload.sequence, experts, space, sparse=sparse)
        for micro_batch in _micro_batches(workload.global_batch // data, space):
            count = workload.global_batch // (data * micro_batch)
            shapes = _schedules(pipeline, count, layers, space)
            if not shapes or groups.size == 0:
                continue
            most = {split: max(_body_layers(pipeline, layers, lead, split)) for split in {shape[2] for shape in shapes}}
            repeated, tiled = _paired(np.array(shapes, dtype=np.int32), groups, most)
            for name, value in (degrees | {"micro_batch": micro_batch}).items():
                parts[name].append(np.full(len(tiled), value, dtype=np.int32))
            for i, name in enumerate(_SHAPE_FIELDS):
                parts[name].append(repeated[:, i])
            for i, name in enumerate(_GROUP_FIELDS):
                parts[name].append(tiled[:, i])
    empty = np.zeros(0, dtype=np.int32)
    return PlanTable({name: np.concatenate(found) if found else empty for name, found in parts.items()})


_SHAPE_FIELDS = ("schedule", "interleave", "split", "overlap_pipeline")
_GROUP_FIELDS = (
    "sequence_parallel", "zero_stage", "recompute", "overlap_data", "order", "expert", "expert_tensor", "zero_group",
    "reshard", "offload", "recompute_layers", "context_ring", "overlap_tensor",
    "overlap_expert",
)  # fmt: skip


def _paired(shapes: np.ndarray, groups: np.ndarray, most: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Every shape with every row of `groups`; recomputing `most` layers of a stage or more is recomputing all (0)."""
    repeated, tiled = np.repeat(shapes, len(groups), axis=0), np.tile(groups, (len(shapes), 1))
    layers = tiled[:, _GROUP_FIELDS.index("recompute_layers")]
    if not layers.any():
        return repeated, tiled
    held = np.array([most[split] for split in repeated[:, _SHAPE_FIELDS.index("split")].tolist()])
    layers[layers >= held] = NEUTRAL["recompute_layers"]
    _, first = np.unique(np.concatenate([repeated, tiled], axis=1), axis=0, return_index=True)
    return repeated[np.sort(first)], tiled[np.sort(first)]


def _degrees(workload: Workload, devices: int, layers: int, space: PlanSpace) -> Iterator[dict[str, int]]:
    """Degrees whose product is `devices`."""
    whole = indivisible(workload.network, workload.sequence)
    for tensor in divisors(devices):
        if any(rule.remainder(tensor) > 0 for rule in whole) or (space.tensor and tensor not in space.tensor):
            continue
        for pipeline in divisors(devices // tensor):
            if pipeline > layers or (space.pipeline and pipeline not in space.pipeline):
                continue
            left = devices // tensor // pipeline
            for context in divisors(left):
                data = left // context
                if (space.context and context not in space.context) or workload.sequence % context:
                    continue
                if workload.global_batch % data or (space.data and data not in space.data):
                    continue
                yield {"tensor": tensor, "pipeline": pipeline, "data": data, "context": context}


def _micro_batches(samples: int, space: PlanSpace) -> list[int]:
    return [b for b in divisors(samples) if not space.micro_batch or b in space.micro_batch]


def _effective(allowed: tuple[int, ...], name: str, has_effect: bool) -> tuple[int, ...]:
    return allowed if has_effect else (NEUTRAL[name],)


def _on_degrees(
    degrees: dict[str, int], sequence: int, experts: int, space: PlanSpace, *, sparse: bool = False
) -> np.ndarray:
    """Choices that depend on the degrees alone, (k, fields) in the order of `_GROUP_FIELDS`.

    sparse   experts are pieces of tables: any number of ranks up to theirs may share them, not only divisors
    """
    tensor, context = degrees["tensor"], degrees["context"]
    ranks = degrees["data"] * context
    switches = _effective(space.sequence_parallel, "sequence_parallel", tensor > 1)
    if sequence % (context * tensor):
        switches = tuple(value for value in switches if value == 0)
    possible = [e for e in divisors(ranks) if e <= experts] if sparse else divisors(experts)
    spread = [e for e in possible if space.expert is None or e in space.expert] if experts > 1 else [1]
    # whole experts may have copies among the tensor ranks
    whole = tensor > 1 and experts > 1 and 0 in space.expert_tensor
    choices = (
        switches,
        _effective(space.zero_stage, "zero_stage", ranks > 1 or whole),
        space.recompute,
        _effective(space.overlap_data, "overlap_data", ranks > 1 or whole),
        _distinct_orders({"tensor": tensor, "pipeline": degrees["pipeline"], "data": ranks}, space.order),
        spread,
        _effective(space.expert_tensor, "expert_tensor", tensor > 1 and experts > 1),
        _effective(space.zero_group, "zero_group", ranks > 1),
        space.reshard,
        space.offload,
        space.recompute_layers,
        _effective(space.context_ring, "context_ring", context > 1),
        _effective(space.overlap_tensor, "overlap_tensor", tensor > 1),
        _effective(space.overlap_expert, "overlap_expert", experts > 1),
    )
    grid = np.meshgrid(*(np.array(values, dtype=np.int32) for values in choices), indexing="ij")
    return _canonical(np.stack([axis.reshape(-1) for axis in grid], axis=-1), ranks, tensor)


def _canonical(groups: np.ndarray, ranks: int, tensor: int) -> np.ndarray:
    """Rows that can be, each under one name: neutral values where a field changes nothing."""
    column = {name: groups[:, i] for i, name in enumerate(_GROUP_FIELDS)}
    holders, group = np.where(column["expert_tensor"] > 0, ranks, ranks * tensor), column["zero_group"]
    # copies of an expert's weights, and those of one ZeRO group
    copies = np.maximum(holders // column["expert"], 1)
    alone = (copies == 1) & (ranks == 1)
    column["zero_stage"][alone], column["overlap_data"][alone] = NEUTRAL["zero_stage"], NEUTRAL["overlap_data"]
    column["zero_group"][(column["zero_stage"] == 0) | (column["zero_group"] >= ranks)] = NEUTRAL["zero_group"]
    column["overlap_tensor"][column["sequence_parallel"] == 0] = NEUTRAL["overlap_tensor"]
    column["overlap_expert"][column["expert"] == 1] = NEUTRAL["overlap_expert"]
    column["reshard"][(column["zero_stage"] < 3) | (column["zero_group"] == 1)] = NEUTRAL["reshard"]
    column["recompute_layers"][column["recompute"] == 0] = NEUTRAL["recompute_layers"]
    shared = np.where(group > 0, np.minimum(group, copies), copies)
    keeps = (holders % column["expert"] == 0) & (ranks % np.maximum(group, 1) == 0) & (copies % shared == 0)
    groups = groups[keeps]
    _, first = np.unique(groups, axis=0, return_index=True)
    return groups[np.sort(first)]


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
            # one micro-batch has one order of passes, but weight gradients may still move
            same = NEUTRAL["schedule"]
            for schedule in dict.fromkeys(s if count > 1 or s == ZERO_BUBBLE else same for s in space.schedule):
                found += [(schedule, 1, split, overlap) for split in splits]
        # chunks of a balanced split differ from those of a uniform one even where the stages do not
        for split in space.split if 1 in space.schedule and count % pipeline == 0 else ():
            units = layers + 2 * split
            for chunks in divisors(units // pipeline) if units % pipeline == 0 else ():
                if chunks > 1 and (space.interleave is None or chunks in space.interleave):
                    found.append((1, chunks, split, overlap))
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


def _body_layers(pipeline: int, layers: int, lead: int, split: int) -> tuple[int, ...]:
    """Layers of every stage without the leading ones, which are on the first."""
    first, *others = stage_layers(pipeline, layers, split)
    return (max(first - lead, 0), *others)


def _balanced_differs(pipeline: int, layers: int) -> bool:
    return stage_layers(pipeline, layers, 1) != stage_layers(pipeline, layers, 0)


__all__ = ["PlanSpace", "PlanTable", "Strategy", "divisors", "enumerate_plans", "plan_of", "stage_layers"]
