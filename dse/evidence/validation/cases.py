"""Rows of measurements as cases: which tables are read, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.resources import as_file, files
from pathlib import Path

from dse.base.errors import ConfigError, Problem
from dse.evidence.measured.arrays import loop_nest_cases, systolic_cases
from dse.evidence.measured.chips import chip_cases
from dse.evidence.measured.collectives import collective_cases
from dse.evidence.measured.kernels import kernel_cases
from dse.evidence.measured.networks import network_cases
from dse.evidence.measured.parts import memory_cases
from dse.evidence.measured.runs import Case, Row, run_case
from dse.evidence.measured.tables import kind_of, read_table

__all__ = ["UNREAD", "Skipped", "matches", "natural_order", "read_cases", "read_files", "table_cases"]

#: What a reader raises at a row that makes no sense to it, and how the reason of such a row begins.
UNREADABLE = (ValueError, LookupError, ArithmeticError)
UNREAD = "the row makes no sense"
#: Most faults that one error lists.
MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Skipped:
    """One row that was not scored, and why."""

    row_id: str
    reason: str
    set: str = ""


def matches(name: str, glob: str) -> bool:
    """Whether a set's name, its part behind the table's name, or either without a suffix in brackets fits a pattern."""
    plain = name.split(" (")[0]
    forms = {name, plain, name.split("/", 1)[-1], plain.split("/", 1)[-1]}
    return any(fnmatchcase(form, glob) for form in forms)


def read_cases(data: str | Path | None) -> tuple[list[Case], list[str]]:
    """Every row of every known table as a case, and the names of known tables without a row.

    All faults of all tables are one error: a cell that is no number says its file, line and heading.
    """
    if data is None:
        with as_file(files("dse.evidence").joinpath("data")) as shipped_tables:
            return read_files([shipped_tables / name for name in SHIPPED])
    folder = Path(data)
    if not folder.is_dir():
        found = f"{str(data)!r}, which is no folder"
        raise ConfigError([Problem(found, "a folder of measured tables (CSV)", "data")])
    cases, empty = read_files(sorted(path for path in folder.glob("*.csv") if path.is_file()))
    if not cases and not empty:
        found = f"no table with known headings in {str(data)!r}"
        raise ConfigError([Problem(found, "training_runs.csv, kernels.csv, collectives.csv or the like", "data")])
    return cases, empty


def read_files(paths: Iterable[Path]) -> tuple[list[Case], list[str]]:
    """Cases of the files of known kinds, and the names of those without rows."""
    cases: list[Case] = []
    empty: list[str] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            kind, rows, faults = read_table(path)
        except OSError as error:
            problems.append(Problem(f"no access ({error.strerror})", "a readable file", file=path.name))
            continue
        problems += faults
        if kind is not None and not problems:
            found = cases_of(rows, path.stem)
            cases += found
            empty += [] if found else [path.stem]
    if problems:
        more = len(problems) - MOST_PROBLEMS
        last = [Problem(f"{more:,} more faults", "")] if more > 0 else []
        raise ConfigError(problems[:MOST_PROBLEMS] + last)
    return cases, empty


def cases_of(rows: Sequence[Row], stem: str) -> list[Case]:
    """`table_cases`; where a row makes no sense to its reader, that row alone is skipped."""
    try:
        return list(table_cases(rows, stem))
    except UNREADABLE:
        pass
    found = []
    for number, row in enumerate(rows, start=1):
        name = row.get("row_id") or f"{stem}:{number}"
        try:
            cases = list(table_cases([row], stem))
        except UNREADABLE as problem:
            reason = f"{UNREAD}: {type(problem).__name__} {problem}"
            cases = [Case(f"{stem}/unread", name, "", skipped=reason, split=row.get("split") or "")]
        found += [replace(case, row_id=name) if case.row_id == f"{stem}:1" else case for case in cases]
    return found


def table_cases(rows: Sequence[Row], stem: str) -> Iterable[Case]:
    """The cases of one table, told apart by its headings; tables of constants have none."""
    kind = kind_of(rows[0]) if rows else None
    if kind is None:
        return ()
    if kind.name == "runs":
        return (run_case(row, stem, number) for number, row in enumerate(rows, start=1))
    if kind.name == "throughputs":
        return network_cases(rows, stem)
    if kind.name == "transfer-level":
        reason = "a register-transfer simulation without its loop nest"
        return named_only(rows, "systolic", "", reason, stem)
    return PARTS[kind.name](rows, stem)


def natural_order(text: str) -> tuple[float, str]:
    return (float(text), "") if text.isdigit() else (0.0, text)


#: Tables that the product ships.
SHIPPED = ("measured_runs.csv", "measured_networks.csv")

#: Readers of the tables of parts, by kind of table.
PARTS: dict[str, Callable[[Iterable[Row], str], Iterator[Case]]] = {
    "kernels": kernel_cases,
    "collectives": collective_cases,
    "systolic": systolic_cases,
    "loop nests": loop_nest_cases,
    "chips": chip_cases,
    "memory": memory_cases,
}


def named_only(rows: Sequence[Row], stem: str, column: str, reason: str, group: str = "") -> Iterator[Case]:
    """Rows that no model predicts yet: counted, with the reason."""
    for number, row in enumerate(rows, start=1):
        name = row.get("row_id") or f"{group or stem}:{number}"
        yield Case(f"{stem}/{row[column] if column else group}", name, "", skipped=reason, split=row.get("split") or "")
