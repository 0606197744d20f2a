"""Errors of predictions beside measurements as text: what `dse validate` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dse.base.units import format_quantity
from dse.evidence.validation.networks import scaling_error
from dse.present.text.search import REASONS
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import (
    join,
    percent,
    section,
)

__all__ = ["validation_text"]


def validation_text(found: Any) -> str:
    """Errors of every set of measurements; what was not compared, by reason; rows where there are some."""
    rows = [
        [
            score.set, f"{score.n_scored:,} of {score.n:,}", *(_error(getattr(score, name)) for name in _ERRORS),
            "yes" if score.calibrated else "no",
        ]
        for score in found.sets
        if score.n_scored
    ]  # fmt: skip
    headings = ["set", "scored", "mean", "median", "95%", "worst", "bias", "floor", "fitted"]
    tables = [score for score in found.sets if not score.set.startswith("summary/")]
    scored = sum(score.n_scored for score in tables)
    total = sum(score.n for score in tables)
    parts = [
        f"{scored:,} of {total:,} measured rows compared. Errors are |predicted / measured - 1|; bias keeps the sign.",
        "",
        columns_text(headings, rows) if rows else "No set has a row that can be compared.",
        _unscored_words(tables),
        _fit_words(getattr(found, "fit", None)),
        _scaling_words(getattr(found, "scaling", ())),
        _skipped_words(found.skipped),
        _compared_rows(getattr(found, "rows", ()) or ()),
    ]
    return join(parts)


def _unscored_words(scores: Sequence[Any]) -> str | None:
    """Sets without a compared row, counted by table."""
    tables: dict[str, list[Any]] = {}
    for score in scores:
        if not score.n_scored:
            tables.setdefault(score.set.split("/")[0], []).append(score)
    if not tables:
        return None
    words = [
        f"{name} {len(items)} set{'s' if len(items) > 1 else ''} of {sum(item.n for item in items):,} rows"
        for name, items in tables.items()
    ]
    return "\n" + wrapped(f"Sets without a compared row: {'; '.join(words)}.")


_ERRORS = ("mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent")


def _error(value: float | None) -> str:
    return "n/a" if value is None or math.isnan(value) else f"{value:.1f}%"


def _scaling_words(found: Sequence[Any]) -> str | None:
    """Throughput a device over that of one device of the same set: error in points, by number of devices."""
    if not found:
        return None
    rows = []
    for devices in sorted({item.devices for item in found}):
        own = [item for item in found if item.devices == devices]
        median, mean, bias = scaling_error(own) or (0.0, 0.0, 0.0)
        rows.append([f"{devices:,}", f"{len(own):,}", f"{median:.1f}", f"{mean:.1f}", f"{bias:+.1f}"])
    median, mean, bias = scaling_error(found) or (0.0, 0.0, 0.0)
    rows.append(["all", f"{len(found):,}", f"{median:.1f}", f"{mean:.1f}", f"{bias:+.1f}"])
    head = "Throughput of a device over that of one alone, predicted less measured [percentage points]:"
    return "\n".join(["", head, columns_text(["devices", "rows", "median", "mean", "bias"], rows)])


def _fit_words(fit: Any) -> str | None:
    if fit is None or not fit.n:
        return None
    lines = [f"Measured runs predicted to fit in memory: {fit.n_fit:,} of {fit.n:,} ({percent(fit.n_fit / fit.n)})"]
    lines += [f"  not: {row} ({name}), needs {percent(share)} of the memory" for row, name, share in fit.misses]
    return "\n".join(["", *lines])


def _skipped_words(skipped: Iterable[Any]) -> str | None:
    counts: dict[str, int] = {}
    for item in skipped:
        counts[item.reason] = counts.get(item.reason, 0) + 1
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [[reason, f"{count:,}"] for reason, count in ordered[:REASONS]]
    rest = ordered[REASONS:]
    more = f"  {len(rest)} more reasons: {sum(count for _, count in rest):,} rows" if rest else None
    return section("Not compared", columns_text(["reason", "rows"], rows, indent=2), more)


def _compared_rows(rows: Sequence[Any]) -> str | None:
    if not rows:
        return None
    shown = [
        [row.row_id, row.set, format_quantity(row.predicted, row.unit), format_quantity(row.measured, row.unit),
         f"{row.error_percent:+.1f}%"]
        for row in rows
    ]  # fmt: skip
    return section("Rows", columns_text(["row", "set", "predicted", "measured", "error"], shown, indent=2))
