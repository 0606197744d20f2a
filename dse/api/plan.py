"""The best plans of a network on given chips, and two designs side by side; their results explain themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from dse.api.evaluation import Evaluation
from dse.api.faces import face
from dse.evaluation.design import Design
from dse.insight import planner
from dse.insight.account import Comparison, comparison
from dse.insight.planner import PlanReport

__all__ = ["compare", "plan"]

Given = ParamSpec("Given")


def _explained(make: Callable[Given, PlanReport]) -> Callable[Given, PlanReport]:
    """The same function, every plan of its report with an `Evaluation`."""

    @wraps(make)
    def made(*given: Given.args, **named: Given.kwargs) -> PlanReport:
        found = make(*given, **named)
        best, alternatives = (
            tuple(replace(item, evaluation=face(Evaluation, item.evaluation)) for item in items)
            for items in (found.best, found.alternatives)
        )
        misses = tuple(replace(item, evaluation=face(Evaluation, item.evaluation)) for item in found.misses)
        return replace(found, best=best, alternatives=alternatives, misses=misses)

    return made


#: See `dse.insight.planner.plan`.
plan = _explained(planner.plan)


def compare(a: Design, b: Design) -> Comparison:
    """Two designs of scalars: what differs, metric by metric, and where the difference in time comes from."""
    found = comparison(a, b)
    return replace(found, a=face(Evaluation, found.a), b=face(Evaluation, found.b))
