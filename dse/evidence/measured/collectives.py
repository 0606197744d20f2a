"""Rows of measured collectives: all-reduce, all-gather, reduce-scatter, all-to-all, point to point.

Each row becomes a `Case`, predicted by `collective_time` as every design is, or skipped with the reason.
`measurement` gives the inputs of one row, for whoever fits constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.evidence.measured.devices import DEVICES, chip_of, cluster_of
from dse.evidence.measured.runs import Case, Row, Skip
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.devices import chip
from hw_models.network.collective_time import collective_time
from hw_models.stack import Stack
from hw_models.stacks import stack

__all__ = ["Measurement", "collective_cases", "measurement", "predicted_time"]

COLLECTIVE_STACK = "generic"
#: First word of the column `collective`, the kind it is, and its bus bandwidth over bytes/time, n ranks (nccl-tests,
#: doc/PERFORMANCE.md).
KINDS: dict[str, tuple[str, Any]] = {
    "all_reduce": ("all_reduce", lambda n: 2.0 * (n - 1.0) / n),
    "all_gather": ("all_gather", lambda n: (n - 1.0) / n),
    "reduce_scatter": ("reduce_scatter", lambda n: (n - 1.0) / n),
    "all_to_all": ("all_to_all", lambda n: (n - 1.0) / n),
    "p2p": ("point_to_point", lambda n: 1.0),
}


#: Devices measured inside one node only: chip of the product, and how its node of eight is wired.
NODES = {
    "H200": ("h200-sxm", "reducing_switch"),
    "MI300X": ("mi300x", "full"),
}
#: The device whose cluster lends its latencies and adapters to those nodes.
LENDER = "H100"


@dataclass(frozen=True)
class Measurement:
    """One measured collective of `size` neighbouring ranks: what ran where, and how long it took [s].

    device     name of the chip, whose constants apply
    message    as `collective_time` defines it [B]
    in_switch  the switch may add up, if it can: False where the row says that a ring ran
    """

    kind: str
    device: str
    chip: Chip
    cluster: Cluster
    size: float
    message: float
    time: float
    in_switch: bool


def collective_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Collectives of groups inside a node or across nodes [s]."""
    for number, row in enumerate(table, start=1):
        if row["kind"] != "measured":
            continue
        case = Case(
            f"{stem}/{_word(row)}", row.get("row_id") or f"{stem}:{number}", "s", split=row.get("split") or "",
            inputs=tuple(
                row.get(key) or "" for key in ("collective", "device", "topology", "num_devices", "payload_bytes",
                                               "algorithm")
            ),
            traits={key: row[key] for key in ("device", "topology", "num_devices", "payload_bytes")},
        )  # fmt: skip
        try:
            found = measurement(row)
        except Skip as reason:
            yield replace(case, skipped=str(reason))
            continue
        predicted = predicted_time(found, stack(COLLECTIVE_STACK, found.device))
        yield replace(case, measured=found.time, predicted=predicted)


def measurement(row: Row) -> Measurement:
    """What a row says ran; raises `Skip` with the reason where it does not say enough."""
    if _word(row) not in KINDS:
        raise Skip(f"collective {row['collective']!r} is not one of {', '.join(KINDS)}")
    kind, bus = KINDS[_word(row)]
    rate, time = _number(row, "busbw_GBps") * 1e9, _number(row, "time_us") * 1e-6
    message = _number(row, "payload_bytes")
    if "low-latency" in row["collective"]:
        raise Skip("kernels that post all messages at once, for inference: not an algorithm of the stack")
    cells = {"device": row["device"], "num_devices": row["num_devices"], "payload_bytes": message}
    if missing := [name for name, value in cells.items() if not value]:
        raise Skip(f"incomplete: no {', '.join(missing)}")
    device, size = row["device"], _number(row, "num_devices")
    if device not in DEVICES and device not in NODES:
        raise Skip(f"device {device!r} is not in the table of chips")
    if not time and not rate:
        raise Skip("no measured time")
    part, cluster = _hardware(row, int(size))
    return Measurement(
        kind, part.name, part, cluster, size, message,
        time or bus(size) * message / rate, not (row.get("algorithm") or "").startswith("Ring"),
    )  # fmt: skip


def predicted_time(found: Measurement, constants: Stack) -> Any:
    """Time of one measured collective with the constants of a stack [s]; a column (C, 1) of times for columns."""
    if not found.in_switch:
        algorithms = tuple(name for name in constants.algorithms if name != "in_network")
        constants = replace(constants, algorithms=algorithms or ("ring",))
    cost = collective_time(
        found.cluster, found.chip, constants, found.kind, size=found.size, stride=1.0, message=found.message
    )
    time = np.asarray(cost.time)
    return float(time.reshape(-1)[0]) if time.size == 1 else time


def _hardware(row: Row, size: int) -> tuple[Chip, Cluster]:
    """Chip and reference cluster of the device; devices wired to each other are a node of their own."""
    device = row["device"]
    if device in NODES:
        name, topology = NODES[device]
        part, cluster = chip(name), _innermost(cluster_of(LENDER, max(size, 8)), topology=topology)
    else:
        part, cluster = chip_of(device), cluster_of(device, max(size, 8))
    if "fully connected" in row["topology"]:
        cluster = _innermost(cluster, topology="full", size=size)
    return part, cluster


def _innermost(cluster: Cluster, **changes: Any) -> Cluster:
    """The cluster with another innermost tier."""
    return replace(cluster, tiers=(replace(cluster.tiers[0], **changes), *cluster.tiers[1:]))


def _word(row: Row) -> str:
    return row["collective"].split(" ")[0]


def _number(row: Row, heading: str) -> float:
    return float(row.get(heading) or 0.0)
