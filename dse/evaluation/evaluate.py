"""Evaluates designs: the one path of a single call, a batch, a sweep, the command line and the search."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.evaluation.combine import Step, combine
from dse.evaluation.design import Design, Rows, rows
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.price import price
from dse.evaluation.result import Result
from dse.evaluation.traffic import price_traffic
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


def evaluate_rows(r: Rows, layout: Layout) -> Result:
    """The evaluation of hardware rows with plans that were laid out before (a sweep meets them with many chips)."""
    priced = price(r, layout.blocks, layout.work)
    traffic = price_traffic(r, layout)
    step = combine(r, layout, priced, traffic)
    metrics = _metrics(r, layout, step)
    violations = {
        DEVICES_RULE: device_violation(layout.plan, r.cluster.devices),
        **layout.violations,
        "memory": metrics["memory"] / r.chip.hbm_capacity - 1.0,
    }
    return _result(metrics, violations)


def _metrics(r: Rows, layout: Layout, step: Step) -> dict[str, Any]:
    """Every column of `METRICS`."""
    devices, workload, held = r.cluster.devices, r.workload, layout.memory
    tokens = float(workload.tokens)
    chip_peak = r.chip.peak_flops(r.training.precision) * devices
    area = die_area(r.chip, r.technology)
    peak_power = tdp(r.chip, r.technology, precision=r.training.precision)
    static = static_power(r.chip, r.technology) * devices * step.time
    energy = step.compute_energy + step.communication_energy + static
    throughput = tokens / step.time
    reserve = r.stack.memory_reserve + r.stack.fragmentation * held.total
    return {
        "step_time": step.time,
        "throughput": throughput,
        "samples_per_second": float(workload.global_batch) / step.time,
        "mfu": layout.model_flops / (chip_peak * step.time),
        "hfu": layout.hardware_flops / (chip_peak * step.time),
        "energy_per_step": energy,
        "energy_per_token": energy / tokens,
        "average_power": energy / step.time / devices,
        "peak_power": peak_power,
        "die_area": area,
        "tdp": peak_power,
        "throughput_per_tdp": throughput / (peak_power * devices),
        "throughput_per_area": throughput / (area * devices),
        "memory": held.total + reserve,
        **{f"memory_{kind}": value for kind, value in held.by_kind.items()},
        "memory_reserve": reserve,
        **step.parts,
        "energy_compute": step.compute_energy,
        "energy_communication": step.communication_energy,
        "energy_static": static,
        "micro_batches": layout.stages.micro_batches,
        **layout.sent,
    }


def _result(metrics: dict[str, Any], violations: dict[str, Any]) -> Result:
    columns = {name: np.asarray(value, dtype=float) for name, value in metrics.items()}
    broken = {name: np.asarray(value, dtype=float) for name, value in violations.items()}
    shape = np.broadcast_shapes(*(v.shape for v in (*columns.values(), *broken.values())))
    return Result(columns, broken, shape)

