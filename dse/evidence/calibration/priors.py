"""What is fitted and what is known before: observed steps, and the range of each constant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.evaluation.design import Design
from hw_models.stack import DEVICE_FIELDS
from hw_models.stacks import GENERIC, Constants, constants

__all__ = ["STACK_FIELDS", "Fitted", "Floats", "Key", "Observed", "Prior", "priors"]

Floats = NDArray[np.float64]
#: What a constant belongs to: scope ("device" or "stack"), name, field.
Key = tuple[str, str, str]

#: Constants of a stack that step times can tell; the others say what fits in memory and what is sent.
STACK_FIELDS = (
    "host_time_per_operator", "host_time_per_exchange", "micro_batch_overhead", "step_overhead", "vector_passes",
    "update_passes", "attention_efficiency", "overlap_efficiency", "rails", "jitter", "eager",
)  # fmt: skip
#: Constants of a device that steps are never asked for: what they fall short of the rate of short benchmarks is
#: `sustained_clock`, and the two only count as a product.
BENCHMARKED = ("matmul_efficiency",)


@dataclass(frozen=True)
class Observed:
    """One measured step: its design, seconds, and its weight in the fit."""

    design: Design
    measured: float
    weight: float


@dataclass(frozen=True)
class Prior:
    """What is known of a constant before rows are seen.

    value, low, high   as stated in data/stacks.csv; low and high bound the fit, half their distance is the width
    parent             the constant of `generic` stacks or devices that it is expected to be near, or none
    """

    value: float
    low: float
    high: float
    unit: str
    parent: Key | None = None

    @property
    def width(self) -> float:
        """How far from its centre the constant is expected."""
        return (self.high - self.low) / 2.0


@dataclass(frozen=True)
class Fitted:
    """A fitted constant: value and standard error in its unit, and whether the rows say more than the prior did."""

    key: Key
    prior: Prior
    value: float
    standard_error: float
    identified: bool


def priors(
    pairs: Iterable[tuple[str, str]], known: bool | Constants = False, *, fixed: Collection[Key] = ()
) -> dict[Key, Prior]:
    """The constants of (stack, device) pairs and of their `generic` parents, with what is known of them.

    A constant that a stack states itself is expected near that value; another near the generic one, which is fitted
    with it.  A device is expected near generic devices, unless its only stacks state its constants (compiled ones).
    Constants that are fixed by definition (low = high), by kernels and collectives (`fixed`), or that only short
    benchmarks tell (`BENCHMARKED`), are left out.
    """
    found: dict[Key, Prior] = {}
    for name, device in sorted(set(pairs)):
        for row in constants(name, device, calibrated=known):
            field, of_device = row["field"], row["field"] in DEVICE_FIELDS
            if field in BENCHMARKED or not of_device and field not in STACK_FIELDS:
                continue
            scope = "device" if of_device else "stack"
            value, low, high = (float(row[column]) for column in ("value", "low", "high"))
            key, parent = (scope, device if of_device else name, field), (scope, GENERIC, field)
            if low >= high or name == "ideal" or (of_device and not device) or key in fixed:
                continue
            shared = row.get("stack", row.get("name")) == GENERIC
            prior = Prior(
                value, low, high, row["unit"], parent if shared and key != parent and parent not in fixed else None
            )
            if key not in found or (shared and found[key].parent is None):
                found[key] = prior
            if shared and parent not in fixed:
                found.setdefault(parent, replace(prior, parent=None))
    return dict(sorted(found.items()))
