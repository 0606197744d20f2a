"""The software that runs a step: launch and host times, what it sustains, which collectives it has.

A property of the software, not of the chip. Rows with sources: data/stacks.csv.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hw_models.checks import require
from hw_models.fields import quantity

ALGORITHMS = ("ring", "tree", "halving_doubling", "hierarchical")


@dataclass(frozen=True)
class Stack:
    """Constants of one software stack, scalars or columns (calibration and what-if are more rows)."""

    name: str = "generic"
    kernel_launch: Any = quantity("s", "gap between two dependent kernels on the device", 0.0, low=0)
    host_time_per_kernel: Any = quantity("s", "host time to issue one kernel; 0 for compiled programs", 0.0, low=0)
    matmul_efficiency: Any = quantity("", "sustained over peak array rate (power, clocks, scheduling)", 1.0, high=1)
    memory_efficiency: Any = quantity("", "sustained over peak HBM bandwidth", 1.0, high=1)
    network_efficiency: Any = quantity("", "sustained over peak link bandwidth", 1.0, high=1)
    step_overhead: Any = quantity("s", "once a step: data loading, logging, loss scaling", 0.0, low=0)
    memory_reserve: Any = quantity("B", "context, libraries and communication buffers a device", 0.0, low=0)
    fragmentation: Any = quantity("", "share of memory the allocator cannot use", 0.0, low=0, high=1)
    algorithms: tuple[str, ...] = field(default=ALGORITHMS, metadata={"meaning": "collectives that exist"})
    source: str = ""

    def __post_init__(self) -> None:
        require(self)
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise ValueError(f"algorithms: found {self.algorithms!r}, allowed: some of {', '.join(ALGORITHMS)}")
