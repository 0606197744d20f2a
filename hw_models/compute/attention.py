"""Time and memory traffic of a fused attention kernel, which never writes the scores to device memory.

Not here: sustained efficiency and launch (the caller), attention that writes its scores (plain products and passes).
Theory: docs/models/attention.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.compute import systolic


def attention_time(
    chip: Chip,
    queries: Any,
    keys: Any,
    groups: Any,
    head_dim: Any,
    *,
    causal: bool,
    backward: bool,
    rate: Any = 1.0,
    overlaps_softmax: bool = False,
) -> Any:
    """Time [s] of `groups` heads of attention (queries x keys scores of width head_dim) at the chip's peak.

    queries, keys     sequence positions of one head; causal kernels skip tiles that are masked whole
    groups            batch x heads
    backward          five products a score tile (two forward), and the small kernels around them
    rate              matrix rate relative to bf16
    overlaps_softmax  products of one tile run while the softmax of another does (ping-pong scheduling); otherwise
                      only what the thread scheduler hides by chance
    Shape: broadcast of chip and sizes; all sizes >= 1; causal with fewer queries than keys
    is a context rank's fair share, an early and a late piece of the queries: half of its scores are seen.
    """
    model = systolic_attention if chip.compute == "systolic" else tiled_attention
    time = model(
        chip, queries, keys, groups, head_dim, causal=causal, backward=backward, rate=rate,
        overlaps_softmax=overlaps_softmax,
    )  # fmt: skip
    return time + around_backward(queries, groups, head_dim) / chip.hbm_bandwidth if backward else time


def tiled_attention(
    chip: Chip,
    queries: Any,
    keys: Any,
    groups: Any,
    head_dim: Any,
    *,
    causal: bool,
    backward: bool,
    rate: Any,
    overlaps_softmax: bool,
    hidden: float = 0.5,
    tile: float = 128.0,
    step: float = 32.0,
    local_feed: float = 128.0,
    feed: float = 64.0,
    latency: float = 1000.0,
) -> Any:
    """Time [s] on cores that each walk one tile of queries (backward: of keys) along the other axis.

    t = (a + b - hidden min(a, b) + starts) / clock,   a matrix cycles, b softmax cycles, both in waves over the cores
    scores      of a core: waves x tile x walked positions.  Causal: the mean walk is half as long and half a tile
                more, cores take the next tile when they are free, and the last tile is on average half done
    a           scores x (2 or 5) head_dim / MACs a cycle of a core, head_dim rounded up to `step`
    b           scores / special + lane operations over all lanes: 4 a score forward (scale, maximum, sum, conversion),
                6 backward; backward also exchanges probabilities and their gradients through local SRAM (8 B a score)
                and adds fp32 query gradients in shared SRAM (4 B x head_dim / tile a score)
    hidden      share of the shorter of a and b that the longer hides.  Assumption for plain kernels 0.5, range 0 to 1.
                Kernels that overlap by design hide all of it on cores that hold two output tiles
                (`Chip.tiles_per_core`): one is multiplied while the softmax of the other runs
    tile        positions of a tile: 128 in FlashAttention-2 and -3           [Dao 2023, arXiv 2307.08691; their code]
    step        widths of a head that kernels are built for                  [flash-attention repository, 32 apart]
    special     exponentials a cycle of a core, `Chip.exponentials_per_core`: 16 on compute capability 8.0 to 10.0
                                                                                       [CUDA C programming guide]
    local_feed  bytes a cycle of local SRAM, feed of shared SRAM to a core    [NVIDIA A100 white paper 2020]
    latency     cycles until the first operands of a tile are there.  Assumption, 500 to 2000
    Ignores splitting of the keys of one query tile over cores (decoding), and clock drops under load.
    """
    cores = np.maximum(np.floor(chip.cores), 1.0)
    macs = chip.arrays_per_core * chip.array_rows * chip.array_columns
    width = np.ceil(np.asarray(head_dim) / step) * step
    kept, walked = (keys, queries) if backward else (queries, keys)
    units = np.ceil(np.asarray(kept) / tile) * groups
    full = np.ceil(np.asarray(walked) / tile) * tile
    waves = np.ceil(units / cores)
    walk = waves * full
    mean = full
    if causal:
        mean = full - np.maximum(walked - tile, 0.0) / 2.0
        walk = np.minimum(walk, np.maximum(units / cores * mean + full / 2.0, full))
    scores = walk * tile
    products, operations = (5.0, 6.0) if backward else (2.0, 4.0)
    matrix = scores * (products * width / (macs * rate))
    softmax = scores / chip.exponentials_per_core + units * mean * (tile * operations) / chip.vector_lanes
    if backward:
        softmax = softmax + scores * (8.0 / local_feed + 4.0 * width / (tile * feed))
    share = _hidden(hidden, backward, overlaps_softmax)
    if overlaps_softmax:
        share = share + (1.0 - share) * (chip.tiles_per_core - 1.0)
    cycles = matrix + softmax - share * np.minimum(matrix, softmax)
    time = (cycles + waves * latency) / chip.clock
    if overlaps_softmax:
        return time
    # A core waits for its own tile (queries in, outputs out; backward keys, values and their gradients).
    own = kept * groups * width * ((4.0 if backward else 2.0) * 2.0)
    return time + own / chip.hbm_bandwidth


def systolic_attention(
    chip: Chip,
    queries: Any,
    keys: Any,
    groups: Any,
    head_dim: Any,
    *,
    causal: bool,
    backward: bool,
    rate: Any,
    overlaps_softmax: bool,
    hidden: float = 0.5,
    exponential: float = 4.0,
) -> Any:
    """Time [s] on systolic arrays: the products one after the other, softmax on the vector lanes beside them.

    Scores (queries, keys, head_dim) and outputs (queries, head_dim, keys); backward scores and their gradients, and
    the gradients of queries (queries, head_dim, keys), keys and values (keys, head_dim, queries).  A head narrower
    than the array leaves rows or columns idle (`systolic.matmul_time`).  Causal: arrays skip blocks of their own
    height that are masked whole.
    exponential   lane operations of one exponential.  Assumption, 1 (a transcendental unit) to 10 (a polynomial)
    """

    def time(m: Any, n: Any, k: Any) -> Any:
        return systolic.matmul_time(chip, m, n, k, groups, precision="bf16", rate=rate)

    outputs = time(queries, head_dim, keys)
    matrix = time(queries, keys, head_dim)
    if backward:
        matrix = 2.0 * matrix + 2.0 * time(keys, head_dim, queries)
    matrix = matrix + outputs
    walked = np.asarray(keys, dtype=float)
    if causal:
        walked = keys - np.maximum(keys - chip.array_rows, 0.0) / 2.0
        matrix = matrix * (walked / keys)
    operations = exponential + (6.0 if backward else 4.0)
    softmax = groups * queries * walked * operations / (chip.vector_lanes * chip.clock)
    return matrix + softmax - _hidden(hidden, backward, overlaps_softmax) * np.minimum(matrix, softmax)


def _hidden(hidden: float, backward: bool, overlaps_softmax: bool) -> float:
    """Share of the shorter of products and softmax that the longer hides.

    By chance `hidden` forward, and nothing backward: its blocks wait for each other between phases.  By design half
    of the rest besides.
    """
    by_chance = 0.0 if backward else hidden
    return 1.0 - (1.0 - by_chance) / 2.0 if overlaps_softmax else by_chance


def around_backward(queries: Any, groups: Any, head_dim: Any, element_bytes: float = 2.0) -> Any:
    """Bytes of the kernels before and after a backward kernel, which nothing hides.

    Before it, output and its gradient are read for their row sums, and fp32 query gradients are set to zero; after
    it, these are read and converted.  [Dao 2023, arXiv 2307.08691, algorithm 2; flash-attention repository]
    """
    return groups * queries * head_dim * (3.0 * element_bytes + 8.0)


def attention_traffic(
    queries: Any,
    keys: Any,
    groups: Any,
    head_dim: Any,
    *,
    key_value_share: Any,
    backward: bool,
    element_bytes: Any,
) -> Any:
    """Bytes between HBM and chip: each operand in once, each result out once.

    forward    q, k, v in, o out
    backward   q, k, v and the output's gradient in, gradients of k and v out, of q in fp32; and `around_backward`
    key_value_share   heads of keys and values over heads of queries
    Ignores tiles of keys and values that a later query tile reads again from HBM: those of the heads in flight stay
    in shared SRAM.
    """
    if not backward:
        return groups * head_dim * element_bytes * (2.0 * queries + 2.0 * key_value_share * keys)
    once = groups * head_dim * (queries * (2.0 * element_bytes + 4.0) + 4.0 * element_bytes * key_value_share * keys)
    return once + around_backward(queries, groups, head_dim, element_bytes)
