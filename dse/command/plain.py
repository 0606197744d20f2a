"""Evaluations and accounts as JSON-able data, each number with its unit."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dse.command.json_output import finite
from dse.evaluation.design import Design
from dse.evaluation.result import METRICS, Result
from dse.inputs.serialize import design_to_plain
from dse.present.text.evaluation import ALWAYS, totals

__all__ = ["UNITS", "evaluation_plain", "report_plain"]


def evaluation_plain(result: Result, design: Design, steps: int | None) -> dict[str, Any]:
    """A result of one row with the unit of every number; a design that cannot run has no times."""
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


#: Units of the tables of an account and a comparison, by the name of the table or field.
UNITS = {
    "time": "s", "device_time": "s", "exposed": "s", "step_time": "s", "forward": "s", "backward": "s", "streams": "s",
    "resources": "s", "energy": "J", "memory": "B", "message": "B", "share": "",
}  # fmt: skip


def report_plain(value: Any) -> Any:
    """What a report holds as JSON-able data; evaluations and designs in their own exact form."""
    if isinstance(value, Result):
        return evaluation_plain(value, value.design, None)
    if isinstance(value, Design):
        return design_to_plain(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: report_plain(getattr(value, item.name)) for item in fields(value)}
    return [report_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
