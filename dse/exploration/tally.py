"""Counts of a search from its archive: rows, plans, failures, the front and the nearest miss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.exploration.archive import Archive, Chunk
from dse.exploration.pareto import merge
from dse.exploration.settings import Progress, SearchResult
from dse.exploration.variables import Floats, Integers, Objective, Outcome

__all__ = ["FAULTS_SHOWN", "Tally", "shortfall"]

FAULTS_SHOWN = 20


class Tally:
    """Everything a result says, kept up to date chunk by chunk."""

    def __init__(self, archive: Archive, objectives: Sequence[Objective], plan_fields: int) -> None:
        self.archive = archive
        self.signs = np.array([o.sign for o in objectives])
        self.rows = self.evaluations = self.feasible = self.failed_rows = 0
        self.failures: dict[str, int] = {}
        self.faults: list[dict[str, Any]] = []
        self.missing: dict[tuple[int, ...], str] = {}  # rows without an answer, with the cause
        self.front_values = np.empty((0, len(objectives)))
        self.front_rows = np.empty((0, len(archive.fingerprint["space"])), dtype=np.int64)
        self.front_plans = np.empty((0, plan_fields), dtype=np.int64)
        self.miss: tuple[float, tuple[int, ...], Outcome] | None = None

    def add(self, chunk: Chunk) -> None:
        totals = chunk.header["totals"]
        lacking = chunk.header.get("missing", [])
        self.rows += totals["rows"] - len(lacking)
        for row in chunk.header.get("again", []):
            self.missing.pop(tuple(row), None)
        self.missing.update({tuple(one["row"]): one["cause"] for one in lacking})
        self.evaluations += totals["evaluated"]
        self.feasible += totals["feasible"]
        self.failed_rows += chunk.header["failed_rows"]
        for name, count in totals["failures"].items():
            self.failures[name] = self.failures.get(name, 0) + count
        self.faults = (self.faults + chunk.header["faults"])[:FAULTS_SHOWN]
        rows = np.repeat(chunk.rows, np.diff(chunk.offsets), axis=0)
        old, new = merge(self.front_values * self.signs, chunk.front * self.signs)
        if new.any():
            self.front_values = np.concatenate([self.front_values[old], chunk.front[new]])
            self.front_plans = np.concatenate([self.front_plans[old], chunk.plans[new]])
            self.front_rows = np.concatenate([self.front_rows[old], rows[new]])
        for i in np.flatnonzero(chunk.missed).tolist():
            self._nearer(shortfall(chunk.miss[i]), chunk, i)

    def _nearer(self, shortfall: float, chunk: Chunk, i: int) -> None:
        # Equal misses: the first row in the order of the space, so the order of evaluation does not matter.
        key = (shortfall, tuple(chunk.rows[i].tolist()))
        if self.miss is None or key < self.miss[:2]:
            self.miss = (*key, chunk.outcome(i))

    def worth_keeping(self, chunk: Chunk) -> tuple[NDArray[np.bool_], list[int]]:
        """Front points that no recorded one dominates, and the rows that own them or are the nearest miss."""
        _, keep = merge(self.front_values * self.signs, chunk.front * self.signs)
        owners = np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))[keep]
        missed = np.flatnonzero(chunk.missed).tolist()
        nearest = [min(missed, key=lambda i: (shortfall(chunk.miss[i]), chunk.rows[i].tolist()))] if missed else []
        return keep, sorted({*owners.tolist(), *nearest})

    def progress(self, limit: int, elapsed: float) -> Progress:
        best = None
        if len(self.front_values):
            best = tuple((self.signs * np.min(self.front_values * self.signs, axis=0)).tolist())
        return Progress(self.rows, limit, self.evaluations, self.feasible, len(self.front_values), elapsed, best)

    def result(self, stopped: str, *, mode: str, elapsed: float, notes: Sequence[str]) -> SearchResult:
        rows, plans, values = self._sorted_front()
        miss = self.miss
        return SearchResult(
            rows=rows, plans=plans, values=values, hardware_rows=self.rows, evaluations=self.evaluations,
            feasible=self.feasible, failures=dict(self.failures), failed_rows=self.failed_rows,
            faults=tuple(self.faults), missing=self._missing(), miss=dict(miss[2].miss) if miss else {},
            miss_row=np.array(miss[1], dtype=np.int64) if miss else None,
            miss_plan=miss[2].miss_plan if miss else None,
            miss_objectives=miss[2].miss_objectives if miss else None,
            stopped=stopped, notes=(*self.archive.notes, *notes), mode=mode, elapsed=elapsed, archive=self.archive,
        )  # fmt: skip

    def _missing(self) -> tuple[dict[str, Any], ...]:
        choices = {name: found["values"] for name, found in self.archive.fingerprint["space"].items()}
        return tuple(
            {"variables": {name: choices[name][i] for name, i in zip(choices, row, strict=True)}, "cause": cause}
            for row, cause in self.missing.items()
        )

    def _sorted_front(self) -> tuple[Integers, Integers, Floats]:
        signed = self.front_values * self.signs
        order = np.lexsort([*self.front_plans.T[::-1], *self.front_rows.T[::-1], *signed.T[::-1]])
        designs = np.concatenate([self.front_rows, self.front_plans], axis=1)[order]
        # One design once, should a problem list a plan twice.
        _, first = np.unique(designs, axis=0, return_index=True)
        order = order[np.sort(first)]
        return self.front_rows[order], self.front_plans[order], self.front_values[order]


def shortfall(violations: Floats) -> float:
    total = 0.0
    for violation in violations.tolist():
        total += max(violation, 0.0) if violation == violation else 0.0
    return total
