"""Draws a network from its report: a box a layer, as wide as its share of the work, and what feeds what.

Matplotlib is imported inside functions, as in `dse.present.figures.front`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.base.units import format_quantity
from dse.insight.network_report import PHASES, Layer, Link, NetworkReport, OperatorLine
from dse.present.figures.axes import INK, pretty
from dse.present.figures.chip import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BoxPlace", "kind_of", "network_figure", "places", "save_network"]

#: Colours by what most of a layer's products are (Okabe and Ito, paler), and of layers without products.
COLOURS = {
    "convolution": "#8ab6d6", "depthwise or grouped convolution": "#9fd3c0", "linear": "#f0c989",
    "attention": "#e3a9c4", "recurrent": "#c3b1e1", "no product": "#dddddd",
}  # fmt: skip
#: Most boxes in a column, and most layers whose operators are drawn inside.
COLUMN, OPEN = 22, 5
#: Widths in the units of the drawing: of a column, of the widest and the narrowest box; height of a row and a box.
PITCH, WIDEST, NARROWEST, ROW, HEIGHT = 12.0, 4.6, 0.35, 1.0, 0.66
#: Right edges of the numbers beside a box, from the box's column; and what they are.
NUMBERS = ((5.6, "times"), (7.3, "parameters"), (8.9, "FLOP"), (10.0, "FLOP/B"))
#: Room left of the first column for arcs, and width of a letter.
LEFT, LETTER = 2.6, 0.15
#: Inches of a unit, across and down.
ACROSS, DOWN = 0.62, 0.42


@dataclass(frozen=True)
class BoxPlace:
    """A layer's box: left, bottom, width, height in units of the drawing, and the column it is in."""

    x: float
    y: float
    width: float
    height: float
    column: int


def kind_of(operators: Sequence[OperatorLine]) -> str:
    """What most of the forward FLOP of some operators are."""
    found: dict[str, float] = {}
    for line in operators:
        found[_kind(line)] = found.get(_kind(line), 0.0) + line.flops
    found.pop("no product", None)
    return max(found, key=lambda kind: found[kind]) if found else "no product"


def _kind(line: OperatorLine) -> str:
    words = line.name.lower()
    if not line.flops:
        return "no product"
    if any(word in words for word in ("attention", "query", "score", "context", "q k", "p v", "softmax")):
        return "attention"
    if any(word in words for word in ("lstm", "gru", "recurrent")):
        return "recurrent"
    if "conv" in words or "depthwise" in words or "pointwise" in words:
        grouped = "(" in line.size
        return "depthwise or grouped convolution" if grouped else "convolution"
    return "linear"


def places(layers: Sequence[Layer]) -> tuple[BoxPlace, ...]:
    """Boxes from above to below in columns of equal height; their width is the share of the largest layer's FLOP.

    A layer that is there several times counts once: the box is that of one of them."""
    columns = max(1, math.ceil(len(layers) / COLUMN))
    rows = math.ceil(len(layers) / columns)
    most = max((_flops(layer) for layer in layers), default=0.0) or 1.0
    found = []
    for number, layer in enumerate(layers):
        column, row = divmod(number, rows)
        width = max(NARROWEST, WIDEST * _flops(layer) / most)
        middle = column * PITCH + WIDEST / 2
        found.append(BoxPlace(middle - width / 2, -row * ROW - HEIGHT, width, HEIGHT, column))
    return tuple(found)


def _flops(layer: Layer) -> float:
    return layer.phase(*PHASES).flops


def save_network(report: NetworkReport, path: str | Path) -> Path:
    """The picture as a file, PNG or SVG by its ending."""
    return save_figure(network_figure(report), path)


def network_figure(report: NetworkReport) -> Figure:
    """Layers as boxes with their numbers, skips as arcs on the left, and for few layers their operators."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    boxes = places(report.layers)
    columns = boxes[-1].column + 1
    open_ = len(report.layers) <= OPEN
    lines = [_largest(layer) if open_ else [] for layer in report.layers]
    if open_:
        boxes = _spread(boxes, [len(each) for each in lines])
    low = min(box.y for box in boxes) - 0.6
    width = columns * PITCH + (6.0 if open_ else 0.0) + 0.9
    size = (max(7.0, width * ACROSS), max(3.6, -low * DOWN + 2.1))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    title = _wrap(_title(report), 0.88 * size[0], 12)
    figure.suptitle(title, fontsize=12, fontweight="bold", color=INK, x=0.01, ha="left")
    axes = figure.add_subplot()
    axes.set_title(_wrap(_subtitle(report), size[0], 8.5), fontsize=8.5, color="#555555", loc="left", pad=6)
    axes.axis("off")
    _draw_links(axes, boxes, report.links)
    for layer, box in zip(report.layers, boxes, strict=True):
        _draw_box(axes, layer, box)
    for layer, box, shown in zip(report.layers, boxes, lines, strict=True):
        _draw_operators(axes, layer, box, shown)
    _draw_headings(axes, columns)
    axes.set_xlim(-LEFT, width - LEFT)
    axes.set_ylim(low, 0.9)
    _legend(
        figure, [kind_of(layer.operators) for layer in report.layers] + [_kind(one) for each in lines for one in each]
    )
    return figure


def _title(report: NetworkReport) -> str:
    forward = report.phase("forward").flops / report.micro_batch
    return (
        f"{report.name}: {_short(report.parameters)} parameters, {format_quantity(forward, 'FLOP', digits=3)} forward"
        f" a sample ({report.sample})"
    )


def _subtitle(report: NetworkReport) -> str:
    many = "a sample" if report.micro_batch == 1 else f"{report.micro_batch} samples"
    return (
        f"Width of a box and numbers: one layer, forward and backward, {many}. Arrows and arcs (skips) are as thick as "
        "the root of the elements that they carry."
    )


def _short(number: float) -> str:
    """25,557,032 as 25.6M."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def _draw_box(axes: Axes, layer: Layer, box: BoxPlace) -> None:
    from matplotlib.patches import FancyBboxPatch
    from matplotlib.patheffects import Normal, Stroke

    many = min(layer.count, 3)
    for behind in range(many - 1, -1, -1):  # a pile where there are several
        shift = 0.09 * behind
        axes.add_patch(
            FancyBboxPatch(
                (box.x + shift, box.y + shift), box.width, box.height, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=COLOURS[kind_of(layer.operators)], edgecolor="#555555", linewidth=0.7,
                zorder=3 - 0.1 * behind,
            )
        )  # fmt: skip
    left, middle = box.column * PITCH, box.y + box.height / 2
    fits = LETTER * len(layer.name) < box.width
    at, side = (left + WIDEST / 2, "center") if fits else (left + WIDEST / 2 - box.width / 2 - 0.12, "right")
    axes.text(
        at, middle, pretty(layer.name), ha=side, va="center", fontsize=7.5, color=INK, zorder=5,
        path_effects=[] if fits else [Stroke(linewidth=2.5, foreground="white"), Normal()],
    )  # fmt: skip
    work = layer.phase(*PHASES)
    texts = (
        f"{layer.count}" if layer.count > 1 else "", _short(layer.parameters) if layer.parameters else "-",
        format_quantity(work.flops, "FLOP", digits=3) if work.flops else "-",
        "-" if work.intensity is None else _three(work.intensity),
    )  # fmt: skip
    for (right, _), text in zip(NUMBERS, texts, strict=True):
        axes.text(left + right, middle, text, ha="right", va="center", fontsize=7, color="#333333", zorder=5)


def _three(number: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _draw_headings(axes: Axes, columns: int) -> None:
    """What the numbers beside the boxes are."""
    for column in range(columns):
        for right, words in NUMBERS:
            axes.text(column * PITCH + right, 0.45, words, ha="right", va="center", fontsize=7, color="#777777")


def _wrap(text: str, width: float, size: float) -> str:
    """Lines that fit `width` [inch] at a font of `size` points; a letter is about half as wide as it is high."""
    from textwrap import fill

    return fill(pretty(text), max(20, int(width * 72 / (0.56 * size))))


def _draw_links(axes: Axes, boxes: Sequence[BoxPlace], links: Sequence[Link]) -> None:
    from matplotlib.patches import FancyArrowPatch

    most = max((link.elements for link in links), default=1)
    faint = 0.75 if len(links) < 4 * len(boxes) else 0.2
    for link in links:
        start, end = boxes[link.source], boxes[link.target]
        width = 0.5 + 1.8 * math.sqrt(link.elements / most)
        if link.target == link.source + 1 and start.column == end.column:
            middle = start.column * PITCH + WIDEST / 2
            arrow = FancyArrowPatch(
                (middle, start.y), (middle, end.y + end.height), arrowstyle="-|>", mutation_scale=7, shrinkA=0,
                shrinkB=0, color="#777777", linewidth=width, zorder=1,
            )  # fmt: skip
        elif link.target == link.source + 1:
            arrow = FancyArrowPatch(
                (start.x + start.width / 2, start.y), (end.x + end.width / 2, end.y + end.height), arrowstyle="-|>",
                mutation_scale=7, connectionstyle="arc3,rad=0.0", color="#bbbbbb", linewidth=width, linestyle=":",
                zorder=1,
            )  # fmt: skip
        else:
            arrow = FancyArrowPatch(
                path=_arc(link, start, end), arrowstyle="-|>", mutation_scale=6, color="#c0504d", alpha=faint,
                linewidth=width, zorder=0.5, fill=False,
            )  # fmt: skip
        axes.add_patch(arrow)


def _arc(link: Link, start: BoxPlace, end: BoxPlace) -> Any:
    """From the left side of a box to that of another; it stands off farther the more rows it jumps."""
    from matplotlib.path import Path as Curve

    ends = [(box.x, box.y + box.height / 2) for box in (start, end)]
    if start.column != end.column:  # out of the first box on its right, into the other on its left
        ends[0] = (start.x + start.width, ends[0][1])
        middle = (ends[0][0] + ends[1][0]) / 2
        points = [ends[0], (middle, ends[0][1]), (middle, ends[1][1]), ends[1]]
    else:
        off = start.column * PITCH - min(LEFT, 0.35 * math.sqrt(link.target - link.source) + 0.3)
        points = [ends[0], (off, ends[0][1]), (off, ends[1][1]), ends[1]]
    return Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])


# Operators of few layers ----------------------------------------------------------------------------------------------


def _largest(layer: Layer, most: int = 12) -> list[OperatorLine]:
    """Operators in their order; of many, those with most FLOP."""
    chosen = [line for line in layer.operators if line.flops] or list(layer.operators)
    ranked = sorted(chosen, key=lambda line: -line.flops)[:most]
    return [line for line in layer.operators if line in ranked]


def _spread(boxes: Sequence[BoxPlace], lines: Sequence[int]) -> tuple[BoxPlace, ...]:
    """Boxes of a single column as high as the operators beside them need."""
    found, top = [], 0.0
    for box, number in zip(boxes, lines, strict=True):
        height = max(HEIGHT, 0.52 * number)
        found.append(BoxPlace(box.x, top - height, box.width, height, box.column))
        top -= height + ROW - HEIGHT + 0.25
    return tuple(found)


def _draw_operators(axes: Axes, layer: Layer, box: BoxPlace, lines: Sequence[OperatorLine]) -> None:
    """Bars of a layer's operators, beside its numbers: their share of its forward FLOP."""
    from matplotlib.patches import Rectangle

    if not lines:
        return
    step = box.height / len(lines)
    most = max(line.flops for line in lines) or 1.0
    left = box.column * PITCH + NUMBERS[-1][0] + 0.7
    for number, line in enumerate(lines):
        bottom = box.y + box.height - (number + 1) * step
        axes.add_patch(
            Rectangle((left, bottom + 0.12 * step), max(0.04, 2.2 * line.flops / most), 0.76 * step,
                      facecolor=COLOURS[_kind(line)], edgecolor="#777777", linewidth=0.5, zorder=3)
        )  # fmt: skip
        share = line.flops / (layer.phase("forward").flops or 1.0)
        many = line.size.count(";") + 1
        size = line.size if many <= 2 else f"{many} products"
        text = f"{line.name}  {size}  {share:.0%}" if line.flops else line.name
        axes.text(left + 2.35, bottom + step / 2, pretty(text), va="center", fontsize=6.8, color="#333333", zorder=5)


def _legend(figure: Figure, kinds: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, edgecolor="#555555", linewidth=0.6, label=kind)
        for kind, colour in COLOURS.items()
        if kind in kinds
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=8, labelcolor=INK)
