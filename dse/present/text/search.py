"""What was found, in words and tables for a terminal: plans, searches, validations.

At most 100 columns, units everywhere, n/a for the unknown.  Texts only: the numbers come from the planner, the search
and dse.evidence.validation.validate, and nothing is calculated but shares.  A plan that cannot run gets no times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.evaluation.result import METRICS
from dse.evidence.validation.networks import scaling_error
from dse.insight.uncertainty import front_uncertainty
from dse.present.text.tables import columns_text, markdown_table, split_text, wrapped
from dse.present.text.words import (
    PLAN_KEY,
    WORDS,
    hardware_words,
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
)
from hw_models.chip import DATAFLOW, NOC, Chip

if TYPE_CHECKING:
    from dse.api.search import SearchReport
    from dse.insight.account import PartDifference
    from dse.insight.front_intervals import FrontIntervals
    from dse.insight.planner import Candidate, PlanReport, Run

__all__ = ["intervals_text", "nothing_fits_text", "plan_text", "search_text", "summary_markdown", "validation_text"]

#: Rows of the longest tables.
DESIGNS, REASONS = 5, 15


# Plans -------------------------------------------------------------------------------------------------------------


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
        f"{rate}, MFU {percent(best.value('mfu'))}, "
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
    tied = "  tie: another plan that takes exactly as long" if any(item.ties for item in found) else None
    return section(f"{title} (memory: fullest device)", columns_text(headings, rows, indent=2), tied)


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
    return section("Plans that do not fit, by what they violate", _failures(report.failures, report.evaluated))


def _failures(failures: Mapping[str, int], total: int) -> str:
    return columns_text(["violated", "designs", "of all"], _failure_rows(failures, total), indent=2)


def _failure_rows(failures: Mapping[str, int], total: int) -> list[list[str]]:
    """Violated rules with counts, most frequent first."""
    ordered = sorted(failures.items(), key=lambda pair: (-pair[1], pair[0]))
    return [[name, f"{count:,}", percent(count / total if total else None)] for name, count in ordered if count]


# Searches ----------------------------------------------------------------------------------------------------------


def search_text(report: SearchReport, paths: Mapping[str, Path]) -> str:
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


def intervals_text(report: SearchReport, found: FrontIntervals, most: int = DESIGNS) -> str:
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


def _failed_designs(report: SearchReport) -> str | None:
    result = report.result
    if not any(result.failures.values()):
        return None
    return section("Designs that failed, by what they violate", _failures(result.failures, result.evaluations))


def _search_head(report: SearchReport) -> str:
    spec, workload = report.spec, report.spec.workloads[0]
    counts = [f"{int(count):,}" for count in spec.cluster.values["devices"]]
    devices = f"{' or '.join(counts)} device{'' if counts == ['1'] else 's'}"
    wanted = ", ".join(f"{'more' if o.direction == 'maximize' else 'less'} {o.name}" for o in report.problem.objectives)
    limits = ["memory fits", *(f"{c.metric} {c.relation} {metric_text(c.metric, c.bound)}" for c in spec.constraints)]
    return (
        f"{spec.name}: {workload.network.name}, sequence {workload.sequence:,}, "
        f"global batch {workload.global_batch:,}, {devices}; wanted: {wanted}; limits: {'; '.join(limits)}."
    )


def _meanings(report: SearchReport) -> str:
    """What each objective is of: one chip or the whole cluster."""
    known = [o.name for o in report.problem.objectives if o.name in METRICS]
    return "; ".join([*(f"{name}: {METRICS[name][1]}" for name in known), "hardware: one chip"]) + "."


def _design_table(report: SearchReport) -> tuple[list[str], list[list[str]]]:
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


def _extremes(report: SearchReport) -> list[tuple[str, int, str]]:
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


def _search_end(report: SearchReport) -> str:
    result = report.result
    rate = f" in {result.elapsed:,.3g} s" if result.elapsed else ""
    failed = f" {result.failed_rows:,} hardware rows failed to evaluate." if result.failed_rows else ""
    if result.missing:
        failed += f" {len(result.missing):,} hardware rows have no answer: {result.missing[0]['cause']}."
    return (
        f"Stopped because {STOPPED.get(result.stopped, result.stopped)}: {result.hardware_rows:,} hardware rows, "
        f"{result.evaluations:,} designs evaluated{rate}, {result.feasible:,} feasible.{failed}"
    )


def nothing_fits_text(report: SearchReport) -> str:
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


def _nearest_lines(report: SearchReport) -> list[str]:
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


def miss_words(report: SearchReport, design: Design, violations: Mapping[str, float]) -> list[str]:
    """Each violation as needed against available."""
    from dse.api.search import evaluate

    found = evaluate(design)
    limits = {limit.metric: limit for limit in report.spec.constraints}
    words = []
    for name, excess in violations.items():
        if name in limits:
            limit = limits[name]
            allowed = f"{limit.relation} {metric_text(name, limit.bound)}"
            off = f"{percent(excess)} too {'much' if limit.relation == '<=' else 'little'}"
            words.append(f"{name}: {metric_text(name, found.value(name))}, allowed {allowed} ({off})")
        elif name == "memory":
            words.append(limit_text("memory", found.value("memory"), float(design.chip.hbm_capacity), "B"))
        else:
            words.append(f"{name}: {excess:g}, must be 0")
    return words


def summary_markdown(report: SearchReport, intervals: FrontIntervals | None = None) -> str:
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


def _sureness(report: SearchReport) -> str:
    """One sentence: interval of the first row's step time, and how likely it is better than the next."""
    found = front_uncertainty(report, most=2)
    ends = f"{format_quantity(float(found.low[0]), 's')} to {format_quantity(float(found.high[0]), 's')}"
    text = f"step time of row 0: {ends} with 90% probability (on {found.source})"
    if len(report) < 2 or not found.probability_best[1] >= 0.0:
        return text
    name = report.problem.objectives[0].name
    return f"{text}; it is better than row 1 by {name} with {found.probability_best[1]:.0%}"


# Validation --------------------------------------------------------------------------------------------------------


def validation_text(found: Any) -> str:
    """Errors of every set of measurements; what was not compared, by reason; rows where there are some."""
    rows = [
        [
            score.set, f"{score.n_scored:,} of {score.n:,}", *(_error(getattr(score, name)) for name in _ERRORS),
            "yes" if score.calibrated else "no",
        ]
        for score in found.sets
        if score.n_scored
    ]  # fmt: skip
    headings = ["set", "scored", "mean", "median", "95%", "worst", "bias", "floor", "fitted"]
    tables = [score for score in found.sets if not score.set.startswith("summary/")]
    scored = sum(score.n_scored for score in tables)
    total = sum(score.n for score in tables)
    parts = [
        f"{scored:,} of {total:,} measured rows compared. Errors are |predicted / measured - 1|; bias keeps the sign.",
        "",
        columns_text(headings, rows) if rows else "No set has a row that can be compared.",
        _unscored_words(tables),
        _fit_words(getattr(found, "fit", None)),
        _scaling_words(getattr(found, "scaling", ())),
        _skipped_words(found.skipped),
        _compared_rows(getattr(found, "rows", ()) or ()),
    ]
    return join(parts)


def _unscored_words(scores: Sequence[Any]) -> str | None:
    """Sets without a compared row, counted by table."""
    tables: dict[str, list[Any]] = {}
    for score in scores:
        if not score.n_scored:
            tables.setdefault(score.set.split("/")[0], []).append(score)
    if not tables:
        return None
    words = [
        f"{name} {len(items)} set{'s' if len(items) > 1 else ''} of {sum(item.n for item in items):,} rows"
        for name, items in tables.items()
    ]
    return "\n" + wrapped(f"Sets without a compared row: {'; '.join(words)}.")


_ERRORS = ("mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent")


def _error(value: float | None) -> str:
    return "n/a" if value is None or math.isnan(value) else f"{value:.1f}%"


def _scaling_words(found: Sequence[Any]) -> str | None:
    """Throughput a device over that of one device of the same set: error in points, by number of devices."""
    if not found:
        return None
    rows = []
    for devices in sorted({item.devices for item in found}):
        own = [item for item in found if item.devices == devices]
        median, mean, bias = scaling_error(own) or (0.0, 0.0, 0.0)
        rows.append([f"{devices:,}", f"{len(own):,}", f"{median:.1f}", f"{mean:.1f}", f"{bias:+.1f}"])
    median, mean, bias = scaling_error(found) or (0.0, 0.0, 0.0)
    rows.append(["all", f"{len(found):,}", f"{median:.1f}", f"{mean:.1f}", f"{bias:+.1f}"])
    head = "Throughput of a device over that of one alone, predicted less measured [percentage points]:"
    return "\n".join(["", head, columns_text(["devices", "rows", "median", "mean", "bias"], rows)])


def _fit_words(fit: Any) -> str | None:
    if fit is None or not fit.n:
        return None
    lines = [f"Measured runs predicted to fit in memory: {fit.n_fit:,} of {fit.n:,} ({percent(fit.n_fit / fit.n)})"]
    lines += [f"  not: {row} ({name}), needs {percent(share)} of the memory" for row, name, share in fit.misses]
    return "\n".join(["", *lines])


def _skipped_words(skipped: Iterable[Any]) -> str | None:
    counts: dict[str, int] = {}
    for item in skipped:
        counts[item.reason] = counts.get(item.reason, 0) + 1
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [[reason, f"{count:,}"] for reason, count in ordered[:REASONS]]
    rest = ordered[REASONS:]
    more = f"  {len(rest)} more reasons: {sum(count for _, count in rest):,} rows" if rest else None
    return section("Not compared", columns_text(["reason", "rows"], rows, indent=2), more)


def _compared_rows(rows: Sequence[Any]) -> str | None:
    if not rows:
        return None
    shown = [
        [row.row_id, row.set, format_quantity(row.predicted, row.unit), format_quantity(row.measured, row.unit),
         f"{row.error_percent:+.1f}%"]
        for row in rows
    ]  # fmt: skip
    return section("Rows", columns_text(["row", "set", "predicted", "measured", "error"], shown, indent=2))
