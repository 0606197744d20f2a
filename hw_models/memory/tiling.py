"""Bytes a blocked matrix product moves between a memory and the one outside it.

Not here: time (bytes over bandwidth, by the caller) and which bytes other operators leave on chip.
Theory: docs/models/tiling.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def compulsory_traffic(m: Any, n: Any, k: Any, groups: Any, *, operand_bytes: Any, output_bytes: Any) -> Any:
    """Bytes that move however large the buffer: each operand in once, each output out once."""
    m, n, k = np.asarray(m, dtype=float), np.asarray(n, dtype=float), np.asarray(k, dtype=float)
    return groups * ((m + n) * k * operand_bytes + m * n * output_bytes)


def traffic(
    m: Any,
    n: Any,
    k: Any,
    groups: Any,
    *,
    capacity: Any,
    operand_bytes: Any,
    output_bytes: Any,
    accumulator_bytes: Any,
) -> Any:
    """Bytes of `groups` products (M x K)(K x N) in and out of a buffer, with the best tiling that fits.

    Half of the buffer keeps a tile, the other half streams what meets it (double buffering):
    - output tile (tm x tn accumulators): A is read ceil(N/tn) times, B ceil(M/tm) times, outputs leave once;
    - panel of the smaller operand, A (tm x K) if M <= N: A read once, B ceil(M/tm) times; likewise for B.
    Operand tiles that cut K and spill partial sums are not tried: they rarely win (0.5% of random small products).
    The tile's side along the smaller of M and N comes from a fixed lattice: the dimension itself, half of it, and
    the powers of two.  Only the two powers around the square tile are tried: where that pair changes, with the
    capacity, the one left out is no better than the rest, so that traffic never grows with capacity.
    At most 1.25 times the best of all tile sizes (usually equal).
    capacity, *_bytes [B]; m, n, k, groups >= 1; shape: broadcast.  Result [B] >= `compulsory_traffic`, and
    symmetric in M and N.  Ignores tiles shared between groups, and the last level's line size.
    """
    m, n, k = np.asarray(m, dtype=float), np.asarray(n, dtype=float), np.asarray(k, dtype=float)
    short, long = np.minimum(m, n), np.maximum(m, n)
    kept = np.asarray(capacity, dtype=float) / 2.0
    outputs = np.maximum(np.floor(kept / accumulator_bytes), 1.0)
    reads = _output_tile_reads(short, long, outputs)
    panel = _whole(kept / operand_bytes / k)
    reads = np.minimum(reads, short + np.ceil(short / panel) * long)
    return groups * (reads * k * operand_bytes + m * n * output_bytes)


def stream_traffic(
    m: Any,
    n: Any,
    k: Any,
    groups: Any,
    *,
    local_capacity: Any,
    array_outputs: Any,
    operand_bytes: Any,
    output_bytes: Any,
    accumulator_bytes: Any,
) -> Any:
    """Bytes between shared SRAM and all cores, when each core keeps a tile in its local SRAM.

    Cores work on different tiles and each fetches its own operands, so that the sum over cores is the traffic
    of one core that does every tile.  A core keeps at least the tile its arrays hold in their cells:
    array_outputs = arrays of a core x rows x columns, with as much again to stream.
    Not larger with more local_capacity [B].  Ignores that cores which share one tile (fewer tiles than cores)
    fetch it more than once unless the network multicasts.
    """
    cells = 2.0 * np.asarray(array_outputs) * accumulator_bytes
    return traffic(
        m,
        n,
        k,
        groups,
        capacity=np.maximum(local_capacity, cells),
        operand_bytes=operand_bytes,
        output_bytes=output_bytes,
        accumulator_bytes=accumulator_bytes,
    )


def _output_tile_reads(short: Any, long: Any, outputs: Any) -> Any:
    """Fewest operand rows and columns read, ceil(a/ta) b + ceil(b/tb) a, with ta tb <= outputs kept."""
    square = _power_of_two_below(np.sqrt(outputs))
    reads = np.ceil(short / square) * long + np.ceil(long / np.floor(outputs / square)) * short
    square = square + square
    reads = np.minimum(reads, np.ceil(short / square) * long + np.ceil(long / _whole(outputs / square)) * short)
    reads = np.minimum(reads, long + np.ceil(long / _whole(outputs / short)) * short)
    half = np.ceil(short / 2.0)
    return np.minimum(reads, 2.0 * long + np.ceil(long / _whole(outputs / half)) * short)


def _power_of_two_below(number: Any) -> Any:
    """2^floor(log2(number)) of a float64 > 0: its bits without the mantissa (8 times faster than frexp and ldexp)."""
    return (number.view(np.int64) & 0x7FF0000000000000).view(np.float64)


def _whole(size: Any) -> Any:
    """Whole rows of a tile; one that does not fit gets half a row, which costs more than any tile that fits."""
    return np.maximum(np.floor(size), 0.5)
