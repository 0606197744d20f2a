"""Area, power, cost and energy of a chip: counts times the constants of a technology."""

from hw_models.physical.area import area_by_block, die_area, serdes_area_per_bandwidth, sram_macro_area
from hw_models.physical.cost import (
    Market,
    chip_cost,
    device_hour_cost,
    die_yield,
    dies_per_wafer,
    embodied_carbon,
    market,
    market_of,
    operational_carbon,
    reticle_excess,
    silicon_area,
)
from hw_models.physical.dvfs import capped_point, power_capped_clock, voltage_ratio
from hw_models.physical.energy import communication_energy, local_bytes_per_mac, work_energy
from hw_models.physical.power import (
    dynamic_power_by_block,
    static_power,
    sustained_power,
    sustained_power_by_block,
    tdp,
    tdp_by_block,
)

__all__ = [
    "Market",
    "area_by_block",
    "capped_point",
    "chip_cost",
    "communication_energy",
    "device_hour_cost",
    "die_area",
    "die_yield",
    "dies_per_wafer",
    "dynamic_power_by_block",
    "embodied_carbon",
    "local_bytes_per_mac",
    "market",
    "market_of",
    "operational_carbon",
    "power_capped_clock",
    "reticle_excess",
    "serdes_area_per_bandwidth",
    "silicon_area",
    "sram_macro_area",
    "static_power",
    "sustained_power",
    "sustained_power_by_block",
    "tdp",
    "tdp_by_block",
    "voltage_ratio",
    "work_energy",
]
