"""Cells of a graph: which layer each operator belongs to, and what crosses from one to the next."""

from __future__ import annotations

from workloads.graph import Graph, Node


def is_loss(node: Node) -> bool:
    """Whether a node is a loss: training starts its backward pass there."""
    return any(one.loss for one in node.counts.passes)


def cells(graph: Graph) -> list[str]:
    """The cell of each node: as named, or else pieces between places where a single tensor crosses.

    Of nodes without a name, operators before the first named cell are a cell, and so are those after the last one if a
    loss is among them; others join the cell before them, and data joins the first."""
    return _named(graph) if any(node.cell for node in graph.nodes) else _pieces(graph)


def _named(graph: Graph) -> list[str]:
    names = [node.cell for node in graph.nodes]
    first = next(number for number, name in enumerate(names) if name)
    last = max(number for number, name in enumerate(names) if name)
    before, after = graph.nodes[:first], graph.nodes[last + 1 :]
    current = names[first] if all(node.is_data for node in before) else f"before {names[first]}"
    ends = {last + 1: f"after {names[last]}"} if any(is_loss(node) for node in after) else {}
    found = []
    for number, name in enumerate(names):
        current = ends.get(number) or name or current
        found.append(current)
    return found


def _pieces(graph: Graph) -> list[str]:
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


def boundaries(graph: Graph, names: list[str]) -> dict[str, int]:
    """Elements that cross to the next cell: every result made in or before a cell and read after it.

    Data does not cross: each pipeline stage loads what it reads."""
    last = [max(users, default=number) for number, users in enumerate(graph.consumers())]
    freed = [0] * len(graph.nodes)
    crossing = 0
    found: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        elements = 0 if node.is_data else node.counts.elements
        freed[last[number]] += elements
        crossing += elements - freed[number]
        found[names[number]] = crossing
    return found
