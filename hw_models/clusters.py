"""Clusters by name: tiers, price and host power (data/clusters.csv, a row a tier, innermost first)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.cluster import Cluster, Tier
from hw_models.tables import Row, distinct, number, table, unknown


def names() -> tuple[str, ...]:
    """Clusters of the table."""
    return distinct("clusters", "cluster")


def rows(name: str) -> tuple[Row, ...]:
    """The tiers of one cluster as text, innermost first."""
    if name not in names():
        raise unknown("cluster", name, names())
    return tuple(row for row in table("clusters") if row["cluster"] == name)


def cluster(name: str, devices: Any = 8) -> Cluster:
    """The cluster of that name with so many devices (a scalar or a column).

    The last tier holds all devices, and at least one unit of the tier below; a pod has a largest size."""
    tiers, inner = [], 1
    found = rows(name)
    largest = found[0]["max_devices"]
    if largest and np.any(np.asarray(devices) > int(largest)):
        raise ValueError(f"devices: found {devices!r}, allowed: at most {largest} in {name!r}")
    for row in found:
        size = number(row["size"]) if row["size"] else _at_least(devices, inner)
        inner = int(number(row["size"])) if row["size"] else inner
        tiers.append(
            Tier(
                size=size,
                topology=row["topology"],
                bandwidth=number(row["bandwidth [B/s]"]),
                latency=number(row["latency [s]"]),
                oversubscription=number(row["oversubscription"]),
            )
        )
    return Cluster(
        devices=devices,
        tiers=tuple(tiers),
        name=name,
        usd_per_device_hour=float(found[0]["usd_per_device_hour [USD/h]"] or 0.0),
        overhead_power=float(found[0]["overhead_power [W]"] or 0.0),
        source=found[0]["source"],
    )


def _at_least(devices: Any, inner: int) -> Any:
    """A tier is never smaller than the one below; a scalar stays a scalar."""
    return np.maximum(devices, inner) if np.ndim(devices) else max(devices, inner)
