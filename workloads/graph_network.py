"""A network given as a graph: built once, lowered to block classes once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workloads.graph import Graph
from workloads.lowering import classes, lower

__all__ = ["WORDS", "GraphNetwork"]

#: Samples that are so many tokens.
WORDS = ("sequence", "pair", "segment")


@dataclass(frozen=True)
class GraphNetwork:
    """A network given as a graph: what `Workload` and `dse.evaluate` take.

    build      makes the graph for samples of `sequence` tokens (ignored by networks of images)
    sequence   tokens a sample as published; 1 where a sample is one image or row
    sample     what a sample is called: "image", "sequence", "row"
    source     where sizes were published
    tensor_divides   what the tensor degree must divide, by name
    """

    name: str
    build: Callable[[int], Graph]
    sequence: int = 1
    sample: str = "image"
    source: str = ""
    tensor_divides: tuple[tuple[str, int], ...] = ()

    @property
    def has_length(self) -> bool:
        """Whether a sample is so many tokens or time steps, not one thing (an image, a row)."""
        return self.sequence > 1 or self.sample in WORDS

    def graph(self, sequence: int | None = None) -> Graph:
        """Its operators for samples of so many tokens; built once."""
        return _built(self, sequence or self.sequence)

    def blocks(self, sequence: int) -> tuple[Any, ...]:
        """Its block classes by place: embedding, leading layers, layers, head; or data, one body of cells, loss."""
        return _lowered(self, sequence)

    def classes(self, sequence: int) -> tuple[Any, ...]:
        """Its block classes: embedding (or data), a class for each kind of layer, head (or loss)."""
        blocks: tuple[Any, ...] = _classes(self, sequence).blocks
        return blocks

    def chain(self, sequence: int) -> tuple[tuple[int, int], ...]:
        """Runs of equal layers along the pipeline: (number of the class among those of the layers, layers), ..."""
        runs: tuple[tuple[int, int], ...] = _classes(self, sequence).chain
        return runs

    def divisors(self) -> dict[str, int]:
        """What the tensor degree must divide."""
        return dict(self.tensor_divides)


#: Graphs kept: a search meets few networks, and a large graph takes a second to build.
KEPT = 64


@lru_cache(maxsize=KEPT)
def _built(network: GraphNetwork, sequence: int) -> Graph:
    graph = network.build(sequence)
    if not isinstance(graph, Graph):  # what a function of the user's returned
        raise ValueError(
            f"network {network.name!r}: its function returned {type(graph).__name__}, allowed: a Graph"
        )
    return graph


@lru_cache(maxsize=KEPT)
def _lowered(network: GraphNetwork, sequence: int) -> tuple[Any, ...]:
    return lower(_built(network, sequence))


@lru_cache(maxsize=KEPT)
def _classes(network: GraphNetwork, sequence: int) -> Any:
    return classes(_built(network, sequence))
