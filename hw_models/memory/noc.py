"""What a network on chip lets through between shared SRAM and the cores, how far bytes travel, what it costs.

Shared SRAM is banked and its banks lie beside the cores, so traffic is spread evenly over sources and targets.
Not here: contention of uneven traffic, flow control, routing around faults.
Theory: Dally and Towles, "Principles and Practices of Interconnection Networks", 2004, chapters 3 to 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import NOC, Chip

NONE, CROSSBAR, RING, MESH = range(len(NOC))


def noc_bandwidth(topology: Any, cores: Any, *, width: Any, clock: Any) -> Any:
    """Bytes a second that all cores together exchange with shared SRAM, even traffic.

    n cores, links of w bytes a cycle and direction, clock f:
    crossbar   n w f                 every port is busy
    ring       8 w f                 2 n links (both directions) over a mean distance of n/4; at most n w f
    mesh       4 sqrt(n) w f         half of the traffic crosses the middle, sqrt(n) links each way; at most n w f
    none       no limit: inf
    topology: number in `NOC`; all broadcast; n >= 1.
    """
    ports = cores * width * clock
    middle = np.where(np.equal(topology, RING), 8.0, 4.0 * np.sqrt(cores)) * width * clock
    carried = np.where(np.equal(topology, CROSSBAR), ports, np.minimum(ports, middle))
    return np.where(np.equal(topology, NONE), np.inf, carried)


def shared_sram_supply(chip: Chip) -> Any:
    """Bytes a second between shared SRAM and all cores: the least of its bandwidth, its network's and its banks'.

    min(w, `noc_bandwidth`, banks x bank width x clock), the latter two where they are given (`noc`, `sram_banks`).
    Even use of banks; a conflict, or a bank that a core's stride misses, is not here."""
    if not (np.any(chip.noc) or np.any(chip.sram_banks)):
        return chip.shared_sram_bandwidth
    network = noc_bandwidth(chip.noc, chip.cores, width=chip.noc_width, clock=chip.clock)
    banks = chip.sram_banks * chip.sram_bank_width * chip.clock
    banks = np.where(np.equal(chip.sram_banks, 0), np.inf, banks)
    return np.minimum(np.minimum(chip.shared_sram_bandwidth, network), banks)


def noc_hops(topology: Any, cores: Any) -> Any:
    """Mean links that a byte crosses, even traffic: crossbar 1, ring max(n/4, 1), mesh 2/3 (sqrt(n) - 1/sqrt(n))."""
    ring = np.maximum(cores / 4.0, 1.0)
    side = np.sqrt(cores)
    mesh = np.maximum(2.0 / 3.0 * (side - 1.0 / side), 1.0)
    return np.where(np.equal(topology, CROSSBAR), 1.0, np.where(np.equal(topology, RING), ring, mesh))


def noc_wire(topology: Any, cores: Any, *, core_area: Any) -> Any:
    """Mean length of wire that a byte travels [m], cores of `core_area` [m2] tiled in a square.

    crossbar   from a core to the middle and out again: half of the side of the square
    ring, mesh links crossed (n/4; 2/3 (sqrt(n) - 1/sqrt(n))) x the side of a core; not less than half of the side of
               the square: fewer than four cores are large, and banks lie all over them
    """
    across = np.sqrt(cores)
    links = np.where(np.equal(topology, RING), cores / 4.0, 2.0 / 3.0 * (across - 1.0 / across))
    links = np.where(np.equal(topology, CROSSBAR), 0.0, links)
    return np.maximum(links, 0.5 * across) * np.sqrt(core_area)


def noc_energy(
    topology: Any, cores: Any, *, core_area: Any, wire_energy: Any, router_energy: Any
) -> Any:
    """Joules a byte between shared SRAM and a core: wires [J/B/m] over the distance, a router [J/B] at every hop."""
    length = noc_wire(topology, cores, core_area=core_area)
    return length * wire_energy + noc_hops(topology, cores) * router_energy


def noc_area(topology: Any, cores: Any, *, width: Any, wire_pitch: Any, router_area: Any) -> Any:
    """Area of switches [m2]: what lies under logic (wires of ring and mesh) is free.

    crossbar   wires of n ports of 8 w bits cross each other, both directions: 2 (8 n w pitch)^2
    ring, mesh a router a core: n 8 w r, with router area r a bit of link width; a mesh router has five ports, a ring
               router three, and switch area grows with the square of the ports: 9/25 of it
    """
    bits = 8.0 * width
    crossed = cores * bits * wire_pitch
    routers = cores * bits * router_area
    return np.where(
        np.equal(topology, CROSSBAR), 2.0 * crossed * crossed,
        np.where(np.equal(topology, RING), routers * (9.0 / 25.0), routers),
    )
