"""What can be chosen, what is wanted, and what one hardware row answered: the contract of every search.

Nothing here knows hardware; a `Problem` is any object with these attributes.
A row is a vector of choice numbers, one per variable; rows run along the FIRST axis here, because a search
hands over whole rows, while the models behind `evaluate` keep designs on the last axis.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Variable", "Space", "Objective", "Outcome", "Problem"]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Variable:
    """One axis of a search: a finite list of choices, in the order in which they are numbered.

    values  distinct numbers, texts or truth values
    unit    base unit of the numbers, "" for a pure number"""

    name: str
    values: tuple[Any, ...]
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(v.item() if isinstance(v, np.generic) else v for v in self.values))
        if not self.values:
            raise ValueError(f"{self.name}: found no choices, allowed: at least one")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"{self.name}: found {list(self.values)}, allowed: distinct choices")
        bad = [v for v in self.values if isinstance(v, float) and not math.isfinite(v)]
        if bad:
            raise ValueError(f"{self.name}: found {bad}, allowed: finite numbers")

    @property
    def ordered(self) -> bool:
        """Whether neighbouring choices are neighbouring numbers (a sorted list of numbers)."""
        if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in self.values):
            return False
        steps = [b > a for a, b in zip(self.values, self.values[1:], strict=False)]
        return all(steps) or not any(steps)

    def column(self) -> NDArray[Any]:
        """The choices as an array; texts mixed with numbers stay objects instead of all becoming text."""
        if len({isinstance(v, str) for v in self.values}) > 1 or len({isinstance(v, bool) for v in self.values}) > 1:
            column = np.empty(len(self.values), dtype=object)
            column[:] = self.values
            return column
        return np.asarray(self.values)

    def nearest(self, value: Any) -> int:
        """Number of the choice nearest to `value`: smallest |ln(choice/value)| for numbers > 0, else smallest
        difference; text and truth values must match.  Of two equally near choices the first."""
        if value in self.values and all(isinstance(v, str) == isinstance(value, str) for v in self.values):
            return self.values.index(value)
        numbers = [(i, v) for i, v in enumerate(self.values) if isinstance(v, (int, float)) and not isinstance(v, bool)]
        if isinstance(value, (str, bool)) or not numbers:
            if value in self.values:
                return self.values.index(value)
            close = difflib.get_close_matches(str(value), [str(v) for v in self.values], 1, 0.0)
            hint = f"; nearest: {close[0]}" if close else ""
            raise ValueError(f"{self.name}: found {value!r}, allowed: {list(self.values)}{hint}")
        if not math.isfinite(value):
            raise ValueError(f"{self.name}: found {value!r}, allowed: a finite number")
        positive = [(i, v) for i, v in numbers if v > 0]
        if value > 0 and positive:
            return min(positive, key=lambda item: abs(math.log(item[1] / value)))[0]
        return min(numbers, key=lambda item: abs(item[1] - value))[0]


class Space:
    """The product of some variables; its points are numbered 0 .. size - 1, the last variable running fastest.

    A row is a vector (V,) of choice numbers; rows are (n, V) integers."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = tuple(variables)
        self.names = tuple(v.name for v in self.variables)
        if not self.variables:
            raise ValueError("space: found no variables, allowed: at least one")
        if len(set(self.names)) != len(self.names):
            twice = sorted({n for n in self.names if self.names.count(n) > 1})
            raise ValueError(f"space: found {', '.join(twice)} more than once, allowed: distinct names")
        self.shape = tuple(len(v.values) for v in self.variables)
        self.size = math.prod(self.shape)
        self._columns = tuple(v.column() for v in self.variables)

    def index_to_row(self, index: Any) -> Integers:
        """Choice numbers (n, V) of flat point numbers (n,): mixed radix, exact for any size."""
        number = np.atleast_1d(np.asarray(index))
        # Beyond 2^63 points the numbers are Python integers in an object array: slower, still exact.
        number = number.astype(np.int64 if self.size < 2**63 else object)
        if number.size and (min(number.tolist()) < 0 or max(number.tolist()) >= self.size):
            raise ValueError(f"index: found {min(number)} .. {max(number)}, allowed: 0 .. {self.size - 1}")
        rows = np.empty((len(number), len(self.shape)), dtype=np.int64)
        for axis in range(len(self.shape) - 1, -1, -1):
            rows[:, axis] = (number % self.shape[axis]).astype(np.int64)
            number = number // self.shape[axis]
        return rows

    def row_to_index(self, rows: Any) -> NDArray[Any]:
        """Flat point numbers (n,) of rows (n, V): int64 below 2^63 points, Python integers above."""
        table = self.check(rows)
        number = np.zeros(len(table), dtype=np.int64 if self.size < 2**63 else object)
        for axis, count in enumerate(self.shape):
            number = number * count + table[:, axis].astype(number.dtype)
        return number

    def check(self, rows: Any) -> Integers:
        """`rows` as (n, V) integers; ValueError when a choice number is out of its list."""
        table = np.atleast_2d(np.asarray(rows, dtype=np.int64))
        if table.shape[1] != len(self.shape):
            raise ValueError(f"rows: found {table.shape[1]} columns, allowed: {len(self.shape)}")
        if np.any(table < 0) or np.any(table >= np.asarray(self.shape)):
            raise ValueError(f"rows: found a choice number out of its list, allowed: below {self.shape}")
        return table

    def decode(self, rows: Any) -> dict[str, NDArray[Any]]:
        """Values of rows (n, V): one array (n,) per variable."""
        table = self.check(rows)
        return {name: self._columns[i][table[:, i]] for i, name in enumerate(self.names)}

    def values(self, row: Any) -> dict[str, Any]:
        """One row (V,) as plain Python values, for messages and JSON."""
        return {v.name: v.values[int(i)] for v, i in zip(self.variables, np.asarray(row), strict=True)}

    def nearest(self, values: Mapping[str, Any]) -> Integers:
        """The row (V,) nearest to `values`, which names every variable; all faults in one ValueError."""
        faults = [f"{n}: found nothing, allowed: a value" for n in self.names if n not in values]
        for name in sorted(set(values) - set(self.names)):
            faults.append(f"{name}: found in the values, allowed: {', '.join(self.names)}")
        row = np.zeros(len(self.variables), dtype=np.int64)
        for i, variable in enumerate(self.variables):
            if variable.name in values:
                try:
                    row[i] = variable.nearest(values[variable.name])
                except ValueError as fault:
                    faults.append(str(fault))
        if faults:
            raise ValueError("; ".join(faults))
        return row

    def describe(self) -> dict[str, Any]:
        """The space as JSON-able data; equal descriptions are equal spaces."""
        return {v.name: {"values": list(v.values), "unit": v.unit} for v in self.variables}


@dataclass(frozen=True)
class Objective:
    """One wanted quantity: its name, whether less or more is better, its base unit."""

    name: str
    direction: Literal["minimize", "maximize"]
    unit: str = ""

    def __post_init__(self) -> None:
        if self.direction not in ("minimize", "maximize"):
            raise ValueError(f"{self.name}: found direction {self.direction!r}, allowed: minimize, maximize")

    @property
    def sign(self) -> float:
        """+1 or -1: the factor after which less is better."""
        return 1.0 if self.direction == "minimize" else -1.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one hardware row answered after all its plans were looked at.

    evaluated        number of plans priced
    feasible         number of plans that violate nothing
    failures         plans by violated constraint (a plan may count under several names)
    front            (k, J) objectives, natural sign, of the feasible non-dominated plans
    plans            (k, P) plan fields of the same plans
    miss             violations by constraint of the nearest miss, the infeasible plan with the smallest sum of
                     positive violations (feasible at <= 0); {} when there is none
    miss_plan        (P,) plan fields of the nearest miss, or None
    miss_objectives  (J,) objectives of the nearest miss, or None"""

    evaluated: int
    feasible: int
    failures: Mapping[str, int]
    front: Floats
    plans: Integers
    miss: Mapping[str, float]
    miss_plan: Integers | None = None
    miss_objectives: Floats | None = None


@runtime_checkable
class Problem(Protocol):
    """What a search needs to know.

    `evaluate` is a pure function of each row: a row alone and the same row in a batch give the same bits.
    `fingerprint` is JSON-able and changes whenever an old answer would no longer hold (space, network,
    objectives, constraints, a hash of all constants).
    An optional integer attribute `designs` (hardware rows times plans) decides what `auto` does; without it the
    size of the space does."""

    @property
    def space(self) -> Space: ...

    @property
    def objectives(self) -> tuple[Objective, ...]: ...

    @property
    def constraints(self) -> tuple[str, ...]: ...

    @property
    def plan_fields(self) -> tuple[str, ...]: ...

    def fingerprint(self) -> dict[str, Any]: ...

    def evaluate(self, rows: Integers) -> list[Outcome]: ...
