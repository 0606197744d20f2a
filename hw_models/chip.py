"""An accelerator chip as its architects describe it: arrays, vector lanes, memories, links, clock.

Every number may be a scalar or a column of designs. Formulas live in compute/, memory/, physical/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hw_models.checks import require
from hw_models.fields import choice, quantity

#: Dataflows of a systolic array, by their stored number; "best" is configured for each product.
DATAFLOW = ("os", "ws", "is", "best")
COMPUTE = ("systolic", "tensor_core")
#: Networks between shared SRAM and cores, by their stored number; none: no limit but `shared_sram_bandwidth`.
NOC = ("none", "crossbar", "ring", "mesh")

#: Matrix rate by precision relative to bf16, for an array of bf16 multipliers: fp8 doubles it,
#: fp32 takes four passes of half-width mantissa products.
SYSTOLIC_RATES: Mapping[str, float] = MappingProxyType(
    {"bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "tf32": 0.5, "fp32": 0.25}
)


@dataclass(frozen=True)
class Chip:
    """One accelerator (package: logic dies and their HBM), or a column of them.

    `matmul_rates` maps a precision to its matrix rate relative to array_count x rows x columns
    multiply-adds a cycle; a precision that is missing is not supported.
    """

    name: str = "custom"
    compute: str = choice(COMPUTE, "systolic arrays, or tensor cores fed by thread blocks", "systolic")
    process: str = field(default="7nm", metadata={"meaning": "process node: a row of the technology table"})
    hbm: str = field(default="hbm2e", metadata={"meaning": "memory generation: a row of the technology table"})
    array_count: Any = quantity("", "matrix arrays of the chip", 8, whole=True, low=1)
    array_rows: Any = quantity("", "rows of an array", 128, whole=True, low=1)
    array_columns: Any = quantity("", "columns of an array", 128, whole=True, low=1)
    clock: Any = quantity("Hz", "clock of arrays and vector lanes", 1.05e9)
    dataflow: Any = quantity(
        "", "0 output, 1 weight, 2 input stationary, 3 the best for each product (text is converted)", 1, whole=True,
        low=0, high=3, names=DATAFLOW,
    )
    double_buffered: Any = quantity(
        "", "1: weights load while the previous fold computes", 1, whole=True, low=0, high=1, names=("false", "true")
    )
    arrays_per_core: Any = quantity("", "arrays that share a core (local SRAM, control)", 1, whole=True, low=1)
    vector_lanes: Any = quantity("", "fp32 lanes of the chip, one multiply-add a cycle each", 8192, whole=True, low=1)
    local_sram: Any = quantity("B", "registers and local SRAM of one core", 4 * 2**20)
    shared_sram: Any = quantity("B", "on-chip SRAM shared by all cores", 128 * 2**20)
    shared_sram_bandwidth: Any = quantity("B/s", "bandwidth between shared SRAM and the cores", 4e12)
    hbm_stacks: Any = quantity("", "HBM stacks", 4, whole=True, low=1)
    hbm_stack_capacity: Any = quantity("B", "capacity of a stack", 8e9)
    hbm_stack_bandwidth: Any = quantity("B/s", "bandwidth of a stack", 3e11)
    links: Any = quantity("", "chip-to-chip links", 6, whole=True, low=0)
    link_bandwidth: Any = quantity("B/s", "bandwidth of one link, per direction", 5e10)
    synchronous_rate: Any = quantity(
        "", "matrix rate of kernels that wait for each matrix instruction, over the peak (Hopper: before wgmma)", 1.0,
        high=1,
    )
    cores_per_tile: Any = quantity(
        "", "cores that work on one output tile and read its operands once between them (Blackwell: 2)", 1,
        whole=True, low=1, high=2,
    )
    tiles_per_core: Any = quantity(
        "", "output tiles a core holds: with 2, one is stored while the next computes (Blackwell's tensor memory)", 1,
        whole=True, low=1, high=2,
    )
    exponentials_per_core: Any = quantity("", "exponentials a cycle of a core's special function units", 16.0)
    power_cap: Any = quantity(
        "W", "most design power: clock and voltage go down until it fits, peaks stay those of the nominal clock "
        "(0: no cap)", 0.0, low=0,
    )
    noc: Any = quantity(
        "", "network between shared SRAM and cores (none: shared_sram_bandwidth alone limits)", 0, whole=True, low=0,
        high=len(NOC) - 1, names=NOC,
    )
    noc_width: Any = quantity("", "bytes a cycle and direction of a link of the network on chip", 64.0)
    sram_banks: Any = quantity("", "banks of shared SRAM (0: not counted)", 0, whole=True, low=0)
    sram_bank_width: Any = quantity("", "bytes a cycle of a bank of shared SRAM", 64.0)
    dies: Any = quantity("", "equal dies that share the logic of a package", 1, whole=True, low=1)
    matmul_rates: Mapping[str, float] = field(default_factory=lambda: SYSTOLIC_RATES)

    def __post_init__(self) -> None:
        for name, known in (("dataflow", DATAFLOW), ("noc", NOC)):
            value = getattr(self, name)
            if isinstance(value, str):
                if value not in known:
                    raise ValueError(f"{name}: found {value!r}, allowed: {', '.join(known)}")
                object.__setattr__(self, name, known.index(value))
        require(self)
        object.__setattr__(self, "matmul_rates", MappingProxyType(dict(self.matmul_rates)))

    def matmul_rate(self, precision: str) -> float:
        """Matrix rate of `precision` relative to the array size; an unsupported one is an error."""
        if precision not in self.matmul_rates:
            raise ValueError(
                f"precision: chip {self.name!r} has no matrix rate for {precision!r}, "
                f"it has: {', '.join(self.matmul_rates)}"
            )
        return self.matmul_rates[precision]

    @property
    def cores(self) -> Any:
        """Cores: groups of arrays with one local SRAM."""
        return self.array_count / self.arrays_per_core

    @property
    def macs_per_cycle(self) -> Any:
        """Multiply-adds a cycle at the base precision."""
        return self.array_count * self.array_rows * self.array_columns

    def peak_flops(self, precision: str) -> Any:
        """Peak matrix FLOP/s of a precision (dense)."""
        return 2.0 * self.macs_per_cycle * self.clock * self.matmul_rate(precision)

    @property
    def vector_flops(self) -> Any:
        """Peak vector FLOP/s in fp32."""
        return 2.0 * self.vector_lanes * self.clock

    @property
    def hbm_bandwidth(self) -> Any:
        """Memory bandwidth [B/s]."""
        return self.hbm_stacks * self.hbm_stack_bandwidth

    @property
    def hbm_capacity(self) -> Any:
        """Memory capacity [B]."""
        return self.hbm_stacks * self.hbm_stack_capacity

    @property
    def scale_up_bandwidth(self) -> Any:
        """All links together, per direction [B/s]."""
        return self.links * self.link_bandwidth
