"""What is trained: a network is a name and, for a sequence length, a few block classes with counts.

Anything with the attributes of `Network` can be passed where a network is expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Protocol, runtime_checkable

from workloads.operators import Block


@runtime_checkable
class Network(Protocol):
    """The contract of a network.

    name        shown in results
    blocks(sequence)   the block classes for a sequence length; exactly one class has place "body",
                one "first" and one "last", at most one "lead"
    divisors()  what the tensor degree must divide, by name, e.g. {"heads": 96}; a degree that does
                not is a named violation (`heads % tensor`)
    """

    @property
    def name(self) -> str: ...

    def blocks(self, sequence: int) -> tuple[Block, ...]: ...

    def divisors(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Workload:
    """One network with its batch.

    sequence      tokens a sample
    global_batch  samples an optimizer step
    weight        share in a multi-network objective
    """

    network: Network
    sequence: int
    global_batch: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        problems = []
        for name in ("sequence", "global_batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                problems.append(f"{name}: found {value!r}, allowed: a whole number >= 1")
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real) or not 0 < self.weight < float("inf"):
            problems.append(f"weight: found {self.weight!r}, allowed: a number > 0")
        if not isinstance(self.network, Network):
            problems.append(f"network: found {self.network!r}, allowed: an object with name, blocks and divisors")
        if problems:
            raise ValueError("Workload: " + "; ".join(problems))

    @property
    def tokens(self) -> int:
        """Tokens an optimizer step."""
        return self.sequence * self.global_batch
