"""Linear layers: the last axis of the input is mixed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from workloads.graph import Counts, Shape
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector


@dataclass(frozen=True)
class Linear:
    """y = x W + b on the last axis: (..., inputs) -> (..., outputs).

    copied   every tensor rank holds the weights and does the whole product
    """

    outputs: int
    bias: bool = True
    copied: bool = False

    def __post_init__(self) -> None:
        need(at_least(1, outputs=self.outputs))

    def counts(self, *shapes: Shape) -> Counts:
        """One product of all rows."""
        if len(shapes) != 1:
            raise ValueError(f"inputs: found {len(shapes)}, allowed: 1")
        *rows, width = shapes[0]
        number = prod(rows)
        bias = Vector("bias", number * self.outputs, reads=0, writes=0, backward_reads=1, backward_writes=0,
                      operations=1, backward_operations=1)  # fmt: skip
        return Counts(
            result=(*rows, self.outputs),
            parameters=width * self.outputs + (self.outputs if self.bias else 0),
            products=(Matmul("linear", number, self.outputs, width),),
            passes=(bias,) if self.bias else (),
            keeps=("inputs",),
            mixing="whole" if self.copied else "dense",
        )
