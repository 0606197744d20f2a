"""What a search is told and what it says: settings, progress, result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse.exploration.archive import Archive
from dse.exploration.searchers import Plugged, Searcher
from dse.exploration.variables import Floats, Integers

__all__ = ["OPTUNA", "SAMPLERS", "Progress", "SearchResult", "Settings"]

# Name -> rows a batch.  A generation for NSGA-II; few for TPE, whose proposals take up to 160 ms each.
SAMPLERS = {"nsga2": 50, "tpe": 10, "qmc": 50, "random": 1024, "quasirandom": 1024}
OPTUNA = ("nsga2", "tpe", "qmc")
_MODES = ("search", "exhaustive", "auto")


@dataclass(frozen=True)
class Settings:
    """How to search.

    mode              search: the sampler proposes; exhaustive: every row; auto: exhaustive when the number of
                      designs is at most `exhaustive_limit` (a size, never a timing), else search
    sampler           a name of SAMPLERS, a searcher of the user's own (`Plugged`), or a new object with `ask` and
                      `tell` (which sees to presets and seed itself)
    budget            hardware rows to evaluate; does not limit an exhaustive search
    seed              batch k of the sampler is seeded by (seed, k)
    timeout           s after which the search stops at the next chunk, or None
    batch             rows a batch, or None for the sampler's own
    presets           rows (n, V) that are evaluated first
    local             share of a batch of an Optuna sampler that is taken from the unvisited neighbours of the front
    inner_objective   name of the objective by which the best plan of a row is told to the sampler, or None for
                      the first
    storage           auto: a journal file in the output folder for Optuna's samplers; none; or an Optuna URL
    study_name        name of the Optuna study in that storage"""

    mode: str = "search"
    sampler: str | Plugged | Searcher = "nsga2"
    budget: int = 1000
    seed: int = 0
    timeout: float | None = None
    batch: int | None = None
    presets: Any = None
    local: float = 0.5
    inner_objective: str | None = None
    storage: str = "auto"
    study_name: str = "dse"
    exhaustive_limit: int = 300_000_000

    def __post_init__(self) -> None:
        faults = []
        if self.mode not in _MODES:
            faults.append(f"mode: found {self.mode!r}, allowed: {', '.join(_MODES)}")
        if isinstance(self.sampler, str) and self.sampler not in SAMPLERS:
            faults.append(f"sampler: found {self.sampler!r}, allowed: {', '.join(SAMPLERS)}")
        for name, low in (("budget", 0), ("seed", 0), ("batch", 1), ("exhaustive_limit", 0)):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not (name == "batch" and value is None) and (not whole or value < low):
                faults.append(f"{name}: found {value!r}, allowed: a whole number >= {low}")
        if not 0 <= self.local <= 1:
            faults.append(f"local: found {self.local!r}, allowed: a share 0 .. 1")
        if self.timeout is not None and not self.timeout > 0:
            faults.append(f"timeout: found {self.timeout!r}, allowed: a number > 0 s")
        if faults:
            raise ValueError("; ".join(faults))


@dataclass(frozen=True)
class Progress:
    """Where a running search stands: hardware rows done, their limit, plans priced, front points, s since start."""

    rows: int
    limit: int
    evaluations: int
    feasible: int
    front: int
    elapsed: float
    best: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found.

    rows, plans, values   the front: hardware rows (F, V), plan fields (F, P), objectives (F, J), natural sign;
                          every (row, plan) once, sorted by the first objective, best first
    hardware_rows         hardware rows answered;  evaluations  plans priced;  feasible  plans that violate nothing
    failures              plans by violated constraint
    failed_rows           rows whose evaluation failed;  faults  the first of them, with variables and cause
    missing               rows that the machine left without an answer (a process was killed, memory ran out), by no
                          fault of theirs, with variables and cause: the same search tries them again
    miss                  violations of the nearest miss over all rows, {} when none;  with miss_row, miss_plan and
                          miss_objectives
    stopped               budget, exhausted, timeout, interrupted, stopped, or failed
    notes                 what a reader should know, one sentence each"""

    rows: Integers
    plans: Integers
    values: Floats
    hardware_rows: int
    evaluations: int
    feasible: int
    failures: dict[str, int]
    failed_rows: int
    faults: tuple[dict[str, Any], ...]
    missing: tuple[dict[str, Any], ...]
    miss: dict[str, float]
    miss_row: Integers | None
    miss_plan: Integers | None
    miss_objectives: Floats | None
    stopped: str
    notes: tuple[str, ...]
    mode: str
    elapsed: float
    archive: Archive = field(repr=False)
