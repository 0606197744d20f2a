"""Recurrent layers and what belongs to them: LSTM, GRU, transducer joint and losses over alignments.

Inputs are (steps, features) of one sample.  Gates of all steps get their input part in one product; the recurrent part
is a product a step, one after the other.  Theory: docs/models/recurrent.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Shape
from workloads.layers.attention import rows_and_width
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector


def _truth(bidirectional: bool) -> list[str]:
    """The fault of what is no truth value."""
    return [] if isinstance(bidirectional, bool) else [f"bidirectional: found {bidirectional!r}, allowed: True, False"]


def _recurrent(
    shape: Shape, hidden: int, gates: int, *, projection: int = 0, directions: int = 1, state: int = 0
) -> Counts:
    """A layer of `gates` gates of `hidden` units, `state` of which kept beside its result, in `directions`.

    Weights of both matrices and two biases a gate, as in torch.nn.LSTM and GRU."""
    steps, width = rows_and_width((shape,))
    out = projection or hidden
    products = [
        Matmul("input gates", steps, gates * hidden, width, split="n", repeats=directions),
        Matmul("recurrent gates", steps, gates * hidden, out, split="n", steps=steps, repeats=directions),
    ]
    if projection:
        products.append(Matmul("projection", steps, projection, hidden, split="k", steps=steps, repeats=directions))
    weights = gates * hidden * (width + out) + projection * hidden
    # input and recurrent parts and the state are read, gates (for the backward pass), state and result written;
    # backward reads gates, two states and two gradients and writes the gradients of gates and state
    one = Vector(
        "gates", steps * hidden, reads=2 * gates + state, writes=gates + 1 + state,
        backward_reads=gates + 2 * state + 2, backward_writes=gates + state, operations=7 * gates,
        backward_operations=9 * gates, split="tensor", steps=steps, repeats=directions,
    )  # fmt: skip
    return Counts(
        result=(*shape[:-1], directions * out),
        parameters=directions * (weights + 2 * gates * hidden),
        products=tuple(products),
        passes=(one,),
        keeps=("inputs", "result"),
        kept_bytes=2 * directions * steps * hidden * (gates + state + (1 if projection else 0)),
        mixing="own",
        reductions=1,
        inner=len(products) - 1,
        split_parameters=directions * (weights + 2 * gates * hidden),
    )


@dataclass(frozen=True)
class LSTM:
    """One LSTM layer over (steps, features): four gates, a cell state.

    hidden, projection   units, and columns of the result where it is projected (0: hidden)
    bidirectional        a second layer runs from the end; results are joined
    Tensor split: units; every step gathers the result (counted as one exchange of all steps).
    """

    hidden: int
    projection: int = 0
    bidirectional: bool = False

    def __post_init__(self) -> None:
        need(at_least(1, hidden=self.hidden) + at_least(0, projection=self.projection) + _truth(self.bidirectional))

    def counts(self, *shapes: Shape) -> Counts:
        """One product for all steps, one a step; the weight gradient of either is one product."""
        rows_and_width(shapes)
        return _recurrent(shapes[0], self.hidden, 4, projection=self.projection,
                          directions=1 + self.bidirectional, state=1)  # fmt: skip


@dataclass(frozen=True)
class GRU:
    """One GRU layer over (steps, features): three gates, no cell state."""

    hidden: int
    bidirectional: bool = False

    def __post_init__(self) -> None:
        need(at_least(1, hidden=self.hidden) + _truth(self.bidirectional))

    def counts(self, *shapes: Shape) -> Counts:
        """One product for all steps, one a step."""
        rows_and_width(shapes)
        return _recurrent(shapes[0], self.hidden, 3, directions=1 + self.bidirectional)


@dataclass(frozen=True)
class StackTime:
    """`factor` neighbouring steps joined into one: (steps, features) -> (ceil(steps / factor), factor x features)."""

    factor: int

    def __post_init__(self) -> None:
        need(at_least(1, factor=self.factor))

    def counts(self, *shapes: Shape) -> Counts:
        """A copy."""
        steps, width = rows_and_width(shapes)
        result = (-(-steps // self.factor), self.factor * width)
        return Counts(result, passes=(Vector("stack time", prod(result), backward_reads=1, operations=0,
                                             backward_operations=0),))  # fmt: skip


@dataclass(frozen=True)
class TransducerJoint:
    """Every encoder step meets every label: (t, width) and (u, width) -> (t u, width), ReLU and dropout of the sum.

    Source: Graves 2012, arXiv 1211.3711."""

    dropout: bool = True

    def counts(self, *shapes: Shape) -> Counts:
        """The sum is read from two small tensors; what is written is large and kept."""
        steps, width = rows_and_width(shapes, 2)
        if len(shapes[1]) != 2 or shapes[1][1] != width:
            raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: (t, width) and (u, width)")
        labels = shapes[1][0]
        pairs = steps * labels
        small = (steps + labels) / pairs
        mask = 0.5 if self.dropout else 0.0
        one = Vector("joint", pairs * width, reads=small, writes=1 + mask, backward_reads=1 + mask,
                     backward_writes=small, operations=3, backward_operations=3)  # fmt: skip
        masks = pairs * width
        return Counts((pairs, width), passes=(one,), kept_bytes=masks, kept_fixed=masks, mixing="channels")


@dataclass(frozen=True)
class AlignmentLoss:
    """A loss that sums over alignments of `labels` labels with the steps of its input.

    kind "ctc": logits (steps, classes), a lattice of steps x (2 labels + 1)         [Graves et al. 2006]
    kind "transducer": logits (steps x (labels + 1), classes), a lattice as large    [Graves 2012, arXiv 1211.3711]
    Log-probabilities in fp32 are kept; forward and backward variables are computed step by step.
    """

    labels: int
    kind: str = "ctc"

    def __post_init__(self) -> None:
        problems = at_least(1, labels=self.labels)
        if self.kind not in ("ctc", "transducer"):
            problems.append(f"kind: found {self.kind!r}, allowed: ctc, transducer")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Softmax over classes, then the lattice, whose diagonals follow one another."""
        rows, classes = rows_and_width(shapes)
        lattice = rows * (2 * self.labels + 1) if self.kind == "ctc" else rows
        steps = rows if self.kind == "ctc" else rows // (self.labels + 1) + self.labels
        softmax = Vector("softmax and loss", rows * classes, reads=2, writes=2, backward_reads=2, backward_writes=1,
                         operations=8, backward_operations=4, loss=True)  # fmt: skip
        # one kernel walks the lattice forward, one backward: no launch a step
        walk = Vector(f"{self.kind} lattice", lattice, reads=4, writes=2, backward_reads=4, backward_writes=2,
                      operations=10, backward_operations=10, loss=True)  # fmt: skip
        kept = 4 * rows * classes + 4 * lattice
        return Counts((max(steps, 1),), passes=(softmax, walk), kept_bytes=kept, kept_fixed=kept)
