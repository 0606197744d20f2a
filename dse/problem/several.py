"""One chip for several networks beside one chip for each, as data: the common chips, their regrets, rows of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.base.headings import heading, human_unit
from dse.evaluation.design import Design
from dse.exploration.settings import SearchResult
from dse.exploration.several import REGRET, SeveralProblem, regrets
from dse.inputs.spec import SearchSpec

__all__ = ["SeveralReport", "front_rows", "network_rows"]


@dataclass(frozen=True, eq=False)
class SeveralReport:
    """One chip for several networks, and one each.

    alone    the search of each network by its name
    result   the front of common chips: means over the networks of each objective, and the worst regret
    """

    spec: SearchSpec
    problem: SeveralProblem
    alone: dict[str, Any]
    result: SearchResult

    def __len__(self) -> int:
        return len(self.result.rows)

    def designs(self, row: int) -> dict[str, Design]:
        """A common chip of the front with the plan of each network."""
        plans = self.problem.plans(self.result.plans[row])
        return {
            name: part.design(self.result.rows[row], plan)
            for name, part, plan in zip(self.problem.names, self.problem.parts, plans, strict=True)
        }

    def values(self, row: int) -> np.ndarray:
        """Objectives of each network on a common chip of the front (K, J)."""
        outcomes = [part.evaluate(self.result.rows[row : row + 1])[0] for part in self.problem.parts]
        return self.problem.values_of(outcomes)[0]

    def regret(self, row: int) -> np.ndarray:
        """How much worse than its own best chip each network does on a common chip (K,)."""
        first = self.problem.parts[0].objectives[0]
        return np.asarray(regrets(self.values(row)[:, 0], self.problem.best, first.sign))

    @property
    def best_mean(self) -> int:
        """The front's chip with the best mean of the first objective."""
        return int(np.argmin(self.result.values[:, 0] * self.problem.objectives[0].sign))

    @property
    def least_regret(self) -> int:
        """The front's chip whose worst network loses least."""
        return int(np.argmin(self.result.values[:, -1]))


def network_rows(report: SeveralReport) -> list[dict[str, Any]]:
    """A row a network: its best value alone, on the chip of the best mean and on that of the least regret."""
    first = report.problem.objectives[0]
    size, unit = human_unit(first.name, first.unit)
    mean, least = report.best_mean, report.least_regret
    own = dict(zip(report.problem.names, report.problem.best, strict=True))
    by = {row: (report.values(row)[:, 0], report.regret(row)) for row in {mean, least}}
    label = heading(first.name, unit)
    return [
        {
            "network": name,
            "weight": float(report.problem.weights[i]),
            f"own chip {label}": own[name] / size,
            f"best mean {label}": float(by[mean][0][i]) / size,
            "regret of best mean [%]": 100.0 * float(by[mean][1][i]),
            f"least regret {label}": float(by[least][0][i]) / size,
            "regret of least regret [%]": 100.0 * float(by[least][1][i]),
        }
        for i, name in enumerate(report.problem.names)
    ]


def front_rows(report: SeveralReport) -> list[dict[str, Any]]:
    """A row a common chip of the front: means, worst regret, regret of each network, and the hardware."""
    units = {variable.name: variable.unit for variable in report.problem.space.variables}
    found = []
    for row in range(len(report)):
        cells: dict[str, Any] = {}
        for item, value in zip(report.problem.objectives, report.result.values[row], strict=True):
            size, unit = human_unit(item.name, item.unit) if item.name != REGRET else (0.01, "%")
            cells[heading(item.name, unit)] = float(value) / size
        for name, value in zip(report.problem.names, report.regret(row), strict=True):
            cells[f"regret {name} [%]"] = 100.0 * float(value)
        hardware = report.problem.space.values(report.result.rows[row])
        found.append(cells | {heading(name, units[name]): value for name, value in hardware.items()})
    return found
