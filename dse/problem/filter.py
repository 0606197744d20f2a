"""Forms the front of a recorded search anew: under further limits, over other objectives.

It looks only at what the archive keeps; nothing is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dse.evaluation.result import METRICS
from dse.exploration.pareto import non_dominated
from dse.exploration.settings import SearchResult
from dse.exploration.variables import Floats, Integers
from dse.inputs.spec import Constraint, SearchSpec
from dse.problem.build import problem_of
from dse.problem.rows import metrics_of
from dse.problem.solved import Solved

__all__ = ["archived_points", "filtered", "kept_points", "limit_words", "recorded_objectives"]

Found = TypeVar("Found", bound=Solved)


def limit_words(spec: SearchSpec, metric: str, relation: str, bound: float) -> str:
    """A limit of a search in base SI, exact."""
    return f"{metric} {relation} {bound!r} {spec.unit_of(metric)}".strip()


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


def kept_points(report: Solved) -> tuple[Integers, Integers, Floats]:
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


def _further_limits(report: Solved) -> list[Constraint]:
    """Limits that came after the search; what is archived keeps those of the search already."""
    recorded = report.result.archive.fingerprint
    searched = recorded["problem"].get("limits", recorded.get("limits", []))
    return [limit for limit in report.spec.constraints if [limit.metric, limit.relation, limit.bound] not in searched]


def filtered(
    report: Found, where: Sequence[tuple[str, str, float]] = (), objectives: Sequence[str] | None = None
) -> Found:
    """The front among archived designs that meet further limits, over the same or other objectives.

    where   (metric, "<=" or ">=", bound in base SI)
    The archive keeps what no other plan of its hardware row beats in the objectives of the search, so with other
    objectives the front is the best of those, not of all plans that were looked at; a note says so."""
    _check_filter(where, objectives, (*METRICS, *(metric.name for metric in report.spec.metrics)))
    limits = [Constraint(name, relation, bound) for name, relation, bound in where]  # type: ignore[arg-type]
    names = tuple(dict.fromkeys(objectives or report.spec.objectives))
    spec = replace(report.spec, objectives=names, constraints=(*report.spec.constraints, *limits))
    chosen = replace(report, spec=spec, problem=problem_of(spec))
    rows, plans, values = kept_points(chosen)
    order = _front_order(rows, plans, values, np.array([o.sign for o in chosen.problem.objectives]))
    notes = (*report.result.notes, *_filter_notes(spec, where, list(names), recorded_objectives(report.result)))
    result = replace(report.result, rows=rows[order], plans=plans[order], values=values[order], notes=notes)
    return replace(chosen, result=result)


def _check_filter(
    where: Sequence[tuple[str, str, float]], objectives: Sequence[str] | None, known: Sequence[str]
) -> None:
    faults = [f"where: found the metric {name!r}" for name, _, _ in where if name not in known]
    relations = [relation for _, relation, _ in where if relation not in ("<=", ">=")]
    faults += [f"where: found the relation {relation!r}, allowed: <=, >=" for relation in relations]
    faults += [f"where: found the bound {bound!r}, allowed: a number" for _, _, bound in where if bound != bound]
    faults += [f"objectives: found {name!r}" for name in objectives or () if name not in known]
    if objectives is not None and not objectives:
        faults.append("objectives: found none, allowed: at least one")
    if any("allowed" not in fault for fault in faults):
        faults.append(f"allowed: {', '.join(known)}")
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


def _filter_notes(
    spec: SearchSpec, where: Sequence[tuple[str, str, float]], wanted: list[str], recorded: list[str]
) -> list[str]:
    notes = []
    if where:
        notes.append(f"filtered: only designs with {', '.join(limit_words(spec, *limit) for limit in where)}")
    if wanted != recorded:
        notes.append(
            f"front over {', '.join(wanted)} among the designs that were kept for {', '.join(recorded)}; "
            "a search with these objectives may find better ones"
        )
    return notes
