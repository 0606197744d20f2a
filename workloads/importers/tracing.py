"""What importers share: tensors whose origin is known, and a graph that grows as a file or a module is walked.

A tensor is made of data (then a node of the graph made it), of parameters and constants alone (then it costs nothing a
sample), or of numbers that are known (shapes, axes).  Theory: docs/importers_onnx.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from workloads.graph import Counts, Graph, Operator, Shape, Value

#: Trained tensors that one constant may be made of.
MOST_PARTS = 1024


@dataclass(frozen=True)
class Foreign:
    """An operator of another library: counts that an importer derived from its sizes.

    kind    what the library calls it;  given   its counts for the graph it was imported in
    """

    kind: str
    given: Counts

    def counts(self, *shapes: Shape) -> Counts:
        """As given: sizes were checked where they were derived."""
        return self.given


@dataclass(frozen=True)
class Parameter:
    """A tensor that is trained."""

    name: str
    elements: int


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor while it is imported.

    shape       of the whole tensor, the sample's axis among it
    floating    real numbers: whole numbers and truth values get no gradient
    value       the node whose result it is, or is a view of; None: no data is in it
    parameters  trained tensors it is made of, where no data is in it
    known       its numbers, where they are few and known
    causal      a mask that hides later positions
    copies      how often each element is seen (a broadcast that nothing wrote out)
    """

    shape: Shape
    floating: bool = True
    value: Value | None = None
    parameters: tuple[Parameter, ...] = ()
    known: np.ndarray | None = None
    causal: bool = False
    copies: int = 1

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def constant(self) -> bool:
        """No data is in it."""
        return self.value is None


def sample(shape: Shape) -> Shape:
    """The shape of one sample: without the leading axis of size 1; at least one axis."""
    left = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return left or (1,)


class Traced(Graph):
    """A graph that was imported. heads: the numbers of heads of its attentions, by which a tensor split divides."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.heads: set[int] = set()


def dividing(heads: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """What a tensor degree must divide, of attentions of so many heads."""
    if len(heads) == 1:
        return (("attention heads", heads[0]),)
    return tuple((f"attention heads ({number})", number) for number in heads)


class Tracer:
    """A graph while it is imported: nodes are added with the parameters that no node before them has.

    all_parameters counts what was used; a parameter is counted at the node that uses it first.
    """

    def __init__(self, name: str) -> None:
        self.graph = Traced(name)
        self.owners: dict[str, Value] = {}
        self.trained: list[bool] = []

    def data(self, name: str, shape: Shape, *, floating: bool = True) -> Tensor:
        """An input of the model."""
        value = self.graph.input(sample(shape), name)
        self.trained.append(False)
        return Tensor(shape, floating, value)

    def trains(self, tensor: Tensor) -> bool:
        """Whether a gradient flows back into it."""
        if tensor.value is None:
            return bool(tensor.parameters)
        return tensor.floating and self.trained[tensor.value.number]

    def add(
        self, kind: str, counts: Counts, inputs: Iterable[Tensor], *, name: str = "", like: Operator | None = None
    ) -> Value:
        """A node that reads `inputs`; parameters among them are its own where no node before has them.

        like   the operator that it may be, which is taken where it counts the same"""
        tensors = list(inputs)
        values = list(dict.fromkeys(tensor.value for tensor in tensors if tensor.value is not None))
        if not values:
            raise ValueError(f"{name or kind}: found no data among its inputs")
        used = {one.name: one for tensor in tensors for one in tensor.parameters}
        fresh = [one for one in used.values() if one.name not in self.owners]
        owners = {self.owners[one].number for one in used if one in self.owners}
        shared = None
        own = sum(one.elements for one in fresh)
        if used and not fresh and len(owners) == 1:
            owner = self.owners[next(iter(used))]
            if self.graph.nodes[owner.number].counts.parameters == sum(one.elements for one in used.values()):
                shared, own = owner, self.graph.nodes[owner.number].counts.parameters
        given = replace(counts, parameters=own, split_parameters=min(counts.split_parameters, own))
        operator = like if like is not None and _same(like, given, values) else Foreign(kind, given)
        value = self.graph.add(operator, *values, name=name or kind, shares=shared)
        for one in fresh:
            self.owners[one.name] = value
        self.trained.append(bool(used) or any(self.trained[source.number] for source in values))
        return value


def _same(operator: Operator, counts: Counts, values: Sequence[Value]) -> bool:
    """Whether an operator counts as given."""
    try:
        found = operator.counts(*(value.shape for value in values))
        return found.elements == counts.elements and replace(found, result=counts.result) == counts
    except ValueError:
        return False


def made_of(inputs: Sequence[Tensor | None]) -> tuple[Parameter, ...]:
    """Parameters that a tensor made of `inputs` holds, each once."""
    if sum(len(tensor.parameters) for tensor in inputs if tensor is not None) > MOST_PARTS:
        raise ValueError(f"found a constant made of more than {MOST_PARTS} trained tensors")
    return tuple({one.name: one for tensor in inputs if tensor is not None for one in tensor.parameters}.values())


def first_value(inputs: Sequence[Tensor | None]) -> Value | None:
    """The node that a tensor which costs nothing is a view of: of its first input with data, real numbers first."""
    found = [tensor for tensor in inputs if tensor is not None and tensor.value is not None]
    return next((tensor.value for tensor in found if tensor.floating), found[0].value if found else None)
