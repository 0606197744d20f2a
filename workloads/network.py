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


def classes_of(network: Network, sequence: int) -> tuple[Block, ...]:
    """Block classes of a network: one "first", one "last", any number of "body" (or "lead") between them.

    A network that is a graph has a class for each kind of its layers (`GraphNetwork.classes`)."""
    classes = getattr(network, "classes", None)
    return network.blocks(sequence) if classes is None else tuple(classes(sequence))


def chain_of(network: Network, sequence: int) -> tuple[tuple[int, int], ...]:
    """Runs of equal layers along the pipeline: ((number of the class among those of the body, layers), ...).

    A network without `chain(sequence)` has its classes in the order in which `blocks` lists them."""
    counts = [block.count for block in classes_of(network, sequence) if block.place in ("lead", "body")]
    given = getattr(network, "chain", None)
    if given is None:
        return tuple(enumerate(counts))
    found = tuple((int(number), int(run)) for number, run in given(sequence))
    held = dict.fromkeys(range(len(counts)), 0)
    for number, run in found:
        held[number] = held.get(number, 0) + run
    if held != dict(enumerate(counts)) or any(run < 1 for _, run in found):
        allowed = ", ".join(f"{number}: {count}" for number, count in enumerate(counts))
        raise ValueError(
            f"network {network.name!r}: chain: found {found}, allowed: runs >= 1 of so many layers a class: {allowed}"
        )
    return found


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
