"""Time of a matrix product on a processor whose cores each work on one output tile at a time (a GPU).

Not here: operands from device memory (memory/tiling.py), launch and sustained efficiency (the caller).
Theory: docs/models/tensor_core.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip

#: (rows, columns, pieces of K) of the kernels a library chooses from: the common tiles of CUTLASS and cuBLAS, and
#: split-K of those that fill a last wave or a chip with few outputs; 0 pieces: as many as fill all cores once.
KERNELS = (
    (256, 128, 1),
    (128, 256, 1),
    (128, 128, 1),
    (128, 64, 1),
    (64, 128, 1),
    (64, 64, 1),
    (128, 128, 2),
    (128, 128, 4),
    (128, 128, 0),
    (64, 64, 0),
)


def matmul_time(
    chip: Chip,
    m: Any,
    n: Any,
    k: Any,
    groups: Any,
    *,
    precision: str,
    rate: Any = None,
    kernels: tuple[tuple[int, int, int], ...] = KERNELS,
    step: float = 16.0,
    feed: float = 64.0,
    latency: float = 1000.0,
    exposed: float = 0.5,
) -> Any:
    """Time [s] of `groups` products (M x K)(K x N) in waves of output tiles at the peak rate; the best tile wins.

    t = min over (tm, tn, s) of  waves (ceil(K / (s step)) cycles_step + epilogue + latency) / clock + exposed stores
    waves       = ceil(ceil(M / tm) ceil(N / tn) groups s / cores)
    cycles_step = max(tm tn step / (MACs a cycle of a core), (tm + tn) step 2 B / feed) / rate;  c cores a tile
                (`Chip.cores_per_tile`) share the wider operand: min(tm, tn) + max(tm, tn) / c
    epilogue    = tm tn 2 B / feed;  with s > 1 partial sums are written and read in fp32: tm tn 8 B / feed
                With two tiles a core (`Chip.tiles_per_core`) epilogue, latency and stores hide behind the next tile,
                all but the last                  [NVIDIA CUTLASS documentation, tcgen05: CTA pairs, tensor memory]
    step        inner depth of one matrix instruction (16 for bf16)
    feed        bytes a cycle from the shared cache to a core: 64 is one port of the A100; the cache as a whole
                gives 5120 B a cycle to 108 cores, 47 each                     [NVIDIA A100 white paper 2020]
    latency     cycles a tile waits for its first operands and a free core.  Assumption, 500 to 2000: two round
                trips to device memory of about 500 cycles         [Abdelkhalik et al. 2022, arXiv 2208.11174]
    exposed     share of the time in which outputs (2 B) are written to device memory that no other tile hides:
                the cores of a wave end their tiles together.  Assumption 0.5, 0 (several tiles a core, as for the
                small tiles of the A100) to 1 (one tile a core at a time, as DeepGEMM on Hopper)
    kernels     (tm, tn, s) to choose from; s pieces of K, 0: max(floor(cores / tiles), 1)
    rate        matrix rate relative to bf16, broadcastable; None: the chip's of `precision`
    Shape: broadcast of chip and sizes; m, n, k, groups >= 1.  More cores are never slower.
    Ignores clock drops under load (sustained efficiency), order of tiles in the cache, and slower kernels for sizes
    that are no multiple of 8 elements (frameworks pad).
    """
    cores = np.maximum(np.floor(chip.cores), 1.0)
    macs = chip.arrays_per_core * chip.array_rows * chip.array_columns
    rate = chip.matmul_rate(precision) if rate is None else rate
    tile_rows = {size: np.ceil(np.asarray(m) / size) * groups for size in {kernel[0] for kernel in kernels}}
    tile_columns = {size: np.ceil(np.asarray(n) / size) for size in {kernel[1] for kernel in kernels}}
    inner = np.asarray(k) / step
    steps = {pieces: np.ceil(inner / pieces) for pieces in {kernel[2] for kernel in kernels} if pieces}
    rated = bool(np.ndim(rate) or rate != 1.0)
    if rated:
        # Rates divide the counts of steps, not those of every kernel.
        steps = {pieces: count / rate for pieces, count in steps.items()}
    aside = chip.tiles_per_core - 1.0  # the share of tiles' ends that other tiles hide
    best: Any = np.inf
    for height, width, pieces in kernels:
        # One instruction step of the tile, in cycles, and what a tile costs beside its steps.
        operands = min(height, width) + max(height, width) / chip.cores_per_tile
        cycles = np.maximum(height * width * step / macs, operands * step * 2.0 / feed)
        once = height * width * (2.0 if pieces == 1 else 8.0) / feed + latency
        # One expression each: NumPy then reuses the temporary arrays.
        tiles = tile_rows[height] * tile_columns[width]
        if pieces:
            waves, count = np.ceil(tiles * pieces / cores), steps[pieces]
        else:
            split = np.maximum(np.floor(cores / tiles), 1.0)
            waves, count = np.ceil(tiles / cores), np.ceil(inner / split)
            count = count / rate if rated else count
        if np.ndim(aside) or aside:
            best = np.minimum(best, waves * (count * cycles + once * (1.0 - aside)) + once * aside)
        else:  # the same bits, fewer operations
            best = np.minimum(best, waves * (count * cycles + once))
    exposed_bytes = 2.0 * exposed * (1.0 - aside)
    return best / chip.clock + np.asarray(m) * n * groups * exposed_bytes / chip.hbm_bandwidth
