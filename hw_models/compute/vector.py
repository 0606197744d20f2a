"""Time of element-wise and row-wise work: vector lanes, and lanes beside a memory stream.

Theory: docs/models/vector.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip


def vector_time(chip: Chip, operations: Any) -> Any:
    """Time [s] of `operations` fp32 vector operations: every lane does one (a multiply-add is one) a cycle.

    t = operations / (lanes clock).  Ignores a last partly filled vector and special functions, which the
    operation count must weigh.
    """
    return operations / (chip.vector_lanes * chip.clock)


def lane_product_time(chip: Chip, macs: Any, *, instructions: Any = 4.0) -> Any:
    """Time [s] of `macs` multiply-adds on vector lanes where no operand is used twice from registers (depthwise
    convolution): t = macs instructions / (lanes clock).

    instructions   of a multiply-add: itself, a load of each operand's tap, addresses and borders.  Assumption 4, range
                   2 (everything unrolled) to 8
    """
    return vector_time(chip, macs * instructions)


def stream_time(chip: Chip, moved: Any, operations: Any, *, memory_efficiency: Any = 1.0, hidden: float = 1.0) -> Any:
    """Time [s] of one kernel that streams `moved` bytes through HBM and does `operations` vector operations.

    t = max(a, b) + (1 - hidden) min(a, b),   a = moved / (bandwidth memory_efficiency),   b = `vector_time`
    hidden   1 for element-wise kernels, whose threads are independent; less for rows that are
             reduced before they are written: eager softmax on an A100 fits 0.13 +- 0.10, range 0 to 1
    Shape: broadcast.  Launch is the caller's.  Small tensors have no slower stream of their own: measured times of
    0 to 8 MB are flat (the launch) within a few percent, so that bytes in flight need no term.
    """
    memory, lanes = moved / (chip.hbm_bandwidth * memory_efficiency), vector_time(chip, operations)
    return np.maximum(memory, lanes) + (1.0 - hidden) * np.minimum(memory, lanes)
