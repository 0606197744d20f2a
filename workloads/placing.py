"""What each operator of a graph becomes in training: its gradients, its part of a tensor split, what it keeps.

A split of channels over the tensor axis runs through the graph: dense layers start and end it, with an all-reduce.
Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from workloads.graph import Graph, Node
from workloads.operators import Attention, Matmul, Vector

#: Bytes an activation is kept in; other formats are scaled by the evaluation.
ACTIVATION = 2

Operation = TypeVar("Operation", Matmul, Vector, Attention)


@dataclass(frozen=True)
class Placed:
    """A node with what the graph makes of it.

    split       its result is split by channel over the tensor axis
    forward, backward   elements of what it all-reduces over the tensor axis; a gather counts half of its tensor
    split_parameters    of its parameters, its own or those it shares, those that the tensor degree divides, into
    pieces_split        whole pieces (0: any): output columns, input columns, channels, heads, rows
    """

    node: Node
    products: tuple[Matmul, ...]
    passes: tuple[Vector, ...]
    split: bool
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    split_parameters: int
    pieces_split: int = 0

    @property
    def kernels(self) -> int:
        """Kernels that a framework launches forward: one a product (a step of a recurrent one), one a pass that moves
        anything (a bias is added where its product is written), and what the operator says beside."""
        products = sum(one.steps * one.repeats for one in self.products)
        passes = sum(one.steps * one.repeats for one in self.passes if one.reads + one.writes > 0)
        return products + passes + self.node.counts.kernels


def place(graph: Graph) -> dict[int, Placed]:
    """Every operator, by its number, with its gradients and its part of a split over the tensor axis."""
    gradients = graph.needs_gradient()
    split: dict[int, bool] = {number: False for number, node in enumerate(graph.nodes) if node.is_data}
    reduced: set[int] = set()
    found = {}
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
        found[number] = item
    _add_partial_sums(graph, found)
    return found


def _add_partial_sums(graph: Graph, placed: dict[int, Placed]) -> None:
    """Partial sums that are only added to each other are reduced once (attention and MLP of a parallel block)."""
    if not any(node.counts.sums and len(node.inputs) > 2 for node in graph.nodes):
        return
    consumers = graph.consumers()
    for number, node in enumerate(graph.nodes):
        if not node.counts.sums:
            continue
        partial = [one for one in dict.fromkeys(node.inputs)
                   if graph.nodes[one].counts.reductions and consumers[one] == [number]]  # fmt: skip
        for one in partial[1:]:
            placed[one] = replace(
                placed[one], forward=placed[one].forward[:-1], backward=placed[one].backward[:-1]
            )


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
            # a bias is split with the columns that it is added to
            min(weights, counts.parameters) if cut else counts.parameters,
            products[0].k // products[0].window if cut else products[0].n * products[0].groups,
        )
    if counts.mixing == "channels" and inputs and all(inputs):
        sized_all = tuple(replace(product, split="groups") for product in products)
        passed = tuple(replace(one, split="tensor") for one in passes)
        return Placed(node, sized_all, passed, True, (), (), counts.parameters, _channels(node))
    if counts.mixing == "own":
        reduced = (*gathered, *(result,) * counts.reductions)
        return Placed(node, products, passes, False, reduced, reduced if flows else (), _own(node), counts.pieces_split)
    # its input is whole: sequence parallelism divides its tokens
    passed = tuple(replace(one, split="sequence") for one in passes)
    return Placed(node, products, passed, False, tuple(gathered), tuple(gathered), 0)


def _channels(node: Node) -> int:
    """Whole channels of an operator that works on each alone: on the axis that its parameters divide."""
    counts = node.counts
    axes = (counts.result[0], counts.result[-1])
    return next((size for size in axes if counts.parameters and counts.parameters % size == 0), 0)


def _own(node: Node) -> int:
    """Parameters of an operator that brings its splits: as it says, or else those of its split products."""
    counts = node.counts
    if counts.split_parameters or counts.expert_parameters or counts.grouped_parameters:
        return counts.split_parameters
    held = sum(one.n * one.k * max(one.groups, 1) * one.repeats for one in counts.products if one.split and one.weight)
    return min(held, counts.parameters - counts.row_parameters)


def pieces_of(items: list[Placed]) -> tuple[tuple[int, int], ...]:
    """Whole pieces that split parameters are divided into, and how many parameters; equal numbers together."""
    found: dict[int, int] = {}
    for item in items:
        number = item.pieces_split
        if number and item.split_parameters and item.split_parameters % number == 0:
            found[number] = found.get(number, 0) + item.split_parameters
    return tuple(found.items())


def kept_tensors(graph: Graph) -> dict[int, int]:
    """Results that some backward pass reads, and the first node whose backward pass reads them; each is held once."""
    gradients = graph.needs_gradient()
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
            found.setdefault(source, number)
    return found


def kept_core(node: Node) -> tuple[int, int]:
    """Bytes of an operator's attention core, kept where no fused kernel runs it, and of them those of fixed width."""
    counts = node.counts
    if counts.kept_core or counts.attention is None:
        return counts.kept_core, counts.core_fixed
    scores = counts.attention.heads * counts.attention.queries * counts.attention.keys * counts.attention.repeats
    return 5 * scores, scores


def merged(operations: Iterable[Operation], *, by_name: bool = False) -> tuple[Operation, ...]:
    """Operators of equal sizes (by_name: and of one name) as one that is repeated; the first one's name stays."""
    first: dict[Operation, Operation] = {}
    times: Counter[Operation] = Counter()
    for one in operations:
        key = replace(one, repeats=1)
        if not by_name and not isinstance(key, Attention):
            key = replace(key, name="")
        first.setdefault(key, one)
        times[key] += one.repeats
    return tuple(replace(one, repeats=times[key]) for key, one in first.items())
