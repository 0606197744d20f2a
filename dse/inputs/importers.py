"""A Calculon set-up as a design: application, system and execution JSON become network, chip, cluster and plan.

    found = dse.importers.calculon("models/gpt3_175B.json", "systems/a100_80g.json", "execution.json")
    dse.evaluate(found.design);  found.notes says what has no counterpart here.

A Calculon processor is a peak with an efficiency by size; here the same peak is made of 128 x 128 arrays, whose
efficiency follows from geometry, so that times differ by what the models differ in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem
from dse.evaluation.design import Design
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import Stack
from workloads.importers import calculon as files
from workloads.importers.reading import FileError, Keys, read_json
from workloads.network import Workload
from workloads.precision import Training

__all__ = ["CalculonSetup", "calculon"]

#: Sides of the arrays that a peak is made of, and the clock it is made at; the clock then makes up the rest.
ARRAY, CLOCK = 128, 1.0e9
GIB = float(2**30)
#: Stacks that a memory is made of.
STACKS = 4
#: Number formats of a system by ours, from the one that a chip is sized by.
FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float8": "fp8", "float32": "fp32"}
#: What has no counterpart here, by key of a system; said where a file has it.
UNLIKE = {
    "processing_mode": "an operator takes the larger of compute and memory time (roofline)",
    "mem2": "memory of the host: its bandwidth is taken, its size and efficiency are not",
}


@dataclass(frozen=True)
class CalculonSetup:
    """A design made of Calculon's files, and what could not be carried over."""

    design: Design
    notes: tuple[str, ...]


def calculon(
    application: str | Path, system: str | Path, execution: str | Path, *, base: Chip | None = None
) -> CalculonSetup:  # fmt: skip
    """The design of three Calculon files.

    base   a chip whose microarchitecture stays (arrays, SRAM, process) while clock, vector lanes, memory and links
           follow the system; None: 128 x 128 arrays
    ConfigError lists every fault of the first file that has some.
    """
    try:
        run = files.execution(read_json(execution, "a Calculon execution JSON"), str(execution))
        tree = read_json(application, "a Calculon application JSON")
        network = files.application(tree, Path(application).stem, str(application), heads=1 if run.multiquery else 0)
        machine = Keys(read_json(system, "a Calculon system JSON"), str(system))
        notes: list[str] = []
        chip = _chip(machine, notes, base, Path(system).stem)
        stack = _stack(machine, notes)
        cluster = _cluster(machine, notes, run.devices, Path(system).stem)
        machine.misspelled()
        machine.done()
    except FileError as error:
        raise ConfigError([_problem(error.path, fault) for fault in error.faults]) from None
    sequence = int(network.sequence)
    design = Design(
        chip, cluster, run.plan, Workload(network.network, sequence, run.global_batch), stack,
        Training(precision=run.precision if run.precision in chip.matmul_rates else "bf16", gradient_bytes=4),
    )  # fmt: skip
    return CalculonSetup(design, (*network.notes, *run.notes, *notes))


def _problem(path: str, fault: Any) -> Problem:
    return Problem(fault.found, fault.allowed, field=fault.field, file=path, line=fault.line, nearest=fault.nearest,
                   hint=fault.hint)  # fmt: skip


def _peaks(c: Keys, key: str) -> dict[str, float]:
    """Peak FLOP/s by number format."""
    part = c.inner(key)
    found = {}
    for name in part.data:
        if name not in FORMATS:
            part.wrong(name, "an unknown number format", ", ".join(FORMATS))
            continue
        engine = part.inner(name)
        found[FORMATS[name]] = engine.number("tflops", None, above=True) * 1e12
        engine.get("gflops_efficiency", None)
    if not found:
        c.wrong(key, "no number format", f"one of {', '.join(FORMATS)}")
        return {"bf16": 1e12}
    return found


def _chip(c: Keys, notes: list[str], base: Chip | None, name: str) -> Chip:
    """Arrays, lanes, memory and links of a system."""
    rates, lanes = _peaks(c, "matrix"), _peaks(c, "vector")
    main = next(iter(sorted(rates, key=lambda one: (one not in ("bf16", "fp16"), one))))
    memory, links = c.inner("mem1"), _networks(c)
    capacity = memory.number("GiB", None, above=True) * GIB
    bandwidth = memory.number("GBps", None, above=True) * 1e9
    memory.get("MB_efficiency", None)
    own = links[0].number("bandwidth", None, above=True) * 1e9 if links else 0.0
    c.done()
    chip = base or Chip(array_rows=ARRAY, array_columns=ARRAY, array_count=_count(rates[main]))
    width = float(chip.macs_per_cycle)
    # a base of another name keeps how formats compare; its clock makes up the peak of the system's first format
    relative = 1.0 if base is None else chip.matmul_rates.get(main, 1.0)
    clock = rates[main] / (2.0 * width * relative)
    fastest = max(lanes.values())
    count = max(1, round(fastest / (2.0 * clock)))
    if abs(2.0 * count * clock / fastest - 1.0) > 1e-3:
        notes.append(f"vector: {count} lanes give {2.0 * count * clock / 1e12:.4g} TFLOP/s")
    notes.append(
        "efficiency curves: that of the largest operation is taken for matrices and memory; what small ones lose "
        "follows from geometry and tiling here"
    )
    both = {"bf16": 1.0, "fp16": 1.0} if main in ("bf16", "fp16") else {main: 1.0}
    return replace(
        chip, name=name, clock=clock, vector_lanes=count, hbm_stacks=STACKS, hbm_stack_capacity=capacity / STACKS,
        hbm_stack_bandwidth=bandwidth / STACKS, links=1 if own else 0, link_bandwidth=own or 1.0,
        matmul_rates=both | {one: rate / rates[main] for one, rate in rates.items()},
    )  # fmt: skip


def _count(peak: float) -> int:
    """Arrays that make a peak at about the usual clock."""
    return max(1, round(peak / (2.0 * ARRAY * ARRAY * CLOCK)))


def _networks(c: Keys) -> list[Keys]:
    """Networks of a system, innermost first."""
    given = c.get("networks", None)
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        c.wrong("networks", "nothing" if given is None else str(type(given).__name__), "a list of networks")
        return []
    if len(given) > 8:
        c.wrong("networks", f"{len(given)} networks", "at most 8")
    return [Keys(one, c.path, f"networks[{i}].", c.faults) for i, one in enumerate(given[:8])]


def _cluster(c: Keys, notes: list[str], devices: int, name: str) -> Cluster:
    """Tiers of a system; the last holds every device."""
    tiers = []
    networks = _networks(c)
    for i, net in enumerate(networks):
        size = net.whole("size", None)
        latency = net.number("latency", 0.0)
        own = net.number("bandwidth", None, above=True) * 1e9
        tiers.append(Tier(size=devices if i == len(networks) - 1 else size, topology="switch",
                          bandwidth=0.0 if i == 0 else own, latency=latency))  # fmt: skip
        if i == len(networks) - 1 and size < devices:
            net.wrong("size", str(size), f"at least {devices} (num_procs): the last network holds all devices")
    # a network that does not hold more than the one inside it adds nothing
    kept = [tier for i, tier in enumerate(tiers) if i == len(tiers) - 1 or tier.size < devices]
    if any(one.has("processor_usage") and one.number("processor_usage", 0.0) for one in networks):
        notes.append("networks.processor_usage: what exchanges take from computation is a constant of the stack here")
    if any(one.has("ops") for one in networks):
        notes.append("networks.ops: volumes of collectives follow from their algorithms here")
    for one in networks:
        one.get("must_be_filled", None)
    host = c.inner("mem2")
    speed = host.number("GBps", 0.0) * 1e9
    for key, text in UNLIKE.items():
        if c.has(key):
            notes.append(f"{key}: {text}")
    c.done()
    return Cluster(devices=devices, tiers=tuple(kept), name=name, host_bandwidth=speed or Cluster().host_bandwidth)


def _stack(c: Keys, notes: list[str]) -> Stack:
    """Efficiencies of networks, and of the largest operation of memory and matrix engine."""
    networks = _networks(c)
    shares = [one.number("efficiency", 1.0, above=True) for one in networks]
    for one, share in zip(networks, shares, strict=True):
        if share > 1.0:
            one.wrong("efficiency", f"{share:g}", "at most 1")
    c.done()
    if len(set(shares[1:])) > 1:
        notes.append("networks.efficiency: one value for all but the first network here, the lowest")
    return Stack(
        name="calculon", link_efficiency=shares[0], network_efficiency=min(shares[1:], default=1.0),
        matmul_efficiency=_largest(c, "matrix", "gflops_efficiency"), memory_efficiency=_memory(c),
    )  # fmt: skip


def _largest(c: Keys, key: str, curve: str) -> float:
    """Efficiency of the largest operation of the first number format."""
    engines = c.inner(key).data
    engine: Any = next(iter(engines.values()), {})
    return _end(engine.get(curve) if isinstance(engine, dict) else None)


def _memory(c: Keys) -> float:
    return _end(c.inner("mem1").data.get("MB_efficiency"))


def _end(curve: Any) -> float:
    """The efficiency at the largest size of a curve, given as pairs or as a mapping; 1 where there is none."""
    pairs: list[tuple[float, float]] = []
    entries = list(curve.items()) if isinstance(curve, Mapping) else curve if isinstance(curve, list) else []
    for pair in entries:
        try:
            size, share = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, IndexError, KeyError):
            continue
        if 0.0 < share <= 1.0:
            pairs.append((size, share))
    return max(pairs)[1] if pairs else 1.0
