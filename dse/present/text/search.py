"""What a search found, in words and tables for a terminal, and its summary as Markdown.

At most 100 columns, units everywhere, n/a for the unknown.  Texts only: the numbers come from the search, and
nothing is calculated but shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS, Result
from dse.inputs.spec import Constraint, SearchSpec
from dse.insight.front_uncertainty import front_uncertainty
from dse.present.text.tables import columns_text, markdown_table, split_text, wrapped
from dse.present.text.words import (
    PLAN_KEY,
    hardware_words,
    join,
    limit_text,
    metric_text,
    percent,
    section,
    short_plan,
)
from hw_models.chip import DATAFLOW, NOC, Chip

if TYPE_CHECKING:
    from dse.insight.front_intervals import FrontIntervals
    from dse.problem.solved import Solved

__all__ = ["intervals_text", "nothing_fits_text", "search_text", "summary_markdown"]

#: Rows of the longest tables.
DESIGNS, REASONS = 5, 15


def failures_text(failures: Mapping[str, int], total: int) -> str:
    return columns_text(["violated", "designs", "of all"], _failure_rows(failures, total), indent=2)


def _failure_rows(failures: Mapping[str, int], total: int) -> list[list[str]]:
    """Violated rules with counts, most frequent first."""
    ordered = sorted(failures.items(), key=lambda pair: (-pair[1], pair[0]))
    return [[name, f"{count:,}", percent(count / total if total else None)] for name, count in ordered if count]

def search_text(report: Solved, paths: Mapping[str, Path]) -> str:
    """The five best designs of a search, how it ended, and where its files are."""
    if not len(report):
        return nothing_fits_text(report)
    headings, rows = _design_table(report)
    return join(
        [
            wrapped(_search_head(report)),
            "",
            f"The best {min(DESIGNS, len(report))} of {len(report):,} designs on the front, "
            f"by {report.problem.objectives[0].name}:",
            split_text(headings, rows),
            wrapped(_meanings(report)),
            *(f"best {name}: row {row}, {value}" for name, row, value in _extremes(report)),
            "",
            wrapped(_search_end(report)),
            *(wrapped(f"note: {note}", indent=6) for note in report.result.notes),
            _failed_designs(report),
            section("Files", *(f"  {name:<14} {path}" for name, path in paths.items())) if paths else None,
            "",
            wrapped(PLAN_KEY),
        ]
    )


def intervals_text(report: Solved, found: FrontIntervals, most: int = DESIGNS) -> str:
    """Designs of the front with the interval of each objective, and how often each stays on it."""
    objectives = report.problem.objectives
    shown = min(most, found.designs)
    level = percent(found.level, 0)
    headings = ["row"]
    for o in objectives:
        headings += [o.name.replace("_", " "), level]
    rows = []
    for i in range(shown):
        cells = [str(i)]
        for j, o in enumerate(objectives):
            value = float(report.result.values[i, j])
            ends = (found.low[i, j] / value - 1.0, found.high[i, j] / value - 1.0)
            cells += [_objective(o.name, o.unit, value), " ".join(f"{end * 100:+.0f}%" for end in ends)]
        rows.append([*cells, percent(float(found.on_front[i]), 0), percent(float(found.within_limits[i]), 0)])
    last = len(report) - shown
    more = f"{last:,} more design{'s' if last > 1 else ''}" if last else None
    note = (
        f"Each design under the same {found.draws} draws of constants and model error, on {found.source}. On front: "
        "draws in which no other design of the front is better in everything; in limits: draws in which memory "
        "fits and the limits of the search hold."
    )
    title = f"How sure ({level} intervals, from the value down and up)"
    return section(title, split_text([*headings, "on front", "in limits"], rows), more, wrapped(note))


def _failed_designs(report: Solved) -> str | None:
    result = report.result
    if not any(result.failures.values()):
        return None
    return section("Designs that failed, by what they violate", failures_text(result.failures, result.evaluations))


def _search_head(report: Solved) -> str:
    spec, workload = report.spec, report.spec.workloads[0]
    counts = [f"{int(count):,}" for count in spec.cluster.values["devices"]]
    devices = f"{' or '.join(counts)} device{'' if counts == ['1'] else 's'}"
    wanted = ", ".join(f"{'more' if o.direction == 'maximize' else 'less'} {o.name}" for o in report.problem.objectives)
    limits = ["memory fits", *(f"{c.metric} {c.relation} {_limit(spec, c)}" for c in spec.constraints)]
    return (
        f"{spec.name}: {workload.network.name}, sequence {workload.sequence:,}, "
        f"global batch {workload.global_batch:,}, {devices}; wanted: {wanted}; limits: {'; '.join(limits)}."
    )


def _limit(spec: SearchSpec, limit: Constraint) -> str:
    return metric_text(limit.metric, limit.bound, spec.unit_of(limit.metric))


def _value(spec: SearchSpec, found: Result, name: str) -> float:
    """A metric of a design, of results or of the user's own."""
    own = next((metric for metric in spec.metrics if metric.name == name), None)
    return found.value(name) if own is None else float(own.column(found.metrics).reshape(-1)[0])


def _meanings(report: Solved) -> str:
    """What each objective is of: one chip or the whole cluster."""
    known = [o.name for o in report.problem.objectives if o.name in METRICS]
    own = [f"{metric.name}: {metric.meaning}" for metric in report.spec.metrics]
    return "; ".join([*(f"{name}: {METRICS[name][1]}" for name in known), *own, "hardware: one chip"]) + "."


def _design_table(report: Solved) -> tuple[list[str], list[list[str]]]:
    """Front rows, best by the first objective first: objectives, key hardware, plan (whose degrees are the devices)."""
    objectives = report.problem.objectives
    headings = ["row", *(o.name.replace("_", " ") for o in objectives), "peak", "SRAM", "HBM", "links", "plan"]
    designs = [report.design(row) for row in range(min(DESIGNS, len(report)))]
    kinds = _kinds([design.chip for design in designs])
    headings[-1:-1] = ["chip"] if any(kinds) else []
    rows = []
    for row, design in enumerate(designs):
        chip, values = design.chip, report.result.values[row]
        hardware = [
            format_quantity(float(chip.peak_flops(design.training.precision)), "FLOP/s", digits=3),
            format_quantity(float(chip.shared_sram), "B"),
            format_quantity(float(chip.hbm_capacity), "B")
            + f" {format_quantity(float(chip.hbm_bandwidth), 'B/s', digits=3)}",
            format_quantity(float(chip.scale_up_bandwidth), "B/s", digits=3),
        ]
        shown = [_objective(o.name, o.unit, float(value)) for o, value in zip(objectives, values, strict=True)]
        rows.append([str(row), *shown, *hardware, *([kinds[row]] if any(kinds) else []), short_plan(design.plan)])
    return headings, rows


def _kinds(chips: Sequence[Chip]) -> list[str]:
    """What tells chips of a table apart beside its numbers: of process, memory, dataflow, network, dies and cap those
    in which they differ."""
    columns = [
        [chip.process for chip in chips], [chip.hbm for chip in chips],
        [DATAFLOW[int(chip.dataflow)] for chip in chips],
        [f"{NOC[int(chip.noc)]} NoC".replace("none", "no") for chip in chips],
        [f"{int(chip.dies)} die{'s' if chip.dies > 1 else ''}" for chip in chips],
        [f"cap {format_quantity(float(chip.power_cap), 'W')}" if chip.power_cap else "no cap" for chip in chips],
    ]  # fmt: skip
    differing = [column for column in columns if len(set(column)) > 1]
    return [", ".join(column[row] for column in differing) for row in range(len(chips))]


def _objective(name: str, unit: str, value: float) -> str:
    return metric_text(name, value).replace("/token", "") if name in METRICS else format_quantity(value, unit)


def _extremes(report: Solved) -> list[tuple[str, int, str]]:
    """The best row of every objective but the first, which leads the table."""
    found = []
    for i, o in enumerate(report.problem.objectives[1:], start=1):
        column = report.result.values[:, i] * o.sign
        row = int(column.argmin())
        found.append((o.name, row, _objective(o.name, o.unit, float(report.result.values[row, i]))))
    return found


#: Why a search ended, in words.
STOPPED = {
    "budget": "the budget is used up",
    "exhausted": "every hardware row was looked at",
    "timeout": "the time is up",
    "interrupted": "it was interrupted; the same command continues it",
    "stopped": "it was stopped",
    "recorded": "read from its record",
    "failed": "it failed",
}


def _search_end(report: Solved) -> str:
    result = report.result
    rate = f" in {result.elapsed:,.3g} s" if result.elapsed else ""
    failed = f" {result.failed_rows:,} hardware rows failed to evaluate." if result.failed_rows else ""
    if result.missing:
        failed += f" {len(result.missing):,} hardware rows have no answer: {result.missing[0]['cause']}."
    return (
        f"Stopped because {STOPPED.get(result.stopped, result.stopped)}: {result.hardware_rows:,} hardware rows, "
        f"{result.evaluations:,} designs evaluated{rate}, {result.feasible:,} feasible.{failed}"
    )


def nothing_fits_text(report: Solved) -> str:
    """Why a search found nothing: counts by violated constraint, and the nearest miss with what it needs."""
    result = report.result
    parts = [
        wrapped(_search_head(report)),
        "",
        "No feasible configuration.",
        wrapped(_search_end(report)),
        _failed_designs(report),
        *_nearest_lines(report),
        *(f"  {fault.get('cause', fault)}" for fault in list(result.faults)[:1]),
    ]
    return join(parts)


def _nearest_lines(report: Solved) -> list[str]:
    """The nearest miss: hardware, plan, and for each violated rule what is needed and what there is."""
    result = report.result
    if result.miss_row is None or result.miss_plan is None:
        return []
    design = report.problem.design(result.miss_row, result.miss_plan)
    number = int(design.cluster.devices)
    where = f"{number:,} device{'' if number == 1 else 's'}"
    lines = ["", f"Nearest miss: plan {short_plan(design.plan)} on {where}"]
    lines += [f"  {text}" for text in miss_words(report, design, result.miss)]
    return [*lines, wrapped(f"with {hardware_words(report.problem.space, result.miss_row)}", indent=2)]


def miss_words(report: Solved, design: Design, violations: Mapping[str, float]) -> list[str]:
    """Each violation as needed against available."""
    found = evaluate(design)
    limits = {limit.metric: limit for limit in report.spec.constraints}
    words = []
    for name, excess in violations.items():
        if name in limits:
            limit = limits[name]
            allowed = f"{limit.relation} {_limit(report.spec, limit)}"
            off = f"{percent(excess)} too {'much' if limit.relation == '<=' else 'little'}"
            shown = metric_text(name, _value(report.spec, found, name), report.spec.unit_of(name))
            words.append(f"{name}: {shown}, allowed {allowed} ({off})")
        elif name == "memory":
            words.append(limit_text("memory", found.value("memory"), float(design.chip.hbm_capacity), "B"))
        else:
            words.append(f"{name}: {excess:g}, must be 0")
    return words


def summary_markdown(report: Solved, intervals: FrontIntervals | None = None) -> str:
    """The same for a file beside the results, with how sure the front is where that was asked for."""
    result = report.result
    parts = [f"# {report.spec.name}", "", _search_head(report), ""]
    if len(report):
        headings, rows = _design_table(report)
        parts += [f"{len(report):,} designs on the front; the best by {report.problem.objectives[0].name}:", ""]
        parts += [markdown_table(headings, rows), "", _meanings(report), ""]
        parts += [f"- best {name}: row {row}, {value}" for name, row, value in _extremes(report)]
        parts += [f"- {_sureness(report)}", *([f"- {_steadiness(intervals)}"] if intervals else [])]
    else:
        parts += ["**No feasible configuration.**", *_nearest_lines(report)]
    parts += ["", _search_end(report), *(f"- {note}" for note in result.notes)]
    if any(result.failures.values()):
        rows = _failure_rows(result.failures, result.evaluations)
        parts += ["", "Designs that failed, by what they violate:", ""]
        parts += [markdown_table(["violated", "designs", "of all"], rows)]
    return join([*parts, "", PLAN_KEY, ""])


def _steadiness(found: FrontIntervals) -> str:
    """One sentence: how many designs stay on the front, and within limits, in most draws."""
    counts = [int((shares[: found.designs] >= 0.5).sum()) for shares in (found.on_front, found.within_limits)]
    return (
        f"under {found.draws} common draws of constants, {counts[0]:,} of {found.designs:,} designs stay on the front "
        f"in at least half of them and {counts[1]:,} keep all limits; {found.level:.0%} intervals are in pareto.csv"
    )


def _sureness(report: Solved) -> str:
    """One sentence: interval of the first row's step time, and how likely it is better than the next."""
    found = front_uncertainty(report, most=2)
    ends = f"{format_quantity(float(found.low[0]), 's')} to {format_quantity(float(found.high[0]), 's')}"
    text = f"step time of row 0: {ends} with 90% probability (on {found.source})"
    if len(report) < 2 or not found.probability_best[1] >= 0.0:
        return text
    name = report.problem.objectives[0].name
    return f"{text}; it is better than row 1 by {name} with {found.probability_best[1]:.0%}"
