"""Which chip and cluster of the product a device of the measured tables is, and what its notes say of the network."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.devices import chip


@dataclass(frozen=True)
class Device:
    """How a device of the tables is named in the product.

    chip, cluster   rows of their tables
    node            devices that a job uses of each innermost unit, where not all of them; 0: all.  Jobs of a power of
                    two devices use 64 of the 72 of a rack, so that their groups stay inside one
    slices          cluster of several pods, for runs that say how many
    """

    chip: str
    cluster: str
    node: int = 0
    slices: str = ""


DEVICES: dict[str, Device] = {
    "A100": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-80GB": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-SXM-80GB": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-40GB": Device("a100-sxm-40gb", "dgx-a100"),
    "H100": Device("h100-sxm", "dgx-h100"),
    "H100-SXM-80GB": Device("h100-sxm", "dgx-h100"),
    "H100-96GB-HBM2e-500W (Grand Teton)": Device("h100-96gb-hbm2e", "grand-teton"),
    "H200-SXM-141GB": Device("h200-sxm", "dgx-h200"),
    "H800": Device("h800-sxm", "dgx-h100"),
    "H800-80GB": Device("h800-sxm", "dgx-h100"),
    "V100": Device("v100-sxm2", "dgx-v100"),
    "V100-SXM2-32GB": Device("v100-sxm2", "dgx-v100"),
    "V100-SXM2-16GB": Device("v100-sxm2-16gb", "dgx-v100"),
    "B200": Device("b200-sxm", "dgx-b200"),
    "B200-SXM": Device("b200-sxm", "dgx-b200"),
    "B300": Device("b300-sxm", "dgx-b300"),
    "GB200": Device("gb200", "nvl72", node=64),
    "GB300": Device("gb300", "gb300-nvl72", node=64),
    "Gaudi2-96GB": Device("gaudi2", "gaudi2-node"),
    "V100-16GB": Device("v100-sxm2-16gb", "dgx-v100"),
    "V100-32GB": Device("v100-sxm2", "dgx-v100"),
    "P100": Device("p100-sxm2", "p100-pcie-node"),
    "P100-PCIe": Device("p100-pcie", "p100-pcie-node"),
    "K80 (one GK210)": Device("k80-gk210", "p2-8xlarge"),
    "K20": Device("k20", "p2-8xlarge"),
    "Gaudi1": Device("gaudi", "hls-1"),
    "TPUv2": Device("tpu-v2", "tpu-v2-pod"),
    "TPUv3": Device("tpu-v3", "tpu-v3-pod"),
    "TPUv4": Device("tpu-v4", "tpu-v4-pod", slices="tpu-v4-multislice"),
    "TPUv5e": Device("tpu-v5e", "tpu-v5e-pod"),
    "TPUv5p": Device("tpu-v5p", "tpu-v5p-pod"),
    "TPUv6e": Device("tpu-v6e", "tpu-v6e-pod"),
    "TPUv7x(Ironwood)": Device("tpu-v7x", "tpu-v7x-pod"),
}

#: Systems that join the devices otherwise than the reference cluster.
SYSTEMS: dict[str, str] = {"DGX-2": "dgx-2", "DGX-2H": "dgx-2"}


def is_known(device: str) -> bool:
    """Whether a device of the tables is one of the product."""
    return device in DEVICES


@cache
def chip_of(device: str) -> Chip:
    """The chip of a device of the tables."""
    return chip(DEVICES[device].chip)


@cache
def cluster_of(device: str, devices: int, bandwidth: float = 0.0, *, slices: int = 1) -> Cluster:
    """The reference cluster of a device, with what a row says of its own.

    bandwidth   between nodes [B/s a device]; 0: as the reference
    slices      equal pods that share the devices, joined by the data-center network
    """
    known = DEVICES[device]
    if slices > 1 and known.slices:
        found = cluster(known.slices, devices)
        return _with_node(found, devices // slices)
    found = cluster(known.cluster, devices)
    if known.node and devices > known.node:
        found = _with_node(found, known.node)
    if not bandwidth or len(found.tiers) < 2:
        return found
    return replace(found, tiers=(found.tiers[0], replace(found.tiers[1], bandwidth=bandwidth), *found.tiers[2:]))


@cache
def cluster_in(device: str, system: str, devices: int) -> Cluster:
    """The cluster of a system of the tables; the reference cluster of the device where it has none of its own."""
    return cluster(SYSTEMS.get(system, DEVICES[device].cluster), devices)


def _with_node(found: Cluster, size: int) -> Cluster:
    """The cluster with innermost units of another size."""
    inner: Tier = replace(found.tiers[0], size=size)
    return replace(found, tiers=(inner, *found.tiers[1:]))


def node_bandwidth(notes: str, node: int = 8) -> float:
    """Bandwidth between nodes as notes state it [B/s a device, per direction]; 0 where they do not.

    "inter-node 800 Gb/s" and "4x100Gb OmniPath" are of a node, "400 Gb/s RDMA per GPU" of a device.
    """
    if found := re.search(r"(\d+)\s*Gb/s RDMA per GPU", notes):
        return float(found.group(1)) * 1e9 / 8
    if found := re.search(r"inter-node (\d+)\s*Gb/s", notes):
        return float(found.group(1)) * 1e9 / 8 / node
    if found := re.search(r"(\d+)x(\d+)\s*Gb ", notes):
        return float(found.group(1)) * float(found.group(2)) * 1e9 / 8 / node
    return 0.0


def slices_of(notes: str) -> int:
    """Pods that a run used, as notes state it, "2 slice(s), fsdp=64 within slice"; 1 where they do not."""
    found = re.search(r"(\d+) slice\(s\)", notes)
    return int(found.group(1)) if found else 1
