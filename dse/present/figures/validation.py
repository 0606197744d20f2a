"""Draws a validation from the named arrays of its page: predicted against measured, and residuals.

It draws on axes that `dse.present.figures.front` makes and imports no matplotlib itself (hence `Any` for axes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.present.figures.axes import INK, WIDE, amount, few_ticks, plain_axes, png, pretty, sheet, ticks

if TYPE_CHECKING:
    from dse.evidence.validation.residuals import Comparison, Panel, Residuals

__all__ = ["comparison_png", "residuals_png"]

#: Colours that the colour-blind tell apart (Okabe and Ito), and marks that repeat them in another shape.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b4c9a", "#8c8c00", "#555555")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
#: Errors in % that a band shows, and those beyond which the axis is cut.
BAND, CUT = 10.0, 100.0
#: Most values of a trait with a median each, and fewest rows that a median is drawn for.
MOST_MEDIANS, FEWEST = 24, 3


def comparison_png(data: Comparison) -> bytes:
    """Predicted against measured as a PNG file; equal data give equal bytes."""
    figure, axes = sheet(data.title, data.subtitle, (7.4, 7.8))
    points = [np.concatenate([measured, predicted]) for *_, measured, predicted in data.sets]
    low, high = float(np.min(np.concatenate(points))), float(np.max(np.concatenate(points)))
    ends = np.array([low / 1.35, high * 1.35])
    band = axes.fill_between(ends, ends * (1 - BAND / 100), ends * (1 + BAND / 100), color="#dfe7ee", zorder=1)
    band.set_label(f"within ±{BAND:.0f}%")
    axes.plot(ends, ends, color="#888888", linewidth=1.0, zorder=2, label="predicted = measured")
    for number, (name, count, error, measured, predicted) in enumerate(data.sets):
        axes.scatter(
            measured, predicted, label=f"{name} ({count:,}; mean error {error:.1f}%)", zorder=3, **_mark(number, count)
        )
    for axis, words in (("x", "measured"), ("y", "predicted")):
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}lim")(*ends)
        getattr(axes, f"set_{axis}label")(f"{words} [{data.unit}]", fontsize=10, color=INK)
        ticks(axes, axis, True, (float(np.log10(ends[0])), float(np.log10(ends[1]))))
    axes.set_aspect("equal")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    return png(figure)


def residuals_png(data: Residuals) -> bytes:
    """Errors over every trait, a panel each, with the median of each value, as a PNG file."""
    columns = min(3, len(data.panels))
    lines = -(-len(data.panels) // columns)
    height = 3.2 * lines + 1.6
    figure, first = sheet("", "", (max(4.6 * columns, 7.0), height))
    first.remove()
    # room for the two lines above
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.75 / height), hspace=0.05)
    figure.text(0.01, 1 - 0.12 / height, data.title, fontsize=13, fontweight="bold", color=INK, va="top")
    figure.text(0.01, 1 - 0.42 / height, pretty(data.subtitle), fontsize=9, color="#555555", va="top")
    errors = np.concatenate([panel.errors for panel in data.panels])
    bottom, top = max(-CUT, float(errors.min())), min(CUT, float(errors.max()))
    margin = 0.06 * max(top - bottom, 2.5 * BAND)
    limits = min(bottom, -BAND) - margin, max(top, BAND) + margin
    for place, panel in enumerate(data.panels):
        axes = figure.add_subplot(lines, columns, place + 1)
        plain_axes(axes)
        _panel(axes, panel, limits)
        if place % columns == 0:
            axes.set_ylabel("predicted / measured − 1 [%]", fontsize=9, color=INK)
    for number, name in enumerate(data.names):
        axes.scatter([], [], label=name, **_mark(number, 1))
    axes.plot([], [], color=INK, linewidth=2, label=f"median of {FEWEST} or more rows of one value")
    figure.legend(loc="outside lower center", ncols=min(5, 2 * columns), frameon=False, fontsize=9, labelcolor=INK)
    return png(figure)


def _shape(number: int) -> int:
    """Another mark where colours begin again."""
    return (number + 4 * (number // len(PALETTE))) % len(MARKS)


def _mark(number: int, count: int) -> dict[str, Any]:
    many = count > 200
    return {
        "s": 14 if many else 30, "c": PALETTE[number % len(PALETTE)], "marker": MARKS[_shape(number)],
        "alpha": 0.5 if many else 0.8, "linewidths": 0 if many else 0.4, "edgecolors": "white",
    }  # fmt: skip


def _panel(axes: Any, panel: Panel, limits: tuple[float, float]) -> None:
    """Points of one trait, moved sideways a little so that equal values do not hide each other, and medians."""
    axes.axhspan(-BAND, BAND, color="#eef2f6", zorder=0)
    axes.axhline(0.0, color="#888888", linewidth=1.0, zorder=1)
    values = np.unique(panel.places)
    logarithmic = not panel.words and values[-1] > WIDE * values[0]
    along = np.log2(panel.places) if logarithmic else panel.places
    steps = np.diff(np.unique(along))
    step = float(steps.min()) if len(values) <= 12 and len(steps) else 0.0
    shift = np.random.default_rng(0).uniform(-0.22, 0.22, len(along)) * min(step, 1.0 if logarithmic else step)
    shown = np.exp2(along + shift) if logarithmic else along + shift
    heights = np.clip(panel.errors, *limits)
    for number in np.unique(panel.sets):
        mine = panel.sets == number
        axes.scatter(shown[mine], heights[mine], zorder=2, **(_mark(int(number), int(mine.sum())) | {"s": 16}))
    half = 0.32 * (step or 0.3)
    for value, rows in zip(*np.unique(along, return_counts=True), strict=True):
        if rows < FEWEST or len(values) > MOST_MEDIANS:
            continue
        middle, ends = float(np.median(heights[along == value])), np.array([value - half, value + half])
        axes.plot(np.exp2(ends) if logarithmic else ends, [middle, middle], color=INK, linewidth=2, zorder=3)
    axes.set_ylim(*limits)
    axes.set_title(panel.name, fontsize=10, color=INK, loc="left")
    if panel.words:
        axes.set_xticks(np.arange(len(panel.words)), [_cut(word) for word in panel.words], rotation=25, ha="right")
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlim(-0.6, len(panel.words) - 0.4)
    elif logarithmic:
        axes.set_xscale("log", base=2)
        few_ticks(axes, values)
    elif len(values) <= 8:
        axes.set_xticks(values, [amount(value) for value in values])


def _cut(word: str) -> str:
    return word if len(word) <= 22 else word[:20] + "…"
