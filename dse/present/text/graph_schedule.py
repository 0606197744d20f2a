"""The critical path and the list schedule of a graph as text."""

from __future__ import annotations

from dse.base.units import format_quantity
from dse.insight.graph_schedule import GraphSchedule
from dse.present.text.tables import columns_text

__all__ = ["schedule_text"]


def schedule_text(found: GraphSchedule, *, most: int = 10) -> str:
    """The bounds, what the units make of them, and the longest tasks of the critical path."""
    def seconds(value: float) -> str:
        return format_quantity(value, "s")

    rows = [
        ["one after the other", seconds(found.serial), "as the evaluation runs them"],
        ["critical path", seconds(found.bounds.length), "no number of units is faster"],
        ["list schedule", seconds(found.scheduled.makespan), "longest chain first, on the units"],
        ["memory", seconds(found.memory_time), "all bytes over the bandwidth that units share"],
        ["forward and backward", seconds(found.makespan), "the longer of the last two"],
    ]
    longest = sorted(found.bounds.critical, key=lambda number: -found.tasks[number].seconds)[:most]
    tasks = [
        [found.tasks[number].name, found.tasks[number].kind, seconds(found.tasks[number].seconds),
         f"{found.tasks[number].seconds / found.bounds.length:.1%}" if found.bounds.length else "n/a"]
        for number in longest
    ]  # fmt: skip
    return "\n".join([
        f"Branches side by side: {found.parallelism:.2f} units could be kept busy.",
        columns_text(["what", "time", "meaning"], rows, indent=2),
        "",
        "Longest kernels of the critical path",
        columns_text(["kernel", "unit", "time", "of the path"], tasks, indent=2),
    ])  # fmt: skip
