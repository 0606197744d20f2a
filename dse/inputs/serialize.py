"""Designs as plain data in exact base SI and back, so that a stored design evaluates to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from dse.evaluation.design import Design
from dse.inputs.networks import is_network
from dse.inputs.registry import attempt, stored_class
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import Stack
from hw_models.technology import Technology
from workloads.graph_network import GraphNetwork
from workloads.importers.network_file import read as read_network
from workloads.importers.network_text import plain as plain_network
from workloads.network import Workload
from workloads.networks import GRAPHS
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network as network_named
from workloads.transformer import DecoderTransformer


def plain(value: Any) -> Any:
    """A model as JSON-able data: every field in base SI, numbers unrounded."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def design_to_plain(design: Design) -> dict[str, Any]:
    """A design of scalars as JSON-able data."""
    network = design.workload.network
    if isinstance(network, DecoderTransformer):
        described: Any = {"decoder_transformer": plain(network)}
    elif isinstance(network, GraphNetwork):
        sequence = design.workload.sequence
        known = GRAPHS.get(network.name) == network
        described = {"published": network.name} if known else {"graph": plain_network(network, sequence)}
    else:
        described = {"import": f"{type(network).__module__}:{type(network).__qualname__}", "fields": plain(network)}
    return {
        "chip": plain(design.chip),
        "cluster": plain(design.cluster),
        "plan": design.plan.named(),
        "workload": {
            "network": described,
            "sequence": design.workload.sequence,
            "global_batch": design.workload.global_batch,
            "weight": design.workload.weight,
        },
        "training": plain(design.training),
        "stack": plain(design.stack),
        "technology": plain(design.constants),
    }


def design_from_plain(data: Mapping[str, Any]) -> Design:
    """The design that `design_to_plain` described; ValueError names what is missing.

    A network of a foreign class must be registered (`dse.register`): data makes nothing be imported."""
    needed = ("chip", "cluster", "plan", "workload", "training", "stack", "technology")
    missing = [key for key in needed if key not in data]
    if missing:
        raise ValueError(f"design: found no {', '.join(missing)}")
    cluster = dict(data["cluster"])
    cluster["tiers"] = tuple(Tier(**tier) for tier in cluster["tiers"])
    stack = dict(data["stack"])
    stack["algorithms"] = tuple(stack["algorithms"])
    workload = data["workload"]
    return Design(
        chip=Chip(**data["chip"]),
        cluster=Cluster(**cluster),
        plan=Plan(**data["plan"]),
        workload=Workload(
            _network(workload["network"]), workload["sequence"], workload["global_batch"], workload.get("weight", 1.0)
        ),
        stack=Stack(**stack),
        training=Training(**data["training"]),
        technology=Technology(**data["technology"]),
    )


def _network(data: Mapping[str, Any]) -> Any:
    if "decoder_transformer" in data:
        return DecoderTransformer(**data["decoder_transformer"])
    if "published" in data:
        return network_named(str(data["published"]))
    if "graph" in data:
        return read_network(data["graph"]).network
    return _foreign(str(data["import"]), data.get("fields"))


def _foreign(reference: str, values: Any) -> Any:
    """A network of a registered class, called with its fields; nothing is imported."""
    if values is not None and not isinstance(values, Mapping):
        raise ValueError(f"network.fields: found a {type(values).__name__}, allowed: a mapping")
    made, raised = attempt(partial(stored_class("network", reference), **(values or {})))
    if raised or not is_network(made):
        raise ValueError(f"network: found {reference}, which {raised and 'raised ' + raised or 'makes none'}")
    return made
