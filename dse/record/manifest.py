"""How a result was found: what was searched with which versions and constants, and what came of it.

Equal searches have equal manifests, except for the part `run`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import TYPE_CHECKING, Any

from dse.base.version import __version__
from dse.inputs.serialize import plain
from dse.inputs.spec import SearchSpec
from dse.problem.filter import limit_words
from hw_models import stacks
from workloads.plan import Plan

if TYPE_CHECKING:
    from dse.problem.solved import Solved

__all__ = ["FORMAT", "described", "manifest"]

FORMAT = 1


def manifest(report: Solved) -> dict[str, Any]:
    """How the result was found; only `run` differs between equal searches."""
    spec, result = report.spec, report.result
    return {
        "format": FORMAT,
        **described(spec, report.problem),
        "fingerprint": sha256(json.dumps(result.archive.fingerprint, sort_keys=True).encode()).hexdigest(),
        "designs_on_front": len(report),
        "hardware_rows": result.hardware_rows,
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "failures": dict(sorted(result.failures.items())),
        "failed_rows": result.failed_rows,
        "faults": plain(list(result.faults)),
        "missing": plain(list(result.missing)),
        "nearest_miss": _nearest_miss(report),
        "stopped": result.stopped,
        "constants": [_constant(row) for row in report.problem.constants or ()],
        "stack_constants": _stack_constants(spec),
        "run": {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "elapsed [s]": round(result.elapsed, 3),
            "notes": list(result.notes),
        },
    }


def described(spec: SearchSpec, problem: Any) -> dict[str, Any]:
    """What was searched, and with what."""
    chosen, workload = spec.search, spec.workloads[0]
    return {
        "search": spec.name,
        "mode": chosen.mode,
        "sampler": str(chosen.sampler),
        "seed": chosen.seed,
        "budget": chosen.budget,
        **({} if spec.strategy is None else {"strategy": spec.strategy.name}),
        "timeout [s]": chosen.timeout,
        "inner_objective": chosen.inner_objective or problem.objectives[0].name,
        "objectives": [{"name": o.name, "direction": o.direction, "unit": o.unit} for o in problem.objectives],
        "constraints": [limit_words(spec, c.metric, c.relation, c.bound) for c in spec.constraints],
        "workload": {
            "network": workload.network.name,
            "sequence": workload.sequence,
            "global_batch": workload.global_batch,
        },
        "training": plain(spec.training),
        "space": {"hardware_rows": problem.space.size, "variables": list(problem.space.names)},
        "versions": _versions(),
        "configuration": {
            "path": spec.path,
            "sha256": sha256(spec.text.encode()).hexdigest() if spec.text else None,
            "text": spec.text,
        },
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"dse": __version__, "python": python_version()}
    for name in ("numpy", "scipy", "optuna", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _nearest_miss(report: Solved) -> dict[str, Any] | None:
    result = report.result
    if result.miss_row is None or result.miss_plan is None:
        return None
    return {
        "violations": result.miss,
        "variables": report.problem.space.values(result.miss_row),
        "plan": Plan(*(int(number) for number in result.miss_plan)).named(),
    }


def _constant(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of a table of constants with its numbers as numbers."""
    return {key: _number(text) if key in ("value", "low", "high") else text for key, text in row.items()}


def _number(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text or None


def _stack_constants(spec: SearchSpec) -> list[dict[str, Any]]:
    """The stack's constants; a value that is not the table's has the configuration as its source."""
    known = {}
    if spec.stack.name in stacks.names():
        known = {row["field"]: _constant(row) for row in stacks.constants(spec.stack.name)}
    found = []
    for item in fields(spec.stack):
        if item.name in ("name", "source"):
            continue
        value = getattr(spec.stack, item.name)
        row = known.get(item.name, {})
        shown = "+".join(value) if isinstance(value, tuple) else plain(value)
        if row.get("value") == shown:
            found.append(row)
        else:
            unit = item.metadata.get("unit", "")
            given = {"stack": spec.stack.name, "field": item.name, "unit": unit, "value": shown}
            found.append({**given, "low": None, "high": None, "source": "configuration"})
    return found
