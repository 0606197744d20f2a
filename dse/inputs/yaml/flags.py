"""A design from command line flags: the same fields, units and checks as a design file.

A flag is a path of the file's format (`--devices` is `cluster.devices`); what is wrong is said with the flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from dse.base.errors import ConfigError, Problem, nearest
from dse.base.units import read_number
from dse.inputs.catalogs import default_cluster
from dse.inputs.spec import DesignSpec
from dse.inputs.yaml.load import default_catalog
from dse.inputs.yaml.readers import Fault, Location, Scalar
from dse.inputs.yaml.schema import read_chip, read_design
from dse.inputs.yaml.sections import faults_of
from hw_models.chip import Chip
from hw_models.devices import chip, names
from workloads.plan import Plan

__all__ = ["FLAGS", "assignments", "chip_of", "design_of", "leaf"]

#: Flag -> place in the format of a design file.
FLAGS: Mapping[str, tuple[str, ...]] = {
    "network": ("workload", "network"),
    "sequence": ("workload", "sequence"),
    "global_batch": ("workload", "global_batch"),
    "chip": ("chip", "base"),
    "cluster": ("cluster", "base"),
    "devices": ("cluster", "devices"),
    "stack": ("stack", "base"),
    "precision": ("training", "precision"),
    "gradient_bytes": ("training", "gradient_bytes"),
    "optimizer": ("training", "optimizer"),
    "attention": ("training", "attention"),
    "cross_entropy": ("training", "cross_entropy"),
    "scaling": ("training", "scaling"),
    "table_optimizer": ("training", "table_optimizer"),
    **{name: ("plan", name) for name in Plan.names()},
}

#: Sections whose fields `--set section.field=value` may change.
SECTIONS = ("chip", "cluster", "stack", "training", "plan", "workload")

TRUTHS = ("true", "false", "on", "off", "yes", "no")


def design_of(flags: Mapping[str, str | None], changes: Sequence[str] = ()) -> DesignSpec:
    """The design that flags and `section.field=value` changes describe; ConfigError names every bad flag."""
    tree: dict[str, Any] = {"name": Scalar("text", "design")}
    labels: dict[Location, str] = {}
    for flag, place in FLAGS.items():
        labels[place] = f"--{flag.replace('_', '-')}"
        text = flags.get(flag)
        if text is not None:
            _put(tree, place, text)
    for path, text in assignments(changes).items():
        place = tuple(path.split("."))
        if len(place) != 2 or place[0] not in SECTIONS:
            raise ConfigError([_unknown_section(path)])
        _put(tree, place, text)
        labels[place] = f"--set {path}"
    _add_cluster(tree)
    tree.setdefault("workload", {})
    try:
        return read_design(tree, default_catalog())
    except ValidationError as error:
        raise ConfigError(_problems(_worth_saying(faults_of(error)), labels)) from None


def chip_of(base: str | Chip, changes: Sequence[str] = ()) -> Chip:
    """The chip of that name, or a chip itself, with `chip.field=value` changes; ConfigError names every bad one."""
    catalog, name = default_catalog(), base if isinstance(base, str) else base.name
    if isinstance(base, Chip):
        catalog = replace(catalog, chips={**catalog.chips, name: base})
    tree: dict[str, Any] = {"chip": {"base": Scalar("text", name)}}
    labels: dict[Location, str] = {("chip",): "--chip", ("chip", "base"): "--chip"}
    for path, text in assignments(changes).items():
        place = tuple(path.split("."))
        if len(place) != 2 or place[0] != "chip":
            fault = Problem(f'"{path}"', "chip.field: without a network there is a chip alone", field="--set")
            raise ConfigError([fault])
        _put(tree, place, text)
        labels[place] = f"--set {path}"
    try:
        return read_chip(tree, catalog)
    except ValidationError as error:
        raise ConfigError([_problem(fault, labels) for fault in faults_of(error)]) from None


def assignments(changes: Sequence[str]) -> dict[str, str]:
    """`field=value` texts as a mapping, each field once."""
    found: dict[str, str] = {}
    problems = []
    for change in changes:
        name, equals, value = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or not value.strip():
            problems.append(Problem(f'"{change}"', "field=value, for example chip.clock=1.2GHz", field="--set"))
        elif name in found:
            problems.append(Problem(f"{name} again", "each field once", field="--set"))
        found[name] = value.strip()
    if problems:
        raise ConfigError(problems)
    return found


def leaf(text: str) -> Scalar:
    """A leaf as a file would have it: a number, a truth value or a text."""
    if read_number(text) is not None:
        return Scalar("number", text)
    return Scalar("boolean" if text.lower() in TRUTHS else "text", text)


def _put(tree: dict[str, Any], place: tuple[str, ...], text: str) -> None:
    section = tree.setdefault(place[0], {})
    section[place[1]] = leaf(text)


def _add_cluster(tree: dict[str, Any]) -> None:
    """Without a cluster, the one that the chip is sold in."""
    cluster = tree.setdefault("cluster", {})
    if "base" not in cluster:
        name = tree.get("chip", {}).get("base", leaf("")).text
        cluster["base"] = leaf(default_cluster(chip(name)) if name in names() else "generic-8")


def _worth_saying(faults: list[Fault]) -> list[Fault]:
    """Without a network that is known, a missing sequence is a consequence, not a second fault."""
    unknown = any(fault.location == FLAGS["network"] for fault in faults)
    return [fault for fault in faults if not (unknown and fault.location == FLAGS["sequence"])]


def _unknown_section(path: str) -> Problem:
    section = path.split(".")[0]
    return Problem(
        f'"{path}"', f"section.field with a section of {', '.join(SECTIONS)}", field="--set",
        nearest=nearest(section, SECTIONS),
    )  # fmt: skip


def _problems(faults: list[Fault], labels: Mapping[Location, str]) -> list[Problem]:
    """Faults by flag; those of a file that a flag names are its own."""
    return [problem for fault in faults for problem in fault.problems or (_problem(fault, labels),)]


def _problem(fault: Fault, labels: Mapping[Location, str]) -> Problem:
    place = fault.location
    base = (*place, "base")
    label = labels.get(place) or labels.get(base) or "--set " + ".".join(str(part) for part in place)
    hint = "" if "YAML" in fault.hint else fault.hint
    return Problem(fault.found, fault.allowed, field=label, nearest=fault.nearest, hint=hint)
