"""Draws chips from `dse.insight.floor_plan`: the package from above, to scale, beside area and TDP by block.

Areas and the footprint of memory stacks are to scale; where a block lies, and that a die is square, is a drawing:
the model has no placement.  Matplotlib is imported inside functions, as in `dse.present.figures.axes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.base.files import write_atomic
from dse.base.units import format_quantity
from dse.insight.floor_plan import GROUPS, Block, ChipComparison, FloorPlan
from dse.present.figures.axes import INK, pretty
from dse.present.figures.die import Box, die_boxes
from dse.present.text.chip import BLOCK_WORDS, counted, in_binary, short_number
from dse.present.text.words import in_bytes, percent
from hw_models.physical.cost import market

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["chip_comparison_figure", "floor_plan_figure", "save_chip_comparison", "save_figure", "save_floor_plan"]

#: One colour a block, the same on the die and in the bars.
COLOURS: Mapping[str, str] = {
    "arrays": "#1f4e79", "vector": "#5b9bd5", "local_sram": "#7fc4a0", "shared_sram": "#2f8f6b", "cores": "#e0c568",
    "noc": "#e08e45", "hbm_phy": "#7b4f9d", "hbm_control": "#b69bcf", "hbm": "#7b4f9d", "links": "#c8504b",
    "die_to_die": "#eba39f",
    "other": "#8f9aa3", "unattributed": "#e6e3dc", "leakage": "#4d4d4d", "idle": "#b9b9b9",
}  # fmt: skip
SUBSTRATE, STACK, EDGE = "#f4f1ea", "#d9cfe6", "#ffffff"
#: Shorter words where there is little room.
SHORT = {
    "local_sram": "local SRAM", "other": "host, clocks, test", "unattributed": "wires, margins",
    "idle": "clock root, refresh", "cores": "control",
}  # fmt: skip
_MM = 1e3


# Drawing -------------------------------------------------------------------------------------------------------------


def save_floor_plan(plan: FloorPlan, path: str | Path) -> Path:
    """The picture of one chip, as PNG or SVG by the path's ending."""
    return save_figure(floor_plan_figure(plan), path)


def save_chip_comparison(found: ChipComparison, path: str | Path) -> Path:
    """The picture of two chips, as PNG or SVG by the path's ending."""
    return save_figure(chip_comparison_figure(found), path)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Writes a figure; equal figures give equal bytes."""
    import io

    from matplotlib import rc_context

    place, stream = Path(path), io.BytesIO()
    kind = place.suffix.removeprefix(".")
    if kind not in ("png", "svg"):
        raise ValueError(f"path: found {str(path)!r}, allowed: a file that ends with .png or .svg")
    meta: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None}
    with rc_context({"svg.hashsalt": "dse"}):
        figure.savefig(stream, format=kind, dpi=150, metadata=meta)
    write_atomic(place, stream.getvalue())
    return place


def _canvas(width: float, height: float, title: str, subtitle: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.025, 1 - 0.28 / height, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.025, 1 - 0.60 / height, subtitle, fontsize=9.5, color="#555555", va="top")
    return figure


def floor_plan_figure(plan: FloorPlan) -> Figure:
    """Package to scale on the left, area and TDP by block as bars on the right, the numbers below."""
    figure = _canvas(12.4, 7.1, _title(plan), _subtitle(plan))
    _draw_package(figure, (0.02, 0.20, 0.475, 0.66), plan, _extent([plan]))
    bars = figure.add_axes((0.525, 0.185, 0.46, 0.675))
    _draw_bars(bars, [(f"area {_amount(plan.fact('die_area'), 'm2')}", plan.area, "m2"),
                      (f"TDP {_amount(plan.fact('tdp'), 'W')}", plan.power, "W")])  # fmt: skip
    _draw_facts(figure, plan)
    return figure


def _title(plan: FloorPlan) -> str:
    share: dict[str, float] = {}
    for block in plan.area:
        share[GROUPS[block.name]] = share.get(GROUPS[block.name], 0.0) + block.share
    parts = [("compute", ("compute",)), ("SRAM", ("memory",)), ("interfaces", ("hbm", "links", "other"))]
    words = [f"{name} {percent(math.fsum(share.get(group, 0.0) for group in of), 0)}" for name, of in parts]
    return pretty(
        f"{plan.chip.name}: {_amount(plan.fact('die_area'), 'm2')}, {_amount(plan.fact('tdp'), 'W')}; of the die "
        + ", ".join(words)
    )


def _subtitle(plan: FloorPlan) -> str:
    spare = plan.spare_cores
    pale = " (pale)" if any(box.spare for box in die_boxes(plan)) else ""
    spares = f"enabled parts and {percent(spare, 0)} spare cores{pale}" if spare else "no spare cores"
    return (
        f"{plan.chip.process} and {plan.chip.hbm}, {counted(plan.fact('cores'), 'core')} at "
        f"{format_quantity(plan.fact('clock'), 'Hz')}; {spares}. Areas to scale; places, and that the die is square, "
        "are drawn."
    )


def _amount(value: float, unit: str) -> str:
    return pretty(format_quantity(value, unit, digits=3))


def _stack_size(plan: FloorPlan) -> tuple[float, float] | None:
    """Width and height of a memory stack's footprint [m], of the usual shape 10 to 11; None where it is not known."""
    if not plan.cost or not any(block.name == "hbm_phy" for block in plan.area):
        return None
    area = float(market(plan.chip.process, plan.chip.hbm).stack_area)
    return math.sqrt(area * 10 / 11), math.sqrt(area * 11 / 10)


def _extent(plans: Sequence[FloorPlan]) -> tuple[float, float]:
    """Half the width and half the height that hold every package with a rim [m]."""
    wide, tall = [], []
    for plan in plans:
        side, stack = _die_side(plan), _stack_size(plan)
        reach = [size / 2 for size in _logic_size(plan)]
        if stack:
            columns, rows = _stack_columns(plan)
            reach[0] += (stack[0] + _gap(side)) * max(columns)
            reach[1] = max(reach[1], rows * (stack[1] + _gap(side)) / 2)
        wide.append(reach[0])
        tall.append(reach[1])
    rim = 0.06 * max(wide)
    return max(wide) + rim, max(tall) + rim


def _gap(side: float) -> float:
    return 0.02 * side


def _die_side(plan: FloorPlan) -> float:
    """Side of one square die [m]."""
    return math.sqrt(plan.fact("die_area") / int(plan.chip.dies))


def _grid(plan: FloorPlan) -> tuple[int, int]:
    """Columns and rows of dies: two lie one above the other, four in a square."""
    columns = math.isqrt(int(plan.chip.dies))
    return columns, math.ceil(int(plan.chip.dies) / columns)


def _logic_size(plan: FloorPlan) -> tuple[float, float]:
    """Width and height of all dies with the gaps between them [m]."""
    side, (columns, rows) = _die_side(plan), _grid(plan)
    return columns * side + (columns - 1) * _gap(side) / 2, rows * side + (rows - 1) * _gap(side) / 2


def _corners(plan: FloorPlan) -> list[tuple[float, float]]:
    """Lower left corner of every die about the middle of the package [m]."""
    side, (columns, _), (width, height) = _die_side(plan), _grid(plan), _logic_size(plan)
    step = side + _gap(side) / 2
    return [
        (-width / 2 + step * (i % columns), height / 2 - side - step * (i // columns))
        for i in range(int(plan.chip.dies))
    ]


def _stack_columns(plan: FloorPlan) -> tuple[tuple[int, int], int]:
    """Columns of stacks left and right of the die, and most stacks in a column."""
    count = int(plan.chip.hbm_stacks)
    left = (count + 1) // 2
    most = max(1, round(1.25 * _logic_size(plan)[1] / (_stack_size(plan) or (1.0, 1.0))[1]))
    return (math.ceil(left / most), math.ceil((count - left) / most)), min(left, most)


def _draw_package(
    figure: Figure, place: tuple[float, float, float, float], plan: FloorPlan, extent: tuple[float, float]
) -> Axes:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch, Rectangle

    axes = figure.add_axes(place)
    side, stack = _die_side(plan), _stack_size(plan)
    half, tall = extent[0] * _MM, extent[1] * _MM
    ruler = 0.16 * half
    axes.set_xlim(-half, half)
    axes.set_ylim(-tall - ruler, tall)
    axes.set_aspect("equal")
    axes.set_axis_off()
    pad = 0.03 * half
    axes.add_patch(
        FancyBboxPatch(
            (-half + pad / 2, -tall + pad / 2), 2 * half - pad, 2 * tall - pad,
            boxstyle=f"round,pad=0,rounding_size={pad}", facecolor=SUBSTRATE, edgecolor="#ddd6c8", linewidth=1.0,
            zorder=0,
        )
    )  # fmt: skip
    width_inch, height_inch = figure.get_size_inches() * place[2:]
    inch = min(width_inch / (2 * half), height_inch / (2 * tall + ruler)) * _MM
    for x, y, width, height in _stack_places(plan, stack) if stack else []:
        axes.add_patch(
            Rectangle((x * _MM, y * _MM), width * _MM, height * _MM, facecolor=STACK, edgecolor=COLOURS["hbm"], lw=1.0)
        )
        axes.text(
            (x + width / 2) * _MM, (y + height / 2) * _MM,
            f"{plan.chip.hbm.upper()}\n{in_bytes(float(plan.chip.hbm_stack_capacity))}", ha="center", va="center",
            fontsize=7.5, color="#4b3563",
        )  # fmt: skip
    boxes, corners = die_boxes(plan), _corners(plan)
    faces = [to_rgba(COLOURS[box.block], 0.38 if box.spare else 1.0) for box in boxes]
    widths = [0.25 if min(box.width, box.height) < 0.012 * side else 0.6 for box in boxes]
    for left, low in corners:
        shapes = [_outline(box, left, low) for box in boxes]
        axes.add_collection(
            PolyCollection(shapes, facecolors=faces, edgecolors=EDGE, linewidths=widths), autolim=False
        )
        axes.add_patch(Rectangle((left * _MM, low * _MM), side * _MM, side * _MM, fill=False, edgecolor=INK, lw=1.1))
    _name_blocks(axes, boxes, corners[0], inch=inch)
    length = 10.0 if half > 15 else 5.0
    x, y = -half + pad, -tall - 0.55 * ruler
    axes.plot([x, x + length], [y, y], color=INK, linewidth=2.2, solid_capstyle="butt")
    axes.text(x + length + 0.02 * half, y, f"{length:g} mm", fontsize=8.5, color=INK, va="center")
    return axes


def _outline(box: Box, left: float, low: float) -> list[tuple[float, float]]:
    """Corners of a box on a die whose lower left corner is given [mm]."""
    x, y, width, height = ((left + box.x) * _MM, (low + box.y) * _MM, box.width * _MM, box.height * _MM)
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def _stack_places(plan: FloorPlan, stack: tuple[float, float]) -> list[tuple[float, float, float, float]]:
    """Rectangles of the memory stacks left and right of the die."""
    count = int(plan.chip.hbm_stacks)
    left = (count + 1) // 2
    (_, _), most = _stack_columns(plan)
    gap, (width, height) = _gap(_die_side(plan)), stack
    edge = _logic_size(plan)[0] / 2
    found = []
    for of_side, sign in ((left, -1), (count - left, 1)):
        for number in range(of_side):
            column, row = divmod(number, most)
            rows = min(most, of_side - column * most)
            x = sign * (edge + gap + column * (width + gap)) - (width if sign < 0 else 0.0)
            y = (rows / 2 - 1 - row) * (height + gap) + gap / 2
            found.append((x, y, width, height))
    return found


def _name_blocks(axes: Axes, boxes: Sequence[Box], corner: tuple[float, float], *, inch: float) -> None:
    """Names inside the largest box of each block, where they fit; inch: inches of paper for a metre of die."""
    largest: dict[str, Box] = {}
    for box in boxes:
        if box.block not in largest or box.area > largest[box.block].area:
            largest[box.block] = box
    for name, box in largest.items():
        across, along = sorted((box.width * inch, box.height * inch))
        words = next((text for text in (BLOCK_WORDS[name], SHORT.get(name, "")) if 0.066 * len(text) < along), "")
        if words and across > 0.12:
            axes.text(
                (corner[0] + box.x + box.width / 2) * _MM, (corner[1] + box.y + box.height / 2) * _MM, words,
                ha="center", va="center_baseline", fontsize=8 if across > 0.15 else 7, color=_on(name),
                rotation=90 if box.height > box.width else 0, rotation_mode="anchor",
            )  # fmt: skip


def _on(name: str) -> str:
    """White on dark colours, ink on light ones."""
    red, green, blue = (int(COLOURS[name][i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else INK


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, Sequence[Block], str]]) -> None:
    """A bar of 100% a whole, its blocks from the top, with names beside them that do not touch."""
    pitch, width = 1.0, 0.13
    for number, (title, blocks, unit) in enumerate(bars):
        x, top = number * pitch, 1.0
        centres = []
        for block in blocks:
            bottom = top - block.share
            axes.bar(
                x, block.share, width, bottom, align="edge", color=COLOURS[block.name], edgecolor=EDGE, linewidth=0.8
            )
            centres.append((top + bottom) / 2)
            top = bottom
        for block, centre, height in zip(blocks, centres, spread(centres, 0.052), strict=True):
            axes.plot(
                [x + width + 0.01, x + width + 0.035, x + width + 0.06], [centre, height, height], color="#999999",
                linewidth=0.7,
            )  # fmt: skip
            words = SHORT.get(block.name, BLOCK_WORDS[block.name])
            axes.text(x + width + 0.07, height, words, fontsize=8.6, color=INK, va="center")
            for right, cell in ((0.81, short_number(block.value, unit)), (0.94, percent(block.share, 0))):
                axes.text(x + right * pitch, height, cell, fontsize=8.6, color="#555555", va="center", ha="right")
        axes.text(x, 1.03, title, fontsize=11, fontweight="bold", color=INK, va="bottom")
        kind = {"m2": "mm², logic die", "W": "W, package with HBM"}[unit]
        axes.text(x + 0.94 * pitch, 1.03, kind, fontsize=8.6, color="#555555", va="bottom", ha="right")
    axes.set_xlim(-0.02, pitch * len(bars))
    axes.set_ylim(-0.06, 1.06)
    axes.set_axis_off()


def spread(centres: Sequence[float], least: float) -> list[float]:
    """Heights near `centres`, which fall, at least `least` apart: clusters of near ones are spread about their mean."""
    groups: list[list[float]] = []
    for centre in centres:
        groups.append([centre])
        while len(groups) > 1 and _middle(groups[-2]) - _middle(groups[-1]) < least * (
            len(groups[-2]) + len(groups[-1])
        ) / 2:
            last = groups.pop()
            groups[-1] += last
    found = []
    for group in groups:
        start = _middle(group) + least * (len(group) - 1) / 2
        found += [start - least * i for i in range(len(group))]
    return found


def _middle(group: Sequence[float]) -> float:
    return math.fsum(group) / len(group)


def _draw_facts(figure: Figure, plan: FloorPlan) -> None:
    """Peaks, memories, links and cost in four columns."""
    peaks = [f"{peak.precision}  {_amount(peak.flops, 'FLOP/s')}" for peak in plan.peaks[:3]]
    memories = [
        f"HBM  {in_bytes(plan.fact('hbm_capacity'))} at {_amount(plan.fact('hbm_bandwidth'), 'B/s')}",
        f"shared SRAM  {in_binary(plan.fact('shared_sram'))} at {_amount(plan.fact('shared_sram_bandwidth'), 'B/s')}",
        f"cores  {in_binary(plan.fact('local_sram'))}",
    ]
    ratios = [
        f"{plan.peaks[0].hbm_bytes_per_flop:.2g} B of HBM per FLOP of {plan.peaks[0].precision}",
        f"{counted(float(plan.chip.links), 'link')}, {_amount(plan.fact('link_bandwidth'), 'B/s')} per direction",
        pretty(f"{plan.fact('power_density') / 1e6:.2f} W/mm2"),
    ]
    columns = [("Peak, dense", peaks), ("Memory", memories), ("Balance", ratios), ("To make one", _making(plan))]
    for x, (title, lines) in zip((0.03, 0.235, 0.495, 0.755), columns, strict=True):
        figure.text(x, 0.15, title, fontsize=9.5, fontweight="bold", color=INK, va="top")
        figure.text(x, 0.112, "\n".join(lines), fontsize=9, color="#333333", va="top", linespacing=1.45)


def _making(plan: FloorPlan) -> list[str]:
    if not plan.cost:
        return [f"no prices of {plan.chip.process}"]
    return [
        f"{_amount(plan.fact('chip_cost'), 'USD')}, {plan.fact('embodied_carbon'):,.0f} kg CO2",
        f"yield {percent(plan.fact('die_yield'), 0)}, {plan.fact('good_dies_per_wafer'):,.0f} of "
        f"{plan.fact('dies_per_wafer'):,.0f} dies work",
        f"{percent(plan.fact('reticle_share'), 0)} of the reticle",
    ]

# Two chips -----------------------------------------------------------------------------------------------------------


def chip_comparison_figure(found: ChipComparison) -> Figure:
    """Both packages at one scale; below, area and TDP of both as bars on one axis each."""
    a, b = found.a, found.b
    ratios = [b.fact(name) / a.fact(name) for name in ("die_area", "tdp")]
    title = f"{b.chip.name} has {ratios[0]:.3g} times the die and {ratios[1]:.3g} times the TDP of {a.chip.name}"
    scale = "Both packages at one scale, areas to scale; places, and that the die is square, are drawn."
    figure = _canvas(12.4, 9.0, title, scale)
    extent = _extent([a, b])
    for x, plan in ((0.02, a), (0.51, b)):
        axes = _draw_package(figure, (x, 0.385, 0.47, 0.50), plan, extent)
        axes.set_title(
            f"{plan.chip.name}: {_amount(plan.fact('die_area'), 'm2')}, {_amount(plan.fact('tdp'), 'W')}, "
            f"{_amount(plan.peaks[0].flops, 'FLOP/s')} {plan.peaks[0].precision}", fontsize=11, fontweight="bold",
            color=INK,
        )  # fmt: skip
    for place, name, unit, words in (
        (0.215, "area", "m2", "area of the logic die [mm²]"), (0.075, "power", "W", "TDP with HBM [W]")
    ):  # fmt: skip
        _draw_pair(figure.add_axes((0.13, place, 0.845, 0.105)), found, name, unit=unit, words=words)
    _draw_key(figure, [block.name for plan in (a, b) for blocks in (plan.area, plan.power) for block in blocks])
    return figure


def _draw_pair(axes: Axes, found: ChipComparison, table: str, *, unit: str, words: str) -> None:
    factor = 1e6 if unit == "m2" else 1.0
    for y, plan in ((1, found.a), (0, found.b)):
        start = 0.0
        for block in getattr(plan, table):
            value = block.value * factor
            axes.barh(y, value, 0.72, start, color=COLOURS[block.name], edgecolor=EDGE, linewidth=0.8)
            if block.share > 0.035:
                axes.text(
                    start + value / 2, y, f"{value:,.0f}", ha="center", va="center", fontsize=8, color=_on(block.name)
                )
            start += value
        axes.text(start, y, f"  {start:,.0f}", va="center", fontsize=9, fontweight="bold", color=INK)
    axes.set_yticks([1, 0], [found.a.chip.name, found.b.chip.name], fontsize=9.5, color=INK)
    axes.set_title(words, fontsize=9.5, color="#555555", loc="left", pad=4)
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_xlim(0, 1.06 * max(axes.get_xlim()[1], 1e-9))


def _draw_key(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    shown = [name for name in COLOURS if name in names and not (name == "hbm" and "hbm_phy" in names)]
    words = {"hbm_phy": "HBM and its PHYs"} if "hbm" in names else {}
    handles = [Patch(facecolor=COLOURS[name], label=words.get(name, BLOCK_WORDS[name])) for name in shown]
    figure.legend(
        handles=handles, loc="lower center", ncols=7, frameon=False, fontsize=8.4, labelcolor=INK, handlelength=1.1,
        columnspacing=1.3, bbox_to_anchor=(0.5, 0.002),
    )  # fmt: skip
