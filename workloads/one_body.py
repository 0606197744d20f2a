"""A graph of layers of several kinds as one body of cells: data, the body, loss.

The cells say where a pipeline may be cut and what its stages hold, as shares of the body.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from workloads.cells import boundaries, cells, is_loss
from workloads.graph import Graph, Node
from workloads.operators import Block, Cell, Saved
from workloads.placing import ACTIVATION, Placed, kept_core, kept_tensors, merged, pieces_of, place


def one_body(graph: Graph) -> tuple[Block, ...]:
    """Block classes of a graph with places first (data, empty), body (all layers) and last (loss)."""
    placed = place(graph)
    body = {number: item for number, item in placed.items() if not is_loss(item.node)}
    loss = [item for item in placed.values() if is_loss(item.node)]
    pieces = _cells(graph, cells(graph))
    items = list(body.values())
    exchanged = [size for item in items for size in item.forward]
    back = [size for item in items for size in item.backward]
    number = max(len(exchanged), len(back))
    mean = (sum(exchanged) + sum(back)) / (2.0 * number) if number else 0.0
    counts = [item.node.counts for item in items]
    tables = [one for one in counts if one.row_parameters]
    routed = [one for one in counts if one.expert_parameters]
    own = [item.node for item in items if item.node.shares < 0]
    attention = merged(one.attention for one in counts if one.attention is not None)
    return (
        _empty("data", "first"),
        Block(
            name="layers",
            count=1,
            place="body",
            matmuls=merged(product for item in items for product in item.products),
            vectors=merged(one for item in items for one in item.passes),
            parameters=sum(item.node.parameters for item in placed.values()),
            parameters_split=sum(item.split_parameters for item in items if item.node.shares < 0),
            pieces=pieces_of([item for item in items if item.node.shares < 0]),
            parameters_grouped=sum(node.counts.grouped_parameters for node in own),
            reductions=number,
            boundary=max(pieces, key=lambda cell: cell.boundary).boundary,
            saved=_saved(graph, body, pieces),
            kernels=sum(item.kernels for item in items),
            attention=attention or None,
            causal=any(core.causal for core in attention),
            # spread tables are experts that every sample meets: one all-to-all forward and one backward, not two
            parameters_expert=sum(node.counts.row_parameters or node.counts.expert_parameters for node in own),
            expert_count=max((one.pieces for one in tables), default=min((one.experts for one in routed), default=1)),
            experts_per_token=max([*(one.pieces for one in tables), *(one.experts_per_token for one in counts)]),
            sparse=bool(tables),
            touched=sum(one.touched for one in tables),
            table_rows=sum(node.counts.rows for node in own),
            whole_rows=all(one.whole_rows for one in tables),
            routed=sum(one.exchanged for one in tables) // 2 + sum(one.routed for one in routed),
            context_exchange=sum(
                core.keys * core.key_value_heads * (core.head_dim + core.value_dim) * core.repeats for core in attention
            ),
            group_count=min((core.key_value_heads for core in attention), default=1),
            cells=pieces,
            exchanged=ceil(mean),
        ),
        _empty("loss", "last") if not loss else _loss(loss),
    )


def _empty(name: str, place: str) -> Block:
    return Block(name, 1, place, (), (), 0, 0, 0, 0, Saved(0, 0, 0, 0, 0), 0)  # type: ignore[arg-type]


def _loss(items: list[Placed]) -> Block:
    """Loss operators: what they keep is logits, in fp32 as they say themselves."""
    split = sum(item.node.counts.kept_bytes for item in items if item.split)
    whole = sum(item.node.counts.kept_bytes for item in items) - split
    fixed = sum(item.node.counts.kept_fixed for item in items if item.split)
    return Block(
        name="loss",
        count=1,
        place="last",
        matmuls=(),
        vectors=merged(one for item in items for one in item.passes),
        parameters=0,
        parameters_split=0,
        reductions=0,
        boundary=0,
        saved=Saved(
            whole, split, 0, 0, 0, sum(item.node.counts.kept_fixed for item in items) - fixed, fixed
        ),
        kernels=sum(item.kernels for item in items),
        recomputed=False,
    )


def _saved(graph: Graph, body: dict[int, Placed], pieces: tuple[Cell, ...]) -> Saved:
    """Bytes that all layers keep: split ones, others, attention cores apart."""
    split = sum(
        ACTIVATION * graph.nodes[source].counts.elements
        for source in kept_tensors(graph)
        if source in body and body[source].split
    )
    split_fixed = all_fixed = 0
    for item in body.values():
        counts = item.node.counts
        all_fixed += counts.kept_fixed
        if item.split or counts.mixing == "own":
            split += counts.kept_bytes - counts.kept_whole
            split_fixed += counts.kept_fixed - min(counts.kept_fixed, counts.kept_whole)
    cores = [item.node.counts.attention for item in body.values() if item.node.counts.attention is not None]
    scores = [kept_core(item.node) for item in body.values()]
    rows = sum(core.heads * core.queries * core.repeats for core in cores)
    return Saved(
        sequence=sum(cell.kept for cell in pieces) - split,
        tensor=split,
        core=sum(kept for kept, _ in scores),
        statistics=4 * rows,
        input=sum(cell.input for cell in pieces),
        sequence_fixed=all_fixed - split_fixed,
        tensor_fixed=split_fixed,
        core_fixed=sum(fixed for _, fixed in scores),
    )


def _cells(graph: Graph, names: list[str]) -> tuple[Cell, ...]:
    """The cells in the order in which they begin; a kept tensor is in the cell that reads it backward."""
    boundary = boundaries(graph, names)
    held: dict[str, int] = {}
    for source, reader in kept_tensors(graph).items():
        held[names[reader]] = held.get(names[reader], 0) + ACTIVATION * graph.nodes[source].counts.elements
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        members.setdefault(name, []).append(number)
    found: list[Cell] = []
    for name, numbers in members.items():
        nodes = [graph.nodes[number] for number in numbers]
        if all(node.is_data or is_loss(node) for node in nodes) and found:
            continue
        sources = {source for number in numbers for source in graph.nodes[number].inputs} - set(numbers)
        found.append(
            Cell(
                name,
                sum(node.counts.flops for node in nodes),
                sum(_moved(graph, node) for node in nodes),
                sum(node.parameters for node in nodes),
                held.get(name, 0) + _beside(nodes),
                ACTIVATION * sum(graph.nodes[source].counts.elements for source in sources),
                boundary[name],
            )
        )
    return tuple(found)


def _beside(nodes: Iterable[Node]) -> int:
    """Bytes that operators keep beside their inputs and results; what a loss keeps is in its own block."""
    return sum(0 if is_loss(node) else node.counts.kept_bytes for node in nodes)


def _moved(graph: Graph, node: Node) -> int:
    """Elements an operator reads and writes forward, but for weights: the samples of a micro-batch share them."""
    counts = node.counts
    moved = sum(one.elements * one.repeats * (one.reads + one.writes) for one in counts.passes)
    if counts.products:
        inputs = sum(graph.nodes[source].counts.elements for source in node.inputs)
        moved += inputs + counts.elements
    return ceil(moved)
