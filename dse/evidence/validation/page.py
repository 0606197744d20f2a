"""Writes a validation as a page with figures: predicted against measured, residuals by size, degree, device, stack.

The figures' numbers are made here as named arrays, drawn in `dse.present.figures`; nothing is predicted or fitted here.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.base.errors import ConfigError, Problem
from dse.base.files import write_atomic
from dse.evidence.validation.networks import ALL_NETWORKS
from dse.evidence.validation.validate import ALL_STRETCH, CALIBRATED, STRETCH, ZERO_SHOT, Compared, Score, Validation

__all__ = ["Comparison", "Panel", "Residuals", "comparisons", "report_files", "residual_figures", "write_report"]

Floats = NDArray[np.float64]

#: Traits of a run that a residual is drawn over, and how an axis names them.
RUN_TRAITS: Mapping[str, str] = {
    "parameters": "parameters", "hidden": "hidden size", "sequence": "sequence [token]",
    "global_batch": "global batch [sample]", "micro_batch": "micro-batch [sample]", "devices": "devices",
    "tensor": "tensor degree", "pipeline": "pipeline degree", "data": "data degree", "context": "context degree",
    "expert": "expert degree", "zero_stage": "ZeRO stage", "recompute": "recompute", "device": "device",
    "stack": "stack",
}  # fmt: skip
#: Most sets with a colour of their own in one figure, and most values of a trait in words.
MOST_SETS, MOST_WORDS = 14, 14
OTHERS = "other sets"
#: Errors below this [%] depend on nothing but the digits that were printed.
EXACT = 0.05
#: Size and name of the unit an axis shows; times take the largest prefix under ten times their median.
UNITS: Mapping[str, tuple[float, str]] = {"m2": (1e-6, "mm²"), "B": (2.0**30, "GiB")}
TIMES = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Predicted against measured of one family of sets, in `unit`.

    sets   name, rows, mean absolute error [%], measured (N,), predicted (N,)
    """

    title: str
    subtitle: str
    unit: str
    sets: tuple[tuple[str, int, float, Floats, Floats], ...]


@dataclass(frozen=True, eq=False)
class Panel:
    """Errors [%] over one trait.

    places   (N,) numbers, or the index in `words` where the trait has no numbers
    sets     (N,) index of the row's set in the figure's names
    """

    name: str
    places: Floats
    errors: Floats
    sets: NDArray[np.int64]
    words: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Residuals:
    """Errors of one family of sets over every trait that varies in it; `names` in the order of colours."""

    title: str
    subtitle: str
    names: tuple[str, ...]
    panels: tuple[Panel, ...]


# What is shown ------------------------------------------------------------------------------------------------------


def families(rows: Iterable[Compared]) -> dict[str, list[Compared]]:
    """Rows by figure: training runs together, those without targets apart, other tables each by unit."""
    found: dict[str, list[Compared]] = {}
    for row in rows:
        stem = row.set.split("/")[0]
        if "stack" in row.traits and "tensor" in row.traits:
            name = "training runs"
        else:
            name = {"chips": {"m2": "die area of chips", "W": "TDP of chips"}.get(row.unit, stem)}.get(stem, stem)
        found.setdefault(name.replace("_", " ") + (STRETCH if row.set.endswith(STRETCH) else ""), []).append(row)
    return found


def _names(rows: Sequence[Compared]) -> list[str]:
    """Sets of a figure, largest first; what goes beyond the colours is one."""
    counts = Counter(row.set for row in rows)
    names = [name for name, _ in counts.most_common()]
    return names if len(names) <= MOST_SETS else [*names[: MOST_SETS - 1], OTHERS]


def _short(name: str) -> str:
    return name.split("/", 1)[-1].removesuffix(STRETCH)


def _summary(rows: Sequence[Compared]) -> str:
    errors = np.abs([row.error_percent for row in rows])
    within = float(np.mean(errors <= 10.0))
    count = f"{len(rows):,} row{'s' if len(rows) > 1 else ''}"
    return f"{count}; error: median {np.median(errors):.1f}%, mean {errors.mean():.1f}%; {within:.0%} within ±10%"


def comparisons(rows: Iterable[Compared]) -> dict[str, Comparison]:
    """A scatter a family: what is measured along, what is predicted up."""
    found = {}
    for family, members in families(rows).items():
        size, unit = _unit(members)
        names = _names(members)
        groups = []
        for name in names:
            mine = [row for row in members if row.set == name or (name == OTHERS and row.set not in names)]
            error = float(np.mean([abs(row.error_percent) for row in mine]))
            measured, predicted = (np.array([getattr(row, what) / size for row in mine]) for what in MEASURED)
            groups.append((_short(name), len(mine), error, measured, predicted))
        found[family] = Comparison(f"{family}: predicted against measured", _summary(members), unit, tuple(groups))
    return found


MEASURED = ("measured", "predicted")


def _unit(rows: Sequence[Compared]) -> tuple[float, str]:
    unit = rows[0].unit
    if unit != "s":
        return UNITS.get(unit, (1.0, unit))
    middle = float(np.median([row.measured for row in rows]))
    return next((step for step in reversed(TIMES) if 10.0 * middle >= step[0]), TIMES[0])


def residual_figures(rows: Iterable[Compared]) -> dict[str, Residuals]:
    """Errors of every family over each trait that has more than one value; none of a family without errors."""
    found = {}
    for family, members in families(rows).items():
        if max(abs(row.error_percent) for row in members) < EXACT:
            continue
        names = _names(members)
        places = {name: index for index, name in enumerate(names)}
        sets = np.array([places.get(row.set, len(names) - 1) for row in members])
        wanted = RUN_TRAITS if family.startswith("training runs") else _traits(members)
        panels = []
        for trait, label in wanted.items():
            values = [str(row.traits.get(trait, "")) for row in members]
            if 1 < len(set(values)):
                panels.append(_panel(label, values, np.array([row.error_percent for row in members]), sets))
        if panels:
            title = f"{family}: what the errors depend on"
            shown = tuple(_short(name) for name in names)
            found[family] = Residuals(title, _summary(members), shown, tuple(panels))
    return found


def _traits(rows: Sequence[Compared]) -> dict[str, str]:
    names = dict.fromkeys(name for row in rows for name in row.traits)
    return {name: name.replace("_", " ").replace("payload bytes", "payload [B]") for name in names}


def _panel(name: str, values: Sequence[str], errors: Floats, sets: NDArray[np.int64]) -> Panel:
    """Numbers where all known values are positive numbers, else words; rows without the trait are left out."""
    known = np.array([bool(value) for value in values])
    texts = [value for value in values if value]
    numbers = _numbers(texts)
    if numbers is not None:
        return Panel(name, numbers, errors[known], sets[known])
    order = [word for word, _ in Counter(texts).most_common()]
    if all(word.isdigit() for word in order):
        order.sort(key=int)
    if len(order) > MOST_WORDS:
        order = [*order[: MOST_WORDS - 1], "others"]
    places = np.array([order.index(text) if text in order else len(order) - 1 for text in texts], dtype=float)
    return Panel(name, places, errors[known], sets[known], tuple(order))


def _numbers(texts: Sequence[str]) -> Floats | None:
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return numbers if len(numbers) and bool(np.all(numbers > 0)) else None


# The folder ---------------------------------------------------------------------------------------------------------


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
    from dse.present.figures.validation import comparison_png, residuals_png

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


SCORE_HEADINGS = (
    "n", "n_scored", "mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent",
    "calibrated",
)  # fmt: skip


def coverage(found: Validation, score: Score) -> float | None:
    """Scored share of a set's complete rows [%]; None where it has none."""
    complete = found.complete.get(score.set, 0)
    return 100.0 * score.n_scored / complete if complete else None


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


# The page -----------------------------------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { padding: 3px 10px; border-bottom: 1px solid #e6e6e6; text-align: right; }
th:first-child, td:first-child, td.text { text-align: left; }
th { border-bottom: 1px solid #888; position: sticky; top: 0; background: white; }
tr.summary td { font-weight: 600; background: #f4f7fa; }
img { max-width: 100%; border: 1px solid #e6e6e6; margin: .5rem 0 1.5rem; }
"""
SUMMARY_WORDS = {
    CALIBRATED: "all calibrated dense runs",
    ZERO_SHOT: "all zero-shot dense runs",
    ALL_STRETCH: "all runs without targets",
    ALL_NETWORKS: "all networks",
}


def page(found: Validation, figures: Mapping[str, str]) -> str:
    """The page: summary, sets, figures, memory, rows that were not scored."""
    scored = [score for score in found.sets if score.n_scored]
    empty = [score for score in found.sets if not score.n_scored]
    tables = [score for score in scored if not score.set.startswith("summary/")]
    count = f"{sum(score.n_scored for score in tables):,} rows of {len(tables)} sets were predicted and compared"
    body = [
        "<h1>Validation</h1>",
        f"<p>{escape(found.source)}: {count}. Errors are |predicted / measured &minus; 1|; the bias keeps the sign. "
        "The floor is the spread of rows with equal inputs, below which no model can go. Coverage is the scored share "
        "of complete rows. A set is calibrated where constants of all its devices and stacks were fitted to "
        "calibration rows, which are not scored; else it is zero-shot.</p>",
        _score_table(found, sorted(scored, key=lambda score: not score.set.startswith("summary/"))),
        *(
            f'<h2>{escape(title)}</h2><img src="{escape(name)}" alt="{escape(title)}">'
            for name, title in figures.items()
        ),
        "<h2>Memory</h2>",
        *_memory(found),
        "<h2>Rows that were not scored</h2>",
        _html_table(["reason", "rows"], [[reason, f"{number:,}"] for reason, number in found.reasons().items()]),
        f"<h2>Sets without a scored row: {len(empty)}</h2>",
        _html_table(["set", "rows"], [[score.set, f"{score.n:,}"] for score in empty]),
        "<p>Tables: sets.csv, rows.csv, skipped.csv, validation.json</p>",
    ]
    head = f'<meta charset="utf-8"><title>Validation</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(body) + "\n</body></html>\n"


def _score_table(found: Validation, scores: Sequence[Score]) -> str:
    headings = [
        "set", "rows", "scored", "coverage", "mean [%]", "median [%]", "95% [%]", "worst [%]", "bias [%]", "floor [%]",
        "constants",
    ]  # fmt: skip
    numbers = ("mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent")
    rows = []
    for score in scores:
        share = coverage(found, score)
        shown = [_number(getattr(score, name), signed=name == "bias_percent") for name in numbers]
        name = f"{score.set}: {SUMMARY_WORDS[score.set]}" if score.set in SUMMARY_WORDS else score.set
        known = "calibrated" if score.calibrated else "zero-shot"
        rows.append(
            [name, f"{score.n:,}", f"{score.n_scored:,}", "" if share is None else f"{share:.0f}%", *shown, known]
        )
    return _html_table(headings, rows, lambda row: row[0].startswith("summary/"))


def _number(value: float | None, *, signed: bool = False) -> str:
    return "n/a" if value is None else f"{value:+.1f}" if signed else f"{value:.1f}"


def _memory(found: Validation) -> list[str]:
    fit = found.fit
    if not fit.n:
        return ["<p>No complete run of the data has a plan that was evaluated.</p>"]
    words = f"{fit.n_fit:,} of {fit.n:,} complete measured runs ({100 * (fit.share or 0):.1f}%) are predicted to fit."
    misses = [[name, where, f"{100 * share:.0f}%"] for name, where, share in fit.misses]
    return [f"<p>{words}</p>", _html_table(["row", "set", "used of memory"], misses) if misses else ""]


def _html_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], marked: Callable[[Sequence[str]], bool] | None = None
) -> str:
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in headings) + "</tr>"]
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f'<tr class="summary">{cells}</tr>' if marked and marked(row) else f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])
