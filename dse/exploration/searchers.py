"""Proposes hardware rows: at random, evenly spread, or all of them.

A searcher is any object with `ask` and `tell`; the one behind Optuna is in `optuna_searcher`.
Batch k only depends on (seed, k) and on what was told before, never on a clock or on earlier random draws,
so a search that is resumed proposes what the uninterrupted one would have.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dse.exploration.variables import Floats, Integers, Space

__all__ = [
    "ExhaustiveSearcher", "Plugged", "QuasiRandomSearcher", "RandomSearcher", "Searcher", "called", "distinct",
    "neighbours", "unvisited",
]  # fmt: skip

# Up to this many points the unvisited ones are listed when random draws keep hitting visited ones.
_LISTED = 2**22


@runtime_checkable
class Searcher(Protocol):
    """Proposes rows and learns from their values.

    ask   up to n rows (m, V), none of them asked before; fewer than n only when the space is exhausted
    tell  the same rows in the same order with values (m, J), less is better, NaN in a row that failed, and
          violations (m, C), feasible at <= 0

    Optional: `record() -> JSON-able` after a tell, with `restore(record, rows, values, violations)` that does
    what that ask and tell did; a searcher without them is resumed by asking and telling again.
    Optional: `focus(rows)`, the hardware rows (F, V) of the front so far, before each ask."""

    def ask(self, n: int) -> Integers: ...

    def tell(self, rows: Integers, values: Floats, violations: Floats) -> None: ...


@dataclass(frozen=True)
class Plugged:
    """A searcher of the user's own: the name it goes by, and the class or function that makes a new one.

    make   `make(space)`; where it takes `seed` or `presets` (rows to ask first) it gets those of the search.
           Or a class of Optuna's samplers: a new one for every batch, seeded by it where it takes a seed"""

    name: str
    make: Callable[..., Any]

    def __str__(self) -> str:
        return self.name

    @property
    def is_optuna(self) -> bool:
        """Whether it is a sampler of Optuna; a class of one exists only where Optuna was imported."""
        optuna = sys.modules.get("optuna")
        return optuna is not None and isinstance(self.make, type) and issubclass(self.make, optuna.samplers.BaseSampler)

    def searcher(self, space: Space, seed: int, presets: Any) -> Searcher:
        """A new searcher for a space."""
        made = called(self.make, space, seed=seed, presets=presets)
        if not isinstance(made, Searcher):
            raise ValueError(f"sampler {self.name}: found {type(made).__name__}, allowed: an object with ask and tell")
        return made


def called(make: Callable[..., Any], *arguments: Any, **offered: Any) -> Any:
    """`make` of the arguments, and of those offered by name that it takes."""
    parameters = inspect.signature(make).parameters
    any_name = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return make(*arguments, **{name: value for name, value in offered.items() if any_name or name in parameters})


class RandomSearcher:
    """Uniformly random rows without replacement; the presets come first."""

    def __init__(self, space: Space, seed: int = 0, *, presets: Any = None) -> None:
        self._space, self._seed, self._batch = space, seed, 0
        self._presets = distinct(space, presets)
        self._visited: set[int] = set()

    def ask(self, n: int) -> Integers:
        rows = self._presets[:n]
        self._presets = self._presets[n:]
        self._visited.update(self._space.row_to_index(rows).tolist())
        rng = np.random.default_rng([self._seed, self._batch])
        fresh = unvisited(self._space, self._visited, n - len(rows), rng)
        self._visited.update(self._space.row_to_index(fresh).tolist())
        self._batch += 1
        return np.concatenate([rows, fresh])

    def tell(self, rows: Integers, values: Floats, violations: Floats) -> None:
        """Nothing to learn."""


class QuasiRandomSearcher:
    """Rows of a scrambled Sobol sequence, each point once; random unvisited rows when the sequence repeats itself.

    Sobol, USSR Comput. Math. Math. Phys. 7 (1967); scrambling after Owen (1998), as in scipy.stats.qmc."""

    def __init__(self, space: Space, seed: int = 0, *, presets: Any = None) -> None:
        from scipy.stats import qmc  # slow to import and only needed here

        self._space, self._seed, self._batch = space, seed, 0
        self._sequence = qmc.Sobol(len(space.shape), scramble=True, rng=np.random.default_rng([seed]))
        self._presets = distinct(space, presets)
        self._visited: set[int] = set()

    def ask(self, n: int) -> Integers:
        found = [self._take(self._presets[:n], n)]
        self._presets = self._presets[n:]
        missing = n - len(found[0])
        for _ in range(8):  # a small space repeats itself soon: then leave the sequence
            if missing <= 0:
                break
            with warnings.catch_warnings():  # a batch need not be a power of two
                warnings.simplefilter("ignore", UserWarning)
                draws = self._sequence.random(missing)
            rows = np.minimum((draws * self._space.shape).astype(np.int64), np.asarray(self._space.shape) - 1)
            found.append(self._take(rows, missing))
            missing -= len(found[-1])
        rng = np.random.default_rng([self._seed, self._batch, 1])
        found.append(self._take(unvisited(self._space, self._visited, missing, rng), missing))
        self._batch += 1
        return np.concatenate(found)

    def _take(self, rows: Integers, n: int) -> Integers:
        """The first n rows not visited before, which they are from now on."""
        chosen: list[Integers] = []
        for row, key in zip(rows, self._space.row_to_index(rows).tolist(), strict=True):
            if key not in self._visited and len(chosen) < n:
                self._visited.add(key)
                chosen.append(row)
        return np.array(chosen, dtype=np.int64).reshape(-1, len(self._space.shape))

    def tell(self, rows: Integers, values: Floats, violations: Floats) -> None:
        """Nothing to learn."""


class ExhaustiveSearcher:
    """Every row once, in the order of the point numbers."""

    def __init__(self, space: Space, *, start: int = 0) -> None:
        self._space, self._next = space, start

    def ask(self, n: int) -> Integers:
        stop = min(self._next + n, self._space.size)
        rows = self._space.index_to_row(np.arange(self._next, stop))
        self._next = stop
        return rows

    def tell(self, rows: Integers, values: Floats, violations: Floats) -> None:
        """Nothing to learn."""


def distinct(space: Space, rows: Any) -> Integers:
    """Rows (n, V) without repeats, in their order; None is no rows."""
    if rows is None or len(rows) == 0:
        return np.empty((0, len(space.shape)), dtype=np.int64)
    table = space.check(rows)
    _, first = np.unique(table, axis=0, return_index=True)
    return table[np.sort(first)]


def unvisited(space: Space, visited: set[int], n: int, rng: np.random.Generator) -> Integers:
    """Up to n random distinct rows (m, V) whose point numbers are not in `visited`; fewer only when no more exist."""
    chosen: dict[int, NDArray[np.int64]] = {}
    n = min(n, space.size - len(visited))
    for _ in range(50):
        if len(chosen) >= n:
            break
        rows = rng.integers(0, np.asarray(space.shape), size=(2 * (n - len(chosen)) + 8, len(space.shape)))
        for row, key in zip(rows, space.row_to_index(rows).tolist(), strict=True):
            if key not in visited and len(chosen) < n:
                chosen.setdefault(key, row)
        if space.size <= _LISTED and len(visited) > 0.9 * space.size:
            break
    if len(chosen) < n:
        left = _left_over(space, visited.union(chosen))
        picked = rng.permutation(len(left))[: n - len(chosen)]
        chosen.update(zip(left[picked].tolist(), space.index_to_row(left[picked]), strict=True))
    return np.array(list(chosen.values()), dtype=np.int64).reshape(-1, len(space.shape))


def _left_over(space: Space, visited: set[int]) -> NDArray[np.int64]:
    # Only reached when nearly everything is visited, so the space is as small as the memory of the visits.
    free = np.ones(space.size, dtype=bool)
    free[np.fromiter(visited, dtype=np.int64, count=len(visited))] = False
    return np.flatnonzero(free)


def neighbours(space: Space, rows: Any, visited: set[int], n: int, rng: np.random.Generator) -> Integers:
    """Up to n random distinct unvisited rows (m, V) that differ from one of `rows` (F, V) in one variable:
    by one step in an ordered list, by any choice in an unordered one."""
    table = distinct(space, rows)
    candidates = []
    for axis, variable in enumerate(space.variables):
        count = len(variable.values)
        steps = (-1, 1) if variable.ordered else range(1, count)
        for step in steps:
            moved = table.copy()
            moved[:, axis] += step
            if not variable.ordered:
                moved[:, axis] %= count
            candidates.append(moved[(moved[:, axis] >= 0) & (moved[:, axis] < count)])
    found = distinct(space, np.concatenate(candidates)) if candidates else table[:0]
    free = np.array([key not in visited for key in space.row_to_index(found).tolist()], dtype=bool)
    found = found[free] if len(found) else found
    return found[rng.permutation(len(found))[:n]]
