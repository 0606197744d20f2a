"""Faults of a search that wants costs or carbon without the prices they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.evaluation.ownership import OF_A_TOKEN, OF_THE_CHIP
from dse.inputs.spec import Catalog, Choices, ClusterSpace
from dse.inputs.yaml.readers import Fault
from hw_models.physical.cost import nodes

__all__ = ["price_faults"]

#: Metrics that need the prices of a chip's node.
MADE = (*OF_THE_CHIP, *OF_A_TOKEN)


def price_faults(
    values: Mapping[str, Any], cluster: ClusterSpace, chip: Choices, catalog: Catalog
) -> list[Fault]:
    """A metric in USD needs a price: without one it would be zero, which looks like the best of all.

    What chips cost to make, own and emit follows from their node, which must be one that the cost table knows."""
    named = (*values["objectives"], *(constraint.metric for constraint in values.get("constraints", ())))
    wanted = {need for item in named for need in ((item,) if isinstance(item, str) else item.needs)}
    made, known = sorted(wanted & set(MADE)), nodes()
    allowed = f"a process whose prices are known, which {', '.join(made)} needs: {', '.join(known)}"
    bad = [process for process in chip["process"] if made and process not in known]
    faults = [Fault(f'"{process}"', allowed, location=("chip", "process")) for process in bad]
    paid = sorted(name for name in wanted - set(MADE) if "USD" in catalog.metric_units.get(name, ""))
    if not paid or min(cluster.values["usd_per_device_hour"]) > 0:
        return faults
    found = f"a price, which {', '.join(paid)} needs"
    return [*faults, Fault("nothing", found, location=("cluster", "usd_per_device_hour"))]
