"""Evaluates a design; the result for people: a frame, an account, one row at a time, which constants decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate as evaluate_columns
from dse.evaluation.result import METRICS, Result
from dse.insight.one_row import one_row

if TYPE_CHECKING:
    import pandas

    from dse.api.account import TornadoReport

__all__ = ["Evaluation", "evaluate"]


class Evaluation(Result):
    """The result of `dse.evaluate`, with the design it belongs to."""

    def to_frame(self) -> pandas.DataFrame:
        """One row a design, one column a metric (unit in the heading) and a violation."""
        import pandas

        columns: dict[str, Any] = {_heading(name): self.column(name) for name in self.metrics}
        columns |= {f"violation: {name}": self.violation(name) for name in self.violations}
        return pandas.DataFrame(columns)

    def explain(self, row: int = 0) -> str:
        """A readable account of one design: where time, energy and memory go, what binds, what would help."""
        from dse.api.account import explain  # start-up: a sweep evaluates and never explains; 0.3 s

        return explain(self.design_of(row))

    def tornado(self, row: int = 0) -> TornadoReport:
        """Which constants decide one design: step time, energy, area and TDP at the ends of each one's range."""
        from dse.api.account import constants_that_decide  # start-up: as above

        return constants_that_decide(self.design_of(row))

    def design_of(self, row: int = 0) -> Design:
        """The design of one row, as scalars."""
        return one_row(self.design, row, self.shape)

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"<Evaluation of {len(self)} designs, {int(self.feasible.sum())} feasible>"
        state = "feasible" if bool(self.feasible[0]) else "violates " + ", ".join(self.violated())
        mfu = f"MFU {float(self['mfu'][0]):.1%} of computed FLOP"
        return f"<Evaluation: step {float(self['step_time'][0]):.4g} s, {mfu}, {state}>"


def _heading(name: str) -> str:
    """A metric's name with its base unit."""
    unit = METRICS[name][0] if name in METRICS else ""
    return f"{name} [{unit}]" if unit else name


def evaluate(design: Design) -> Evaluation:
    """Metrics and violations of a design, scalars or columns (see `dse.Design` for the shapes)."""
    found = evaluate_columns(design)
    return Evaluation(found.metrics, found.violations, found.shape, design)
