"""What silicon costs in area and energy: one record of constants for a process node and memory generation.

Rows with unit, low, high, source and place in the source: data/technology.csv.
A constant that is not given is None; a formula that needs it names it in its error, so nothing is free by omission.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, cast

from hw_models.checks import problems
from hw_models.fields import quantity
from hw_models.tables import Row, distinct, number, table, unknown

#: Rows that hold for every process node.
_ANY = "any"
_RATIO = "mac_energy_ratio_"


@dataclass(frozen=True)
class Technology:
    """Constants of one process node with one HBM generation, scalars or columns; None: not given."""

    name: str = "custom"
    mac_area: Any = quantity("m2", "one bf16 multiplier with fp32 accumulator and its registers", None)
    vector_lane_area: Any = quantity("m2", "one fp32 lane with its integer unit and half an fp64 unit", None)
    local_sram_area: Any = quantity("m2/B", "registers and small SRAM, with periphery", None)
    shared_sram_area: Any = quantity("m2/B", "large software-managed SRAM, with periphery", None)
    cache_area: Any = quantity("m2/B", "large hardware cache: SRAM, tags, ECC and slice logic", None)
    core_area: Any = quantity("m2", "control, instruction fetch, load, store and special units of one core", None)
    noc_area_per_bandwidth: Any = quantity("m2 s/B", "NoC, per B/s between shared SRAM and cores, and hop", None)
    wire_pitch: Any = quantity("m", "pitch of the wires of a crossbar between shared SRAM and cores", None)
    router_area: Any = quantity("m2", "router of a mesh, five ports, per bit of link width", None)
    bank_area: Any = quantity("m2", "one more bank of shared SRAM: decoders, sense amplifiers, wires", None, low=0)
    hbm_phy_area: Any = quantity("m2", "PHY of one HBM stack", None)
    hbm_controller_area: Any = quantity("m2", "memory controller of one HBM stack", None)
    stack_bandwidth: Any = quantity("B/s", "largest bandwidth of a stack of the memory generation", None)
    stack_capacity: Any = quantity("B", "largest capacity of a stack of the memory generation", None)
    link_area_per_bandwidth: Any = quantity("m2 s/B", "SerDes and controller, per B/s and direction", None)
    other_area: Any = quantity("m2", "host interface, management, clocks, test", None, low=0)
    spare_cores: Any = quantity("", "cores on the die beyond the enabled ones, per enabled core", None, low=0)
    unattributed_share: Any = quantity(
        "", "share of a die of systolic arrays that no block explains: channels of wires, spare rows, margins", None,
        low=0, high=0.9,
    )
    mac_energy: Any = quantity("J", "one bf16 multiply-add with fp32 accumulation", None)
    mac_energy_ratio_fp16: Any = quantity("", "energy of an fp16 multiply-add over bf16", None)
    mac_energy_ratio_tf32: Any = quantity("", "energy of a tf32 multiply-add over bf16", None)
    mac_energy_ratio_fp32: Any = quantity("", "energy of an fp32 multiply-add over bf16", None)
    mac_energy_ratio_fp8: Any = quantity("", "energy of an fp8 multiply-add over bf16", None)
    vector_energy: Any = quantity("J", "one fp32 lane operation (a multiply-add) with its register accesses", None)
    local_sram_energy: Any = quantity("J/B", "one byte from or to local SRAM", None)
    shared_sram_energy: Any = quantity("J/B", "one byte from or to shared SRAM over the NoC", None)
    bank_energy: Any = quantity("J/B", "one byte from or to a bank of shared SRAM, without the way to it", None)
    wire_energy: Any = quantity("J/B/m", "one byte over a wire of the network on chip, per length", None)
    router_energy: Any = quantity("J/B", "one byte through a router of the network on chip", None)
    die_to_die_energy: Any = quantity("J/B", "one byte from one die of a package to another, both ends", None)
    hbm_energy: Any = quantity("J/B", "one byte from or to HBM, device and PHY", None)
    link_energy: Any = quantity("J/B", "one byte sent over a chip-to-chip link, both ends", None)
    network_energy: Any = quantity("J/B", "one byte sent over the network between nodes", None)
    leakage: Any = quantity("W/m2", "static power of the logic die per area", None)
    idle_power: Any = quantity("W", "clock tree, HBM refresh and host interface, when idle", None, low=0)
    peak_activity: Any = quantity("", "sustained over peak rate of everything that moves, in the hottest step", None)
    vector_activity: Any = quantity("", "share of vector lanes that work while the arrays are at peak", None, low=0)
    design_margin: Any = quantity(
        "", "dynamic power that a chip of fixed clock is designed for, over its peak on random data", None, low=1
    )
    voltage_floor: Any = quantity("", "lowest supply voltage over that of the nominal clock", None, low=0, high=1)
    voltage_slope: Any = quantity("", "relative change of voltage over relative change of clock", None, low=0)

    def __post_init__(self) -> None:
        given = {item.name for item in fields(self) if getattr(self, item.name) is not None}
        found = [sentence for sentence in problems(self) if sentence.split(":", 1)[0] in given]
        if found:
            raise ValueError("Technology: " + "; ".join(found))

    def need(self, what: str, *names: str) -> None:
        """Raise ValueError that names every constant of `names` that is not given."""
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{what}: technology {self.name!r} does not give {', '.join(missing)}")

    def mac_energy_of(self, precision: str) -> Any:
        """Energy of one multiply-add of `precision`, with fp32 accumulation [J]."""
        self.need("energy", "mac_energy")
        if precision == "bf16":
            return self.mac_energy
        field = f"{_RATIO}{precision}"
        known = [item.name for item in fields(self) if item.name.startswith(_RATIO)]
        if field not in known:
            raise unknown("precision", precision, ["bf16", *(name.removeprefix(_RATIO) for name in known)])
        self.need("energy", field)
        return self.mac_energy * getattr(self, field)


def nodes() -> tuple[str, ...]:
    """Process nodes of the table, newest last."""
    return tuple(name for name in distinct("technology", "node") if name.endswith("nm") and "+" not in name)


def memories() -> tuple[str, ...]:
    """HBM generations of the table."""
    return tuple(name for name in distinct("technology", "node") if name.startswith("hbm"))


def constants(node: str = "7nm", hbm: str = "hbm2e") -> tuple[Row, ...]:
    """Rows of the table that `technology(node, hbm)` uses: value, low, high, unit, source, where, confidence.

    A row of `node+hbm` goes before the row of the node or the memory: a PHY measured on a die of that process."""
    if node not in nodes():
        raise unknown("process", node, nodes())
    if hbm not in memories():
        raise unknown("hbm", hbm, memories())
    rows = {row["constant"]: row for row in table("technology") if row["node"] in (node, hbm, _ANY)}
    rows.update((row["constant"], row) for row in table("technology") if row["node"] == f"{node}+{hbm}")
    return tuple(rows.values())


@cache
def technology(node: str = "7nm", hbm: str = "hbm2e") -> Technology:
    """The constants of a process node with an HBM generation."""
    values = {row["constant"]: number(row["value"]) for row in constants(node, hbm)}
    return Technology(name=f"{node}+{hbm}", **cast(dict[str, Any], values))
