"""What a tensor degree may not cut: heads are whole, and so are heads of keys and values unless ranks share copies.

Other dimensions (columns of an MLP, channels, rows of a vocabulary) may be uneven: the fullest rank holds and computes
whole ones.  Names are those of violations, `heads % tensor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.network import Network


@dataclass(frozen=True)
class Indivisible:
    """A dimension that tensor ranks hold whole pieces of.

    sizes    how many pieces layers have
    copies   ranks beyond that number hold copies of a piece, as many each: the number must divide the degree
    """

    name: str
    sizes: tuple[int, ...]
    copies: bool = False

    def remainder(self, tensor: Any) -> Any:
        """What is left over where a degree does not fit, the largest of all sizes; 0 where it does."""
        degree = np.asarray(tensor, dtype=float)
        worst: Any = 0.0
        for size in self.sizes:
            left = size - np.floor(size / degree) * degree
            if self.copies:
                left = np.where(degree > size, degree - np.floor(degree / size) * size, left)
            worst = np.maximum(worst, left)
        return worst


def indivisible(network: Network, sequence: int) -> tuple[Indivisible, ...]:
    """What the tensor degree of `network` must divide: what it says itself, heads of its attention, and their keys and
    values where these have fewer heads."""
    given = {name: (size,) for name, size in network.divisors().items()}
    cores = [core for block in network.blocks(sequence) for core in block.attentions]
    heads = tuple(sorted({core.heads for core in cores}))
    shared = tuple(sorted({core.key_value_heads for core in cores if core.key_value_heads < core.heads}))
    found = [Indivisible(name, sizes) for name, sizes in (({"heads": heads} if heads else {}) | given).items()]
    return (*found, *([Indivisible("kv_heads", shared, copies=True)] if shared else []))
