"""Shares the rows of a problem between processes. Every row is priced by the same pure function: results are equal.

A process that ends before it answered (the system ran out of memory, somebody killed it) is replaced and its rows are
priced again, in smaller parts; a row with which processes ended twice, the last time alone, is missing with that cause.
A process ends with its parent, however that ends, and holds nothing of it: no lock, no open record.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from dse.exploration.answers import Answers, answers, joined, missing
from dse.exploration.variables import Integers, Problem

__all__ = ["Shared", "processors"]

#: Parts into which the rows of a lost process are cut: rows that are innocent are soon told from one that is not.
_PARTS = 32
#: Processes that may end over a row before it is missing.
_LOSSES = 2
#: Seconds that a process has to end when it is asked to.
_PATIENCE = 1.0


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Shared:
    """A problem whose rows are answered by `jobs` processes; in all else the problem itself."""

    def __init__(self, problem: Any, jobs: int) -> None:
        self.problem = problem
        self.jobs = jobs
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        self._workers = [_Worker(self._context, problem) for _ in range(jobs)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def answers(self, rows: Integers) -> Answers:
        """Answers in the order of the rows, whoever found them."""
        table = np.atleast_2d(rows)
        parts = deque(part for part in np.array_split(np.arange(len(table)), self.jobs) if len(part))
        busy: dict[Any, tuple[int, Integers]] = {}  # connection -> number of its process, numbers of its rows
        found: dict[int, Answers] = {}  # by the number of the first row
        losses: Counter[int] = Counter()
        while parts or busy:
            working = {number for number, _ in busy.values()}
            for number in range(self.jobs):
                if parts and number not in working:
                    part = parts.popleft()
                    busy[self._give(number, table[part])] = (number, part)
            ready: list[Any] = wait(list(busy))
            for connection in ready:
                number, part = busy.pop(connection)
                try:
                    found[int(part[0])] = connection.recv()
                except (EOFError, OSError):
                    cause = self._replace(number)
                    losses.update(part.tolist())
                    if len(part) == 1 and losses[int(part[0])] >= _LOSSES:
                        found[int(part[0])] = missing(self.problem, table[part], cause)
                    else:
                        parts.extend(np.array_split(part, min(len(part), _PARTS)))
        return joined([found[first] for first in sorted(found)])

    def _give(self, number: int, rows: Integers) -> Any:
        """Send rows to a process, a new one where it ended meanwhile; its connection."""
        try:
            self._workers[number].connection.send(rows)
        except OSError:
            self._replace(number)
            self._workers[number].connection.send(rows)
        return self._workers[number].connection

    def _replace(self, number: int) -> str:
        """Put a new process in the place of one that ended; how that ended."""
        cause = self._workers[number].end()
        self._workers[number] = _Worker(self._context, self.problem)
        return cause

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()
        self._workers = []


class _Worker:
    """A process that answers rows, and the connection to it."""

    def __init__(self, context: Any, problem: Any) -> None:
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(problem, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process closes the connection

    def end(self) -> str:
        """End the process if it has not ended; how it ended, in words."""
        try:
            self.connection.send(None)
        except OSError:
            pass
        self.connection.close()
        self.process.join(_PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
            memory = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
            return f"the process that evaluated it was ended by {name}{memory}"
        return f"the process that evaluated it ended with status {code}"


def _work(problem: Problem, connection: Connection) -> None:
    """Answer rows until the parent sends none."""
    # Ctrl-C is the parent's to handle: it stops asking
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            rows = connection.recv()
            if rows is None:
                return
            connection.send(answers(problem, rows))
        except (EOFError, OSError):
            return


def _end_with_parent() -> None:
    # A parent that is killed cannot say so: the system closes the pipe that this waits on, also while rows are priced.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
