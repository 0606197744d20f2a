"""Which tiers a group of ranks crosses: how many of its members sit inside one unit of each tier.

Ranks are placed in order (rank r is device r), so size and stride decide it, never the degree alone.
Not here: what the links of a tier can do (topology).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.cluster import Cluster


def ranks_per_tier(cluster: Cluster, size: Any, stride: Any) -> list[Any]:
    """Members of the groups {r0 + stride i, i < size} at each tier, innermost first; their product is `size`.

    n_0 members share a unit of tier 0, n_1 such units share a unit of tier 1, and so on:
    n_0 = g / stride  with  g = gcd(size of the tier, stride x size),  or 1 where stride does not divide g.

    Groups start at multiples of stride x size and units at multiples of the tier's size, so both borders fall
    on multiples of g and every piece of every group holds a multiple of n_0 members.  Where sizes divide each
    other this is the exact placement.  Elsewhere it is the group that straddles a border worst, in its smallest
    even pieces: 6 ranks on units of 8 are 2 x 3 (ranks 6 to 11 have two members in the first unit), 12 are 4 x 3.
    That is conservative, because the slowest group paces the others.  A tier that holds the whole cluster holds
    every group; the last tier does by definition.

    size, stride and the fields of the cluster are whole numbers and broadcast.
    """
    size, stride = np.asarray(size), np.asarray(stride)
    span = _whole(size * stride)
    ranks: list[Any] = []
    inside: Any = np.asarray(1.0)
    for tier in cluster.tiers[:-1]:
        unit = np.where(np.greater_equal(tier.size, cluster.devices), 0, tier.size)  # gcd(0, span) is the whole span
        together = np.gcd(_whole(unit), span) / stride
        here = np.where(together == np.floor(together), together, 1.0)
        if ranks:  # keeps the product whole when a tier is no multiple of the one inside it
            here = np.gcd(_whole(size / inside), _whole(np.maximum(np.floor(here / inside), 1.0))).astype(np.float64)
        ranks.append(here)
        inside = inside * here
    ranks.append(size / inside)
    return ranks


def _whole(value: Any) -> Any:
    """A column of whole numbers as int64, which gcd needs."""
    return np.asarray(value).astype(np.int64, copy=False)
