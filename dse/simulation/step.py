"""One training step of one design as tasks on streams: passes, transfers, buckets, updates.

`simulate` draws a step, `simulated_step_time` only times it.  Prices come from `dse.simulation.prices`, orders of
passes from `dse.simulation.orders`; nothing else is assumed about how long anything takes together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from dse.evaluation.design import Design
from dse.simulation.engine import Engine, Span
from dse.simulation.orders import BACKWARD, FORWARD, WEIGHTS, Pass, passes_of
from dse.simulation.prices import Pieces, pieces
from dse.simulation.trace import Event, trace_json

__all__ = ["Timeline", "re_score", "simulate", "simulate_pieces", "simulated_step_time", "task_count"]

#: Tasks that one simulation may have before its micro-batches are reduced: drawing a step, only timing it.
DRAWN, TIMED = 200_000, 4_000

#: Tasks that take as long as pricing one design.
TASKS_OF_PRICES = 1_000

#: Gradients of a chunk are reduced in at most so many messages: more change the time by less than a per cent of it.
MOST_BUCKETS = 32


@dataclass(frozen=True)
class Timeline:
    """What every stream of every stage did.

    total           seconds of the step
    micro_batches   of the step; `drawn` of them are in the events, fewer where all would be too many
    """

    events: tuple[Event, ...]
    total: float
    micro_batches: int
    drawn: int
    design: str = ""

    def to_trace_json(self) -> str:
        """The events for Perfetto or chrome://tracing: a stage is a process, a stream a thread, in microseconds."""
        return trace_json(
            self.events, design=self.design, step_time_seconds=self.total, micro_batches=self.micro_batches,
            micro_batches_drawn=self.drawn,
        )  # fmt: skip


def simulate(design: Design, *, limit: int = DRAWN) -> Timeline:
    """The timeline of one step of one design (scalars).

    A step of more than `limit` tasks is drawn with fewer micro-batches, and its total extrapolated as
    `simulated_step_time` says.
    """
    step = pieces(design)
    drawn, total = step, None
    if task_count(step) > limit:
        few, more = _reduced(step, limit)
        if more.micro_batches < step.micro_batches:
            drawn, total = more, _extrapolated(step, few, more)
    found = simulate_pieces(drawn)
    name = f"{design.workload.network.name} on {design.chip.name}"
    return replace(found, total=found.total if total is None else total, micro_batches=step.micro_batches, design=name)


def simulated_step_time(design: Design, *, limit: int = TIMED) -> float:
    """Seconds of one step of one design by simulating it.

    Exact up to `limit` tasks.  Beyond it, two steps are simulated whose micro-batches differ by p stages: as many as
    the limit allows, at least 2 p and 3 p (with the remainder of the step's own number).  Schedules repeat
    themselves every p micro-batches once the pipeline is full, so their difference is the time of p more, and the
    rest follows in a straight line.  ValueError names the tasks where the order of a plan that breaks a rule
    (micro-batches that p does not divide, interleaved) makes stages wait for each other.
    """
    return _timed(pieces(design), limit)


def re_score(designs: Iterable[Design], *, limit: int = TIMED, budget: int | None = None) -> list[float]:
    """Simulated step times [s] of designs, each of scalars: a front judged by the reference.

    budget   tasks of all simulations together (None: no bound); designs after it is spent get NaN
    """
    found, spent = [], 0
    for design in designs:
        if budget is not None and spent >= budget:
            found.append(float("nan"))
            continue
        step = pieces(design)
        few, more = _reduced(step, limit)
        spent += TASKS_OF_PRICES + min(task_count(step), max(limit, task_count(few) + task_count(more)))
        found.append(_timed(step, limit))
    return found


def _timed(step: Pieces, limit: int) -> float:
    if task_count(step) > limit:
        few, more = _reduced(step, limit)
        if more.micro_batches < step.micro_batches:
            return _extrapolated(step, few, more)
    return _total(step)


def task_count(step: Pieces) -> int:
    """About how many tasks a step has: passes, and a transfer each way."""
    per_chunk = 4 if step.schedule != "zero_bubble" else 5
    return per_chunk * step.micro_batches * step.stages * len(step.chunks[0])


def _reduced(step: Pieces, limit: int) -> tuple[Pieces, Pieces]:
    """The same step with two numbers of micro-batches, one period of the schedule apart; `limit` tasks if possible."""
    p = max(step.stages, 2)
    allowed = limit * step.micro_batches // task_count(step)
    few = max(2, (allowed // p - 1) // 2) * p + step.micro_batches % p
    return replace(step, micro_batches=few), replace(step, micro_batches=few + p)


def _extrapolated(step: Pieces, few: Pieces, more: Pieces) -> float:
    low, high = _total(few), _total(more)
    periods = (step.micro_batches - more.micro_batches) / (more.micro_batches - few.micro_batches)
    return high + periods * (high - low)


def _total(step: Pieces) -> float:
    return max(span.end for span in _tasks(step).run().values())


def simulate_pieces(step: Pieces) -> Timeline:
    """The timeline of given pieces."""
    engine = _tasks(step)
    spans = engine.run()
    events = []
    for label, place in zip(engine.labels, engine.streams, strict=True):
        assert isinstance(label, tuple) and isinstance(place, tuple)
        span = spans[label]
        if span.end > span.start:
            name, stage, chunk, micro_batch = label[:4]
            events.append(Event(stage, place[1], name, micro_batch, chunk, span.start, span.end))
    events.sort(key=lambda event: (event.start, event.stage, event.stream))
    return Timeline(tuple(events), max(span.end for span in spans.values()), step.micro_batches, step.micro_batches)


# Tasks ------------------------------------------------------------------------------------------------------------
# A label is (what, stage, chunk, micro-batch), with the number of a slice where a pass is cut; -1: once a step.


def _tasks(step: Pieces) -> Engine:
    engine = Engine()
    held = [sum(chunk.parameters for chunk in stage) for stage in step.chunks]
    shares = [parameters / max(*held, 1e-300) if step.stages > 1 else 1.0 for parameters in held]
    for stage in range(step.stages):
        sliced = _buckets(step, stage, shares[stage])
        for item in passes_of(step.schedule, stage, step.stages, step.micro_batches, len(step.chunks[stage])):
            _add_pass(engine, step, stage, item, sliced)
        _add_reduction(engine, step, stage, shares[stage], sliced)
    _add_update(engine, step, shares)
    return engine


def _buckets(step: Pieces, stage: int, share: float) -> list[int]:
    """Messages in which the gradients of each chunk of a stage are reduced; one where nothing overlaps."""
    if not step.overlaps_reduction or step.reduction <= 0.0:
        return [1] * len(step.chunks[stage])
    total = sum(chunk.parameters for chunk in step.chunks[stage])
    parts = [chunk.parameters / total if total > 0 else 0.0 for chunk in step.chunks[stage]]
    return [min(max(round(step.buckets * share * part), 1), MOST_BUCKETS) for part in parts]


def _neighbour(step: Pieces, stage: int, item: Pass, ahead: int) -> tuple[int, int] | None:
    """Stage and chunk that a pass sends to (ahead 1) or waits for (-1); None at the ends of the network."""
    p, v = step.stages, len(step.chunks[stage])
    place = item.chunk * p + stage + (ahead if item.kind == FORWARD else -ahead)
    return (place % p, place // p) if 0 <= place < p * v else None


def _add_pass(engine: Engine, step: Pieces, stage: int, item: Pass, sliced: list[int]) -> None:
    """A pass on its stage, what brings its input before it, and what sends its output after it."""
    kind, chunk, i = item
    compute = (stage, "compute")
    label = (kind, stage, chunk, i)
    sends = kind != WEIGHTS and step.stages > 1
    source = _neighbour(step, stage, item, -1) if sends else None
    needs: tuple[Hashable, ...] = ()
    if source is not None:
        origin = (kind, source[0], source[1], i)
        if step.transfer <= 0.0:
            needs = (origin,)
        elif step.overlaps_transfer:
            needs = ((f"send {kind}", source[0], source[1], i),)
        else:
            engine.add((f"receive {kind}", stage, chunk, i), compute, step.transfer, needs=(origin,))
    _add_slices(engine, step, label, needs, sliced)
    target = _neighbour(step, stage, item, 1) if sends else None
    if target is not None and step.transfer > 0.0:
        link = compute if not step.overlaps_transfer else (stage, f"link to stage {target[0]}")
        priority = float(i) if step.overlaps_transfer else None
        engine.add((f"send {kind}", stage, chunk, i), link, step.transfer, needs=(label,), priority=priority)


def _add_slices(
    engine: Engine, step: Pieces, label: tuple[str, int, int, int], needs: tuple[Hashable, ...], sliced: list[int]
) -> None:
    """A pass, cut where it finishes a bucket of gradients: the last micro-batch's backward pass."""
    kind, stage, chunk, i = label
    priced, parted = step.chunks[stage][chunk], step.schedule == "zero_bubble"
    seconds = {
        FORWARD: priced.forward,
        BACKWARD: max(priced.backward - priced.weights, 0.0) if parted else priced.backward,
        WEIGHTS: min(priced.weights, priced.backward),
    }[kind]
    last = i == step.micro_batches - 1 and kind == (WEIGHTS if parted else BACKWARD)
    number = sliced[chunk] if last else 1
    for k in range(number):
        # the last slice has the label of the pass: it is what others wait for
        name: Hashable = label if k == number - 1 else (*label, k)
        engine.add(name, (stage, "compute"), seconds / number, needs=needs if k == 0 else ())


def _add_reduction(engine: Engine, step: Pieces, stage: int, share: float, sliced: list[int]) -> None:
    """Buckets of gradients as they are finished, on the network of the data axis.

    While a stage computes, a bucket advances at `overlap_efficiency` of its rate: what it lost it makes up after.
    """
    kind = WEIGHTS if step.schedule == "zero_bubble" else BACKWARD
    total = sum(chunk.parameters for chunk in step.chunks[stage])
    last = step.micro_batches - 1
    stop = _last_pass(step, stage)
    buckets: list[tuple[Hashable, float]] = []
    # the network is chunk by chunk in the order in which they finish: the last chunk of the network first
    for chunk in reversed(range(len(step.chunks[stage]))):
        part = step.chunks[stage][chunk].parameters / total if total > 0 else 0.0
        seconds = step.reduction * share * part / sliced[chunk]
        for k in range(sliced[chunk]):
            done: Hashable = (kind, stage, chunk, last, k) if k < sliced[chunk] - 1 else (kind, stage, chunk, last)
            label = ("reduce gradients", stage, chunk, -1, k)
            needs = (done,) if step.overlaps_reduction else (done, stop)
            engine.add(label, (stage, "data"), seconds, needs=needs)
            buckets.append((label, seconds))

    def lost(spans: Mapping[Hashable, Span]) -> float:
        """Seconds that buckets lost while the stage computed."""
        end = spans[stop].end
        over = sum(min(max(end - spans[label].start, 0.0), seconds) for label, seconds in buckets)
        return (1.0 - step.overlap_efficiency) * over

    engine.add(("reduce gradients", stage, 0, -1, -1), (stage, "data"), lost, needs=(stop,))


def _last_pass(step: Pieces, stage: int) -> Hashable:
    kind, chunk, i = passes_of(step.schedule, stage, step.stages, step.micro_batches, len(step.chunks[stage]))[-1]
    return (kind, stage, chunk, i)


def _add_update(engine: Engine, step: Pieces, shares: list[float]) -> None:
    """Tied embedding, then on every stage the update (it needs the norm of all gradients) and the weights' gather."""
    ends = sorted({0, step.stages - 1})
    reduced = {stage: ("reduce gradients", stage, 0, -1, -1) for stage in range(step.stages)}
    for stage in ends:
        engine.add(("tied embedding", stage, 0, -1), (stage, "data"), step.tied, needs=tuple(reduced[s] for s in ends))
    norm = ("norm of gradients", 0, 0, -1)
    engine.add(norm, (0, "norm"), 0.0, needs=tuple(reduced.values()) + tuple(
        ("tied embedding", stage, 0, -1) for stage in ends
    ))  # fmt: skip
    for stage, share in enumerate(shares):
        engine.add(("update", stage, 0, -1), (stage, "compute"), step.update * share, needs=(norm,))
        label = ("gather weights", stage, 0, -1)
        engine.add(label, (stage, "data"), step.gather * share, needs=(("update", stage, 0, -1),))
    gathered = tuple(("gather weights", stage, 0, -1) for stage in range(step.stages))
    for stage in range(step.stages):
        engine.add(("step overhead", stage, 0, -1), (stage, "compute"), step.overhead, needs=gathered)
