"""How many words a systolic array moves off chip behind three buffers, and how long it waits for them.

Not here: cycles while operands arrive in time (compute/systolic.py); the best tiling of a free buffer (tiling.py).
Theory: docs/models/systolic.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.compute.systolic import INPUT, OUTPUT, WEIGHT, mapped

__all__ = ["active_half", "off_chip_words", "separate_channel_cycles", "shared_channel_cycles"]


def active_half(words: Any, *, parts: int = 100) -> Any:
    """Words of a double-buffered memory that the array works from while the other half is filled.

    Half of `words`, in whole hundredths of the memory: (parts / 2) floor(words / parts).  parts = 2: plain half.
    [the simulator SCALE-Sim v2 splits its buffers so: 64 KiB of 1 B words give 32,750 and not 32,768]
    """
    return parts / 2.0 * np.floor(np.asarray(words, dtype=float) / parts)


def off_chip_words(
    m: Any, n: Any, k: Any, *, dataflow: Any, rows: Any, columns: Any, active_a: Any, active_b: Any
) -> tuple[Any, Any, Any]:
    """Words of A, B and C between an array's buffers and the memory outside, for (M x K)(K x N).

    The folds run over the columns' tiles in the outer loop.  An operand that an outer loop repeats is read again
    unless all that the loop repeats stays in the active half of its buffer:
        A   M K where it fits or for is, else f_c M K
        B   K N for ws; os: K N where a tile K x C fits or f_r = 1, else f_r K N; is: K N where it fits, else f_c K N
        C   M N for os, else f_r M N: partial sums leave, and are not counted coming back
    f_r = ceil(S_r / R), f_c = ceil(S_c / C); active_a, active_b [words], see `active_half`; all broadcast.
    Ignores bursts, alignment and prefetch past the end.
    [SCALE-Sim v2: A equal on 254 runs, B on all ws and is and on 74 of 85 os runs, C within 0.2%]
    """
    m, n, k = np.asarray(m, dtype=float), np.asarray(n, dtype=float), np.asarray(k, dtype=float)
    on_rows, on_columns, _ = mapped(dataflow, m, n, k)
    folds_r, folds_c = np.ceil(on_rows / rows), np.ceil(on_columns / columns)
    output = np.equal(dataflow, OUTPUT)
    a, b = m * k, k * n
    tile = np.where(output, k * np.minimum(columns, n), b)
    times_a = np.where(np.equal(dataflow, INPUT) | (a <= active_a), 1.0, folds_c)
    times_b = np.where(np.equal(dataflow, WEIGHT) | (tile <= active_b), 1.0, np.where(output, folds_r, folds_c))
    return times_a * a, times_b * b, np.where(output, 1.0, folds_r) * m * n


def separate_channel_cycles(cycles: Any, words: tuple[Any, Any, Any], resident: tuple[Any, Any, Any], *,
                            bandwidth: Any) -> Any:  # fmt: skip
    """Cycles of a product whose operands each have a channel of their own: the slowest of array and channels.

    max(cycles, (D_A - A) / b, (D_B - B) / b, (D_C - C) / b)
    cycles     of the array alone; words: (D_A, D_B, D_C) moved
    resident   (A, B, C) words whose transfer the array does not wait for: the active halves of the operands'
               buffers, filled before it starts, and the whole output buffer, emptied after it ends
    bandwidth  b, words a cycle a channel; all broadcast.  Ignores latency: at 16 words a cycle and more, up to a
               few hundred cycles a product.
    """
    for moved, kept in zip(words, resident, strict=True):
        cycles = np.maximum(cycles, (moved - np.minimum(kept, moved)) / bandwidth)
    return cycles


def shared_channel_cycles(cycles: Any, words: tuple[Any, Any, Any], *, first_fill: Any, last_drain: Any,
                          bandwidth: Any) -> Any:  # fmt: skip
    """Cycles of a product whose operands share one channel: fill, then the slower of array and channel, then drain.

    (fill + drain) / b + max(cycles, (D_A + D_B + D_C - fill - drain) / b)
    first_fill, last_drain   words that must move before the array starts and after it ends; at most the total
    bandwidth                b, words a cycle; all broadcast
    Never below cycles nor (D_A + D_B + D_C) / b, and at most their sum.
    """
    total = words[0] + words[1] + words[2]
    alone = np.minimum(first_fill + last_drain, total)
    return alone / bandwidth + np.maximum(cycles, (total - alone) / bandwidth)
