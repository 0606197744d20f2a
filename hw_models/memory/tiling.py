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


def traffic_lower_bound(
    m: Any,
    n: Any,
    k: Any,
    groups: Any,
    *,
    capacity: Any,
    operand_bytes: Any,
    output_bytes: Any,
    accumulator_bytes: Any,
    phase: float = 2.4,
) -> Any:
    """Bytes that `groups` products (M x K)(K x N) move through a buffer at least, whatever the order of their work.

    Q >= T (V / v - 1),   v = (f(T) + f(2 S + T)) / (2 x sqrt(w)),   f(X) = (X / 3)^(3/2),   T = phase S
    or `compulsory_traffic` if that is more.  V = groups M N K multiply-adds, S capacity [B], x bytes of an operand,
    w bytes of a result as it moves or is kept, whichever is less.  In words (x = w = 1):
    Q >= 1.92 M N K / sqrt(S) - 2.4 S.
    Why: cut the work into phases that move T bytes.  What a phase reads of A and B was kept from before (s) or comes
    in, what it adds to in C is kept (e) or goes out, so x N_A + x N_B + w N_C <= s + e + T; it does at most
    sqrt(N_A N_B N_C) multiply-adds [Loomis and Whitney 1949], at most f(s + e + T) / (x sqrt(w)).  What is kept for the
    next phase leaves no room for more, s' + e <= S, so that s + e is S on average and at most 2 S; f is convex, so that
    the mean of its ends bounds the mean.  phase 2.4 is the best choice for large products.
    The constant 2 of pebble games [Kwasniewski et al. 2019, COSMA, arXiv 1908.09606: 2 M N K / sqrt(S) + M N; Smith et
    al. 2017, arXiv 1702.02017: 2 M N K / sqrt(S) - 2 S] is for C += A B, whose C is read too: results that start at 0
    need no read, and a panel of short K that stays while results stream out moves less than the former.
    m, n, k, groups >= 1; shape: broadcast.  Ignores line sizes, and operands that another operator leaves behind.
    """
    macs = np.asarray(m, dtype=float) * n * k * groups
    least = np.minimum(output_bytes, accumulator_bytes)
    capacity = np.asarray(capacity, dtype=float)
    moved = phase * capacity
    few, many = moved / 3.0, (2.0 * capacity + moved) / 3.0
    done = (few * np.sqrt(few) + many * np.sqrt(many)) / (2.0 * operand_bytes * np.sqrt(least))
    compulsory = compulsory_traffic(m, n, k, groups, operand_bytes=operand_bytes, output_bytes=output_bytes)
    return np.maximum(moved * (macs / done - 1.0), compulsory)


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
