"""What bandwidth the members of a group get from the wiring of one tier.

All groups of an axis communicate at once, so where they share wires each gets its part of them.
Not here: who is in the group (groups), how long the transfer takes (collectives).
Theory: bisection and embedding arguments, Dally and Towles, "Principles and Practices of Interconnection
Networks", 2004, chapters 3 to 5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Dimensions of the wirings in which a device has links to its neighbours only.
DIMENSIONS = {"ring": 1, "torus2d": 2, "torus3d": 3}


class Wiring(NamedTuple):
    """What one device of a group gets from a tier, per direction.

    ring       bandwidth of ring and tree algorithms [B/s]
    direct     bandwidth when every member sends to every other (all-to-all) [B/s]
    neighbour  bandwidth to the next member alone (point to point) [B/s]
    steps      messages one after another in a ring reduce-scatter
    shared     distant partners share wires, so tree and halving-doubling are not offered
    """

    ring: Any
    direct: Any
    neighbour: Any
    steps: Any
    shared: bool


def wiring(topology: str, bandwidth: Any, members: Any, *, spacing: Any, units: Any, oversubscription: Any) -> Wiring:
    """Bandwidths of a group of `members`, `spacing` apart, in a tier of `units` units, one device of each.

    bandwidth  of one device into the tier, per direction [B/s]

    switch    every device sends at full bandwidth to anyone; a reducing_switch also adds up what it forwards.
    fat_tree  a switch whose upper levels carry 1/oversubscription; all traffic is assumed to go that far.
    full      a device's links are divided evenly over its units - 1 peers, so n members use (n-1)/(units-1)
              of them.  Rings get as much: n members have n-1 edge-disjoint directed rings (Tillson 1980; all n
              but 4 and 6, where this is slightly generous).  A single neighbour gets one peer's links.
              Nothing is routed through third devices.
    ring, torus2d, torus3d  see `_torus`.
    cube_mesh  see `_cube_mesh`.
    """
    if topology == "cube_mesh":
        return _cube_mesh(bandwidth, members, spacing)
    if topology in DIMENSIONS:
        return _torus(bandwidth, members, spacing, units=units, dimensions=DIMENSIONS[topology])
    if topology == "full":
        link = bandwidth / np.maximum(units - 1, 1)
        used = link * np.maximum(np.minimum(members, units) - 1, 1)
        return Wiring(used, used, link, members - 1, False)
    if topology == "fat_tree":
        bandwidth = bandwidth / oversubscription
    return Wiring(bandwidth, bandwidth, bandwidth, members - 1, False)


def _cube_mesh(bandwidth: Any, members: Any, spacing: Any) -> Wiring:
    """Eight devices of six links each in a hybrid cube mesh use the links that form rings among the members.

    Two quads {0..3} and {4..7}; inside a quad each device has one, one and two links to the others, and two to its
    twin in the other quad.  Links a device sends on in disjoint rings, of 6: all eight members 6 (three rings, both
    ways), a quad 4 (two rings), other groups of more than two 2 (one ring), twins 2, any other pair 1.
    direct     quads and smaller: one link a peer; all eight: the four pairs of twins carry half of everything (7/12)
    neighbour  the links of the weakest pair
    Nothing is routed through third devices.  Distant partners share links, so trees are not offered.
    Source: NVIDIA DGX-1 with Tesla V100 system architecture, white paper WP-08437, 2017.
    """
    link = bandwidth / 6.0
    pair = np.where(spacing >= 4, 2.0, 1.0)
    links = np.where(members > 2, 2.0, pair)
    links = np.where((members == 4) & (spacing == 1), 4.0, links)
    links = np.where(members >= 8, 6.0, links)
    direct = np.minimum(links, np.where(members >= 8, 3.5, np.maximum(members - 1, 1) * pair))
    return Wiring(link * links, link * direct, link * pair, members - 1, True)


def _torus(bandwidth: Any, members: Any, spacing: Any, *, units: Any, dimensions: int) -> Wiring:
    """A group on a torus uses the links of the dimensions it extends along.

    D dimensions of equal side L = ceil(units^(1/D)); ranks fill the first dimension, then the next.  A device
    has two neighbours a dimension, each link with B/(2D).  In dimension j the group has e_j members, s_j apart.
    ring       B (u/D) c / max s_j : u dimensions extended along; c = 1 where the group closes them all (both
               directions carry data), 1/2 where it is a line or a slab (the way back uses the other direction)
    steps      sum (e_j - 1): one ring a dimension, the message cut so that all dimensions work at once
    direct     ring x min(1, 4 / (u max e_j)): the mean distance on a closed ring is a quarter of its length
    neighbour  B / (2D) / max s_j
    Exact for D = 1 and for a group that fills the tier; a unit count that is no D-th power is rounded up to one.
    Ignores the latency of passing through devices between members that are s_j apart.
    """
    side = _side(units, dimensions)
    reach = members * spacing
    used: Any = 0
    steps: Any = 0
    gap: Any = 1
    longest: Any = 1
    is_open: Any = False
    below: Any = 1
    for _ in range(dimensions):
        apart = np.minimum(np.maximum(spacing / below, 1), side)
        extent = np.minimum(np.maximum(reach / below, 1), side)
        count = np.ceil(extent / apart)
        extends = count > 1
        used, steps = used + extends, steps + (count - 1)
        gap = np.maximum(gap, np.where(extends, apart, 1))
        longest = np.maximum(longest, count)
        is_open = is_open | (extends & (extent < side))
        below = below * side
    closed = np.where(is_open & (reach < units), 0.5, 1.0)
    dimension = bandwidth / dimensions / gap
    used = np.maximum(used, 1)
    ring = dimension * used * closed
    return Wiring(ring, ring * np.minimum(1.0, 4.0 / (used * longest)), dimension / 2.0, steps, True)


def _side(units: Any, dimensions: int) -> Any:
    """Smallest whole side whose power `dimensions` holds `units`, exact."""
    if dimensions == 1:
        return units
    root = np.rint(np.sqrt(units) if dimensions == 2 else np.cbrt(units))
    power = root * root if dimensions == 2 else root * root * root
    return root + (power < units)
