"""The Python face: evaluate a design, search a space.  The command line calls the same functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.api.evaluation import Evaluation
from dse.base.errors import ConfigError, Problem
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate as evaluate_columns
from dse.exploration.plans import PlanSpace
from dse.exploration.problem import JointProblem, NestedProblem, Scene, joint_space
from dse.exploration.run import Progress, SearchResult, Settings, run
from dse.exploration.sweep import Goals
from dse.exploration.variables import Space, Variable
from dse.exploration.workers import Shared, processors
from dse.inputs.spec import ALL_DEVICES, SearchSpec
from dse.problem.objectives import objective
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.technology import constants, technology

if TYPE_CHECKING:
    import pandas

    from dse.insight.front_intervals import FrontIntervals

replace = dataclasses.replace


def evaluate(design: Design) -> Evaluation:
    """Metrics and violations of a design, scalars or columns (see `dse.Design` for the shapes)."""
    found = evaluate_columns(design)
    return Evaluation(found.metrics, found.violations, found.shape, design)


@dataclass(frozen=True, eq=False)
class SearchReport:
    """What `dse.search` found: the front, and the problem it was found in."""

    spec: SearchSpec
    problem: Any
    result: SearchResult

    def __len__(self) -> int:
        return len(self.result.rows)

    def design(self, row: int) -> Design:
        """A design of the front, best by the first objective first."""
        made: Design = self.problem.design(self.result.rows[row], self.result.plans[row])
        return made

    def designs(self) -> list[Design]:
        """Every design of the front."""
        return [self.design(row) for row in range(len(self))]

    def to_frame(self, *, uncertainty: bool = False) -> pandas.DataFrame:
        """The front: hardware variables, plan and all metrics, units in the headings.

        uncertainty   also the 80% interval of every objective, as `uncertainty()` has them
        """
        from dse.record.write import front_frame

        return front_frame(self, self.uncertainty() if uncertainty else None)

    def uncertainty(self, *, level: float = 0.8, count: int = 256, seed: int = 0) -> FrontIntervals:
        """Where each objective of each design lies, all under the same draws, and how often it stays on the front."""
        from dse.insight.front_intervals import front_intervals

        return front_intervals(self, level=level, count=count, seed=seed)


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
        tuple(objective(name) for name in spec.objectives),
        tuple((limit.metric, limit.relation, limit.bound) for limit in spec.constraints),
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
        devices = tuple(int(value) for value in spec.cluster.values["devices"])
        space = joint_space(space, workload, devices, plan_space)
        return JointProblem(space, scene, goals_of(spec), plan_space, name=spec.name, constants=used)
    return NestedProblem(space, scene, goals_of(spec), plan_space, name=spec.name, constants=used)


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


def search(
    spec: SearchSpec | str | Path,
    *,
    out: str | Path | None = None,
    budget: int | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    storage: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> SearchReport:
    """Search chips and plans together; continue the record in `out` when there is one.

    spec      a specification, the path of a YAML file, or the name of a shipped one ("quickstart")
    budget    hardware rows to evaluate; seed, timeout [s]: as in the file unless given
    jobs      processes; None: one a processor.  The result does not depend on it.
    """
    if not isinstance(spec, SearchSpec):
        from dse.inputs.yaml.load import load_search

        spec = load_search(spec)
    given = {"budget": budget, "seed": seed, "timeout": timeout}
    # the report, and the manifest written from it, say what was searched, not what the file had said
    chosen = replace(spec.search, **{name: value for name, value in given.items() if value is not None})
    spec = replace(spec, search=chosen)
    problem = problem_of(spec)
    joint = chosen.mode == "joint"
    settings = Settings(
        mode={"nested": "search", "joint": "search"}.get(chosen.mode, chosen.mode),
        sampler=chosen.sampler,
        budget=chosen.budget,
        seed=chosen.seed,
        timeout=chosen.timeout,
        presets=preset_rows(spec, problem.space, joint=joint),
        inner_objective=chosen.inner_objective or None,
        storage=storage,
    )
    return SearchReport(spec, problem, run_with(problem, settings, jobs=jobs, out=out, progress=progress))


def run_with(
    problem: Any, settings: Settings, *, jobs: int | None, out: str | Path | None,
    progress: Callable[[Progress], None] | None,
) -> SearchResult:  # fmt: skip
    """Run a search with `jobs` processes, None: one a processor; plans are enumerated once, for all to inherit."""
    workers = processors() if jobs is None else jobs
    if workers <= 1:
        return run(problem, settings, out=out, progress=progress)
    if hasattr(problem, "prepare"):
        problem.prepare()
    shared = Shared(problem, workers)
    try:
        return run(shared, settings, out=out, progress=progress)
    finally:
        shared.close()
