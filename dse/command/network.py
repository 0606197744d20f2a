"""What `dse network show X` does: a network, layer by layer, as text, data and picture."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from dse.command.json_output import print_json

if TYPE_CHECKING:
    from dse.insight.graph_schedule import GraphSchedule

__all__ = ["run_network"]


def run_network(options: argparse.Namespace) -> int:
    """Operators of a network by layer and phase; its graph as a picture."""
    from dse.command.explain import picture_path
    from dse.insight.network_report import network_report

    path = picture_path(options.out)
    network, length = named_network(options.name)
    tokens = options.sequence or (length if length > 1 else None)
    found = network_report(network, sequence=tokens, micro_batch=options.micro_batch)
    scheduled = _scheduled(options, network, length) if options.chip else None
    if options.json:
        print_json(found.to_plain() | ({"schedule": scheduled.to_plain()} if scheduled else {}))
    else:
        print(found.text(operators=options.operators))
        if scheduled:
            print("", scheduled.text(), sep="\n")
    if path is not None:
        print(f"wrote {found.save(path)}", file=sys.stderr)
    return 0


def _scheduled(options: argparse.Namespace, network: Any, length: int) -> GraphSchedule:
    """The critical path and the schedule of one micro-batch on a chip."""
    from dse.evaluation.design import Design
    from dse.inputs.registry import resolve
    from dse.insight.graph_schedule import schedule_graph
    from hw_models.cluster import Cluster, Tier
    from hw_models.devices import chip as chip_named
    from hw_models.devices import names as chip_names
    from hw_models.stacks import on_device, stack
    from workloads.network import Workload
    from workloads.plan import Plan

    known = {name: None for name in chip_names()}
    chip = chip_named(options.chip) if options.chip in known else resolve("chip", options.chip, known)
    samples = options.micro_batch
    workload = Workload(network, options.sequence or length or 1, samples)
    constants = on_device(stack("compiled"), chip.name)
    design = Design(chip, Cluster(1, (Tier(1),)), Plan(micro_batch=samples), workload, constants)
    return schedule_graph(design, matrix_units=options.matrix_units, vector_units=options.vector_units)


def named_network(name: str) -> tuple[Any, int]:
    """A built-in network, a file, `module:attribute` or a plug-in; with the tokens a sample that it says, 0: none."""
    from dse.base.errors import ConfigError, Problem
    from dse.inputs.networks import as_network, import_network, is_network, names_file
    from dse.inputs.registry import resolve
    from workloads.published import default_sequence, names, network

    if name in names():
        return network(name), default_sequence(name)
    if names_file(name):
        found = import_network(name)
        return found.network, found.sequence
    item = as_network(resolve("network", name, {known: None for known in names()}), name)
    if not is_network(item):
        raise ConfigError(
            [Problem(f"{type(item).__name__}", "a network, a graph, or a function that makes one", field=name)]
        )
    return item, int(getattr(item, "sequence", 0))
