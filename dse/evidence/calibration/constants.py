"""Fitted constants as a table: written, read, checked."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dse.base.errors import ConfigError, Problem, listed, nearest, shorten
from dse.base.files import write_atomic
from dse.evidence.calibration.priors import Key
from dse.insight.uncertainty import PAIR, RESIDUAL
from hw_models.stack import DEVICE_FIELDS, Stack
from hw_models.stacks import Constants, names

__all__ = ["HEADINGS", "constants_text", "read_constants", "without", "write_constants"]

HEADINGS = (
    "scope", "name", "field", "unit", "value", "low", "high", "standard_error", "source", "where", "confidence",
)  # fmt: skip


def constants_text(known: Constants) -> str:
    """A constants file: the format of hw_models/data/calibrated.csv."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, HEADINGS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: row.get(name, "") for name in HEADINGS} for row in known.rows)
    return stream.getvalue()


def write_constants(path: str | Path, known: Constants) -> None:
    """Write a constants file; a reader sees the old one or the new one."""
    write_atomic(path, constants_text(known))


def read_constants(path: str | Path) -> Constants:
    """The constants of a file that `dse calibrate` wrote; every fault of it is one error."""
    file = Path(path)
    try:
        reader = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline=""))
        rows, headings = list(reader), reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else "no CSV text"
        raise ConfigError([Problem(f"no access ({why})", "a file that dse calibrate wrote", file=str(path))]) from None
    missing = [name for name in HEADINGS[:5] if name not in headings]
    if missing:
        found = f"no heading {', '.join(missing)}"
        raise ConfigError([Problem(found, f"the headings {', '.join(HEADINGS)}", file=str(path), line=1)])
    problems = [problem for line, row in enumerate(rows, start=2) for problem in _row_problems(row, str(path), line)]
    keys: dict[Key, int] = {}
    for line, row in enumerate(rows, start=2):
        key = (row["scope"], row["name"], row["field"])
        if key in keys:
            problems.append(Problem(f"{' '.join(key)} again", f"once (line {keys[key]})", file=str(path), line=line))
        keys.setdefault(key, line)
    if problems:
        raise ConfigError(problems)
    return Constants(tuple({**{name: "" for name in HEADINGS}, **row} for row in rows), str(path))


def _nonnegative(text: str) -> bool:
    try:
        return 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def _row_problems(row: Mapping[str, str | None], file: str, line: int) -> Iterable[Problem]:
    scope, name, field = (row[heading] or "" for heading in HEADINGS[:3])
    if (scope, field) == (PAIR, RESIDUAL):
        if not _nonnegative(row["value"] or ""):
            yield Problem(shorten(repr(row["value"])), "a number >= 0", "value", file, line)
        return
    if scope not in ("device", "stack"):
        yield Problem(shorten(repr(scope)), "device or stack", "scope", file, line)
        return
    if scope == "stack" and name not in names():
        yield Problem(shorten(repr(name)), listed(names()), "name", file, line, nearest=nearest(name, names()))
    numbers = [item for item in Stack.__dataclass_fields__.values() if "unit" in item.metadata]
    allowed = [item.name for item in numbers if (item.name in DEVICE_FIELDS) == (scope == "device")]
    if field not in allowed:
        yield Problem(shorten(repr(field)), listed(allowed), "field", file, line, nearest=nearest(field, allowed))
        return
    try:
        replace(Stack(), **{field: float(row["value"] or "")})  # type: ignore[arg-type]
    except ValueError as error:
        yield Problem(shorten(repr(row["value"])), shorten(str(error)), "value", file, line)


def without(known: Constants, own: set[tuple[str, str]]) -> Constants:
    rows = tuple(row for row in known.rows if (row["scope"], row["name"]) not in own)
    return Constants(rows, known.source)
