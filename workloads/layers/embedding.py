"""Tables of rows that are looked up: token embeddings, positions, embedding bags of recommendation models.

A look-up is memory traffic, never a matrix product.  Theory: docs/models/recommendation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from workloads.graph import Counts, Shape
from workloads.layers.attention import rows_and_width
from workloads.layers.checks import at_least, need, one_shape
from workloads.operators import Matmul, Vector


@dataclass(frozen=True)
class Embedding:
    """A row of a table for each index: (tokens,) -> (tokens, width).

    Backward adds the gradient into the fp32 rows of the table.  Tensor split: rows of the table, the parts summed.
    A head that uses the same table: graph.add(Linear(rows, bias=False), x, shares=embedding).
    """

    rows: int
    width: int

    def __post_init__(self) -> None:
        need(at_least(1, rows=self.rows, width=self.width))

    def counts(self, *shapes: Shape) -> Counts:
        """As many rows as indices, read and written."""
        shape = one_shape(shapes)
        table = self.rows * self.width
        one = Vector("look-up", prod(shape) * self.width, reads=1, writes=1, backward_reads=3, backward_writes=2,
                     split="sequence")  # fmt: skip
        # beside it: ids of a rank's rows, or their mask
        return Counts(
            (*shape, self.width), table, passes=(one,), mixing="own", reductions=1, split_parameters=table,
            pieces_split=self.rows, kernels=1, looks_up=True,
        )


@dataclass(frozen=True)
class Positions:
    """A trained row a position, added to (tokens, width).

    rows    of the table: the most tokens
    kinds   each token has one of the rows instead (sentence types), so that tokens may be more
    """

    rows: int
    kinds: bool = False

    def __post_init__(self) -> None:
        need(at_least(1, rows=self.rows))

    def counts(self, *shapes: Shape) -> Counts:
        """The gradient of the table is that of the sum, added up over samples."""
        number, width = rows_and_width(shapes)
        if number > self.rows and not self.kinds:
            raise ValueError(f"input: found {number} tokens, allowed: at most {self.rows} (rows of the table)")
        return Counts(shapes[0], self.rows * width, passes=(Vector("positions", number * width),))


@dataclass(frozen=True)
class ClassToken:
    """A trained row before all others: (tokens, width) -> (tokens + 1, width)."""

    def counts(self, *shapes: Shape) -> Counts:
        """A copy."""
        number, width = rows_and_width(shapes)
        one = Vector("class token", (number + 1) * width, backward_reads=1, operations=0, backward_operations=0)
        return Counts((number + 1, width), width, passes=(one,))


@dataclass(frozen=True)
class AddToPositions:
    """One number a channel added at all positions: (channels, ...) and (channels,), e.g. a time embedding."""

    def counts(self, *shapes: Shape) -> Counts:
        """Backward sums over positions."""
        if len(shapes) != 2 or shapes[1] != shapes[0][:1]:
            raise ValueError(
                f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: (channels, ...) and (channels,)"
            )
        one = Vector("add to positions", prod(shapes[0]), backward_reads=1, backward_writes=0, backward_operations=1)
        return Counts(shapes[0], passes=(one,), mixing="channels")


@dataclass(frozen=True)
class Bias:
    """A trained number a feature (last axis), added where the product before is written."""

    def counts(self, *shapes: Shape) -> Counts:
        """Its gradient sums the gradient of the result."""
        shape = one_shape(shapes)
        one = Vector("bias", prod(shape), reads=0, writes=0, backward_reads=1, backward_writes=0, operations=1,
                     backward_operations=1)  # fmt: skip
        return Counts(shape, shape[-1], passes=(one,), mixing="channels")


@dataclass(frozen=True)
class EmbeddingBags:
    """Tables of embeddings, each pooled over its indices of a sample: (indices of all tables,) -> (tables, width).

    rows       of each table
    lookups    indices a sample of each table: one number for all, or one a table (multi-hot)
    spread     "" (every device holds every table), "table" (whole tables on devices of the data axis), "row" or
               "column" (each table over all of them)
    Rows are fp32.  Forward reads lookups rows and writes one a table; backward reads the gradient of the pooled row,
    and reads and writes every row that was read (the update) with its optimizer state (`Training.table_optimizer`).
    Spread tables exchange pooled vectors of tables x width elements a sample by an all-to-all forward and one backward;
    indices are left out (4 B each).  Row-wise, each device sums the rows that it holds: a reduce-scatter of the same
    number of elements.
    Source: Naumov et al. 2019, arXiv 1906.00091; Mudigere et al. 2021, arXiv 2104.05158, section 4 (sharding).
    """

    rows: tuple[int, ...]
    width: int
    lookups: int | tuple[int, ...] = 1
    spread: Literal["", "table", "row", "column"] = "table"

    def __post_init__(self) -> None:
        problems = at_least(1, rows=self.rows, width=self.width, lookups=self.lookups)
        if self.spread not in ("", "table", "row", "column"):
            problems.append(f"spread: found {self.spread!r}, allowed: '', table, row, column")
        if isinstance(self.lookups, tuple) and len(self.lookups) != len(self.rows):
            problems.append(f"lookups: found {len(self.lookups)} numbers, allowed: 1 or {len(self.rows)} (one a table)")
        need(problems)

    @property
    def indices(self) -> int:
        """Indices a sample."""
        return sum(self.lookups) if isinstance(self.lookups, tuple) else self.lookups * len(self.rows)

    def counts(self, *shapes: Shape) -> Counts:
        """Rows read a row written."""
        shape = one_shape(shapes)
        if prod(shape) != self.indices:
            raise ValueError(f"input: found shape {shape}, allowed: ({self.indices},), the indices a sample")
        tables = len(self.rows)
        pooled = tables * self.width
        share = self.indices / tables
        # fp32 rows are two elements of 2 B each; backward: the pooled gradient is read, rows are read and written
        one = Vector("embedding bags", pooled, reads=2 * share, writes=1, backward_reads=1 + 2 * share,
                     backward_writes=2 * share, operations=share, backward_operations=share, fixed=2 * share,
                     backward_fixed=4 * share, rows=share / self.width, row_width=self.width)  # fmt: skip
        table = sum(self.rows) * self.width
        return Counts(
            (tables, self.width), table, passes=(one,), mixing="own", exchanged=pooled if self.spread else 0,
            row_parameters=table, touched=self.indices * self.width, rows=sum(self.rows),
            whole_rows=self.spread != "column",
            pieces={"": 1, "table": tables, "row": sum(self.rows), "column": self.width}[self.spread],
        )  # fmt: skip


@dataclass(frozen=True)
class Interaction:
    """Dot products of all pairs of vectors, after the dense one itself: the interaction of DLRM.

    Inputs: dense (width,) and tables (n, width).  With T the (n + 1, width) matrix of both: the lower triangle of T T^T
    without its diagonal, joined to the dense vector: width + n (n + 1) / 2 numbers, padded to a multiple of `multiple`.
    The whole square is computed.                                        [Naumov et al. 2019, arXiv 1906.00091]
    """

    multiple: int = 1

    def __post_init__(self) -> None:
        need(at_least(1, multiple=self.multiple))

    def counts(self, *shapes: Shape) -> Counts:
        """One small product a sample; backward has two."""
        if len(shapes) != 2 or len(shapes[1]) != 2 or shapes[0] != shapes[1][1:]:
            raise ValueError(
                f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: (width,) and (tables, width)"
            )
        tables, width = shapes[1]
        pairs = tables * (tables + 1) // 2
        result = -(-(width + pairs) // self.multiple) * self.multiple
        number = tables + 1
        return Counts(
            (result,),
            products=(Matmul("interaction", number, number, width, weight=False),),
            # the triangle is read out of the square and joined to the dense vector; both inputs are copied side by side
            passes=(
                Vector("join", number * width, backward_reads=1, operations=0, backward_operations=0),
                Vector("triangle", result, reads=(width + pairs) / result, backward_reads=1,
                       backward_writes=(width + number * number) / result, operations=0, backward_operations=0),
            ),
            keeps=("inputs",),
            kept_bytes=2 * number * width,
        )  # fmt: skip


@dataclass(frozen=True)
class Cross:
    """A cross layer of low rank: x' = x0 * (U V x + b) + x.         [Wang et al. 2020, arXiv 2008.13535, eq. 1 and 3]

    Inputs: x0 and x, both (width,).  rank 0: a full matrix.  Tensor split: V by its columns, U by its inner size.
    """

    rank: int = 0

    def __post_init__(self) -> None:
        need(at_least(0, rank=self.rank))

    def counts(self, *shapes: Shape) -> Counts:
        """One or two products and a gated sum."""
        if len(shapes) != 2 or shapes[0] != shapes[1]:
            raise ValueError(f"inputs: found shapes {', '.join(map(str, shapes))}, allowed: two equal ones (x0, x)")
        *rest, width = shapes[0]
        rows = prod(rest)
        inner = self.rank or width
        last = Matmul("cross up", rows, width, inner, split="k" if self.rank else "")
        down = (Matmul("cross down", rows, self.rank, width, split="n"),) if self.rank else ()
        return Counts(
            shapes[0],
            sum(one.n * one.k for one in (*down, last)) + width,
            products=(*down, last),
            passes=(Vector("cross", rows * width, reads=3, writes=1, backward_reads=4, backward_writes=3, operations=3,
                           backward_operations=5),),
            keeps=("inputs",),
            kept_bytes=2 * rows * (width + self.rank),
            mixing="own",
            reductions=1 if self.rank else 0,
            inner=1 if self.rank else 0,
        )  # fmt: skip


def _clusters(vocabulary: int, cutoffs: tuple[int, ...], width: int, divide: int) -> list[tuple[int, int]]:
    """Words and columns of each cluster, the head first."""
    edges = (0, *cutoffs, vocabulary)
    return [
        (end - start, max(width // divide**at, 1))
        for at, (start, end) in enumerate(zip(edges, edges[1:], strict=False))
    ]


def _bad_clusters(vocabulary: int, cutoffs: tuple[int, ...], shares: tuple[float, ...], divide: int) -> list[str]:
    """Faults of a vocabulary that is cut into clusters."""
    problems = at_least(1, vocabulary=vocabulary, cutoffs=cutoffs, divide=divide)
    if not problems and any(a >= b for a, b in zip(cutoffs, (*cutoffs[1:], vocabulary), strict=True)):
        problems.append(f"cutoffs: found {cutoffs}, allowed: rising, below {vocabulary} (vocabulary)")
    if len(shares) != len(cutoffs) or any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1:
        problems.append(
            f"shares: found {shares}, allowed: {len(cutoffs)} numbers 0..1 (one a tail), 1 at most together"
        )
    return problems


@dataclass(frozen=True)
class AdaptiveEmbedding:
    """A table whose rarer words have narrower rows, widened by a matrix a cluster: (tokens,) -> (tokens, width).

    Cluster i has width / divide^i columns; divide 1: one table, no matrices.
    vocabulary, cutoffs   words, and where tails begin;  shares: the parts of tokens in each tail (data)
    Source: Baevski & Auli 2018, arXiv 1809.10853; Dai et al. 2019, arXiv 1901.02860.
    """

    vocabulary: int
    width: int
    cutoffs: tuple[int, ...]
    shares: tuple[float, ...]
    divide: int = 1

    def __post_init__(self) -> None:
        need(at_least(1, width=self.width) + _bad_clusters(self.vocabulary, self.cutoffs, self.shares, self.divide))

    def counts(self, *shapes: Shape) -> Counts:
        """Rows are gathered by cluster and widened."""
        tokens = prod(one_shape(shapes))
        clusters = _clusters(self.vocabulary, self.cutoffs, self.width, self.divide)
        if self.divide == 1:
            return Embedding(self.vocabulary, self.width).counts(*shapes)
        parts = (1.0 - sum(self.shares), *self.shares)
        rows = [round(tokens * part) for part in parts]
        products = tuple(
            Matmul("widen", number, self.width, columns)
            for number, (_, columns) in zip(rows, clusters, strict=True)
            if number
        )
        gathered = sum(number * columns for number, (_, columns) in zip(rows, clusters, strict=True))
        return Counts(
            (*shapes[0], self.width),
            sum(words * columns + self.width * columns for words, columns in clusters),
            products=products,
            passes=(Vector("look-up", gathered, backward_reads=3, backward_writes=2),),
            kept_bytes=2 * gathered,
            mixing="own",
            inner=len(products),
            looks_up=True,
        )


@dataclass(frozen=True)
class AdaptiveSoftmax:
    """Cross-entropy over a vocabulary cut into a head and tails of rarer words: (tokens, hidden) -> (tokens,).

    The head's logits are its words and one a tail; a token whose word is in a tail computes that tail's logits too,
    from hidden / divide^i columns.  Rows of words and the matrices of tails are the embedding's (tied): trained here
    are biases, rows of tails in the head and, with narrower tails, the head's matrix (hidden, hidden).
    vocabulary, cutoffs, shares   as of `AdaptiveEmbedding`
    Source: Grave et al. 2017, arXiv 1609.04309; Dai et al. 2019, arXiv 1901.02860.
    """

    vocabulary: int
    cutoffs: tuple[int, ...]
    shares: tuple[float, ...]
    divide: int = 1

    def __post_init__(self) -> None:
        need(_bad_clusters(self.vocabulary, self.cutoffs, self.shares, self.divide))

    def counts(self, *shapes: Shape) -> Counts:
        """One product for the head, one for the tokens of each tail, after those that narrow."""
        tokens, hidden = rows_and_width(shapes)
        (words, _), *tails = _clusters(self.vocabulary, self.cutoffs, hidden, self.divide)
        head = words + len(tails)
        narrowed = [Matmul("head projection", tokens, hidden, hidden)] if self.divide > 1 else []
        products = [Matmul("head", tokens, head, hidden, split="n")]
        logits = tokens * head
        for (size, columns), share in zip(tails, self.shares, strict=True):
            rows = round(tokens * share)
            if not rows:
                continue
            if self.divide > 1:
                narrowed.append(Matmul("tail projection", rows, columns, hidden))
            products.append(Matmul("tail", rows, size, columns, split="n"))
            logits += rows * size
        return Counts(
            (tokens,),
            len(tails) * (hidden + 1) + self.vocabulary + (hidden * hidden if self.divide > 1 else 0),
            products=(*narrowed, *products),
            passes=(
                Vector("adaptive softmax", logits, reads=2, writes=2, backward_reads=2, backward_writes=1, operations=8,
                       backward_operations=4, split="tensor"),
                # rows of the head are picked by cluster; their gradients are put into zeros and added up
                Vector("rows by cluster", tokens * head, backward_reads=4, backward_writes=4, operations=0,
                       backward_operations=2, split="tensor"),
            ),
            keeps=("inputs",),
            # fp32 probabilities
            kept_bytes=4 * logits + 2 * sum(one.m * one.n for one in narrowed),
            kept_fixed=4 * logits,
            mixing="own",
            inner=len(products) if narrowed else 0,
        )  # fmt: skip
