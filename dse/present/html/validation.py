"""The page of a validation: scores, coverage and memory as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from dse.evidence.validation.networks import ALL_NETWORKS
from dse.evidence.validation.scores import ALL_STRETCH, CALIBRATED, ZERO_SHOT, Score
from dse.evidence.validation.validate import Validation

__all__ = ["SCORE_HEADINGS", "SUMMARY_WORDS", "coverage", "page"]

SCORE_HEADINGS = (
    "n", "n_scored", "mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent",
    "calibrated",
)  # fmt: skip


def coverage(found: Validation, score: Score) -> float | None:
    """Scored share of a set's complete rows [%]; None where it has none."""
    complete = found.complete.get(score.set, 0)
    return 100.0 * score.n_scored / complete if complete else None


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
