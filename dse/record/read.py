"""Reads a recorded search again as far as it went, from manifest and archive; nothing is searched.

Its front under further limits or over other objectives: `dse.problem.filter`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.exploration.archive import Archive, differences, refuse_difference
from dse.exploration.run import result_of
from dse.inputs.spec import SearchSpec
from dse.inputs.yaml.load import recorded_search
from dse.problem.build import problem_of
from dse.problem.solved import Solved

__all__ = ["load_report", "read_json"]


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


def load_report(out: str | os.PathLike[str], spec: SearchSpec | None = None) -> Solved:
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
    return Solved(spec, problem, result)


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
