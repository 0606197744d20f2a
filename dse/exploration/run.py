"""Runs a search: ask for hardware rows, evaluate them, record the answers, tell the searcher, keep the front.

The archive is the truth.  A searcher is rebuilt from it on resume, so one process that was interrupted, or killed,
ends with what an uninterrupted one would have: rows are priced by a pure function, batch k of a searcher depends
only on (seed, k) and the batches before, and nothing that a clock decides (how rows are cut into chunks) enters
a result.  Extending the budget of a finished search continues it; its last batch may then have been shorter.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.exploration.answers import Answers, answers, joined
from dse.exploration.archive import Archive, Chunk, pack, plain, refuse_difference, take
from dse.exploration.pareto import merge
from dse.exploration.searchers import ExhaustiveSearcher, QuasiRandomSearcher, RandomSearcher, Searcher, distinct
from dse.exploration.variables import Floats, Integers, Objective, Outcome, Problem

if TYPE_CHECKING:
    from dse.exploration.optuna_searcher import StudyMirror

__all__ = ["SAMPLERS", "Progress", "SearchResult", "Settings", "result_of", "run"]

# Name -> rows a batch.  A generation for NSGA-II; few for TPE, whose proposals take up to 160 ms each.
SAMPLERS = {"nsga2": 50, "tpe": 10, "qmc": 50, "random": 1024, "quasirandom": 1024}
_OPTUNA = ("nsga2", "tpe", "qmc")
_EXHAUSTIVE_BATCH = 32_768
_LARGEST_SLICE = 16_384
_MODES = ("search", "exhaustive", "auto")
# Seconds of evaluation after which finished rows are committed although the batch goes on.
_COMMIT_AFTER = 0.5
# An exhaustive record keeps every row up to this many, above only what is on the front when it is found.
_FULL_RECORD = 200_000
_FAULTS_SHOWN = 20
# Rows that the machine may leave without an answer before a run gives up.
_MOST_MISSING = 20
_OTHER_PROPOSALS = "searcher: found other proposals than the record holds, allowed: the same for one seed"


@dataclass(frozen=True)
class Settings:
    """How to search.

    mode              search: the sampler proposes; exhaustive: every row; auto: exhaustive when the number of
                      designs is at most `exhaustive_limit` (a size, never a timing), else search
    sampler           a name of SAMPLERS, or a new object with `ask` and `tell` (which sees to presets and seed itself)
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
    sampler: str | Searcher = "nsga2"
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


def run(
    problem: Problem,
    settings: Settings = Settings(),
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> SearchResult:
    """Search `problem`; continue the record in folder `out` when there is one, without `out` in memory only.

    Ctrl-C and SIGTERM end after the rows in work, with what is committed and stopped = "interrupted"; a second
    one ends at once.  `stop` is asked between rows and ends the search with stopped = "stopped"."""
    started = time.monotonic()
    mode = _mode(problem, settings)
    fingerprint = _fingerprint(problem, settings, mode)
    with Archive.open(out, fingerprint) as archive, _signals() as interrupted:
        search = _Search(problem, settings, archive, mode=mode, started=started, progress=progress)
        if mode == "search":
            search.mirror = _mirror(problem, settings, out, fingerprint=archive.fingerprint)

        def ended() -> str:
            if interrupted():
                return "interrupted"
            if stop is not None and stop():
                return "stopped"
            late = settings.timeout is not None and time.monotonic() - started >= settings.timeout
            return "timeout" if late else ""

        search.resume()
        reason = search.go(ended)
        return search.tally.result(reason, mode=mode, elapsed=time.monotonic() - started, notes=search.notes)


def result_of(archive: Archive) -> SearchResult:
    """The result of a recorded search as far as it went, for example of `Archive.read(folder)`."""
    objectives = [Objective(**o) for o in archive.fingerprint["objectives"]]
    tally = _Tally(archive, objectives, len(archive.fingerprint["plan_fields"]))
    for chunk in archive.chunks:
        tally.add(chunk)
    return tally.result("recorded", mode=archive.fingerprint["search"]["mode"], elapsed=0.0, notes=[])


class _Search:
    """One run of a search: the loop and what it carries from batch to batch."""

    def __init__(
        self, problem: Problem, settings: Settings, archive: Archive, *, mode: str, started: float,
        progress: Callable[[Progress], None] | None,
    ) -> None:  # fmt: skip
        self.problem, self.settings, self.archive, self.mode = problem, settings, archive, mode
        self.started, self.progress = started, progress
        self.tally = _Tally(archive, problem.objectives, len(problem.plan_fields))
        self.limit = problem.space.size if mode == "exhaustive" else min(settings.budget, problem.space.size)
        self.searcher = _searcher(problem, settings, mode)
        self.batch_size = _batch_size(settings, mode)
        self.thin = mode == "exhaustive" and problem.space.size > _FULL_RECORD
        self.signs = np.array([o.sign for o in problem.objectives])
        self.inner = _inner(problem, settings)
        self.mirror: StudyMirror | None = None
        self.notes: list[str] = []
        if mode == "exhaustive" and settings.budget < problem.space.size and settings.mode == "exhaustive":
            self.notes.append("an exhaustive search looks at every row; the budget does not limit it")
        self.batch = 0  # batches told
        self.told = 0  # rows told
        self.partial: list[Chunk] = []  # committed parts of the batch in work
        self.front_before = distinct(problem.space, None)  # hardware rows of the front before the batch in work
        self.slice = 1  # rows given to the problem at once
        self.unanswered = 0  # rows that this run got no answer for

    def resume(self) -> None:
        """Rebuild searcher and tally from the archive."""
        for chunk in self.archive.chunks:
            self.tally.add(chunk)
            if "again" in chunk.header:  # a later answer: the searcher was told that the row has none
                continue
            self.partial.append(chunk)
            if chunk.header["complete"]:
                self._replay()
        if self.mode == "exhaustive":
            self.searcher = ExhaustiveSearcher(self.problem.space, start=self.told)
        if self.archive.chunks:
            self.notes.append(f"continued from {self.tally.rows} recorded hardware rows")

    def go(self, ended: Callable[[], str]) -> str:
        """Rows that are missing first, then batches until something ends the search; the reason."""

        def stopped() -> str:
            return ended() or ("failed" if self.unanswered > _MOST_MISSING else "")

        reason = self._answer_missing(stopped) or self._go(stopped)
        if self.tally.missing:
            count, cause = len(self.tally.missing), next(iter(self.tally.missing.values()))
            self.notes.append(f"{count} hardware rows have no answer, the same search tries them again; first: {cause}")
        return reason

    def _answer_missing(self, ended: Callable[[], str]) -> str:
        """Evaluate the rows that are recorded without an answer, one at a time; the reason to end, or ""."""
        for row in list(self.tally.missing):
            reason = ended()
            if reason:
                return reason
            rows = np.array([row], dtype=np.int64)
            self._commit(rows, self._answers(rows), asked=1, complete=False, record=None, again=True)
        return ""

    def _answers(self, rows: Integers) -> Answers:
        found = answers(self.problem, rows)
        self.unanswered += len(found.missing)
        return found

    def _go(self, ended: Callable[[], str]) -> str:
        while True:
            if not self.partial and self.told >= self.limit:
                break
            reason = ended()
            if reason:
                return reason
            asked = min(self.batch_size, self.limit - self.told)
            if self.partial:  # finish the batch as it was begun, even when the budget has changed since
                asked = int(self.partial[0].header["asked"])
            rows = self._ask(asked)
            if len(rows) == 0:
                break
            reason = self._evaluate_batch(rows, asked, ended)
            if reason:
                return reason
        return self._finished()

    def _finished(self) -> str:
        size = self.problem.space.size
        if self.told >= size:
            if self.mode != "exhaustive":
                self.notes.append(f"the space is exhausted: all {size} hardware rows were evaluated, once each")
            return "exhausted"
        return "budget" if self.told >= self.limit else "exhausted"

    def _ask(self, asked: int) -> Integers:
        if hasattr(self.searcher, "focus"):
            self.searcher.focus(self.front_before)
        rows: Integers = self.searcher.ask(asked)
        return rows

    def _evaluate_batch(self, rows: Integers, asked: int, ended: Callable[[], str]) -> str:
        done = sum(len(c) for c in self.partial)
        if done and not np.array_equal(np.concatenate([c.rows for c in self.partial]), rows[:done]):
            raise ValueError(_OTHER_PROPOSALS)
        parts: list[Answers] = []
        begin, committed = done, time.monotonic()
        while done < len(rows):
            before = time.monotonic()
            parts.append(self._answers(rows[done : done + self.slice]))
            done += len(parts[-1].outcomes)
            now = time.monotonic()
            self.slice = _next_slice(self.slice, now - before)
            reason = ended()
            if done < len(rows) and (reason or now - committed > _COMMIT_AFTER):
                if self.mode == "exhaustive":
                    return self._end_early(rows[:done], joined(parts)) or reason
                self._commit(rows[begin:done], joined(parts), asked=asked, complete=False, record=None)
                if reason:
                    return reason
                parts, begin, committed = [], done, time.monotonic()
        return self._end_batch(rows, begin, joined(parts), asked=asked)

    def _end_early(self, rows: Integers, found: Answers) -> str:
        # Exhaustive batches mean nothing to a sampler: end this one here and go on after its last row.
        reason = self._end_batch(rows, 0, found, asked=len(rows))
        self.searcher = ExhaustiveSearcher(self.problem.space, start=self.told)
        return reason

    def _end_batch(self, rows: Integers, begin: int, found: Answers, *, asked: int) -> str:
        """Tell the batch and commit its rest in one chunk, with what the searcher needs to be rebuilt."""
        outcomes = [o for c in self.partial for o in c.outcomes()] + found.outcomes
        told = self._told_values(outcomes) if self.mode == "search" else None
        if told is not None:
            self.searcher.tell(rows, *told)
        record = self.searcher.record() if hasattr(self.searcher, "record") else None
        self._commit(rows[begin:], found, asked=asked, complete=True, record=record)
        self._after_batch(rows, told)
        if self.batch == 1 and 0 < self.tally.failed_rows == self.tally.rows:
            self.notes.append(f"every one of the first {self.tally.rows} hardware rows failed; the search stopped")
            return "failed"
        return ""

    def _commit(
        self, rows: Integers, found: Answers, *, asked: int, complete: bool, record: Any, again: bool = False
    ) -> None:  # fmt: skip
        header: dict[str, Any] = {
            "batch": self.batch, "asked": asked, "complete": complete, "record": record,
            "failed_rows": len(found.faults), "faults": found.faults[:_FAULTS_SHOWN],
        }  # fmt: skip
        if found.missing:
            header["missing"] = found.missing
        if again:
            header["again"] = rows.tolist()
        chunk = pack(
            header, rows, found.outcomes, constraints=self.problem.constraints,
            objectives=len(self.problem.objectives), plan_fields=len(self.problem.plan_fields),
        )  # fmt: skip
        if self.thin:
            chunk = take(chunk, *self.tally.worth_keeping(chunk))
        self.archive.append(chunk)
        if not again:
            self.partial.append(self.archive.chunks[-1])
        self.tally.add(chunk)
        if self.progress is not None:
            self.progress(self.tally.progress(self.limit, time.monotonic() - self.started))

    def _replay(self) -> None:
        header = self.partial[-1].header
        if self.mode == "exhaustive":  # a thin record does not list its rows, only how many they were
            self.batch, self.told, self.partial = self.batch + 1, self.told + int(header["asked"]), []
            return
        rows = np.concatenate([c.rows for c in self.partial])
        told = self._told_values([o for c in self.partial for o in c.outcomes()])
        if hasattr(self.searcher, "restore") and header["record"] is not None:
            self.searcher.restore(header["record"], rows, *told)
        else:
            if not np.array_equal(self._ask(int(header["asked"])), rows):
                raise ValueError(_OTHER_PROPOSALS)
            self.searcher.tell(rows, *told)
        self._after_batch(rows, told)

    def _after_batch(self, rows: Integers, told: tuple[Floats, Floats] | None) -> None:
        before = self.told
        self.batch, self.told, self.partial = self.batch + 1, self.told + len(rows), []
        if told is None:
            return
        front = distinct(self.problem.space, self.tally.front_rows)
        self.front_before = front[np.argsort(self.problem.space.row_to_index(front), kind="stable")]
        if self.mirror is not None and self.mirror.count < self.told:
            # After a kill the mirror may lack the last batches, or a part of one.
            new = slice(max(self.mirror.count - before, 0), None)
            self.mirror.extend(rows[new], told[0][new], told[1][new], constraints=self.problem.constraints)

    def _told_values(self, outcomes: Sequence[Outcome]) -> tuple[Floats, Floats]:
        """What a sampler learns of each row: its best plan, or its nearest miss; less is better."""
        names = self.problem.constraints
        values = np.full((len(outcomes), len(self.signs)), np.nan)
        violations = np.zeros((len(outcomes), len(names)))
        for i, outcome in enumerate(outcomes):
            if len(outcome.front):
                signed = outcome.front * self.signs
                order = [self.inner, *(j for j in range(len(self.signs)) if j != self.inner)]
                keys = [*outcome.plans.T[::-1], *signed.T[order][::-1]]
                values[i] = signed[np.lexsort(keys)[0]]
            elif outcome.miss_objectives is not None and np.all(np.isfinite(outcome.miss_objectives)):
                values[i] = outcome.miss_objectives * self.signs
                violations[i] = [outcome.miss.get(n, 0.0) for n in names]
        return values, violations


class _Tally:
    """Everything a result says, kept up to date chunk by chunk."""

    def __init__(self, archive: Archive, objectives: Sequence[Objective], plan_fields: int) -> None:
        self.archive = archive
        self.signs = np.array([o.sign for o in objectives])
        self.rows = self.evaluations = self.feasible = self.failed_rows = 0
        self.failures: dict[str, int] = {}
        self.faults: list[dict[str, Any]] = []
        self.missing: dict[tuple[int, ...], str] = {}  # rows without an answer, with the cause
        self.front_values = np.empty((0, len(objectives)))
        self.front_rows = np.empty((0, len(archive.fingerprint["space"])), dtype=np.int64)
        self.front_plans = np.empty((0, plan_fields), dtype=np.int64)
        self.miss: tuple[float, tuple[int, ...], Outcome] | None = None

    def add(self, chunk: Chunk) -> None:
        totals = chunk.header["totals"]
        lacking = chunk.header.get("missing", [])
        self.rows += totals["rows"] - len(lacking)
        for row in chunk.header.get("again", []):
            self.missing.pop(tuple(row), None)
        self.missing.update({tuple(one["row"]): one["cause"] for one in lacking})
        self.evaluations += totals["evaluated"]
        self.feasible += totals["feasible"]
        self.failed_rows += chunk.header["failed_rows"]
        for name, count in totals["failures"].items():
            self.failures[name] = self.failures.get(name, 0) + count
        self.faults = (self.faults + chunk.header["faults"])[:_FAULTS_SHOWN]
        rows = np.repeat(chunk.rows, np.diff(chunk.offsets), axis=0)
        old, new = merge(self.front_values * self.signs, chunk.front * self.signs)
        if new.any():
            self.front_values = np.concatenate([self.front_values[old], chunk.front[new]])
            self.front_plans = np.concatenate([self.front_plans[old], chunk.plans[new]])
            self.front_rows = np.concatenate([self.front_rows[old], rows[new]])
        for i in np.flatnonzero(chunk.missed).tolist():
            self._nearer(_shortfall(chunk.miss[i]), chunk, i)

    def _nearer(self, shortfall: float, chunk: Chunk, i: int) -> None:
        # Equal misses: the first row in the order of the space, so the order of evaluation does not matter.
        key = (shortfall, tuple(chunk.rows[i].tolist()))
        if self.miss is None or key < self.miss[:2]:
            self.miss = (*key, chunk.outcome(i))

    def worth_keeping(self, chunk: Chunk) -> tuple[NDArray[np.bool_], list[int]]:
        """Front points that no recorded one dominates, and the rows that own them or are the nearest miss."""
        _, keep = merge(self.front_values * self.signs, chunk.front * self.signs)
        owners = np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))[keep]
        missed = np.flatnonzero(chunk.missed).tolist()
        nearest = [min(missed, key=lambda i: (_shortfall(chunk.miss[i]), chunk.rows[i].tolist()))] if missed else []
        return keep, sorted({*owners.tolist(), *nearest})

    def progress(self, limit: int, elapsed: float) -> Progress:
        best = None
        if len(self.front_values):
            best = tuple((self.signs * np.min(self.front_values * self.signs, axis=0)).tolist())
        return Progress(self.rows, limit, self.evaluations, self.feasible, len(self.front_values), elapsed, best)

    def result(self, stopped: str, *, mode: str, elapsed: float, notes: Sequence[str]) -> SearchResult:
        rows, plans, values = self._sorted_front()
        miss = self.miss
        return SearchResult(
            rows=rows, plans=plans, values=values, hardware_rows=self.rows, evaluations=self.evaluations,
            feasible=self.feasible, failures=dict(self.failures), failed_rows=self.failed_rows,
            faults=tuple(self.faults), missing=self._missing(), miss=dict(miss[2].miss) if miss else {},
            miss_row=np.array(miss[1], dtype=np.int64) if miss else None,
            miss_plan=miss[2].miss_plan if miss else None,
            miss_objectives=miss[2].miss_objectives if miss else None,
            stopped=stopped, notes=(*self.archive.notes, *notes), mode=mode, elapsed=elapsed, archive=self.archive,
        )  # fmt: skip

    def _missing(self) -> tuple[dict[str, Any], ...]:
        choices = {name: found["values"] for name, found in self.archive.fingerprint["space"].items()}
        return tuple(
            {"variables": {name: choices[name][i] for name, i in zip(choices, row, strict=True)}, "cause": cause}
            for row, cause in self.missing.items()
        )

    def _sorted_front(self) -> tuple[Integers, Integers, Floats]:
        signed = self.front_values * self.signs
        order = np.lexsort([*self.front_plans.T[::-1], *self.front_rows.T[::-1], *signed.T[::-1]])
        designs = np.concatenate([self.front_rows, self.front_plans], axis=1)[order]
        # One design once, should a problem list a plan twice.
        _, first = np.unique(designs, axis=0, return_index=True)
        order = order[np.sort(first)]
        return self.front_rows[order], self.front_plans[order], self.front_values[order]


def _shortfall(violations: Floats) -> float:
    total = 0.0
    for violation in violations.tolist():
        total += max(violation, 0.0) if violation == violation else 0.0
    return total


def _next_slice(size: int, seconds: float) -> int:
    # Big enough to feed the vectorised model, small enough to be interrupted within a quarter of a second.
    if seconds < 0.1:
        return min(2 * size, _LARGEST_SLICE)
    return max(size // 2, 1) if seconds > 0.25 else size


def _mode(problem: Problem, settings: Settings) -> str:
    if settings.mode != "auto":
        return settings.mode
    designs = int(getattr(problem, "designs", problem.space.size))
    return "exhaustive" if designs <= settings.exhaustive_limit else "search"


def _batch_size(settings: Settings, mode: str) -> int:
    if mode == "exhaustive":
        return _EXHAUSTIVE_BATCH
    if settings.batch is not None:
        return settings.batch
    return SAMPLERS[settings.sampler] if isinstance(settings.sampler, str) else 50


def _inner(problem: Problem, settings: Settings) -> int:
    names = [o.name for o in problem.objectives]
    if settings.inner_objective is None:
        return 0
    if settings.inner_objective not in names:
        raise ValueError(f"inner_objective: found {settings.inner_objective!r}, allowed: {', '.join(names)}")
    return names.index(settings.inner_objective)


def _searcher(problem: Problem, settings: Settings, mode: str) -> Any:
    space, presets = problem.space, settings.presets
    if mode == "exhaustive":
        if space.size >= 2**63:
            raise ValueError(f"mode: found exhaustive with {space.size} rows, allowed: fewer than 2^63")
        return ExhaustiveSearcher(space)
    if not isinstance(settings.sampler, str):
        return settings.sampler
    if settings.sampler == "random":
        return RandomSearcher(space, settings.seed, presets=presets)
    if settings.sampler == "quasirandom":
        return QuasiRandomSearcher(space, settings.seed, presets=presets)
    from dse.exploration.optuna_searcher import OptunaSearcher  # importing Optuna takes most of a second

    return OptunaSearcher(
        space, len(problem.objectives), problem.constraints, sampler=settings.sampler, seed=settings.seed,
        presets=presets, population=max(settings.batch or 50, 2), local=settings.local,
    )  # fmt: skip


def _fingerprint(problem: Problem, settings: Settings, mode: str) -> dict[str, Any]:
    """What must be equal for an old record to be continued.  Budget and timeout may change."""
    search: dict[str, Any] = {"mode": mode}
    if mode == "search":
        named = isinstance(settings.sampler, str)
        search |= {
            "sampler": settings.sampler if named else type(settings.sampler).__name__,
            "seed": settings.seed,
            "batch": _batch_size(settings, mode),
            "local": settings.local if settings.sampler in _OPTUNA else 0,
            "inner_objective": problem.objectives[_inner(problem, settings)].name,
            "presets": distinct(problem.space, settings.presets).tolist(),
        }
    found = {
        "space": problem.space.describe(),
        "objectives": [{"name": o.name, "direction": o.direction, "unit": o.unit} for o in problem.objectives],
        "constraints": list(problem.constraints),
        "plan_fields": list(problem.plan_fields),
        "search": search,
    }
    # A problem may describe the same things again; say each difference once.
    found["problem"] = {k: v for k, v in problem.fingerprint().items() if plain(found.get(k)) != plain(v)}
    return found


def _mirror(
    problem: Problem, settings: Settings, out: str | os.PathLike[str] | None, *, fingerprint: Mapping[str, Any]
) -> StudyMirror | None:
    url = settings.storage
    if url == "auto":
        if out is None or settings.sampler not in _OPTUNA:
            return None
        url = str(Path(out) / "optuna-journal.log")
    if url == "none":
        return None
    from dse.exploration.optuna_searcher import StudyMirror

    mirror = StudyMirror(
        url, settings.study_name, space=problem.space, objectives=problem.objectives, fingerprint=fingerprint
    )
    where = f"study {settings.study_name} in {url}"
    refuse_difference(mirror.fingerprint, fingerprint, where=where)
    return mirror


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came; the first is noted, the second raises KeyboardInterrupt."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen
        yield lambda: bool(seen)
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
