"""What a chip costs to make and to run, and the carbon of both: yield, wafers, memory, package, electricity.

Not here: design, masks, software, margins of the vendor (a price is not a cost). Constants: data/cost.csv, each with
low, high and source. Theory and checks: docs/models/cost.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, cast

import numpy as np

from hw_models.checks import require
from hw_models.chip import Chip
from hw_models.fields import quantity
from hw_models.physical.area import die_area
from hw_models.tables import Row, number, table, unknown
from hw_models.technology import Technology

#: Parts of the cost of a chip.
PARTS = ("dies", "memory", "interposer", "assembly", "test", "lost_in_package")
CARBON_PARTS = ("dies", "memory", "interposer", "package")
RUNNING_PARTS = ("device", "server", "electricity", "power_provision")


@dataclass(frozen=True)
class Market:
    """Prices and process facts for one node and memory generation, scalars or columns."""

    name: str = "custom"
    wafer_price: Any = quantity("USD", "a processed wafer", 9346.0)
    defect_density: Any = quantity("1/m2", "defects that kill a die", 900.0, low=0)
    clustering: int = quantity("", "cluster parameter of the negative binomial yield", 3, whole=True, low=1)
    wafer_diameter: Any = quantity("m", "wafer", 0.3)
    edge_exclusion: Any = quantity("m", "rim of the wafer without dies", 0.003, low=0)
    scribe: Any = quantity("m", "lane between dies", 1e-4, low=0)
    reticle_limit: Any = quantity("m2", "largest die a scanner exposes at once", 858e-6)
    die_to_die_share: Any = quantity("", "area that each die of a package of several adds for its links", 0.1, low=0)
    memory_price: Any = quantity("USD/B", "HBM stacks", 7e-9)
    stack_area: Any = quantity("m2", "footprint of an HBM stack on the interposer", 110e-6)
    interposer_price: Any = quantity("USD/m2", "silicon interposer, processed", 27400.0)
    interposer_margin: Any = quantity("", "interposer area over what sits on it", 1.2, low=1)
    interposer_defect_density: Any = quantity("1/m2", "defects that kill an interposer", 100.0, low=0)
    assembly_price: Any = quantity("USD", "substrate and assembly of a package", 60.0, low=0)
    test_price: Any = quantity("USD/m2", "wafer sort and final test, per area of good dies", 60000.0, low=0)
    package_yield: Any = quantity("", "packages that work after assembly of good parts", 0.98, high=1)
    server_price: Any = quantity("USD", "host, network and chassis, per device", 4000.0, low=0)
    price_over_cost: Any = quantity("", "what a buyer pays for a chip over what it costs to make", 1.0, low=0)
    lifetime: Any = quantity("s", "time over which hardware is paid off", 4 * 31_557_600.0)
    electricity_price: Any = quantity("USD/J", "electricity", 0.083 / 3.6e6, low=0)
    pue: Any = quantity("", "power of the building over that of its devices", 1.1, low=1)
    power_provision_price: Any = quantity("USD/W", "building, power and cooling, per watt of design power", 10.0, low=0)
    power_provision_lifetime: Any = quantity("s", "time over which the building is paid off", 15 * 31_557_600.0)
    fab_energy: Any = quantity("J/m2", "electricity of the fab, per wafer area", 7.74e10, low=0)
    fab_gases: Any = quantity("kg/m2", "process gases as CO2, per wafer area", 3500.0, low=0)
    fab_materials: Any = quantity("kg/m2", "materials as CO2, per wafer area", 5000.0, low=0)
    fab_carbon: Any = quantity("kg/J", "CO2 of the fab's electricity", 0.583 / 3.6e6, low=0)
    memory_carbon: Any = quantity("kg/B", "CO2 of making memory", 65e-12, low=0)
    package_carbon: Any = quantity("kg", "CO2 of packaging a chip", 0.15, low=0)
    grid_carbon: Any = quantity("kg/J", "CO2 of the electricity that devices use", 0.385 / 3.6e6, low=0)

    def __post_init__(self) -> None:
        require(self)


def constants(node: str, hbm: str = "hbm2e") -> tuple[Row, ...]:
    """Rows of the cost table for a node and a memory: value, low, high, unit, source, where, confidence."""
    rows = table("cost")
    for what, name in (("process", node), ("hbm", hbm)):
        allowed = [row["node"] for row in rows if row["node"].startswith("hbm") == (what == "hbm")]
        if name not in allowed or name == "any":
            raise unknown(what, name, dict.fromkeys(item for item in allowed if item != "any"))
    return tuple(row for row in rows if row["node"] in (node, hbm, "any"))


def nodes() -> tuple[str, ...]:
    """Process nodes that the cost table knows, oldest first."""
    found = (row["node"] for row in table("cost") if row["constant"] == "wafer_price")
    return tuple(dict.fromkeys(found))


def market_of(chip: Chip) -> Market | None:
    """Prices and process facts of a chip's node and memory; None where the table lacks them."""
    return market(chip.process, chip.hbm) if chip.process in nodes() else None


@cache
def market(node: str = "7nm", hbm: str = "hbm2e") -> Market:
    """Prices and process facts of a node with a memory generation."""
    values = {row["constant"]: number(row["value"]) for row in constants(node, hbm)}
    lacking = {item.name for item in fields(Market)} - {"name", *values}
    assert not lacking, f"cost.csv lacks {sorted(lacking)} of {node}, {hbm}"
    return Market(name=f"{node}+{hbm}", **cast(dict[str, Any], values))


# Silicon ---------------------------------------------------------------------------------------------------------


def die_yield(area: Any, defect_density: Any, *, clustering: int = 3) -> Any:
    """Share of dies without a killing defect: y = (1 + A D/a)^-a, negative binomial [Stapper 1983].

    A die area [m2], D defects [1/m2], a whole cluster parameter (3 for logic); many clusters, large a, tend to
    Poisson's exp(-A D). Ignores dies saved by disabling cores."""
    base = 1.0 + area * defect_density / clustering
    product = base
    for _ in range(clustering - 1):
        product = product * base
    return 1.0 / product


def dies_per_wafer(area: Any, *, diameter: Any = 0.3, edge_exclusion: Any = 0.003, scribe: Any = 1e-4) -> Any:
    """Whole dies on a wafer: floor(pi d^2/(4 A) - pi d/sqrt(2 A)), at least 0.

    d diameter less the excluded rim on both sides, A area of a square die with its scribe lane; the second term is
    what the round rim cuts off. Valid for dies of a few mm2 up to the reticle."""
    side = np.sqrt(area) + scribe
    usable = diameter - 2.0 * edge_exclusion
    whole = np.pi * usable * usable / (4.0 * side * side) - np.pi * usable / (np.sqrt(2.0) * side)
    return np.maximum(np.floor(whole), 0.0)


def reticle_excess(area: Any, *, dies: Any = 1, market: Market) -> Any:
    """Area of a die over the reticle limit, less 1: a die can be made where it is <= 0."""
    return area_per_die(area, dies=dies, market=market) / market.reticle_limit - 1.0


def area_per_die(area: Any, *, dies: Any = 1, market: Market) -> Any:
    """Area of one of `dies` equal dies that share a design of `area` [m2]; links between them take their share."""
    links = np.where(np.greater(dies, 1), market.die_to_die_share, 0.0)
    return area / dies * (1.0 + links)


def silicon_area(chip: Chip, technology: Technology, *, area: Any = None) -> Any:
    """Logic of a package [m2]: `die_area`, and what its dies take for links between them where it has several.

    area   `die_area` where it is known."""
    area = die_area(chip, technology) if area is None else area
    known = market_of(chip) if np.any(np.greater(chip.dies, 1)) else None
    return area if known is None else area_per_die(area, dies=chip.dies, market=known) * chip.dies


def good_die_cost(area: Any, *, market: Market) -> Any:
    """Cost of a die that works [USD]: wafer/(dies per wafer x yield); inf where no die fits a wafer."""
    count = dies_per_wafer(
        area, diameter=market.wafer_diameter, edge_exclusion=market.edge_exclusion, scribe=market.scribe
    )
    good = count * die_yield(area, market.defect_density, clustering=market.clustering)
    return np.where(good > 0.0, market.wafer_price / np.where(good > 0.0, good, 1.0), np.inf)


def interposer_area(area: Any, stacks: Any, *, market: Market) -> Any:
    """Area of the silicon that carries dies and memory [m2]: (dies + stacks x footprint) x margin."""
    return (area + stacks * market.stack_area) * market.interposer_margin


def chip_cost(
    chip: Chip, technology: Technology, *, market: Market, dies: Any = None, area: Any = None
) -> dict[str, Any]:
    """Cost of making a packaged chip by part [USD], a scalar or (N,) each; area: `die_area` where it is known.

    dies         k wafer/(n y) of k equal dies of area A (1 + links)/k; k None: the chip's
    memory       capacity x price
    interposer   area x price / its yield
    assembly, test   substrate and assembly; sort and final test, per area
    lost_in_package  good parts lost in assembly: (1/y_package - 1) of all above
    A die over the reticle is priced as if it could be made: `reticle_excess` is the violation.
    Not here: design, masks, inventory, the vendor's margin."""
    dies = chip.dies if dies is None else dies
    one = area_per_die(die_area(chip, technology) if area is None else area, dies=dies, market=market)
    silicon = one * dies
    carrier = interposer_area(silicon, chip.hbm_stacks, market=market)
    carrier_yield = die_yield(carrier, market.interposer_defect_density, clustering=market.clustering)
    parts = {
        "dies": dies * good_die_cost(one, market=market),
        "memory": chip.hbm_capacity * market.memory_price,
        "interposer": carrier * market.interposer_price / carrier_yield,
        "assembly": market.assembly_price,
        "test": silicon * market.test_price,
    }
    return parts | {"lost_in_package": total(parts) * (1.0 / market.package_yield - 1.0)}


# Ownership -------------------------------------------------------------------------------------------------------


def device_hour_cost(
    device_cost: Any, average_power: Any, *, design_power: Any, market: Market, utilization: Any = 1.0
) -> dict[str, Any]:
    """Cost of an hour of one device that works, by part [USD/h], a scalar or (N,) each.

    device       cost x price_over_cost / lifetime;   server: what stands around it, likewise
    electricity  P x PUE x price;   power_provision: design power x PUE x price of a watt of building / its lifetime
    utilization  share of the time that the device does work it is paid for; electricity is bought for that time only.
    Ignores staff, software, interest and residual value."""
    hour = 3600.0
    paid = hour / utilization
    return {
        "device": device_cost * market.price_over_cost / market.lifetime * paid,
        "server": market.server_price / market.lifetime * paid,
        "electricity": average_power * market.pue * market.electricity_price * hour,
        "power_provision": design_power * market.pue * market.power_provision_price / market.power_provision_lifetime
        * paid,
    }  # fmt: skip


# Carbon ----------------------------------------------------------------------------------------------------------


def wafer_carbon(market: Market) -> Any:
    """CO2 of a wafer's area [kg/m2]: electricity of the fab, gases, materials [ACT, Gupta et al., ISCA 2022]."""
    return market.fab_energy * market.fab_carbon + market.fab_gases + market.fab_materials


def embodied_carbon(
    chip: Chip, technology: Technology, *, market: Market, dies: Any = None, area: Any = None
) -> dict[str, Any]:
    """CO2 of making a packaged chip by part [kg], a scalar or (N,) each; area: `die_area` where it is known.

    dies  A wafer carbon / yield;   memory: capacity x carbon of a byte;   interposer as a wafer of the mature node:
    gases and materials as the chip's own, no more;   package. Ignores server, building, transport, disposal."""
    dies = chip.dies if dies is None else dies
    one = area_per_die(die_area(chip, technology) if area is None else area, dies=dies, market=market)
    silicon = one * dies
    carrier = interposer_area(silicon, chip.hbm_stacks, market=market)
    return {
        "dies": silicon * wafer_carbon(market) / die_yield(one, market.defect_density, clustering=market.clustering),
        "memory": chip.hbm_capacity * market.memory_carbon,
        "interposer": carrier * (market.fab_gases + market.fab_materials),
        "package": market.package_carbon,
    }


def operational_carbon(energy: Any, *, market: Market) -> Any:
    """CO2 of energy that devices used [kg]: E x PUE x carbon of the grid."""
    return energy * market.pue * market.grid_carbon


def total(parts: dict[str, Any]) -> Any:
    """Sum of the parts, in their order."""
    found: Any = 0.0
    for part in parts.values():
        found = found + part
    return found
