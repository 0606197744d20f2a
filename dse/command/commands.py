"""What each command of `dse` does: read the flags, call the library, print the answer, say how it ended.

Everything that costs time to import is imported where it is used.  What the flags are is in `dse.command.main`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.base.errors import ConfigError, Problem, nearest
from dse.base.files import file_name
from dse.command.calibrate import run_calibrate
from dse.command.explain import run_compare, run_explain
from dse.command.import_network import run_import
from dse.command.json_output import finite, print_json
from dse.command.main import FAILED, INTERRUPTED, NOTHING_FITS
from dse.command.network import run_network
from dse.command.trace import run_trace

if TYPE_CHECKING:
    from dse.api.evaluation import Evaluation
    from dse.api.search import SearchReport
    from dse.evaluation.design import Design
    from dse.exploration.run import Progress, SearchResult
    from dse.inputs.spec import SearchSpec
    from dse.insight.front_intervals import FrontIntervals

__all__ = [
    "run_bench", "run_calibrate", "run_compare", "run_evaluate", "run_explain", "run_import", "run_list", "run_network",
    "run_pareto", "run_plan", "run_schema", "run_search", "run_trace", "run_validate",
]  # fmt: skip

Options = argparse.Namespace

#: Metrics that a design has although it cannot run.
ALWAYS = ("memory", "die_area", "tdp", "peak_power")

#: Metrics that people read as a percentage.
SHARES = ("mfu", "hfu")

#: Totals of a run of several steps: name -> metric of one step, unit, scope.
TOTALS = {
    "total_time": ("step_time", "s", "the whole run"),
    "total_energy": ("energy_per_step", "J", "whole cluster, the whole run"),
}


# Search -----------------------------------------------------------------------------------------------------------


def run_search(options: Options) -> int:
    """Search, write the outputs, print the five best designs."""
    from dse.api.search import search
    from dse.inputs.yaml.load import load_search
    from dse.record.write import begin, check_out, write_outputs

    spec = load_search(options.config)
    shown = _Shown(options.quiet)
    out = Path(options.out) if options.out else Path("out") / file_name(spec.name)
    if len(spec.workloads) > 1:
        _refuse_intervals(options)
        return _search_several(options, spec, check_out(out), shown)
    out = begin(spec, out)
    try:
        report = search(
            spec, out=out, budget=options.budget, seed=options.seed, timeout=options.timeout, jobs=options.jobs,
            storage=options.storage, progress=shown,
        )  # fmt: skip
    finally:
        shown.close()
    intervals = report.uncertainty() if options.uncertainty else None
    paths = write_outputs(report, out, intervals)
    _print_search(options, report, paths, intervals)
    return _search_status(report)


def _refuse_intervals(options: Options) -> None:
    if options.uncertainty:
        raise ConfigError([Problem("several workloads", "one workload", field="--uncertainty")])


def _search_several(options: Options, spec: SearchSpec, out: Path, shown: _Shown) -> int:
    """One chip for several networks, beside one for each."""
    from dataclasses import replace

    from dse.api.several import network_rows, search_several, several_text, write_several

    given = {"budget": options.budget, "seed": options.seed, "timeout": options.timeout}
    chosen = replace(spec.search, **{name: value for name, value in given.items() if value is not None})
    try:
        report = search_several(
            replace(spec, search=chosen), out=out, jobs=options.jobs, storage=options.storage, progress=shown
        )
    except KeyboardInterrupt:
        print("interrupted: nothing that finished is lost; continue with the same command", file=sys.stderr)
        return INTERRUPTED
    finally:
        shown.close()
    paths = write_several(report, out)
    if options.json:
        print_json({
            "name": spec.name, "front": len(report), "networks": network_rows(report) if len(report) else [],
            "paths": {name: str(path) for name, path in paths.items()},
        })  # fmt: skip
    else:
        print(several_text(report, paths))
    if report.result.stopped == "interrupted":
        print("interrupted: nothing that finished is lost; continue with the same command", file=sys.stderr)
        return INTERRUPTED
    lacking = [one for one in (report.result, *(r.result for r in report.alone.values())) if one.missing]
    for one in lacking:
        print(missing_words(one), file=sys.stderr)
    return FAILED if lacking else 0 if len(report) else NOTHING_FITS


def _print_search(
    options: Options, report: SearchReport, paths: Mapping[str, Path], intervals: FrontIntervals | None
) -> None:
    from dse.present.text.search import intervals_text, nothing_fits_text, search_text

    if options.json:
        print_json(_search_plain(report, paths) | ({"uncertainty": intervals.to_plain()} if intervals else {}))
    elif len(report):
        print(search_text(report, paths))
        print(intervals_text(report, intervals) if intervals else "", end="\n" if intervals else "")
    else:
        print(nothing_fits_text(report))


def _search_plain(report: SearchReport, paths: Mapping[str, Path], most: int = 5) -> dict[str, Any]:
    from dse.inputs.serialize import design_to_plain

    result = report.result
    return {
        "name": report.spec.name,
        "stopped": result.stopped,
        "hardware_rows": result.hardware_rows,
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "failures": result.failures,
        "missing": list(result.missing),
        "nearest_miss": result.miss,
        "front": len(report),
        "objectives": [{"name": o.name, "unit": o.unit, "direction": o.direction} for o in report.problem.objectives],
        "best": [
            {"row": row, "values": result.values[row].tolist(), "design": design_to_plain(report.design(row))}
            for row in range(min(most, len(report)))
        ],
        "notes": list(result.notes),
        "elapsed_s": result.elapsed,
        "paths": {name: str(path) for name, path in paths.items()},
    }


def _search_status(report: SearchReport) -> int:
    result = report.result
    if result.stopped == "interrupted":
        print("interrupted: nothing that finished is lost; continue with the same command", file=sys.stderr)
        return INTERRUPTED
    if result.failed_rows and result.failed_rows == result.hardware_rows:
        cause = result.faults[0]["cause"] if result.faults else "unknown"
        print(f"{result.failed_rows} of {result.hardware_rows} hardware rows failed; first: {cause}", file=sys.stderr)
        return FAILED
    if result.missing:
        print(missing_words(result), file=sys.stderr)
        return FAILED
    return 0 if len(report) else NOTHING_FITS


def missing_words(result: SearchResult) -> str:
    """How many hardware rows have no answer, and why the first of them."""
    cause = result.missing[0]["cause"]
    return f"{len(result.missing)} hardware rows have no answer (try again: the same command); first: {cause}"


class _Shown:
    """Progress on stderr: one line that is rewritten on a terminal, else a line every few seconds."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.every, self.next, self.width = (0.1, 0.0, 0) if self.terminal else (5.0, time.monotonic() + 5.0, 0)

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if self.quiet or (now < self.next and progress.rows < progress.limit):
            return
        self.next = now + self.every
        text = progress_text(progress)
        if self.terminal:
            print("\r" + text.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line that was rewritten."""
        if self.width:
            print(file=sys.stderr)
            self.width = 0


def progress_text(progress: Progress) -> str:
    """One line: how far, how many designs, what was found."""
    share = progress.rows / progress.limit if progress.limit else 1.0
    return (
        f"{progress.rows:,} of {progress.limit:,} chips ({share:.0%}), {progress.evaluations:,} designs, "
        f"{progress.feasible:,} fit, front {progress.front:,}, {progress.elapsed:.0f} s"
    )


# Plans ------------------------------------------------------------------------------------------------------------


def run_plan(options: Options) -> int:
    """The best plans of a network on given chips."""
    from dse.command.designs import flags_of
    from dse.exploration.plans import PlanSpace
    from dse.inputs.yaml.flags import assignments, design_of
    from dse.insight.planner import plan
    from dse.present.text.search import plan_text

    changes = [text for text in options.set if "." in text.partition("=")[0]]
    space = {
        name: [_plan_value(item) for item in text.split(",")]
        for name, text in assignments([text for text in options.set if text not in changes]).items()
    }
    spec = design_of(flags_of(options), changes)
    workload = spec.workloads[0]
    report = plan(
        workload.network, spec.chip, devices=int(spec.cluster.devices), global_batch=workload.global_batch,
        sequence=workload.sequence, cluster=spec.cluster, stack=spec.stack, training=spec.training,
        tokens=options.tokens, top=options.top, plan_space=PlanSpace.of(space),
    )  # fmt: skip
    if options.json:
        print_json(report.to_plain())
    else:
        print(plan_text(report))
    return 0 if report.fits else NOTHING_FITS


def _plan_value(text: str) -> Any:
    from dse.base.units import read_number
    from dse.inputs.yaml.flags import TRUTHS

    number = read_number(text.strip())
    if number is not None and number.denominator == 1:
        return int(number)
    if text.strip().lower() in TRUTHS:
        return text.strip().lower() in ("true", "on", "yes")
    return text.strip()


# One design -------------------------------------------------------------------------------------------------------


def run_evaluate(options: Options) -> int:
    """Metrics of one design, or why it cannot run."""
    from dse.api.search import evaluate
    from dse.command.designs import one_design

    design = one_design(options)
    result = evaluate(design)
    if options.json:
        print_json(evaluation_plain(result, design, options.steps))
    else:
        print(evaluation_text(result, design, options.steps))
    return 0 if bool(result.feasible[0]) else NOTHING_FITS


def evaluation_plain(result: Evaluation, design: Design, steps: int | None) -> dict[str, Any]:
    """A result of one row with the unit of every number; a design that cannot run has no times."""
    from dse.evaluation.result import METRICS
    from dse.inputs.serialize import design_to_plain

    feasible = bool(result.feasible[0])
    names = [name for name in result.metrics if feasible or name in ALWAYS or name.startswith("memory_")]
    found = {
        "feasible": feasible,
        "violations": {name: finite(value) for name, value in result.violated().items()},
        "metrics": {name: finite(result.value(name)) for name in names},
        "units": {name: METRICS[name][0] for name in names},
        "scopes": {name: METRICS[name][1] for name in names},
        "design": design_to_plain(design),
    }
    if steps is not None and feasible:
        found["steps"] = steps
        found["totals"] = {name: value for name, (value, _, _) in totals(result, design, steps).items()}
        found["total_units"] = {name: unit for name, (_, unit, _) in totals(result, design, steps).items()}
    return found


def totals(result: Evaluation, design: Design, steps: int) -> dict[str, tuple[float, str, str]]:
    """Totals of `steps` steps: value, unit, scope.  A cost only where the cluster has a price."""
    found = {name: (steps * result.value(metric), unit, scope) for name, (metric, unit, scope) in TOTALS.items()}
    found["total_tokens"] = (float(steps * design.workload.tokens), "token", "the whole run")
    price = float(design.cluster.usd_per_device_hour)
    if price > 0:
        hours = steps * result.value("step_time") / 3600.0
        cost = hours * float(design.cluster.devices) * price
        found["total_cost"] = (cost, "USD", f"whole cluster at {price:g} USD a device and hour")
    return found


def evaluation_text(result: Evaluation, design: Design, steps: int | None) -> str:
    """A result of one row for people; a design that cannot run says so and has no times."""
    from dse.base.units import format_quantity
    from dse.command.designs import plan_words
    from dse.evaluation.result import METRICS
    from dse.present.text.tables import table_text
    from dse.present.text.words import in_words_of, length_text

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


def violation_words(name: str, value: float, result: Evaluation, design: Design) -> str:
    """One violated rule in words; memory with what is needed and what there is."""
    from dse.base.units import format_quantity

    if name == "memory":
        needed = format_quantity(result.value("memory"), "B")
        return f"memory: needs {needed} on the fullest device, available {format_quantity(_capacity(design), 'B')}"
    if name == "power_cap":
        cap = format_quantity(float(design.chip.power_cap), "W")
        return f"power_cap: the lowest clock still draws {value:.1%} more than {cap}"
    return f"{name}: violated by {value:g}"


def _capacity(design: Design) -> float:
    return float(design.chip.hbm_capacity)


# The record of a search -------------------------------------------------------------------------------------------


def run_pareto(options: Options) -> int:
    """Filter what a search recorded, and print or write the front of the rest."""
    from dse.present.text.search import intervals_text, nothing_fits_text
    from dse.record.read import filtered, load_report
    from dse.record.write import check_out, front_frame, write_outputs

    where = [_limit(text) for text in options.where]
    objectives = None if options.objectives is None else [_metric(name) for name in options.objectives.split(",")]
    if options.to:
        check_out(options.to)
    report = load_report(options.out)
    chosen = filtered(report, where, objectives)
    intervals = chosen.uncertainty() if options.uncertainty else None
    frame = front_frame(chosen, intervals)
    if options.csv:
        _write_csv(frame, Path(options.csv))
    paths = write_outputs(chosen, options.to, intervals) if options.to else {}
    if options.json:
        found = _search_plain(chosen, paths, most=len(chosen))
        print_json(found | ({"uncertainty": intervals.to_plain()} if intervals else {}))
    elif intervals and len(chosen):
        print(intervals_text(chosen, intervals, most=20))
    elif len(chosen):
        print(frame.to_string(index=False, max_rows=20, max_cols=12))
    elif len(report):
        print(f"none of the {len(report)} designs of the front is left", file=sys.stderr)
    else:
        print(nothing_fits_text(report))
    for path in [*([options.csv] if options.csv else []), *paths.values()]:
        print(f"wrote {path}", file=sys.stderr)
    return 0 if len(chosen) else NOTHING_FITS


_RULE = re.compile(r"\s*([\w.]+)\s*(<=|>=)\s*(\S.*)")


def _limit(text: str) -> tuple[str, str, float]:
    """`die_area <= 600 mm2` as metric, relation and bound in base SI."""
    from dse.base.units import UnitError, parse
    from dse.evaluation.result import METRICS

    match = _RULE.fullmatch(text)
    if not match:
        raise ConfigError([Problem(f'"{text}"', "METRIC <= BOUND or METRIC >= BOUND, with its unit", field="--where")])
    name = _metric(match[1], "--where")
    try:
        return name, match[2], parse(match[3], METRICS[name][0])
    except UnitError as error:
        fault = Problem(error.found, error.allowed, field=f"--where {name}", nearest=error.nearest, hint=error.hint)
        raise ConfigError([fault]) from None


def _metric(name: str, flag: str = "--objectives") -> str:
    from dse.evaluation.result import METRICS

    found = name.strip()
    if found not in METRICS:
        raise ConfigError([Problem(f'"{found}"', ", ".join(METRICS), field=flag, nearest=nearest(found, METRICS))])
    return found


def _write_csv(frame: Any, path: Path) -> None:
    from dse.base.files import write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, frame.to_csv(index=False))


# Lists ------------------------------------------------------------------------------------------------------------


def run_list(options: Options) -> int:
    """A table of what can be named."""
    from dse.present.text.lists import TABLES
    from dse.present.text.tables import table_text

    plain, shown = TABLES[options.what]()
    if options.json:
        print_json(plain)
    else:
        print(table_text(shown))
    return 0


# The rest ---------------------------------------------------------------------------------------------------------


def run_schema(options: Options) -> int:
    """JSON Schema on standard output."""
    from dse.inputs.yaml.schema import json_schema

    print(json.dumps(json_schema(options.kind), indent=2))
    return 0


def run_validate(options: Options) -> int:
    """Predictions beside measurements."""
    from dse.evidence.calibration.calibrate import read_constants
    from dse.evidence.validation.page import write_report
    from dse.evidence.validation.validate import validate
    from dse.present.text.search import validation_text

    data = options.data or os.environ.get("DSE_DATA") or None
    if data is not None and not Path(data).is_dir():
        raise ConfigError([Problem("no such folder", "a folder with measurements", field="--data", file=str(data))])
    known = read_constants(options.constants) if options.constants else None
    found = validate(data, tuple(options.set), options.rows or bool(options.report), constants=known)
    page = write_report(found, options.report) if options.report else None
    if not options.rows:
        found = replace(found, rows=None)
    if options.json:
        print_json(found.to_plain())
    else:
        print(validation_text(found))
        print(f"\nReport: {page}" if page else "", end="\n" if page else "")
    return 0


def run_bench(options: Options) -> int:
    """Rates of this machine."""
    from dse.evidence.benchmark import bench
    from dse.present.text.tables import table_text

    found = bench(jobs=options.jobs, largest=options.largest)
    if options.json:
        print_json(found)
        return 0
    sizes = found.pop("cost_by_size")
    print(table_text([{"what": name, "value": _short(value)} for name, value in found.items()]))
    print()
    print(table_text([{name: _short(value) for name, value in row.items()} for row in sizes]))
    return 0


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
