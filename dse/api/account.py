"""What explains one design: its account as text, and which constants decide it."""

from __future__ import annotations

from pathlib import Path

from dse.api.faces import face
from dse.evaluation.design import Design
from dse.insight.account import account
from dse.insight.tornado import Tornado, tornado
from dse.present.figures.tornado import save_tornado
from dse.present.text.design import account_text, tornado_text

__all__ = ["TornadoReport", "constants_that_decide", "explain"]


class TornadoReport(Tornado):
    """Which constants decide a design, as tables and as a picture."""

    def text(self, most: int = 10) -> str:
        """The largest swings of each metric as tables for people."""
        return tornado_text(self, most)

    def save(self, path: str | Path) -> Path:
        """A picture, one panel a metric, as PNG or SVG by the path's ending."""
        return save_tornado(self, path)


def explain(design: Design) -> str:
    """A readable account of a design of scalars: where time, energy and memory go, what binds, what would help."""
    return account_text(account(design))


def constants_that_decide(design: Design) -> TornadoReport:
    """Step time, energy, area and TDP of a design of scalars at the ends of each constant's range."""
    return face(TornadoReport, tornado(design))
