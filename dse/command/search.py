"""`dse search`: chips and plans together; with several networks, one chip for all."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.api.search import search
from dse.api.several import search_several
from dse.base.errors import ConfigError, Problem
from dse.base.files import file_name
from dse.command.exit_status import FAILED, INTERRUPTED, NOTHING_FITS
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.progress import Shown
from dse.exploration.settings import SearchResult
from dse.inputs.serialize import design_to_plain
from dse.inputs.spec import SearchSpec
from dse.inputs.yaml.load import load_search
from dse.insight.front_intervals import FrontIntervals
from dse.present.text.search import intervals_text, nothing_fits_text, search_text
from dse.present.text.several import several_text
from dse.problem.several import network_rows
from dse.problem.solved import Solved
from dse.record.several import write_several
from dse.record.write import begin, check_out, write_outputs

__all__ = ["run", "search_plain"]


def run(options: Options) -> int:
    """Search, write the outputs, print the five best designs."""
    spec = load_search(options.config)
    shown = Shown(options.quiet)
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


def _search_several(options: Options, spec: SearchSpec, out: Path, shown: Shown) -> int:
    """One chip for several networks, beside one for each."""
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
    if report.result.missing:
        print(missing_words(report.result), file=sys.stderr)
        return FAILED
    return 0 if len(report) else NOTHING_FITS


def _print_search(
    options: Options, report: Solved, paths: Mapping[str, Path], intervals: FrontIntervals | None
) -> None:
    if options.json:
        print_json(search_plain(report, paths) | ({"uncertainty": intervals.to_plain()} if intervals else {}))
    elif len(report):
        print(search_text(report, paths))
        print(intervals_text(report, intervals) if intervals else "", end="\n" if intervals else "")
    else:
        print(nothing_fits_text(report))


def search_plain(report: Solved, paths: Mapping[str, Path], most: int = 5) -> dict[str, Any]:
    """A search as JSON-able data, its best `most` designs in full."""
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


def _search_status(report: Solved) -> int:
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
