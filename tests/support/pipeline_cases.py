"""Random pipelines, and what the closed form and the event simulation say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pipeline_simulator import Pipeline, run

from dse.evaluation.schedule import StageTimes, pipeline_time
from dse.evaluation.stages import Stages

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")


@dataclass(frozen=True)
class Case:
    """A random pipeline: uneven layers, embedding on the first stage, head on the last."""

    stages: int
    micro_batches: int
    chunks: int
    low: int
    extra: int
    balanced: int
    body: tuple[float, float]
    embedding: tuple[float, float]
    head: tuple[float, float]
    transfer: float
    #: Share of the backward pass that is weight gradients.
    weights: float = 0.0

    @property
    def layers(self) -> list[int]:
        found = [self.low + (1 if stage < self.extra else 0) for stage in range(self.stages)]
        found[0] -= self.balanced
        found[-1] -= self.balanced
        return found


def random_cases(schedule: str, count: int) -> list[Case]:
    rng = np.random.default_rng(7919)
    found = []
    for _ in range(count):
        stages, chunks, balanced, extra = int(rng.integers(2, 13)), 1, 0, 0
        if schedule == "interleaved":
            chunks = int(rng.integers(2, 5))
            micro_batches = stages * int(rng.integers(1, 40 // stages + 1))
            low = chunks * int(rng.integers(1, 4))
        else:
            micro_batches, balanced = int(rng.integers(1, 41)), int(rng.integers(0, 2))
            low, extra = int(rng.integers(1 + balanced, 9)), int(rng.integers(0, stages))
        body = (1.0, float(rng.uniform(1.5, 3.0)))
        embedding = tuple(float(rng.uniform(0.0, 1.0) * body[0]) for _ in range(2))
        head = tuple(float(rng.uniform(0.0, 1.5)) * part * (rng.random() < 0.7) for part in body)
        transfer = float(rng.uniform(0.0, 0.1)) * low * sum(body) / chunks
        weights = float(rng.uniform(0.3, 0.5)) if schedule == "zero_bubble" else 0.0
        counts = (stages, micro_batches, chunks, low, extra, balanced)
        found.append(Case(*counts, body, embedding, head, transfer, weights))
    return found


def simulated(case: Case, schedule: str, *, blocking: bool, keep: list[Pipeline] | None = None) -> float:
    """Seconds by the simulator; `keep` receives the pipeline that it ran."""
    parts: tuple[list[list[float]], list[list[float]]] = ([], [])
    for which, stages in enumerate(parts):
        for stage, layers in enumerate(case.layers):
            chunks = [layers * case.body[which] / case.chunks] * case.chunks
            if stage == 0:
                chunks[0] += case.embedding[which]
            if stage == case.stages - 1:
                chunks[-1] += case.head[which]
            stages.append(chunks)
    weights = [[case.weights * chunk for chunk in stage] for stage in parts[1]]
    backward = [[chunk * (1.0 - case.weights) for chunk in stage] for stage in parts[1]]
    pipeline = Pipeline(parts[0], backward, case.micro_batches, case.transfer, blocking, weights)
    if keep is not None:
        keep.append(pipeline)
    return run(pipeline, schedule)


def closed_form(cases: list[Case], schedule: str, *, blocking: bool) -> np.ndarray:
    def column(value: Any) -> np.ndarray:
        return np.array([value(case) for case in cases], dtype=float)

    stages, low, extra = column(lambda c: c.stages), column(lambda c: c.low), column(lambda c: c.extra)
    first, last = column(lambda c: c.layers[0]), column(lambda c: c.layers[-1])
    high_count, one = np.maximum(extra - 1.0, 0.0), np.ones(len(cases))
    layout = Stages(
        first=first,
        high=low + 1.0,
        low=low,
        last=last,
        high_count=high_count,
        low_count=stages - 2.0 - high_count,
        is_single=0.0 * one,
        has_last=one,
        micro_batches=column(lambda c: c.micro_batches),
    )
    body = [column(lambda c, i=i: c.body[i]) for i in (0, 1)]
    embedding = [column(lambda c, i=i: c.embedding[i]) for i in (0, 1)]
    head = [column(lambda c, i=i: c.head[i]) for i in (0, 1)]
    share = column(lambda c: c.weights)
    late = (first * body[1] + embedding[1], (low + 1.0) * body[1], low * body[1], last * body[1] + head[1])
    times = StageTimes(
        first=(first * body[0] + embedding[0], first * body[1] + embedding[1]),
        high=((low + 1.0) * body[0], (low + 1.0) * body[1]),
        low=(low * body[0], low * body[1]),
        last=(last * body[0] + head[0], last * body[1] + head[1]),
        weights=(share * late[0], share * late[1], share * late[2], share * late[3]),
    )
    return np.asarray(
        pipeline_time(
            times,
            layout,
            pipeline=stages,
            interleave=column(lambda c: c.chunks),
            is_gpipe=np.full(len(cases), schedule == "gpipe"),
            transfer=column(lambda c: c.transfer),
            overlaps=one * (not blocking),
            is_zero_bubble=np.full(len(cases), schedule == "zero_bubble"),
        )
    )


def errors(schedule: str, count: int, *, blocking: bool = False) -> tuple[np.ndarray, list[Case]]:
    """Relative error of the closed form on random plans."""
    cases = random_cases(schedule, count)
    truth = np.array([simulated(case, schedule, blocking=blocking) for case in cases])
    return closed_form(cases, schedule, blocking=blocking) / truth - 1.0, cases
