"""How long a pipeline takes, event by event: stages execute a written-down order of passes, one at a time.

A pass starts when its stage is free and what it reads has arrived.  f forward, b backward, w weight gradients (apart in
zero-bubble schedules only), of micro-batch i in chunk j of a stage; stage s holds chunks s, s + p, s + 2 p, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Step = tuple[str, int, int]


@dataclass(frozen=True)
class Pipeline:
    """forward[s][j], backward[s][j]   seconds of one micro-batch in chunk j of stage s
    weights[s]   part of the backward seconds that are weight gradients (one chunk)
    transfer     seconds a boundary takes; blocking: sender and receiver wait for it
    """

    forward: list[list[float]]
    backward: list[list[float]]
    weights: list[float]
    micro_batches: int
    transfer: float
    blocking: bool


def order(schedule: str, stage: int, p: int, m: int, chunks: int) -> Iterator[Step]:
    """The passes of a stage in their order."""
    if schedule == "gpipe":
        yield from (("f", 0, i) for i in range(m))
        yield from (("b", 0, i) for i in range(m))
        return
    total = m * chunks
    ahead = min(2 * (p - 1 - stage) + (chunks - 1) * p if chunks > 1 else p - 1 - stage, total)

    def nth(number: int, kind: str) -> Step:
        turn, place = divmod(number, p * chunks)  # p micro-batches go through all chunks, then the next p
        chunk = place // p
        return kind, chunk if kind == "f" else chunks - 1 - chunk, turn * p + place % p

    owed: list[Step] = []
    for number in range(total + ahead):
        if number < total:
            yield nth(number, "f") if chunks > 1 else ("f", 0, number)
        if number >= ahead:
            done = number - ahead
            step = nth(done, "b") if chunks > 1 else ("b", 0, done)
            yield step
            if schedule == "zero_bubble":
                owed.append(("w", 0, step[2]))
                if len(owed) > stage:
                    yield owed.pop(0)
    yield from owed


def seconds(line: Pipeline, schedule: str) -> float:
    """From the first forward to the end of the last pass."""
    p, v, m, c = len(line.forward), len(line.forward[0]), line.micro_batches, line.transfer
    if p == 1:
        return m * (sum(line.forward[0]) + sum(line.backward[0]))
    backward, weights = line.backward, [[0.0] * v] * p
    if schedule == "zero_bubble":
        weights = [[min(late, b[0])] for late, b in zip(line.weights, line.backward, strict=True)]
        backward = [[b[0] - late[0]] for b, late in zip(line.backward, weights, strict=True)]
    cost = {"f": line.forward, "b": backward, "w": weights}
    todo = [list(order(schedule, stage, p, m, v)) for stage in range(p)]
    at, free, done = [0] * p, [0.0] * p, {}
    left = sum(len(steps) for steps in todo)
    while left:
        before = left
        for stage in range(p):
            while at[stage] < len(todo[stage]):
                kind, chunk, i = todo[stage][at[stage]]
                place, start = chunk * p + stage, free[stage]
                source = {"f": place - 1, "b": place + 1, "w": -1}[kind]
                target = {"f": place + 1, "b": place - 1, "w": -1}[kind]
                if 0 <= source < p * v:
                    if (kind, source, i) not in done:
                        break
                    sent = done[kind, source, i]
                    start = max(start, sent) + c if line.blocking else max(start, sent + c)
                elif kind == "b" and ("f", place, i) not in done:
                    break
                done[kind, place, i] = start + cost[kind][stage][chunk]
                free[stage] = done[kind, place, i] + (c if line.blocking and 0 <= target < p * v else 0.0)
                at[stage] += 1
                left -= 1
        if left == before:
            raise RuntimeError(f"{schedule}: stages wait for each other")
    return max(done.values())
