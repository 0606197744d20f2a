"""A chip, or two, opened up: floor plans that print and draw themselves."""

from __future__ import annotations

from pathlib import Path

from dse.api.faces import face
from dse.insight.floor_plan import ChipComparison, FloorPlan, chip_comparison, floor_plan
from dse.present.figures.chip import save_chip_comparison, save_floor_plan
from dse.present.text.chip import chip_comparison_text, floor_plan_text
from hw_models.chip import Chip
from hw_models.technology import Technology

__all__ = ["ChipComparisonReport", "FloorPlanReport", "compare_chips", "explain_chip"]


class FloorPlanReport(FloorPlan):
    """What a chip is made of: area and TDP by block, peaks, yield, cost; as tables and as a picture."""

    def text(self) -> str:
        """The floor plan as tables for people."""
        return floor_plan_text(self)

    def save(self, path: str | Path) -> Path:
        """A picture of the package to scale beside the TDP, as PNG or SVG by the path's ending."""
        return save_floor_plan(self, path)


class ChipComparisonReport(ChipComparison):
    """Two floor plans side by side, as tables and as a picture."""

    def text(self) -> str:
        """The comparison as tables for people."""
        return chip_comparison_text(self)

    def save(self, path: str | Path) -> Path:
        """Both packages at one scale with their TDP, as PNG or SVG by the path's ending."""
        return save_chip_comparison(self, path)


def explain_chip(chip: Chip, constants: Technology | None = None) -> FloorPlanReport:
    """What a chip of scalars is made of, with what it costs to make; no network is needed.

    constants   None: the table's rows for the chip's process and memory
    """
    return face(FloorPlanReport, floor_plan(chip, constants))


def compare_chips(a: FloorPlan, b: FloorPlan) -> ChipComparisonReport:
    """Two floor plans number by number; a block that one does not have counts 0 there."""
    return face(ChipComparisonReport, chip_comparison(a, b))
