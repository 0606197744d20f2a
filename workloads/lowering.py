"""A graph of operators as block classes: data, one body of cells, loss.

What happens here: which operators get gradients; how a split of channels over the tensor axis runs through the graph;
what is kept for the backward pass, each tensor once; where a pipeline may be cut.  Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeVar

from workloads.graph import Counts, Graph, Node
from workloads.operators import Attention, Block, Cell, Matmul, Saved, Vector

#: Bytes an activation is kept in; other formats are scaled by the evaluation.
ACTIVATION = 2

Operation = TypeVar("Operation", Matmul, Vector, Attention)


@dataclass(frozen=True)
class Placed:
    """A node with what the graph makes of it.

    split       its result is split by channel over the tensor axis
    forward, backward   elements of what it all-reduces over the tensor axis; a gather counts half of its tensor
    """

    node: Node
    products: tuple[Matmul, ...]
    passes: tuple[Vector, ...]
    split: bool
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    parameters_split: int


def lower(graph: Graph) -> tuple[Block, ...]:
    """Block classes of a graph with places first (data, empty), body (all layers) and last (loss)."""
    if not any(not node.is_data for node in graph.nodes):
        raise ValueError(f"graph {graph.name!r}: found no operator, allowed: at least one")
    gradients = graph.needs_gradient()
    placed = _place(graph, gradients)
    names = cells(graph)
    body = [item for item in placed if not _is_loss(item.node)]
    loss = [item for item in placed if _is_loss(item.node)]
    kept = _kept(graph, gradients)
    boundary = _boundaries(graph, names)
    pieces = _cells(graph, placed, names, kept, boundary)
    exchanged = [size for item in body for size in item.forward]
    back = [size for item in body for size in item.backward]
    number = ceil(max(len(exchanged), len(back)))
    mean = (sum(exchanged) + sum(back)) / (2.0 * number) if number else 0.0
    tables = [item.node for item in body if item.node.counts.row_parameters]
    attention = merged(item.node.counts.attention for item in body if item.node.counts.attention is not None)
    return (
        _empty("data", "first"),
        Block(
            name="layers",
            count=1,
            place="body",
            matmuls=merged(product for item in body for product in item.products),
            vectors=merged(one for item in body for one in item.passes),
            parameters=sum(item.node.parameters for item in placed),
            parameters_split=sum(item.parameters_split for item in placed if not item.node.counts.row_parameters),
            reductions=number,
            boundary=max(pieces, key=lambda cell: cell.boundary).boundary,
            saved=_saved(graph, body, kept, pieces),
            kernels=sum(_kernels(item) for item in body),
            attention=attention or None,
            causal=any(core.causal for core in attention),
            # spread tables are experts that every sample meets: one all-to-all forward and one backward, not two
            parameters_expert=sum(node.counts.row_parameters for node in tables if node.shares < 0),
            expert_count=max((node.counts.pieces for node in tables), default=1),
            experts_per_token=max((node.counts.pieces for node in tables), default=1),
            sparse=bool(tables),
            touched=sum(node.counts.touched for node in tables),
            table_rows=sum(node.counts.rows for node in tables if node.shares < 0),
            whole_rows=all(node.counts.whole_rows for node in tables),
            routed=sum(node.counts.exchanged for node in tables) // 2,
            context_exchange=sum(
                2 * core.keys * core.key_value_heads * core.head_dim * core.repeats for core in attention
            ),
            group_count=max((core.key_value_heads for core in attention), default=1),
            cells=pieces,
            exchanged=ceil(mean),
        ),
        _empty("loss", "last") if not loss else _loss(loss, kept, graph),
    )


def _empty(name: str, place: str) -> Block:
    return Block(name, 1, place, (), (), 0, 0, 0, 0, Saved(0, 0, 0, 0, 0), 0)  # type: ignore[arg-type]


def _is_loss(node: Node) -> bool:
    return any(one.loss for one in node.counts.passes)


def _loss(items: list[Placed], kept: dict[int, int], graph: Graph) -> Block:
    """Loss operators: what they keep is logits, in fp32 as they say themselves."""
    held = sum(item.node.counts.kept_bytes for item in items)
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
        saved=Saved(sequence=held, tensor=0, core=0, statistics=0, input=0),
        kernels=sum(_kernels(item) for item in items),
        recomputed=False,
    )


def _kernels(item: Placed) -> int:
    """Kernels that a framework launches forward: one a product (a step of a recurrent one), one a pass that moves
    anything (a bias is added where its product is written)."""
    products = sum(one.steps * one.repeats for one in item.products)
    return products + sum(one.steps * one.repeats for one in item.passes if one.reads + one.writes > 0)


def merged(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Operators of equal sizes as one that is repeated; the first one's name stays."""
    first: dict[Operation, Operation] = {}
    times: Counter[Operation] = Counter()
    for one in operations:
        key = replace(one, repeats=1) if isinstance(one, Attention) else replace(one, repeats=1, name="")
        first.setdefault(key, one)
        times[key] += one.repeats
    return tuple(replace(one, repeats=times[key]) for key, one in first.items())


# Gradients and splits --------------------------------------------------------------------------------------------


def _place(graph: Graph, gradients: list[bool]) -> list[Placed]:
    """Every operator with its gradients and its part of a split over the tensor axis."""
    split: dict[int, bool] = {number: False for number, node in enumerate(graph.nodes) if node.is_data}
    reduced: set[int] = set()
    found = []
    for number, node in enumerate(graph.nodes):
        if node.is_data:
            continue
        item = _placed(graph, node, [split[source] for source in node.inputs],
                       any(gradients[source] for source in node.inputs), gradients[number])  # fmt: skip
        if node.counts.mixing == "dense" and item.split:
            # products that read one tensor add their input gradients up before one all-reduce
            item = replace(item, backward=()) if node.inputs[0] in reduced else item
            reduced.add(node.inputs[0])
        split[number] = item.split
        found.append(item)
    return found


def _placed(graph: Graph, node: Node, inputs: list[bool], flows: bool, trains: bool) -> Placed:
    """One operator. flows: its input needs a gradient; trains: anything flows back into it."""
    counts = node.counts
    whole = [float(graph.nodes[source].counts.elements) for source in node.inputs]
    outer = len(counts.products) - counts.inner
    products = tuple(
        product if flows or at >= outer else replace(product, input_gradient=False)
        for at, product in enumerate(counts.products)
    )
    passes = counts.passes if trains else tuple(replace(one, gradient=False) for one in counts.passes)
    gathered = [size / 2.0 for size, cut in zip(whole, inputs, strict=True) if cut]
    result = float(counts.elements)
    if counts.mixing == "dense" and len(products) == 1:
        cut = any(inputs)
        sized = replace(products[0], split="k" if cut else "n")
        passed = tuple(replace(one, split="" if cut else "tensor") for one in passes)
        weights = products[0].n * products[0].k * products[0].groups
        return Placed(
            node, (sized,), passed, not cut, (result,) if cut else (), () if cut or not flows else (whole[0],),
            min(weights, node.parameters),
        )
    if counts.mixing == "channels" and inputs and all(inputs):
        sized_all = tuple(replace(product, split="groups") for product in products)
        passed = tuple(replace(one, split="tensor") for one in passes)
        return Placed(node, sized_all, passed, True, (), (), node.parameters)
    if counts.mixing == "own":
        reduced = (result,) * counts.reductions
        return Placed(node, products, passes, False, (*gathered, *reduced), (*gathered, *reduced), _own(node))
    passed = tuple(replace(one, split="sequence") for one in passes) if counts.mixing == "whole" else passes
    return Placed(node, products, passed, False, tuple(gathered), tuple(gathered), 0)


def _scores(core: Attention | None) -> int:
    """Bytes of scores, dropout mask and their product."""
    return 0 if core is None else 5 * core.heads * core.queries * core.keys * core.repeats


def _own(node: Node) -> int:
    """Parameters of an operator that brings its splits: as it says, or else those of its split products."""
    if node.counts.split_parameters:
        return min(node.counts.split_parameters, node.parameters)
    held = sum(
        one.n * one.k * max(one.groups, 1) * one.repeats for one in node.counts.products if one.split and one.weight
    )
    return min(held, node.parameters)


# What is kept ----------------------------------------------------------------------------------------------------


def _kept(graph: Graph, gradients: list[bool]) -> dict[int, int]:
    """Elements of each node's result that some backward pass reads; a tensor that several read counts once."""
    found: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if node.is_data or not gradients[number]:
            continue
        wanted = ([*node.inputs] if "inputs" in node.counts.keeps else []) + (
            [number] if "result" in node.counts.keeps else []
        )
        for source in wanted:
            while graph.nodes[source].counts.view:
                source = graph.nodes[source].inputs[0]
            found[source] = graph.nodes[source].counts.elements
    return found


def _bytes_kept(graph: Graph, numbers: Iterable[int], kept: dict[int, int]) -> int:
    """Bytes kept of the nodes `numbers`: results that are read again, and what they keep beside."""
    return sum(
        ACTIVATION * kept.get(number, 0)
        + (0 if _is_loss(graph.nodes[number]) else graph.nodes[number].counts.kept_bytes)
        for number in numbers
    )


def _saved(graph: Graph, body: list[Placed], kept: dict[int, int], pieces: tuple[Cell, ...]) -> Saved:
    """Bytes that all layers keep: split ones, others, attention cores apart."""
    numbers = {id(node): number for number, node in enumerate(graph.nodes)}
    split = sum(
        ACTIVATION * kept.get(numbers[id(item.node)], 0) + item.node.counts.kept_bytes for item in body if item.split
    )
    # what operators with their own splits keep beside their inputs and results is divided by these splits
    split += sum(item.node.counts.kept_bytes for item in body if item.node.counts.mixing == "own")
    whole = sum(cell.kept for cell in pieces) - split
    cores = [item.node.counts.attention for item in body if item.node.counts.attention is not None]
    scores = sum(
        item.node.counts.kept_core or _scores(item.node.counts.attention) for item in body
    )
    rows = sum(core.heads * core.queries * core.repeats for core in cores)
    return Saved(
        sequence=whole, tensor=split, core=scores, statistics=4 * rows, input=sum(cell.input for cell in pieces)
    )


# Cells -----------------------------------------------------------------------------------------------------------


def cells(graph: Graph) -> list[str]:
    """The cell of each node: as named, or else pieces between places where a single tensor crosses.

    Nodes without a name join the cell before them; data joins the first."""
    if any(node.cell for node in graph.nodes):
        found, current = [], next(node.cell for node in graph.nodes if node.cell)
        for node in graph.nodes:
            current = node.cell or current
            found.append(current)
        return found
    last = [max(users, default=number) for number, users in enumerate(graph.consumers())]
    found, start = [], 0
    holds, crossing = False, 0
    freed = [0] * len(graph.nodes)
    for number, node in enumerate(graph.nodes):
        found.append(f"layer {start}")
        holds = holds or bool(node.counts.products)
        freed[last[number]] += 1
        crossing += 1 - freed[number]
        if crossing == 1 and holds:
            start, holds = start + 1, False
    return found


def _boundaries(graph: Graph, names: list[str]) -> dict[str, int]:
    """Elements that cross to the next cell: everything made in or before a cell and read after it."""
    live = graph.live()
    found: dict[str, int] = {}
    for number, name in enumerate(names):
        found[name] = live[number]
    return found


def _cells(
    graph: Graph, placed: list[Placed], names: list[str], kept: dict[int, int], boundary: dict[str, int]
) -> tuple[Cell, ...]:
    """The cells in the order in which they begin."""
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        members.setdefault(name, []).append(number)
    found: list[Cell] = []
    for name, numbers in members.items():
        nodes = [graph.nodes[number] for number in numbers]
        if all(node.is_data or _is_loss(node) for node in nodes) and found:
            continue
        inside = set(numbers)
        sources = {source for number in numbers for source in graph.nodes[number].inputs} - inside
        found.append(
            Cell(
                name,
                sum(node.counts.flops for node in nodes),
                sum(_moved(graph, node) for node in nodes),
                sum(node.parameters for node in nodes),
                _bytes_kept(graph, numbers, kept),
                ACTIVATION * sum(graph.nodes[source].counts.elements for source in sources),
                boundary[name],
            )
        )
    return tuple(found)


def _moved(graph: Graph, node: Node) -> int:
    """Elements an operator reads and writes forward, but for weights: the samples of a micro-batch share them."""
    counts: Counts = node.counts
    moved = sum(one.elements * one.repeats * (one.reads + one.writes) for one in counts.passes)
    if counts.products:
        inputs = sum(graph.nodes[source].counts.elements for source in node.inputs)
        moved += inputs + counts.elements
    return ceil(moved)


def node_blocks(graph: Graph) -> dict[str, Block]:
    """Each operator of a graph as a block of its own, by its number: for schedules and tables of operators."""
    gradients = graph.needs_gradient()
    placed = {id(item.node): item for item in _place(graph, gradients)}
    found = {}
    for number, node in enumerate(graph.nodes):
        if node.is_data:
            continue
        item = placed[id(node)]
        found[str(number)] = Block(
            node.name, 1, "body", item.products, item.passes, node.parameters, item.parameters_split, 0,
            node.counts.elements, Saved(0, 0, 0, 0, 0), _kernels(item), attention=node.counts.attention,
        )  # fmt: skip
    return found
