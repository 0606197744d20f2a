"""Writes a validation into a folder: its page, figures, and tables as CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem
from dse.base.files import write_atomic
from dse.evidence.validation.residuals import comparisons, residual_figures
from dse.evidence.validation.scores import Compared
from dse.evidence.validation.validate import Validation
from dse.present.figures.validation import comparison_png, residuals_png
from dse.present.html.validation import SCORE_HEADINGS, coverage, page

__all__ = ["report_files", "write_report"]


def write_report(found: Validation, out: str | Path) -> Path:
    """Write `index.html`, its figures and the tables as CSV and JSON into the folder `out`; returns the page.

    Every file is replaced whole, the page last, so that an interrupted write leaves the old page."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in report_files(found).items():
            write_atomic(folder / name, content)
    except OSError as error:
        allowed = "a folder that can be written to"
        raise ConfigError([Problem(error.strerror or str(error), allowed, "--report", str(folder))]) from None
    return folder / "index.html"


def report_files(found: Validation) -> dict[str, bytes]:
    """Content of every file of the report by name, the page last."""
    assert found.rows is not None, "a report needs the rows: validate(..., rows=True)"
    figures: dict[str, tuple[str, bytes]] = {}
    residuals = residual_figures(found.rows)
    for family, data in comparisons(found.rows).items():
        figures[f"scatter_{_slug(family)}.png"] = (data.title, comparison_png(data))
        if family in residuals:
            figures[f"residuals_{_slug(family)}.png"] = (residuals[family].title, residuals_png(residuals[family]))
    files = {name: content for name, (_, content) in figures.items()}
    files["sets.csv"] = _table(["set", *SCORE_HEADINGS, "complete", "coverage_percent"], _set_rows(found))
    files["rows.csv"] = _row_table(found.rows)
    files["skipped.csv"] = _table(["row_id", "set", "reason"], [[s.row_id, s.set, s.reason] for s in found.skipped])
    files["validation.json"] = found.to_json().encode()
    files["index.html"] = page(found, {name: title for name, (title, _) in figures.items()}).encode()
    return files


def _slug(text: str) -> str:
    return "_".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())


def _set_rows(found: Validation) -> list[list[Any]]:
    return [
        [score.set, *(getattr(score, name) for name in SCORE_HEADINGS), found.complete.get(score.set, 0),
         coverage(found, score)]
        for score in found.sets
    ]  # fmt: skip


def _row_table(rows: Sequence[Compared]) -> bytes:
    traits = list(dict.fromkeys(name for row in rows for name in row.traits))
    headings = ["row_id", "set", "unit", "predicted", "measured", "error_percent", *traits]
    table = [
        [getattr(row, name) for name in headings[:6]] + [row.traits.get(name, "") for name in traits] for row in rows
    ]
    return _table(headings, table)


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return stream.getvalue().encode()
