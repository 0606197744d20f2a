"""The design or chip that a command line means: flags, a file, or a row of the front of a search."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem, nearest
from dse.evaluation.design import Design
from dse.inputs.networks import notes_of
from dse.inputs.serialize import design_from_plain
from dse.inputs.spec import DesignSpec
from dse.inputs.yaml.flags import FLAGS, chip_of, design_of
from dse.inputs.yaml.load import has_workload, load_chip, load_design
from dse.insight.planner import plan
from dse.present.text.words import plan_words
from dse.record.write import read_designs
from hw_models.chip import Chip
from hw_models.technology import Technology
from workloads.plan import Plan

__all__ = ["chip_alone", "chips_alone", "flags_of", "one_chip", "one_design", "side"]

Options = argparse.Namespace

DESIGN_SUFFIXES = (".yaml", ".yml", ".json")


def flags_of(options: Options) -> dict[str, str | None]:
    """The flags that describe a design."""
    return {name: getattr(options, name, None) for name in FLAGS}


def side(options: Options, name: str) -> Design:
    """One side of a comparison: a design file, OUT:ROW, or a chip with the common flags."""
    is_chip = not (Path(name).exists() or _stored(name) or Path(name).suffix in DESIGN_SUFFIXES)
    if not is_chip:
        return _design_of(name)
    return _from_flags(flags_of(options) | {"chip": name}, options.set)


def chip_alone(options: Options) -> bool:
    """Whether `explain` is asked for a chip without a network: --chip, and no other flag but changes of it."""
    flags = {name for name, text in flags_of(options).items() if text is not None}
    return flags == {"chip"} and options.design is None and options.origin is None


def chips_alone(options: Options, names: Sequence[str]) -> bool:
    """Whether `compare` is asked for chips: no flag of a design, and a side that says nothing of a network."""
    if any(text is not None for text in flags_of(options).values()):
        return False
    return not all(_is_design(name) for name in names)


def _is_design(name: str) -> bool:
    """Whether a name of the command line is a whole design, or a file that is wrong as one."""
    path = Path(name)
    if not path.is_file():
        return bool(_stored(name)) or path.suffix in DESIGN_SUFFIXES or path.is_dir()
    if path.suffix == ".json":
        return "workload" in _json_tree(path)
    return has_workload(name)


def one_chip(name: str, changes: Sequence[str] = ()) -> tuple[Chip, Technology | None]:
    """A chip by name, `module:attribute`, file or OUT:ROW, with changes; and its constants where they are recorded."""
    path, recorded = Path(name), None
    base: str | Chip = name
    if (stored := _stored(name)) and not path.is_file():
        design = _row_of(*stored)
        base, recorded = design.chip, design.technology
    elif path.suffix == ".json" and path.is_file():
        base, recorded = _json_chip(path)
    elif path.suffix in DESIGN_SUFFIXES or path.exists():
        base = _design_of(name).chip if not path.is_file() else load_chip(name)
    made = chip_of(base, changes)
    same = isinstance(base, Chip) and (made.process, made.hbm) == (base.process, base.hbm)
    return made, recorded if same else None


def one_design(options: Options) -> Design:
    """The design of `evaluate` and `explain`: a file, a row of a front, or flags."""
    flags = {name: text for name, text in flags_of(options).items() if text is not None}
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
    if not path.is_file():
        beside = sorted(str(item) for item in path.parent.glob("*") if item.suffix in DESIGN_SUFFIXES)
        found = "a directory" if path.is_dir() else "no such file"
        hint = "for a design of a front use OUT:ROW" if path.is_dir() else ""
        fault = Problem(found, "a design file, or OUT:ROW", file=name, nearest=nearest(name, beside), hint=hint)
        raise ConfigError([fault])
    if path.suffix == ".json":
        return _json_design(path)
    return _complete(load_design(name))


def _stored(name: str) -> tuple[str, int] | None:
    """Folder and row of OUT:ROW."""
    folder, colon, row = name.rpartition(":")
    return (folder, int(row)) if colon and row.isdecimal() and Path(folder).is_dir() else None


def _json_design(path: Path) -> Design:
    """The design in a JSON file, as `dse evaluate --json` or designs.json write one."""
    return _stored_design(_json_tree(path), path)


def _stored_design(data: Any, path: Path) -> Design:
    """The design in data; what is wrong with it is a fault of the file."""
    try:
        return design_from_plain(data)
    except ConfigError as error:
        raise ConfigError([replace(problem, file=str(path)) for problem in error.problems]) from None
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ConfigError([_json_fault(path, error, "design", "evaluate")]) from None


def _json_chip(path: Path) -> tuple[Chip, Technology | None]:
    """Chip and constants in a JSON file, as `dse explain --chip X --json` or a design has them."""
    data = _json_tree(path)
    try:
        return Chip(**data["chip"]), Technology(**data["technology"]) if data.get("technology") else None
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError([_json_fault(path, error, "chip", "explain --chip X")]) from None


def _json_fault(path: Path, error: Exception, what: str, command: str) -> Problem:
    found = f"no {what} ({str(error).removeprefix('design: ')})"
    return Problem(found, f"as dse {command} --json writes it", file=str(path))


def _json_tree(path: Path) -> dict[str, Any]:
    """The mapping of a JSON file, or of its `design`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem(str(error.strerror), "a design file", file=str(path))]) from None
    except ValueError as error:
        raise ConfigError([Problem(f"no valid JSON ({error})", "a design file", file=str(path))]) from None
    if not isinstance(data, dict):
        hint = "for a design of a front use OUT:ROW"
        raise ConfigError([Problem("a list", "one design", file=str(path), hint=hint)])
    tree = data.get("design", data)
    return tree if isinstance(tree, dict) else {}


def _row_of(out: str, row: int) -> Design:
    """A design of the front of a search, to the same bits."""
    designs = read_designs(out)
    if not designs:
        raise ConfigError([Problem("no design", "a search whose front has designs", file=str(out))])
    if row >= len(designs):
        raise ConfigError([Problem(f"row {row}", f"0 to {len(designs) - 1}", field="row", file=str(out))])
    found = designs[row]
    return _stored_design(found.get("design", found) if isinstance(found, dict) else {}, Path(out) / "designs.json")


def _from_flags(flags: Mapping[str, str | None], changes: list[str]) -> Design:
    return _complete(design_of(flags, changes))


def _complete(spec: DesignSpec) -> Design:
    """The design of a specification; where it leaves the plan open, the fastest that fits."""
    if len(spec.workloads) != 1:
        raise ConfigError([Problem(f"{len(spec.workloads)} workloads", "one", field="workloads", file=spec.path)])
    for note in notes_of(spec.workloads[0].network):
        print(f"{spec.workloads[0].network.name}: {note}", file=sys.stderr)
    chosen = spec.plan or _fastest(spec) or Plan(data=int(spec.cluster.devices))
    return Design(spec.chip, spec.cluster, chosen, spec.workloads[0], spec.stack, spec.training)


def _fastest(spec: DesignSpec) -> Plan | None:
    workload = spec.workloads[0]
    report = plan(
        workload.network, spec.chip, devices=int(spec.cluster.devices), global_batch=workload.global_batch,
        sequence=workload.sequence, cluster=spec.cluster, stack=spec.stack, training=spec.training, top=1,
    )  # fmt: skip
    if not report.fits:
        return None
    chosen = report.best[0].plan
    print(f"no plan given, the fastest that fits: {plan_words(chosen)}", file=sys.stderr)
    return chosen
