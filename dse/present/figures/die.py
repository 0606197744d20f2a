"""Where the blocks of a die lie: rectangles to scale, in the order of a floor plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dse.insight.floor_plan import FloorPlan

__all__ = ["Box", "die_boxes", "tiles"]

#: Blocks inside a core, and most cores drawn one by one; beyond, a tile stands for several.
CORE, MOST_TILES = ("arrays", "local_sram", "vector", "cores"), 320


@dataclass(frozen=True)
class Box:
    """A rectangle of a block: lower left corner, width and height [m]; spare: a core beyond the enabled ones."""

    block: str
    x: float
    y: float
    width: float
    height: float
    spare: bool = False

    @property
    def area(self) -> float:
        """Width times height [m2]."""
        return self.width * self.height


def die_boxes(plan: FloorPlan) -> tuple[Box, ...]:
    """Boxes that tile one square die of the package: the boxes of a block have its area on the die, none overlap.

    Host interface above, links below, memory interfaces on both sides, then the frame of what no block explains;
    inside, cores around a band of shared SRAM between two bands of NoC."""
    area = {block.name: block.value / int(plan.chip.dies) for block in plan.area}
    side = math.sqrt(math.fsum(area.values()))
    found: list[Box] = []
    left, bottom, width, height = 0.0, 0.0, side, side
    for name, at_top in (("other", True), ("links", False), ("die_to_die", False)):
        strip = area.get(name, 0.0) / width
        found += [Box(name, left, bottom + height - strip if at_top else bottom, width, strip)] if strip else []
        bottom, height = bottom + (0.0 if at_top else strip), height - strip
    sides = 2 if int(plan.chip.hbm_stacks) > 1 else 1
    for name in ("hbm_phy", "hbm_control"):
        strip = area.get(name, 0.0) / sides / height
        if strip:
            found += [Box(name, left, bottom, strip, height)]
            found += [Box(name, left + width - strip, bottom, strip, height)] if sides == 2 else []
            left, width = left + strip, width - sides * strip
    frame = _frame_width(width, height, area.get("unattributed", 0.0))
    if frame:
        found += _frame(left, bottom, width, height, frame)
        left, bottom, width, height = left + frame, bottom + frame, width - 2 * frame, height - 2 * frame
    return (*found, *_centre(plan, area, left, bottom, width=width, height=height))


def _frame_width(width: float, height: float, area: float) -> float:
    """Width t of a frame of that area inside a rectangle: (W - 2t)(H - 2t) = W H - A."""
    half = (width + height) / 2.0
    return (half - math.sqrt(max(half * half - area, 0.0))) / 2.0


def _frame(x: float, y: float, width: float, height: float, frame: float) -> list[Box]:
    inner = height - 2 * frame
    return [
        Box("unattributed", x, y, width, frame),
        Box("unattributed", x, y + height - frame, width, frame),
        Box("unattributed", x, y + frame, frame, inner),
        Box("unattributed", x + width - frame, y + frame, frame, inner),
    ]


def _centre(
    plan: FloorPlan, area: Mapping[str, float], x: float, y: float, *, width: float, height: float
) -> list[Box]:
    """Cores above and below the band of shared SRAM and NoC."""
    noc, shared = (area.get(name, 0.0) / width for name in ("noc", "shared_sram"))
    inside = {name: area[name] for name in CORE if name in area}
    total = math.fsum(inside.values())
    spare = plan.spare_cores
    enabled = max(1, round(plan.fact("cores") / int(plan.chip.dies)))
    cores = max(enabled, round(enabled * (1.0 + spare)))
    drawn = min(cores, MOST_TILES)
    kept = round(drawn * enabled / cores)
    upper = (drawn + 1) // 2
    rows = height - noc - shared
    found: list[Box] = []
    lower_height = rows * (drawn - upper) / drawn
    places = [(y + lower_height + noc + shared, rows - lower_height, upper), (y, lower_height, drawn - upper)]
    number = 0
    for start, room, count in places:
        for tile in tiles(x, start, width, height=room, count=count) if count and total else []:
            found += _core(tile, inside, spare=number >= kept)
            number += 1
    middle = y + lower_height
    for name, thickness in (("noc", noc / 2), ("shared_sram", shared), ("noc", noc / 2)):
        if thickness:
            found.append(Box(name, x, middle, width, thickness))
            middle += thickness
    return found


def tiles(x: float, y: float, width: float, *, height: float, count: int) -> list[tuple[float, float, float, float]]:
    """`count` equal areas that fill a rectangle, near squares, from the top left: (x, y, width, height) each."""
    rows = min(count, max(1, round(math.sqrt(count * height / width)))) if width and height else 1
    counts = [count // rows + (i < count % rows) for i in range(rows)]
    found = []
    top = y + height
    for number in counts:
        row = height * number / count
        top -= row
        found += [(x + i * width / number, top, width / number, row) for i in range(number)]
    return found


def _core(tile: tuple[float, float, float, float], inside: Mapping[str, float], *, spare: bool) -> list[Box]:
    """One core: two columns, arrays over SRAM and lanes over control, each area its share of the tile."""
    x, y, width, height = tile
    total = math.fsum(inside.values())
    found = []
    for column in (("arrays", "local_sram"), ("vector", "cores")):
        part = {name: inside[name] for name in column if name in inside}
        if not part:
            continue
        whole = math.fsum(part.values())
        wide, top = width * whole / total, y + height
        for name, value in part.items():
            tall = height * value / whole
            top -= tall
            found.append(Box(name, x, top, wide, tall, spare))
        x += wide
    return found
