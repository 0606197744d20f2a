"""Losses: what training starts its backward pass from.  Everything is kept in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Shape
from workloads.layers.checks import axis_of
from workloads.operators import Vector

#: Vector operations an element, forward and backward.
LOSSES = {"l1": (3, 2), "l2": (3, 2), "sigmoid": (9, 4), "focal": (16, 12), "dice": (8, 6), "ctc": (20, 10)}


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax and cross-entropy over an axis: the last, or 0 where each position of a map has a class.

    Kept in fp32: the probabilities.
    """

    axis: int = -1

    def counts(self, *shapes: Shape) -> Counts:
        """Logits read once for the largest and the sum, written as a gradient backward."""
        if not shapes:
            raise ValueError("inputs: found 0, allowed: logits (and what they are compared with)")
        shape = shapes[0]
        at = axis_of(self.axis, shape)
        elements = prod(shape)
        one = Vector("softmax and loss", elements, reads=2, writes=2, backward_reads=2, backward_writes=1, operations=8,
                     backward_operations=4, loss=True)  # fmt: skip
        rows = shape[:at] + shape[at + 1 :]
        return Counts((prod(rows),), passes=(one,), kept_bytes=4 * elements, mixing="whole")


@dataclass(frozen=True)
class Loss:
    """A loss of each element alone (or sums over a map): `kind` is one of `LOSSES`."""

    kind: str = "l2"

    def __post_init__(self) -> None:
        if self.kind not in LOSSES:
            raise ValueError(f"kind: found {self.kind!r}, allowed: {', '.join(LOSSES)}")

    def counts(self, *shapes: Shape) -> Counts:
        """Prediction and target read, a number written; the gradient is written backward."""
        if not shapes:
            raise ValueError("inputs: found 0, allowed: a prediction (and what it is compared with)")
        elements = prod(shapes[0])
        forward, backward = LOSSES[self.kind]
        one = Vector(f"{self.kind} loss", elements, reads=2, writes=0, backward_reads=2, backward_writes=1,
                     operations=forward, backward_operations=backward, loss=True)  # fmt: skip
        return Counts((1,), passes=(one,), kept_bytes=4 * elements, mixing="whole")
