"""What a calibration found, in words and tables for a terminal; the numbers come from dse.evidence.calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dse.evidence.calibration.calibrate import Calibration, LeftOut
from dse.evidence.calibration.priors import Fitted
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import join, section

__all__ = ["calibration_text", "left_out_text"]

#: Share of a constant's range within which it counts as held by the range's end.
AT_END = 1e-3


def calibration_text(found: Calibration, out: str = "") -> str:
    """Constants with their standard errors, errors before and after, and rows that were not used."""
    head = f"{found.n_rows:,} rows of {found.n_situations:,} situations were fitted."
    known = [item for item in found.fitted if item.key[1] != "generic"]
    shared = [item for item in found.fitted if item.key[1] == "generic"]
    return join(
        [
            head,
            section("Constants that the rows tell", _constants_table(known)) if known else None,
            section("Where an unseen device or stack is expected", _constants_table(shared)) if shared else None,
            _unknown_section(found.prior),
            _parts_section(found),
            section("Step time: mean absolute error and mean error [%], before and after", _errors_table(found)),
            _skipped_section(found),
            f"\nWritten: {out}" if out else None,
        ]
    )


def _constants_table(items: Iterable[Fitted]) -> str:
    headings = ["scope", "name", "constant", "value", "standard error", "before", "range", ""]
    return columns_text(headings, [_constant_row(item) for item in items])


def _constant_row(item: Fitted) -> list[str]:
    prior, unit = item.prior, f" {item.prior.unit}" if item.prior.unit else ""
    slack = AT_END * (prior.high - prior.low)
    held = "at its end" if not prior.low + slack < item.value < prior.high - slack else ""
    return [
        *item.key, f"{item.value:.4g}{unit}", f"{item.standard_error:.2g}", f"{prior.value:.4g}",
        f"{prior.low:.4g} to {prior.high:.4g}", held,
    ]  # fmt: skip


def _unknown_section(items: Sequence[Fitted]) -> str | None:
    if not items:
        return None
    names: dict[str, list[str]] = {}
    for item in items:
        names.setdefault(f"{item.key[0]} {item.key[1]}", []).append(item.key[2])
    lines = [wrapped(f"{owner}: {', '.join(fields)}", indent=2, first="  ") for owner, fields in names.items()]
    return section("Constants that the rows do not tell: they stay as stated", *lines)


def _errors_table(found: Calibration) -> str:
    headings = ["split", "stack", "device", "rows", "before", "bias", "after", "bias"]
    rows = [
        [
            error.split, error.stack, error.device, f"{error.n:,}", f"{error.before_mape:.1f}",
            f"{error.before_bias:+.1f}", f"{error.mape:.1f}", f"{error.bias:+.1f}",
        ]
        for error in found.errors
    ]  # fmt: skip
    return columns_text(headings, rows)


def _parts_section(found: Calibration) -> str | None:
    if not found.parts:
        return None
    headings = ["split", "table", "device", "rows", "before", "after", "mean after"]
    rows = [
        [
            error.split, error.table, error.device, f"{error.n:,}", f"{error.before_median:.1f}",
            f"{error.median:.1f}", f"{error.mape:.1f}",
        ]
        for error in sorted(found.parts, key=lambda error: error.split)
    ]  # fmt: skip
    return section("Kernels and collectives: median absolute error [%], before and after", columns_text(headings, rows))


def _skipped_section(found: Calibration) -> str | None:
    if not found.skipped:
        return None
    rows = [[f"{count:,}", reason] for reason, count in found.skipped.items()]
    return section("Rows that could not be used", columns_text(["rows", "reason"], rows))


def left_out_text(found: Sequence[LeftOut]) -> str:
    """Errors of pairs that were left out of the fit, beside those with them in it."""
    headings = ["stack", "device", "rows", "left out", "bias", "in the fit", "as stated"]
    rows = [
        [
            item.stack, item.device, f"{item.n:,}", f"{item.mape:.1f}", f"{item.bias:+.1f}",
            f"{item.fitted_mape:.1f}", f"{item.stated_mape:.1f}",
        ]
        for item in found
    ]  # fmt: skip
    title = "Each pair predicted without its rows: mean absolute error and mean error of step times [%]"
    return f"{title}\n{columns_text(headings, rows)}"
