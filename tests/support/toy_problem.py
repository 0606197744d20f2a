"""A search problem without physics, shared by the tests of the search engine; also a program that runs one search.

`python toy_problem.py OUT SAMPLER BUDGET SECONDS_A_ROW [JOBS]` runs it and exits with 130 when it was interrupted.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse.exploration.pareto import non_dominated
from dse.exploration.variables import Objective, Outcome, Space, Variable


def toy_space(levels: int = 7) -> Space:
    return Space(
        [
            Variable("width", tuple(2**i for i in range(levels)), ""),
            Variable("clock", tuple(1.0 + 0.1 * i for i in range(levels)), "Hz"),
            Variable("memory", tuple(1 + 3 * i for i in range(levels)), "B"),
            Variable("link", ("ring", "mesh", "switch"), ""),
        ]
    )


@dataclass(frozen=True)
class Toy:
    """Six plans a row; speed up, energy and area down; `area` and `memory` are limited.  Pure arithmetic."""

    space: Space = field(default_factory=toy_space)
    objectives: tuple[Objective, ...] = (
        Objective("speed", "maximize", "1/s"),
        Objective("energy", "minimize", "J"),
        Objective("area", "minimize", "m2"),
    )
    constraints: tuple[str, ...] = ("area", "memory")
    plan_fields: tuple[str, ...] = ("tensor", "pipeline")
    area_limit: float = 60.0
    memory_needed: float = 24.0
    delay: float = 0.0
    calls: list[np.ndarray] = field(default_factory=list, compare=False)

    def fingerprint(self) -> dict[str, Any]:
        return {"limits": [self.area_limit, self.memory_needed], "space": self.space.describe()}

    def evaluate(self, rows: np.ndarray) -> list[Outcome]:
        self.calls.append(np.array(rows))
        time.sleep(self.delay * len(rows))
        return [self.one(row) for row in rows]

    def table(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Plans (6, 2), signed-natural objectives (6, 3) and violations (6, 2) of a row."""
        values = self.space.values(row)
        width, clock, memory = float(values["width"]), float(values["clock"]), float(values["memory"])
        hops = {"ring": 3.0, "mesh": 2.0, "switch": 1.0}[values["link"]]
        plans = np.array([(t, p) for t in (1, 2, 4) for p in (1, 2)], dtype=np.int64)
        tensor, pipeline = plans[:, 0].astype(float), plans[:, 1].astype(float)
        speed = width * clock / (1.0 + width / (4.0 * memory)) / (1.0 + 0.1 * hops * tensor) / (1.0 + 0.2 * pipeline)
        energy = clock * clock * (1.0 + 1.0 / width) + 0.05 * memory + 0.02 * hops * tensor + 0.1 / pipeline
        area = np.full(6, 0.5 * width + 1.5 * memory + 6.0 / hops)
        objectives = np.stack([speed, energy, area], axis=1)
        fits = np.stack([area / self.area_limit, self.memory_needed / (memory * tensor * pipeline)], axis=1) - 1.0
        return plans, objectives, fits

    def one(self, row: np.ndarray) -> Outcome:
        plans, objectives, violations = self.table(row)
        good = (violations <= 0).all(axis=1)
        signed = objectives[good] * np.array([o.sign for o in self.objectives])
        best = np.flatnonzero(good)[non_dominated(signed)] if good.any() else np.zeros(0, dtype=int)
        shortfall = np.where(good, np.inf, np.maximum(violations, 0.0).sum(axis=1))
        near = int(np.argmin(shortfall))
        missed = not good.all()
        return Outcome(
            evaluated=6,
            feasible=int(good.sum()),
            failures={n: int(c) for n, c in zip(self.constraints, (violations > 0).sum(axis=0), strict=True)},
            front=objectives[best],
            plans=plans[best],
            miss=dict(zip(self.constraints, violations[near].tolist(), strict=True)) if missed else {},
            miss_plan=plans[near] if missed else None,
            miss_objectives=objectives[near] if missed else None,
        )


def brute_force_front(problem: Toy) -> set[tuple[Any, ...]]:
    """Every feasible design compared with every other: (row, plan) of the front."""
    rows = (
        np.array(np.meshgrid(*[range(n) for n in problem.space.shape], indexing="ij"))
        .reshape(len(problem.space.shape), -1)
        .T
    )
    designs, signed = [], []
    for row in rows:
        plans, objectives, violations = problem.table(row)
        for plan, values, violation in zip(plans, objectives, violations, strict=True):
            if (violation <= 0).all():
                designs.append((*row.tolist(), *plan.tolist()))
                signed.append(values * np.array([o.sign for o in problem.objectives]))
    table = np.array(signed)
    beaten = [bool((np.all(table <= v, axis=1) & np.any(table < v, axis=1)).any()) for v in table]
    return {d for d, b in zip(designs, beaten, strict=True) if not b}


def designs_of(result: Any) -> set[tuple[Any, ...]]:
    return {(*row.tolist(), *plan.tolist()) for row, plan in zip(result.rows, result.plans, strict=True)}


def assert_equal_results(one: Any, other: Any) -> None:
    for name in ("rows", "plans", "values"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    for name in ("hardware_rows", "evaluations", "feasible", "failures", "miss", "stopped", "failed_rows"):
        assert getattr(one, name) == getattr(other, name), name


def main() -> int:
    from dse.exploration.run import run
    from dse.exploration.settings import Settings

    out, sampler, budget, delay = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    mode = "exhaustive" if sampler == "exhaustive" else "search"
    settings = Settings(mode=mode, sampler=sampler if mode == "search" else "random", budget=budget, seed=5, batch=20)
    problem: Any = Toy(delay=delay)
    if len(sys.argv) > 5:
        from dse.exploration.workers import Shared

        problem = Shared(problem, int(sys.argv[5]))
    result = run(problem, settings, out=out, progress=lambda p: print(p.rows, flush=True))
    print(result.stopped, result.hardware_rows, len(result.rows), flush=True)
    return 130 if result.stopped == "interrupted" else 0


if __name__ == "__main__":
    sys.exit(main())
