"""Searches one chip for several networks beside one chip for each: `dse search` of a file with `workloads:`.

First each network is searched alone (out/networks/NAME, a search like any other); then the space is searched for one
chip for all, from the best chips of each on.  Both continue where they were interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.api.search import run_with, search
from dse.base.errors import ConfigError, Problem
from dse.base.files import file_name
from dse.exploration.settings import Progress, Settings
from dse.exploration.several import SeveralProblem
from dse.inputs.spec import SearchSpec
from dse.problem.build import preset_rows, problem_of
from dse.problem.several import SeveralReport

#: Chips of each network's own front from which the common search starts.
STARTS = 8


def search_several(
    spec: SearchSpec, *, out: str | Path | None = None, jobs: int | None = None, storage: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> SeveralReport:  # fmt: skip
    """Each network alone, then one chip for all; every search has the budget and seed of the file.

    KeyboardInterrupt where a search was interrupted, OSError where the machine left rows without an answer:
    nothing finished is lost, and the same call continues."""
    names = [workload.network.name for workload in spec.workloads]
    problems = []
    if len(set(names)) != len(names):
        problems.append(Problem(", ".join(names), "networks of different names", "workloads", spec.path))
    if spec.search.mode == "joint":
        problems.append(Problem("joint", "nested, exhaustive or auto with several workloads", "search.mode", spec.path))
    if problems:
        raise ConfigError(problems)
    folder = Path(out) if out is not None else None
    alone: dict[str, Any] = {}
    for workload in spec.workloads:
        name = workload.network.name
        one = replace(spec, name=f"{spec.name}-{name}", workloads=(workload,))
        own = folder / "networks" / file_name(name) if folder else None
        alone[name] = search(one, out=own, jobs=jobs, storage=storage, progress=progress)
        if alone[name].result.stopped == "interrupted":
            raise KeyboardInterrupt  # what is finished is recorded, and the same call goes on there
        missing = alone[name].result.missing
        if missing:  # its own best chip is not known yet
            cause = missing[0]["cause"]
            raise OSError(f"{name}: {len(missing)} hardware rows have no answer (try again: the same call); {cause}")
    lacking = [name for name, report in alone.items() if not len(report)]
    if lacking:
        found = Problem(", ".join(lacking), "networks that fit some chip of the space", "workloads", spec.path)
        raise ConfigError([found])
    best = [float(report.result.values[0, 0]) for report in alone.values()]
    parts = [problem_of(replace(spec, workloads=(workload,))) for workload in spec.workloads]
    inner = _inner(spec)
    problem = SeveralProblem(
        parts, [workload.weight for workload in spec.workloads], best, inner=inner, name=spec.name,  # type: ignore[arg-type]
    )  # fmt: skip
    starts = [report.result.rows[:STARTS] for report in alone.values()]
    named = preset_rows(spec, problem.space, joint=False)
    chosen = spec.search
    settings = Settings(
        mode="search" if chosen.mode == "nested" else chosen.mode, sampler=chosen.sampler, budget=chosen.budget,
        seed=chosen.seed, timeout=chosen.timeout,
        presets=np.unique(np.concatenate([*starts, *([named] if named is not None else [])]), axis=0), storage=storage,
    )  # fmt: skip
    common = folder / "common" if folder else None
    result = run_with(problem, settings, jobs=jobs, out=common, progress=progress)
    return SeveralReport(spec, problem, alone, result)


def _inner(spec: SearchSpec) -> int:
    return spec.objectives.index(spec.search.inner_objective) if spec.search.inner_objective else 0
