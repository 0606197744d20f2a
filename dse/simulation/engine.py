"""A discrete-event engine: tasks with durations on streams, each waiting for named tasks.

It knows nothing about training. Deterministic: equal tasks in equal order give equal times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

__all__ = ["Engine", "Span"]

#: Tasks named in an error about tasks that wait for each other.
NAMED = 6


class Span(NamedTuple):
    """When a task ran [s]."""

    start: float
    end: float


#: Seconds, or a function from the spans of finished tasks to seconds, asked when the task starts.
Duration = float | Callable[[Mapping[Hashable, Span]], float]


@dataclass
class Engine:
    """Tasks run as soon as their stream is free and all that they need has ended.

    Tasks of a stream run in the order in which they were added; those added with a priority run as they become
    ready, the lowest priority first and then the one added first.  A stream has tasks of one sort.
    """

    labels: list[Hashable] = field(default_factory=list)
    streams: list[Hashable] = field(default_factory=list)
    durations: list[Duration] = field(default_factory=list)
    needs: list[tuple[Hashable, ...]] = field(default_factory=list)
    priorities: list[float | None] = field(default_factory=list)

    def add(
        self, label: Hashable, stream: Hashable, duration: Duration, *,
        needs: tuple[Hashable, ...] = (), priority: float | None = None,
    ) -> None:  # fmt: skip
        """A task; what it needs may be added later."""
        self.labels.append(label)
        self.streams.append(stream)
        self.durations.append(duration)
        self.needs.append(needs)
        self.priorities.append(priority)

    def run(self) -> dict[Hashable, Span]:
        """When every task ran, in the order of their ends; ValueError names tasks that wait for each other."""
        waiting, followers = self._edges()
        spans: dict[Hashable, Span] = {}
        running: list[tuple[float, int, float]] = []  # end, task, start
        ready: dict[Hashable, list[tuple[float, int]]] = {}
        busy: set[Hashable] = set()

        def start(task: int, now: float) -> None:
            duration = self.durations[task]
            seconds = duration if isinstance(duration, (int, float)) else duration(spans)
            heappush(running, (now + seconds, task, now))

        def arrive(task: int, now: float) -> None:
            priority = self.priorities[task]
            if priority is None:  # its turn on the stream is one of the things it waited for
                start(task, now)
                return
            stream = self.streams[task]
            heappush(ready.setdefault(stream, []), (priority, task))
            idle.append(stream)

        def serve(now: float) -> None:
            """Start the first of each idle stream, once all that became ready at this instant is known."""
            for stream in idle:
                if stream not in busy and ready.get(stream):
                    busy.add(stream)
                    start(heappop(ready[stream])[1], now)
            idle.clear()

        idle: list[Hashable] = []
        for task, count in enumerate(waiting):
            if not count:
                arrive(task, 0.0)
        serve(0.0)
        while running:
            now = running[0][0]
            while running and running[0][0] == now:
                _, task, began = heappop(running)
                spans[self.labels[task]] = Span(began, now)
                if self.priorities[task] is not None:
                    busy.discard(self.streams[task])
                    idle.append(self.streams[task])
                for follower in followers[task]:
                    waiting[follower] -= 1
                    if not waiting[follower]:
                        arrive(follower, now)
            serve(now)
        if len(spans) < len(self.labels):
            left = [str(label) for label in self.labels if label not in spans]
            more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
            raise ValueError(f"tasks wait for each other: {', '.join(left[:NAMED])}{more}")
        return spans

    def _edges(self) -> tuple[list[int], list[list[int]]]:
        """For each task how many it waits for, and which wait for it: what it needs, and its turn on the stream."""
        index = {label: i for i, label in enumerate(self.labels)}
        if len(index) < len(self.labels):
            seen: set[Hashable] = set()
            twice = [str(label) for label in self.labels if label in seen or seen.add(label)]  # type: ignore[func-returns-value]
            raise ValueError(f"tasks: found {', '.join(twice[:NAMED])} twice, allowed: every label once")
        missing = {str(need) for needs in self.needs for need in needs if need not in index}
        if missing:
            raise ValueError(f"tasks: found needs that are no task: {', '.join(sorted(missing)[:NAMED])}")
        waiting, followers = [0] * len(self.labels), [[] for _ in self.labels]  # type: tuple[list[int], list[list[int]]]
        before: dict[Hashable, int] = {}
        for task, needs in enumerate(self.needs):
            sources = [index[need] for need in needs]
            if self.priorities[task] is None:
                if self.streams[task] in before:
                    sources.append(before[self.streams[task]])
                before[self.streams[task]] = task
            for source in sources:
                followers[source].append(task)
            waiting[task] = len(sources)
        return waiting, followers
