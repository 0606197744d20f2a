"""What software sustains on a device: rates, launch and host times, which collectives it has.

Two kinds of constants meet here: those of a device (`DEVICE_FIELDS`: what its parts sustain of their peaks under
any software) and those of a software stack (the rest). `hw_models.stacks.stack(name, device)` joins them.
Rows with sources: data/stacks.csv (before calibration) and data/calibrated.csv (fitted).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hw_models.checks import require
from hw_models.fields import quantity

ALGORITHMS = ("ring", "tree", "halving_doubling", "hierarchical", "in_network")

#: Constants of a device, whatever software runs on it.
DEVICE_FIELDS = (
    "matmul_efficiency", "sustained_clock", "memory_efficiency", "kernel_launch", "link_efficiency",
    "network_efficiency", "collective_launch", "low_latency_message", "switch_efficiency", "lane_efficiency",
)  # fmt: skip


@dataclass(frozen=True)
class Stack:
    """Constants of one software stack on one device, scalars or columns (calibration and what-if are more rows)."""

    name: str = "generic"
    kernel_launch: Any = quantity("s", "gap between two dependent kernels on the device", 0.0, low=0)
    matmul_efficiency: Any = quantity("", "array rate of a short benchmark over peak (scheduling, clock)", 1.0, high=1)
    sustained_clock: Any = quantity(
        "", "clock under hours of training over that of a short benchmark: power and heat", 1.0, high=1
    )
    lane_efficiency: Any = quantity(
        "", "fp32 products of a GPU, which run on its vector lanes: their share of peak over that of its arrays", 1.0
    )
    memory_efficiency: Any = quantity("", "sustained over peak HBM bandwidth", 1.0, high=1)
    link_efficiency: Any = quantity("", "sustained over peak bandwidth of the chip's own links", 1.0, high=1)
    network_efficiency: Any = quantity("", "sustained over peak bandwidth of every other network", 1.0, high=1)
    collective_launch: Any = quantity("s", "start and end of a collective's kernel, once a collective", 0.0, low=0)
    low_latency_message: Any = quantity(
        "B", "message below which steps skip the handshake of large ones; 0: none do", 0.0, low=0
    )
    switch_efficiency: Any = quantity("", "sustained over peak link bandwidth where the switch reduces", 1.0, high=1)
    host_time_per_operator: Any = quantity(
        "s", "host time to run one operator of a forward pass (a backward pass: two); 0 for compiled programs", 0.0,
        low=0,
    )
    host_time_per_exchange: Any = quantity(
        "s", "host time of a collective that blocks a block's pass: issue, and waiting for the last host", 0.0, low=0
    )
    micro_batch_overhead: Any = quantity(
        "s", "once a micro-batch and stage end: data, loss, bookkeeping of embedding and head", 0.0, low=0
    )
    step_overhead: Any = quantity("s", "once a step: data loading, logging, loss scaling", 0.0, low=0)
    jitter: Any = quantity(
        "", "standard deviation of a device's micro-batch over its mean; a step waits for the slowest device", 0.0,
        low=0, high=1,
    )
    vector_passes: Any = quantity(
        "", "memory traffic of element-wise passes over that of one fused kernel each", 1.0
    )
    eager: Any = quantity(
        "", "share of composite operators (gates, gelu, norms, dropout) that run piece by piece instead of fused", 0.0,
        low=0, high=1,
    )
    update_passes: Any = quantity(
        "", "memory traffic of the optimizer over reading and writing everything once", 1.0
    )
    attention_efficiency: Any = quantity("", "fused attention kernel: sustained over its own limit", 1.0, high=1)
    overlap_efficiency: Any = quantity(
        "", "share of overlapping communication that hides: the rest is units and bandwidth taken from computation",
        1.0, low=0, high=1,
    )
    gradient_bucket: Any = quantity("B", "gradients reduced at once; the last bucket of a step never hides", 0.0, low=0)
    rails: Any = quantity(
        "", "members of a node through whose network adapters one collective sends at once, at most", 1024.0, low=1
    )
    flat_gathers: Any = quantity(
        "", "1: ZeRO gathers and reduces a layer's weights as one message; 0: every weight by itself", 1.0,
        whole=True, low=0, high=1, names=("false", "true"),
    )
    split_boundary: Any = quantity(
        "", "1: tensor ranks send a part of a stage's boundary each and gather it on the other side", 0.0,
        whole=True, low=0, high=1, names=("false", "true"),
    )
    memory_reserve: Any = quantity("B", "context, libraries and communication buffers a device", 0.0, low=0)
    fragmentation: Any = quantity("", "share of memory the allocator cannot use", 0.0, low=0, high=1)
    algorithms: tuple[str, ...] = field(default=ALGORITHMS, metadata={"meaning": "collectives that exist"})
    source: str = ""

    def __post_init__(self) -> None:
        require(self)
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise ValueError(f"algorithms: found {self.algorithms!r}, allowed: some of {', '.join(ALGORITHMS)}")
