"""A design: chip, cluster, plan, workload and how it is trained, as scalars or columns.

`rows` brings any of them to broadcasting float columns without changing a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dse.base.columns import as_floats, dimensions, numeric, unchecked
from dse.evaluation.chip_facts import ChipFacts
from dse.evaluation.violations import remainder
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.memory.noc import shared_sram_supply
from hw_models.physical.dvfs import CappedPoint, capped_point
from hw_models.physical.energy import shared_sram_byte_energy
from hw_models.stack import Stack
from hw_models.stacks import stack as stack_named
from hw_models.technology import Technology
from hw_models.technology import technology as technology_of
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training


@dataclass(frozen=True)
class Design:
    """What is evaluated.  Hardware (chip, cluster, stack, technology) and plan may each be columns.

    scalars          one design
    hardware (N,), plan scalar; or the reverse; or both (N,)   N designs, row by row
    hardware (H, 1), plan (P,)   every plan on every chip, shape (H, P)

    technology   None: the constants of the chip's process and memory generation
    """

    chip: Chip
    cluster: Cluster
    plan: Plan
    workload: Workload
    stack: Stack = field(default_factory=stack_named)
    training: Training = field(default_factory=Training)
    technology: Technology | None = None

    @property
    def constants(self) -> Technology:
        """The technology given, or the table's row for the chip's process and memory."""
        return self.technology or technology_of(self.chip.process, self.chip.hbm)


@dataclass(frozen=True)
class Rows:
    """A design whose numbers are float columns that broadcast against each other.

    chip, technology   the plain chip that works as the design's does, and its constants there: see `rows`
    paired             True: hardware and plan are (N,) row by row; False: hardware (H, 1), plan (P,)
    facts              the chip as it is built and rated
    slowest            where firmware holds a power cap: the clock at which any work is within it (see throttle.py)
    violations         what the hardware alone breaks, feasible at <= 0
    """

    chip: Chip
    cluster: Cluster
    plan: Plan
    workload: Workload
    technology: Technology
    stack: Stack
    training: Training
    paired: bool
    facts: ChipFacts
    slowest: CappedPoint | None
    violations: dict[str, Any]

    @property
    def rated_chip(self) -> Chip:
        """The chip as it is built and rated."""
        return self.facts.chip

    def at(self, point: CappedPoint) -> Rows:
        """The same rows at another clock and voltage, over nominal."""
        clock = {name: getattr(self.chip, name) * point.clock for name in ("clock", "shared_sram_bandwidth")}
        switching = point.voltage * point.voltage
        constants = {name: getattr(self.technology, name) * switching for name in _OF_THE_CORE}
        return replace(self, chip=unchecked(self.chip, clock), technology=unchecked(self.technology, constants))


def rows(design: Design) -> Rows:
    """The design as broadcasting float columns (see `Design` for the accepted shapes), at its working point.

    Under a power cap a systolic chip, whose clock is fixed, runs at the clock x at which its design power fits: shared
    SRAM then gives x of its bandwidth, energies of arrays, lanes and SRAM and leakage take v^2, with v the voltage
    there.  Firmware of tensor cores holds the cap by the power of the work (`slowest`).  A row without a cap, network,
    banks or a second die keeps its bits among others.
    """
    constants = design.constants
    constants.need("energy", "link_energy", "network_energy")
    hardware = (design.chip, design.cluster, design.stack, constants)
    deepest = max(dimensions(model) for model in hardware)
    paired = deepest == 1 and dimensions(design.plan) == 1
    if paired:
        def shape_of(value: np.ndarray) -> np.ndarray:
            return value
    else:
        def shape_of(value: np.ndarray) -> np.ndarray:
            return value if value.ndim == 2 else value[:, None]

    rated_chip, rated_technology = as_floats(design.chip, shape_of), as_floats(constants, shape_of)
    chip, technology = _plain(rated_chip, rated_technology)
    made = Rows(
        chip=chip,
        cluster=as_floats(design.cluster, shape_of),
        plan=unchecked(design.plan, dict(numeric(design.plan))),
        workload=design.workload,
        technology=technology,
        stack=as_floats(design.stack, shape_of),
        training=design.training,
        paired=paired,
        facts=ChipFacts(rated_chip, rated_technology, design.training.precision),
        slowest=None,
        violations=chip_violations(rated_chip),
    )
    if not np.any(rated_chip.power_cap):
        return made
    point = capped_point(rated_chip, rated_technology, precision=design.training.precision)
    if rated_chip.compute == "tensor_core":
        return replace(made, slowest=point)
    return replace(made.at(point), violations=made.violations | {POWER_RULE: point.excess})


#: What a power cap that no clock meets breaks.
POWER_RULE = "power_cap"
#: What a chip whose arrays do not fill its cores breaks.
CORES_RULE = "array_count % arrays_per_core"
#: Energies that follow the supply voltage of the logic squared, and leakage, whose power does.
_OF_THE_CORE = ("mac_energy", "vector_energy", "local_sram_energy", "shared_sram_energy", "leakage")


def _plain(chip: Chip, technology: Technology) -> tuple[Chip, Technology]:
    """A chip of one die, without named network and banks, that works as this one does, and its constants.

    Once a hardware row.  Shared SRAM gives the least of its bandwidth, the network's and the banks'; a byte costs
    bank, wires and routers, and the way between dies.
    """
    if not (np.any(chip.noc) or np.any(chip.sram_banks) or np.any(np.greater(chip.dies, 1))):
        return chip, technology
    changes = {"shared_sram_bandwidth": shared_sram_supply(chip), "noc": 0.0, "sram_banks": 0.0, "dies": 1.0}
    constants = {"shared_sram_energy": shared_sram_byte_energy(chip, technology)}
    return unchecked(chip, changes), unchecked(technology, constants)


def chip_violations(chip: Chip) -> dict[str, Any]:
    """Rules that the chip's parts break together: arrays left over, or too few, for cores of `arrays_per_core`."""
    if not np.any(np.greater(chip.arrays_per_core, 1)):
        return {}
    return {CORES_RULE: remainder(chip.array_count, chip.arrays_per_core)}
