"""Published networks by name: what sizes a paper gave, and what the builder counts for them.

The table is `data/networks.csv`, a row a network with its source; it holds no hardware and no training runs.
Counts follow the builder; docs/models/workloads.md says which agree exactly with the released weights.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from workloads.network import Workload
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


def _find(name: str) -> Published:
    rows = published()
    if name in rows:
        return rows[name]
    near = get_close_matches(str(name).lower(), rows, n=3, cutoff=0.5)
    hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(rows)}"
    raise ValueError(f"network: found {name!r}, {hint}")


def names() -> tuple[str, ...]:
    """Names of the published networks."""
    return tuple(published())


def network(name: str) -> DecoderTransformer:
    """The published network called `name`, e.g. "gpt3-175b"."""
    return _find(name).network


def default_sequence(name: str) -> int:
    """Tokens a sample that the network was trained with."""
    return _find(name).sequence


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
    """A row a network for people: sizes, counted and published parameters, forward FLOP a token, source.

    Parameters count each shared tensor once; `embedding_parameters` is the part outside the layers, and
    `active_parameters` leaves out the experts that a token does not meet.
    FLOP a token are those of the matrix products at the default sequence, attention as a full square.
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
                "forward_flops_per_token": forward_flops(Workload(shape, sequence, 1)) // sequence,
                "source": shape.source,
            }
        )
    return rows
