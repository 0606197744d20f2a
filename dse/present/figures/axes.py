"""Axes, units, labels and files that all pictures share.

Matplotlib is imported inside functions and without pyplot, so no window and no global state.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.base.headings import human_unit
from dse.exploration.variables import Floats, Objective
from dse.present.figures.data import FrontData, Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS", "DASHES", "FEASIBLE", "FRONT", "INFEASIBLE", "INK", "REFERENCE", "WIDE", "amount", "axis_label",
    "axis_unit", "draw_empty", "few_ticks", "inside", "lack_words", "message", "plain_axes", "png", "pretty",
    "reference_name", "sheet", "ticks", "wrapped_title",
]  # fmt: skip

#: An axis whose front spans more than this factor is logarithmic.
WIDE = 5.0

INK, GRID = "#222222", "#e6e6e6"

#: Prefixes an axis may take, smallest first; all other quantities keep the unit that tables show.
PREFIXES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "token/s": ((1.0, "token/s"), (1e3, "ktoken/s"), (1e6, "Mtoken/s"), (1e9, "Gtoken/s")),
    "J": ((1e-6, "uJ"), (1e-3, "mJ"), (1.0, "J"), (1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ"), (1e12, "TJ")),
    "s": ((1e-6, "us"), (1e-3, "ms"), (1.0, "s")),
}


def pretty(text: str) -> str:
    """Units and relations as they are printed; a name such as v100-sxm2 stays as it is."""
    text = re.sub(r"\b([mu]?m)2\b", r"\1²", text)
    return text.replace("us]", "µs]").replace("uJ]", "µJ]").replace("<=", "≤").replace(">=", "≥")


def ticks(axes: Axes, axis: str, logarithmic: bool, ends: tuple[float, float]) -> None:
    """Plain numbers on the ticks, also on a logarithmic axis; 2 and 5 between decades where there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    drawn = getattr(axes, f"{axis}axis")
    drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if logarithmic:
        few = ends[1] - ends[0] < 3
        drawn.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        drawn.set_minor_formatter(NullFormatter())


def inside(axes: Axes, points: Floats) -> Marks:
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    x, y = points[:, 0], points[:, 1]
    return np.asarray((x >= left) & (x <= right) & (y >= bottom) & (y <= top))


def _plain_formatter() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.10g}")


def sheet(title: str, subtitle: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure of `size` [inch] with its title, a smaller line under it, and one pair of axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    axes = figure.add_subplot()
    axes.set_title(wrapped_title(subtitle, size[0]), fontsize=9, color="#555555", loc="left", pad=8)
    plain_axes(axes)
    return figure, axes


def plain_axes(axes: Axes) -> None:
    """Two spines, a faint grid behind the points."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def few_ticks(axes: Axes, values: Floats) -> None:
    """The values themselves where they are few, else powers of two, or of ten where numbers are large."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(values) <= 9 and float(np.min(values[1:] / values[:-1])) >= 1.4:
        axes.set_xticks(values)
    else:
        axes.xaxis.set_major_locator(LogLocator(base=10 if values[-1] >= 1e6 else 2, numticks=7))


def amount(value: float) -> str:
    """12288 as 12.3k, 7e9 as 7G; four digits stay as they are."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size and value >= 1e4:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.4g}"


def png(figure: Figure) -> bytes:
    """The figure as a PNG file; equal figures give equal bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, metadata={"Software": None})
    return stream.getvalue()


FEASIBLE, INFEASIBLE, REFERENCE, FRONT = "#8fb8de", "#b5b5b5", "#d9480f", "#1f4e79"

COLOURS = "viridis"

#: Line styles that tell reference chips apart.
DASHES: tuple[Any, ...] = ((0, (6, 3)), (0, (1, 1.6)), (0, (7, 2, 1.5, 2)), (0, (3, 1.5)), (0, (9, 2, 1.5, 2, 1.5, 2)))

Marks = NDArray[np.bool_]


def axis_unit(item: Objective, values: Floats) -> tuple[float, str]:
    """Size and name of the unit of an axis: the prefix that fits the largest value."""
    size, unit = human_unit(item.name, item.unit)
    largest = float(np.max(np.abs(values))) if len(values) else 0.0
    steps = [step for step in PREFIXES.get(item.unit, ()) if largest >= step[0]]
    return steps[-1] if steps else (size, unit)


def axis_label(item: Objective, unit: str, separator: str = ", ") -> str:
    words = item.name.replace("_", " ")
    better = "more is better" if item.direction == "maximize" else "less is better"
    return pretty(f"{words} [{unit}]" if unit else words) + separator + better


def wrapped_title(text: str, width: float) -> str:
    from textwrap import fill

    return fill(text, int(width * 14.5), break_on_hyphens=False)


def reference_name(reference: Reference) -> str:
    if not reference.broken:
        return reference.name
    return f"{reference.name} (breaks {', '.join(reference.broken)})".replace("_", " ")


def draw_empty(axes: Axes, data: FrontData) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    message(axes, lack_words(data))


def lack_words(data: FrontData) -> str:
    if not data.hardware_rows:
        return "no design was evaluated"
    if not data.lacks:
        return "no feasible design"
    parts = ", ".join(f"{name.replace('_', ' ')} by {value:.2%}" for name, value in data.lacks.items())
    return f"no feasible design; the nearest miss breaks {parts}"


def message(axes: Axes, text: str) -> None:
    axes.text(
        0.5, 0.95, wrapped_title(text, 4.5), transform=axes.transAxes, ha="center", va="top", fontsize=11, color=INK,
        zorder=6,
        bbox={"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": "#bbbbbb", "alpha": 0.94},
    )  # fmt: skip
