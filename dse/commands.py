"""What each command of `dse` does: read the flags, call the library, print the answer, say how it ended.

Everything that costs time to import is imported where it is used.  What the flags are is in `dse.cli`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.cli import FAILED, INTERRUPTED, LISTS, NOTHING_FITS
from dse.errors import ConfigError, Problem, listed, nearest

if TYPE_CHECKING:
    from dse.api import SearchReport
    from dse.evaluation.design import Design
    from dse.exploration.run import Progress
    from dse.results import Evaluation

__all__ = [
    "run_bench", "run_compare", "run_evaluate", "run_explain", "run_list", "run_pareto", "run_plan", "run_schema",
    "run_search", "run_validate",
]  # fmt: skip

Options = argparse.Namespace

#: Metrics that a design has although it cannot run.
ALWAYS = ("memory", "die_area", "tdp", "peak_power")

#: Totals of a run of several steps: name -> metric of one step, unit, scope.
TOTALS = {
    "total_time": ("step_time", "s", "the whole run"),
    "total_energy": ("energy_per_step", "J", "whole cluster, the whole run"),
}


# Search -----------------------------------------------------------------------------------------------------------


def run_search(options: Options) -> int:
    """Search, write the outputs, print the five best designs."""
    from dse.api import search
    from dse.config import load_search
    from dse.export import check_out, write_outputs

    spec = load_search(options.config)
    out = Path(options.out) if options.out else Path("out") / spec.name
    check_out(out)
    shown = _Shown(options.quiet)
    try:
        report = search(
            spec, out=out, budget=options.budget, seed=options.seed, timeout=options.timeout, jobs=options.jobs,
            storage=options.storage, progress=shown,
        )  # fmt: skip
    finally:
        shown.close()
    paths = write_outputs(report, out)
    _print_search(options, report, paths)
    return _search_status(report)


def _print_search(options: Options, report: SearchReport, paths: Mapping[str, Path]) -> None:
    from dse.report import nothing_fits_text, search_text

    if options.json:
        _print_json(_search_plain(report, paths))
    elif len(report):
        print(search_text(report, paths))
    else:
        print(nothing_fits_text(report))


def _search_plain(report: SearchReport, paths: Mapping[str, Path]) -> dict[str, Any]:
    from dse.serialize import design_to_plain

    result = report.result
    return {
        "name": report.spec.name,
        "stopped": result.stopped,
        "hardware_rows": result.hardware_rows,
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "failures": result.failures,
        "nearest_miss": result.miss,
        "front": len(report),
        "objectives": [{"name": o.name, "unit": o.unit, "direction": o.direction} for o in report.problem.objectives],
        "best": [
            {"row": row, "values": result.values[row].tolist(), "design": design_to_plain(report.design(row))}
            for row in range(min(5, len(report)))
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
    return 0 if len(report) else NOTHING_FITS


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
    from dse.config_flags import assignments, design_of
    from dse.exploration.plans import PlanSpace
    from dse.planner import plan
    from dse.report import plan_text

    changes = [text for text in options.set if "." in text.partition("=")[0]]
    space = {
        name: [_plan_value(item) for item in text.split(",")]
        for name, text in assignments([text for text in options.set if text not in changes]).items()
    }
    spec = design_of(_flags(options), changes)
    workload = spec.workloads[0]
    report = plan(
        workload.network, spec.chip, devices=int(spec.cluster.devices), global_batch=workload.global_batch,
        sequence=workload.sequence, cluster=spec.cluster, stack=spec.stack, training=spec.training,
        tokens=options.tokens, top=options.top, plan_space=PlanSpace.of(space),
    )  # fmt: skip
    if options.json:
        _print_json(_plain(report))
    else:
        print(plan_text(report))
    return 0 if len(report.best) else NOTHING_FITS


def _plan_value(text: str) -> Any:
    from dse.config_flags import TRUTHS
    from dse.units import read_number

    number = read_number(text.strip())
    if number is not None and number.denominator == 1:
        return int(number)
    if text.strip().lower() in TRUTHS:
        return text.strip().lower() in ("true", "on", "yes")
    return text.strip()


# One design -------------------------------------------------------------------------------------------------------


def run_evaluate(options: Options) -> int:
    """Metrics of one design, or why it cannot run."""
    from dse.api import evaluate

    design = _design(options)
    result = evaluate(design)
    if options.json:
        _print_json(evaluation_plain(result, design, options.steps))
    else:
        print(evaluation_text(result, design, options.steps))
    return 0 if bool(result.feasible[0]) else NOTHING_FITS


def run_explain(options: Options) -> int:
    """The account of one design."""
    from dse.api import evaluate
    from dse.explain import account
    from dse.report import account_text

    design = _design(options)
    found = account(design)
    if options.json:
        _print_json(_plain(found))
    else:
        print(account_text(found))
    return 0 if bool(evaluate(design).feasible[0]) else NOTHING_FITS


def run_compare(options: Options) -> int:
    """Two designs side by side."""
    from dse.explain import comparison
    from dse.report import comparison_text

    sides = []
    problems: list[Problem] = []
    for name in (options.first, options.second):
        try:
            sides.append(_side(options, name))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise ConfigError(problems)
    found = comparison(*sides)
    if options.json:
        _print_json(_plain(found))
    else:
        print(comparison_text(found))
    return 0


def _side(options: Options, name: str) -> Design:
    """One side of a comparison: a design file, OUT:ROW, or a chip with the common flags."""
    if Path(name).exists() or _stored(name):
        return _design_of(name)
    return _from_flags(_flags(options) | {"chip": name}, options.set)


def _design(options: Options) -> Design:
    """The design of `evaluate` and `explain`: a file, a row of a front, or flags."""
    flags = {name: text for name, text in _flags(options).items() if text is not None}
    ways = [options.design is not None, options.origin is not None, bool(flags or options.set)]
    if sum(ways) != 1:
        found = "nothing" if not any(ways) else "several descriptions of one design"
        raise ConfigError([Problem(found, "a design file, OUT:ROW, --from OUT --row N, or --network, --chip, ...")])
    if options.row is not None and options.origin is None:
        raise ConfigError([Problem("--row alone", "--from OUT --row N")])
    if options.origin is not None:
        return _row_of(options.origin, options.row or 0)
    return _design_of(options.design) if options.design is not None else _from_flags(flags, options.set)


def _design_of(name: str) -> Design:
    """The design of a file, or of OUT:ROW."""
    path = Path(name)
    stored = None if path.is_file() else _stored(name)
    if stored:
        return _row_of(*stored)
    if path.suffix == ".json":
        return _json_design(path)
    from dse.config import load_design

    return _complete(load_design(name))


def _stored(name: str) -> tuple[str, int] | None:
    """Folder and row of OUT:ROW."""
    folder, colon, row = name.rpartition(":")
    return (folder, int(row)) if colon and row.isdecimal() and Path(folder).is_dir() else None


def _json_design(path: Path) -> Design:
    """The design in a JSON file, as `dse evaluate --json` or designs.json write one."""
    from dse.serialize import design_from_plain

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem(str(error.strerror), "a design file", file=str(path))]) from None
    except ValueError as error:
        raise ConfigError([Problem(f"no valid JSON ({error})", "a design file", file=str(path))]) from None
    if not isinstance(data, dict):
        hint = "for a design of a front use OUT:ROW"
        raise ConfigError([Problem("a list", "one design", file=str(path), hint=hint)])
    try:
        return design_from_plain(data.get("design", data))
    except (TypeError, KeyError) as error:
        raise ConfigError([Problem(f"no design ({error})", "as dse evaluate --json writes it", file=str(path))]) from None


def _row_of(out: str, row: int) -> Design:
    """A design of the front of a search, to the same bits."""
    from dse.export import read_designs
    from dse.serialize import design_from_plain

    designs = read_designs(out)
    if not designs:
        raise ConfigError([Problem("no design", "a search whose front has designs", file=str(out))])
    if row >= len(designs):
        raise ConfigError([Problem(f"row {row}", f"0 to {len(designs) - 1}", field="row", file=str(out))])
    return design_from_plain(designs[row].get("design", designs[row]))


def _from_flags(flags: Mapping[str, str | None], changes: list[str]) -> Design:
    from dse.config_flags import design_of

    return _complete(design_of(flags, changes))


def _complete(spec: Any) -> Design:
    """The design of a specification; where it leaves the plan open, the fastest that fits."""
    from dse.evaluation.design import Design
    from workloads.plan import Plan

    if len(spec.workloads) != 1:
        raise ConfigError([Problem(f"{len(spec.workloads)} workloads", "one", field="workloads", file=spec.path)])
    chosen = spec.plan or _fastest(spec) or Plan(data=int(spec.cluster.devices))
    return Design(spec.chip, spec.cluster, chosen, spec.workloads[0], spec.stack, spec.training)


def _fastest(spec: Any) -> Any:
    from dse.planner import plan

    workload = spec.workloads[0]
    report = plan(
        workload.network, spec.chip, devices=int(spec.cluster.devices), global_batch=workload.global_batch,
        sequence=workload.sequence, cluster=spec.cluster, stack=spec.stack, training=spec.training, top=1,
    )  # fmt: skip
    if not len(report.best):
        return None
    chosen = report.best[0].plan
    print(f"no plan given, the fastest that fits: {plan_words(chosen)}", file=sys.stderr)
    return chosen


def plan_words(plan: Any) -> str:
    """A plan on one line: what differs from a plain plan."""
    from workloads.plan import Plan

    plain, named = Plan().named(), plan.named()
    always = ("tensor", "pipeline", "data", "micro_batch")
    return ", ".join(f"{name} {value}" for name, value in named.items() if name in always or value != plain[name])


def evaluation_plain(result: Evaluation, design: Design, steps: int | None) -> dict[str, Any]:
    """A result of one row with the unit of every number; a design that cannot run has no times."""
    from dse.evaluation.result import METRICS
    from dse.serialize import design_to_plain

    feasible = bool(result.feasible[0])
    names = [name for name in result.metrics if feasible or name in ALWAYS or name.startswith("memory_")]
    found = {
        "feasible": feasible,
        "violations": {name: _finite(value) for name, value in result.violated().items()},
        "metrics": {name: _finite(result.value(name)) for name in names},
        "units": {name: METRICS[name][0] for name in names if name in METRICS},
        "scopes": {name: METRICS[name][1] for name in names if name in METRICS},
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
    from dse.evaluation.result import METRICS
    from dse.report import table_text
    from dse.units import format_quantity

    workload = design.workload
    head = [
        f"{workload.network.name}, sequence {workload.sequence}, global batch {workload.global_batch}, "
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
            "value": format_quantity(result.value(name), METRICS[name][0]) if name in METRICS else f"{result.value(name):g}",
            "meaning": METRICS[name][1] if name in METRICS else "",
        }
        for name in shown
    ]
    if steps is not None and not broken:
        rows += [
            {"metric": name, "value": format_quantity(value, unit), "meaning": f"{steps} steps, {scope}"}
            for name, (value, unit, scope) in totals(result, design, steps).items()
        ]
    return "\n".join([*head, "", table_text(rows)])


def violation_words(name: str, value: float, result: Evaluation, design: Design) -> str:
    """One violated rule in words; memory with what is needed and what there is."""
    from dse.units import format_quantity

    if name == "memory":
        needed = format_quantity(result.value("memory"), "B")
        return f"memory: needs {needed} on the fullest device, available {format_quantity(_capacity(design), 'B')}"
    return f"{name}: violated by {value:g}"


def _capacity(design: Design) -> float:
    return float(design.chip.hbm_capacity)


# The record of a search -------------------------------------------------------------------------------------------


def run_pareto(options: Options) -> int:
    """Filter what a search recorded, and print or write the front of the rest."""
    from dse.export import check_out, load_report, write_outputs
    from dse.report import nothing_fits_text

    if options.to:
        check_out(options.to)
    report = load_report(options.out)
    chosen = _filtered(report, options)
    frame = chosen.to_frame()
    if options.csv:
        _write_csv(frame, Path(options.csv))
    paths = write_outputs(chosen, options.to) if options.to else {}
    if options.json:
        _print_json({"designs": frame.to_dict(orient="records"), "paths": {k: str(v) for k, v in paths.items()}})
    elif len(chosen):
        print(frame.to_string(index=False, max_rows=20, max_cols=12))
    elif len(report):
        print("no design of the front is left by --where", file=sys.stderr)
    else:
        print(nothing_fits_text(report))
    for path in [*([options.csv] if options.csv else []), *paths.values()]:
        print(f"wrote {path}", file=sys.stderr)
    return 0 if len(chosen) else NOTHING_FITS


def _write_csv(frame: Any, path: Path) -> None:
    from dse.atomic import write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, frame.to_csv(index=False))


# Lists ------------------------------------------------------------------------------------------------------------


def run_list(options: Options) -> int:
    """A table of what can be named."""
    from dse.report import table_text

    assert options.what in LISTS
    plain, shown = _TABLES[options.what]()
    if options.json:
        _print_json(plain)
    else:
        print(table_text(shown))
    return 0


def _network_rows() -> tuple[Any, Any]:
    from workloads.published import table

    rows = table()
    shown = [
        {
            "network": row["name"],
            "parameters": f"{row['parameters'] / 1e9:,.3f} B",
            "published": f"{row['published_parameters'] / 1e9:,.3f} B" if row["published_parameters"] else "n/a",
            "layers": str(row["layers"]),
            "hidden": str(row["hidden"]),
            "heads": str(row["heads"]),
            "kv heads": str(row["kv_heads"]),
            "sequence": str(row["sequence"]),
            "source": str(row["source"]).split(";")[0],
        }
        for row in rows
    ]
    return rows, shown


def _chip_rows() -> tuple[Any, Any]:
    from hw_models.devices import comparisons, names, table_rows

    plain = [
        {
            "chip": item.chip, "quantity": item.quantity, "unit": item.unit, "model": item.model,
            "published": item.published, "error": item.error, "kind": item.kind,
        }
        for name in names()
        for item in comparisons(name)
    ]  # fmt: skip
    return plain, table_rows()


def _cluster_rows() -> tuple[Any, Any]:
    from dse.units import format_quantity
    from hw_models.clusters import names, rows

    plain = [dict(row) for name in names() for row in rows(name)]
    shown = [
        {
            "cluster": row["cluster"],
            "tier": row["tier"],
            "size": row["size"] or "all",
            "topology": row["topology"],
            "bandwidth": "chip links" if float(row["bandwidth [B/s]"]) == 0
            else format_quantity(float(row["bandwidth [B/s]"]), "B/s"),
            "latency": format_quantity(float(row["latency [s]"]), "s"),
            "most devices": row["max_devices"] or "any",
            "price of a device": f"{row['usd_per_device_hour [USD/h]']} USD/h"
            if row["usd_per_device_hour [USD/h]"] else "n/a",
        }
        for row in plain
    ]  # fmt: skip
    return plain, shown


def _stack_rows() -> tuple[Any, Any]:
    from hw_models.stacks import constants, names

    plain = [dict(row) for name in names() for row in constants(name)]
    shown = [
        {
            "stack": row["stack"], "constant": row["field"], "value": f"{row['value']} {row['unit']}".strip(),
            "range": f"{row['low']} .. {row['high']}" if row["low"] or row["high"] else "", "source": row["source"],
        }
        for row in plain
    ]  # fmt: skip
    return plain, shown


def _objective_rows() -> tuple[Any, Any]:
    from dse.objectives import table

    rows = table()
    return rows, rows


#: What each searcher is good for.
SEARCHERS = {
    "nsga2": "Optuna NSGA-II: generations of 50; the default",
    "tpe": "Optuna TPE, multivariate: few evaluations of expensive spaces",
    "qmc": "Optuna quasi-Monte Carlo: even coverage",
    "random": "uniform without repetition",
    "quasirandom": "scrambled Sobol points, without Optuna",
}


def _searcher_rows() -> tuple[Any, Any]:
    from dse.exploration.run import SAMPLERS
    from dse.registry import plugin_names

    rows = [
        {"searcher": name, "rows a batch": str(size), "what it does": SEARCHERS.get(name, "")}
        for name, size in SAMPLERS.items()
    ]
    rows += [{"searcher": name, "rows a batch": "", "what it does": "plug-in"} for name in plugin_names("sampler")]
    return rows, rows


def _search_rows() -> tuple[Any, Any]:
    from dse.config import load_search, shipped_searches

    rows = []
    for name in shipped_searches():
        spec = load_search(name)
        workload = spec.workloads[0]
        rows.append(
            {
                "search": name,
                "network": workload.network.name,
                "devices": ", ".join(str(n) for n in spec.cluster.values["devices"]),
                "objectives": ", ".join(spec.objectives),
                "mode": spec.search.mode,
                "budget": str(spec.search.budget),
            }
        )
    return rows, rows


_TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "networks": _network_rows,
    "chips": _chip_rows,
    "clusters": _cluster_rows,
    "stacks": _stack_rows,
    "objectives": _objective_rows,
    "searchers": _searcher_rows,
    "searches": _search_rows,
}


# The rest ---------------------------------------------------------------------------------------------------------


def run_schema(options: Options) -> int:
    """JSON Schema on standard output."""
    from dse.config import json_schema

    print(json.dumps(json_schema(options.kind), indent=2))
    return 0


def run_validate(options: Options) -> int:
    """Predictions beside measurements."""
    from dse.report import validation_text
    from dse.validation import validate

    data = options.data or os.environ.get("DSE_DATA") or None
    if data is not None and not Path(data).is_dir():
        raise ConfigError([Problem("no such folder", "a folder with measurements", field="--data", file=str(data))])
    found = validate(data, sets=tuple(options.set), rows=options.rows)
    if options.json:
        _print_json(_plain(found))
    else:
        print(validation_text(found))
    return 0


def run_bench(options: Options) -> int:
    """Rates of this machine."""
    from dse.benchmark import bench
    from dse.report import table_text

    found = bench(jobs=options.jobs, largest=options.largest)
    if options.json:
        _print_json(found)
        return 0
    sizes = found.pop("cost_by_size")
    print(table_text([{"what": name, "value": _short(value)} for name, value in found.items()]))
    print()
    print(table_text([{name: _short(value) for name, value in row.items()} for row in sizes]))
    return 0


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) and value < 1e4 else f"{value:,.0f}" if _number(value) else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Shared -----------------------------------------------------------------------------------------------------------


def _flags(options: Options) -> dict[str, str | None]:
    """The flags that describe a design; without --cluster the one that belongs to the chip."""
    from dse.config_flags import FLAGS

    found = {name: getattr(options, name, None) for name in FLAGS}
    return found


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    from dse.serialize import plain

    return plain(value)


def _print_json(value: Any) -> None:
    print(json.dumps(_json(value), indent=2, allow_nan=False))


def _json(value: Any) -> Any:
    """Plain Python values; whatever is no number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(inner) for inner in value]
    if hasattr(value, "tolist"):
        return _json(value.tolist())
    return _finite(value) if isinstance(value, float) else value
