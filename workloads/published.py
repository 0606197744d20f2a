"""Published networks by name: what sizes a paper gave, and what the builder counts for them.

Decoder transformers are rows of `data/networks.csv`, with their source; others are graphs (workloads/networks/), and
`data/graph_counts.csv` says what their papers or frameworks count.  Neither holds hardware or training runs.
docs/models/workloads.md says which counts agree exactly with the released weights.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from math import prod
from types import MappingProxyType
from typing import Any

from workloads.graph_network import WORDS, GraphNetwork
from workloads.network import Workload
from workloads.networks import GRAPHS
from workloads.training import active_parameters, embedding_parameters, forward_flops, parameters
from workloads.transformer import DecoderTransformer


@dataclass(frozen=True)
class Published:
    """One row of the table.

    network              the sizes
    sequence             tokens a sample in the published training
    published_parameters as printed: its last digit tells its resolution, a whole number is an exact count
    published_active     parameters that a token meets, as printed; None where none were
    """

    network: DecoderTransformer
    sequence: int
    published_parameters: Decimal
    published_active: Decimal | None = None

    @property
    def exact(self) -> bool:
        """The published count is exact (counted on released weights), not rounded."""
        return self.published_parameters.as_tuple().exponent == 0


def _value(kind: Any, text: str) -> Any:
    if kind in ("int", "float"):
        return {"int": int, "float": float}[kind](text)
    if kind == "bool":
        return {"true": True, "false": False}[text]
    return text


@lru_cache(maxsize=1)
def published() -> Mapping[str, Published]:
    """Every published network by name, in the order of the table, read once.

    Columns named as fields of the builder are sizes, and an empty cell leaves the field's default; columns of other
    names are not.
    """
    kinds = {field.name: field.type for field in fields(DecoderTransformer)}
    found = {}
    text = (files("workloads") / "data" / "networks.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        sizes = {name: _value(kinds[name], value) for name, value in row.items() if value and name in kinds}
        active = row.get("published_active_parameters")
        found[row["name"]] = Published(
            DecoderTransformer(**sizes), int(row["sequence"]), Decimal(row["published_parameters"]),
            Decimal(active) if active else None,
        )  # fmt: skip
    return MappingProxyType(found)


@dataclass(frozen=True)
class GraphCount:
    """What a paper or a framework counts for a network that is a graph.

    parameters, macs   trained numbers; multiply-adds of its matrix products, forward, one sample; None: not published
    tolerance          relative deviation that is expected of ours, 0: exact; reason: why, where it is not 0
    kept_elements, kept_bytes   what torch's autograd keeps of a sample: floating-point elements, bytes of others
    input, source, made_by   sizes of a sample; what was counted; with what (framework and version, or as printed)
    """

    parameters: int | None
    macs: int | None
    tolerance: float
    reason: str
    input: str
    source: str
    made_by: str
    kept_elements: int | None = None
    kept_bytes: int | None = None


@lru_cache(maxsize=1)
def graph_counts() -> Mapping[str, GraphCount]:
    """Counts by others of the networks that are graphs, read once."""
    text = (files("workloads") / "data" / "graph_counts.csv").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            row["name"]: GraphCount(
                int(row["parameters"]) if row["parameters"] else None,
                int(row["macs"]) if row["macs"] else None,
                float(row["tolerance"] or 0.0),
                row["reason"],
                row["input"],
                row["source"],
                row["made_by"],
                *(int(row[name]) if row.get(name) else None for name in ("kept_elements", "kept_bytes")),
            )
            for row in csv.DictReader(text.splitlines())
        }
    )


def _unknown(name: object) -> ValueError:
    known = names()
    near = get_close_matches(str(name).lower(), known, n=3, cutoff=0.5)
    hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(known)}"
    return ValueError(f"network: found {name!r}, {hint}")


def names() -> tuple[str, ...]:
    """Names of the published networks: decoder transformers, then graphs."""
    return (*published(), *GRAPHS)


def transformer_names() -> tuple[str, ...]:
    """Names of the decoder transformers among them."""
    return tuple(published())


def network(name: str) -> Any:
    """The published network called `name`: a `DecoderTransformer` ("gpt3-175b") or a `GraphNetwork` ("resnet50")."""
    if name in GRAPHS:
        return GRAPHS[name]
    if name in published():
        return published()[name].network
    raise _unknown(name)


def default_sequence(name: str) -> int:
    """Tokens a sample that the network was trained with; 1 where a sample is an image or a row."""
    if name in GRAPHS:
        return GRAPHS[name].sequence
    if name in published():
        return published()[name].sequence
    raise _unknown(name)


def identifier(name: str) -> str:
    """A network's name as a Python identifier: "gpt3-1.3b" becomes "gpt3_1_3b"."""
    return name.replace("-", "_").replace(".", "_")


def name_of(identifier_: str) -> str:
    """The network's name for an identifier, the inverse of `identifier` over `names()`."""
    known = {identifier(name): name for name in names()}
    if identifier_ in known:
        return known[identifier_]
    near = get_close_matches(identifier_, known, n=3, cutoff=0.5)
    raise ValueError(f"network: found {identifier_!r}, nearest: {', '.join(near) or 'none'}")


def table() -> list[dict[str, Any]]:
    """A row a network for people: counted and published parameters, forward FLOP a sample, what a sample is, source.

    Parameters count each shared tensor once.  FLOP are those of the matrix products at the default sequence, attention
    as a full square.  Sizes that only decoder transformers have are None for graphs (see `transformer_table`).
    """
    rows = transformer_table()
    blank: dict[str, Any] = dict.fromkeys(rows[0])
    return rows + [{**blank, **_graph_row(graph)} for graph in GRAPHS.values()]


def _graph_row(network: GraphNetwork) -> dict[str, Any]:
    graph = network.graph()
    count = graph_counts().get(network.name)
    return {
        "name": network.name,
        "parameters": graph.parameters,
        "published_parameters": count.parameters if count else None,
        "published_exact": count is not None and not count.tolerance,
        "sequence": network.sequence,
        "sample": sample(network),
        "forward_flops_per_sample": graph.flops,
        "source": network.source,
    }


def sample(network: GraphNetwork) -> str:
    """What a sample of a graph network is, with its sizes: "image 3x224x224"."""
    if network.sequence > 1:
        length = f"{network.sequence:,}"
        return f"{length} tokens" if network.sample in WORDS else f"{network.sample} of {length} steps"
    sizes = [node.counts.result for node in network.graph().nodes if node.is_data]
    largest = max(sizes, key=lambda size: (len(size), prod(size)))
    return f"{network.sample} {'x'.join(map(str, largest))}" if len(largest) > 1 else network.sample


def transformer_table() -> list[dict[str, Any]]:
    """A row a decoder transformer: sizes, counted and published parameters, forward FLOP a token and a sample, source.

    `embedding_parameters` is the part outside the layers, and `active_parameters` leaves out the experts that a token
    does not meet.
    """
    rows = []
    for name, entry in published().items():
        shape, sequence = entry.network, entry.sequence
        rows.append(
            {
                "name": name,
                "parameters": parameters(shape, sequence),
                "active_parameters": active_parameters(shape, sequence),
                "embedding_parameters": embedding_parameters(shape, sequence),
                "published_parameters": int(entry.published_parameters),
                "published_exact": entry.exact,
                "layers": shape.layers,
                "hidden": shape.hidden,
                "heads": shape.heads,
                "kv_heads": shape.kv_heads,
                "ffn": shape.ffn,
                "experts": shape.experts,
                "experts_per_token": shape.experts_per_token,
                "vocabulary": shape.padded_vocabulary,
                "sequence": sequence,
                "sample": f"{sequence:,} tokens",
                "forward_flops_per_token": forward_flops(Workload(shape, sequence, 1)) // sequence,
                "forward_flops_per_sample": forward_flops(Workload(shape, sequence, 1)),
                "source": shape.source,
            }
        )
    return rows
