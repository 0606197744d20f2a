"""How chips are connected: nested tiers (node, rack, cluster), each a topology with bandwidth and latency."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hw_models.checks import require
from hw_models.fields import choice, quantity

TOPOLOGY = ("switch", "full", "ring", "torus2d", "torus3d", "fat_tree", "reducing_switch", "cube_mesh")


@dataclass(frozen=True)
class Tier:
    """One level of the network.

    size   devices inside one unit of the tier (the node size for the first tier)
    bandwidth  of one device into the tier, per direction; 0 means the chip's own links
    """

    size: Any = quantity("", "devices in one unit of the tier", 8, whole=True, low=1)
    topology: str = choice(TOPOLOGY, "how the devices of the tier are wired", "switch")
    bandwidth: Any = quantity("B/s", "of one device into the tier, per direction; 0: the chip's links", 0.0, low=0)
    latency: Any = quantity("s", "of one message", 1e-6, low=0)
    oversubscription: Any = quantity("", "fat tree: bandwidth below over bandwidth above", 1.0, low=1)

    def __post_init__(self) -> None:
        require(self)


@dataclass(frozen=True)
class Cluster:
    """Devices in nested tiers, innermost first; the last tier holds them all.

    usd_per_device_hour   price of one device for an hour, 0: not given
    overhead_power        power of host, network and cooling a device [W], not part of the chip
    """

    devices: Any = quantity("", "devices that train", 8, whole=True, low=1)
    tiers: tuple[Tier, ...] = (Tier(),)
    name: str = "custom"
    usd_per_device_hour: Any = quantity("USD/h", "price of one device; 0: not given", 0.0, low=0)
    host_bandwidth: Any = quantity("B/s", "between a device and its host's memory, per direction", 25e9)
    overhead_power: Any = quantity("W", "host and network power a device", 0.0, low=0)
    source: str = field(default="", metadata={"meaning": "where the numbers come from"})

    def __post_init__(self) -> None:
        require(self)
        if not self.tiers:
            raise ValueError("Cluster: tiers: found none, allowed: at least one")

    @property
    def node_size(self) -> Any:
        """Devices of the innermost tier."""
        return self.tiers[0].size
