"""An event simulation of pipeline schedules: what every stage does and when, one pass of one micro-batch at a time.

It shares no formula with the closed forms it judges: stages execute a written-down order of passes, a pass starts
when its stage is free and its input has arrived, and nothing else is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A pass: ("f", "b" or "w", chunk of the stage, micro-batch); "w" is the part of a backward pass no stage waits for.
Pass = tuple[str, int, int]


@dataclass(frozen=True)
class Pipeline:
    """forward[s][j], backward[s][j]   seconds of chunk j of stage s for one micro-batch
    transfer   seconds one message takes between neighbouring chunks
    blocking   True: sender and receiver do nothing else during a transfer
    weights[s][j]   seconds of weight gradients, not in `backward`; read by "zero_bubble" only
    """

    forward: list[list[float]]
    backward: list[list[float]]
    micro_batches: int
    transfer: float = 0.0
    blocking: bool = False
    weights: list[list[float]] | None = None

    @property
    def stages(self) -> int:
        return len(self.forward)

    @property
    def chunks(self) -> int:
        return len(self.forward[0])


def gpipe_order(stage: int, pipeline: Pipeline) -> list[Pass]:
    """Every forward, then every backward."""
    m = pipeline.micro_batches
    return [("f", 0, i) for i in range(m)] + [("b", 0, i) for i in range(m)]


def one_forward_one_backward_order(stage: int, pipeline: Pipeline) -> list[Pass]:
    """Forwards until `stages - stage` micro-batches are held, then one backward, one forward, ..., then backwards."""
    m = pipeline.micro_batches
    ahead = min(pipeline.stages - stage - 1, m)
    order: list[Pass] = [("f", 0, i) for i in range(ahead)]
    for i in range(m - ahead):
        order += [("f", 0, ahead + i), ("b", 0, i)]
    return order + [("b", 0, i) for i in range(m - ahead, m)]


def interleaved_order(stage: int, pipeline: Pipeline) -> list[Pass]:
    """Chunks in turn, `stages` micro-batches each (Narayanan et al. 2021, figure 4, lower half)."""
    p, v, total = pipeline.stages, pipeline.chunks, pipeline.micro_batches * pipeline.chunks

    def at(step: int, forward: bool) -> Pass:
        chunk = step % (p * v) // p
        micro_batch = step // (p * v) * p + step % p
        return ("f", chunk, micro_batch) if forward else ("b", v - 1 - chunk, micro_batch)

    ahead = min(2 * (p - stage - 1) + (v - 1) * p, total)
    order = [at(i, True) for i in range(ahead)]
    for i in range(total - ahead):
        order += [at(ahead + i, True), at(i, False)]
    return order + [at(i, False) for i in range(total - ahead, total)]


def zero_bubble_order(stage: int, pipeline: Pipeline) -> list[Pass]:
    """1F1B order; a weight gradient as soon as `stage` younger backward passes are done, the rest at the end."""
    owed: list[int] = []
    order: list[Pass] = []
    for step in one_forward_one_backward_order(stage, pipeline):
        order.append(step)
        if step[0] == "b":
            owed.append(step[2])
            if len(owed) > stage:
                order.append(("w", 0, owed.pop(0)))
    return order + [("w", 0, i) for i in owed]


ORDERS = {"gpipe": gpipe_order, "1f1b": one_forward_one_backward_order, "interleaved": interleaved_order,
          "zero_bubble": zero_bubble_order}  # fmt: skip


def run(pipeline: Pipeline, schedule: str) -> float:
    """Seconds from the first forward to the end of the last backward."""
    p, v, c = pipeline.stages, pipeline.chunks, pipeline.transfer
    orders = [ORDERS[schedule](stage, pipeline) for stage in range(p)]
    position, free = [0] * p, [0.0] * p
    done: dict[tuple[int, Pass], float] = {}

    def source(stage: int, step: Pass) -> tuple[int, Pass] | None:
        """The pass on another chunk that a pass waits for; None where it needs only what its stage has."""
        kind, chunk, i = step
        if kind == "w":
            return None
        place = chunk * p + stage + (-1 if kind == "f" else 1)
        if not 0 <= place < p * v:
            return None
        return place % p, (kind, place // p, i)

    def receivers(stage: int, step: Pass) -> bool:
        kind, chunk, _ = step
        if kind == "w":
            return False
        place = chunk * p + stage + (1 if kind == "f" else -1)
        return 0 <= place < p * v and p > 1

    seconds = {"f": pipeline.forward, "b": pipeline.backward, "w": pipeline.weights or []}
    waiting = sum(len(order) for order in orders)
    while waiting:
        progressed = False
        for stage in range(p):
            while position[stage] < len(orders[stage]):
                step = orders[stage][position[stage]]
                kind, chunk, i = step
                start, needs = free[stage], source(stage, step)
                if needs is not None:
                    if needs not in done:
                        break
                    # blocking: the message moves while this stage waits; otherwise it travelled by itself
                    start = max(start, done[needs]) + c if pipeline.blocking else max(start, done[needs] + c)
                elif kind == "b" and (stage, ("f", chunk, i)) not in done:
                    break
                end = start + seconds[kind][stage][chunk]
                done[stage, step] = end
                free[stage] = end + (c if pipeline.blocking and receivers(stage, step) else 0.0)
                position[stage] += 1
                waiting -= 1
                progressed = True
        if not progressed:
            raise RuntimeError(f"{schedule}: stages wait for each other")
    return max(done.values())


def most_held(pipeline: Pipeline, schedule: str) -> list[int]:
    """Largest number of chunk activations a stage holds at once, by the order of its passes."""
    found = []
    for stage in range(pipeline.stages):
        held = largest = 0
        frees = "w" if schedule == "zero_bubble" else "b"
        for kind, _, _ in ORDERS[schedule](stage, pipeline):
            held += (kind == "f") - (kind == frees)
            largest = max(largest, held)
        found.append(largest)
    return found
