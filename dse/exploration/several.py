"""One chip for several networks: a hardware row is priced by the best plan of each, and their values are joined.

A quantity of the chip alone (area, power) is what it is; every other objective is the weighted geometric mean over the
networks, and the last objective is the worst regret against the best chip that each network has of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.exploration.problem import NestedProblem
from dse.exploration.variables import Floats, Integers, Objective, Outcome, Space

#: The objective that compares a common chip with chips of their own.
REGRET = "worst_regret"


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Weighted geometric mean over the first axis: exp(sum w ln v / sum w); equal values are left as they are."""
    same = np.all(values == values[:1], axis=0)
    shape = (-1, *([1] * (values.ndim - 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values) * weights.reshape(shape)
        mean = np.exp(logs.sum(axis=0) / weights.sum())
    found: Floats = np.where(same, values[0], mean)
    return found


def regrets(values: Floats, best: Floats, sign: float) -> Floats:
    """How much worse than its own best chip each network does, values (K, ...) against best (K,): 0 is as good.

    best / value - 1 for what is wanted high, value / best - 1 for what is wanted low."""
    best = best.reshape((-1, *([1] * (values.ndim - 1))))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = values / best - 1.0 if sign > 0 else best / values - 1.0
    return found


class SeveralProblem:
    """A row is a chip and a cluster; its answer is one point: each network with its best plan on that hardware.

    parts     the problem of each network, over one space and with the same objectives and limits
    weights   of the networks, > 0
    best      of the first objective, what each network reaches on the best chip known for it alone
    inner     number of the objective by which a network's plan is chosen
    """

    def __init__(
        self, parts: Sequence[NestedProblem], weights: Sequence[float], best: Sequence[float], *, inner: int = 0,
        name: str = "",
    ) -> None:  # fmt: skip
        if not parts or len(parts) != len(weights) or len(parts) != len(best):
            raise ValueError(f"parts: found {len(parts)}, {len(weights)} weights, {len(best)} best values; one each")
        self.parts, self.inner, self.name = tuple(parts), inner, name
        self.weights, self.best = np.array(weights, dtype=float), np.array(best, dtype=float)

    @property
    def space(self) -> Space:
        """The hardware variables, the same for all networks."""
        return self.parts[0].space

    @property
    def names(self) -> tuple[str, ...]:
        """The networks."""
        return tuple(part.scene.workload.network.name for part in self.parts)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Means over the networks, and the worst regret in the first of them."""
        return (*self.parts[0].objectives, Objective(REGRET, "minimize"))

    @property
    def constraints(self) -> tuple[str, ...]:
        """Every rule that a design of any network may break."""
        return tuple(dict.fromkeys(rule for part in self.parts for rule in part.constraints))

    @property
    def plan_fields(self) -> tuple[str, ...]:
        """Plan fields of the first network, then of the second, and so on."""
        return tuple(
            f"{name}: {field}" for name, part in zip(self.names, self.parts, strict=True) for field in part.plan_fields
        )

    @property
    def constants(self) -> Any:
        """Rows of the technology table that any chip of the space uses."""
        return self.parts[0].constants

    def prepare(self) -> None:
        """Enumerate all plans now, for processes to inherit."""
        for part in self.parts:
            part.prepare()

    def fingerprint(self) -> dict[str, Any]:
        """Everything an archived answer depends on."""
        return {
            "name": self.name, "mode": type(self).__name__, "weights": self.weights.tolist(),
            "best": self.best.tolist(), "inner": self.inner, "networks": [part.fingerprint() for part in self.parts],
        }

    def plans(self, plan: Integers) -> list[Integers]:
        """The plan of each network in a joint plan (K P,) or plans (n, K P)."""
        return list(np.split(np.asarray(plan), len(self.parts), axis=-1))

    def evaluate(self, rows: Integers) -> list[Outcome]:
        """One point a row, from the answers of every network; infeasible where any network has no plan."""
        answers = [part.evaluate(rows) for part in self.parts]
        return [self._joined([found[i] for found in answers]) for i in range(len(np.atleast_2d(rows)))]

    def values_of(self, outcomes: Sequence[Outcome]) -> tuple[Floats, Integers]:
        """Objectives of each network with its best plan (K, J), and the plans one after the other (K P,)."""
        chosen, plans = [], []
        for part, outcome in zip(self.parts, outcomes, strict=True):
            at = int(np.argmin(outcome.front[:, self.inner] * part.objectives[self.inner].sign))
            chosen.append(outcome.front[at])
            plans.append(outcome.plans[at])
        return np.stack(chosen), np.concatenate(plans)

    def joined(self, values: Floats) -> Floats:
        """The objectives of a chip from those of each network on it, (K, J) -> (J + 1,)."""
        regret = regrets(values[:, 0], self.best, self.parts[0].objectives[0].sign)
        return np.append(weighted_mean(values, self.weights), regret.max())

    def _joined(self, outcomes: Sequence[Outcome]) -> Outcome:
        failures: dict[str, int] = {}
        for outcome in outcomes:
            for rule, number in outcome.failures.items():
                failures[rule] = failures.get(rule, 0) + number
        evaluated = sum(outcome.evaluated for outcome in outcomes)
        width, depth = len(self.objectives), len(self.plan_fields)
        bad = [outcome for outcome in outcomes if not len(outcome.front)]
        if bad:
            missing = max(bad, key=lambda outcome: sum(value for value in outcome.miss.values() if value > 0))
            return Outcome(
                evaluated, 0, failures, np.zeros((0, width)), np.zeros((0, depth), dtype=np.int64), missing.miss
            )
        values, plans = self.values_of(outcomes)
        return Outcome(
            evaluated, sum(outcome.feasible for outcome in outcomes), failures, self.joined(values)[None, :],
            plans[None, :], {},
        )  # fmt: skip
