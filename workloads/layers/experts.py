"""A layer of routed experts as one operator; the decoder transformer's own part is `workloads.parts.routed_experts`."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from workloads.graph import Counts, Shape
from workloads.layers.attention import FeedForward, rows_and_width
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector


@dataclass(frozen=True)
class MixtureOfExperts:
    """Each token is sent to `chosen` of `experts` MLPs of `inner` columns, and through a shared MLP of `shared`.

    rows = ceil(tokens x chosen x capacity_factor), spread evenly.  Operators, parameters and kept bytes are those of
    `workloads.parts.routed_experts`; the tensor degree divides the inner columns of every expert, and every device of
    the data axis holds all experts (only decoder transformers have an expert axis).
    """

    experts: int
    chosen: int
    inner: int
    gated: bool = True
    bias: bool = False
    shared: int = 0
    capacity_factor: float = 1.0

    def __post_init__(self) -> None:
        problems = at_least(1, experts=self.experts, chosen=self.chosen, inner=self.inner) + at_least(
            0, shared=self.shared
        )
        if not problems and self.chosen > self.experts:
            problems.append(f"chosen: found {self.chosen}, allowed: 1 to {self.experts} (experts)")
        if not 0 < self.capacity_factor < float("inf"):
            problems.append(f"capacity_factor: found {self.capacity_factor!r}, allowed: a number > 0")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Router, permutation, experts, weighted sum."""
        tokens, hidden = rows_and_width(shapes)
        rows, matrices = ceil(tokens * self.chosen * self.capacity_factor), 2 if self.gated else 1
        columns, share = matrices * self.inner, 1.0 / self.chosen
        mlp = FeedForward(self.shared, "silu", self.gated, self.bias).counts(shapes[0]) if self.shared else Counts(())
        one_expert = hidden * columns + self.inner * hidden + (columns + hidden if self.bias else 0)
        router = hidden * self.experts + (self.experts if self.bias else 0)
        outer, inner = mlp.products[:1], mlp.products[1:]
        return Counts(
            result=shapes[0],
            parameters=router + self.experts * one_expert + mlp.parameters,
            products=(
                Matmul("router", tokens, self.experts, hidden, split="n"),
                Matmul("expert up", rows, columns, hidden, split="n", experts=self.experts),
                *outer,
                Matmul("expert down", rows, hidden, self.inner, split="k", experts=self.experts),
                *inner,
            ),
            passes=(
                Vector("expert activation", rows * self.inner, reads=matrices, writes=1, backward_reads=matrices + 1,
                       backward_writes=matrices, operations=9, backward_operations=14, split="tensor"),
                Vector("router", tokens * self.experts, operations=8, backward_operations=4, split="sequence"),
                # a token is read once and written for each of its experts; backward adds them up
                Vector("permute", rows * hidden, reads=share, backward_reads=1, backward_writes=share, operations=0,
                       backward_operations=1, split="sequence"),
                Vector("unpermute", rows * hidden, writes=share, backward_reads=share, backward_writes=1, operations=1,
                       backward_operations=0, split="sequence"),
                *mlp.passes,
            ),
            keeps=("inputs",),
            kept_bytes=2 * rows * (hidden + columns + self.inner) + 4 * tokens * self.experts + mlp.kept_bytes,
            mixing="own",
            reductions=1,
            inner=1 + len(inner),
            split_parameters=self.experts * one_expert + mlp.split_parameters,
        )  # fmt: skip
