"""The Mamba mixer: a selective state space scanned token by token (its successor by chunks is `StateSpace`)."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.graph import Counts, Shape
from workloads.layers.attention import rows_and_width
from workloads.layers.checks import at_least, need
from workloads.operators import Matmul, Vector


@dataclass(frozen=True)
class SelectiveScan:
    """Mamba mixer: (tokens, width) -> (tokens, width).                        [Gu & Dao 2023, arXiv 2312.00752, 3.3]

    One product makes x and z of `inner` columns; a short depthwise convolution runs over x; a narrow product makes
    dt (`rank` columns, 0: width / 16 rounded up), B and C (`state` columns each), another widens dt.  Each of the inner
    columns keeps `state` numbers: h = exp(dt A) h + dt B x, y = C h + D x, gated by z and projected back.
    The fused kernel keeps h on chip: it reads x, z, dt, B, C and writes y, and computes h again backward.
    inner   columns of the mixer (0: 2 x width); kernel: taps of the convolution; bias, kernel_bias: of the projections
            and of the convolution
    Tensor split: inner columns; B, C and the narrow dt need a sum over ranks.
    """

    state: int = 16
    inner: int = 0
    rank: int = 0
    kernel: int = 4
    bias: bool = False
    kernel_bias: bool = True

    def __post_init__(self) -> None:
        need(at_least(1, state=self.state, kernel=self.kernel) + at_least(0, inner=self.inner, rank=self.rank))

    def counts(self, *shapes: Shape) -> Counts:
        """Parameters as the released implementation has them."""
        tokens, width = rows_and_width(shapes)
        inner, rank = self.inner or 2 * width, self.rank or -(-width // 16)
        narrow = rank + 2 * self.state
        convolution = inner * (self.kernel + self.kernel_bias)
        scanned = inner * self.state + inner
        own = 2 * inner * width + convolution + inner * narrow + rank * inner + inner + scanned + inner * width
        split = own + (2 * inner if self.bias else 0)
        states = float(self.state)
        return Counts(
            result=shapes[0],
            parameters=split + (width if self.bias else 0),
            products=(
                Matmul("in projection", tokens, 2 * inner, width, split="n"),
                Matmul("narrow projection", tokens, narrow, inner, split="k"),
                Matmul("step projection", tokens, inner, rank, split="n"),
                Matmul("out projection", tokens, width, inner, split="k"),
            ),
            passes=(
                Vector("short convolution", tokens * inner, operations=2 * self.kernel + 6,
                       backward_operations=4 * self.kernel + 8, split="tensor"),
                # a state: exponential of the step, two products and a sum in, a product and a sum out
                Vector("selective scan", tokens * inner, reads=3, backward_reads=5, backward_writes=3,
                       operations=7.0 * states + 8, backward_operations=18.0 * states + 16, split="tensor"),
            ),
            keeps=("inputs",),
            # x and z, x after the convolution, dt, B and C, y
            kept_bytes=2 * tokens * (2 * inner + inner + inner + narrow + inner),
            mixing="own",
            # of the narrow columns and of the result; counted as two of the result, which is the wider
            reductions=2,
            inner=3,
            split_parameters=split,
        )  # fmt: skip
