"""Shares the rows of a problem between processes. Every row is priced by the same pure function: results are equal."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from dse.exploration.variables import Integers, Outcome, Problem

_problem: Problem | None = None


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(problem: Problem) -> None:
    global _problem
    _problem = problem
    # Ctrl-C is the parent's to handle: it stops asking
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _evaluate(rows: Integers) -> list[Outcome]:
    assert _problem is not None
    return _problem.evaluate(rows)


class Shared:
    """A problem whose rows are evaluated by `jobs` processes; otherwise the problem itself."""

    def __init__(self, problem: Any, jobs: int) -> None:
        self.problem = problem
        self.jobs = jobs
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        self._pool = ProcessPoolExecutor(
            jobs, mp_context=multiprocessing.get_context(method), initializer=_start, initargs=(problem,)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def evaluate(self, rows: Integers) -> list[Outcome]:
        """Outcomes in the order of the rows, whoever evaluated them."""
        table = np.atleast_2d(rows)
        parts = [part for part in np.array_split(table, self.jobs) if len(part)]
        return [outcome for found in self._pool.map(_evaluate, parts) for outcome in found]

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
