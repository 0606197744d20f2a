"""Reads the packaged tables: rows of text with their source, and the sentence for an unknown name.

It knows nothing about any model; a table is `data/<name>.csv` beside this file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

Row = Mapping[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """Rows of `data/<name>.csv`, each a read-only mapping from heading to text."""
    text = files("hw_models").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))


def distinct(name: str, heading: str) -> tuple[str, ...]:
    """Values of a column in the order of the table, each once."""
    return tuple(dict.fromkeys(row[heading] for row in table(name)))


def unknown(what: str, found: object, allowed: Iterable[str]) -> ValueError:
    """The error for a name that a table lacks: what, found, nearest match, allowed."""
    names = list(allowed)
    near = get_close_matches(str(found).lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ValueError(f"{what}: found {found!r}, allowed: {', '.join(names)}{hint}")


def number(text: str) -> float | int:
    """A whole number stays whole, so that counts print as counts."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def pairs(text: str) -> dict[str, float]:
    """`bf16=1;fp8=2` as a mapping; empty text gives none."""
    return {key: float(value) for key, value in (item.split("=") for item in text.split(";") if item)}
