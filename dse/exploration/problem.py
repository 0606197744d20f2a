"""The search problem: hardware rows in, each row's best plans out. Joins a space of choices with the evaluation.

`NestedProblem` sweeps every plan for a hardware row; `JointProblem` takes the plan from the row as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from dse.base.columns import as_column, row_of, take, unchecked
from dse.evaluation.chip_facts import ChipFacts
from dse.evaluation.design import CORES_RULE, POWER_RULE, Design, chip_violations
from dse.evaluation.evaluate import evaluate
from dse.evaluation.memory import memory
from dse.evaluation.metrics import Metric
from dse.evaluation.ownership import chip_metrics
from dse.evaluation.stages import blocks_by_place, layer_counts, sharing, stages, strides
from dse.evaluation.violations import DEVICES_RULE, PLAN_RULES
from dse.exploration.plans import PlanSpace, PlanTable, Strategy, enumerate_plans, plan_of
from dse.exploration.sweep import Goals, Layouts, Piece, sweep
from dse.exploration.variables import Integers, Objective, Outcome, Space, Variable
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.physical.dvfs import capped_point
from hw_models.stack import Stack
from hw_models.technology import Technology
from workloads.network import Workload
from workloads.plan import CHOICES, SWITCHES, Plan, data_degree
from workloads.precision import Training
from workloads.splits import indivisible

#: Chunks of plans whose layouts a process keeps (about 5 MB each).
KEPT_LAYOUTS = 40
#: Plans looked at on a chip that breaks a limit of its own (area, TDP): enough for a nearest miss.
GLANCE = 512


@dataclass(frozen=True)
class Scene:
    """Everything a search holds fixed, and the chip and cluster it starts from.

    technology_of   (process, hbm) -> Technology
    """

    chip: Chip
    cluster: Cluster
    workload: Workload
    training: Training
    stack: Stack
    technology_of: Callable[[str, str], Technology]


@dataclass(frozen=True)
class Hardware:
    """Chips, clusters and technologies of some rows: homogeneous in every structural choice, columns (N,)."""

    chip: Chip
    cluster: Cluster
    technology: Technology
    rows: np.ndarray

    def design(self, which: Any, plan: Plan, scene: Scene, *, paired: bool) -> Design:
        """The design of rows `which` with a plan; against every plan unless `paired`."""
        chip, cluster = take(self.chip, which), take(self.cluster, which)
        technology = take(self.technology, which)
        if not paired:
            chip, cluster, technology = as_column(chip), as_column(cluster), as_column(technology)
        return Design(chip, cluster, plan, scene.workload, scene.stack, scene.training, technology)


def hardware_groups(space: Space, rows: Integers, scene: Scene) -> list[Hardware]:
    """Rows decoded and grouped by what is not a number: process, memory generation, kind of compute, devices.

    Variables are named `chip.FIELD`, `cluster.devices` or `cluster.tiers.I.FIELD`.
    """
    values = space.decode(rows)
    structural = [name for name in values if values[name].dtype.kind in "UO" or name == "cluster.devices"]
    keys: dict[tuple[Any, ...], list[int]] = {}
    for i in range(len(rows)):
        keys.setdefault(tuple(values[name][i] for name in structural), []).append(i)
    found = []
    for key, members in keys.items():
        index = np.array(members)
        # plain texts and numbers: a numpy text would be taken for a number
        plain_key = [value.item() if isinstance(value, np.generic) else value for value in key]
        fixed = dict(zip(structural, plain_key, strict=True))
        chosen = {name: fixed.get(name, column[index]) for name, column in values.items()}
        chip = _with(scene.chip, chosen, "chip.")
        cluster = _cluster(scene.cluster, chosen)
        found.append(Hardware(chip, cluster, scene.technology_of(chip.process, chip.hbm), index))
    return found


def _number(value: Any) -> Any:
    return value.astype(float) if isinstance(value, np.ndarray) else value


def _with(model: Any, chosen: Mapping[str, Any], prefix: str) -> Any:
    changes = {
        name.removeprefix(prefix): _number(value)
        for name, value in chosen.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
    return unchecked(model, changes) if changes else model


def _cluster(cluster: Cluster, chosen: Mapping[str, Any]) -> Cluster:
    tiers = tuple(_with(tier, chosen, f"cluster.tiers.{i}.") for i, tier in enumerate(cluster.tiers))
    if "cluster.devices" in chosen:
        devices = float(chosen["cluster.devices"])
        # the outermost tier holds every device
        tiers = (*tiers[:-1], unchecked(tiers[-1], {"size": np.maximum(devices, 1.0)}))
        return unchecked(cluster, {"devices": devices, "tiers": tiers})
    return unchecked(cluster, {"tiers": tiers})


class _Common:
    """What nested and joint problems share: names, constraints and the fingerprint."""

    def __init__(
        self, space: Space, scene: Scene, goals: Goals, plan_space: PlanSpace, *, name: str, constants: Any = None
    ) -> None:
        self.space, self.scene, self.goals, self.plan_space = space, scene, goals, plan_space
        self.name, self.constants = name, constants

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is wanted."""
        return self.goals.objectives

    def design(self, row: Integers, plan: Integers) -> Design:
        """The design of one row with one plan: scalars, the same numbers that were searched."""
        hardware = hardware_groups(self.space, np.atleast_2d(row), self.scene)[0]
        scene, numbers = self.scene, [int(value) for value in plan]
        return Design(
            row_of(hardware.chip, 0), row_of(hardware.cluster, 0), Plan(*numbers),
            scene.workload, scene.stack, scene.training, hardware.technology,
        )

    @property
    def plan_fields(self) -> tuple[str, ...]:
        """Names of the columns of a plan."""
        return Plan.names()

    def _values(self, name: str, fixed: Any) -> tuple[Any, ...]:
        for variable in self.space.variables:
            if variable.name == name:
                return variable.values
        return (fixed,)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Every rule a design may break."""
        workload = self.scene.workload
        divisible = (f"{rule.name} % tensor" for rule in indivisible(workload.network, workload.sequence))
        rules = [DEVICES_RULE, *PLAN_RULES, *divisible, "memory"]
        arrays = self._values("chip.arrays_per_core", self.scene.chip.arrays_per_core)
        rules += [CORES_RULE] if max(arrays) > 1 else []
        rules += [POWER_RULE] if max(self._values("chip.power_cap", self.scene.chip.power_cap)) > 0 else []
        return tuple(dict.fromkeys([*rules, *(metric for metric, _, _ in self.goals.limits)]))

    def fingerprint(self) -> dict[str, Any]:
        """Everything an archived answer depends on."""
        scene = self.scene
        network = scene.workload.network
        fixed = {
            "chip": _plain(scene.chip),
            "cluster": _plain(scene.cluster),
            "stack": _plain(scene.stack),
            "training": asdict(scene.training),
        }
        return {
            "name": self.name,
            "mode": type(self).__name__,
            "space": self.space.describe(),
            "network": {"name": network.name, "blocks": _digest(repr(network.blocks(scene.workload.sequence)))},
            "sequence": scene.workload.sequence,
            "global_batch": scene.workload.global_batch,
            "objectives": [[o.name, o.direction] for o in self.goals.objectives],
            "limits": [list(limit) for limit in self.goals.limits],
            **({"metrics": [_described(metric) for metric in self.goals.custom]} if self.goals.custom else {}),
            "plans": _plain(self.plan_space),
            **fixed,
            "constants": _digest(json.dumps(self.constants, sort_keys=True, default=str)),
        }


def _described(metric: Metric) -> list[Any]:
    return [metric.name, metric.unit, metric.better, list(metric.needs)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(model: Any) -> Any:
    """A model as JSON-able data."""
    if hasattr(model, "__dataclass_fields__"):
        return {item.name: _plain(getattr(model, item.name)) for item in fields(model)}
    if isinstance(model, Mapping):
        return {str(key): _plain(value) for key, value in model.items()}
    if isinstance(model, (tuple, list)):
        return [_plain(value) for value in model]
    return model.tolist() if isinstance(model, (np.ndarray, np.generic)) else model


@dataclass(frozen=True)
class Plans:
    """All plans on a number of devices, those that need less memory first.

    table   plans in order of the smallest capacity of the space that holds them
    edges   plans that fit the capacities in `rooms`, smallest first (numbers of plans)
    rooms   bytes that plans may need on each capacity
    layouts of chunks of the table that were met before
    """

    table: PlanTable
    edges: np.ndarray
    rooms: np.ndarray
    layouts: Layouts = field(default_factory=lambda: Layouts(KEPT_LAYOUTS))

    def fitting(self, room: float) -> int:
        """How many plans of the table fit `room` bytes, rounded up to the next capacity of the space."""
        at = int(np.searchsorted(self.rooms, room * (1.0 - 1e-12)))
        return int(self.edges[at]) if at < len(self.edges) else len(self.table)


class NestedProblem(_Common):
    """A row is a chip and a cluster; its answer is the exact front over every plan."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.strategy: Strategy | None = options.pop("strategy", None)
        super().__init__(*args, **options)
        self._plans: dict[int, Plans] = {}

    def fingerprint(self) -> dict[str, Any]:
        """Everything an archived answer depends on."""
        own = {} if self.strategy is None else {"strategy": self.strategy.name}
        return super().fingerprint() | own

    @property
    def designs(self) -> int:
        """Chips times plans."""
        total = sum(len(self.plans(devices).table) for devices in self._devices())
        return self.space.size // max(len(self._devices()), 1) * total

    def _devices(self) -> list[int]:
        return [int(value) for value in self._values("cluster.devices", self.scene.cluster.devices)]

    def _room(self, capacity: Any) -> Any:
        """Bytes a plan may need on a chip: what reserve and fragmentation leave, with a hair of slack
        (the exact comparison is the evaluation's)."""
        stack = self.scene.stack
        return (capacity - stack.memory_reserve) / (1.0 + stack.fragmentation) * (1.0 + 1e-9)

    def prepare(self) -> None:
        """Enumerate the plans of every device count now, for processes to inherit."""
        for devices in self._devices():
            self.plans(devices)

    def plans(self, devices: int) -> Plans:
        """All plans on `devices` devices; which of them fit a chip is known before anything is priced."""
        if devices not in self._plans:
            table = enumerate_plans(self.scene.workload, devices, self.plan_space)
            if self.strategy is not None:
                table = self.strategy.chosen(table)
            needed = self._needed(table)
            chip = self.scene.chip
            stacks = self._values("chip.hbm_stacks", chip.hbm_stacks)
            sizes = self._values("chip.hbm_stack_capacity", chip.hbm_stack_capacity)
            rooms = np.unique([self._room(float(count) * float(size)) for count in stacks for size in sizes])
            bucket = np.searchsorted(rooms, needed)
            # plans of least memory first where a glance at chips that hold none starts
            lowest = bucket.min() if len(bucket) else 0
            order = np.lexsort((np.where(bucket == lowest, needed, 0.0), bucket))
            self._plans[devices] = Plans(
                table.select(order), np.searchsorted(bucket[order], np.arange(len(rooms)), side="right"), rooms
            )
        return self._plans[devices]

    def _needed(self, table: PlanTable, chunk: int = 65536) -> np.ndarray:
        blocks, workload = blocks_by_place(self.scene.workload), self.scene.workload
        needed = np.empty(len(table))
        for start in range(0, len(table), chunk):
            plan = table.rows(start, start + chunk)
            layout = stages(plan, workload, *layer_counts(blocks), blocks["body"].cells)
            shared = sharing(plan, strides(plan))
            needed[start : start + chunk] = memory(plan, self.scene.training, blocks, layout, shared).total
        return needed

    def evaluate(self, rows: Integers) -> list[Outcome]:
        """The inner front of every row.

        Plans that a chip cannot hold are counted as `memory` failures before anything is priced; a chip that
        breaks its own area or TDP limit, or holds no plan, is looked at with a few plans only.
        """
        rows = np.atleast_2d(rows)
        outcomes: list[Outcome | None] = [None] * len(rows)
        for hardware in hardware_groups(self.space, rows, self.scene):
            for row, outcome in zip(hardware.rows, self._sweep(hardware), strict=True):
                outcomes[int(row)] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def _broken_limits(self, hardware: Hardware) -> np.ndarray:
        """Which chips break a limit that no plan can mend."""
        known = chip_metrics(ChipFacts(hardware.chip, hardware.technology, self.scene.training.precision))
        broken = np.zeros(len(hardware.rows), dtype=bool)
        if np.any(hardware.chip.power_cap) and hardware.chip.compute == "systolic":
            point = capped_point(hardware.chip, hardware.technology, precision=self.scene.training.precision)
            broken |= np.broadcast_to(point.excess > 0, broken.shape)
        for excess in chip_violations(hardware.chip).values():
            broken |= np.broadcast_to(excess > 0, broken.shape)
        for metric, relation, limit in self.goals.limits:
            if metric in known:
                value = known[metric]()
                broken |= np.broadcast_to(value > limit if relation == "<=" else value < limit, broken.shape)
        return broken

    def _sweep(self, hardware: Hardware) -> list[Outcome]:
        plans = self.plans(int(np.max(hardware.cluster.devices)))
        count, everything = len(hardware.rows), len(plans.table)
        capacity = np.broadcast_to(hardware.chip.hbm_capacity, (count,))
        held = np.array([plans.fitting(self._room(value)) for value in capacity])
        glance = self._broken_limits(hardware) | (held == 0)
        held = np.where(glance, min(GLANCE, everything), held)
        pieces, start = [], 0
        for stop in np.unique(held):
            pieces.append(Piece(start, int(stop), np.flatnonzero(held >= stop)))
            start = int(stop)
        outcomes = sweep(
            lambda chips, plan: hardware.design(chips, plan, self.scene, paired=False),
            count, plans.table, self.goals, pieces, plans.layouts,
        )
        return [
            outcome if looked_at or number == everything else _with_culled(outcome, everything - int(number))
            for outcome, looked_at, number in zip(outcomes, glance, held, strict=True)
        ]


def _with_culled(outcome: Outcome, culled: int) -> Outcome:
    """An outcome that also counts the plans whose memory was known not to fit."""
    failures = {**outcome.failures, "memory": outcome.failures.get("memory", 0) + culled}
    return replace(outcome, failures=failures, evaluated=outcome.evaluated + culled)


def joint_space(space: Space, workload: Workload, devices: tuple[int, ...], plan_space: PlanSpace) -> Space:
    """Hardware variables and a variable for every axis of the plan; the data degree is what is left of the devices."""
    values: dict[str, set[int]] = {name: set() for name in Plan.names() if name != "data"}
    for count in devices:
        table = enumerate_plans(workload, count, plan_space)
        for name in values:
            values[name] |= set(np.unique(table.columns[name]).tolist())
    plan = [_axis(name, sorted(found)) for name, found in values.items() if found]
    return Space([*space.variables, *plan])


def _axis(name: str, numbers: list[int]) -> Variable:
    if name in CHOICES:
        return Variable(f"plan.{name}", tuple(CHOICES[name][number] for number in numbers))
    return Variable(f"plan.{name}", tuple(numbers))


class JointProblem(_Common):
    """A row is a chip, a cluster and a plan; its answer is that one design."""

    def evaluate(self, rows: Integers) -> list[Outcome]:
        """One design a row, priced row by row in one batch."""
        rows = np.atleast_2d(rows)
        outcomes: list[Outcome | None] = [None] * len(rows)
        values = self.space.decode(rows)
        signs = np.ones(len(self.objectives))
        for hardware in hardware_groups(self.space, rows, self.scene):
            plan = self._plan(values, hardware)
            design = hardware.design(np.arange(len(hardware.rows)), plan, self.scene, paired=True)
            if len(hardware.rows) == 1:
                design = hardware.design(np.arange(1), plan, self.scene, paired=False)
            result = evaluate(design)
            shape = (len(hardware.rows),)
            violations = {n: np.broadcast_to(v.reshape(-1), shape) for n, v in self.goals.violations(result).items()}
            wanted = [np.broadcast_to(self.goals.column(result, o.name).reshape(-1), shape) for o in self.objectives]
            found = np.stack(wanted, axis=-1)
            numbers = np.stack([np.broadcast_to(getattr(plan, name), shape) for name in Plan.names()], axis=-1)
            for i, row in enumerate(hardware.rows):
                broken = {name: float(table[i]) for name, table in violations.items() if table[i] > 0}
                outcomes[int(row)] = _single(found[i] * signs, numbers[i].astype(np.int64), broken)
        return [outcome for outcome in outcomes if outcome is not None]

    def _plan(self, values: Mapping[str, np.ndarray], hardware: Hardware) -> Plan:
        columns: dict[str, Any] = {}
        count = len(hardware.rows)
        for name in Plan.names():
            if f"plan.{name}" in values:
                column = values[f"plan.{name}"][hardware.rows]
                if name in CHOICES:
                    column = np.array([CHOICES[name].index(str(value)) for value in column])
                columns[name] = column.astype(float)
        devices = np.broadcast_to(hardware.cluster.devices, (count,))
        columns["data"] = data_degree(devices, **{name: columns[name] for name in ("tensor", "pipeline", "context")})
        return plan_of(columns)


def _single(values: np.ndarray, plan: np.ndarray, broken: dict[str, float]) -> Outcome:
    good = not broken and bool(np.all(np.isfinite(values)))
    if not broken and not good:
        broken = {"not a number": 1.0}
    return Outcome(
        evaluated=1,
        feasible=int(good),
        failures={name: 1 for name in broken},
        front=values[None, :] if good else np.zeros((0, len(values))),
        plans=plan[None, :] if good else np.zeros((0, len(plan)), dtype=np.int64),
        miss=broken,
        miss_plan=None if good else plan,
        miss_objectives=values,
    )


__all__ = ["Hardware", "JointProblem", "NestedProblem", "Scene", "SWITCHES", "hardware_groups", "joint_space"]
