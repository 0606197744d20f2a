"""A search problem with what was found in it: the front's designs, as data.

`dse.api.search.SearchReport` is the same with tables and intervals for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dse.evaluation.design import Design
from dse.exploration.settings import SearchResult
from dse.inputs.spec import SearchSpec

__all__ = ["Solved"]


@dataclass(frozen=True, eq=False)
class Solved:
    """The front that a search found, and the problem it was found in."""

    spec: SearchSpec
    problem: Any
    result: SearchResult

    def __len__(self) -> int:
        return len(self.result.rows)

    def design(self, row: int) -> Design:
        """A design of the front, best by the first objective first."""
        made: Design = self.problem.design(self.result.rows[row], self.result.plans[row])
        return made

    def designs(self) -> list[Design]:
        """Every design of the front."""
        return [self.design(row) for row in range(len(self))]
