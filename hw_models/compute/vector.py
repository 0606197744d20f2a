"""Time of element-wise work on the vector lanes of a chip. Theory: docs/models/vector.md."""

from __future__ import annotations

from typing import Any

from hw_models.chip import Chip


def vector_time(chip: Chip, operations: Any) -> Any:
    """Time [s] of `operations` fp32 vector operations: every lane does one (a multiply-add is one) a cycle.

    t = operations / (lanes clock).  Ignores a last partly filled vector and special functions, which the
    operation count must weigh.
    """
    return operations / (chip.vector_lanes * chip.clock)
