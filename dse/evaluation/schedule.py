"""How long a pipeline takes for the micro-batches of one step: closed forms over stage kinds.

Sources: GPipe (arXiv 1811.06965), PipeDream-flush and interleaving (arXiv 2104.04473, section 2.2), ZB-H1 (arXiv
2401.10241, section 2.3);
the period with transfers is bounded by how many micro-batches a stage may hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.stages import Stages


@dataclass(frozen=True)
class StageTimes:
    """Forward and backward seconds of one micro-batch on each stage kind.

    weights   of (first, high, low, last), the part of the backward seconds that are weight gradients; read by
              zero-bubble schedules only, None where no plan has one
    """

    first: tuple[Any, Any]
    high: tuple[Any, Any]
    low: tuple[Any, Any]
    last: tuple[Any, Any]
    weights: tuple[Any, Any, Any, Any] | None = None


def pipeline_time(
    times: StageTimes, stages: Stages, *, pipeline: Any, interleave: Any, is_gpipe: Any, transfer: Any, overlaps: Any,
    is_zero_bubble: Any = False,
) -> Any:  # fmt: skip
    """Seconds from the first forward to the last backward of a step.

    x = f + b of a stage, c one transfer, m micro-batches, p stages, v chunks;  fill = sum x + 2 (p-1) c
      gpipe        T = fill + (m-1) (max f + max b)
      1f1b         T = fill + the longest of
                     R + (m-1-k) P, k = min(p, m-1): one round trip R = sum x + 2 (k-1) c of the last k stages lets k
                       micro-batches in, because a stage holds no more; then the steady period P, the largest mean
                       (sum x + 2 (n-1) c) / n over n neighbouring stages
                     (m-k) x_s + (k-1) max(f_s, b_s), k = min(p-s, m): a slow stage whose other passes hide in the fill
      interleaved  T = m x + (p-1) x/v + 2 (p v-1) c + extra, x without embedding e and head h, which sit in one chunk
                     each while chunks take turns, p micro-batches at a time:  extra = max(p e + m h,
                     (m-p) e + min(2p, m) h - x/v,  m e + p h - p min(e_f, e_b) - (p+1) min(f, b)/v)
    Transfers that do not overlap occupy both stages: x grows by 2 c at the ends, 4 c inside (times v).
    zero bubble  `zero_bubble_time`
    Error against an event simulation of 2,000 random plans, transfers up to 10% of a stage (mean, 99th percentile):
    gpipe exact, 1f1b 0.2% and 1.9%, interleaved 0.8% and 3.4%, zero bubble 0.2% and 2.0%; where transfers occupy
    both stages 0.4% and 2.0%, 0.6% and 3.1%, 0.2% and 2.9% (benchmarks/schedule_check.py).
    """
    p, m, one = pipeline, stages.micro_batches, stages.has_last
    hides = overlaps > 0
    blocked = transfer * (1.0 - hides)
    n_high, n_low = stages.high_count, stages.low_count
    has_high, has_low = n_high > 0, n_low > 0
    end, inside = blocked * one, 2.0 * blocked
    f0, b0 = times.first[0] + end, times.first[1] + end
    f1, b1 = (times.high[0] + inside) * has_high, (times.high[1] + inside) * has_high
    f2, b2 = (times.low[0] + inside) * has_low, (times.low[1] + inside) * has_low
    f3, b3 = times.last[0] + end, times.last[1] + end
    x0, x1, x2, x3 = f0 + b0, f1 + b1, f2 + b2, f3 + b3

    # a transfer each way between neighbours; one that occupies both stages is in both x and counts once
    hop = np.where(hides, 2.0, -2.0) * transfer
    high, low, last = n_high * (x1 + hop), n_low * (x2 + hop), one * (x3 + hop)  # each stage with the hop before it
    fill = x0 + high + low + last
    period = np.maximum(np.maximum(x0, x1), np.maximum(x2, x3))
    # of all runs of stages these matter: all, each run of equal stages, and the longer ones with the first
    for summed, count in ((fill, p), (x0 + high, n_high + 1.0), (high - hop, n_high), (low - hop, n_low)):
        # one division a plan, not a design; a run of no stages counts nothing
        period = np.maximum(period, summed * ((count > 0) / np.maximum(count, 1.0)))

    k = np.minimum(p, m - 1.0)
    lows = np.minimum(k - 1.0, n_low)
    highs = np.minimum(np.maximum(k - 1.0 - n_low, 0.0), n_high)
    trip = (x3 + lows * (x2 + hop) + highs * (x1 + hop) + (k == p) * (x0 + one * hop)) * (k > 0)
    paced = np.maximum(trip + (m - 1.0 - k) * period, (m - 1.0) * x3)
    for f, b, x, holds in ((f0, b0, x0, p), (f1, b1, x1, n_low + 2.0), (f2, b2, x2, 2.0)):
        held = np.minimum(holds, m)
        paced = np.maximum(paced, (m - held) * x + (held - 1.0) * np.maximum(f, b))
    phases = np.maximum(np.maximum(f0, f1), np.maximum(f2, f3)) + np.maximum(np.maximum(b0, b1), np.maximum(b2, b3))
    plain = fill + np.where(is_gpipe, (m - 1.0) * phases, paced)
    if times.weights is not None and np.any(is_zero_bubble):
        moved = zero_bubble_time(times, stages, pipeline=pipeline, transfer=transfer, overlaps=overlaps)
        plain = np.where(is_zero_bubble, moved, plain)
    in_chunks = (interleave > 1) & (p > 1)
    if not np.any(in_chunks):  # saves a quarter of the operations of chunks of plans without interleaving; same bits
        return plain
    chunked = interleaved_time(times, stages, pipeline=p, interleave=interleave, transfer=transfer, overlaps=overlaps)
    return np.where(in_chunks, chunked, plain)


def interleaved_time(
    times: StageTimes, stages: Stages, *, pipeline: Any, interleave: Any, transfer: Any, overlaps: Any
) -> Any:
    """Seconds of interleaved 1F1B with an even split of the layers (equation in `pipeline_time`)."""
    p, m, v = pipeline, stages.micro_batches, interleave
    has_high = stages.high_count > 0  # only plans that break a rule have uneven stages here
    body = np.maximum(times.low[0], times.high[0] * has_high), np.maximum(times.low[1], times.high[1] * has_high)
    f, b = body[0] / v, body[1] / v
    chunk = f + b
    blocked = np.where(overlaps > 0, 0.0, transfer)
    lead = np.where(p > 2, blocked, 0.0)  # the ends send less than the stages inside
    e_f, e_b = np.maximum(times.first[0] - body[0] - lead, 0.0), np.maximum(times.first[1] - body[1] - lead, 0.0)
    e = e_f + e_b
    h = np.maximum(times.last[0] + times.last[1] - (body[0] + body[1]) - 2.0 * lead, 0.0)
    extra = np.maximum(
        np.maximum(p * e + m * h, (m - p) * e + np.minimum(2.0 * p, m) * h - chunk),
        m * e + p * (h - np.minimum(e_f, e_b)) - (p + 1.0) * np.minimum(f, b),
    )
    sent = np.where(overlaps > 0, 2.0 * (p * v - 1.0), m * (4.0 * v - 2.0 * (p == 2))) * transfer
    return (m * v + p - 1.0) * chunk + sent + extra


def zero_bubble_time(times: StageTimes, stages: Stages, *, pipeline: Any, transfer: Any, overlaps: Any) -> Any:
    """Seconds of ZB-H1: 1F1B whose weight gradients w follow s micro-batches after the backward pass b of stage s.

    f forward, b backward without w, x = f + b + w, h one transfer, m micro-batches, stages s = 0 .. p-1
      T = max over s of  begin(s) + max(m - 1 - s, 0) w_s + end(s)
      begin  the longer of  F(s) + m (f_s + b_s),  F(s) the forward passes before s and the transfers between, and
             F(p) + B(p) - B(s) + (m - k) f_s + (m - 1) b_s,  k = min(p - s, m): the first micro-batch comes back
             before more than k are let in;  B(s) backward passes before s
      end    the longer of  B(s) + w_0,  what is left of the backward chain, and  min(s + 1, m) w_s, what s delayed
             where w_s is not due yet (the first s micro-batches), round trips of the stages from s on may set the pace
    and at least, two trips: to the end and back to s, m - k more micro-batches let in there, the last of them to the
    end and back to 0:  F(p) + B(p) - B(s) + (m - k) f_s + (m - 1 - k) b_s + max(m - k - s, 0) w_s
                        + F(p) + B(p) - F(s + 1) + w_0
    and at least  F(p) + B(p) + w_0 + max(m - 1 - p, 0) P,  P = (F(p) + B(p) + w_0) / p a round trip of p.
    Of equal neighbouring stages the two ends and the middle are looked at.  Every term is a path through the
    schedule, so the error is one-sided: never too long but for rounding and the pace of early round trips.
    Equal stages without transfers: T = m x + (p - 1) (f + b - w).
    Source: Qi et al., arXiv 2401.10241, section 2.3 (ZB-H1).
    """
    assert times.weights is not None
    p, m = pipeline, stages.micro_batches
    hides = overlaps > 0
    blocked = transfer * (1.0 - hides)
    hop = np.where(hides, transfer, -transfer)  # a transfer that occupies both stages is in both and counts once
    n_high, n_low = stages.high_count, stages.low_count
    kinds = []
    for (f, b), w, present, ends in zip(
        (times.first, times.high, times.low, times.last), times.weights,
        (1.0, n_high > 0, n_low > 0, stages.has_last), (stages.has_last, 2.0, 2.0, stages.has_last), strict=True,
    ):  # fmt: skip
        more = blocked * ends
        kinds.append(((f + more) * present, (np.maximum(b - w, 0.0) + more) * present, np.minimum(w, b) * present))
    (f0, b0, w0), (f1, b1, w1), (f2, b2, _), (f3, b3, _) = kinds
    starts = (0.0, 1.0, n_high + 1.0, p - 1.0)
    sizes = (1.0, n_high, n_low, stages.has_last)
    forward = (0.0, f0 + hop, f0 + hop + n_high * (f1 + hop), f0 + hop + n_high * (f1 + hop) + n_low * (f2 + hop))
    backward = (0.0, b0 + hop, b0 + hop + n_high * (b1 + hop), b0 + hop + n_high * (b1 + hop) + n_low * (b2 + hop))
    one = stages.has_last
    trip = one * (forward[3] + backward[3] + f3 + b3) + (1.0 - one) * (f0 + b0)
    found = trip + w0 + np.maximum(m - 1.0 - p, 0.0) * ((trip + w0) / p)
    for (f, b, w), start, size, ahead, behind in zip(kinds, starts, sizes, forward, backward, strict=True):
        for part in (0.0, 0.5, 1.0):
            inside = np.floor(part * np.maximum(size - 1.0, 0.0))
            s = start + inside
            before_f, before_b = ahead + inside * (f + hop), behind + inside * (b + hop)
            held = np.minimum(p - s, m)
            early = np.minimum(s, m - held)
            around = np.maximum((trip - before_f - before_b) / np.maximum(p - s, 1.0), f + b)
            back = trip - before_b + early * around + (m - held - early) * f + (m - 1.0 - early) * b
            begin = np.maximum(before_f + m * (f + b), back)
            end = np.maximum(before_b + w0, np.minimum(s + 1.0, m) * w)
            longest = begin + np.maximum(m - 1.0 - s, 0.0) * w + end
            twice = trip - before_b + (m - held) * f + (m - 1.0 - held) * b + np.maximum(m - held - s, 0.0) * w
            twice = twice + (trip - before_f - f) + w0
            longest = np.maximum(longest, np.where(m > held, twice, 0.0))
            found = np.maximum(found, np.where(size > 0, longest, 0.0))
    return found
