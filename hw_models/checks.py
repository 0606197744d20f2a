"""Turns a bad value of a model into one sentence: field, found, allowed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def problems(model: Any) -> list[str]:
    """Every bad field of a dataclass made with `quantity` and `choice`, one sentence each."""
    found = []
    for field in fields(model):
        value, meta = getattr(model, field.name), field.metadata
        if "allowed" in meta:
            if value not in meta["allowed"]:
                found.append(f"{field.name}: found {value!r}, allowed: {', '.join(meta['allowed'])}")
        elif "unit" in meta:
            sentence = _quantity_problem(field.name, value, meta)
            if sentence:
                found.append(sentence)
    return found


def require(model: Any) -> None:
    """Raise ValueError that names every bad field of `model`."""
    found = problems(model)
    if found:
        raise ValueError(f"{type(model).__name__}: " + "; ".join(found))


def _quantity_problem(name: str, value: Any, meta: Any) -> str:
    unit = f" {meta['unit']}" if meta["unit"] else ""
    low = meta["low"]
    bound = f"a number > 0{unit}" if low is None else f"a number >= {low:g}{unit}"
    if meta["high"] is not None:
        bound += f" and <= {meta['high']:g}{unit}"
    if meta["whole"]:
        bound = bound.replace("a number", "a whole number")
    column = np.asarray(value)
    if column.dtype.kind not in "iuf":
        return f"{name}: found {value!r}, allowed: {bound}"
    number = column.astype(float)
    good = np.isfinite(number) & (number > 0 if low is None else number >= low)
    if meta["high"] is not None:
        good &= number <= meta["high"]
    if meta["whole"]:
        good &= number == np.floor(number)
    return "" if np.all(good) else f"{name}: found {value!r}, allowed: {bound}"
