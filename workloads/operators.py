"""What one block computes: matrix products, element-wise passes, and what a tensor axis splits of them.

Sizes are for one sample and the whole model; `shard_*` gives the part of one device.
It does not know any hardware. Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    resident         the operand ("a" left, "b" right, "c" result) that a fused attention kernel keeps on chip
    n_groups, n_group_width   further output columns in indivisible groups (key and value heads):
                     a device holds max(n_groups / tensor, 1) of them
    """

    name: str
    m: int
    n: int
    k: int
    groups: int = 1
    split: Split = ""
    weight: bool = True
    core: bool = False
    resident: Literal["", "a", "b", "c"] = ""
    n_groups: int = 0
    n_group_width: int = 0

    @property
    def flops(self) -> int:
        """Forward FLOP of one sample, exact (a multiply-add is 2)."""
        return 2 * self.m * (self.n + self.n_groups * self.n_group_width) * self.k * self.groups

    def shard(self, tensor: Any, samples: Any) -> tuple[Any, Any, Any, Any]:
        """(m, n, k, groups) on one of `tensor` devices for `samples` samples; broadcasts columns."""
        tensor = np.asarray(tensor, dtype=float)
        samples = np.asarray(samples, dtype=float)
        n: Any = np.ceil(self.n / tensor) if self.split == "n" else float(self.n)
        if self.n_groups:
            n = n + np.maximum(np.ceil(self.n_groups / tensor), 1.0) * float(self.n_group_width)
        k: Any = np.ceil(self.k / tensor) if self.split == "k" else float(self.k)
        groups: Any = np.ceil(self.groups / tensor) if self.split == "groups" else float(self.groups)
        if self.weight:
            return self.m * samples, n, k, groups
        return float(self.m), n, k, groups * samples


@dataclass(frozen=True)
class Vector:
    """An element-wise or row-wise pass: memory traffic and a few operations an element.

    elements   for one sample and the unsplit model
    reads, writes   elements moved forward, per element of the pass (0.5 for a one-byte mask)
    backward_reads, backward_writes   the same for the backward pass
    operations  vector operations an element forward (backward takes `backward_operations`)
    split      "tensor": divided by the tensor degree; "sequence": divided only with sequence parallelism
    core       part of the attention core; a fused attention kernel keeps it on chip
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

    def shard(self, tensor: Any, sequence_parallel: Any, samples: Any) -> Any:
        """Elements of the pass on one device for `samples` samples."""
        tensor = np.asarray(tensor, dtype=float)
        samples = np.asarray(samples, dtype=float)
        if self.split == "tensor":
            return self.elements * samples / tensor
        if self.split == "sequence":
            return self.elements * samples / np.where(sequence_parallel, tensor, 1.0)
        return self.elements * samples


@dataclass(frozen=True)
class Saved:
    """Bytes a block keeps for its backward pass, for one sample, unsplit, 2-byte activations.

    sequence  divided by the tensor degree only with sequence parallelism (norm inputs, dropout masks)
    tensor    divided by the tensor degree (attention and MLP internals)
    core      divided by the tensor degree; materialised attention only, dropped by selective
              recomputation (scores, softmax, mask)
    statistics  divided by the tensor degree; a fused attention kernel's row statistics (4 B each)
    input     the block's input, kept by full recomputation (divided with sequence parallelism)
    """

    sequence: int
    tensor: int
    core: int
    statistics: int
    input: int


@dataclass(frozen=True)
class Block:
    """A class of identical layers: operators, parameters, traffic and what it keeps.

    count        how many of them the network has
    place        "first", "body" or "last": which pipeline stages may hold it
    parameters   exact number of one block, of which `parameters_split` are divided by the tensor degree
                 and `parameters_grouped` are divided into `group_count` indivisible groups
    reductions   forward all-reduces over the tensor axis (the backward pass has as many),
                 each of `boundary` elements a sample
    boundary     elements a sample that the block passes on
    kernels      device kernels one forward pass launches (an eager framework issues each from the host)
    shared_parameters   of `parameters`, those that are the same tensor as another block's (a tied head)
    recomputed   full recomputation repeats its forward pass (embedding and head never are)
    """

    name: str
    count: int
    place: Literal["first", "body", "last"]
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

    @property
    def flops(self) -> int:
        """Forward FLOP of the matrix products of one block and one sample, exact."""
        return sum(matmul.flops for matmul in self.matmuls)

    @property
    def core_flops(self) -> int:
        """The part of `flops` that is the attention core."""
        return sum(matmul.flops for matmul in self.matmuls if matmul.core)

    def parameters_per_device(self, tensor: Any) -> Any:
        """Parameters of one block on one device of the tensor axis."""
        tensor = np.asarray(tensor, dtype=float)
        whole = self.parameters - self.parameters_split - self.parameters_grouped
        grouped: Any = 0.0
        if self.parameters_grouped:
            width = self.parameters_grouped / self.group_count
            grouped = np.maximum(np.ceil(self.group_count / tensor), 1.0) * width
        return whole + self.parameters_split / tensor + grouped
