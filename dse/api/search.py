"""Searches a space, and shows what was found.  The command line calls the same functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.exploration.run import run
from dse.exploration.settings import Progress, SearchResult, Settings
from dse.exploration.workers import Shared, processors
from dse.inputs import plugins
from dse.inputs.spec import SearchSpec
from dse.insight.front_intervals import FrontIntervals, front_intervals
from dse.problem.build import preset_rows, problem_of
from dse.problem.solved import Solved
from dse.record.write import front_frame

if TYPE_CHECKING:
    import pandas

replace = dataclasses.replace


class SearchReport(Solved):
    """What `dse.search` found: the front, and the problem it was found in."""

    def to_frame(self, *, uncertainty: bool = False) -> pandas.DataFrame:
        """The front: hardware variables, plan and all metrics, units in the headings.

        uncertainty   also the 80% interval of every objective, as `uncertainty()` has them
        """
        return front_frame(self, self.uncertainty() if uncertainty else None)

    def uncertainty(self, *, level: float = 0.8, count: int = 256, seed: int = 0) -> FrontIntervals:
        """Where each objective of each design lies, all under the same draws, and how often it stays on the front."""
        return front_intervals(self, level=level, count=count, seed=seed)


def search(
    spec: SearchSpec | str | Path,
    *,
    out: str | Path | None = None,
    budget: int | None = None,
    seed: int | None = None,
    sampler: str | Callable[..., Any] | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    storage: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> SearchReport:
    """Search chips and plans together; continue the record in `out` when there is one.

    spec      a specification, the path of a YAML file, or the name of a shipped one ("quickstart")
    budget    hardware rows to evaluate; seed, timeout [s]: as in the file unless given
    sampler   who proposes hardware: a name (also `module:attribute`, `optuna:NAME`), or what makes one of a space
    jobs      processes; None: one a processor.  The result does not depend on it.
    """
    if not isinstance(spec, SearchSpec):
        from dse.inputs.yaml.load import load_search  # start-up: pydantic and yaml take longer than the rest together

        spec = load_search(spec)
    proposer = None if sampler is None else plugins.sampler(sampler)
    given = {"budget": budget, "seed": seed, "timeout": timeout, "sampler": proposer}
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
    if hasattr(problem, "prepare") and (workers > 1 or getattr(problem, "strategy", None)):
        problem.prepare()  # a strategy that says nothing useful is an error of the user's, not of every row
    if workers <= 1:
        return run(problem, settings, out=out, progress=progress)
    shared = Shared(problem, workers)
    try:
        return run(shared, settings, out=out, progress=progress)
    finally:
        shared.close()
