"""The search problem that a specification describes: its space, base cluster, goals and starting points."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dse.base.errors import ConfigError, Problem
from dse.exploration.plans import PlanSpace
from dse.exploration.problem import JointProblem, NestedProblem, Scene, joint_space
from dse.exploration.sweep import Goals
from dse.exploration.variables import Space, Variable
from dse.inputs.spec import ALL_DEVICES, SearchSpec
from dse.problem.objectives import objective
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.technology import constants, technology

__all__ = ["preset_rows", "problem_of"]


def space_of(spec: SearchSpec) -> Space:
    """The hardware variables of a search: every field with more than one value."""
    chip_units = {item.name: item.metadata.get("unit", "") for item in dataclasses.fields(Chip)}
    tier_units = {item.name: item.metadata.get("unit", "") for item in dataclasses.fields(Tier)}
    found = [Variable(f"chip.{n}", v, chip_units.get(n, "")) for n, v in spec.chip.items() if len(v) > 1]
    found += [Variable(f"cluster.{name}", values) for name, values in spec.cluster.values.items() if len(values) > 1]
    for i, tier in enumerate(spec.cluster.tiers):
        found += [Variable(f"cluster.tiers.{i}.{n}", v, tier_units.get(n, "")) for n, v in tier.items() if len(v) > 1]
    if not found:
        # nothing to choose in hardware: one row, whose plans are swept
        found = [Variable("chip.clock", spec.chip["clock"], "Hz")]
    return Space(found)


def base_cluster(spec: SearchSpec) -> Cluster:
    """The cluster with the first value of every field."""
    values = {name: found[0] for name, found in spec.cluster.values.items()}
    devices = max(int(value) for value in spec.cluster.values["devices"])
    tiers = []
    for tier in spec.cluster.tiers:
        chosen = {name: found[0] for name, found in tier.items()}
        if chosen.get("size") == ALL_DEVICES:
            chosen["size"] = devices
        tiers.append(Tier(**chosen))
    return Cluster(name=spec.cluster.name, source=spec.cluster.source, tiers=tuple(tiers), **values)


def goals_of(spec: SearchSpec) -> Goals:
    """Objectives and limits of a search."""
    return Goals(
        tuple(objective(name, spec.metrics) for name in spec.objectives),
        tuple((limit.metric, limit.relation, limit.bound) for limit in spec.constraints),
        spec.metrics,
    )


def problem_of(spec: SearchSpec) -> NestedProblem | JointProblem:
    """The search problem of a specification, in its mode."""
    if len(spec.workloads) != 1:
        found = Problem(
            f"{len(spec.workloads)} workloads", "one (dse.search_several, or dse search, takes several)", "workloads",
            spec.path,
        )
        raise ConfigError([found])
    workload = spec.workloads[0]
    scene = Scene(spec.chip_base, base_cluster(spec), workload, spec.training, spec.stack, technology)
    space, plan_space = space_of(spec), PlanSpace(**{name: tuple(values) for name, values in spec.plan.items()})
    used = _constants(spec)
    if spec.search.mode == "joint":
        if spec.strategy is not None:
            found = Problem("joint with a strategy", "nested, exhaustive or auto", "search.mode", spec.path)
            raise ConfigError([found])
        devices = tuple(int(value) for value in spec.cluster.values["devices"])
        space = joint_space(space, workload, devices, plan_space)
        return JointProblem(space, scene, goals_of(spec), plan_space, name=spec.name, constants=used)
    return NestedProblem(
        space, scene, goals_of(spec), plan_space, name=spec.name, constants=used, strategy=spec.strategy
    )


def _constants(spec: SearchSpec) -> list[dict[str, str]]:
    """Rows of the technology table that any chip of the space uses."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for process in spec.chip["process"]:
        for memory in spec.chip["hbm"]:
            for row in constants(process, memory):
                rows[row["node"], row["constant"]] = dict(row)
    return list(rows.values())


def preset_rows(spec: SearchSpec, space: Space, *, joint: bool) -> np.ndarray | None:
    """The named chips projected into the space: each variable takes the nearest choice."""
    if joint or not spec.presets:
        return None
    base = base_cluster(spec)
    rows = []
    for chip in spec.presets:
        values: dict[str, Any] = {}
        for variable in space.variables:
            part, _, name = variable.name.partition(".")
            if part == "chip":
                value = getattr(chip, name)
                known = value in variable.values or not isinstance(value, str)
                values[variable.name] = value if known else variable.values[0]
            elif name.startswith("tiers."):
                _, tier, item = name.split(".")
                values[variable.name] = getattr(base.tiers[int(tier)], item)
            else:
                values[variable.name] = getattr(base, name)
        rows.append(space.nearest(values))
    return np.unique(np.stack(rows), axis=0)
