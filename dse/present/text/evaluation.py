"""Metrics of one design, or why it cannot run, as text: what `dse evaluate` prints."""

from __future__ import annotations

from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.evaluation.result import METRICS, Result
from dse.present.text.tables import table_text
from dse.present.text.words import in_words_of, length_text, plan_words

__all__ = ["ALWAYS", "evaluation_text", "totals"]

#: Metrics that a design has although it cannot run.
ALWAYS = ("memory", "die_area", "tdp", "peak_power")

#: Metrics that people read as a percentage.
SHARES = ("mfu", "hfu")

#: Totals of a run of several steps: name -> metric of one step, unit, scope.
TOTALS = {
    "total_time": ("step_time", "s", "the whole run"),
    "total_energy": ("energy_per_step", "J", "whole cluster, the whole run"),
}


def totals(result: Result, design: Design, steps: int) -> dict[str, tuple[float, str, str]]:
    """Totals of `steps` steps: value, unit, scope.  A cost only where the cluster has a price."""
    found = {name: (steps * result.value(metric), unit, scope) for name, (metric, unit, scope) in TOTALS.items()}
    found["total_tokens"] = (float(steps * design.workload.tokens), "token", "the whole run")
    price = float(design.cluster.usd_per_device_hour)
    if price > 0:
        hours = steps * result.value("step_time") / 3600.0
        cost = hours * float(design.cluster.devices) * price
        found["total_cost"] = (cost, "USD", f"whole cluster at {price:g} USD a device and hour")
    return found


def evaluation_text(result: Result, design: Design, steps: int | None) -> str:
    """A result of one row for people; a design that cannot run says so and has no times."""
    workload = design.workload

    def shown_value(name: str, value: float, unit: str) -> str:
        return f"{value:.1%}" if name in SHARES else in_words_of(workload, format_quantity(value, unit))

    head = [
        f"{workload.network.name}, {length_text(workload)}global batch {workload.global_batch}, "
        f"on {int(design.cluster.devices)} {design.chip.name} ({design.cluster.name}, {design.stack.name})",
        f"plan: {plan_words(design.plan)}",
    ]
    broken = result.violated()
    if broken:
        head += ["", "This design cannot run:"]
        head += [f"  {violation_words(name, value, result, design)}" for name, value in broken.items()]
    shown = [name for name in result.metrics if not broken or name in ALWAYS or name.startswith("memory_")]
    rows = [
        {
            "metric": name,
            "value": shown_value(name, result.value(name), METRICS[name][0]),
            "meaning": in_words_of(workload, METRICS[name][1]),
        }
        for name in shown
    ]
    if steps is not None and not broken:
        rows += [
            {"metric": name, "value": shown_value(name, value, unit), "meaning": f"{steps} steps, {scope}"}
            for name, (value, unit, scope) in totals(result, design, steps).items()
        ]
    return "\n".join([*head, "", table_text(rows)])


def violation_words(name: str, value: float, result: Result, design: Design) -> str:
    """One violated rule in words; memory with what is needed and what there is."""
    if name == "memory":
        needed = format_quantity(result.value("memory"), "B")
        return f"memory: needs {needed} on the fullest device, available {format_quantity(_capacity(design), 'B')}"
    if name == "power_cap":
        cap = format_quantity(float(design.chip.power_cap), "W")
        return f"power_cap: the lowest clock still draws {value:.1%} more than {cap}"
    return f"{name}: violated by {value:g}"


def _capacity(design: Design) -> float:
    return float(design.chip.hbm_capacity)
