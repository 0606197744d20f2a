"""Networks, chips, clusters and stacks that ship with the product, by attribute or by name.

    dse.chips.h100_sxm()          dse.chips["h100-sxm"]()         list(dse.chips)
    dse.networks.gpt3_175b(global_batch=1536)                     a Workload, the published sequence
    dse.clusters.dgx_h100(512)    dse.stacks.compiled()

Attribute and item are the same function; `dir()` lists the identifiers.  The rows are in the tables of
hw_models and workloads; adding a row adds a name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from dse.base.errors import listed, nearest
from dse.inputs.networks import refused_sequence
from hw_models import clusters as cluster_table
from hw_models import devices as chip_table
from hw_models import stacks as stack_table
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.clusters import names as cluster_names
from hw_models.stack import Stack
from workloads import published as network_table
from workloads.network import Workload

__all__ = ["Presets", "chips", "clusters", "default_cluster", "identifier", "networks", "stacks"]

Made = TypeVar("Made")


def identifier(name: str) -> str:
    """A name as a Python identifier: "gpt3-6.7b" becomes "gpt3_6_7b"."""
    return name.replace("-", "_").replace(".", "_")


class Presets(Mapping[str, Callable[..., Made]], Generic[Made]):
    """Functions that make models, by name (`presets["a-b"]`) or identifier (`presets.a_b`)."""

    def __init__(self, kind: str, names: Callable[[], tuple[str, ...]], make: Callable[..., Made]) -> None:
        self._kind, self._names, self._make = kind, names, make

    @cached_property
    def _functions(self) -> dict[str, Callable[..., Made]]:
        return {name: self._function(name) for name in self._names()}

    def _function(self, name: str) -> Callable[..., Made]:
        def preset(*arguments: Any, **options: Any) -> Made:
            return self._make(name, *arguments, **options)

        preset.__name__ = preset.__qualname__ = identifier(name)
        preset.__doc__ = f"The {self._kind} {name}.\n\n{self._make.__doc__}"
        return preset

    def __getitem__(self, name: str) -> Callable[..., Made]:
        functions = self._functions
        if name in functions:
            return functions[name]
        raise KeyError(self._unknown(name, list(functions)))

    def __getattr__(self, name: str) -> Callable[..., Made]:
        if name.startswith("_"):
            raise AttributeError(name)
        for known, function in self._functions.items():
            if identifier(known) == name:
                return function
        raise AttributeError(self._unknown(name, [identifier(known) for known in self._functions]))

    def _unknown(self, name: str, known: list[str]) -> str:
        near = nearest(str(name), known)
        return f"{self._kind}: found {name!r}, allowed: {listed(known)}" + (f"; did you mean {near}?" if near else "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __dir__(self) -> list[str]:
        return [identifier(name) for name in self._functions]

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind}s: {', '.join(self)}>"


def _workload(name: str, sequence: int | None = None, global_batch: int = 1024) -> Workload:
    """Arguments: sequence [tokens a sample; None: the published one], global_batch [samples a step]."""
    network = network_table.network(name)
    if sequence is not None and (allowed := refused_sequence(network, sequence)):
        raise ValueError(f"sequence: found {sequence!r}, allowed: {allowed}")
    return Workload(network, network_table.default_sequence(name) if sequence is None else sequence, global_batch)


def _chip(name: str) -> Chip:
    """Change fields with `dse.replace(chip, clock=1.2e9)`."""
    return chip_table.chip(name)


def _cluster(name: str, devices: Any = 8) -> Cluster:
    """Argument: devices, a number or a column."""
    return cluster_table.cluster(name, devices)


def _stack(name: str) -> Stack:
    """Change fields with `dse.replace(stack, matmul_efficiency=0.8)`."""
    return stack_table.stack(name)


networks: Presets[Workload] = Presets("network", network_table.names, _workload)
chips: Presets[Chip] = Presets("chip", chip_table.names, _chip)
clusters: Presets[Cluster] = Presets("cluster", cluster_table.names, _cluster)
stacks: Presets[Stack] = Presets("stack", stack_table.names, _stack)


def default_cluster(chip: Chip) -> str:
    """The cluster a chip is sold in, by name: its pod, its DGX, or generic nodes of eight."""
    family = str(chip.name).split("-")[0]
    known = cluster_names()
    for name in (f"{chip.name}-pod", f"dgx-{family}"):
        if name in known:
            return name
    return "generic-8"
