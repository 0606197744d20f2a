"""How many cycles a systolic array takes for a matrix product, and how a chip of arrays shares one.

Not here: whether memories can feed the arrays (memory/tiling.py, memory/offchip.py); sustained efficiency (the caller).
Theory: docs/models/systolic.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import DATAFLOW, Chip

OUTPUT, WEIGHT, INPUT, BEST = (DATAFLOW.index(name) for name in ("os", "ws", "is", "best"))


def mapped(dataflow: Any, m: Any, n: Any, k: Any) -> tuple[Any, Any, Any]:
    """Two dimensions of a product lie on the array, the third streams through it: (S_r, S_c, T).

    output stationary (M, N, K), weight stationary (K, N, M), input stationary (K, M, N)
    for (M x K)(K x N); dataflow 0, 1, 2; all broadcast.           [Samajdar et al. 2018, SCALE-Sim, table 1]
    The best of them is none of them: `chosen_dataflow` says which it is for a product.
    """
    _need_chosen(dataflow)
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
    _need_chosen(dataflow)
    passes = np.where(np.equal(dataflow, OUTPUT), 1.0, np.ceil(np.asarray(k) / rows))
    return (passes - 1.0) * m * n


def matmul_time(chip: Chip, m: Any, n: Any, k: Any, groups: Any, *, precision: str, rate: Any = None) -> Any:
    """Time [s] of `groups` products (M x K)(K x N) on all arrays of a chip at its peak rate.

    The F = groups f_r f_c folds are spread over the P arrays; two schedules are compared, the faster is taken:
    - whole folds in ceil(F / P) rounds; the r folds of the last round are cut along T into floor(P / r) pieces;
    - all folds one behind the other as one stream of F T vectors, cut into P equal lengths c = ceil(F T / P): an
      array meets at most n = floor((c - 2) / T) + 2 folds, all but two of them whole.  A serial array waits n times
      for a fill.  A double-buffered one does the longer of its two ends before the shorter, so that a swap of R
      cycles is seen only where both are short.            [McNaughton 1959, Management Science 6: wrap-around rule]
    A piece of 1/s of a fold streams ceil(T / s) vectors.  For output stationary T is K, so that s arrays hold
    partial sums of the same outputs; they exchange them in a reduce-scatter of R C words, C words a cycle an
    array, which takes R (1 - 1/s): a piece then costs min(T, R) + ceil(max(T - R, 0) / s) (`reduction_words`);
    both ends of a wrapped length lie in folds of at most s = ceil(P / F) + 1 pieces: 2 R (1 - 1/s).
    More arrays are never slower, twice the batch never takes more than twice the time, and one array gives
    `array_cycles`.  An array whose dataflow is best runs each product in the fastest of the three.
    A precision of rate x does x times the products a cycle; `rate`, if given, stands for it and broadcasts
    (products of several precisions).
    Shape: broadcast of chip and sizes; m, n, k, groups >= 1.
    Ignores operand supply and the sustained efficiency.
    """
    rate = chip.matmul_rate(precision) if rate is None else rate
    return _fastest(chip, m, n, k, groups)[0] / (chip.clock * rate)


def chosen_dataflow(chip: Chip, m: Any, n: Any, k: Any, groups: Any) -> Any:
    """Dataflow (0, 1, 2) of `groups` products on a chip: its own, or the fastest where it may be configured for each.

    Of equally fast ones os, then ws: os moves no partial sums, and ws keeps what a layer's rows share.
    Shape: the chip's dataflow, broadcast against the sizes where a chip has the best.
    """
    return _fastest(chip, m, n, k, groups)[1]


def reduction_words(chip: Chip, m: Any, n: Any, k: Any, groups: Any) -> Any:
    """Accumulator words that output-stationary arrays exchange because a fold was cut along K.

    2 (s - 1) R C for each fold cut into s pieces (sent and received); 0 for weight and input stationary.
    Lengths of a wrapped stream that end with a fold are counted as if they did not.
    Their time is already part of `matmul_time`; this count is for energy.
    """
    dataflow = chosen_dataflow(chip, m, n, k, groups)
    _, last, pieces, lengths = _plan(chip, dataflow, m, n, k, groups)
    cuts = np.where(lengths > 0, lengths - 1.0, last * (pieces - 1.0))
    # A fold no longer than the exchange is not cut.
    cut = np.equal(dataflow, OUTPUT) & (np.asarray(k) > chip.array_rows)
    return np.where(cut, 2.0 * cuts * chip.array_rows * chip.array_columns, 0.0)


def _need_chosen(dataflow: Any) -> None:
    """ValueError where "best" stands for a dataflow that must be known."""
    if np.any(np.greater(dataflow, INPUT)):
        raise ValueError("dataflow: found best, allowed: os, ws, is (see chosen_dataflow)")


def _load(dataflow: Any, rows: Any) -> Any:
    return np.not_equal(dataflow, OUTPUT) * rows


def _fastest(chip: Chip, m: Any, n: Any, k: Any, groups: Any) -> tuple[Any, Any]:
    """(cycles, dataflow) in the chip's dataflow, or in the fastest.  Without the gate every design pays for three."""
    best = np.equal(chip.dataflow, BEST)
    if not np.any(best):
        return _plan(chip, chip.dataflow, m, n, k, groups)[0], chip.dataflow
    fewest: Any = np.inf
    chosen: Any = float(OUTPUT)
    for dataflow in (OUTPUT, WEIGHT, INPUT):
        cycles = _plan(chip, np.where(best, float(dataflow), chip.dataflow), m, n, k, groups)[0]
        chosen = np.where(cycles < fewest, float(dataflow), chosen)
        fewest = np.minimum(fewest, cycles)
    return fewest, np.where(best, chosen, chip.dataflow)


def _plan(chip: Chip, dataflow: Any, m: Any, n: Any, k: Any, groups: Any) -> tuple[Any, Any, Any, Any]:
    """(cycles, folds of the last round, pieces of each of them, lengths of the wrapped stream or 0 for rounds)."""
    rows, count = chip.array_rows, chip.array_count
    fill = fold_cycles(dataflow, rows, chip.array_columns, 0.0)
    # A serial array waits for the fill of each fold; T + fill is never below R.
    serial = np.equal(chip.double_buffered, 0)
    wait = serial * fill
    exchanged = np.equal(dataflow, OUTPUT) * rows

    on_rows, on_columns, stream = mapped(dataflow, m, n, k)
    folds = np.ceil(on_rows / rows) * np.ceil(on_columns / chip.array_columns) * groups
    before_last = np.ceil(folds / count) - 1.0
    last = folds - before_last * count
    pieces = np.floor(count / last)
    uncut = np.minimum(stream, exchanged)
    rounds = before_last * np.maximum(stream + wait, rows) + uncut + np.ceil((stream - uncut) / pieces)

    whole = folds * stream
    length = np.ceil(whole / count)
    between = np.floor(np.maximum(length - 2.0, 0.0) / stream)  # folds an array does from end to end
    # A swap keeps a double-buffered array for R cycles, and the shorter end goes last; a serial array waits.
    ends = length - between * stream
    late = between * np.maximum(rows - stream, 0.0) + np.maximum(rows - 0.5 * ends, 0.0)
    swaps = np.where(serial, (between + 1.0) * fill, late)
    # Both ends lie in folds of so many pieces at most; whole rows are exchanged.
    shared = np.ceil(count / folds) + 1.0
    wrapped = length + swaps + np.floor(2.0 * exchanged * (1.0 - 1.0 / shared))
    lengths = np.where(wrapped < rounds, np.ceil(whole / length), 0.0)
    return np.minimum(rounds, wrapped) + fill, last, pieces, lengths
