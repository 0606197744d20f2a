"""Why a design takes as long as it does: parts, operators, collectives, limits and elasticities as data, no text.

`account` opens one evaluation, `comparison` sets two side by side.  Nothing here prices anything in a second way:
every number is read from the same steps that `dse.evaluate` goes through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from dse.evaluation.combine import stage_times
from dse.evaluation.design import POWER_RULE, Design, Rows, rows
from dse.evaluation.evaluate import evaluate as evaluate_columns
from dse.evaluation.evaluate import evaluate_rows, passes, settled
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.memory import in_flight
from dse.evaluation.messages import Part as Sent
from dse.evaluation.price import (
    EVERY_SECOND,
    REPEATED,
    OperatorPrices,
    price_attention,
    price_matmuls,
    price_vectors,
)
from dse.evaluation.result import ENERGY_PARTS, MEMORY_PARTS, METRICS, TIME_PARTS, Result
from dse.evaluation.stages import layer_counts
from dse.evaluation.traffic import Call, Traffic, price_traffic
from dse.evaluation.violations import DEVICES_RULE
from dse.evaluation.work import Task
from dse.inputs.serialize import design_to_plain, plain
from dse.insight.elasticity import Elasticity, elasticities
from dse.insight.uncertainty import UncertainPair, uncertain_pairs
from hw_models.network.collective_time import collective_time
from hw_models.stack import ALGORITHMS
from workloads.plan import FULL, NONE, PER_OPERATOR, SELECTIVE

__all__ = [
    "Account", "Collective", "Comparison", "Constraint", "InputDifference", "MetricPair", "Operator", "Part",
    "PartDifference", "StageKind", "account", "comparison", "part_differences",
]

Limits = tuple[tuple[str, str, float], ...]

_MODELS = ("design", "evaluation")


@dataclass(frozen=True)
class Part:
    """A part of a whole: value in the whole's unit, share of it (the shares of a whole add up to 1)."""

    name: str
    value: float
    share: float


@dataclass(frozen=True)
class Operator:
    """One operator of a block in one phase, on one device.

    time         seconds for one micro-batch and one block, launch included
    blocks       how many such blocks the network has
    device_time  seconds a step and device, mean over pipeline stages
    share        of the device's operator time a step
    binding      what takes longest: array, sram, hbm, vector, launch, or host (which issues the kernels)
    utilisation  of the arrays' peak during `time`; None for a pass without matrix products
    """

    block: str
    operator: str
    phase: str
    time: float
    blocks: int
    device_time: float
    share: float
    binding: str
    utilisation: float | None


@dataclass(frozen=True)
class Collective:
    """What one device communicates over one axis in a step.

    kind             collectives of one call, e.g. "reduce-scatter + all-gather"
    ranks, message   size of the group and bytes of the full tensor of one call
    calls            a step and device, mean over stages
    algorithm        the cheapest the stack has ("direct" for a point-to-point transfer)
    bytes_by_tier    bytes one device sends in one call at each tier, innermost first
    tier             outermost tier that the group crosses (0 is the innermost)
    time             seconds of one call
    exposed          seconds a step during which devices wait for it; None where they are part of the bubble
    """

    name: str
    kind: str
    axis: str
    ranks: int
    message: float
    calls: float
    algorithm: str
    bytes_by_tier: tuple[float, ...]
    tier: int
    time: float
    exposed: float | None


@dataclass(frozen=True)
class Constraint:
    """A rule or limit: `found relation limit` holds or not.  limit None: reported, not limited.

    margin   (limit - found) / limit for <=, (found - limit) / limit for >=, None for a rule of whole numbers
    """

    name: str
    found: float
    relation: str
    limit: float | None
    unit: str
    satisfied: bool
    margin: float | None


@dataclass(frozen=True)
class StageKind:
    """Pipeline stages that are alike: layers, micro-batches in flight, seconds a micro-batch, memory of one device.

    in_flight and memory of a kind with several stages are those of its fullest stage; memory is without reserve.
    """

    name: str
    stages: int
    layers: int
    in_flight: float
    forward: float
    backward: float
    memory: float


@dataclass(frozen=True)
class Account:
    """Everything that explains one evaluation.

    time        parts of the step [s];  energy  parts of the step, whole cluster [J];  memory  of the fullest device [B]
    operators   of one device, longest first;  streams  operator time a step by the stream that binds it [s]
    resources   what the step waits for: streams, exposed communication, bubble, update, overhead [s], largest first
    elasticities  by size;  unmoved  parameters without effect;  unstepped  parameters that are 0 now
    clock       at which the step runs [Hz]: below the chip's own where a power cap holds it
    """

    design: Design
    evaluation: Result
    time: tuple[Part, ...]
    energy: tuple[Part, ...]
    memory: tuple[Part, ...]
    operators: tuple[Operator, ...]
    streams: tuple[Part, ...]
    resources: tuple[Part, ...]
    collectives: tuple[Collective, ...]
    constraints: tuple[Constraint, ...]
    stages: tuple[StageKind, ...]
    elasticities: tuple[Elasticity, ...]
    unmoved: tuple[str, ...]
    unstepped: tuple[str, ...]
    clock: float

    @property
    def feasible(self) -> bool:
        """No rule and no limit is broken."""
        return all(item.satisfied for item in self.constraints)

    def value(self, name: str) -> float:
        """A metric of the design."""
        return float(self.evaluation.value(name))

    def to_plain(self) -> dict[str, Any]:
        """The account as JSON-able data in base SI."""
        return {
            "feasible": self.feasible,
            "metrics": {name: self.value(name) for name in METRICS},
            "units": {name: unit for name, (unit, _) in METRICS.items()},
            **{item.name: plain(getattr(self, item.name)) for item in fields(self) if item.name not in _MODELS},
            "design": design_to_plain(self.design),
        }


def account(design: Design, limits: Limits = ()) -> Account:
    """The account of one design of scalars.

    limits   further limits on metrics as (metric, "<=" or ">=", bound in the metric's unit)
    """
    r = rows(design)
    layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
    found = evaluate_rows(r, layout)
    if len(found) != 1:
        raise ValueError(f"design: found {len(found)} designs, allowed: one (choose a row, e.g. result.design_of(3))")
    evaluation = Result(found.metrics, found.violations, found.shape, design)
    value = {name: evaluation.value(name) for name in METRICS}
    traffic = price_traffic(r, layout)
    r = settled(r, layout, traffic)  # what follows looks into the step at the clock at which it runs
    operators, seconds = _operators(r, layout, value)
    streams = _parts(seconds)
    waits = {part.name: part.value for part in streams if part.value > 0}
    waits |= {name: value[name] for name in TIME_PARTS if name not in _OPERATOR_TIME and value[name] > 0}
    moved, unmoved, unstepped = elasticities(design)
    return Account(
        design=design,
        evaluation=evaluation,
        time=_parts({name: value[name] for name in TIME_PARTS}),
        energy=_parts({name: value[name] for name in ENERGY_PARTS}),
        memory=_parts({name: value[name] for name in MEMORY_PARTS}),
        operators=operators,
        streams=streams,
        resources=tuple(sorted(_parts(waits), key=lambda part: -part.value)),
        collectives=_collectives(r, layout, traffic, value),
        constraints=_constraints(r, layout, evaluation, limits),
        stages=_stages(r, layout, traffic),
        elasticities=moved,
        unmoved=unmoved,
        unstepped=unstepped,
        clock=_number(r.chip.clock),
    )


_OPERATOR_TIME = ("time_forward", "time_backward", "time_recompute")


def _parts(values: Mapping[str, float]) -> tuple[Part, ...]:
    total = math.fsum(values.values())
    return tuple(Part(name, value, value / total if total else 0.0) for name, value in values.items())


def _number(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _operators(r: Rows, layout: Layout, value: Mapping[str, float]) -> tuple[tuple[Operator, ...], dict[str, float]]:
    """Operators of one device, longest first, and their seconds a step by binding stream.

    The rows add up to forward, backward and recomputation: recomputed operators are rows of their own.
    """
    peak = _number(r.rated_chip.peak_flops(r.training.precision))
    share = value["micro_batches"] / _number(layout.plan.pipeline)
    total = math.fsum(value[name] for name in _OPERATOR_TIME)
    seconds = dict.fromkeys(("array", "vector", "hbm", "sram", "launch"), 0.0)
    found: list[Operator] = []
    work = layout.work
    tables: dict[str, tuple[OperatorPrices, Any]] = {
        "product": (price_matmuls(r, work), work.m * work.n * work.k * work.groups),
        "pass": (price_vectors(r, work), None),
    }
    if work.fused is not None:
        tables["attention"] = (price_attention(r, work.fused), work.fused.macs)
    for task in work.tasks:
        prices, macs = tables[task.kind]
        stream, streamed = _priced(prices, task.row)
        launch = task.launches * _number(r.stack.kernel_launch)
        time = streamed + launch
        utilisation = None if macs is None or not time else 2.0 * _number(macs[task.row]) / peak / time
        binding = "launch" if launch > streamed else stream
        for phase, layers in _runs(layout, task):
            device = share * layers * task.times * time
            block = layout.blocks[task.place]
            count = int(block.count * task.times)
            found.append(
                Operator(block.name, task.operator, phase, time, count, device, device / total, binding,
                         utilisation)
            )  # fmt: skip
            waiting = device * (launch / time) if time else 0.0
            seconds["launch"] += waiting
            seconds[stream] += device - waiting
    kept = sorted((item for item in found if item.time > 0), key=lambda item: -item.device_time)
    return tuple(kept), seconds


def _runs(layout: Layout, task: Task) -> Iterator[tuple[str, float]]:
    """In which phases a task runs, and in how many layers: its own, and what recomputation repeats of it."""
    yield task.phase, float(layout.blocks[task.place].count)
    recompute = int(_number(layout.plan.recompute))
    if task.backward or task.place not in REPEATED or recompute == NONE:
        return
    repeated = _number(layout.stages.repeated_total) if task.place == "body" else layout.blocks["lead"].count
    share = {
        FULL: 1.0,
        SELECTIVE: float(task.core),
        PER_OPERATOR: 0.0 if task.core else EVERY_SECOND if task.kind == "product" else 1.0,
    }[recompute]
    if share and repeated:
        yield "recompute", share * repeated


def _priced(prices: OperatorPrices, row: int) -> tuple[str, float]:
    """Slowest stream of a priced operator, and its seconds."""
    streams = {name: _number(table[row]) for name, table in prices.streams.items()}
    slowest = max(streams, key=lambda name: streams[name])
    return slowest, streams[slowest]


def _collectives(r: Rows, layout: Layout, traffic: Traffic, value: Mapping[str, float]) -> tuple[Collective, ...]:
    """Everything one device sends in a step; axes of one rank and empty messages are left out."""
    after = _number(layout.reductions.spread(traffic.gather.time)) + _number(traffic.tied.time)
    # keyed by line: seconds that devices wait; the rest waits as part of the bubble or of time_shard
    waits = {
        "block boundaries": value["time_tensor"], "keys and values": value["time_context"],
        "routed rows": value["time_expert"], "gradients": max(value["time_data"] - after, 0.0),
        "updated weights": _number(traffic.gather.time), "tied embedding": _number(traffic.tied.time),
    }  # fmt: skip
    splits, in_parts = _number(r.stack.split_boundary) > 0, _number(layout.plan.sequence_parallel) > 0
    found = []
    for line in layout.ledger.lines:
        parts = [
            part for part in (line.split if splits and line.split is not None else line.parts)
            if _number(part.message.size) >= 2 and _number(part.message.message) > 0
        ]  # fmt: skip
        if not parts:
            continue
        kinds = [part.kind for part in parts]
        if line.call == "exchange" and in_parts:  # an all-reduce in its two halves
            kinds = ["reduce_scatter", "all_gather"]
        priced = [(kind, part) for part in parts for kind in (kinds if len(parts) == 1 else [part.kind])]
        by_tier = _bytes_by_tier(r, priced)
        call: Call = getattr(traffic, line.call)
        number = int(_number(call.algorithm))
        crossed = [tier for tier, count in enumerate(by_tier) if count > 0]
        first = parts[0].message
        found.append(
            Collective(
                name=line.name, kind=" + ".join(dict.fromkeys(kind.replace("_", "-") for kind in kinds)),
                axis="first and last stage" if line.call == "tied" else line.axis,
                ranks=int(_number(first.size)), message=_number(first.message),
                calls=_number(layout.ledger.fold(lambda _: 1.0, (line,))),
                algorithm=ALGORITHMS[number] if number >= 0 else "direct",
                bytes_by_tier=by_tier, tier=max(crossed, default=0), time=_number(call.time),
                exposed=waits.get(line.name),
            )
        )
    return tuple(found)


def _bytes_by_tier(r: Rows, priced: list[tuple[str, Sent]]) -> tuple[float, ...]:
    """Bytes one device sends at each tier in the messages of one call."""
    total = [0.0] * len(r.cluster.tiers)
    for kind, part in priced:
        sent = part.message
        cost = collective_time(
            r.cluster, r.chip, r.stack, kind,
            size=sent.size, stride=sent.distance, message=sent.message, copies=part.copies,
        )  # fmt: skip
        total = [before + _number(tier) for before, tier in zip(total, cost.bytes_by_tier, strict=True)]
    return tuple(total)


def _constraints(r: Rows, layout: Layout, evaluation: Result, limits: Limits) -> tuple[Constraint, ...]:
    """Memory, area, TDP and further limits with their room; then the rules of whole numbers."""
    limited = [("memory", "<=", _number(r.chip.hbm_capacity)), *limits]
    found = []
    for metric, relation, bound in limited:
        if metric not in METRICS or relation not in ("<=", ">="):
            allowed = "a metric with <= or >=; metrics: " + ", ".join(METRICS)
            raise ValueError(f"limits: found ({metric!r}, {relation!r}), allowed: {allowed}")
        used = evaluation.value(metric)
        room = bound - used if relation == "<=" else used - bound
        margin = room / abs(bound) if bound else room
        found.append(Constraint(metric, used, relation, bound, METRICS[metric][0], room >= 0, margin))
    for metric in ("die_area", "tdp"):
        if metric not in {item.name for item in found}:
            value = evaluation.value(metric)
            found.append(Constraint(metric, value, "", None, METRICS[metric][0], True, None))
    plan = layout.plan
    for name in evaluation.violations:
        if name == "memory":
            continue
        broken = float(evaluation.violation(name)[0])
        left, relation, right = broken, "==", 0.0
        if name == DEVICES_RULE:
            degrees = plan.tensor * plan.pipeline * plan.data * plan.context
            left, right = _number(degrees), _number(r.cluster.devices)
        elif name == "pipeline <= layers":
            left, relation, right = _number(plan.pipeline), "<=", float(layer_counts(layout.blocks)[0])
        elif name == POWER_RULE:
            found.append(_power_constraint(r, broken))
            continue
        found.append(Constraint(name, left, relation, right, "", broken <= 0, None))
    return tuple(found)


def _power_constraint(r: Rows, excess: float) -> Constraint:
    """The power cap against what the chip draws at its lowest clock."""
    cap = _number(r.rated_chip.power_cap)
    return Constraint(POWER_RULE, cap * (1.0 + excess), "<=", cap, "W", excess <= 0, -excess)


def _stages(r: Rows, layout: Layout, traffic: Traffic) -> tuple[StageKind, ...]:
    """Stage kinds in pipeline order with what each holds and takes."""
    stages, held = layout.stages, layout.memory.by_stage
    times = stage_times(r, layout, passes(r, layout, traffic))
    flying = [_number(count) for count in in_flight(layout.plan, stages)]
    single = bool(_number(stages.is_single))
    lead = float(layout.blocks["lead"].count)
    kinds: list[tuple[str, int, float, float, Any, Any]]
    kinds = [("only" if single else "first", 1, _number(stages.first) + lead, flying[0], held[0], times.first)]
    for kind in ("high", "low"):
        count = int(_number(getattr(stages, f"{kind}_count")))
        if count:
            layers = _number(getattr(stages, kind))
            kinds.append(("middle", count, layers, flying[1], held[1], getattr(times, kind)))
    if not single:
        kinds.append(("last", 1, _number(stages.last), flying[2], held[2], times.last))
    return tuple(
        StageKind(name, count, int(layers), in_work, _number(time[0]), _number(time[1]), _number(bytes_held))
        for name, count, layers, in_work, bytes_held, time in kinds
    )


@dataclass(frozen=True)
class InputDifference:
    """An input that two designs do not share; None: the design has no such field."""

    name: str
    a: Any
    b: Any
    unit: str


@dataclass(frozen=True)
class MetricPair:
    """A metric of both designs; ratio b / a, None where a is 0."""

    name: str
    unit: str
    a: float
    b: float
    ratio: float | None


@dataclass(frozen=True)
class PartDifference:
    """A part of both designs; difference b - a, and its share of the whole difference (None where there is none)."""

    name: str
    a: float
    b: float
    difference: float
    share: float | None


@dataclass(frozen=True)
class Comparison:
    """Two designs side by side.

    time, energy   parts whose differences add up to the difference of step time [s] and energy a step [J],
                   largest difference first
    uncertainty    90% intervals of step time, throughput and energy, and the probability that a is better
    same_work      both train the same network with the same batch and sequence
    """

    a: Result
    b: Result
    inputs: tuple[InputDifference, ...]
    metrics: tuple[MetricPair, ...]
    time: tuple[PartDifference, ...]
    energy: tuple[PartDifference, ...]
    uncertainty: tuple[UncertainPair, ...]
    same_work: bool

    def to_plain(self) -> dict[str, Any]:
        """The comparison as JSON-able data in base SI."""
        found = {item.name: plain(getattr(self, item.name)) for item in fields(self) if item.name not in ("a", "b")}
        return found | {"a": design_to_plain(self.a.design), "b": design_to_plain(self.b.design)}


def comparison(a: Design, b: Design) -> Comparison:
    """What differs between two designs of scalars, in what goes in and in what comes out."""
    results = []
    for name, design in (("a", a), ("b", b)):
        found = evaluate_columns(design)
        if len(found) != 1:
            raise ValueError(f"{name}: found {len(found)} designs, allowed: one")
        results.append(Result(found.metrics, found.violations, found.shape, design))
    first, second = results
    pairs = []
    for name, (unit, _) in METRICS.items():
        one, other = first.value(name), second.value(name)
        pairs.append(MetricPair(name, unit, one, other, other / one if one else None))
    inputs = _input_differences(a, b)
    return Comparison(
        a=first,
        b=second,
        inputs=inputs,
        metrics=tuple(pairs),
        time=part_differences(first, second, TIME_PARTS),
        energy=part_differences(first, second, ENERGY_PARTS),
        uncertainty=uncertain_pairs(a, b),
        same_work=not any(item.name.startswith("workload.") for item in inputs),
    )


def part_differences(a: Result, b: Result, names: tuple[str, ...]) -> tuple[PartDifference, ...]:
    """Differences b - a of some metrics, largest first."""
    values = [(name, a.value(name), b.value(name)) for name in names]
    total = math.fsum(other - one for _, one, other in values)
    found = [
        PartDifference(name, one, other, other - one, (other - one) / total if total else None)
        for name, one, other in values
    ]
    return tuple(sorted(found, key=lambda item: -abs(item.difference)))


def _input_differences(a: Design, b: Design) -> tuple[InputDifference, ...]:
    one, other = dict(_inputs(a)), dict(_inputs(b))
    if a.constants.name != b.constants.name:
        # another process or memory: its name says it, forty constants do not
        one, other = ({k: v for k, v in side.items() if not k.startswith("technology.")} for side in (one, other))
    found = []
    for name in dict.fromkeys([*one, *other]):
        left, right = one.get(name, (None, "")), other.get(name, (None, ""))
        if left[0] != right[0]:
            found.append(InputDifference(name, left[0], right[0], left[1] or right[1]))
    return tuple(found)


def _inputs(design: Design) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Every input of a design by path, with its unit."""
    yield from _leaves("chip", design.chip)
    yield from _leaves("cluster", design.cluster)
    for name, value in design.plan.named().items():
        yield f"plan.{name}", (value, "")
    yield from _leaves("workload", design.workload)
    yield from _leaves("stack", design.stack)
    yield from _leaves("training", design.training)
    yield from _leaves("technology", design.constants)


def _leaves(path: str, model: Any) -> Iterator[tuple[str, tuple[Any, str]]]:
    for item in fields(model):
        value, name = getattr(model, item.name), f"{path}.{item.name}"
        if item.name == "source":
            continue
        if is_dataclass(value):
            yield from _leaves(name, value)
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            for i, inner in enumerate(value):
                yield from _leaves(f"{name}.{i}", inner)
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{key}", (inner, "")) for key, inner in value.items())
        else:
            plain = value.reshape(-1)[0].item() if isinstance(value, np.ndarray) and value.size == 1 else value
            yield name, (_named(plain, item.metadata), item.metadata.get("unit", ""))


def _named(value: Any, meta: Mapping[str, Any]) -> Any:
    names = meta.get("names")
    return names[int(value)] if names and not isinstance(value, str) else value
