"""The cluster planner's question: the chip is fixed, which parallel plan trains the network fastest, and why?

Every canonical plan is evaluated (dse.exploration.plans has the rule), so the best is the best; ties are resolved
by the order of enumeration and counted.  Data only: the text is made in dse.present.text.plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS, TIME_PARTS, Result
from dse.exploration.plans import PlanSpace, PlanTable, enumerate_plans
from dse.inputs.catalogs import default_cluster
from dse.inputs.networks import load_network, names_file, refused_sequence, usual_sequence
from dse.insight.account import PartDifference, part_differences
from dse.insight.one_row import one_row
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.clusters import cluster as cluster_named
from hw_models.devices import chip as chip_named
from hw_models.stack import Stack
from hw_models.stacks import stack as stack_named
from workloads.network import Network, Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import names as network_names
from workloads.published import network as network_named

__all__ = ["Candidate", "NearMiss", "PlanReport", "Run", "plan"]

#: Plans priced at once: columns of this length stay in cache.
CHUNK = 16384
#: Infeasible plans that are shown.
MISSES = 5
#: Share of step time that makes one more of them worth a line.
WORTHWHILE = 0.01


@dataclass(frozen=True)
class Run:
    """What training some tokens takes.  None: an input is not known.

    steps   ceil(tokens / tokens a step), exact
    time    [s];  usd  devices x price x time;  energy  chips and links [J], and with host and network where their
            power is known (total_energy)
    """

    tokens: int
    steps: int
    time: float
    usd: float | None
    energy: float
    total_energy: float | None


@dataclass(frozen=True)
class Candidate:
    """A plan that fits.

    behind   seconds a step more than the best, by part, largest first; they add up to the difference
    ties     other feasible plans with exactly the same step time
    """

    plan: Plan
    evaluation: Result
    behind: tuple[PartDifference, ...]
    ties: int
    run: Run | None

    @property
    def design(self) -> Design:
        """The design of this plan."""
        found: Design = self.evaluation.design
        return found


@dataclass(frozen=True)
class NearMiss:
    """A plan that does not fit.

    lacks    what is violated: (rule, found, limit, unit), memory in bytes; other rules as remainder and 0
    gain     share of the best plan's step time it would save; None where nothing fits
    """

    plan: Plan
    evaluation: Result
    lacks: tuple[tuple[str, float, float, str], ...]
    gain: float | None


@dataclass(frozen=True)
class PlanReport:
    """The answer of `plan`.

    evaluated, feasible   plans;  failures  plans by violated rule
    best          fastest plans that fit, fastest first, each step time once
    alternatives  the fastest plan of every other (tensor, pipeline, data), fastest first
    misses        plans that do not fit, from the nearest to the fastest: each is faster than all that lack less, and
                  faster than the best plan that fits
    power         average electric power of the cluster [W]: chips and links with the best plan
    overhead      host, network and cooling power [W], None where the cluster does not say
    price         USD an hour for all devices, None where the cluster does not say
    """

    workload: Workload
    chip: Chip
    cluster: Cluster
    stack: Stack
    training: Training
    evaluated: int
    feasible: int
    failures: Mapping[str, int]
    best: tuple[Candidate, ...]
    alternatives: tuple[Candidate, ...]
    misses: tuple[NearMiss, ...]
    tokens: int | None
    power: float | None
    overhead: float | None
    price: float | None

    @property
    def fits(self) -> bool:
        """Some plan violates nothing."""
        return self.feasible > 0

    def to_plain(self) -> dict[str, Any]:
        """The report as JSON-able data in base SI; unknown values are None."""
        return {
            "network": self.workload.network.name,
            "sequence": self.workload.sequence,
            "global_batch": self.workload.global_batch,
            "chip": self.chip.name,
            "cluster": self.cluster.name,
            "devices": int(self.cluster.devices),
            "stack": self.stack.name,
            "evaluated": self.evaluated,
            "feasible": self.feasible,
            "failures": dict(self.failures),
            "units": {name: unit for name, (unit, _) in METRICS.items()},
            "best": [_plain_candidate(item) for item in self.best],
            "alternatives": [_plain_candidate(item) for item in self.alternatives],
            "near_misses": [_plain_miss(item) for item in self.misses],
            "cluster_power [W]": self.power,
            "overhead_power [W]": self.overhead,
            "price [USD/h]": self.price,
        }


#: The plans that are looked at: those of a search, and every stage of ZeRO.
EVERY_STAGE = PlanSpace(zero_stage=(0, 1, 2, 3))


def plan(
    network: str | Network,
    chip: str | Chip,
    *,
    devices: int,
    global_batch: int,
    sequence: int | None = None,
    cluster: str | Cluster | None = None,
    stack: str | Stack = "generic",
    training: Training = Training(),  # noqa: B008 - frozen
    tokens: float | None = None,
    top: int = 10,
    plan_space: PlanSpace = EVERY_STAGE,
) -> PlanReport:
    """The best parallel plans of a network on a number of chips, out of all of them.

    sequence   tokens a sample; None: as the network was published
    cluster    a name or an object; None: the one of the chip (`default_cluster`), with `devices` devices
    tokens     length of the training, for time and cost
    top        plans shown
    Nothing fits: `best` is empty, `misses` and `failures` say why; that is an answer, not an error.
    """
    _check(devices=devices, top=top, tokens=tokens)
    chosen = chip_named(chip) if isinstance(chip, str) else chip
    wired = default_cluster(chosen) if cluster is None else cluster
    if isinstance(wired, str):
        wired = cluster_named(wired, devices)
    if int(np.max(wired.devices)) != devices:
        raise ValueError(f"devices: found {devices} and a cluster of {wired.devices}, allowed: the same")
    model = _model(network) if isinstance(network, str) else network
    workload = Workload(model, _sequence(model, sequence), global_batch)
    software = stack_named(stack, chosen.name) if isinstance(stack, str) else stack
    scene = Design(chosen, wired, Plan(), workload, software, training)
    chosen.matmul_rate(training.precision)
    table = enumerate_plans(workload, devices, plan_space)
    times, lacking, failures = _evaluate_all(scene, table)
    return _report(scene, table, times, lacking, failures=failures, tokens=tokens, top=top)


def _check(*, devices: Any, top: Any, tokens: Any) -> None:
    problems = []
    for name, value in (("devices", devices), ("top", top)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            problems.append(f"{name}: found {value!r}, allowed: a whole number >= 1")
    good = tokens is None or (isinstance(tokens, Real) and not isinstance(tokens, bool) and math.isfinite(tokens))
    if not good or (tokens is not None and (tokens < 1 or tokens != math.floor(tokens))):
        problems.append(f"tokens: found {tokens!r}, allowed: a whole number >= 1")
    if problems:
        raise ValueError("; ".join(problems))


def _model(name: str) -> Network:
    """A built-in network by name, or that of a file."""
    return network_named(name) if name in network_names() or not names_file(name) else load_network(name)


def _sequence(network: Network, sequence: int | None) -> int:
    if sequence is not None:
        if allowed := refused_sequence(network, sequence):
            raise ValueError(f"sequence: found {sequence!r}, allowed: {allowed}")
        return sequence
    if usual := usual_sequence(network):
        return usual
    raise ValueError(f"sequence: found none for the network {network.name!r}, allowed: a whole number >= 1")


def _with_plan(scene: Design, plan_: Plan) -> Design:
    return Design(
        scene.chip, scene.cluster, plan_, scene.workload, scene.stack, scene.training, scene.technology
    )


def _evaluate_all(scene: Design, table: PlanTable) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Step time (P,), sum of positive violations (P,) and failures by rule of every plan, chunk by chunk."""
    times, lacking = np.empty(len(table)), np.zeros(len(table))
    failures: dict[str, int] = {}
    for start in range(0, len(table), CHUNK):
        part = slice(start, min(start + CHUNK, len(table)))
        result = evaluate(_with_plan(scene, table.rows(part.start, part.stop)))
        times[part] = result.column("step_time")
        for name in result.violations:
            excess = np.maximum(result.violation(name), 0.0)
            count = int(np.count_nonzero(excess))
            if count:
                failures[name] = failures.get(name, 0) + count
                lacking[part] += excess
    return times, lacking, failures


def _report(
    scene: Design, table: PlanTable, times: np.ndarray, lacking: np.ndarray, *, failures: dict[str, int],
    tokens: float | None, top: int,
) -> PlanReport:  # fmt: skip
    fits = np.flatnonzero(lacking == 0)
    order = fits[np.argsort(times[fits], kind="stable")]
    fastest = _first_of_each(times[order], order)[:top]
    shapes = _shapes(table)
    others = _first_of_each(shapes[order], order)[1 : top + 1]
    best_time = float(times[order[0]]) if len(order) else math.inf
    near = _nearest(times, lacking, best_time)
    length = None if tokens is None else int(tokens)
    best = _evaluations(scene, table, fastest)
    reference = best[0] if best else None

    def candidate(number: int, found: Result) -> Candidate:
        behind = () if reference is None or found is reference else part_differences(reference, found, TIME_PARTS)
        ties = int(np.count_nonzero(times[fits] == times[number])) - 1
        return Candidate(found.design.plan, found, behind, ties, None if length is None else _run(found, length))

    def miss(number: int, found: Result) -> NearMiss:
        gain = None if reference is None else 1.0 - float(times[number]) / best_time
        return NearMiss(found.design.plan, found, _lacks(found), gain)

    devices, overhead = int(scene.cluster.devices), float(scene.cluster.overhead_power)
    price = float(scene.cluster.usd_per_device_hour)
    return PlanReport(
        workload=scene.workload,
        chip=scene.chip,
        cluster=scene.cluster,
        stack=scene.stack,
        training=scene.training,
        evaluated=len(table),
        feasible=len(fits),
        failures=failures,
        best=tuple(map(candidate, fastest, best)),
        alternatives=tuple(map(candidate, others, _evaluations(scene, table, others))),
        misses=tuple(map(miss, near, _evaluations(scene, table, near))),
        tokens=length,
        power=devices * reference.value("average_power") if reference is not None else None,
        overhead=devices * overhead if overhead else None,
        price=devices * price if price else None,
    )


def _first_of_each(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The first plan number of each distinct key, in their order."""
    _, first = np.unique(keys, return_index=True)
    return index[np.sort(first)]


def _shapes(table: PlanTable) -> np.ndarray:
    """A number for each (tensor, pipeline); data follows from the devices (P,)."""
    tensor = table.columns["tensor"].astype(np.int64)
    pipeline = table.columns["pipeline"].astype(np.int64)
    return tensor * (int(pipeline.max(initial=0)) + 1) + pipeline


def _nearest(times: np.ndarray, lacking: np.ndarray, best_time: float) -> np.ndarray:
    """Plans that do not fit and are faster than `best_time` and than all that lack less, nearest first.

    Each kept one is faster than the one before it by a share of at least `WORTHWHILE`.
    """
    wrong = np.flatnonzero((lacking > 0) & (times < best_time))
    order = wrong[np.lexsort((times[wrong], lacking[wrong]))]
    record = np.minimum.accumulate(times[order]) if len(order) else times[order]
    better = np.concatenate([[True], record[1:] < record[:-1]])[: len(order)]
    kept: list[int] = []
    for i in order[better]:
        if len(kept) < MISSES and (not kept or times[i] < times[kept[-1]] * (1.0 - WORTHWHILE)):
            kept.append(int(i))
    return np.array(kept, dtype=np.int64)


def _evaluations(scene: Design, table: PlanTable, index: np.ndarray) -> list[Result]:
    """One evaluation a plan, each with its design of scalars."""
    if not len(index):
        return []
    columns = {name: column[index].astype(float) for name, column in table.columns.items()}
    design = _with_plan(scene, Plan(**columns))
    result = evaluate(design)
    found = []
    for i in range(len(index)):
        row = result[i]
        alone = one_row(design, i, result.shape)
        whole = Plan(**{name: int(getattr(alone.plan, name)) for name in Plan.names()})
        found.append(Result(row.metrics, row.violations, row.shape, _with_plan(scene, whole)))
    return found


def _lacks(evaluation: Result) -> tuple[tuple[str, float, float, str], ...]:
    found = []
    for name, excess in evaluation.violated().items():
        if name == "memory":
            found.append((name, evaluation.value("memory"), float(evaluation.design.chip.hbm_capacity), "B"))
        else:
            found.append((name, excess, 0.0, ""))
    return tuple(found)


def _run(evaluation: Result, tokens: int) -> Run:
    """Steps are counted in whole numbers: ceil(tokens / tokens a step)."""
    design: Design = evaluation.design
    steps = -(-tokens // design.workload.tokens)
    time = steps * evaluation.value("step_time")
    devices, cluster = int(design.cluster.devices), design.cluster
    price, overhead = float(cluster.usd_per_device_hour), float(cluster.overhead_power)
    energy = steps * evaluation.value("energy_per_step")
    return Run(
        tokens=tokens,
        steps=steps,
        time=time,
        usd=devices * price * time / 3600 if price else None,
        energy=energy,
        total_energy=energy + devices * overhead * time if overhead else None,
    )


def _plain_candidate(item: Candidate) -> dict[str, Any]:
    run = item.run
    return {
        "plan": item.plan.named(),
        "metrics": {name: item.evaluation.value(name) for name in METRICS},
        "behind [s]": {part.name: part.difference for part in item.behind},
        "ties": item.ties,
        "training": None if run is None else {
            "tokens": run.tokens, "steps": run.steps, "time [s]": run.time, "usd": run.usd,
            "energy [J]": run.energy, "energy with host and network [J]": run.total_energy,
        },
    }  # fmt: skip


def _plain_miss(item: NearMiss) -> dict[str, Any]:
    return {
        "plan": item.plan.named(),
        "metrics": {name: item.evaluation.value(name) for name in METRICS},
        "lacks": [{"rule": n, "found": found, "limit": limit, "unit": unit} for n, found, limit, unit in item.lacks],
        "gain": item.gain,
    }
