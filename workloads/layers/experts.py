"""A layer of routed experts as one operator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from workloads.graph import Counts, Shape
from workloads.layers.attention import FeedForward, rows_and_width
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector

#: Kernels of a router beside its product and softmax: top-k, mask, token counts, offsets, two sorts of row numbers.
ROUTER_KERNELS = 6


@dataclass(frozen=True)
class MixtureOfExperts:
    """Each token is sent to `chosen` of `experts` MLPs of `inner` columns, and through a shared MLP of `shared`.

    rows = ceil(tokens x chosen x capacity_factor), spread evenly over the experts: real routers are uneven, and the
    fullest expert sets the pace.  Forward: router, permute, all-to-all, regroup by expert, experts, regroup,
    all-to-all, weighted sum.  Frameworks regroup wherever a device holds more than one expert, one device alone too
    (Megatron Core, token dispatcher).
    shared_gate   a learned gate (a number a column of the input) scales what the shared MLP gives

    Kept: router probabilities (4 B), rows as the experts read them, MLP internals; router weights are applied in the
    activation, so that the experts' outputs are not kept.
    Tensor split: inner columns of experts; the router's weights are copied, its tokens shared.  The expert axis divides
    experts.
    """

    experts: int
    chosen: int
    inner: int
    gated: bool = True
    bias: bool = False
    shared: int = 0
    capacity_factor: float = 1.0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        problems = at_least(1, experts=self.experts, chosen=self.chosen, inner=self.inner) + at_least(
            0, shared=self.shared
        )
        if not problems and self.chosen > self.experts:
            problems.append(f"chosen: found {self.chosen}, allowed: 1 to {self.experts} (experts)")
        if not 0 < self.capacity_factor < float("inf"):
            problems.append(f"capacity_factor: found {self.capacity_factor!r}, allowed: a number > 0")
        if not problems and self.shared_gate and not self.shared:
            problems.append("shared_gate: found True, allowed: False without shared")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Router, permutation, experts, weighted sum."""
        tokens, hidden = rows_and_width(shapes)
        rows, matrices = ceil(tokens * self.chosen * self.capacity_factor), 2 if self.gated else 1
        columns = matrices * self.inner
        mlp = self._shared(shapes[0])
        one_expert = hidden * columns + self.inner * hidden + (columns + hidden if self.bias else 0)
        router = hidden * self.experts + (self.experts if self.bias else 0) + (hidden if self.shared_gate else 0)
        probabilities = 4 * tokens * self.experts
        outer, inner = mlp.products[:1], mlp.products[1:]
        return Counts(
            result=shapes[0],
            parameters=router + self.experts * one_expert + mlp.parameters,
            products=(
                # tensor ranks share the router's tokens; its weights are copied
                Matmul("router", tokens, self.experts, hidden, split="n"),
                Matmul("expert up", rows, columns, hidden, split="n", experts=self.experts),
                *outer,
                Matmul("expert down", rows, hidden, self.inner, split="k", experts=self.experts),
                *inner,
            ),
            passes=(*self._passes(tokens, rows, hidden), *mlp.passes),
            keeps=("inputs",),
            kept_bytes=2 * rows * (hidden + columns + self.inner) + probabilities + mlp.kept_bytes,
            kept_fixed=probabilities,
            kept_whole=probabilities,
            mixing="own",
            reductions=1,
            inner=1 + len(inner),
            split_parameters=mlp.split_parameters,
            pieces_split=self.shared,
            expert_parameters=self.experts * one_expert,
            experts=self.experts,
            experts_per_token=self.chosen,
            routed=rows * hidden,
            # and the second regrouping
            kernels=ROUTER_KERNELS + 1,
        )

    def _shared(self, shape: Shape) -> Counts:
        """The MLP that every token meets, its operators named so."""
        if not self.shared:
            return Counts(())
        found = FeedForward(self.shared, "silu" if self.gated else "gelu", self.gated, self.bias).counts(shape)
        return replace(
            found,
            products=tuple(replace(one, name=f"shared {one.name}") for one in found.products),
            passes=tuple(replace(one, name=f"shared {one.name}") for one in found.passes),
        )

    def _passes(self, tokens: int, rows: int, hidden: int) -> tuple[Vector, ...]:
        """Activation, router probabilities, and rows on their way to the experts and back."""
        matrices, share = 2 if self.gated else 1, 1.0 / self.chosen
        return (
            Vector("expert activation", rows * self.inner, reads=matrices, writes=1, backward_reads=matrices + 1,
                   backward_writes=matrices, operations=9, backward_operations=14, split="tensor"),
            Vector("router", tokens * self.experts, operations=8, backward_operations=4, split="sequence"),
            # a token is read once and written for each of its experts; backward adds them up
            Vector("permute", rows * hidden, reads=share, backward_reads=1, backward_writes=share, operations=0,
                   backward_operations=1, split="tensor"),
            # rows come and go by sending rank, experts want them together
            Vector("regroup", rows * hidden, reads=2, writes=2, backward_reads=2, backward_writes=2, operations=0,
                   backward_operations=0, split="tensor"),
            Vector("unpermute", rows * hidden, writes=share, backward_reads=share, backward_writes=1, operations=1,
                   backward_operations=0, split="tensor"),
        )  # fmt: skip
