"""Operators of transformer layers: residuals, attention and feed-forward.

Norms are in `workloads.layers.norms`, experts in `workloads.layers.experts`.
Inputs are (tokens, features) of one sample.  Attention and feed-forward bring their splits over the tensor axis: by
heads and by inner columns, with one all-reduce of the result each.  Theory: docs/models/networks.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from workloads.graph import Counts, Shape
from workloads.layers.attention_core import core_matmuls, kept_scores, softmax
from workloads.layers.checks import at_least, need
from workloads.layers.pointwise import PIECES
from workloads.operators import Attention, Matmul, Vector

#: Vector operations an element of activations inside a feed-forward layer, forward and backward.
INNER_ACTIVATIONS = {"relu": (1, 1), "gelu": (8, 12), "silu": (8, 12)}


def rows_and_width(shapes: tuple[Shape, ...], number: int = 1) -> tuple[int, int]:
    """Rows (all axes but the last) and width of the first of `number` inputs."""
    if len(shapes) != number:
        raise ValueError(f"inputs: found {len(shapes)}, allowed: {number}")
    if any(len(shape) < 2 for shape in shapes):
        raise ValueError(f"input: found shape {min(shapes, key=len)}, allowed: rows and features")
    return prod(shapes[0][:-1]), shapes[0][-1]


@dataclass(frozen=True)
class Residual:
    """Sum of a layer's input and its results, each of these after dropout: one, or two that read the same input.

    Backward adds the gradients of both branches of the input and applies the masks (one byte an element, kept).  The
    sum is one kernel, a dropout another.
    """

    dropout: bool = True

    def counts(self, *shapes: Shape) -> Counts:
        """All read, the sum and the masks written."""
        if len(shapes) < 2 or any(shape != shapes[0] for shape in shapes):
            raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: two equal ones, or more")
        number, masks = prod(shapes[0]), len(shapes) - 1 if self.dropout else 0
        one = Vector(
            "residual", number, reads=len(shapes), writes=1 + 0.5 * masks, backward_reads=2 + 1.5 * masks,
            backward_writes=1 + masks, pieces=2.0 if self.dropout else 1.0,
        )  # fmt: skip
        return Counts(
            shapes[0], passes=(one,), kept_bytes=number * masks, kept_fixed=number * masks, kernels=masks, sums=True
        )


@dataclass(frozen=True)
class MultiHeadAttention:
    """Attention of `heads` heads, with its projections: self-attention of one input, cross-attention of two.

    S = Q K^T / sqrt(head_dim), O = softmax(S) V, y = O W_o; Q, K and V are projections of x (of the second input).
    head_dim, width   columns of a head (0: width of the input / heads) and of the result (0: of the input)
    kv_heads     heads of keys and values, each shared by heads / kv_heads (0: heads)
    biases       of "all" four projections, of "qkv" or the output "projection" only, or "none"
    causal       a query sees no later key (FLOP count the full square all the same)
    window       a query sees so many keys at most (0: all)
    memory       tokens of the segment before, kept without gradient, that are keys too and are projected with the
                 others (Transformer-XL)
    relative     scores get a second product, queries times projected positions, shifted (Dai et al. 2019,
                 arXiv 1901.02860, eq. of section 3.3); the projection of positions is the same for all samples of a
                 batch and is left out of the products.  A fused kernel cannot run it
    relative_biases   two vectors that are added to the queries of either product are trained here (one layer of those
                 that share them)
    buckets      rows of a table of score biases by distance, one number a head (T5); 0 for layers that reuse it
    scores_biased   scores get such a bias
    rotary, rotary_dim   queries and keys are rotated by position: rotary_dim columns of a head, 0: all
    qk_norm      a norm of each head's queries and of its keys after the projection; it trains qk_norm_weights numbers a
                 column (1: scale, 2: and shift, 0: none), the same for all heads unless qk_norm_whole
    sinks        a learned score a head that attention may spend weight on
    dropout      of the attention weights
    context_is_data   the second input needs no gradient (a frozen text encoder)

    Kept: queries, keys, values and the output of the core; scores apart.
    Tensor split: heads; each rank holds whole key and value heads.
    """

    heads: int
    head_dim: int = 0
    width: int = 0
    kv_heads: int = 0
    biases: Literal["all", "qkv", "projection", "none"] = "all"
    causal: bool = False
    window: int = 0
    memory: int = 0
    relative: bool = False
    relative_biases: bool = False
    buckets: int = 0
    scores_biased: bool = False
    rotary: bool = False
    qk_norm: bool = False
    dropout: bool = True
    context_is_data: bool = False
    rotary_dim: int = 0
    qk_norm_weights: int = 1
    qk_norm_whole: bool = False
    sinks: bool = False

    def __post_init__(self) -> None:
        problems = at_least(1, heads=self.heads) + at_least(
            0, head_dim=self.head_dim, width=self.width, kv_heads=self.kv_heads, window=self.window,
            memory=self.memory, buckets=self.buckets, rotary_dim=self.rotary_dim, qk_norm_weights=self.qk_norm_weights,
        )  # fmt: skip
        if self.biases not in ("all", "qkv", "projection", "none"):
            problems.append(f"biases: found {self.biases!r}, allowed: all, qkv, projection, none")
        if not problems and self.kv_heads and self.heads % self.kv_heads:
            problems.append(f"heads % kv_heads: {self.heads} % {self.kv_heads} != 0")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """Projections split by heads, core, output projection split by its inner columns."""
        rows, hidden = rows_and_width(shapes, len(shapes) if len(shapes) in (1, 2) else 1)
        if len(shapes) == 2 and (self.memory or self.relative):
            raise ValueError("inputs: found 2, allowed: 1 with memory or relative positions")
        if not self.head_dim and hidden % self.heads:
            raise ValueError(f"hidden % heads: {hidden} % {self.heads} != 0 (give head_dim)")
        head_dim, kv_heads = self.head_dim or hidden // self.heads, self.kv_heads or self.heads
        width, query, key = self.width or hidden, self.heads * head_dim, kv_heads * head_dim
        context, features = (prod(shapes[1][:-1]), shapes[1][-1]) if len(shapes) == 2 else (rows + self.memory, hidden)
        seen = min(self.window, context) if self.window else context
        core = Attention(self.heads, kv_heads, rows, seen, head_dim, head_dim, self.causal and not self.window)
        projections = self._projections(len(shapes) == 2, rows, hidden, context=context, features=features)
        products: tuple[Matmul, ...] = (*core_matmuls(core), Matmul("projection", rows, width, query, split="k"))
        scores = self.heads * rows * seen
        if self.relative:
            products = (Matmul("positions", rows, seen, head_dim, groups=self.heads, split="groups", weight=False),
                        *products)  # fmt: skip
        inner_biases = self.biases in ("all", "qkv")
        split = hidden * query + query * width + inner_biases * query + self.buckets * self.heads
        split += (hidden * query if self.relative else 0) + (2 * query if self.relative_biases else 0)
        split += self.heads if self.sinks else 0
        grouped = features * 2 * key + inner_biases * 2 * key
        outer = (width if self.biases in ("all", "projection") else 0) + self._norm_parameters(query, key, head_dim)
        scores_kept, mask = kept_scores(self.dropout, core)
        kept = 2 * (rows * query + 2 * context * key + rows * query)
        kept += 2 * (rows * query + context * key) if self.qk_norm else 0
        return Counts(
            result=(*shapes[0][:-1], width),
            parameters=split + grouped + outer,
            products=(*projections, *products),
            passes=self._passes(core, rows * self.heads + context * kv_heads, scores),
            keeps=("inputs",),
            kept_bytes=kept,
            mixing="own",
            reductions=1,
            attention=None if self.relative else core,
            inner=len(products),
            split_parameters=split,
            pieces_split=self.heads,
            grouped_parameters=grouped,
            kept_core=scores_kept,
            core_fixed=mask,
        )

    def _norm_parameters(self, query: int, key: int, head_dim: int) -> int:
        """Parameters of the norms of queries and keys."""
        columns = query + key if self.qk_norm_whole else 2 * head_dim
        return self.qk_norm_weights * columns if self.qk_norm else 0

    def _projections(self, crosses: bool, rows: int, hidden: int, *, context: int, features: int) -> tuple[Matmul, ...]:
        """Products that make queries, keys and values."""
        head_dim, kv_heads = self.head_dim or hidden // self.heads, self.kv_heads or self.heads
        if not crosses:
            return (
                Matmul("qkv", context, self.heads * head_dim, hidden, split="n", n_groups=kv_heads,
                       n_group_width=2 * head_dim),
            )  # fmt: skip
        return (
            Matmul("query", rows, self.heads * head_dim, hidden, split="n"),
            Matmul("key and value", context, 2 * kv_heads * head_dim, features, split="n",
                   input_gradient=not self.context_is_data),
        )  # fmt: skip

    def _passes(self, core: Attention, heads: int, scores: int) -> tuple[Vector, ...]:
        """Softmax, and what comes before it; heads: vectors of queries and keys, of all rows."""
        found = [softmax(self.dropout, replace(core, causal=False) if self.relative else core)]
        if self.relative:
            # queries for either product; positions' scores joined with a column of zeros and seen in another shape, its
            # gradient put into zeros; both scores summed and scaled, then masked, each gradient masked and scaled
            queries = 2 * core.heads * core.queries * core.head_dim
            found += [
                Vector("query biases", queries, backward_reads=1, backward_writes=0.5, split="tensor"),
                Vector(
                    "relative shift", scores, backward_writes=3, operations=0, backward_operations=0, split="tensor"
                ),
                Vector("scores summed", scores, reads=3, writes=2, backward_writes=2, operations=3, split="tensor"),
            ]
        if self.scores_biased or self.buckets:
            # the bias is the same for all samples; its gradient sums theirs
            found.append(Vector("score bias", scores, backward_reads=1, backward_writes=0, operations=1,
                                backward_operations=1, split="tensor", core=True))  # fmt: skip
        if self.rotary:
            turned = heads * (self.rotary_dim or core.head_dim)
            found.append(Vector("rotary", turned, backward_reads=1, operations=4, split="tensor"))
        if self.qk_norm:
            found.append(Vector("query and key norm", heads * core.head_dim, operations=8, backward_operations=16,
                                split="tensor"))  # fmt: skip
        return tuple(found)


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: keys and values are widened from one narrow vector a token.

    c = norm(x W_down), (K, V) = c W_up, K also gets `rotary_dim` columns that all heads share; queries likewise from
    `query_rank` columns, or straight from x where it is 0.                  [DeepSeek-V2, arXiv 2405.04434, 2.1]
    Training widens keys and values (the absorbed form is for inference), so a head works on head_dim + rotary_dim
    columns of Q and K and on value_dim of V.  Weights of the down projections are copied by tensor ranks, which share
    their work (each for its tokens, or its columns); the narrow vectors are kept before and after their norms.
    head_dim, value_dim, rotary_dim   columns of a head of Q and K, of V (0: head_dim), and the rotary ones beside them
    key_value_rank, query_rank        width of the narrow vectors (query_rank 0: queries straight from x)
    """

    heads: int
    head_dim: int
    key_value_rank: int
    query_rank: int = 0
    rotary_dim: int = 64
    value_dim: int = 0
    causal: bool = True
    dropout: bool = False

    def __post_init__(self) -> None:
        need(
            at_least(1, heads=self.heads, head_dim=self.head_dim, key_value_rank=self.key_value_rank)
            + at_least(0, query_rank=self.query_rank, rotary_dim=self.rotary_dim, value_dim=self.value_dim)
        )

    def counts(self, *shapes: Shape) -> Counts:
        """Down projections are copied by tensor ranks, up projections split by heads."""
        rows, hidden = rows_and_width(shapes)
        value_dim = self.value_dim or self.head_dim
        core = Attention(self.heads, self.heads, rows, rows, self.head_dim + self.rotary_dim, value_dim, self.causal)
        narrow, query, value = self.key_value_rank, self.heads * core.head_dim, self.heads * value_dim
        widened = self.heads * self.head_dim + value
        down = [Matmul("key and value down", rows, narrow + self.rotary_dim, hidden, split="n")]
        up = [Matmul("key and value up", rows, widened, narrow, split="n")]
        copied, split = hidden * (narrow + self.rotary_dim) + narrow, narrow * widened + hidden * value
        if self.query_rank:
            down.append(Matmul("query down", rows, self.query_rank, hidden, split="n"))
            up.append(Matmul("query up", rows, query, self.query_rank, split="n"))
            copied += hidden * self.query_rank + self.query_rank
            split += self.query_rank * query
        else:
            down.append(Matmul("query", rows, query, hidden, split="n"))
            split += hidden * query
        inner = (*up, *core_matmuls(core), Matmul("projection", rows, hidden, value, split="k"))
        normed = narrow + self.query_rank
        scores_kept, mask = kept_scores(self.dropout, core)
        return Counts(
            result=shapes[0],
            parameters=copied + split,
            products=(*down, *inner),
            passes=(
                softmax(self.dropout, core),
                # rotates the rotary columns and joins them with the others, for queries and keys
                Vector("rotary", 2 * rows * query, backward_reads=1, operations=1, backward_operations=1,
                       split="tensor"),
                Vector("latent norm", rows * normed, operations=8, backward_operations=16, split="sequence"),
            ),
            keeps=("inputs",),
            kept_bytes=2 * rows * (2 * query + 2 * value) + 2 * rows * 2 * normed,
            kept_whole=2 * rows * 2 * normed,
            mixing="own",
            reductions=1,
            attention=core,
            inner=len(inner),
            split_parameters=split,
            pieces_split=self.heads,
            kept_core=scores_kept,
            core_fixed=mask,
        )  # fmt: skip


@dataclass(frozen=True)
class FeedForward:
    """Two matrices and an activation between them, or three where it is gated.

    y = W_2 f(W_1 x), gated: y = W_2 (f(W_g x) * W_1 x).
    inner       columns between them;  width: of the result (0: of the input);  dropout: of the inner columns
    Kept: what each of them read.  Tensor split: inner columns.
    """

    inner: int
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    gated: bool = False
    bias: bool = True
    dropout: bool = False
    width: int = 0

    def __post_init__(self) -> None:
        problems = at_least(1, inner=self.inner) + at_least(0, width=self.width)
        if self.activation not in INNER_ACTIVATIONS:
            problems.append(f"activation: found {self.activation!r}, allowed: {', '.join(INNER_ACTIVATIONS)}")
        need(problems)

    def counts(self, *shapes: Shape) -> Counts:
        """The first product split by columns, the second by its inner columns."""
        rows, hidden = rows_and_width(shapes)
        width, matrices = self.width or hidden, 2 if self.gated else 1
        columns = matrices * self.inner
        forward, backward = INNER_ACTIVATIONS[self.activation]
        passes = [
            Vector("activation", self.inner * rows, reads=matrices, writes=1, backward_reads=matrices + 1,
                   backward_writes=matrices, operations=forward, backward_operations=backward, split="tensor",
                   pieces=PIECES.get(self.activation, 1.0))
        ]  # fmt: skip
        kept = 2 * rows * (columns + self.inner)
        dropped = self.inner * rows if self.dropout else 0
        if self.dropout:
            passes.append(Vector("inner dropout", dropped, writes=1.5, backward_reads=1.5, split="tensor", pieces=2.5))
            kept += dropped
        split = hidden * columns + self.inner * width + (columns if self.bias else 0)
        return Counts(
            result=(*shapes[0][:-1], width),
            parameters=split + (width if self.bias else 0),
            products=(
                Matmul("up", rows, columns, hidden, split="n"), Matmul("down", rows, width, self.inner, split="k"),
            ),
            passes=tuple(passes),
            keeps=("inputs",),
            kept_bytes=kept,
            kept_fixed=dropped,
            mixing="own",
            reductions=1,
            inner=1,
            split_parameters=split,
            pieces_split=self.inner,
        )  # fmt: skip


@dataclass(frozen=True)
class AdditiveAttention:
    """Additive attention of queries (t, q) over keys (s, k), which are the values too.

    e_ij = v . tanh(W_q q_i + W_k k_j), context_i = sum_j softmax(e_i)_j k_j     [Bahdanau et al. 2014, arXiv 1409.0473]
    units        width inside;  normalised: v is scaled by a learned number and a bias is added inside tanh
    One tensor core product (the context); the energies are t s units element-wise operations.
    """

    units: int
    normalised: bool = True

    def __post_init__(self) -> None:
        need(at_least(1, units=self.units))

    def counts(self, *shapes: Shape) -> Counts:
        """Energies are kept: sum and tanh of each pair."""
        queries, features = rows_and_width(shapes, 2)
        keys, width = prod(shapes[1][:-1]), shapes[1][-1]
        pairs = queries * keys
        weights = (features + width) * self.units
        return Counts(
            result=(*shapes[0][:-1], width),
            parameters=weights + self.units + (self.units + 1 if self.normalised else 0),
            products=(
                Matmul("query", queries, self.units, features, split="n"),
                Matmul("key", keys, self.units, width, split="n"),
                Matmul("context", queries, width, keys, weight=False),
            ),
            passes=(
                # sum of query and key, bias, tanh: each written; the product with v reads the last
                Vector("energy", pairs * self.units, reads=2 + self.normalised, writes=2 + self.normalised,
                       backward_reads=3, backward_writes=2, operations=8, backward_operations=4, split="tensor"),
                Vector("softmax", pairs, operations=6, backward_operations=4),
            ),
            keeps=("inputs",),
            kept_bytes=2 * pairs * self.units + 2 * pairs + 2 * (queries + keys) * self.units,
            mixing="own",
            reductions=1,
            inner=1,
            split_parameters=weights,
        )  # fmt: skip


@dataclass(frozen=True)
class Gather:
    """Rows picked out of (tokens, features): masked positions, the first token."""

    rows: int

    def __post_init__(self) -> None:
        need(at_least(1, rows=self.rows))

    def counts(self, *shapes: Shape) -> Counts:
        """Each read and written; backward scatters into a zeroed gradient."""
        number, width = rows_and_width(shapes)
        if self.rows > number:
            raise ValueError(f"rows: found {self.rows}, allowed: at most {number} (rows of the input)")
        one = Vector("gather", self.rows * width, backward_reads=1, backward_writes=1 + number / self.rows,
                     operations=0, backward_operations=0)  # fmt: skip
        return Counts((self.rows, width), passes=(one,))
