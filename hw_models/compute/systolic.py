"""How many cycles a systolic array takes for a matrix product, and how a chip of arrays shares one.

Not here: whether memories can feed the arrays (memory/tiling.py, memory/offchip.py); sustained efficiency (the caller).
Theory: docs/models/systolic.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import DATAFLOW, Chip

OUTPUT, WEIGHT, INPUT = (DATAFLOW.index(name) for name in ("os", "ws", "is"))


def mapped(dataflow: Any, m: Any, n: Any, k: Any) -> tuple[Any, Any, Any]:
    """Two dimensions of a product lie on the array, the third streams through it: (S_r, S_c, T).

    output stationary (M, N, K), weight stationary (K, N, M), input stationary (K, M, N)
    for (M x K)(K x N); dataflow 0, 1, 2; all broadcast.           [Samajdar et al. 2018, SCALE-Sim, table 1]
    """
    on_rows, on_columns = np.where(np.equal(dataflow, OUTPUT), m, k), np.where(np.equal(dataflow, INPUT), m, n)
    # The dimension that is left.  Two subtractions are cheaper than a selection.
    return on_rows, on_columns, np.add(m, n, dtype=float) + k - on_rows - on_columns


def fold_cycles(dataflow: Any, rows: Any, columns: Any, stream: Any) -> Any:
    """Cycles of one fold: load the stationary tile, stream T vectors, let the last wave cross the array.

    T + R + C - 2, and R more when a tile must be loaded first (weight and input stationary).
    """
    return stream + rows + columns - 2 + _load(dataflow, rows)


def array_cycles(m: Any, n: Any, k: Any, *, dataflow: Any, rows: Any, columns: Any, double_buffered: Any = 0) -> Any:
    """Cycles of one array for (M x K)(K x N), cycle-true while its operands arrive in time.

    serial            F (load + T + R + C - 2),  F = ceil(S_r / R) ceil(S_c / C)
    double-buffered   load + (F - 1) max(T, R) + T + R + C - 2
    load is R for weight and input stationary, 0 for output stationary.  A double-buffered array swaps its
    stationary tile in R cycles behind the running fold: the next weights or inputs go in, or the last outputs
    go out (output stationary).  The drain of the very last outputs is not counted in either form.
    All arguments broadcast; m, n, k >= 1.          [serial: equal to the cycle-level simulator SCALE-Sim v2]
    """
    on_rows, on_columns, stream = mapped(dataflow, m, n, k)
    folds = np.ceil(on_rows / rows) * np.ceil(on_columns / columns)
    once = fold_cycles(dataflow, rows, columns, stream)
    return (folds - 1.0) * np.where(double_buffered, np.maximum(stream, rows), once) + once


def sram_words(m: Any, n: Any, k: Any, *, dataflow: Any, rows: Any, columns: Any) -> tuple[Any, Any, Any]:
    """Words of A, B and C one array exchanges with its SRAM, partial sums written but not re-read.

    os  f_c M K, f_r K N, M N;   ws  f_c M K, K N, f_r M N;   is  M K, f_c K N, f_r M N
    with f_r = ceil(S_r / R), f_c = ceil(S_c / C).  What an accumulating array also re-reads is in
    `partial_sum_words`.                                               [counts of SCALE-Sim v2 without padding]
    """
    on_rows, on_columns, _ = mapped(dataflow, m, n, k)
    folds_r, folds_c = np.ceil(on_rows / rows), np.ceil(on_columns / columns)
    output, inputs = np.equal(dataflow, OUTPUT), np.equal(dataflow, INPUT)
    a = np.where(inputs, 1.0, folds_c) * m * k
    b = np.where(output, folds_r, np.where(inputs, folds_c, 1.0)) * k * n
    c = np.where(output, 1.0, folds_r) * m * n
    return a, b, c


def mapping_efficiency(m: Any, n: Any, k: Any, *, dataflow: Any, rows: Any, columns: Any) -> Any:
    """Share of an array's cells that hold a part of the product, averaged over folds: S_r S_c / (f_r R f_c C).

    1 where both mapped dimensions are multiples of the array.         [equal to SCALE-Sim v2]
    """
    on_rows, on_columns, _ = mapped(dataflow, m, n, k)
    folds = np.ceil(on_rows / rows) * np.ceil(on_columns / columns)
    return on_rows * np.asarray(on_columns, dtype=float) / (folds * rows * columns)


def partial_sum_words(m: Any, n: Any, k: Any, *, dataflow: Any, rows: Any) -> Any:
    """Partial sums read back to be added to, in words of the accumulator: (ceil(K / R) - 1) M N, os none."""
    passes = np.where(np.equal(dataflow, OUTPUT), 1.0, np.ceil(np.asarray(k) / rows))
    return (passes - 1.0) * m * n


def matmul_time(chip: Chip, m: Any, n: Any, k: Any, groups: Any, *, precision: str, rate: Any = None) -> Any:
    """Time [s] of `groups` products (M x K)(K x N) on all arrays of a chip at its peak rate.

    The F = groups f_r f_c folds are spread over the P arrays; two schedules are compared, the faster is taken:
    - whole folds in ceil(F / P) rounds; the r folds of the last round are cut along T into floor(P / r) pieces;
    - every fold cut along T into P pieces.
    A piece of 1/s of a fold streams ceil(T / s) vectors.  For output stationary T is K, so that s arrays hold
    partial sums of the same outputs; they exchange them in a reduce-scatter of R C words, C words a cycle an
    array, which takes R (1 - 1/s): a piece then costs min(T, R) + ceil(max(T - R, 0) / s) (`reduction_words`).
    By construction more arrays are never slower, and one array gives `array_cycles`.  A precision of rate x
    does x times the products a cycle; `rate`, if given, stands for it and broadcasts (products of several precisions).
    Shape: broadcast of chip and sizes; m, n, k, groups >= 1.
    Ignores operand supply and the sustained efficiency.
    """
    rate = chip.matmul_rate(precision) if rate is None else rate
    return _plan(chip, m, n, k, groups)[0] / (chip.clock * rate)


def reduction_words(chip: Chip, m: Any, n: Any, k: Any, groups: Any) -> Any:
    """Accumulator words that output-stationary arrays exchange because a fold was cut along K.

    2 (s - 1) R C for each fold cut into s pieces (sent and received); 0 for weight and input stationary.
    Their time is already part of `matmul_time`; this count is for energy.
    """
    _, folds, last, pieces, cut_all = _plan(chip, m, n, k, groups)
    cuts = np.where(cut_all, folds * (chip.array_count - 1.0), last * (pieces - 1.0))
    # A fold no longer than the exchange is not cut.
    cut = np.equal(chip.dataflow, OUTPUT) & (np.asarray(k) > chip.array_rows)
    return np.where(cut, 2.0 * cuts * chip.array_rows * chip.array_columns, 0.0)


def _load(dataflow: Any, rows: Any) -> Any:
    return np.not_equal(dataflow, OUTPUT) * rows


def _plan(chip: Chip, m: Any, n: Any, k: Any, groups: Any) -> tuple[Any, Any, Any, Any, Any]:
    """(cycles, folds, folds of the last round, pieces of each of them, whether every fold is cut instead)."""
    rows, count = chip.array_rows, chip.array_count
    fill = fold_cycles(chip.dataflow, rows, chip.array_columns, 0.0)
    # A serial array waits for the fill of each fold; T + fill is never below R.
    wait = np.equal(chip.double_buffered, 0) * fill
    exchanged = np.equal(chip.dataflow, OUTPUT) * rows

    on_rows, on_columns, stream = mapped(chip.dataflow, m, n, k)
    folds = np.ceil(on_rows / rows) * np.ceil(on_columns / chip.array_columns) * groups
    before_last = np.ceil(folds / count) - 1.0
    last = folds - before_last * count
    pieces = np.floor(count / last)

    uncut = np.minimum(stream, exchanged)
    divisible = stream - uncut
    last_stream = uncut + np.ceil(divisible / pieces)
    cut_stream = uncut + np.ceil(divisible / count)
    spread = before_last * np.maximum(stream + wait, rows) + last_stream
    cut = (folds - 1.0) * np.maximum(cut_stream + wait, rows) + cut_stream
    return np.minimum(spread, cut) + fill, folds, last, pieces, cut < spread
