"""What computes: systolic arrays, tensor cores, vector lanes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from hw_models.chip import Chip
from hw_models.compute import systolic, tensor_core
from hw_models.compute.vector import vector_time

__all__ = ["MODELS", "matmul_time", "systolic", "tensor_core", "vector_time"]

#: Matrix engine of each value of `Chip.compute`: a module (or object) with `matmul_time`.
MODELS: Mapping[str, ModuleType] = MappingProxyType({"systolic": systolic, "tensor_core": tensor_core})


def matmul_time(chip: Chip, m: Any, n: Any, k: Any, groups: Any, *, precision: str, rate: Any = None) -> Any:
    """Time [s] of `groups` products (M x K)(K x N) on the matrix engine that the chip has, at its peak rate.

    rate   matrix rate relative to bf16, broadcastable; None: the chip's of `precision`
    """
    rate = chip.matmul_rate(precision) if rate is None else rate
    return MODELS[chip.compute].matmul_time(chip, m, n, k, groups, precision=precision, rate=rate)
