"""A timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing draw.

Format: "Trace Event Format" (Google): complete events "X" with microseconds; a stage is a process, a stream a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Event", "trace_json"]

MICROSECONDS = 1e6


class Event(NamedTuple):
    """What a stream of a stage did; micro_batch and chunk are -1 for what happens once a step."""

    stage: int
    stream: str
    name: str
    micro_batch: int
    chunk: int
    start: float
    end: float


def trace_json(events: Iterable[Event], **about: Any) -> str:
    """JSON text of the events; `about` goes into its "otherData"."""
    shown = list(events)
    threads: dict[tuple[int, str], int] = {}
    for event in shown:
        threads.setdefault((event.stage, event.stream), len(threads))
    found: list[dict[str, Any]] = []
    for stage in sorted({event.stage for event in shown}):
        found.append({"ph": "M", "name": "process_name", "pid": stage, "args": {"name": f"stage {stage}"}})
        found.append({"ph": "M", "name": "process_sort_index", "pid": stage, "args": {"sort_index": stage}})
    for (stage, stream), thread in threads.items():
        found.append({"ph": "M", "name": "thread_name", "pid": stage, "tid": thread, "args": {"name": stream}})
    for event in shown:
        where = {"micro_batch": event.micro_batch, "chunk": event.chunk}
        found.append(
            {
                "ph": "X",
                "name": event.name if event.micro_batch < 0 else f"{event.name} {event.micro_batch}",
                "cat": event.name,
                "pid": event.stage,
                "tid": threads[event.stage, event.stream],
                "ts": event.start * MICROSECONDS,
                "dur": (event.end - event.start) * MICROSECONDS,
                "args": {key: value for key, value in where.items() if value >= 0},
            }
        )
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms", "otherData": about})
