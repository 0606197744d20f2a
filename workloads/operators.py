"""What one block computes: matrix products, element-wise passes, and what a tensor axis splits of them.

Sizes are for one sample and the whole model; `shard_*` gives the part of one device.
It does not know any hardware. Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np

Split = Literal["", "n", "k", "groups"]


@dataclass(frozen=True)
class Matmul:
    """`groups` products (m, k) x (k, n) for each sample, 2 m n k groups FLOP forward.

    m, n, k, groups  integers for one sample and the unsplit model
    split            what tensor parallelism divides: output columns `n` (column parallel),
                     the inner dimension `k` (row parallel), `groups` (attention heads) or nothing
    weight           the right operand is a parameter: it gets a weight gradient, and the samples of
                     a micro-batch share it (they multiply m); otherwise they multiply `groups`
    core             part of the attention core, which selective recomputation repeats
    n_groups, n_group_width   further output columns in indivisible groups (key and value heads):
                     a device holds max(n_groups / tensor, 1) of them
    experts          matrices of which each row meets one: m counts routed rows (tokens x experts a token), spread
                     evenly; a weight with groups 1
    window, stride   of a convolution: taps of its kernel (k counts channels x taps) and product of its strides.  Rows
                     of the left operand are windows that overlap: the tensor they are cut from is read, and an input
                     gradient is itself a convolution over input positions (`phase_sizes`)
    winograd         multiplications over those of the Winograd transform that its window allows: 2.25 for 3 x 3 taps of
                     stride 1 (F(2 x 2, 3 x 3): 16 for 36), 1 for others        [Lavin and Gray 2016, arXiv 1509.09308]
    convolution      its operands are images: a layout with channels first is converted around it (`Training.layout`)
    steps            the product runs in as many parts of its rows one after the other (a recurrent layer); its weight
                     gradient is one product
    input_gradient   False: its input is data (or depends on no parameter), and gets no gradient
    repeats          how many times a block runs it, on equal sizes
    """

    name: str
    m: int
    n: int
    k: int
    groups: int = 1
    split: Split = ""
    weight: bool = True
    core: bool = False
    n_groups: int = 0
    n_group_width: int = 0
    experts: int = 0
    window: int = 1
    stride: int = 1
    winograd: float = 1.0
    convolution: bool = False
    steps: int = 1
    input_gradient: bool = True
    repeats: int = 1

    @property
    def flops(self) -> int:
        """Forward FLOP of one sample, exact (a multiply-add is 2)."""
        return 2 * self.m * (self.n + self.n_groups * self.n_group_width) * self.k * self.groups * self.repeats

    @property
    def training_flops(self) -> int:
        """FLOP of one sample forward and backward: three products, two where the input gets no gradient."""
        return (3 if self.input_gradient else 2) * self.flops

    def phase_sizes(self, phase: str, m: Any, n: Any, k: Any) -> tuple[Any, Any, Any, float]:
        """(M, N, K) of the product that `phase` computes for a forward product of (m, n, k), and the part of its left
        operand that is distinct elements.

        forward          (m, n, k)                    w taps, s stride: distinct min(s, w)/w
        input gradient   (m s', k/w, n w/s')          s' = min(s, w): a position meets w/s' taps; distinct 1/w
        weight gradient  (k, n, m)                    distinct min(s, w)/w
        Each is m n k multiply-adds; a product that is no convolution has w = s = 1 and everything distinct.
        """
        reached = float(min(self.stride, self.window))
        distinct = reached / self.window
        if phase == "forward":
            return m, n, k, distinct
        if phase == "input_gradient":
            return m * reached, k / self.window, n * (self.window / reached), 1.0 / self.window
        if phase == "weight_gradient":
            return k, n, m, distinct
        raise ValueError(f"phase: found {phase!r}, allowed: forward, input_gradient, weight_gradient")

    def shard(
        self, tensor: Any, samples: Any, context: Any = 1.0, expert: Any = 1.0, expert_tensor: Any = 1.0
    ) -> tuple[Any, Any, Any, Any]:
        """(m, n, k, groups) on one device for `samples` samples; broadcasts columns.

        tensor, context, expert   degrees; context divides rows (tokens).  A device holds experts / expert experts
        and works for the tokens of all its expert peers; with expert_tensor 0 an expert is whole, and each of the
        tensor ranks brings its part of the tokens.
        """
        tensor = np.asarray(tensor, dtype=float)
        samples = np.asarray(samples, dtype=float)
        context = np.asarray(context, dtype=float)
        if self.experts:
            brought = np.where(np.asarray(expert_tensor) > 0, 1.0, tensor)
            tensor = np.where(np.asarray(expert_tensor) > 0, tensor, 1.0)
        n: Any = np.ceil(self.n / tensor) if self.split == "n" else float(self.n)
        if self.n_groups:
            n = n + np.maximum(np.ceil(self.n_groups / tensor), 1.0) * float(self.n_group_width)
        k: Any = np.ceil(self.k / tensor) if self.split == "k" else float(self.k)
        groups: Any = np.ceil(self.groups / tensor) if self.split == "groups" else float(self.groups)
        if self.experts:
            local = np.maximum(np.ceil(self.experts / np.asarray(expert, dtype=float)), 1.0)
            routed = self.m * samples / (context * brought) * expert
            return np.ceil(routed / (local * expert)), n, k, local
        if self.weight:
            return np.ceil(self.m * samples / context), n, k, groups
        return np.ceil(self.m / context), n, k, groups * samples


@dataclass(frozen=True)
class Vector:
    """An element-wise or row-wise pass: memory traffic and a few operations an element.

    elements   for one sample and the unsplit model
    reads, writes   elements moved forward, per element of the pass (0.5 for a one-byte mask)
    backward_reads, backward_writes   the same for the backward pass
    operations  vector operations an element forward (backward takes `backward_operations`)
    split      "tensor": divided by the tensor degree; "sequence": divided only with sequence parallelism
    core       part of the attention core; a fused attention kernel keeps it on chip
    loss       intermediate results of the loss; a fused cross-entropy kernel keeps them on chip
    steps      the pass runs in as many parts one after the other (a recurrent layer)
    pieces     traffic of a framework that has no fused kernel for it and runs it piece by piece, over that of one
               kernel (`Stack.eager` says whether it does)
    gradient   False: nothing before it needs a gradient, so that it has no backward pass
    fixed, backward_fixed   of the elements read and written, those whose width does not follow the activations': 2 B
               each here, whatever the format (two for an fp32 number or an index of 4 B)
    rows, row_width   rows of a table that the backward pass updates, per element of the pass, and elements of such a
               row: their optimizer state is read and written beside (see `Training.table_optimizer`)
    repeats    how many times a block runs it, on equal sizes
    """

    name: str
    elements: int
    reads: float = 1.0
    writes: float = 1.0
    backward_reads: float = 2.0
    backward_writes: float = 1.0
    operations: float = 1.0
    backward_operations: float = 2.0
    split: Literal["", "tensor", "sequence"] = ""
    core: bool = False
    loss: bool = False
    steps: int = 1
    pieces: float = 1.0
    gradient: bool = True
    repeats: int = 1
    fixed: float = 0.0
    backward_fixed: float = 0.0
    rows: float = 0.0
    row_width: int = 0

    def shard(self, tensor: Any, sequence_parallel: Any, samples: Any) -> Any:
        """Elements of the pass on one device for `samples` samples (a share of one where context splits it)."""
        tensor = np.asarray(tensor, dtype=float)
        samples = np.asarray(samples, dtype=float)
        if self.split == "tensor":
            return self.elements * samples / tensor
        if self.split == "sequence":
            return self.elements * samples / np.where(sequence_parallel, tensor, 1.0)
        return self.elements * samples


@dataclass(frozen=True)
class Attention:
    """Sizes of the attention core of one sample, unsplit: what a fused kernel runs.

    S = Q K^T is heads x (queries, keys) with inner size head_dim; O = P V has value_dim columns.

    heads, key_value_heads   query heads, and heads of keys and values that they share; the tensor degree divides
                             both (a device keeps at least one of the latter)
    queries, keys            rows of Q, of K and V; the context degree divides queries
    head_dim, value_dim      width of a head of Q and K, and of V
    causal                   a query sees no later key: a kernel may skip tiles above the diagonal
    repeats                  how many times a block runs it, on equal sizes
    """

    heads: int
    key_value_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    causal: bool = False
    repeats: int = 1

    @property
    def flops(self) -> int:
        """Forward FLOP of one sample, the full square (nothing is skipped), exact."""
        return 2 * self.heads * self.queries * self.keys * (self.head_dim + self.value_dim) * self.repeats


@dataclass(frozen=True)
class Saved:
    """Bytes a block keeps for its backward pass, for one sample, unsplit, 2-byte activations.

    sequence  divided by the tensor degree only with sequence parallelism (norm inputs, dropout masks)
    tensor    divided by the tensor degree (attention and MLP internals)
    core      divided by the tensor degree; materialised attention only, dropped by selective
              recomputation (scores, softmax, mask)
    statistics  divided by the tensor degree; a fused attention kernel's row statistics (4 B each)
    input     the block's input, kept by full recomputation (divided with sequence parallelism)
    sequence_fixed, tensor_fixed, core_fixed   of the first three, bytes whose width does not follow the activations':
              one-byte masks (dropout, relu), fp32 statistics, probabilities and logits, indices.  Activations of w
              bytes keep (sequence - sequence_fixed) w / 2 + sequence_fixed, and so on; `statistics` are all fixed
    """

    sequence: int
    tensor: int
    core: int
    statistics: int
    input: int
    sequence_fixed: int = 0
    tensor_fixed: int = 0
    core_fixed: int = 0


@dataclass(frozen=True)
class Cell:
    """A piece of a block that holds layers of several kinds: where a pipeline may be cut.

    flops, moved   forward FLOP, and elements read and written, of one sample
    parameters     numbers it trains
    kept, input    bytes it keeps for its backward pass, and those of its input alone, of one sample, 2-byte activations
    boundary       elements a sample that cross to the next cell
    """

    name: str
    flops: int
    moved: int
    parameters: int
    kept: int
    input: int
    boundary: int


@dataclass(frozen=True)
class Block:
    """A class of identical layers: operators, parameters, traffic and what it keeps.

    count        how many of them the network has
    place        which pipeline stages may hold it: "first", "body", "last", or "lead" (layers of another kind
                 before the body, all on the first stage)
    parameters   exact number of one block, of which `parameters_split` are divided by the tensor degree
                 and `parameters_grouped` are divided into `group_count` indivisible groups
    pieces       of `parameters_split`, those in whole pieces (heads, columns, rows of a table): (pieces, parameters),
                 ...; a device holds ceil(pieces / tensor) of each, and its part of the others
    reductions   forward all-reduces over the tensor axis (the backward pass has as many),
                 each of `boundary` elements a sample
    boundary     elements a sample that the block passes on
    kernels      device kernels one forward pass launches (an eager framework issues each from the host)
    shared_parameters   of `parameters`, those that are the same tensor as another block's (a tied head), and
                 shared_pieces the whole pieces that it is split into (0: any)
    recomputed   full recomputation repeats its forward pass (embedding and head never are)
    parameters_expert   of `parameters`, those of routed experts: divided by the expert degree, not among
                 `parameters_split` (all of them are divided by the tensor degree where experts are)
    expert_count, experts_per_token   experts that hold them, and of how many of those a token meets
    sparse       its experts are tables of which a sample reads a few rows: those rows are updated where they are read
                 (in the passes), so that no gradient of them is kept or reduced; any expert degree up to
                 `expert_count` pieces
    table_rows   rows of its sparse tables; whole_rows: False where pieces are columns, so that every device has a part
                 of every row
    touched      elements of rows of sparse tables that a sample updates: devices with copies of a piece exchange them
    routed       elements a sample sent to experts by each of the two all-to-alls forward (the backward pass has
                 as many): tokens x experts a token x hidden
    context_exchange   elements a sample of keys and values that context ranks show each other; divided by the
                 tensor degree as the indivisible groups of `group_count` are
    causal       its attention is causal: a fused kernel may skip masked tiles (FLOP count the full square)
    attention    sizes of its attention core, None without one, several where they differ; equal to those of its core
                 operators
    cells        of a body of layers of several kinds: they run in this order, count is 1, and pipeline stages hold
                 some of them each
    exchanged    elements a sample of one reduction where that is not `boundary` (0: it is)
    """

    name: str
    count: int
    place: Literal["first", "lead", "body", "last"]
    matmuls: tuple[Matmul, ...]
    vectors: tuple[Vector, ...]
    parameters: int
    parameters_split: int
    reductions: int
    boundary: int
    saved: Saved
    kernels: int
    parameters_grouped: int = 0
    group_count: int = 1
    shared_parameters: int = 0
    recomputed: bool = True
    parameters_expert: int = 0
    expert_count: int = 1
    experts_per_token: int = 1
    sparse: bool = False
    touched: int = 0
    table_rows: int = 0
    whole_rows: bool = True
    routed: int = 0
    context_exchange: int = 0
    causal: bool = False
    attention: Attention | tuple[Attention, ...] | None = None
    cells: tuple[Cell, ...] = ()
    exchanged: int = 0
    pieces: tuple[tuple[int, int], ...] = ()
    shared_pieces: int = 0

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """Sizes of its attention cores."""
        if self.attention is None:
            return ()
        return self.attention if isinstance(self.attention, tuple) else (self.attention,)

    @property
    def moved(self) -> int:
        """Elements read and written forward of one sample, but for weights: the samples of a micro-batch share them."""
        products = sum(
            one.repeats * one.groups * (
                one.m * one.k * min(one.stride, one.window) / one.window
                + one.m * (one.n + one.n_groups * one.n_group_width) + (0 if one.weight else one.k * one.n)
            )
            for one in self.matmuls
        )  # fmt: skip
        passes = sum(one.elements * one.repeats * (one.reads + one.writes) for one in self.vectors)
        return ceil(products + passes)

    @property
    def layers(self) -> int:
        """How many layers pipeline stages may divide."""
        return self.count * max(len(self.cells), 1)

    @property
    def flops(self) -> int:
        """Forward FLOP of the matrix products of one block and one sample, exact."""
        return sum(matmul.flops for matmul in self.matmuls)

    @property
    def training_flops(self) -> int:
        """FLOP of its matrix products forward and backward, one block and one sample, exact."""
        return sum(matmul.training_flops for matmul in self.matmuls)

    @property
    def core_flops(self) -> int:
        """The part of `flops` that is the attention core."""
        return sum(matmul.flops for matmul in self.matmuls if matmul.core)

    @property
    def masked_flops(self) -> int:
        """The part of `flops` above the diagonal of causal attention, half its square: a fused kernel skips it."""
        return sum(core.flops // 2 for core in self.attentions if core.causal)

    def parameters_per_device(self, tensor: Any, expert: Any = 1.0, expert_tensor: Any = 1.0) -> Any:
        """Parameters of one block on one device: dense ones and its experts'."""
        dense = self.dense_parameters(tensor)
        if not self.parameters_expert:
            return dense
        return dense + self.expert_parameters(tensor, expert, expert_tensor)

    def dense_parameters(self, tensor: Any) -> Any:
        """Parameters of one block outside its routed experts on one device of the tensor axis."""
        tensor = np.asarray(tensor, dtype=float)
        whole = self.parameters - self.parameters_split - self.parameters_grouped - self.parameters_expert
        grouped: Any = 0.0
        if self.parameters_grouped:
            width = self.parameters_grouped / self.group_count
            grouped = np.maximum(np.ceil(self.group_count / tensor), 1.0) * width
        uneven = self.parameters_split - sum(parameters for _, parameters in self.pieces)
        split: Any = uneven / tensor
        for pieces, parameters in self.pieces:
            split = split + np.ceil(pieces / tensor) * (parameters / pieces)
        return whole + split + grouped

    def shared_on_device(self, tensor: Any) -> Any:
        """Of the parameters of one block on one device, those that are the same tensor as another block's."""
        tensor = np.asarray(tensor, dtype=float)
        if not self.shared_pieces:
            return self.shared_parameters / tensor
        return np.ceil(self.shared_pieces / tensor) * (self.shared_parameters / self.shared_pieces)

    def expert_parameters(self, tensor: Any, expert: Any, expert_tensor: Any) -> Any:
        """Parameters of the routed experts of one block on one device."""
        split = np.where(np.asarray(expert_tensor) > 0, np.asarray(tensor, dtype=float), 1.0)
        held = np.maximum(np.ceil(self.expert_count / np.asarray(expert, dtype=float)), 1.0)
        return held * (self.parameters_expert / self.expert_count) / split

    def rows_on_device(self, expert: Any) -> Any:
        """Rows of its sparse tables of which one device has all or a part."""
        if not self.whole_rows:
            return self.table_rows + 0.0 * np.asarray(expert, dtype=float)
        held = np.maximum(np.ceil(self.expert_count / np.asarray(expert, dtype=float)), 1.0)
        return held * (self.table_rows / self.expert_count)
