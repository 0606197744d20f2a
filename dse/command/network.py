"""`dse network show`: a network, layer by layer, as text, data and picture."""

from __future__ import annotations

import sys
from typing import Any

from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.pictures import picture_path
from dse.evaluation.design import Design
from dse.inputs.networks import named_network
from dse.inputs.registry import resolve
from dse.insight.graph_schedule import GraphSchedule, schedule_graph
from dse.insight.network_report import network_report
from dse.present.figures.network import save_network
from dse.present.text.graph_schedule import schedule_text
from dse.present.text.network import network_text
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip as chip_named
from hw_models.devices import names as chip_names
from hw_models.stacks import on_device, stack
from workloads.network import Workload
from workloads.plan import Plan

__all__ = ["run"]


def run(options: Options) -> int:
    """Operators of a network by layer and phase; its graph as a picture."""
    path = picture_path(options.out)
    network, length = named_network(options.name)
    tokens = options.sequence or (length if length > 1 else None)
    found = network_report(network, sequence=tokens, micro_batch=options.micro_batch)
    scheduled = _scheduled(options, network, length) if options.chip else None
    if options.json:
        print_json(found.to_plain() | ({"schedule": scheduled.to_plain()} if scheduled else {}))
    else:
        print(network_text(found, operators=options.operators))
        if scheduled:
            print("", schedule_text(scheduled), sep="\n")
    if path is not None:
        print(f"wrote {save_network(found, path)}", file=sys.stderr)
    return 0


def _scheduled(options: Options, network: Any, length: int) -> GraphSchedule:
    """The critical path and the schedule of one micro-batch on a chip."""
    known = {name: None for name in chip_names()}
    chip = chip_named(options.chip) if options.chip in known else resolve("chip", options.chip, known)
    samples = options.micro_batch
    workload = Workload(network, options.sequence or length or 1, samples)
    constants = on_device(stack("compiled"), chip.name)
    design = Design(chip, Cluster(1, (Tier(1),)), Plan(micro_batch=samples), workload, constants)
    return schedule_graph(design, matrix_units=options.matrix_units, vector_units=options.vector_units)
