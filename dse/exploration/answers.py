"""Answers of hardware rows: what a design is at fault for is recorded, what the machine is at fault for is not.

A row that raises, or whose values are not finite, failed: that is its answer, the same on every machine.  A row for
which memory, files or a process gave out has no answer: it is missing, and the same search tries it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.exploration.variables import Integers, Outcome, Problem

__all__ = ["Answers", "answers", "joined", "missing"]


@dataclass(frozen=True)
class Answers:
    """Answers of some rows, in their order.

    outcomes   one a row; nothing evaluated where it failed or is missing
    faults     the rows that failed: variables and cause
    missing    the rows without an answer: row (choice numbers) and cause"""

    outcomes: list[Outcome]
    faults: list[dict[str, Any]]
    missing: list[dict[str, Any]]


def joined(parts: Sequence[Answers]) -> Answers:
    """Answers of parts, one after the other."""
    return Answers(
        [one for part in parts for one in part.outcomes],
        [one for part in parts for one in part.faults],
        [one for part in parts for one in part.missing],
    )


def answers(problem: Problem, rows: Integers) -> Answers:
    """Answers of rows (n, V); a problem that is shared between processes has its own way (`problem.answers`)."""
    shared: Callable[[Integers], Answers] | None = getattr(problem, "answers", None)
    if shared is not None:
        return shared(rows)
    try:
        outcomes = problem.evaluate(rows)
        assert len(outcomes) == len(rows), "evaluate returns one Outcome a row"
    except (Exception, SystemExit) as fault:  # whatever a plugged-in model raises; Ctrl-C is neither and passes
        if len(rows) > 1:
            return joined([answers(problem, rows[i : i + 1]) for i in range(len(rows))])
        kind = type(fault).__name__
        cause = f"{kind}: {fault}"
        if isinstance(fault, (MemoryError, OSError)):
            return missing(problem, rows, cause)
        return Answers([_nothing(problem, 0, [f"error: {kind}"])], [_fault(problem, rows[0], cause)], [])
    faults = []
    for i, outcome in enumerate(outcomes):
        finite = np.isfinite(np.reshape(outcome.front, (-1, len(problem.objectives))))
        bad = [o.name for j, o in enumerate(problem.objectives) if not finite[:, j].all()]
        if bad:
            outcomes[i] = _nothing(problem, outcome.evaluated, [f"not a finite number: {n}" for n in bad])
            faults.append(_fault(problem, rows[i], f"not a finite number: {', '.join(bad)}"))
    return Answers(outcomes, faults, [])


def missing(problem: Problem, rows: Integers, cause: str) -> Answers:
    """Rows without an answer, all for one cause."""
    lacking = [{"row": row, "cause": cause} for row in rows.tolist()]
    return Answers([_nothing(problem, 0, []) for _ in rows], [], lacking)


def _nothing(problem: Problem, evaluated: int, names: Sequence[str]) -> Outcome:
    front = np.empty((0, len(problem.objectives)))
    plans = np.empty((0, len(problem.plan_fields)), dtype=np.int64)
    return Outcome(evaluated, 0, dict.fromkeys(names, 1), front, plans, {})


def _fault(problem: Problem, row: Integers, cause: str) -> dict[str, Any]:
    return {"variables": problem.space.values(row), "cause": cause}
