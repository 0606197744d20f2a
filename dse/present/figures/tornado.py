"""Draws which constants decide a design: a panel a metric, a bar from low to high a constant.

Matplotlib is imported inside functions, as in `dse.present.figures.front`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dse.insight.tornado import Swing, Tornado
from dse.present.figures.axes import INK, pretty
from dse.present.figures.chip import save_figure
from dse.present.text.design import constant_text
from dse.present.text.words import metric_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_tornado", "tornado_figure"]

#: Constants a panel.
MOST = 10
AT_LOW, AT_HIGH = "#5b9bd5", "#e08e45"


def save_tornado(found: Tornado, path: str | Path) -> Path:
    """The picture, as PNG or SVG by the path's ending."""
    return save_figure(tornado_figure(found), path)


def tornado_figure(found: Tornado) -> Figure:
    """One panel a metric that any constant moves: its change at each end of a constant's range, largest first."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    metrics = [metric for metric in found.values if found.ranked(metric)]
    columns = min(2, len(metrics)) or 1
    lines = max(1, -(-len(metrics) // columns))
    figure = Figure(figsize=(6.6 * columns, 3.7 * lines + 1.2), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(found, metrics), fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    if not metrics:
        figure.text(0.02, 0.5, "no constant of this design has a range", fontsize=11, color=INK)
        return figure
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, metric in zip(grid.flat, metrics, strict=False):
        _panel(axes, found, metric)
    for axes in grid.flat[len(metrics) :]:
        axes.set_axis_off()
    handles = [
        Patch(facecolor=AT_LOW, label="constant at its low"), Patch(facecolor=AT_HIGH, label="constant at its high")
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)
    return figure


def _title(found: Tornado, metrics: list[str]) -> str:
    design = found.design
    subject = f"{design.workload.network.name} on {int(design.cluster.devices):,} {design.chip.name}"
    if not metrics:
        return subject
    first = found.ranked(metrics[0], 1)[0]
    ends = sorted(first.effects[metrics[0]])
    spans = " to ".join(f"{end / found.values[metrics[0]] - 1:+.0%}" for end in ends)
    return f"{subject}: {_words(first)} moves {metrics[0].replace('_', ' ')} most, {spans}"


def _words(item: Swing) -> str:
    return item.constant.partition(".")[2].replace("_", " ")


def _panel(axes: Axes, found: Tornado, metric: str) -> None:
    base = found.values[metric]
    ranked = found.ranked(metric, MOST)
    for place, item in enumerate(ranked):
        ends = [100.0 * (end / base - 1.0) for end in item.effects[metric]]
        for change, colour in sorted(zip(ends, (AT_LOW, AT_HIGH), strict=True), key=lambda pair: -abs(pair[0])):
            # where both ends lie on one side, the shorter bar is drawn over the longer
            axes.barh(place, change, 0.62, color=colour, zorder=2)
        low, high = min(*ends, 0.0), max(*ends, 0.0)
        first, second = (item.low, item.high) if ends[0] <= ends[1] else (item.high, item.low)
        for x, text, side in ((low, first, "right"), (high, second, "left")):
            axes.annotate(
                pretty(constant_text(text, item.unit)), (x, place),
                (-3 if side == "right" else 3, 0), textcoords="offset points", ha=side,
                va="center", fontsize=7.5, color="#666666",
            )  # fmt: skip
    axes.axvline(0.0, color=INK, linewidth=0.9, zorder=3)
    axes.set_yticks(range(len(ranked)), [_words(item) for item in ranked], fontsize=8.8, color=INK)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_title(
        pretty(f"{metric.replace('_', ' ')} {metric_text(metric, base)}"), fontsize=10.5, fontweight="bold", color=INK,
        loc="left",
    )  # fmt: skip
    axes.set_xlabel("change [%]", fontsize=8.8, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#888888")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=INK, labelsize=8.5)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)

