"""Reads configuration files: YAML with the place of every value, all faults of a file in one error.

YAML is read in `dse.inputs.yaml.tree`; what a file may say is in `dse.inputs.yaml.schema`, what it means in
`dse.inputs.spec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from dse.base.errors import ConfigError
from dse.evaluation.result import METRICS
from dse.inputs.spec import Catalog, DesignSpec, SearchSpec
from dse.inputs.yaml.schema import json_schema, read_chip, read_design, read_search
from dse.inputs.yaml.sections import faults_of
from dse.inputs.yaml.tree import Tree, content_of, decoded, in_order
from hw_models import clusters, devices, stacks, technology
from hw_models.chip import Chip
from workloads.published import names as network_names
from workloads.published import network as network_named

__all__ = [
    "default_catalog", "has_workload", "json_schema", "load_chip", "load_design", "load_search", "recorded_search",
]  # fmt: skip

Spec = TypeVar("Spec", SearchSpec, DesignSpec)
Read = TypeVar("Read", SearchSpec, DesignSpec, Chip)


def load_search(path_or_name: str | Path, catalog: Catalog | None = None) -> SearchSpec:
    """The search of a file, or of a shipped one by its bare name; ConfigError lists every fault."""
    return _load(path_or_name, catalog, read_search)


def recorded_search(text: str, path: str) -> SearchSpec:
    """The search of a text that a result carries: data, whose `module:attribute` must have been registered."""
    return replace(_said_by(text, path, replace(default_catalog(), data=True), read_search), path=path, text=text)


def load_design(path: str | Path, catalog: Catalog | None = None) -> DesignSpec:
    """The design of a file; ConfigError lists every fault."""
    return _load(path, catalog, read_design)


def load_chip(path: str | Path, catalog: Catalog | None = None) -> Chip:
    """The chip of a design file, or of a file with a `chip` alone; ConfigError lists every fault."""
    return _read(path, catalog, read_chip)[0]


def has_workload(path: str | Path) -> bool:
    """Whether a file says what is trained: a design, not a chip alone."""
    name, content = content_of(str(path))
    found = Tree(name).read(decoded(content, name))
    return "workload" in found or "workloads" in found


@cache
def default_catalog() -> Catalog:
    """Every built-in name."""
    return Catalog(
        networks={name: network_named(name) for name in network_names()},
        chips={name: partial(devices.chip, name) for name in devices.names()},
        clusters={name: partial(clusters.cluster, name) for name in clusters.names()},
        stacks={name: partial(stacks.stack, name) for name in stacks.names()},
        processes=technology.nodes(),
        memories=technology.memories(),
        metric_units={name: unit for name, (unit, _) in METRICS.items()},
    )


def _load(path: str | Path, catalog: Catalog | None, read: Callable[[Any, Catalog], Spec]) -> Spec:
    spec, name, text = _read(path, catalog, read)
    return replace(spec, path=name, text=text)


def _read(
    path: str | Path, catalog: Catalog | None, read: Callable[[Any, Catalog], Read]
) -> tuple[Read, str, str]:
    """What a file says, with its name and text."""
    name, content = content_of(str(path))
    text = decoded(content, name)
    return _said_by(text, name, catalog or default_catalog(), read), name, text


def _said_by(text: str, name: str, catalog: Catalog, read: Callable[[Any, Catalog], Read]) -> Read:
    """What the text of a file says; names of files in it are seen from its folder."""
    tree = Tree(name)
    data = tree.read(text)
    spec = None
    try:
        spec = read(data, replace(catalog, folder=str(Path(name).parent)))
    except ValidationError as error:
        tree.problems += [problem for fault in faults_of(error) for problem in tree.said(fault)]
    if tree.problems:
        raise ConfigError(in_order(tree.problems, name))
    assert spec is not None
    return spec
