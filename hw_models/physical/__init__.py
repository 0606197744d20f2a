"""Area, power and energy of a chip: counts times the constants of a technology."""

from hw_models.physical.area import area_by_block, die_area
from hw_models.physical.energy import communication_energy, local_bytes_per_mac, work_energy
from hw_models.physical.power import dynamic_power_by_block, static_power, tdp, tdp_by_block

__all__ = [
    "area_by_block",
    "communication_energy",
    "die_area",
    "dynamic_power_by_block",
    "local_bytes_per_mac",
    "static_power",
    "tdp",
    "tdp_by_block",
    "work_energy",
]
