"""A network as a graph of operators: what feeds what, which layers belong together, what the whole of it counts.

Operators are objects with `counts(*shapes)` (workloads/layers/); a graph is built by calling `add` and lowered to block
classes by `workloads.lowering`, once for a `GraphNetwork`.  Sizes are for one sample.
Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol, runtime_checkable

from workloads.operators import Attention, Matmul, Vector

#: Sizes of a tensor of one sample, e.g. (channels, height, width) or (tokens, features).
Shape = tuple[int, ...]
#: What a channel split does to an operator (see `Counts.mixing`).
Mixing = Literal["dense", "channels", "whole", "own"]
MIXING: tuple[Mixing, ...] = ("dense", "channels", "whole", "own")


@dataclass(frozen=True)
class Counts:
    """What one operator makes and computes of one sample.

    result       shape of its output
    parameters   numbers it trains
    products     its matrix products, their `split` left to the lowering unless mixing is "own"
    passes       its element-wise passes
    keeps        what its backward pass reads: its "inputs", its "result", both or neither; a tensor that several
                 operators keep is held once
    kept_bytes   what it keeps beside those (masks, statistics, inner results), 2-byte activations
    kept_fixed   of kept_bytes, those whose width does not follow the activations' (one-byte masks, fp32, indices)
    kept_whole   of kept_bytes of an operator with its own splits, those that the tensor degree divides only with
                 sequence parallelism (narrow vectors of latent attention, router probabilities)
    mixing       how a split of channels over the tensor axis goes through it:
                 "dense" mixes all channels by a weight (convolution, linear layer): split by output channel where its
                 input is whole, by input channel where it is split already, followed by an all-reduce;
                 "channels" works on each channel alone (depthwise convolution, batch norm, pooling, sums): stays so;
                 "whole" needs all channels (layer norm, softmax): a split input is gathered, and every rank does it;
                 "own" brings its splits itself (attention by heads): takes and gives whole tensors
    reductions   all-reduces forward of an operator with its own splits, each of its result
    attention    sizes of its attention core, if it has one
    exchanged    elements a sample of an all-to-all over the data axis (embedding tables that are spread over devices)
    inner        so many products, from the last, read what the operator made itself: their left operand gets a gradient
                 even where its inputs are data
    split_parameters   of an operator with its own splits: parameters that the tensor degree divides (0: those of its
                 products that are split)
    pieces_split  whole pieces that split_parameters are divided into: heads, inner columns, rows of a table (0: any)
    grouped_parameters   of parameters and not of split_parameters: those of whole key and value heads, which the tensor
                 degree divides into at most as many parts as there are such heads
    kept_core, core_fixed   bytes of its attention core that it keeps and a fused kernel or selective recomputation does
                 not (0 with `attention`: scores, dropout mask and their product, 5 B a score), and of them those of
                 fixed width
    expert_parameters   of its parameters and not of split_parameters: those of routed experts
    experts, experts_per_token   how many experts hold them, and how many of those a token meets
    routed       elements a sample that each of two all-to-alls to experts sends
    kernels      kernels that a framework launches forward beside one a product and one a pass
    row_parameters   of its parameters, those of tables whose rows only the samples that read them update
    touched      elements of these rows that a sample updates
    rows         rows of these tables
    pieces       into how many pieces devices of the data axis may divide these tables; whole_rows: False where those
                 are columns
    view         its result is its input under another shape: the same memory
    sums         its result is the sum of its inputs: partial sums of operators with their own splits that nothing else
                 reads are added before one all-reduce
    looks_up     its parameters are a table of which each token reads a row
    """

    result: Shape
    parameters: int = 0
    products: tuple[Matmul, ...] = ()
    passes: tuple[Vector, ...] = ()
    keeps: tuple[Literal["inputs", "result"], ...] = ()
    kept_bytes: int = 0
    mixing: Mixing = "whole"
    reductions: int = 0
    attention: Attention | None = None
    exchanged: int = 0
    inner: int = 0
    split_parameters: int = 0
    kept_core: int = 0
    row_parameters: int = 0
    touched: int = 0
    rows: int = 0
    pieces: int = 1
    whole_rows: bool = True
    view: bool = False
    kept_fixed: int = 0
    kept_whole: int = 0
    grouped_parameters: int = 0
    pieces_split: int = 0
    core_fixed: int = 0
    expert_parameters: int = 0
    experts: int = 1
    experts_per_token: int = 1
    routed: int = 0
    kernels: int = 0
    sums: bool = False
    looks_up: bool = False

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return prod(self.result)

    @property
    def flops(self) -> int:
        """Forward FLOP of its matrix products, exact."""
        return sum(product.flops for product in self.products)


@runtime_checkable
class Operator(Protocol):
    """The contract of an operator: counts for input shapes; ValueError that names the field where they do not fit."""

    def counts(self, *shapes: Shape) -> Counts: ...


@dataclass(frozen=True)
class Node:
    """An operator in a graph.

    inputs   numbers of the nodes it reads; cell: the layer it belongs to ("" if none was named)
    shares   the node whose parameters it uses too, -1: its own
    is_data  an input of the graph: no operator
    """

    name: str
    operator: Operator | None
    inputs: tuple[int, ...]
    counts: Counts
    cell: str
    shares: int = -1
    is_data: bool = False

    @property
    def parameters(self) -> int:
        """Numbers it trains and no other node does."""
        return 0 if self.shares >= 0 else self.counts.parameters


@dataclass(frozen=True)
class Value:
    """A tensor of a graph while it is built: the result of a node."""

    graph: Graph
    number: int

    @property
    def shape(self) -> Shape:
        """Its shape, of one sample."""
        return self.graph.nodes[self.number].counts.result


class Graph:
    """Operators in the order they run.

    image = graph.input((3, 224, 224));  graph.add(Conv2d(64, 7, stride=2, padding=3), image)
    with graph.cell("layer 1"): ...      nodes that belong together; pipeline stages hold whole cells
    Shapes are checked as it grows; a node reads only nodes before it, so that there is no cycle.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self._cell = ""

    def input(self, shape: Shape, name: str = "input") -> Value:
        """Data of one sample; it gets no gradient."""
        if not shape or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in shape):
            raise ValueError(f"{name}: shape: found {shape!r}, allowed: whole numbers >= 1")
        return self._append(Node(name, None, (), Counts(tuple(shape)), self._cell, is_data=True))

    def add(self, operator: Operator, *inputs: Value, name: str = "", shares: Value | None = None) -> Value:
        """The result of `operator` on `inputs`; `shares`: it uses the parameters of that node (tied weights)."""
        name = name or f"{type(operator).__name__.lower()} {len(self.nodes)}"
        if not inputs:
            raise ValueError(f"{name}: found no input, allowed: at least one (graph.input for data)")
        if isinstance(operator, type) or not isinstance(operator, Operator):
            raise ValueError(f"{name}: found the operator {operator!r}, allowed: an object with counts, as Conv(64, 3)")
        if strange := [value for value in inputs if not isinstance(value, Value)]:
            raise ValueError(f"{name}: found the input {strange[0]!r}, allowed: results of graph.input and graph.add")
        if any(value.graph is not self for value in (*inputs, *([shares] if shares else []))):
            raise ValueError(f"{name}: an input belongs to another graph")
        try:
            counts = operator.counts(*(value.shape for value in inputs))
        except ValueError as error:
            where = f"{self.name}: " if self.name else ""
            raise ValueError(f"{where}{self._cell + ': ' if self._cell else ''}{name}: {error}") from None
        number = shares.number if shares is not None else -1
        if number >= 0 and self.nodes[number].counts.parameters != counts.parameters:
            raise ValueError(f"{name}: shares {self.nodes[number].name!r}, whose parameters differ in number")
        return self._append(
            Node(name, operator, tuple(value.number for value in inputs), counts, self._cell, number)
        )

    @contextmanager
    def cell(self, name: str) -> Iterator[None]:
        """Nodes added meanwhile belong to the layer `name`; the outermost name holds."""
        outer = self._cell
        self._cell = outer or name
        try:
            yield
        finally:
            self._cell = outer

    def _append(self, node: Node) -> Value:
        self.nodes.append(node)
        return Value(self, len(self.nodes) - 1)

    @property
    def parameters(self) -> int:
        """Numbers it trains, shared ones once, exact."""
        return sum(node.parameters for node in self.nodes)

    @property
    def flops(self) -> int:
        """Forward FLOP of its matrix products of one sample, exact."""
        return sum(node.counts.flops for node in self.nodes)

    @property
    def macs(self) -> int:
        """Multiply-adds of its matrix products of one sample, exact."""
        return self.flops // 2

    def consumers(self) -> list[list[int]]:
        """For each node, the nodes that read its result."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for source in dict.fromkeys(node.inputs):
                found[source].append(number)
        return found

    def needs_gradient(self) -> list[bool]:
        """For each node, whether its result depends on a parameter: else nothing flows back through it."""
        found: list[bool] = []
        for node in self.nodes:
            found.append(bool(node.counts.parameters) or any(found[source] for source in node.inputs))
        return found

    def live(self) -> list[int]:
        """Elements that cross behind each node: results made up to there and read after."""
        last = [max(users, default=number) for number, users in enumerate(self.consumers())]
        freed = [0] * len(self.nodes)
        found, crossing = [], 0
        for number, node in enumerate(self.nodes):
            freed[last[number]] += node.counts.elements
            crossing += node.counts.elements - freed[number]
            found.append(crossing)
        return found

    def peak_forward(self) -> int:
        """Most elements live at once in a forward pass that keeps nothing (inference): inputs and result of the node at
        work, and what later nodes read."""
        last = [max(users, default=number) for number, users in enumerate(self.consumers())]
        peak = 0
        for number, node in enumerate(self.nodes):
            held = {i for i in range(number) if last[i] >= number} | set(node.inputs) | {number}
            peak = max(peak, sum(self.nodes[i].counts.elements for i in held))
        return peak
