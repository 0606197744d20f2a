"""A network as the text of a file that `network_file` reads back: equal counts, cells and order.

Layers that are alike but for their number are written once, with `repeat`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import groupby
from typing import Any

from workloads.graph import Counts, Graph, Node
from workloads.graph_network import GraphNetwork
from workloads.importers.network_file import INPUT, SEQUENCE, Described
from workloads.importers.network_operators import Counted, operators, word
from workloads.network import Network
from workloads.transformer import DecoderTransformer

#: Results this far back are named by how far, others by their number from the top.
NEAR = 40
#: Texts that YAML takes for something else.
RESERVED = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def plain(network: Network, sequence: int | None = None) -> dict[str, Any]:
    """A network as plain values."""
    if isinstance(network, DecoderTransformer):
        sizes = _changed(network)
        found: dict[str, Any] = {"name": sizes.pop("name")}
        if sequence:
            found["sequence"] = sequence
        if "source" in sizes:
            found["source"] = sizes.pop("source")
        return found | {"decoder_transformer": sizes}
    if not isinstance(network, GraphNetwork):
        raise ValueError(f"network: found a {type(network).__name__}, allowed: a DecoderTransformer or a GraphNetwork")
    described = isinstance(network.build, Described)
    length = network.sequence if described else sequence or network.sequence
    head: dict[str, Any] = {"name": network.name, "sample": network.sample, "sequence": length}
    if network.source:
        head["source"] = network.source
    if network.tensor_divides:
        head["tensor_divides"] = dict(network.tensor_divides)
    if isinstance(network.build, Described):
        found = json.loads(network.build.text)
        return head | found
    return head | _any_length(network, length)


def _any_length(network: GraphNetwork, length: int) -> dict[str, Any]:
    """Inputs and operators; shapes of data say `sequence` where that alone tells samples of two lengths apart."""
    found, other = plain_graph(network.graph(length)), length // 2
    if other < 1:
        return found
    try:
        half = plain_graph(network.build(other))
    except ValueError:  # it has one length
        return found
    worded = _worded(found, half, length, other)
    return worded if worded is not None and worded == _worded(half, found, other, length) else found


def _worded(tree: dict[str, Any], twin: dict[str, Any], length: int, other: int) -> dict[str, Any] | None:
    """The tree with the word for `length` in shapes of data that are `other` long in its twin."""

    def shape(one: Any, two: Any) -> list[Any]:
        if not isinstance(two, list) or len(two) != len(one):
            return list(one)
        return [SEQUENCE if (a, b) == (length, other) else a for a, b in zip(one, two, strict=True)]

    data = {name: shape(one, twin.get("inputs", {}).get(name)) for name, one in tree.get("inputs", {}).items()}
    if len(tree["operators"]) != len(twin["operators"]):
        return None
    listed = [
        one | {"shape": shape(one["shape"], two.get("shape"))} if one.get("operator") == INPUT else one
        for one, two in zip(tree["operators"], twin["operators"], strict=True)
    ]
    return ({"inputs": data} if data else {}) | {"operators": listed}


def plain_graph(graph: Graph) -> dict[str, Any]:
    """Inputs and operators of a graph."""
    first = next((node.cell for node in graph.nodes if node.cell), "")
    head = next((i for i, node in enumerate(graph.nodes) if not node.is_data or node.cell not in ("", first)), 0)
    labels = _unique([node.name for node in graph.nodes[:head]])
    inputs = {label: list(node.counts.result) for label, node in zip(labels, graph.nodes, strict=False)}
    written = [_written(node, number) for number, node in enumerate(graph.nodes)]
    return ({"inputs": inputs} if inputs else {}) | {"operators": list(_collapsed(written[head:]))}


@dataclass(frozen=True)
class Written:
    """An operator on its way to a file: its fields, and the numbers of the nodes it reads and shares with."""

    number: int
    values: dict[str, Any]
    cell: str
    inputs: tuple[int, ...]
    shares: int

    @property
    def sources(self) -> tuple[int, ...]:
        return (*self.inputs, self.shares)

    def item(self, modes: tuple[frozenset[str], ...] | None = None, cell: bool = True) -> dict[str, Any]:
        """The entry of the file; modes: how each source may be named ("near", "far")."""
        found = dict(self.values)
        allowed = modes or (frozenset(("near", "far")),) * len(self.sources)
        named = [self._name(source, how) for source, how in zip(self.sources, allowed, strict=True)]
        if self.inputs and named[:-1] != [-1]:
            found["inputs"] = named[:-1] if len(named) > 2 else named[0]
        if self.shares >= 0:
            found["tied_to"] = named[-1]
        return found | ({"cell": self.cell} if self.cell and cell else {})

    def _name(self, source: int, how: frozenset[str]) -> int | str:
        back = self.number - source
        return -back if "near" in how and (back <= NEAR or how == {"near"}) else f"#{source}"


def _written(node: Node, number: int) -> Written:
    if node.is_data:
        shape = list(node.counts.result)
        return Written(number, {"operator": INPUT, "shape": shape, "name": node.name}, node.cell, (), -1)
    values = _operator(node.operator, node.counts)
    if node.name != f"{values['operator'].replace('_', '')} {number}":
        values["name"] = node.name
    return Written(number, values, node.cell, node.inputs, node.shares)


def _collapsed(items: list[Written]) -> Iterator[dict[str, Any]]:
    """Entries, runs of cells that differ in a number alone as one repeat."""
    cells = [list(group) for _, group in groupby(items, key=lambda one: one.cell)]
    at = 0
    while at < len(cells):
        modes = [(frozenset(("near", "far")),) * len(one.sources) for one in cells[at]]
        end = at
        pattern = _numbered(cells[at][0].cell, cells[at + 1][0].cell) if at + 1 < len(cells) else None
        while pattern and end + 1 < len(cells):
            template, start = pattern
            both = _alike(cells[at], cells[end + 1], modes)
            if both is None or cells[end + 1][0].cell != template.replace("{}", str(start + end + 1 - at)):
                break
            modes, end = both, end + 1
        if end > at and pattern:
            inner = [one.item(how, cell=False) for one, how in zip(cells[at], modes, strict=True)]
            numbered = {"first": pattern[1]} if pattern[1] else {}
            yield {"repeat": end - at + 1} | numbered | {"cell": pattern[0], "operators": inner}
        else:
            yield from (one.item() for one in cells[at])
        at = end + 1


def _numbered(name: str, following: str) -> tuple[str, int] | None:
    """("layer {}", 3) of "layer 3" and "layer 4"."""
    for match in re.finditer(r"\d{1,6}", name):
        before, after = name[: match.start()], name[match.end() :]
        number = int(match.group())
        if f"{before}{number}{after}" == name and f"{before}{number + 1}{after}" == following and "{}" not in name:
            return f"{before}{{}}{after}", number
    return None


def _alike(
    ones: list[Written], others: list[Written], modes: list[tuple[frozenset[str], ...]]
) -> list[tuple[frozenset[str], ...]] | None:  # fmt: skip
    """How sources can be named so that both cells are the same text; None where they cannot."""
    if len(ones) != len(others):
        return None
    found = []
    for one, other, allowed in zip(ones, others, modes, strict=True):
        if one.values != other.values or len(one.sources) != len(other.sources):
            return None
        if (one.shares < 0) != (other.shares < 0):
            return None
        each = []
        for a, b, how in zip(one.sources, other.sources, allowed, strict=True):
            same = {"near"} if one.number - a == other.number - b else set()
            same |= {"far"} if a == b else set()
            left = how & same if a >= 0 else how
            if not left:
                return None
            each.append(frozenset(left))
        found.append(tuple(each))
    return found


def _unique(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        label, number = name or "input", 1
        while label in found:
            number += 1
            label = f"{name or 'input'} {number}"
        found.append(label)
    return found


def _operator(operator: Any, counts: Counts) -> dict[str, Any]:
    """An operator by name and changed fields, or by its counts where it is none of ours."""
    kind = word(type(operator).__name__)
    if operators().get(kind) is type(operator):
        return {"operator": kind} | _changed(operator)
    return {"operator": "counted"} | _changed(Counted(**{f.name: getattr(counts, f.name) for f in fields(counts)}))


def _changed(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that differ from their default, as plain values."""
    return {
        item.name: _value(getattr(value, item.name))
        for item in fields(value)
        if item.default is MISSING or getattr(value, item.name) != item.default
    }


def _value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _changed(value)
    if isinstance(value, (tuple, list)):
        return [_value(one) for one in value]
    return value


# Text --------------------------------------------------------------------------------------------------------------


def yaml_text(network: Network, sequence: int | None = None) -> str:
    """The file of a network: one line an operator."""
    return "\n".join(_lines(plain(network, sequence))) + "\n"


def _lines(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        if key == "operators":
            yield "operators:"
            yield from _listed(value, "  ")
        elif isinstance(value, dict) and key != "inputs":
            yield f"{key}:"
            yield from (f"  {_flow(name)}: {_flow(one)}" for name, one in value.items())
        else:
            yield f"{key}: {_flow(value)}"


def _listed(items: list[dict[str, Any]], indent: str) -> Iterator[str]:
    for item in items:
        if "repeat" not in item:
            yield f"{indent}- {_flow(item)}"
            continue
        mark = "- "
        for key, value in item.items():
            if key != "operators":
                yield f"{indent}{mark}{key}: {_flow(value)}"
                mark = "  "
        yield f"{indent}  operators:"
        yield from _listed(item["operators"], indent + "    ")


def _flow(value: Any) -> str:
    """A value on one line; texts in quotes unless they are plain names."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        bare = value.isidentifier() and value.isascii() and value.lower() not in RESERVED
        return value if bare else json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return "null" if value is None else str(value)
