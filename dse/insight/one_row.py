"""One row of a design of columns, as a design of scalars."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Design, unchecked


def one_row(design: Design, row: int, shape: tuple[int, ...]) -> Design:
    """Row `row` (flat number) of a design whose result has `shape`."""
    at = np.unravel_index(row, shape)

    def scalar(model: Any, axis: int) -> Any:
        changes = {}
        for item in fields(model):
            value = getattr(model, item.name)
            if isinstance(value, np.ndarray) and value.size > 1:
                flat = value.reshape(-1)
                number = flat[at[axis if len(shape) > 1 else 0]].item()
                changes[item.name] = int(number) if item.metadata.get("whole") else number
            elif isinstance(value, np.ndarray):
                changes[item.name] = value.reshape(-1)[0].item()
            elif isinstance(value, tuple) and value and is_dataclass(value[0]):
                changes[item.name] = tuple(scalar(inner, axis) for inner in value)
        return unchecked(model, changes) if changes else model

    plan_axis = len(shape) - 1
    technology = None if design.technology is None else scalar(design.technology, 0)
    return Design(
        scalar(design.chip, 0), scalar(design.cluster, 0), scalar(design.plan, plan_axis),
        design.workload, scalar(design.stack, 0), design.training, technology,
    )
