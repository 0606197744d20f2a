"""Operators whose work follows data: sparse linear models, coordinate descent, graphs, node memory, subdivision.

They are memory traffic with few operations; none but the node memory is a matrix product.  fp32 and 4-byte indices.
Theory: docs/models/recommendation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from workloads.graph import Counts, Shape
from workloads.layers.attention import rows_and_width
from workloads.layers.checks import at_least, need, one_shape
from workloads.operators import Matmul, Vector

#: Elements of 2 bytes that fp32 numbers and indices take.
FLOAT, INDEX = 2, 2
#: Elements of 2 bytes of the smallest piece of memory that is read or written: a sector of 32 B.
SECTOR = 16


@dataclass(frozen=True)
class SparseLinear:
    """A linear model of a sparse row: y = sum over its non-zeros of value x weight, (non-zeros,) -> (outputs,).

    One row of a sparse matrix-vector product; its gradient is one column of the transposed product.
    features, outputs   shape of the weights;  values: numbers are stored beside indices (False: all are 1)
    Moved a non-zero: index, value, weights (a sector where outputs are few) forward; the same and the update backward.
    FLOP: 2 a non-zero and output forward, as many backward.     [Ma et al. 2018, arXiv 1802.08800]
    """

    features: int
    outputs: int = 1
    values: bool = True

    def __post_init__(self) -> None:
        need(at_least(1, features=self.features, outputs=self.outputs))

    def counts(self, *shapes: Shape) -> Counts:
        """Weights are gathered, and updated where the row has something."""
        number = prod(one_shape(shapes))
        if number > self.features:
            raise ValueError(f"input: found {number} non-zeros, allowed: at most {self.features} (features)")
        entry = INDEX + (FLOAT if self.values else 0)
        row = max(FLOAT * self.outputs, SECTOR)
        one = Vector(
            "sparse row", number, reads=entry + row, writes=FLOAT * self.outputs / number, backward_reads=entry + row,
            backward_writes=row, operations=2 * self.outputs, backward_operations=2 * self.outputs,
            fixed=entry + row + FLOAT * self.outputs / number, backward_fixed=entry + 2 * row, rows=1,
            row_width=self.outputs,
        )  # fmt: skip
        weights = self.features * self.outputs
        return Counts(
            (self.outputs,), weights, passes=(one,), mixing="own", row_parameters=weights,
            touched=number * self.outputs, rows=self.features,
        )  # fmt: skip


@dataclass(frozen=True)
class CoordinateDescent:
    """One coordinate step of a generalised linear model a sample: an inner product and an update of a shared vector.

    The coordinate of an example reads its non-zeros and the shared vector there, solves one unknown, and adds its
    change to the shared vector; there is no backward pass.                      [Parnell et al. 2017, arXiv 1702.07005]
    partition "example": devices hold examples and agree on a vector of `features` numbers each round;
              "feature": devices hold features and agree on a vector of `examples` numbers
    values     False: all non-zeros are 1
    Moved a non-zero: index [and value], and a sector of the shared vector read and written.
    """

    examples: int
    features: int
    partition: Literal["example", "feature"] = "example"
    values: bool = False

    def __post_init__(self) -> None:
        problems = at_least(1, examples=self.examples, features=self.features)
        if self.partition not in ("example", "feature"):
            problems.append(f"partition: found {self.partition!r}, allowed: example, feature")
        need(problems)

    @property
    def shared(self) -> int:
        """Numbers of the vector that devices agree on."""
        return self.features if self.partition == "example" else self.examples

    def counts(self, *shapes: Shape) -> Counts:
        """2 FLOP a non-zero for the inner product, 2 for the update."""
        number = prod(one_shape(shapes))
        entry = INDEX + (FLOAT if self.values else 0)
        one = Vector("coordinate step", number, reads=entry + SECTOR, writes=SECTOR, backward_reads=0,
                     backward_writes=0, operations=4, backward_operations=0)  # fmt: skip
        return Counts((1,), self.shared, passes=(one,), mixing="own")


@dataclass(frozen=True)
class GraphGather:
    """Features of the source of each edge: (nodes, width) -> (edges, width); backward adds them up at the nodes."""

    edges: int

    def __post_init__(self) -> None:
        need(at_least(1, edges=self.edges))

    def counts(self, *shapes: Shape) -> Counts:
        """A row and its index read an edge."""
        nodes, width = rows_and_width(shapes)
        one = Vector("gather", self.edges * width, reads=1 + INDEX / width, backward_reads=2 + INDEX / width,
                     backward_writes=1, operations=0, backward_operations=1)  # fmt: skip
        return Counts((self.edges, width), passes=(one,), mixing="channels")


@dataclass(frozen=True)
class GraphScatter:
    """Messages of edges added up at their targets: (edges, width) -> (nodes, width)."""

    nodes: int

    def __post_init__(self) -> None:
        need(at_least(1, nodes=self.nodes))

    def counts(self, *shapes: Shape) -> Counts:
        """A row is read, added and written an edge; backward is a gather."""
        edges, width = rows_and_width(shapes)
        one = Vector("scatter", edges * width, reads=2 + INDEX / width, writes=1, backward_reads=1 + INDEX / width,
                     backward_writes=1, operations=1, backward_operations=0)  # fmt: skip
        return Counts((self.nodes, width), passes=(one,), mixing="channels")


@dataclass(frozen=True)
class NodeMemory:
    """Memory of the nodes that a batch of events touches, brought up to date by a GRU from their mail.

    (rows,) node numbers -> (rows, width).  Each row reads its state (width) and mail (`mail` numbers), fp32, and
    encodes the time since (`time` cosines, two parameters each); `written` rows a sample write both back.  The state is
    no parameter: nodes x (width + mail) x 4 B, a copy a memory group.         [Zhou et al. 2023, arXiv 2307.07649]
    """

    width: int
    mail: int
    time: int = 100
    written: int = 2

    def __post_init__(self) -> None:
        need(at_least(1, width=self.width, mail=self.mail) + at_least(0, time=self.time, written=self.written))

    def state_bytes(self, nodes: int, copies: int = 1) -> int:
        """Bytes of the state of `nodes` nodes in `copies` memory groups."""
        return 4 * nodes * (self.width + self.mail) * copies

    def moved_bytes(self, rows: int) -> int:
        """Bytes of state read and written back a sample of `rows` rows."""
        return 4 * (rows + self.written) * (self.width + self.mail)

    def counts(self, *shapes: Shape) -> Counts:
        """Two products of three gates each; the state gets no gradient across batches."""
        rows = prod(one_shape(shapes))
        inputs, gates = self.mail + self.time, 3 * self.width
        share = self.written / rows
        return Counts(
            result=(rows, self.width),
            parameters=gates * (inputs + self.width) + 2 * gates + 2 * self.time,
            products=(
                Matmul("mail gates", rows, gates, inputs, input_gradient=False),
                Matmul("memory gates", rows, gates, self.width, input_gradient=False),
            ),
            passes=(
                Vector("node state", rows * (self.width + self.mail), reads=FLOAT + INDEX / (self.width + self.mail),
                       writes=1 + FLOAT * share, backward_reads=0, backward_writes=0, operations=0,
                       backward_operations=0),
                Vector("gates", rows * self.width, reads=7, writes=4, backward_reads=5, backward_writes=3,
                       operations=21, backward_operations=27),
            ),
            keeps=("result",),
            kept_bytes=2 * rows * (inputs + gates + self.width),
            mixing="own",
            inner=2,
        )  # fmt: skip


@dataclass(frozen=True)
class NeighbourAttention:
    """Each of the first `roots` rows attends to its own `fanout` rows of (roots (1 + fanout), width).

    Queries from a root and time; keys and values from a neighbour, the edge's `edge` features and time; the result is
    joined to the root and mixed.                                       [Xu et al. 2020, arXiv 2002.07962 (TGAT)]
    """

    roots: int
    fanout: int
    heads: int = 2
    edge: int = 0
    time: int = 100

    def __post_init__(self) -> None:
        need(
            at_least(1, roots=self.roots, fanout=self.fanout, heads=self.heads)
            + at_least(0, edge=self.edge, time=self.time)
        )

    def counts(self, *shapes: Shape) -> Counts:
        """Small products a root for scores and context."""
        rows, width = rows_and_width(shapes)
        need([] if rows == self.roots * (1 + self.fanout) else [
            f"input: found {rows} rows, allowed: {self.roots * (1 + self.fanout)} (roots x (1 + fanout))"
        ] + ([f"width % heads: {width} % {self.heads} != 0"] if width % self.heads else []))  # fmt: skip
        near, head = self.roots * self.fanout, width // self.heads
        query, key = width + self.time, width + self.edge + self.time
        products = (
            Matmul("query", self.roots, width, query),
            Matmul("key and value", near, 2 * width, key),
            Matmul("scores", 1, self.fanout, head, groups=self.roots * self.heads, weight=False),
            Matmul("context", 1, head, self.fanout, groups=self.roots * self.heads, weight=False),
            Matmul("projection", self.roots, width, 2 * width),
        )
        scores = self.roots * self.heads * self.fanout
        return Counts(
            result=(self.roots, width),
            parameters=sum(one.n * one.k + one.n for one in products if one.weight) + 2 * self.time,
            products=products,
            passes=(
                # neighbours, edges and times side by side
                Vector("join", near * key + self.roots * query, backward_reads=1, operations=1, backward_operations=1),
                Vector("softmax", scores, operations=6, backward_operations=4),
            ),
            keeps=("inputs",),
            kept_bytes=2 * (near * (key + 2 * width) + self.roots * (query + 3 * width) + 2 * scores),
            mixing="own",
            inner=3,
        )


def subdivision_levels(side: float, *, split: int, again: int, stop: float) -> list[float]:
    """Sides of the regions of each level: side / (split again^i), down to the first that is at most `stop`."""
    sides = [side / split]
    while sides[-1] > stop:
        sides.append(sides[-1] / again)
    return sides


def subdivision_work(
    side: float, density: float, *, work: float, split: int = 2, again: int = 2, stop: float = 32.0, launch: float = 0.0
) -> float:
    """Work of adaptive subdivision of a square whose part `density` of regions is dense at every level.

    W = sum_(i < k) g^2 (r^2 P)^i [4 A s_i + (1 - P) s_i^2 + L] + g^2 (r^2 P)^k A s_k^2,  s_i = n / (g r^i)
    n side, P density, A work of an element, g first and r further split, L launch of a region, s_k the first <= stop.
    The border of each region is computed; a region whose border is alike is filled, the others are split again.
    Working through the square costs A n^2.          [Quezada et al. 2022, arXiv 2206.02255, cost model]
    """
    sides = subdivision_levels(side, split=split, again=again, stop=stop)
    regions, total = float(split * split), 0.0
    for length in sides[:-1]:
        total += regions * (4.0 * work * length + (1.0 - density) * length * length + launch)
        regions *= again * again * density
    return total + regions * work * sides[-1] * sides[-1]


@dataclass(frozen=True)
class AdaptiveSubdivision:
    """A square (n, n) computed by adaptive subdivision: work follows the part of regions that is dense.

    work       operations an element;  density: part of the regions of a level that must be split
    split, again, stop   first split, further splits, largest side that is computed whole
    launch     "level": one kernel a level; "region": a region launches its parts (dynamic parallelism);
               "exhaustive": no subdivision
    Source: Quezada et al. 2022, arXiv 2206.02255.
    """

    work: float = 512.0
    density: float = 0.5
    split: int = 2
    again: int = 2
    stop: int = 32
    launch: Literal["level", "region", "exhaustive"] = "level"

    def __post_init__(self) -> None:
        problems = at_least(2, split=self.split, again=self.again) + at_least(1, stop=self.stop)
        if not 0 <= self.density <= 1:
            problems.append(f"density: found {self.density!r}, allowed: 0 <= density <= 1")
        if not self.work > 0:
            problems.append(f"work: found {self.work!r}, allowed: a number > 0")
        if self.launch not in ("level", "region", "exhaustive"):
            problems.append(f"launch: found {self.launch!r}, allowed: level, region, exhaustive")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Borders and fills of each level, then the elements of the last."""
        shape = one_shape(shapes)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"input: found shape {shape}, allowed: a square (n, n)")
        if self.launch == "exhaustive":
            return Counts(shape, passes=(self._computed("elements", float(prod(shape))),))
        passes, regions = [], float(self.split**2)
        sides = subdivision_levels(shape[0], split=self.split, again=self.again, stop=self.stop)
        for level, length in enumerate(sides[:-1]):
            launches = ceil(regions) if self.launch == "region" else 1
            passes.append(self._computed(f"borders {level}", 4.0 * regions * length, launches))
            filled = regions * (1.0 - self.density) * length * length
            if filled:
                passes.append(Vector(f"fill {level}", ceil(filled), reads=0, backward_reads=0, backward_writes=0,
                                     operations=1, backward_operations=0))  # fmt: skip
            regions *= self.again**2 * self.density
        last = regions * sides[-1] * sides[-1]
        if last:
            passes.append(self._computed("elements", last, ceil(regions) if self.launch == "region" else 1))
        return Counts(shape, passes=tuple(passes))

    def _computed(self, name: str, elements: float, launches: int = 1) -> Vector:
        return Vector(name, ceil(elements), reads=0, writes=1, backward_reads=0, backward_writes=0,
                      operations=self.work, backward_operations=0, steps=launches)  # fmt: skip
