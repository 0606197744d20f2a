"""Models of columns: the one walk over frozen dataclasses whose numbers are scalars or columns, and what it does.

Rows run along the last axis; hardware (H, 1) meets plans (P,).  A field that is a tuple of models (the tiers of a
cluster) is walked too.  Nothing is checked again: whoever changes a model here knows that the values are valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

__all__ = ["as_column", "as_floats", "changed", "dimensions", "numeric", "row_of", "take", "tiled", "unchecked"]

Model = TypeVar("Model")


def unchecked(model: Model, changes: dict[str, Any]) -> Model:
    """A copy of a frozen dataclass with `changes`, which are known to be valid already."""
    copy = object.__new__(type(model))
    for name, value in vars(model).items():
        object.__setattr__(copy, name, changes.get(name, value))
    return copy


def changed(model: Model, change: Callable[[Field[Any], Any], Any]) -> Model:
    """A copy with `change(field, value)` as every value, also of the models in its tuples."""
    changes: dict[str, Any] = {}
    for item in fields(model):  # type: ignore[arg-type]
        value = getattr(model, item.name)
        if _is_models(value):
            changes[item.name] = tuple(changed(inner, change) for inner in value)
        else:
            changes[item.name] = change(item, value)
    return unchecked(model, changes)


def _is_models(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and is_dataclass(value[0])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray, np.number, list)) and not isinstance(value, bool)


def _floats(value: Any) -> np.ndarray:
    found = np.asarray(value, dtype=float)
    return found if found.ndim else found.reshape(1)


def numeric(model: Any) -> dict[str, np.ndarray]:
    """The numeric fields of a model as float columns of at least one element; tuples of models are left out."""
    values = {item.name: getattr(model, item.name) for item in fields(model)}
    return {name: _floats(value) for name, value in values.items() if _is_number(value)}


def as_floats(model: Model, shape_of: Callable[[np.ndarray], Any]) -> Model:
    """The model with every number as `shape_of` of its float column."""
    return changed(model, lambda _, value: shape_of(_floats(value)) if _is_number(value) else value)


def dimensions(model: Any) -> int:
    """1 if a field is a column, 2 if one is (H, 1), 0 if all are scalars."""
    deepest = 0
    for item in fields(model):
        value = getattr(model, item.name)
        if isinstance(value, np.ndarray):
            deepest = max(deepest, value.ndim)
        elif isinstance(value, list):
            deepest = max(deepest, 1)
        elif _is_models(value):
            deepest = max(deepest, *(dimensions(inner) for inner in value))
    return deepest


def take(model: Model, index: np.ndarray) -> Model:
    """The rows `index` of a model whose numbers are scalars or (N,) columns."""
    return as_floats(model, lambda column: column[index] if column.size > 1 else column)


def as_column(model: Model) -> Model:
    """Columns (N,) of a model as (N, 1), to meet plans (P,)."""
    return changed(model, lambda _, value: value[:, None] if _depth(value) == 1 else value)


def tiled(model: Model, times: int) -> Model:
    """Columns (K, 1) of a model as (times K,), repeated as a whole."""
    return changed(model, lambda _, value: np.tile(value[:, 0], times) if _depth(value) == 2 else value)


def _depth(value: Any) -> int:
    return value.ndim if isinstance(value, np.ndarray) else 0


def row_of(model: Model, number: int) -> Model:
    """One row of a model of columns as plain numbers, whole ones as integers; a column of one element has one row."""

    def scalar(item: Field[Any], value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        found = value.reshape(-1)[number if value.size > 1 else 0].item()
        return int(found) if item.metadata.get("whole") else found

    return changed(model, scalar)
