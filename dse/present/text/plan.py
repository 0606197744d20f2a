"""The best plans of a network as text: what `dse plan` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dse.base.units import format_quantity
from dse.present.text.search import failures_text
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import (
    COUNTED,
    PLAN_KEY,
    WORDS,
    in_bytes,
    in_words_of,
    join,
    limit_text,
    metric_text,
    money,
    percent,
    scene_text,
    section,
    short_plan,
    signed,
    utilisation_text,
)

if TYPE_CHECKING:
    from dse.insight.account import PartDifference
    from dse.insight.planner import Candidate, PlanReport, Run

__all__ = ["plan_text"]


def plan_text(report: PlanReport) -> str:
    """The planner's answer: the best plan and its bill, why the others lose, and what nearly fits."""
    design = (report.best or report.misses)[0].evaluation.design if report.best or report.misses else None
    bare = f"{report.workload.network.name} on {report.chip.name}"
    head = bare if design is None else wrapped(scene_text(design))
    if not report.evaluated:
        devices = int(report.cluster.devices)
        return f"{head}\n\nNo plan divides this work over {devices:,} devices with the values allowed."
    return join(
        [
            head,
            "",
            wrapped(_plan_verdict(report)),
            _bill_section(report),
            _candidates_section("The fastest plans", report.best, report.best),
            _candidates_section("The best of other ways to divide the devices", report.alternatives, report.best),
            _miss_section(report),
            _failure_section(report),
            "",
            wrapped(PLAN_KEY),
        ]
    )  # fmt: skip


def _plan_verdict(report: PlanReport) -> str:
    counts = f"{report.evaluated:,} plans were evaluated, {report.feasible:,} fit"
    if not report.best:
        return f"No plan fits: {counts}."
    best = report.best[0].evaluation
    rate = in_words_of(report.workload, metric_text("throughput", best.value("throughput")))
    return (
        f"Best of all: {short_plan(report.best[0].plan)}: {metric_text('step_time', best.value('step_time'))} a step, "
        f"{rate}, {utilisation_text(best.value)}, "
        f"{in_bytes(best.value('memory'))} of {in_bytes(float(report.chip.hbm_capacity))} a device. {counts}."
    )


def _bill_section(report: PlanReport) -> str | None:
    if not report.best:
        return None
    best = report.best[0]
    rows = _power_rows(report) + (_run_rows(best.run, report) if best.run else _rate_rows(report))
    return section(
        "Power and cost of the best plan (whole cluster)", columns_text(["what", "value", "from"], rows, indent=2)
    )


def _power_rows(report: PlanReport) -> list[list[str]]:
    best, devices = report.best[0].evaluation, int(report.cluster.devices)
    assert report.power is not None
    overhead = report.overhead
    total = report.power + (overhead or 0.0)
    return [
        ["power of the chips", format_quantity(report.power, "W"),
         f"{devices:,} x {format_quantity(best.value('average_power'), 'W')} average (TDP "
         f"{format_quantity(best.value('tdp'), 'W')})"],
        ["power of host and network", format_quantity(overhead, "W"),
         "not given by the cluster" if overhead is None
         else f"{devices:,} x {format_quantity(overhead / devices, 'W')}"],
        ["power of the cluster", format_quantity(total, "W"), "chips only" if overhead is None else "both, PUE 1"],
        [in_words_of(report.workload, text) for text in
         ("energy per token", metric_text("energy_per_token", best.value("energy_per_token")), "chips and links")],
    ]  # fmt: skip


def _rate_rows(report: PlanReport) -> list[list[str]]:
    best = report.best[0].evaluation
    day = best.value("throughput") * 86400
    return [
        [in_words_of(report.workload, "tokens a day"), f"{day / 1e9:,.4g} billion",
         "give tokens for time and cost of a whole training"],
        ["price", format_quantity(report.price, "USD/h"), _price_source(report)],
    ]


def _run_rows(run: Run, report: PlanReport) -> list[list[str]]:
    per_step = report.workload.tokens
    energy = run.energy if run.total_energy is None else run.total_energy
    of = "chips and links" if run.total_energy is None else "chips, links, host and network"
    return [
        [in_words_of(report.workload, "tokens"), f"{run.tokens:,}", f"{run.steps:,} steps of {per_step:,}"],
        ["time to train", format_quantity(run.time, "s"), "steps x step time, without failures and restarts"],
        ["cost", money(run.usd), _price_source(report)],
        ["energy", f"{energy / 3.6e9:,.4g} MWh", of],
    ]


def _price_source(report: PlanReport) -> str:
    devices = int(report.cluster.devices)
    if report.price is None:
        return "the cluster gives no price"
    return f"{devices:,} x {report.price / devices:,.2f} USD/h"


def _candidates_section(title: str, found: Sequence[Candidate], best: Sequence[Candidate]) -> str | None:
    if not found:
        return None
    first = best[0].evaluation.value("step_time")
    rows = []
    for number, item in enumerate(found, start=1):
        e = item.evaluation
        why = _why(item) if item.behind else "the best"
        ties = f"; {item.ties:,} tie{'s' if item.ties > 1 else ''}" if item.ties else ""
        rows.append(
            [str(number), short_plan(item.plan), format_quantity(e.value("step_time"), "s"),
             f"{(e.value('step_time') / first - 1) * 100:+.1f}%" if item.behind else "-",
             percent(e.value("mfu")), in_bytes(e.value("memory")), why + ties]
        )  # fmt: skip
    headings = ["#", "plan", "step", "slower", "MFU", "memory", "against the best, a step"]
    notes = [f"  MFU: {COUNTED}"]
    notes += ["  tie: another plan that takes exactly as long"] if any(item.ties for item in found) else []
    return section(f"{title} (memory: fullest device)", columns_text(headings, rows, indent=2), *notes)


def _why(item: Candidate) -> str:
    """The largest parts it loses by, and what it gains back."""
    net = math.fsum(part.difference for part in item.behind)
    losses = [part for part in item.behind if part.difference > 0]
    gains = [part for part in item.behind if part.difference < 0]
    shown: list[PartDifference] = []
    for part in losses:
        if len(shown) < 3 and math.fsum(p.difference for p in shown) < 0.9 * math.fsum(p.difference for p in losses):
            shown.append(part)
    shown += [part for part in gains if -part.difference > 0.1 * abs(net)][:1]
    return ", ".join(f"{signed(part.difference, 's')} {WORDS[part.name]}" for part in shown) or "as fast"


def _miss_section(report: PlanReport) -> str | None:
    if not report.misses:
        return section("Near misses", "  none: no plan that does not fit would be faster") if report.best else None
    rows = []
    for item in report.misses:
        lacks = "; ".join(limit_text(*lack) for lack in item.lacks)
        gain = "n/a" if item.gain is None else f"{item.gain * 100:.1f}% less"
        rows.append([short_plan(item.plan), *([gain] if report.best else []), lacks])
    headings = ["plan", *(["step time"] if report.best else []), "what it lacks (fullest device)"]
    title = "Near misses: would be faster, but do not fit" if report.best else "Nearest misses"
    return section(title, columns_text(headings, rows, indent=2))


def _failure_section(report: PlanReport) -> str | None:
    if not report.failures:
        return None
    return section("Plans that do not fit, by what they violate", failures_text(report.failures, report.evaluated))
