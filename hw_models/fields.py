"""A quantity of a model: its unit and meaning stated once, at the field."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def quantity(
    unit: str,
    meaning: str,
    default: Any,
    *,
    whole: bool = False,
    low: float | None = None,
    high: float | None = None,
    names: tuple[str, ...] = (),
) -> Any:
    """A dataclass field in the base unit `unit` ("" for a pure number).

    low     smallest allowed value (exclusive when None: the value must be > 0)
    high    largest allowed value (None: none)
    whole   only whole numbers are allowed
    names   what the stored numbers 0, 1, ... stand for, where users write a name
    """
    meta = {"unit": unit, "meaning": meaning, "whole": whole, "low": low, "high": high, "names": names}
    return field(default=default, metadata=meta)


def choice(allowed: tuple[str, ...], meaning: str, default: Any) -> Any:
    """A dataclass field that is one of `allowed`."""
    return field(default=default, metadata={"allowed": allowed, "meaning": meaning})
