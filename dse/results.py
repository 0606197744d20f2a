"""A result for people: a frame, an account, one row at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.evaluation.design import Design
from dse.evaluation.result import METRICS, Result

if TYPE_CHECKING:
    import pandas

    from dse.tornado import Tornado


class Evaluation(Result):
    """The result of `dse.evaluate`, with the design it belongs to."""

    def to_frame(self) -> pandas.DataFrame:
        """One row a design, one column a metric (unit in the heading) and a violation."""
        import pandas

        columns: dict[str, Any] = {heading(name): self.column(name) for name in self.metrics}
        columns |= {f"violation: {name}": self.violation(name) for name in self.violations}
        return pandas.DataFrame(columns)

    def explain(self, row: int = 0) -> str:
        """A readable account of one design: where time, energy and memory go, what binds, what would help."""
        from dse.explain import account
        from dse.report_design import account_text

        return account_text(account(self.design_of(row)))

    def tornado(self, row: int = 0) -> Tornado:
        """Which constants decide one design: step time, energy, area and TDP at the ends of each one's range."""
        from dse.tornado import tornado

        return tornado(self.design_of(row))

    def design_of(self, row: int = 0) -> Design:
        """The design of one row, as scalars."""
        from dse.rows import one_row

        return one_row(self.design, row, self.shape)

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"<Evaluation of {len(self)} designs, {int(self.feasible.sum())} feasible>"
        state = "feasible" if bool(self.feasible[0]) else "violates " + ", ".join(self.violated())
        mfu = f"MFU {float(self['mfu'][0]):.1%} of computed FLOP"
        return f"<Evaluation: step {float(self['step_time'][0]):.4g} s, {mfu}, {state}>"


def heading(name: str) -> str:
    """A metric's name with its unit, for tables."""
    unit = METRICS[name][0] if name in METRICS else ""
    return f"{name} [{unit}]" if unit else name
