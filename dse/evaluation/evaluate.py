"""Evaluates designs: the one path of a single call, a batch, a sweep, the command line and the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluation.combine import Step, combine, energies, parts
from dse.evaluation.design import Design, Rows, rows
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.ledger import AXES
from dse.evaluation.ownership import OF_A_TOKEN, Late, chip_metrics, token_metrics
from dse.evaluation.passes import BlockPasses, block_passes
from dse.evaluation.price import price
from dse.evaluation.result import ENERGY_PARTS, METRICS, TIME_PARTS, Result
from dse.evaluation.stages import PLACES
from dse.evaluation.throttle import Priced, Throttle, throttle
from dse.evaluation.traffic import Traffic, price_traffic
from dse.evaluation.violations import DEVICES_RULE, device_violation
from hw_models.physical.power import static_power


def evaluate(design: Design) -> Result:
    """Metrics and violations of one design or of columns of them.

    Operators and collectives are priced once for every distinct situation, gathered to the plans that share
    it, and combined by column arithmetic; a design gives the same bits alone or in any batch.
    """
    r = rows(design)
    return evaluate_rows(r, lay_out(r.plan, r.workload, r.training, paired=r.paired))


def evaluate_rows(r: Rows, layout: Layout, wanted: frozenset[str] | None = None) -> Result:
    """The evaluation of hardware rows with plans that were laid out before (a sweep meets them with many chips).

    wanted   metrics to compute; None: all.  What is computed has the same bits either way.
    """
    traffic = price_traffic(r, layout)
    at_clock = priced(r, layout, traffic)
    held = _held(at_clock, layout, traffic)
    step = at_clock.step if held is None else held.step(at_clock.step)
    reserve = r.stack.memory_reserve + r.stack.fragmentation * layout.memory.total
    memory = layout.memory.total + reserve
    violations = {
        DEVICES_RULE: device_violation(layout.plan, r.cluster.devices),
        **layout.violations,
        "memory": memory / r.chip.hbm_capacity - 1.0,
        **r.violations,
        **({} if held is None else held.violations),
    }
    metrics = _times(r, layout, step) | chip_metrics(r.facts) | _memory(layout, memory, reserve)
    if wanted is None or wanted & set(TIME_PARTS):
        metrics |= {name: _same(value) for name, value in _parts(r, layout, at_clock, held).items()}
    if wanted is None or wanted & set(ENERGY):
        metrics |= _energy(r, layout, at_clock, traffic, step, held)
    return _result({n: metrics[n]() for n in METRICS if n in metrics and (wanted is None or n in wanted)}, violations)


def passes(r: Rows, layout: Layout, traffic: Traffic) -> dict[str, BlockPasses]:
    """The passes of every block, with what the plans of the layout need of the prices."""
    priced = price(
        r, layout.work, repeats=layout.repeats, splits_backward=layout.moves_weights,
        splits_core=layout.messages.keys is not None,
    )
    return {place: block_passes(r, layout, priced, traffic, place) for place in PLACES}


def priced(r: Rows, layout: Layout, traffic: Traffic) -> Priced:
    """A step at the clock of the rows."""
    blocks = passes(r, layout, traffic)
    return Priced(r, blocks, combine(r, layout, blocks, traffic))


def _held(nominal: Priced, layout: Layout, traffic: Traffic) -> Throttle | None:
    """The clocks at which firmware holds a power cap; None where nothing has one."""
    slowest = nominal.rows.slowest
    if slowest is None:
        return None
    return throttle(layout, traffic, fast=nominal, slow=priced(nominal.rows.at(slowest), layout, traffic))


def settled(r: Rows, layout: Layout, traffic: Traffic) -> Rows:
    """Rows of one design at the clock at which it runs, to look into; where firmware holds no cap, as they are."""
    held = _held(priced(r, layout, traffic), layout, traffic) if r.slowest is not None else None
    return r if held is None else replace(r.at(held.point), slowest=None)


def _same(value: Any) -> Callable[[], Any]:
    return lambda: value


def _times(r: Rows, layout: Layout, step: Step) -> Late:
    """Step time and what follows from it alone, each when it is asked for."""
    workload = r.workload
    tokens, batch = float(workload.tokens), float(workload.global_batch)
    devices = r.cluster.devices
    peak = _peak_flops(r, layout) * devices
    facts, time = r.facts, step.time
    return {
        "step_time": lambda: time,
        "throughput": lambda: tokens / time,
        "samples_per_second": lambda: batch / time,
        "mfu": lambda: layout.once_flops / (peak * time),
        "hfu": lambda: layout.executed_flops / (peak * time),
        "model_flops_rate": lambda: layout.model_flops / (devices * time),
        "throughput_per_tdp": lambda: tokens / time / (facts.tdp * devices),
        "throughput_per_area": lambda: tokens / time / (facts.silicon * devices),
        "micro_batches": lambda: layout.stages.micro_batches,
        **{f"communication_{axis}": _sent(r, layout, axis) for axis in AXES},
    }


def _peak_flops(r: Rows, layout: Layout) -> Any:
    """Peak FLOP/s of a device as it is rated: of its arrays, or of its vector lanes where these may run a product of
    the network (depthwise convolutions) and are faster."""
    chip = r.rated_chip
    peak = chip.peak_flops(r.training.precision)
    return peak if layout.work.lanes is None else np.maximum(peak, chip.vector_flops)


def _sent(r: Rows, layout: Layout, axis: str) -> Callable[[], Any]:
    return lambda: layout.ledger.sent(axis, splits=r.stack.split_boundary)


def _memory(layout: Layout, memory: Any, reserve: Any) -> Late:
    """Bytes of the fullest device, by kind."""
    kinds = {f"memory_{kind}": _same(value) for kind, value in layout.memory.by_kind.items()}
    return {"memory": _same(memory), "memory_reserve": _same(reserve), **kinds}


#: Metrics that need the energy of a step.
ENERGY = (*ENERGY_PARTS, "energy_per_step", "energy_per_token", "average_power", *OF_A_TOKEN)


def _parts(r: Rows, layout: Layout, at_clock: Priced, held: Throttle | None) -> dict[str, Any]:
    """Seconds of a step by what they are spent on."""
    found = parts(r, layout, at_clock.blocks, at_clock.step)
    if held is None:
        return found
    slow = parts(held.slow.rows, layout, held.slow.blocks, held.slow.step)
    return {name: held.time(value, slow[name]) for name, value in found.items()}


def _energy(
    r: Rows, layout: Layout, at_clock: Priced, traffic: Traffic, step: Step, held: Throttle | None
) -> Late:
    """Joules of a step of the whole cluster, by kind and in all."""
    compute, communication = energies(r, layout, at_clock.blocks, traffic)
    devices, tokens = r.cluster.devices, float(r.workload.tokens)
    # the die as it is built, leaking at the voltage it works at
    power = static_power(r.rated_chip, r.technology, area=r.facts.silicon)
    if held is not None:
        idle, voltage = r.technology.idle_power, held.point.voltage
        compute = held.energy(compute, energies(held.slow.rows, layout, held.slow.blocks, traffic)[0])
        power = np.where(voltage < 1.0, idle + (power - idle) * (voltage * voltage), power)
    static = power * devices * step.time
    energy = compute + communication + static
    return {
        "energy_per_step": lambda: energy,
        "energy_per_token": lambda: energy / tokens,
        "average_power": lambda: energy / step.time / devices,
        "energy_compute": lambda: compute,
        "energy_communication": lambda: communication,
        "energy_static": lambda: static,
        **token_metrics(r, step_time=step.time, energy=energy),
    }


def _result(metrics: dict[str, Any], violations: dict[str, Any]) -> Result:
    columns = {name: np.asarray(value, dtype=float) for name, value in metrics.items()}
    broken = {name: np.asarray(value, dtype=float) for name, value in violations.items()}
    shape = np.broadcast_shapes(*(v.shape for v in (*columns.values(), *broken.values())))
    return Result(columns, broken, shape)

