"""Which prices a batch needs: the distinct values of the plan fields that a price depends on.

Operator times depend on the tensor degree, the micro-batch and sequence parallelism, not on the pipeline
or data degree; so a sweep of a million plans prices a few hundred situations. Row-by-row batches
have one situation a row, and take the same path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Situations:
    """The distinct rows of some plan columns.

    first   a plan of each situation (S,); index   the situation of each plan (P,).
    Both None: every row is its own situation.
    """

    first: np.ndarray | None
    index: np.ndarray | None

    def pick(self, column: Any) -> np.ndarray:
        """A plan column (P,) that depends on the situation alone, as (S,)."""
        values: np.ndarray = np.asarray(column)
        return values if self.first is None or values.size == 1 else values[self.first]

    def spread(self, table: Any) -> np.ndarray:
        """A priced table (..., S) as columns (..., P)."""
        values: np.ndarray = np.asarray(table)
        if self.index is None or values.ndim == 0 or values.shape[-1] == 1:
            return values
        return np.take(values, self.index, axis=-1, mode="clip")


def dense_codes(column: np.ndarray) -> tuple[np.ndarray, int]:
    """Whole numbers renumbered 0..k-1 in increasing order, and k."""
    whole = column.astype(np.int64)
    low = int(whole.min())
    span = int(whole.max()) - low + 1
    if span > 4 * whole.size + 65536:
        values, codes = np.unique(whole, return_inverse=True)
        return codes.reshape(whole.shape), values.size
    whole -= low
    seen = np.zeros(span, dtype=np.int64)
    seen[whole] = 1
    ranks = np.cumsum(seen)
    return ranks[whole] - 1, int(ranks[-1])


def situations(*columns: np.ndarray, paired: bool) -> Situations:
    """The distinct rows of whole-number plan columns (P,), or (1,)."""
    if paired:
        return Situations(None, None)
    key, size = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        if column.size == 1:  # one value for all plans tells none apart
            continue
        codes, count = dense_codes(column)
        key, size = dense_codes(key * count + codes)
    if key.size == 1:
        return Situations(None, None)
    first = np.empty(size, dtype=np.int64)
    first[key[::-1]] = np.arange(key.size - 1, -1, -1)
    return Situations(first, key)
