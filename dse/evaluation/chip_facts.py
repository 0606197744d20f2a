"""What is the same for every plan of a chip: its area and design power, worked out once for each hardware row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hw_models.chip import Chip
from hw_models.physical.area import die_area
from hw_models.physical.cost import silicon_area
from hw_models.physical.power import tdp
from hw_models.technology import Technology


@dataclass(frozen=True)
class ChipFacts:
    """A chip as it is built and rated, and the number format it is designed for."""

    chip: Chip
    technology: Technology
    precision: str

    @cached_property
    def area(self) -> Any:
        """Logic without links between dies [m2]."""
        return die_area(self.chip, self.technology)

    @cached_property
    def silicon(self) -> Any:
        """All logic of the package [m2]."""
        return silicon_area(self.chip, self.technology, area=self.area)

    @cached_property
    def tdp(self) -> Any:
        """Thermal design power [W]."""
        return tdp(self.chip, self.technology, precision=self.precision)
