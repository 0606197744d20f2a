"""Draws the front of a search from the named arrays of `dse.present.figures.data`.

Axes, units and labels are those of `dse.present.figures.axes`; three or more objectives: `parallel` beside it.
What the numbers mean is in `dse.evaluation.result`; which designs are on the front is decided by the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.exploration.variables import Floats
from dse.present.figures.axes import (
    COLOURS,
    FEASIBLE,
    FRONT,
    INFEASIBLE,
    INK,
    REFERENCE,
    WIDE,
    _plain_formatter,
    axis_label,
    axis_unit,
    draw_empty,
    inside,
    lack_words,
    message,
    plain_axes,
    png,
    pretty,
    reference_name,
    ticks,
    wrapped_title,
)
from dse.present.figures.data import FrontData, thinned
from dse.present.figures.parallel import draw_parallel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["front_figure", "front_png"]

#: Most points drawn of a kind that only shows where the others lie.
MOST_POINTS = 20_000
#: Points of the front that the names of reference chips keep clear of.
MOST_AVOIDED = 300
#: How far an axis goes beyond front and references to show other points, over their span.
BESIDE = 0.5

BARS = "#6f93b5"


# Words --------------------------------------------------------------------------------------------------------------


def _title(data: FrontData) -> str:
    if not len(data.front):
        return f"{data.subject}: nothing fits"
    first = data.objectives[0]
    size, unit = axis_unit(first, data.front[:, 0])
    count = len(data.front)
    designs = f"{count:,} design{'s' if count > 1 else ''} on the front"
    return f"{data.subject}: {designs}; best {pretty(f'{_short(data.front[0, 0] / size)} {unit}')}"


def _subtitle(data: FrontData) -> str:
    rows = f"{data.hardware_rows:,} hardware rows" if data.hardware_rows != 1 else "1 hardware row"
    text = f"{rows}, {data.evaluations:,} designs evaluated; {data.limits}"
    if data.omitted:
        text += f"; reference chips that cannot run this: {', '.join(chip.split(':')[0] for chip in data.omitted)}"
    if data.intervals is not None and len(data.front):
        steady = int(np.sum(data.intervals.on_front >= 0.5))
        bars = f"; bars: {data.intervals.level:.0%} intervals" if len(data.objectives) <= 3 else ""
        text += (
            f"{bars}; under {data.intervals.draws} common draws of constants {steady:,} of {data.intervals.designs:,} "
            "designs stay on the front in at least half of them"
        )
    return pretty(text)


# Drawing ------------------------------------------------------------------------------------------------------------


def front_png(data: FrontData) -> bytes:
    """The figure as a PNG file; equal data give equal bytes."""
    return png(front_figure(data))


def front_figure(data: FrontData) -> Figure:
    """One objective: a sorted dot plot; two or three: a scatter, the third as colour; more: parallel coordinates."""
    figure, axes = _canvas(data)
    count = len(data.objectives)
    if count == 1:
        _dots(axes, data)
    elif count <= 3:
        _scatter(axes, data)
    else:
        draw_parallel(axes, data)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK, columnspacing=2.5)
    if 1 < count <= 3 and data.references:
        _label_references(axes, data)  # last: the legend has taken its room from the axes
    return figure


def _canvas(data: FrontData) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 8.6 if len(data.objectives) <= 3 else max(8.6, 1.9 * len(data.objectives))
    figure = Figure(figsize=(width, 6.0), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    title = _title(data)
    title = title if len(title) <= width * 8.4 else title.replace("; ", ";\n")
    figure.suptitle(title, fontsize=13, fontweight="bold", color=INK, x=0.01, ha="left")
    axes.set_title(wrapped_title(_subtitle(data), width), fontsize=9, color="#555555", loc="left", pad=8)
    plain_axes(axes)
    return figure, axes


def _scatter(axes: Axes, data: FrontData) -> None:
    shown = [axis_unit(item, _leading(data)[:, j]) for j, item in enumerate(data.objectives)]
    sizes = np.array([size for size, _ in shown])
    axes.set_xlabel(axis_label(data.objectives[0], shown[0][1]), fontsize=10, color=INK)
    axes.set_ylabel(axis_label(data.objectives[1], shown[1][1]), fontsize=10, color=INK)
    everything = np.concatenate([data.front, data.feasible, data.infeasible, *_reference_values(data)])
    if not len(everything):
        draw_empty(axes, data)
        return
    leading = np.concatenate([_leading(data), *_interval_ends(data)])
    everything = np.concatenate([everything, *_interval_ends(data)])
    _set_range(axes, "x", leading[:, 0] / sizes[0], everything[:, 0] / sizes[0])
    _set_range(axes, "y", leading[:, 1] / sizes[1], everything[:, 1] / sizes[1])
    _cloud(axes, data.infeasible / sizes, "nearest miss of a chip on which nothing fits", INFEASIBLE, "x", 16)
    _cloud(axes, data.feasible / sizes, "feasible, beaten by a design of the front", FEASIBLE, "o", 14)
    if len(data.front):
        _draw_intervals(axes, data, sizes)
        _draw_front(axes, data, data.front / sizes, shown)
    else:
        message(axes, lack_words(data))
    _draw_references(axes, data, sizes)


def _interval_ends(data: FrontData) -> list[Floats]:
    """Ends of the intervals of the front's designs, where they are known: low and high (F', J) each."""
    if data.intervals is None:
        return []
    low, high = data.intervals.low, data.intervals.high
    known = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
    return [low[known], high[known]] if known.any() else []


def _draw_intervals(axes: Axes, data: FrontData, sizes: Floats) -> None:
    """A cross through each design of the front from the low to the high of its objectives on the axes."""
    ends = _interval_ends(data)
    if not ends or data.intervals is None:
        return
    known = np.isfinite(data.intervals.low).all(axis=1)
    points = data.front[known] / sizes
    low, high = (end / sizes for end in ends)
    # a skewed range may put the value itself outside the quantiles: that arm has no length
    errors = [np.maximum(np.stack([points[:, j] - low[:, j], high[:, j] - points[:, j]]), 0.0) for j in (0, 1)]
    axes.errorbar(
        points[:, 0], points[:, 1], xerr=errors[0], yerr=errors[1], fmt="none", ecolor=BARS, elinewidth=0.9,
        alpha=min(1.0, max(0.12, 12.0 / len(points))), zorder=2.2,
        label=f"{data.intervals.level:.0%} interval of a design of the front",
    )  # fmt: skip


def _leading(data: FrontData) -> Floats:
    """The points that decide unit, scale and range of an axis: front and references, else whatever there is."""
    found = np.concatenate([data.front, *_reference_values(data)])
    return found if len(data.front) else np.concatenate([found, data.feasible, data.infeasible])


def _reference_values(data: FrontData) -> list[Floats]:
    return [reference.values[None, :] for reference in data.references]


def _set_range(axes: Axes, axis: str, leading: Floats, everything: Floats) -> None:
    """All leading points with a margin, and of the others what lies close beside them."""
    low, high = float(np.min(leading)), float(np.max(leading))
    logarithmic = low > 0 and high > WIDE * low
    if logarithmic:
        getattr(axes, f"set_{axis}scale")("log")
        everything = everything[everything > 0]

    def along(value: Any) -> Any:
        return np.log10(value) if logarithmic else value

    low, high, others = float(along(low)), float(along(high)), along(everything)
    span = (high - low) or abs(high) * 0.2 or 1.0
    low, high = max(low - BESIDE * span, float(np.min(others))), min(high + BESIDE * span, float(np.max(others)))
    margin = 0.07 * ((high - low) or span)
    ends = low - margin, high + margin
    getattr(axes, f"set_{axis}lim")(*(10.0**end if logarithmic else end for end in ends))
    ticks(axes, axis, logarithmic, ends)


def _cloud(axes: Axes, points: Floats, label: str, colour: str, marker: str, size: float) -> None:
    """Background points; the legend says how many there are and how many lie outside the axes."""
    if not len(points):
        return
    visible = points[inside(axes, points)]
    drawn = thinned(visible, MOST_POINTS)
    outside = len(points) - len(visible)
    notes = [f"{len(points):,}"]
    notes += [f"{len(drawn):,} drawn"] if len(drawn) < len(visible) else []
    notes += [f"{outside:,} outside the axes"] if outside else []
    axes.scatter(
        drawn[:, 0], drawn[:, 1], s=size, c=colour, marker=marker, linewidths=0.9 if marker == "x" else 0,
        label=f"{label} ({', '.join(notes)})",
    )  # fmt: skip


def _draw_front(axes: Axes, data: FrontData, points: Floats, shown: list[tuple[float, str]]) -> None:
    label = f"Pareto front ({len(points):,})"
    size = 58 if len(points) <= 300 else 14
    edge = {"edgecolors": "white", "linewidths": 0.8} if len(points) <= 300 else {"linewidths": 0}
    if len(data.objectives) == 2:
        axes.plot(*_staircase(data), color=FRONT, linewidth=1.2, alpha=0.7, zorder=2.5)
        axes.scatter(points[:, 0], points[:, 1], s=size, c=FRONT, label=label, zorder=3, **edge)
        return
    third = points[:, 2]
    if third.min() == third.max():  # one value needs no scale
        words = data.objectives[2].name.replace("_", " ")
        label += pretty(f", {words} {third[0]:.4g} {shown[2][1]}")
        axes.scatter(points[:, 0], points[:, 1], s=size, c=FRONT, label=label, zorder=3, **edge)
        return
    drawn = axes.scatter(
        points[:, 0], points[:, 1], s=size, c=third, cmap=COLOURS, norm=_norm(third), label=label, zorder=3, **edge
    )
    bar = axes.figure.colorbar(drawn, ax=axes, pad=0.02, aspect=32)
    bar.set_label(axis_label(data.objectives[2], shown[2][1]), fontsize=10, color=INK)
    bar.ax.tick_params(colors=INK, labelsize=9)
    bar.outline.set_visible(False)
    bar.formatter = _plain_formatter()
    bar.ax.yaxis.set_minor_formatter(_plain_formatter())
    bar.update_ticks()


def _short(value: float) -> str:
    """Three digits, and no power of ten below a million: 7,144."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _norm(values: Floats) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = float(values.min()), float(values.max())
    return LogNorm(low, high) if low > 0 and high > WIDE * low else Normalize(low, high)


def _staircase(data: FrontData) -> tuple[Floats, Floats]:
    """The edge of what the front dominates, in the units of the axes: along each step the second objective holds."""
    sizes = [axis_unit(item, _leading(data)[:, j])[0] for j, item in enumerate(data.objectives)]
    signs = np.array([item.sign for item in data.objectives])
    points = data.front[np.lexsort((data.front * signs).T[::-1])]
    x, y = points[:, 0] / sizes[0], points[:, 1] / sizes[1]
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _draw_references(axes: Axes, data: FrontData, sizes: Floats) -> None:
    """Known chips with their names; one that breaks a limit is hollow and says which."""
    if not data.references:
        return
    points = np.concatenate(_reference_values(data)) / sizes
    fits = np.array([not reference.broken for reference in data.references])
    kinds = ((fits, "reference chip, its best plan", REFERENCE), (~fits, "reference chip that breaks a limit", "none"))
    for mask, label, face in kinds:
        if mask.any():
            axes.scatter(
                points[mask, 0], points[mask, 1], s=72, marker="D", facecolors=face, edgecolors=REFERENCE,
                linewidths=1.4, label=label, zorder=4,
            )  # fmt: skip


def _label_references(axes: Axes, data: FrontData) -> None:
    sizes = np.array([axis_unit(item, _leading(data)[:, j])[0] for j, item in enumerate(data.objectives[:2])])
    points = np.concatenate(_reference_values(data))[:, :2] / sizes
    avoid = data.front[:MOST_AVOIDED, :2] / sizes
    _label_points(axes, points, [reference_name(reference) for reference in data.references], avoid)


def _label_points(axes: Axes, points: Floats, texts: Sequence[str], avoid: Floats) -> None:
    """Names beside their points: of several places the first that covers nothing else and stays inside the axes."""
    from matplotlib.transforms import Bbox

    figure: Any = axes.figure
    figure.draw_without_rendering()  # the layout decides where the axes lie
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    marks, front = axes.transData.transform(points), axes.transData.transform(avoid)
    taken: list[Any] = []
    boxes = [Bbox.from_bounds(x - 9, y - 9, 18, 18) for x, y in marks]
    for number, (point, text) in enumerate(zip(points, texts, strict=True)):
        others = boxes[:number] + boxes[number + 1 :]
        best = None
        for dx, dy in ((9, 0), (0, 12), (0, -12), (-9, 0), (9, 11), (-9, 11), (9, -11), (-9, -11), (0, 24), (0, -24)):
            horizontal = "left" if dx > 0 else "right" if dx < 0 else "center"
            vertical = "bottom" if dy > 0 else "top" if dy < 0 else "center"
            label = axes.annotate(
                text, point, (dx, dy), textcoords="offset points", ha=horizontal, va=vertical, fontsize=9,
                color=REFERENCE, zorder=5,
            )  # fmt: skip
            box = label.get_window_extent(renderer)
            outside = not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)
            clashes = 2 * sum(box.overlaps(other) for other in [*taken, *others])
            clashes += bool(np.any([box.padded(6).contains(x, y) for x, y in front]))
            if best is None or clashes + 4 * outside < best[0]:
                if best is not None:
                    best[1].remove()
                best = (clashes + 4 * outside, label, box)
            else:
                label.remove()
            if best[0] == 0:
                break
        assert best is not None
        best[1].set_path_effects(_halo())
        # a name moves with its point but takes no room from the axes
        best[1].set_in_layout(False)
        taken.append(best[2])


def _halo() -> list[Any]:
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=2.5, foreground="white"), Normal()]


def _dots(axes: Axes, data: FrontData) -> None:
    """Feasible designs of one objective from the best downwards, references as lines across."""
    from matplotlib.ticker import MaxNLocator

    item = data.objectives[0]
    values = np.sort(np.concatenate([data.front, data.feasible])[:, 0] * item.sign) * item.sign
    leading = np.concatenate([values, *(reference.values for reference in data.references)])
    size, unit = axis_unit(item, leading)
    axes.set_xlabel("rank among the best plans of all hardware rows", fontsize=10, color=INK)
    axes.set_ylabel(axis_label(item, unit), fontsize=10, color=INK)
    if not len(values):
        draw_empty(axes, data)
        return
    drawn = thinned(np.arange(len(values)), MOST_POINTS)
    best = values[drawn] == values[0]
    bars = [end[:, 0] for end in _interval_ends(data)]
    leading = np.concatenate([leading, *bars])
    _set_range(axes, "y", leading / size, leading / size)
    if bars:
        _draw_bars_of_best(axes, data, size)
    axes.set_xlim(0.5 - 0.02 * len(values), len(values) * 1.02 + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not best.all():
        axes.scatter(
            drawn[~best] + 1, values[drawn][~best] / size, s=18, c=FEASIBLE, linewidths=0,
            label=f"feasible, beaten by the best ({len(data.feasible):,})",
        )  # fmt: skip
    axes.scatter(
        drawn[best] + 1, values[drawn][best] / size, s=58, c=FRONT, edgecolors="white", linewidths=0.8, zorder=3,
        label=f"best ({len(data.front):,})",
    )  # fmt: skip
    # names stand side by side in the order of their heights, so that near lines do not write over each other
    for place, reference in enumerate(sorted(data.references, key=lambda known: float(known.values[0]))):
        height = float(reference.values[0]) / size
        axes.axhline(height, color=REFERENCE, linewidth=1.1, linestyle=(0, (5, 3)), zorder=2)
        axes.annotate(
            reference_name(reference), (1.0 - 0.27 * (place % 3), height), (-4, 3),
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", ha="right", fontsize=9,
            color=REFERENCE, path_effects=_halo(),
        )  # fmt: skip


def _draw_bars_of_best(axes: Axes, data: FrontData, size: float) -> None:
    """The interval of each best design on its rank."""
    assert data.intervals is not None
    values = data.front[:, 0] / size
    low, high = (end[:, 0] / size for end in (data.intervals.low, data.intervals.high))
    errors = np.maximum(np.stack([values - low, high - values]), 0.0)
    axes.errorbar(
        np.arange(len(values)) + 1, values, yerr=np.nan_to_num(errors), fmt="none", ecolor=BARS, elinewidth=1.1,
        zorder=2.2, label=f"{data.intervals.level:.0%} interval of a design of the front",
    )  # fmt: skip
