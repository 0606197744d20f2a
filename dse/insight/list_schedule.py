"""Orders tasks that wait for each other: earliest and latest starts, slack, critical path, list schedules.

Tasks have a kind, each kind so many units; a unit runs one task at a time, without interruption.  Nothing here knows
what a task is.  Theory: Graham 1969, "Bounds on multiprocessing timing anomalies"; docs/models/graph_schedule.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A piece of work of `seconds` on one unit of its kind; `after` are numbers of tasks before it in the list."""

    name: str
    seconds: float
    kind: str
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """When tasks may start with as many units as they like [s].

    earliest, latest   start of each task; latest keeps `length`
    slack              latest - earliest: how long a task may be late
    length             of the longest chain: no schedule on any number of units is shorter
    critical           tasks of one longest chain, in order
    """

    earliest: tuple[float, ...]
    latest: tuple[float, ...]
    slack: tuple[float, ...]
    length: float
    critical: tuple[int, ...]


@dataclass(frozen=True)
class Scheduled:
    """A schedule on given units: start of each task, the unit of its kind that runs it, and when all are done [s]."""

    start: tuple[float, ...]
    unit: tuple[int, ...]
    makespan: float


def check(tasks: Sequence[Task]) -> None:
    """Tasks wait only for tasks before them, so that there is no cycle; seconds are numbers >= 0."""
    problems = []
    for number, task in enumerate(tasks):
        if not 0.0 <= task.seconds < float("inf"):
            problems.append(f"{task.name}: seconds: found {task.seconds!r}, allowed: a number >= 0")
        problems += [
            f"{task.name}: after: found {before}, allowed: 0 to {number - 1}"
            for before in task.after
            if not 0 <= before < number
        ]
    if problems:
        raise ValueError("; ".join(problems))


def bounds(tasks: Sequence[Task]) -> Bounds:
    """As soon and as late as possible: e_i = max(e_j + t_j) over j before i; l_i = min(l_k) - t_i over k after i."""
    check(tasks)
    earliest: list[float] = []
    cause: list[int] = []
    for task in tasks:
        begin, why = 0.0, -1
        for before in task.after:
            end = earliest[before] + tasks[before].seconds
            if end > begin or why < 0:
                begin, why = max(begin, end), before if end >= begin else why
        earliest.append(begin)
        cause.append(why)
    ends = [begin + task.seconds for begin, task in zip(earliest, tasks, strict=True)]
    length = max(ends, default=0.0)
    latest = [length - task.seconds for task in tasks]
    for number in range(len(tasks) - 1, -1, -1):
        for before in tasks[number].after:
            latest[before] = min(latest[before], latest[number] - tasks[before].seconds)
    chain = []
    at = ends.index(length) if tasks else -1
    while at >= 0:
        chain.append(at)
        at = cause[at]
    slack = tuple(max(late - early, 0.0) for early, late in zip(earliest, latest, strict=True))
    return Bounds(tuple(earliest), tuple(latest), slack, length, tuple(reversed(chain)))


def list_schedule(tasks: Sequence[Task], units: Mapping[str, int]) -> Scheduled:
    """The task with the longest chain after it first, on the first free unit of its kind.

    Never longer than  sum over kinds of work / units + longest chain: no kind is idle while a task of it is ready.
    With one kind of m units at most 2 - 1/m times the shortest schedule.                            [Graham 1969]
    """
    check(tasks)
    lacking = sorted({task.kind for task in tasks} - {kind for kind, number in units.items() if number >= 1})
    if lacking:
        raise ValueError(f"units: found none of kind {', '.join(lacking)}, allowed: at least one of each kind in use")
    tail = [task.seconds for task in tasks]
    waiting = [len(set(task.after)) for task in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    for number in range(len(tasks) - 1, -1, -1):
        for before in set(tasks[number].after):
            tail[before] = max(tail[before], tasks[before].seconds + tail[number])
            followers[before].append(number)
    ready: dict[str, list[tuple[float, int]]] = {kind: [] for kind in units}
    for number, task in enumerate(tasks):
        if not waiting[number]:
            heapq.heappush(ready[task.kind], (-tail[number], number))
    free = {kind: list(range(number)) for kind, number in units.items()}
    running: list[tuple[float, int]] = []
    start, unit, now = [0.0] * len(tasks), [0] * len(tasks), 0.0
    while running or any(ready.values()):
        for kind, queue in ready.items():
            while queue and free[kind]:
                _, number = heapq.heappop(queue)
                start[number], unit[number] = now, heapq.heappop(free[kind])
                heapq.heappush(running, (now + tasks[number].seconds, number))
        now, _ = running[0]
        while running and running[0][0] <= now:
            _, number = heapq.heappop(running)
            heapq.heappush(free[tasks[number].kind], unit[number])
            for follower in followers[number]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready[tasks[follower].kind], (-tail[follower], follower))
    return Scheduled(tuple(start), tuple(unit), now if tasks else 0.0)


def lower_bound(tasks: Sequence[Task], units: Mapping[str, int]) -> float:
    """No schedule is shorter: the longest chain, or the work of a kind over its units."""
    work: dict[str, float] = {}
    for task in tasks:
        work[task.kind] = work.get(task.kind, 0.0) + task.seconds
    return max([bounds(tasks).length, *(seconds / units[kind] for kind, seconds in work.items())], default=0.0)
