"""A network opened up: what each operator of each layer computes, moves, trains and keeps, in every phase of training.

It knows no hardware: bytes are those that a chip with unlimited memory on it would move, each tensor once and 2 bytes
an element.  Pictures are drawn by `dse.present.figures.network`.  Theory: docs/models/networks.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.cells import cells
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.lowering import node_blocks
from workloads.network import Network
from workloads.operators import Block, Matmul, Vector
from workloads.published import default_sequence, names, sample

__all__ = ["PHASES", "Layer", "Link", "NetworkReport", "OperatorLine", "Work", "network_report"]

#: Phases of training: matrix products forward, of both gradients, and element-wise passes of both directions.
PHASES = ("forward", "input_gradient", "weight_gradient", "passes_forward", "passes_backward")
#: Bytes of an element, weights and activations alike.
ELEMENT = 2


@dataclass(frozen=True)
class Work:
    """FLOP (operations of element-wise passes) and bytes."""

    flops: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.moved + other.moved)

    def times(self, number: float) -> Work:
        """So many of it."""
        return Work(self.flops * number, self.moved * number)

    @property
    def intensity(self) -> float | None:
        """FLOP a byte; None where nothing moves."""
        return self.flops / self.moved if self.moved else None


@dataclass(frozen=True)
class OperatorLine:
    """One operator (a node of a graph, or a product or pass of a block) of a micro-batch.

    shape     of its result for a sample, () where it is not known
    size      of its products as text: "m x n x k", of one sample
    phases    FLOP and bytes by phase
    """

    name: str
    shape: tuple[int, ...]
    size: str
    parameters: int
    phases: Mapping[str, Work]

    @property
    def flops(self) -> float:
        """Forward FLOP of its matrix products."""
        return self.phases["forward"].flops


@dataclass(frozen=True)
class Layer:
    """Operators that belong together, of which the network has `count` equal ones in a row.

    kept, boundary   bytes it keeps for its backward pass (fused attention), and elements that the next layer gets, of
                     one sample
    members          names of the equal ones
    """

    name: str
    count: int
    operators: tuple[OperatorLine, ...]
    parameters: int
    kept: int
    boundary: int
    members: tuple[str, ...] = ()

    def phase(self, *names: str) -> Work:
        """FLOP and bytes of some phases, of one of the layers."""
        return total(line.phases[name] for line in self.operators for name in names)


@dataclass(frozen=True)
class Link:
    """Elements a sample that go from one layer to another, by their places in the report."""

    source: int
    target: int
    elements: int


@dataclass(frozen=True)
class NetworkReport:
    """A network, layer by layer, for one micro-batch."""

    name: str
    source: str
    sample: str
    sequence: int
    micro_batch: int
    layers: tuple[Layer, ...]
    links: tuple[Link, ...] = field(repr=False, default=())

    def phase(self, *names: str) -> Work:
        """FLOP and bytes of some phases of the whole network."""
        return total(layer.phase(*names).times(layer.count) for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Trained numbers, each once."""
        return sum(layer.parameters * layer.count for layer in self.layers)

    @property
    def kept(self) -> int:
        """Bytes that all layers keep for the backward pass, of one sample."""
        return sum(layer.kept * layer.count for layer in self.layers)

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON-able data: FLOP, bytes of the micro-batch; kept bytes and elements of one sample."""
        return {
            "name": self.name, "source": self.source, "sample": self.sample, "sequence": self.sequence,
            "micro_batch": self.micro_batch, "parameters": self.parameters, "kept": self.kept,
            "units": {"flops": "FLOP", "moved": "B", "kept": "B a sample", "boundary": "elements a sample"},
            "phases": {name: _plain(self.phase(name)) for name in PHASES},
            "layers": [
                {
                    "name": layer.name, "count": layer.count, "members": list(layer.members),
                    "parameters": layer.parameters, "kept": layer.kept, "boundary": layer.boundary,
                    "phases": {name: _plain(layer.phase(name)) for name in PHASES},
                    "operators": [
                        {
                            "name": line.name, "shape": list(line.shape), "size": line.size,
                            "parameters": line.parameters,
                            "phases": {name: _plain(line.phases[name]) for name in PHASES},
                        }
                        for line in layer.operators
                    ],
                }
                for layer in self.layers
            ],
            "links": [[link.source, link.target, link.elements] for link in self.links],
        }  # fmt: skip


def _plain(work: Work) -> dict[str, float | None]:
    return {"flops": work.flops, "moved": work.moved, "intensity": work.intensity}


def total(parts: Iterable[Work]) -> Work:
    """The sum of works."""
    found = Work()
    for part in parts:
        found = found + part
    return found


# Counting ------------------------------------------------------------------------------------------------------------


def network_report(network: Network, *, sequence: int | None = None, micro_batch: int = 1) -> NetworkReport:
    """A network, layer by layer.

    sequence      tokens a sample; None: as published, 1 where a sample has no length
    micro_batch   samples that share one reading of the weights
    """
    if isinstance(micro_batch, bool) or not isinstance(micro_batch, int) or micro_batch < 1:
        raise ValueError(f"micro_batch: found {micro_batch!r}, allowed: a whole number >= 1")
    length = sequence or int(getattr(network, "sequence", 0) or _published(network.name))
    if isinstance(network, GraphNetwork) and network.has_length and network.sequence == 1 and sequence is None:
        raise ValueError(f"sequence: found none for the network {network.name!r}, allowed: a whole number >= 1")
    source = str(getattr(network, "source", ""))
    if isinstance(network, GraphNetwork):
        graph = network.graph(length)
        alone, between = _graph_layers(graph, network.blocks(length), micro_batch)
        runs, links = merged(alone, between)
        return NetworkReport(network.name, source, sample(network), length, micro_batch, runs, links)
    blocks = [block for block in network.blocks(length) if block.count]
    layers = tuple(_block_layer(block, micro_batch) for block in blocks)
    links = tuple(Link(at, at + 1, blocks[at].boundary) for at in range(len(blocks) - 1))
    return NetworkReport(network.name, source, f"{length:,} tokens", length, micro_batch, layers, links)


def _published(name: str) -> int:
    return default_sequence(name) if name in names() else 2048


def product_work(product: Matmul, samples: int) -> dict[str, Work]:
    """FLOP and bytes of a product's phases for a micro-batch: two operands and the result, each once.

    A convolution reads the tensor that its windows are cut from, m k min(s, w)/w elements."""
    columns = product.n + product.n_groups * product.n_group_width
    times = product.groups * product.repeats
    rows = product.m * samples
    distinct = min(product.stride, product.window) / product.window
    held = 1 if product.weight else samples  # weights serve the whole micro-batch, other right operands one sample
    matrices = min(product.experts, rows) if product.experts else held
    elements = rows * product.k * distinct + matrices * columns * product.k + rows * columns
    once = Work(2.0 * rows * columns * product.k * times, ELEMENT * elements * times)
    if not product.weight:
        return {"forward": once, "input_gradient": once.times(2.0)}
    found = {"forward": once, "weight_gradient": once}
    return found | {"input_gradient": once} if product.input_gradient else found


def pass_work(one: Vector, samples: int) -> dict[str, Work]:
    """Operations and bytes of an element-wise pass and of its backward pass."""
    elements = float(one.elements) * samples * one.repeats
    forward = Work(elements * one.operations, ELEMENT * elements * (one.reads + one.writes))
    moved = ELEMENT * elements * (one.backward_reads + one.backward_writes)
    backward = Work(elements * one.backward_operations, moved) if one.gradient else Work()
    return {"passes_forward": forward, "passes_backward": backward}


def _line(
    name: str, products: Sequence[Matmul], passes: Sequence[Vector], samples: int, parameters: int,
    shape: tuple[int, ...] = (),
) -> OperatorLine:  # fmt: skip
    parts = [product_work(product, samples) for product in products] + [pass_work(one, samples) for one in passes]
    phases = {phase: total(part[phase] for part in parts if phase in part) for phase in PHASES}
    return OperatorLine(name, shape, "; ".join(_size(product) for product in products), parameters, phases)


def _size(product: Matmul) -> str:
    columns = product.n + product.n_groups * product.n_group_width
    text = f"{product.m} x {columns} x {product.k}"
    times = product.groups * product.repeats
    return f"{times} ({text})" if times > 1 else text


def _block_layer(block: Block, samples: int) -> Layer:
    """A class of equal blocks: its products with their weights, its passes, and what is left of its parameters."""
    lines = [_line(one.name, (one,), (), samples, _weights(one)) for one in block.matmuls]
    lines += [_line(one.name, (), (one,), samples, 0) for one in block.vectors]
    saved = block.saved
    own = block.parameters - block.shared_parameters
    kept = saved.sequence + saved.tensor + saved.statistics  # with a fused attention kernel, as graphs count it
    return Layer(block.name, block.count, tuple(lines), own, kept, block.boundary)


def _weights(product: Matmul) -> int:
    if not product.weight:
        return 0
    columns = product.n + product.n_groups * product.n_group_width
    return columns * product.k * max(product.experts, product.groups) * product.repeats


def _graph_layers(
    graph: Graph, blocks: Sequence[Block], samples: int
) -> tuple[tuple[tuple[Layer, tuple[Any, ...]], ...], tuple[Link, ...]]:
    """Layers of a graph in the order in which they begin, each with what makes it equal to another; and their links."""
    names, alone = cells(graph), node_blocks(graph)
    held = {cell.name: cell for block in blocks for cell in block.cells}
    order = {name: at for at, name in enumerate(dict.fromkeys(names))}
    members: dict[str, list[int]] = {name: [] for name in order}
    moved: dict[tuple[int, int], set[int]] = {}
    for number, node in enumerate(graph.nodes):
        if not node.is_data:
            members[names[number]].append(number)
        for source in node.inputs:
            if names[source] != names[number]:
                moved.setdefault((order[names[source]], order[names[number]]), set()).add(source)
    found = []
    for name, numbers in members.items():
        lines = tuple(
            _line(graph.nodes[i].name, alone[str(i)].matmuls, alone[str(i)].vectors, samples, graph.nodes[i].parameters,
                  graph.nodes[i].counts.result)
            for i in numbers
        )  # fmt: skip
        cell = held.get(name)
        layer = Layer(name, 1, lines, sum(graph.nodes[i].parameters for i in numbers), cell.kept if cell else 0,
                      cell.boundary if cell else 0, (name,))  # fmt: skip
        same = tuple((graph.nodes[i].operator, graph.nodes[i].counts, graph.nodes[i].shares) for i in numbers)
        found.append((layer, same))
    links = tuple(
        Link(*ends, sum(graph.nodes[i].counts.elements for i in sources)) for ends, sources in sorted(moved.items())
    )
    return tuple(found), links


def merged(
    layers: Sequence[tuple[Layer, tuple[Any, ...]]], links: Sequence[Link]
) -> tuple[tuple[Layer, ...], tuple[Link, ...]]:
    """Runs of equal layers as one with a count, and the links between runs."""
    found: list[Layer] = []
    last: tuple[Any, ...] | None = None
    place = []
    for layer, same in layers:
        if found and same == last and same and layer.kept == found[-1].kept:
            first = found[-1]
            names = (*first.members, layer.name)
            found[-1] = Layer(
                _run(names[0], names[-1]), len(names), first.operators, first.parameters, first.kept, layer.boundary,
                names,
            )  # fmt: skip
        else:
            found.append(layer)
        last = same
        place.append(len(found) - 1)
    between: dict[tuple[int, int], int] = {}
    for link in links:
        ends = place[link.source], place[link.target]
        if ends[0] != ends[1]:
            between[ends] = max(between.get(ends, 0), link.elements)
    return tuple(found), tuple(Link(*ends, elements) for ends, elements in sorted(between.items()))


def _run(first: str, last: str) -> str:
    """Two names as one: "block 1.2..1.3"."""
    head, _, tail = last.rpartition(" ")
    return f"{first}..{tail}" if head and first.startswith(head + " ") else f"{first} .. {last}"
