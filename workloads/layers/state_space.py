"""The Mamba-2 mixer: a selective state space computed by chunks of matrix products (state space duality)."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Counts, Shape
from workloads.layers.attention import rows_and_width
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector


@dataclass(frozen=True)
class StateSpace:
    """Mamba-2 mixer: (tokens, width) -> (tokens, width).                     [Dao & Gu 2024, arXiv 2405.21060]

    One product makes z, x, B, C and dt; a short depthwise convolution runs over x, B and C; each head of `head_dim`
    columns keeps a state of head_dim x `state` numbers; the result is gated by z, normed, and projected back.
    Chunks of Q tokens: scores C B^T (Q, Q) a group; inside (Q, Q)(Q, head_dim) a head; states (state, Q)(Q, head_dim);
    output of the state before (Q, state)(state, head_dim); states are passed on from chunk to chunk.
    expand   inner width over width;  groups: heads share B and C;  kernel: taps of the convolution (a pass, no product)
    Tensor split: heads; groups that do not divide are copied.
    """

    state: int = 128
    expand: int = 2
    head_dim: int = 64
    groups: int = 1
    kernel: int = 4
    chunk: int = 256

    def __post_init__(self) -> None:
        need(
            at_least(
                1, state=self.state, expand=self.expand, head_dim=self.head_dim, groups=self.groups, kernel=self.kernel,
                chunk=self.chunk,
            )
        )  # fmt: skip

    def counts(self, *shapes: Shape) -> Counts:
        """Parameters as mamba_ssm's Mamba2 without projection biases."""
        tokens, width = rows_and_width(shapes)
        inner = self.expand * width
        need([f"expand x width % head_dim: {inner} % {self.head_dim} != 0"] if inner % self.head_dim else [])
        heads, shared = inner // self.head_dim, 2 * self.groups * self.state
        convolved, made = inner + shared, 2 * inner + shared + heads
        length = min(self.chunk, tokens)
        chunks = -(-tokens // length)
        states = chunks * heads * self.state * self.head_dim
        return Counts(
            result=shapes[0],
            parameters=width * made + convolved * (self.kernel + 1) + 3 * heads + inner + inner * width,
            products=(
                Matmul("in projection", tokens, made, width, split="n"),
                *self._chunks(length, chunks, heads),
                Matmul("out projection", tokens, width, inner, split="k"),
            ),
            passes=(
                Vector("short convolution", tokens * convolved, operations=2 * self.kernel + 6,
                       backward_operations=4 * self.kernel + 8, split="tensor"),
                # decays inside a chunk, made where they are used
                Vector("decay", chunks * heads * length * length, reads=0, writes=0, backward_reads=0,
                       backward_writes=0, operations=6, backward_operations=10, split="tensor"),
                # fp32 states, one chunk after the other in one kernel
                Vector("state passing", states, reads=2, writes=2, backward_reads=4, backward_writes=2, operations=2,
                       backward_operations=4, split="tensor"),
                Vector("gated norm", tokens * inner, reads=2, backward_reads=3, backward_writes=2, operations=14,
                       backward_operations=24, split="tensor"),
            ),
            keeps=("inputs",),
            # projections, convolution, result of the scan and of the norm, fp32 states of chunks
            kept_bytes=2 * tokens * (made + convolved + 2 * inner) + 4 * states,
            kept_fixed=4 * states,
            mixing="own",
            reductions=1,
            inner=5,
            # all but the columns of B and C and their part of the convolution
            split_parameters=width * (3 * inner + heads) + inner * (self.kernel + 2) + 3 * heads,
        )  # fmt: skip

    def _chunks(self, length: int, chunks: int, heads: int) -> tuple[Matmul, ...]:
        """The four products of the scan by chunks."""
        all_heads = chunks * heads
        return (
            Matmul("chunk scores", length, length, self.state, groups=chunks * self.groups, weight=False),
            Matmul("chunk output", length, self.head_dim, length, groups=all_heads, split="groups", weight=False),
            Matmul("chunk states", self.state, self.head_dim, length, groups=all_heads, split="groups", weight=False),
            Matmul("state output", length, self.head_dim, self.state, groups=all_heads, split="groups", weight=False),
        )
