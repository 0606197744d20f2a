"""Losses: what training starts its backward pass from.  Everything is kept in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Shape
from workloads.layers.checks import axis_of
from workloads.operators import Vector

#: Kernels of softmax and cross-entropy: maximum, exponential and sum, quotient, mean.
LOSS_KERNELS = 4
#: Vector operations an element, forward and backward.
LOSSES = {"l1": (3, 2), "l2": (3, 2), "sigmoid": (9, 4), "focal": (16, 12), "dice": (8, 6), "ctc": (20, 10)}


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax and cross-entropy over an axis: the last, or 0 where each position of a map has a class.

    One kernel reads the logits, and backward reads them again and writes their gradient; a framework without it
    (`Training.cross_entropy` "materialized") writes every step.  Kept in fp32: the probabilities.
    Tensor split: classes, as the product before leaves them; ranks exchange a maximum and a sum a row, left out
    (Megatron-LM, vocabulary-parallel cross-entropy).
    """

    axis: int = -1

    def counts(self, *shapes: Shape) -> Counts:
        """Largest, sum and quotient of each row."""
        if not shapes:
            raise ValueError("inputs: found 0, allowed: logits (and what they are compared with)")
        shape = shapes[0]
        at = axis_of(self.axis, shape)
        elements = prod(shape)
        one = Vector("loss", elements, reads=1, writes=0, backward_reads=1, backward_writes=1, operations=6,
                     backward_operations=3)  # fmt: skip
        # in fp32 (two elements of 2 B), one operation after the other: widened, maximum, difference, exponential, sum,
        # quotient; the gradient scaled and narrowed
        steps = Vector("loss in steps", elements, reads=10, writes=8, backward_reads=3, backward_writes=2,
                       backward_operations=1, loss=True)  # fmt: skip
        rows = shape[:at] + shape[at + 1 :]
        return Counts(
            (prod(rows),), passes=(one, steps), kept_bytes=4 * elements, kept_fixed=4 * elements, mixing="channels",
            kernels=LOSS_KERNELS - 2,
        )


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
        return Counts((1,), passes=(one,), kept_bytes=4 * elements, kept_fixed=4 * elements, mixing="whole")
