"""A graph of operators as block classes: each cell is a layer, and equal layers are one class with a count.

Embedding and head stand before and behind the layers that a pipeline divides.  Theory: docs/models/workloads.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from workloads.cells import boundaries, cells, is_loss
from workloads.graph import Graph, Node
from workloads.one_body import one_body
from workloads.operators import Block, Saved
from workloads.placing import ACTIVATION, Placed, kept_core, kept_tensors, merged, pieces_of, place

Place = Literal["first", "body", "last"]


@dataclass(frozen=True)
class Classes:
    """Block classes of a network and their order along the pipeline.

    blocks   exactly one with place "first" and one with "last", any number with place "body" between them
    chain    runs of equal layers: (number of the class among those of the body, layers of the run), ...
    """

    blocks: tuple[Block, ...]
    chain: tuple[tuple[int, int], ...]

    @property
    def body(self) -> tuple[Block, ...]:
        """Classes of the layers that a pipeline divides."""
        return self.blocks[1:-1]


def classes(graph: Graph) -> Classes:
    """Block classes of a graph, each cell a layer.

    first   the first cell where it looks tokens up in a table and no layer is in it; else data, which is empty
    last    the last cell where all losses are in it; else the losses of all cells, or nothing
    """
    if not any(not node.is_data for node in graph.nodes):
        raise ValueError(f"graph {graph.name!r}: found no operator, allowed: at least one")
    names = cells(graph)
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if not graph.nodes[number].is_data:
            members.setdefault(name, []).append(number)
    losses = [number for number, node in enumerate(graph.nodes) if is_loss(node)]
    *_, last = members
    head = bool(losses) and all(names[number] == last for number in losses)
    if not head:
        members = {name: rest for name, numbers in members.items() if (rest := [n for n in numbers if n not in losses])}
    begins = next(iter(members), "")
    cutter = _Cutter(graph, names)
    tail = members.pop(last) if head else losses
    ends = _looks_up([graph.nodes[number] for number in members.get(begins, ())])
    start = members.pop(begins) if ends else []
    first = cutter.block(begins, start, "first") if start else empty("data", "first")
    after = cutter.block(last if head else "loss", tail, "last") if tail else empty("loss", "last")
    return _collapsed(first, [cutter.block(name, numbers, "body") for name, numbers in members.items()], after)


def empty(name: str, place: Place) -> Block:
    """A class without operators."""
    return Block(name, 1, place, (), (), 0, 0, 0, 0, Saved(0, 0, 0, 0, 0), 0, recomputed=False)


def _looks_up(nodes: list[Node]) -> bool:
    """Whether operators are an embedding: tables of tokens, and no layer's products but a widening of their rows."""
    layers = (node for node in nodes if node.counts.products and node.counts.mixing == "own")
    return any(node.counts.looks_up for node in nodes) and all(node.counts.looks_up for node in layers)


def _collapsed(first: Block, layers: list[Block], last: Block) -> Classes:
    """Equal layers as one class with a count, named without the number of the layer."""
    numbers: dict[Block, int] = {}
    counts: list[int] = []
    chain: list[tuple[int, int]] = []
    for layer in layers:
        number = numbers.setdefault(replace(layer, name=""), len(numbers))
        if number == len(counts):
            counts.append(0)
        counts[number] += 1
        if chain and chain[-1][0] == number:
            chain[-1] = (number, chain[-1][1] + 1)
        else:
            chain.append((number, 1))
    names: dict[int, str] = {}
    for layer in layers:
        number = numbers[replace(layer, name="")]
        names.setdefault(number, re.sub(r"[\s._-]*\d+$", "", layer.name) or layer.name)
    body = tuple(replace(one, name=names[number], count=counts[number]) for one, number in numbers.items())
    return Classes((first, *body, last), tuple(chain))


class _Cutter:
    """Makes blocks of the cells of one graph."""

    def __init__(self, graph: Graph, names: list[str]) -> None:
        self.graph, self.names = graph, names
        self.placed = place(graph)
        self.boundary = boundaries(graph, names)
        self.kept: dict[str, list[int]] = {}
        for source, reader in kept_tensors(graph).items():
            self.kept.setdefault(names[reader], []).append(source)

    def block(self, name: str, numbers: list[int], place: Place) -> Block:
        """The operators `numbers` as one layer."""
        items = [self.placed[number] for number in numbers]
        nodes = [item.node for item in items]
        attention = merged(node.counts.attention for node in nodes if node.counts.attention is not None)
        reductions, exchanged = _exchanges(items, place)
        boundary = self.boundary[self.names[numbers[-1]]] if place != "last" else 0
        copied = sum(self._copied(number) for number in numbers)
        stored = [self.placed[number] for number in numbers if self._stored(number)]
        return Block(
            name=name,
            count=1,
            place=place,
            matmuls=merged((product for item in items for product in item.products), by_name=True),
            vectors=merged((one for item in items for one in item.passes), by_name=True),
            parameters=sum(node.parameters for node in nodes) + copied,
            parameters_split=sum(item.split_parameters for item in stored),
            reductions=reductions,
            boundary=boundary,
            saved=self._saved(numbers),
            kernels=sum(item.kernels for item in items),
            parameters_grouped=sum(item.node.counts.grouped_parameters for item in stored),
            group_count=min((core.key_value_heads for core in attention), default=1),
            shared_parameters=copied,
            pieces=pieces_of(stored),
            shared_pieces=max(
                (self.placed[number].pieces_split for number in numbers if self._copied(number)), default=0
            ),
            recomputed=place == "body",
            context_exchange=sum(
                core.keys * core.key_value_heads * (core.head_dim + core.value_dim) * core.repeats for core in attention
            ),
            causal=any(core.causal for core in attention),
            attention=attention[0] if len(attention) == 1 else attention or None,
            exchanged=0 if exchanged == boundary else exchanged,
            **_experts(nodes),
        )

    def _copied(self, number: int) -> int:
        """Parameters that an operator uses and another layer has."""
        node = self.graph.nodes[number]
        return node.counts.parameters if node.shares >= 0 and self._stored(number) else 0

    def _stored(self, number: int) -> bool:
        """Whether its layer stores its parameters: its own, or a copy of another layer's."""
        shares = self.graph.nodes[number].shares
        return shares < 0 or self.names[shares] != self.names[number]

    def _saved(self, numbers: list[int]) -> Saved:
        """Bytes that a layer keeps: tensors that its backward pass reads, and what its operators keep beside."""
        sequence = tensor = sequence_fixed = tensor_fixed = core = core_fixed = rows = 0
        for source in self.kept.get(self.names[numbers[0]], ()):
            elements = ACTIVATION * self.graph.nodes[source].counts.elements
            split = source in self.placed and self.placed[source].split
            tensor, sequence = tensor + split * elements, sequence + (not split) * elements
        for number in numbers:
            item, counts = self.placed[number], self.graph.nodes[number].counts
            own = item.split or counts.mixing == "own"
            whole = counts.kept_whole if own else counts.kept_bytes
            fixed = min(counts.kept_fixed, whole)
            sequence, sequence_fixed = sequence + whole, sequence_fixed + fixed
            tensor, tensor_fixed = tensor + counts.kept_bytes - whole, tensor_fixed + counts.kept_fixed - fixed
            scores, mask = kept_core(item.node)
            core, core_fixed = core + scores, core_fixed + mask
            if counts.attention is not None:
                rows += counts.attention.heads * counts.attention.queries * counts.attention.repeats
        inside = set(numbers)
        sources = {source for number in numbers for source in self.graph.nodes[number].inputs} - inside
        taken = sum(self.graph.nodes[one].counts.elements for one in sources if not self.graph.nodes[one].is_data)
        return Saved(
            sequence, tensor, core, 4 * rows, ACTIVATION * taken, sequence_fixed, tensor_fixed, core_fixed
        )


def _exchanges(items: list[Placed], place: Place) -> tuple[int, int]:
    """All-reduces of a layer forward (and as many backward), and the mean elements of one.

    first, last   all of them together: those of an embedding are forward, those of a head backward."""
    forward = [size for item in items for size in item.forward]
    backward = [size for item in items for size in item.backward]
    number = len(forward) + len(backward) if place != "body" else max(len(forward), len(backward))
    ways = 2.0 if place == "body" else 1.0
    return number, ceil((sum(forward) + sum(backward)) / (ways * number)) if number else 0


def _experts(nodes: list[Node]) -> dict[str, Any]:
    """What a block says of its routed experts or spread tables: no layer has both."""
    tables = [node.counts for node in nodes if node.counts.row_parameters]
    routed = [node.counts for node in nodes if node.counts.expert_parameters]
    if tables:
        # spread tables are experts that every sample meets: one all-to-all forward and one backward, not two
        pieces = max(counts.pieces for counts in tables)
        return {
            "parameters_expert": sum(node.counts.row_parameters for node in nodes if node.shares < 0),
            "expert_count": pieces, "experts_per_token": pieces, "sparse": True,
            "touched": sum(counts.touched for counts in tables),
            "table_rows": sum(node.counts.rows for node in nodes if node.shares < 0),
            "whole_rows": all(counts.whole_rows for counts in tables),
            "routed": sum(counts.exchanged for counts in tables) // 2,
        }  # fmt: skip
    if routed:
        return {
            "parameters_expert": sum(node.counts.expert_parameters for node in nodes if node.shares < 0),
            "expert_count": min(counts.experts for counts in routed),
            "experts_per_token": max(counts.experts_per_token for counts in routed),
            "routed": sum(counts.routed for counts in routed),
        }
    return {}


def lower(graph: Graph) -> tuple[Block, ...]:
    """Block classes by place: first, lead (layers of another kind before the body), body, last.

    Graphs whose layers are of more kinds are one body of cells (`workloads.one_body`)."""
    found = classes(graph)
    first, *body, last = found.blocks
    in_order = [number for number, _ in found.chain] == list(range(len(body)))
    if first.vectors and last.vectors and in_order and 1 <= len(body) <= 2 and not any(one.sparse for one in body):
        *lead, main = body
        return (_in_exchanges_of(main, first), *(replace(one, place="lead") for one in lead), main,
                _in_exchanges_of(main, last))  # fmt: skip
    return one_body(graph)


def _in_exchanges_of(body: Block, block: Block) -> Block:
    """An embedding or head with its all-reduces in units of a layer's: the evaluation knows one size."""
    size = body.exchanged or body.boundary
    volume = block.reductions * (block.exchanged or block.boundary)
    return replace(block, reductions=round(volume / size) if size else 0, exchanged=0)


def node_blocks(graph: Graph) -> dict[str, Block]:
    """Each operator of a graph as a block of its own, by its number: for schedules and tables of operators."""
    return {
        str(number): Block(
            item.node.name, 1, "body", item.products, item.passes, item.node.parameters, item.split_parameters, 0,
            item.node.counts.elements, Saved(0, 0, 0, 0, 0), item.kernels, attention=item.node.counts.attention,
        )
        for number, item in place(graph).items()
    }  # fmt: skip
