"""Software stacks by name: uncalibrated constants with their range and source (data/stacks.csv)."""

from __future__ import annotations

from functools import cache
from typing import Any

from hw_models.stack import Stack
from hw_models.tables import Row, distinct, number, table, unknown


def names() -> tuple[str, ...]:
    """Stacks of the table; `generic` is the default, `ideal` costs nothing."""
    return distinct("stacks", "stack")


def constants(name: str = "generic") -> tuple[Row, ...]:
    """Rows of one stack: field, value, low, high, unit, source, where, confidence."""
    if name not in names():
        raise unknown("stack", name, names())
    return tuple(row for row in table("stacks") if row["stack"] == name)


@cache
def stack(name: str = "generic") -> Stack:
    """The stack of that name."""
    rows = constants(name)
    values: dict[str, Any] = {}
    for row in rows:
        text = row["value"]
        values[row["field"]] = tuple(text.split("+")) if row["field"] == "algorithms" else number(text)
    source = "; ".join(dict.fromkeys(row["source"] for row in rows))
    return Stack(name=name, source=source, **values)
