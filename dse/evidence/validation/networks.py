"""Measured trainings of any network: which rows count, and how throughput scales over devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dse.evidence.measured.runs import Case

__all__ = ["ALL_NETWORKS", "NETWORKS", "Scaling", "is_network", "scaling", "scaling_error"]

#: How the sets of a table of throughputs begin; the set over all of them.
NETWORKS, ALL_NETWORKS = "networks/", "summary/networks"
#: Traits that two rows share which differ in the number of devices alone.
SAME = ("network", "device", "system", "precision", "batch", "sequence")


@dataclass(frozen=True)
class Scaling:
    """Throughput of a device among `devices` over that of one alone [percent], of the same set and inputs a device."""

    row_id: str
    set: str
    devices: int
    predicted_percent: float
    measured_percent: float

    @property
    def points(self) -> float:
        """Predicted less measured [percentage points]."""
        return self.predicted_percent - self.measured_percent


def is_network(case: Case) -> bool:
    """A row of a table of throughputs."""
    return case.set.startswith(NETWORKS)


def scaling(cases: Iterable[Case], splits: Sequence[str] = ("validation",)) -> tuple[Scaling, ...]:
    """Each predicted row of several devices whose set has one of a single device, of any split, beside it."""
    rates: dict[tuple[str, ...], dict[int, list[tuple[Case, float, float]]]] = {}
    for case in cases:
        if is_network(case) and case.design is not None and case.predicted and case.measured:
            devices, design = int(case.design.cluster.devices), case.design
            key = (case.set, *(str(case.traits.get(name, "")) for name in SAME))
            samples = design.workload.global_batch / devices
            found = (case, samples / case.predicted, samples / case.measured)
            rates.setdefault(key, {}).setdefault(devices, []).append(found)
    return tuple(
        Scaling(case.row_id, case.set, devices, 100.0 * predicted / alone[0], 100.0 * measured / alone[1])
        for group in rates.values() if 1 in group
        for alone in [np.median([row[1:] for row in group[1]], axis=0).tolist()]
        for devices, rows in sorted(group.items()) if devices > 1
        for case, predicted, measured in rows if case.split in splits
    )  # fmt: skip


def scaling_error(found: Sequence[Scaling]) -> tuple[float, float, float] | None:
    """Median and mean of the absolute error, and the mean error [percentage points]; None without rows."""
    if not found:
        return None
    points = np.array([item.points for item in found])
    return float(np.median(np.abs(points))), float(np.abs(points).mean()), float(points.mean())
