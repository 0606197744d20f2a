"""Evaluates designs: the one path of a single call, a batch, a sweep, the command line and the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dse.evaluation.combine import Step, combine, energies, parts
from dse.evaluation.design import Design, Rows, rows
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.passes import BlockPasses, block_passes
from dse.evaluation.price import price
from dse.evaluation.result import ENERGY_PARTS, METRICS, TIME_PARTS, Result
from dse.evaluation.stages import PLACES
from dse.evaluation.traffic import Traffic, price_traffic
from dse.evaluation.violations import DEVICES_RULE, device_violation
from hw_models.physical.area import die_area
from hw_models.physical.power import static_power, tdp


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
    blocks = passes(r, layout, traffic)
    step = combine(r, layout, blocks, traffic)
    reserve = r.stack.memory_reserve + r.stack.fragmentation * layout.memory.total
    memory = layout.memory.total + reserve
    violations = {
        DEVICES_RULE: device_violation(layout.plan, r.cluster.devices),
        **layout.violations,
        "memory": memory / r.chip.hbm_capacity - 1.0,
        **r.violations,
    }
    metrics = _times(r, layout, step) | _hardware(r) | _memory(layout, memory, reserve)
    if wanted is None or wanted & set(TIME_PARTS):
        metrics |= {name: _same(value) for name, value in parts(r, layout, blocks, step).items()}
    if wanted is None or wanted & set(ENERGY):
        metrics |= _energy(r, layout, blocks, traffic, step)
    return _result({n: metrics[n]() for n in METRICS if n in metrics and (wanted is None or n in wanted)}, violations)


def passes(r: Rows, layout: Layout, traffic: Traffic) -> dict[str, BlockPasses]:
    """The passes of every block, with what the plans of the layout need of the prices."""
    priced = price(
        r, layout.work, repeats=layout.repeats, splits_backward=layout.moves_weights,
        splits_core=layout.messages.keys is not None,
    )
    return {place: block_passes(r, layout, priced, traffic, place) for place in PLACES}


Late = dict[str, Callable[[], Any]]


def _same(value: Any) -> Callable[[], Any]:
    return lambda: value


def _times(r: Rows, layout: Layout, step: Step) -> Late:
    """Step time and what follows from it alone, each when it is asked for."""
    workload = r.workload
    tokens, batch = float(workload.tokens), float(workload.global_batch)
    devices = r.cluster.devices
    chip_peak = r.rated_chip.peak_flops(r.training.precision) * devices
    power = tdp(r.rated_chip, r.rated_technology, precision=r.training.precision) * devices
    area = die_area(r.rated_chip, r.rated_technology) * devices
    time = step.time
    return {
        "step_time": lambda: time,
        "throughput": lambda: tokens / time,
        "samples_per_second": lambda: batch / time,
        "mfu": lambda: layout.model_flops / (chip_peak * time),
        "hfu": lambda: layout.hardware_flops / (chip_peak * time),
        "throughput_per_tdp": lambda: tokens / time / power,
        "throughput_per_area": lambda: tokens / time / area,
        "micro_batches": lambda: layout.stages.micro_batches,
        **{name: _same(value) for name, value in layout.sent.items()},
    }


def _hardware(r: Rows) -> Late:
    """Area and power of one chip."""
    peak_power = tdp(r.rated_chip, r.rated_technology, precision=r.training.precision)
    area = die_area(r.rated_chip, r.rated_technology)
    return {"peak_power": _same(peak_power), "tdp": _same(peak_power), "die_area": _same(area)}


def _memory(layout: Layout, memory: Any, reserve: Any) -> Late:
    """Bytes of the fullest device, by kind."""
    kinds = {f"memory_{kind}": _same(value) for kind, value in layout.memory.by_kind.items()}
    return {"memory": _same(memory), "memory_reserve": _same(reserve), **kinds}


#: Metrics that need the energy of a step.
ENERGY = (*ENERGY_PARTS, "energy_per_step", "energy_per_token", "average_power")


def _energy(r: Rows, layout: Layout, blocks: dict[str, BlockPasses], traffic: Traffic, step: Step) -> Late:
    """Joules of a step of the whole cluster, by kind and in all."""
    compute, communication = energies(r, layout, blocks, traffic)
    devices, tokens = r.cluster.devices, float(r.workload.tokens)
    # the die as it is built, leaking at the voltage it works at
    static = static_power(r.rated_chip, r.technology) * devices * step.time
    energy = compute + communication + static
    return {
        "energy_per_step": lambda: energy,
        "energy_per_token": lambda: energy / tokens,
        "average_power": lambda: energy / step.time / devices,
        "energy_compute": lambda: compute,
        "energy_communication": lambda: communication,
        "energy_static": lambda: static,
    }


def _result(metrics: dict[str, Any], violations: dict[str, Any]) -> Result:
    columns = {name: np.asarray(value, dtype=float) for name, value in metrics.items()}
    broken = {name: np.asarray(value, dtype=float) for name, value in violations.items()}
    shape = np.broadcast_shapes(*(v.shape for v in (*columns.values(), *broken.values())))
    return Result(columns, broken, shape)

