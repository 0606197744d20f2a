"""Reads a recorded search again, and forms its front anew: under further limits, over other objectives.

It looks only at what the archive keeps; nothing is searched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.api.search import SearchReport, problem_of
from dse.evaluation.result import METRICS
from dse.exploration.archive import Archive, differences, refuse_difference
from dse.exploration.pareto import non_dominated
from dse.exploration.run import SearchResult, result_of
from dse.exploration.variables import Floats, Integers
from dse.inputs.spec import Constraint, SearchSpec
from dse.inputs.yaml.load import recorded_search
from dse.record.columns import metrics_of
from dse.record.manifest import limit_words

__all__ = ["archived_points", "filtered", "kept_points", "load_report", "read_json", "recorded_objectives"]


def read_json(path: Path) -> Any:
    """A mapping from a JSON file; ValueError says what is wrong with the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}), allowed: an output of a search") from None
    except ValueError as fault:
        raise ValueError(f"{path}: found no valid JSON ({fault}), allowed: the file as it was written") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: found a {type(data).__name__}, allowed: an output of a search")
    return data


def load_report(out: str | os.PathLike[str], spec: SearchSpec | None = None) -> SearchReport:
    """The search recorded in a folder as far as it went: configuration from the manifest, results from the archive.

    spec   the specification, where the manifest has no configuration (a search that was written in Python)"""
    folder = Path(out)
    archive = Archive.read(folder)
    manifest = read_json(folder / "manifest.json") if spec is None or (folder / "manifest.json").exists() else {}
    spec = _recorded_spec(folder, manifest) if spec is None else spec
    problem = problem_of(spec)
    recorded = archive.fingerprint
    now = {
        "space": problem.space.describe(),
        "plan_fields": list(problem.plan_fields),
        "objectives": [{"name": o.name, "direction": o.direction, "unit": o.unit} for o in problem.objectives],
    }
    refuse_difference({name: recorded[name] for name in now}, now, where=str(folder))
    result = result_of(archive)
    result = replace(result, notes=(*result.notes, *_model_changes(recorded, problem)))
    if manifest.get("hardware_rows") == result.hardware_rows:
        run = manifest["run"]
        notes = tuple(dict.fromkeys([*run["notes"], *result.notes]))
        result = replace(result, stopped=manifest["stopped"], elapsed=run["elapsed [s]"], notes=notes)
    return SearchReport(spec, problem, result)


def _recorded_spec(folder: Path, manifest: Mapping[str, Any]) -> SearchSpec:
    configuration = manifest.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ValueError(f"{folder / 'manifest.json'}: found no mapping as configuration, allowed: path and text")
    text, path = configuration.get("text"), configuration.get("path") or "configuration.yaml"
    if not text:
        raise ValueError(f"{folder}: found no configuration (a search made in Python), allowed: its specification")
    if not isinstance(text, str) or not isinstance(path, str):
        raise ValueError(f"{folder / 'manifest.json'}: found a configuration that is no text, allowed: path and text")
    spec = recorded_search(text, path)
    search = replace(spec.search, **{name: manifest[name] for name in ("seed", "budget") if name in manifest})
    return replace(spec, search=search)


def _model_changes(recorded: Mapping[str, Any], problem: Any) -> list[str]:
    """A note when the models or constants are not those of the record, so numbers may not be reproduced."""
    old = recorded["problem"]
    new = json.loads(json.dumps(problem.fingerprint()))
    found = [path for path, _, _ in differences(old, {name: new[name] for name in old if name in new})]
    if not found:
        return []
    return [f"this version differs from the recorded search in {', '.join(found)}: values may not be reproduced"]


# Filtering ---------------------------------------------------------------------------------------------------------


def recorded_objectives(result: SearchResult) -> list[str]:
    """Names of the objectives that the archive keeps, whatever the front was formed over since."""
    return [item["name"] for item in result.archive.fingerprint["objectives"]]


def archived_points(result: SearchResult) -> tuple[Integers, Integers, Floats]:
    """Every plan of an inner front in the archive: hardware rows (N, V), plans (N, P), recorded objectives (N, J)."""
    chunks = result.archive.chunks
    if not chunks:
        return result.rows[:0], result.plans[:0], np.zeros((0, len(recorded_objectives(result))))
    rows = [np.repeat(chunk.rows, np.diff(chunk.offsets), axis=0) for chunk in chunks]
    return np.concatenate(rows), np.concatenate([c.plans for c in chunks]), np.concatenate([c.front for c in chunks])


def kept_points(report: SearchReport) -> tuple[Integers, Integers, Floats]:
    """Archived plans that keep every limit of the report: rows (N, V), plans (N, P), the report's objectives (N, J).

    What the archive does not hold is evaluated again."""
    problem, result = report.problem, report.result
    rows, plans, values = archived_points(result)
    known = {name: values[:, j] for j, name in enumerate(recorded_objectives(result))}
    wanted, further = [item.name for item in problem.objectives], _further_limits(report)
    if any(name not in known for name in [*wanted, *(limit.metric for limit in further)]):
        known = {**metrics_of(problem, rows, plans), **known}
    keep = np.ones(len(rows), dtype=bool)
    for limit in further:
        keep &= known[limit.metric] <= limit.bound if limit.relation == "<=" else known[limit.metric] >= limit.bound
    return rows[keep], plans[keep], np.stack([known[name][keep] for name in wanted], axis=-1)


def _further_limits(report: SearchReport) -> list[Constraint]:
    """Limits that came after the search; what is archived keeps those of the search already."""
    recorded = report.result.archive.fingerprint
    searched = recorded["problem"].get("limits", recorded.get("limits", []))
    return [limit for limit in report.spec.constraints if [limit.metric, limit.relation, limit.bound] not in searched]


def filtered(
    report: SearchReport, where: Sequence[tuple[str, str, float]] = (), objectives: Sequence[str] | None = None
) -> SearchReport:
    """The front among archived designs that meet further limits, over the same or other objectives.

    where   (metric, "<=" or ">=", bound in base SI)
    The archive keeps what no other plan of its hardware row beats in the objectives of the search, so with other
    objectives the front is the best of those, not of all plans that were looked at; a note says so."""
    _check_filter(where, objectives)
    limits = [Constraint(name, relation, bound) for name, relation, bound in where]  # type: ignore[arg-type]
    names = tuple(dict.fromkeys(objectives or report.spec.objectives))
    spec = replace(report.spec, objectives=names, constraints=(*report.spec.constraints, *limits))
    chosen = replace(report, spec=spec, problem=problem_of(spec))
    rows, plans, values = kept_points(chosen)
    order = _front_order(rows, plans, values, np.array([o.sign for o in chosen.problem.objectives]))
    notes = (*report.result.notes, *_filter_notes(where, list(names), recorded_objectives(report.result)))
    result = replace(report.result, rows=rows[order], plans=plans[order], values=values[order], notes=notes)
    return replace(chosen, result=result)


def _check_filter(where: Sequence[tuple[str, str, float]], objectives: Sequence[str] | None) -> None:
    faults = [f"where: found the metric {name!r}" for name, _, _ in where if name not in METRICS]
    relations = [relation for _, relation, _ in where if relation not in ("<=", ">=")]
    faults += [f"where: found the relation {relation!r}, allowed: <=, >=" for relation in relations]
    faults += [f"where: found the bound {bound!r}, allowed: a number" for _, _, bound in where if bound != bound]
    faults += [f"objectives: found {name!r}" for name in objectives or () if name not in METRICS]
    if objectives is not None and not objectives:
        faults.append("objectives: found none, allowed: at least one")
    if any("allowed" not in fault for fault in faults):
        faults.append(f"allowed: {', '.join(METRICS)}")
    if faults:
        raise ValueError("; ".join(faults))


def _front_order(rows: Integers, plans: Integers, values: Floats, signs: Floats) -> Integers:
    """Numbers of the non-dominated designs, best by the first objective first, each design once."""
    signed = values * signs
    front = np.flatnonzero(non_dominated(signed)) if len(signed) else np.zeros(0, dtype=np.int64)
    keys = [*plans[front].T[::-1], *rows[front].T[::-1], *signed[front].T[::-1]]
    order = front[np.lexsort(keys)]
    _, first = np.unique(np.concatenate([rows, plans], axis=1)[order], axis=0, return_index=True)
    return np.asarray(order[np.sort(first)])


def _filter_notes(where: Sequence[tuple[str, str, float]], wanted: list[str], recorded: list[str]) -> list[str]:
    notes = []
    if where:
        notes.append(f"filtered: only designs with {', '.join(limit_words(*limit) for limit in where)}")
    if wanted != recorded:
        notes.append(
            f"front over {', '.join(wanted)} among the designs that were kept for {', '.join(recorded)}; "
            "a search with these objectives may find better ones"
        )
    return notes
