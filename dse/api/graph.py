"""The schedule of a graph's branches on the units of a chip, with its text."""

from __future__ import annotations

from dse.api.faces import face
from dse.evaluation.design import Design
from dse.insight import graph_schedule
from dse.insight.graph_schedule import GraphSchedule
from dse.present.text.graph_schedule import schedule_text

__all__ = ["GraphScheduleReport", "schedule_graph"]


class GraphScheduleReport(GraphSchedule):
    """A training pass of one micro-batch with branches side by side, as text."""

    def text(self, *, most: int = 10) -> str:
        """The bounds, what the units make of them, and the longest kernels of the critical path."""
        return schedule_text(self, most=most)


def schedule_graph(design: Design, *, matrix_units: int = 1, vector_units: int = 1) -> GraphScheduleReport:
    """Critical path and list schedule of one micro-batch of a scalar design whose network is a graph.

    The arrays of the chip form `matrix_units` equal units and its lanes `vector_units`; each kernel runs on one unit.
    Ignores exchanges, the host, the update, and the pipeline: it is one device of the tensor axis.
    """
    found = graph_schedule.schedule_graph(design, matrix_units=matrix_units, vector_units=vector_units)
    return face(GraphScheduleReport, found)
