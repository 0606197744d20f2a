"""Which designs no other design beats, and how much of the objective space they cover.

All values are minimised: the caller changes the sign of what it maximises.
a dominates b when a <= b in every objective and a < b in one.  Theory: Kung, Luccio, Preparata, "On finding the
maxima of a set of vectors", J. ACM 22 (1975); hypervolume: Zitzler and Thiele, PPSN V (1998); While, Bradstreet,
Barone, "A fast way of calculating exact hypervolumes", IEEE Trans. Evol. Comput. 16 (2012).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["non_dominated", "merge", "hypervolume"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def non_dominated(values: ArrayLike) -> Mask:
    """Mask (N,) of the rows of values (N, J), minimised, that no other row dominates.

    Equal rows do not dominate each other: distinct designs with equal values are all kept (a caller removes
    repeats of one design by its own key).  A row with a NaN is never in the mask and dominates nothing.
    Cost: N log N for J <= 2, N log N plus list moves for J = 3, N times the front in blocks above."""
    table = _table(values)
    mask = np.zeros(len(table), dtype=bool)
    sound = np.flatnonzero(~np.isnan(table).any(axis=1))
    if sound.size == 0:
        return mask
    order = np.lexsort(table[sound].T[::-1])
    sorted_rows = table[sound][order]
    # Equal rows are judged once: the first of each run of equal rows stands for all.
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(sorted_rows[1:] != sorted_rows[:-1], axis=1)
    distinct = sorted_rows[first]
    keep: Mask = {1: _best_of_one, 2: _staircase_of_two, 3: _sweep_of_three}.get(table.shape[1], _blocks)(distinct)
    mask[sound[order]] = keep[np.cumsum(first) - 1]
    return mask


def merge(front: ArrayLike, new: ArrayLike) -> tuple[Mask, Mask]:
    """Which rows of a front (K, J) and of new rows (N, J) are non-dominated together: two masks (K,), (N,).

    Feeding a long list piece by piece gives the set that the whole list gives."""
    old, fresh = np.asarray(front, dtype=float), np.asarray(new, dtype=float)
    mask = non_dominated(fresh) if len(fresh) else np.zeros(0, dtype=bool)
    if len(old) == 0:
        return np.zeros(0, dtype=bool), mask
    both = non_dominated(np.concatenate([old, fresh[mask]])) if mask.any() else non_dominated(old)
    mask[mask] = both[len(old) :]
    return both[: len(old)], mask


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Volume between points (N, J), minimised, and the reference corner (J,): exact.

    Points not below the reference in every objective add nothing, nor do rows with a NaN.
    J <= 3 by a sweep (N log N steps); above by the exclusive-volume recursion, for small fronts."""
    corner = np.asarray(reference, dtype=float)
    table = np.asarray(points, dtype=float).reshape(-1, len(corner))
    table = table[np.all(table < corner, axis=1)]
    if len(table) == 0:
        return 0.0
    table = np.unique(table[non_dominated(table)], axis=0)
    return {1: _length, 2: _area, 3: _volume}.get(len(corner), _exclusive)(table, corner)


def _table(values: ArrayLike) -> Floats:
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"values: found shape {table.shape}, allowed: (N, J) with J >= 1")
    return table


def _best_of_one(rows: Floats) -> Mask:
    same: Mask = rows[:, 0] == rows[0, 0]
    return same


def _staircase_of_two(rows: Floats) -> Mask:
    # Sorted by the first objective, a row survives when its second is below all before it.
    keep = np.ones(len(rows), dtype=bool)
    keep[1:] = rows[1:, 1] < np.minimum.accumulate(rows[:, 1])[:-1]
    return keep


def _sweep_of_three(rows: Floats) -> Mask:
    # Distinct rows in lexicographic order: a dominator comes before, so only (y, z) of the rows before matter.
    # They are kept as a staircase, y rising and z falling.
    keep = np.zeros(len(rows), dtype=bool)
    stair_y: list[float] = []
    stair_z: list[float] = []
    for i, (y, z) in enumerate(zip(rows[:, 1].tolist(), rows[:, 2].tolist(), strict=True)):
        at = bisect_right(stair_y, y)
        if at and stair_z[at - 1] <= z:
            continue
        keep[i] = True
        start = bisect_left(stair_y, y)
        end = start
        while end < len(stair_y) and stair_z[end] >= z:
            end += 1
        stair_y[start:end] = [y]
        stair_z[start:end] = [z]
    return keep


def _blocks(rows: Floats, *, block: int = 256) -> Mask:
    # A dominator has a strictly smaller sum of ranks (whole numbers, so exact); in that order a row is only
    # compared with the front before it and with its own block.
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in rows.T])
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    columns = np.ascontiguousarray(ranks[:, order].astype(np.int32))
    front = np.empty((len(columns), 0), dtype=np.int32)
    kept: list[NDArray[np.intp]] = []
    for start in range(0, len(rows), block):
        index = order[start : start + block]
        part = columns[:, start : start + block]
        alive = _dominators(front, part) == 0
        index, part = index[alive], part[:, alive]
        alive = _dominators(part, part) == 1  # each row is below or equal to itself
        index, part = index[alive], part[:, alive]
        if part.shape[1]:
            front = np.concatenate([front, part], axis=1)
            kept.append(index)
    keep = np.zeros(len(rows), dtype=bool)
    keep[np.concatenate(kept)] = True
    return keep


def _dominators(source: NDArray[np.int32], part: NDArray[np.int32]) -> NDArray[np.intp]:
    """Number (b,) of columns of `source` (J, k) that are <= each column of `part` (J, b) everywhere."""
    below = source[0][:, None] <= part[0]
    for j in range(1, len(source)):
        below &= source[j][:, None] <= part[j]
    return np.asarray(np.count_nonzero(below, axis=0))


def _length(rows: Floats, corner: Floats) -> float:
    return float(corner[0] - rows[:, 0].min())


def _area(rows: Floats, corner: Floats) -> float:
    # rows sorted by the first objective: each adds a rectangle below the step before it
    ceiling = np.concatenate([[corner[1]], rows[:-1, 1]])
    return float(np.sum((corner[0] - rows[:, 0]) * (ceiling - rows[:, 1])))


def _volume(rows: Floats, corner: Floats) -> float:
    # Sweep along the third objective; between two levels the covered area of the first two is constant.
    # The staircase of (x, y) has guards at both ends, so each insertion only touches the steps it removes.
    order = np.argsort(rows[:, 2], kind="stable")
    stair_x: list[float] = [-np.inf, float(corner[0])]
    stair_y: list[float] = [float(corner[1]), -np.inf]
    total, area, level = 0.0, 0.0, float(rows[order[0], 2])
    for x, y, z in rows[order].tolist():
        total += area * (z - level)
        level = z
        start = bisect_right(stair_x, x)
        if stair_y[start - 1] <= y:
            continue
        begin = start - 1 if stair_x[start - 1] == x else start
        end, left, ceiling = begin, x, stair_y[begin - 1]
        while stair_y[end] >= y:
            area += (stair_x[end] - left) * (ceiling - y)
            left, ceiling = stair_x[end], stair_y[end]
            end += 1
        area += (stair_x[end] - left) * (ceiling - y)
        stair_x[begin:end] = [x]
        stair_y[begin:end] = [y]
    return total + area * (float(corner[2]) - level)


def _exclusive(rows: Floats, corner: Floats) -> float:
    """Sum over rows of the volume that no later row covers (While et al. 2012, algorithm WFG)."""
    if rows.shape[1] == 3:
        return _volume(rows, corner)
    rows = rows[np.argsort(-rows[:, -1], kind="stable")]
    total = 0.0
    for i, row in enumerate(rows):
        total += float(np.prod(corner - row))
        # Cut to the box of this row, all later rows share its last objective: one dimension less.
        covered = np.maximum(rows[i + 1 :, :-1], row[:-1])
        if len(covered):
            covered = np.unique(covered[non_dominated(covered)], axis=0)
            total -= float(corner[-1] - row[-1]) * _exclusive(covered, corner[:-1])
    return total
