"""How long a pipeline takes for the micro-batches of one step: closed forms over stage kinds.

Sources: GPipe (arXiv 1811.06965), PipeDream-flush and interleaving (arXiv 2104.04473, section 2.2);
the period with transfers is bounded by how many micro-batches a stage may hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.stages import Stages


@dataclass(frozen=True)
class StageTimes:
    """Forward and backward seconds of one micro-batch on each stage kind."""

    first: tuple[Any, Any]
    high: tuple[Any, Any]
    low: tuple[Any, Any]
    last: tuple[Any, Any]


def pipeline_time(times: StageTimes, stages: Stages, *, pipeline: Any, interleave: Any, is_gpipe: Any,
                  transfer: Any, overlaps: Any) -> Any:
    """Seconds from the first forward to the last backward of a step.

    x = f + b of a stage, c one transfer, m micro-batches, p stages, v chunks:
      1f1b         T = sum x + 2 (p-1) c + (m-1) P,  P = max(max x, max_s (sum_{k>=s} x_k + 2 (p-1-s) c) / min(p-s, m))
      gpipe        T = sum x + 2 (p-1) c + (m-1) (max f + max b)
      interleaved  T = x_max + (sum x - x_max) / v + 2 (p-1) c + (m-1) max x
    Transfers that do not overlap occupy both stages: x grows by 2 c at the ends, 4 c inside (times v).
    Error against an event simulation: tests/test_schedule.py.
    """
    m, v = stages.micro_batches, interleave
    busy = np.where(overlaps > 0, 0.0, v * transfer)
    one_end, both_ends = 2.0 * busy * stages.has_last, 4.0 * busy
    x_first = times.first[0] + times.first[1]
    x_high = times.high[0] + times.high[1]
    x_low = times.low[0] + times.low[1]
    x_last = times.last[0] + times.last[1]
    has_high, has_low = stages.high_count > 0, stages.low_count > 0

    def slowest(first: Any, high: Any, low: Any, last: Any) -> Any:
        inner = np.maximum(np.where(has_high, high, 0.0), np.where(has_low, low, 0.0))
        return np.maximum(np.maximum(first, last * stages.has_last), inner)

    low_and_last = stages.low_count * x_low + x_last * stages.has_last
    after_first = stages.high_count * x_high + low_and_last
    total = x_first + after_first
    hops = 2.0 * transfer
    period = slowest(x_first + one_end, x_high + both_ends, x_low + both_ends, x_last + one_end)
    # stages whose in-flight limit p - s is below m; within a run of equal stages the ratio is monotone, so the
    # run's far end (or the last stage before the limit stops binding) decides
    after_low = stages.low_count + 1.0
    high_in = np.clip(m - 1.0 - after_low, 0.0, stages.high_count)
    low_in = np.clip(m - 2.0, 0.0, stages.low_count)
    limited = np.maximum(
        np.where(pipeline < m, (total + (pipeline - 1.0) * hops) / pipeline, 0.0),
        np.maximum(
            np.where(
                after_low < m,
                (low_and_last + high_in * x_high + (stages.low_count + high_in) * hops) / (after_low + high_in),
                0.0,
            ),
            (low_in * (x_low + hops) + x_last * stages.has_last) / (low_in + 1.0),
        ),
    )
    by_phase = slowest(times.first[0], times.high[0], times.low[0], times.last[0]) + slowest(
        times.first[1], times.high[1], times.low[1], times.last[1]
    )
    one_chunk = v == 1
    period = np.where(
        is_gpipe, np.maximum(period, by_phase), np.where(one_chunk, np.maximum(period, limited), period)
    )
    longest = slowest(x_first, x_high, x_low, x_last)
    fill = longest + (total - longest) / v + (pipeline - 1.0) * hops
    return fill + (m - 1.0) * period
