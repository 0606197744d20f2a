"""`dse pareto`: the record of a search, filtered, and its front anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem, nearest
from dse.base.files import write_atomic
from dse.base.units import UnitError, parse
from dse.command.exit_status import NOTHING_FITS
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.search import search_plain
from dse.evaluation.result import METRICS
from dse.inputs.spec import SearchSpec
from dse.insight.front_intervals import front_intervals
from dse.present.text.search import intervals_text, nothing_fits_text
from dse.problem.filter import filtered
from dse.record.read import load_report
from dse.record.write import check_out, front_frame, write_outputs

__all__ = ["run"]


def run(options: Options) -> int:
    """Filter what a search recorded, and print or write the front of the rest."""
    if options.to:
        check_out(options.to)
    report = load_report(options.out)
    where = [_limit(text, report.spec) for text in options.where]
    named = options.objectives
    objectives = None if named is None else [_metric(name, report.spec, "--objectives") for name in named.split(",")]
    chosen = filtered(report, where, objectives)
    intervals = front_intervals(chosen) if options.uncertainty else None
    frame = front_frame(chosen, intervals)
    if options.csv:
        _write_csv(frame, Path(options.csv))
    paths = write_outputs(chosen, options.to, intervals) if options.to else {}
    if options.json:
        found = search_plain(chosen, paths, most=len(chosen))
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


def _limit(text: str, spec: SearchSpec) -> tuple[str, str, float]:
    """`die_area <= 600 mm2` as metric, relation and bound in base SI."""
    match = _RULE.fullmatch(text)
    if not match:
        raise ConfigError([Problem(f'"{text}"', "METRIC <= BOUND or METRIC >= BOUND, with its unit", field="--where")])
    name = _metric(match[1], spec, "--where")
    try:
        return name, match[2], parse(match[3], spec.unit_of(name))
    except UnitError as error:
        fault = Problem(error.found, error.allowed, field=f"--where {name}", nearest=error.nearest, hint=error.hint)
        raise ConfigError([fault]) from None


def _metric(name: str, spec: SearchSpec, flag: str) -> str:
    found, known = name.strip(), [*METRICS, *(metric.name for metric in spec.metrics)]
    if found not in known:
        raise ConfigError([Problem(f'"{found}"', ", ".join(known), field=flag, nearest=nearest(found, known))])
    return found


def _write_csv(frame: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, frame.to_csv(index=False))
