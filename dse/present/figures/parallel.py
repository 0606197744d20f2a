"""The front as parallel coordinates: one axis an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.exploration.variables import Floats
from dse.present.figures.axes import COLOURS, DASHES, INK, REFERENCE, axis_label, axis_unit, draw_empty, reference_name
from dse.present.figures.data import FrontData, Reference, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_parallel"]

#: Most lines drawn of a kind in parallel coordinates.
MOST_LINES = 2_000


def draw_parallel(axes: Axes, data: FrontData) -> None:
    """A line a design over one axis an objective, each from the worst of the front (bottom) to its best (top)."""
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    if not len(data.front):
        draw_empty(axes, data)
        return
    count = len(data.objectives)
    signs = np.array([item.sign for item in data.objectives])
    low, high = (data.front * signs).min(axis=0), (data.front * signs).max(axis=0)
    span = np.where(high > low, high - low, 1.0)

    def height(values: Floats) -> Floats:
        # an axis on which all designs are equal has them in its middle
        return np.asarray(np.where(high > low, (high - values * signs) / span, 0.5 + (low - values * signs) / span))

    lines = thinned(height(data.front), MOST_LINES)
    from matplotlib import colormaps

    places, alpha = np.arange(count), 0.8 if len(lines) < 200 else 0.35
    for line in lines[::-1]:
        axes.plot(places, line, color=colormaps[COLOURS](line[0]), linewidth=1.1, alpha=alpha)
    note = f", {len(lines):,} drawn" if len(lines) < len(data.front) else ""
    axes.plot([], [], color=colormaps[COLOURS](0.5), label=f"Pareto front ({len(data.front):,}{note})")
    for number, reference in enumerate(data.references):
        _parallel_reference(axes, reference, height(reference.values), DASHES[number % len(DASHES)])
    _parallel_axes(axes, data)


def _parallel_reference(axes: Axes, reference: Reference, line: Floats, dashes: Any) -> None:
    # beyond the front's range a line ends a little outside the axis
    shown = np.clip(line, -0.025, 1.025)
    axes.plot(
        np.arange(len(line)), shown, color=REFERENCE, linewidth=1.6, linestyle=dashes, zorder=4,
        alpha=0.55 if reference.broken else 1.0, label=reference_name(reference),
    )  # fmt: skip


def _parallel_axes(axes: Axes, data: FrontData) -> None:
    """A vertical axis an objective with its best and worst value."""
    labels = []
    for place, item in enumerate(data.objectives):
        column = data.front[:, place]
        size, unit = axis_unit(item, column)
        best, worst = (column.max(), column.min()) if item.direction == "maximize" else (column.min(), column.max())
        axes.vlines(place, 0.0, 1.0, color="#888888", linewidth=1.0, zorder=1)
        for y, value, side in ((1.0, best, "bottom"), (0.0, worst, "top")):
            if best == worst and y == 0.0:
                continue
            offset = 11 if side == "bottom" else -11
            axes.annotate(
                f"{value / size:,.4g}", (place, y), (0, offset), textcoords="offset points", ha="center", va=side,
                fontsize=9, color=INK,
            )  # fmt: skip
        labels.append(axis_label(item, unit, "\n").replace(" [", "\n["))
    axes.set_xticks(np.arange(len(labels)), labels, fontsize=9)
    axes.tick_params(axis="x", length=0, pad=8)
    axes.set_yticks([0.0, 1.0], ["worst of\nthe front", "best of\nthe front"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.14, 1.14)
