"""What connects chips: who is in a group, what the wires give, how long a collective takes."""

from __future__ import annotations

from hw_models.network.collective_time import CollectiveCost, collective_time

__all__ = ["CollectiveCost", "collective_time"]
