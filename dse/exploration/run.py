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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.exploration.answers import Answers, answers, joined
from dse.exploration.archive import Archive, Chunk, pack, plain, refuse_difference, take
from dse.exploration.searchers import (
    ExhaustiveSearcher,
    Plugged,
    QuasiRandomSearcher,
    RandomSearcher,
    distinct,
)
from dse.exploration.settings import OPTUNA, SAMPLERS, Progress, SearchResult, Settings
from dse.exploration.tally import FAULTS_SHOWN, Tally
from dse.exploration.variables import Floats, Integers, Objective, Outcome, Problem

if TYPE_CHECKING:
    from dse.exploration.optuna_searcher import StudyMirror

__all__ = ["result_of", "run"]

_EXHAUSTIVE_BATCH = 32_768
_LARGEST_SLICE = 16_384
# Seconds of evaluation after which finished rows are committed although the batch goes on.
_COMMIT_AFTER = 0.5
# An exhaustive record keeps every row up to this many, above only what is on the front when it is found.
_FULL_RECORD = 200_000
# Rows that the machine may leave without an answer before a run gives up.
_MOST_MISSING = 20
_OTHER_PROPOSALS = "searcher: found other proposals than the record holds, allowed: the same for one seed"


def run(
    problem: Problem,
    settings: Settings = Settings(),  # noqa: B008 - frozen
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
    tally = Tally(archive, objectives, len(archive.fingerprint["plan_fields"]))
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
        self.tally = Tally(archive, problem.objectives, len(problem.plan_fields))
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
        if isinstance(self.settings.sampler, Plugged):
            rows = self.problem.space.check(rows) if len(rows) else distinct(self.problem.space, None)
            if len(rows) > asked:
                raise ValueError(f"sampler {self.settings.sampler}: found {len(rows)} rows, allowed: at most {asked}")
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
            "failed_rows": len(found.faults), "faults": found.faults[:FAULTS_SHOWN],
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
    if isinstance(settings.sampler, Plugged) and not settings.sampler.is_optuna:
        return settings.sampler.searcher(space, settings.seed, presets)
    if not isinstance(settings.sampler, (str, Plugged)):
        return settings.sampler
    if settings.sampler == "random":
        return RandomSearcher(space, settings.seed, presets=presets)
    if settings.sampler == "quasirandom":
        return QuasiRandomSearcher(space, settings.seed, presets=presets)
    from dse.exploration.optuna_searcher import OptunaSearcher  # start-up: importing Optuna takes most of a second

    return OptunaSearcher(
        space, len(problem.objectives), problem.constraints, seed=settings.seed,
        sampler=settings.sampler.make if isinstance(settings.sampler, Plugged) else settings.sampler,
        presets=presets, population=max(settings.batch or 50, 2), local=settings.local,
    )  # fmt: skip


def _by_optuna(settings: Settings) -> bool:
    sampler = settings.sampler
    return sampler.is_optuna if isinstance(sampler, Plugged) else sampler in OPTUNA


def _fingerprint(problem: Problem, settings: Settings, mode: str) -> dict[str, Any]:
    """What must be equal for an old record to be continued.  Budget and timeout may change."""
    search: dict[str, Any] = {"mode": mode}
    if mode == "search":
        named = isinstance(settings.sampler, (str, Plugged))
        search |= {
            "sampler": str(settings.sampler) if named else type(settings.sampler).__name__,
            "seed": settings.seed,
            "batch": _batch_size(settings, mode),
            "local": settings.local if _by_optuna(settings) else 0,
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
        if out is None or not _by_optuna(settings):
            return None
        url = str(Path(out) / "optuna-journal.log")
    if url == "none":
        return None
    from dse.exploration.optuna_searcher import StudyMirror  # start-up: as above

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
