"""One row of a design of columns, as a design of scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.base.columns import row_of
from dse.evaluation.design import Design


def one_row(design: Design, row: int, shape: tuple[int, ...]) -> Design:
    """Row `row` (flat number) of a design whose result has `shape`."""
    at = np.unravel_index(row, shape)

    def row_at(model: Any, axis: int) -> Any:
        return row_of(model, int(at[axis if len(shape) > 1 else 0]))

    plan_axis = len(shape) - 1
    technology = None if design.technology is None else row_at(design.technology, 0)
    return Design(
        row_at(design.chip, 0), row_at(design.cluster, 0), row_at(design.plan, plan_axis),
        design.workload, row_at(design.stack, 0), design.training, technology,
    )
