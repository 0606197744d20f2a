"""A network as plain values and back: what a YAML or JSON file says of a decoder or of a graph of operators.

    name: two-layers                                    name: small-llama
    inputs: {image: [3, 32, 32]}                        decoder_transformer: {layers: 12, hidden: 768, heads: 12, ...}
    operators:
      - {operator: conv, filters: 16, kernel: 3, padding: 1, cell: stem}
      - repeat: 4
        cell: block {}
        operators: [{operator: linear, outputs: 32}, {operator: activation, kind: gelu}]
      - {operator: cross_entropy, cell: head}

An operator reads the result before it unless `inputs` names others: by name, -2 (the one before the last), or "#3"
(the fourth from the top, data included).  Writing is in `network_text`; format and examples: docs/importers.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.importers.imported import Imported
from workloads.importers.network_operators import LARGEST, fits, operators, told, values_of
from workloads.importers.reading import Fault, FileError, Keys, near, read_json, shown
from workloads.transformer import DecoderTransformer

#: Operators of a graph after repeats: a graph of this size is lowered in seconds.
MOST_OPERATORS = 5_000
#: Repeats inside repeats.
MOST_LEVELS = 4
#: Inputs of one operator.
MOST_INPUTS = 256
#: The word that a shape may hold in place of a number.
SEQUENCE = "sequence"
#: The operator that is data: an input further down than those of `inputs`.
INPUT = "input"
#: Keys of an operator that are no field of it.
PLACES = ("operator", "name", "inputs", "cell", "tied_to")
#: Keys of the file.
TOP = ("name", "source", "sample", "sequence", "tensor_divides", "inputs", "operators", "decoder_transformer")


def is_network(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping looks like a network file."""
    return "operators" in tree or "decoder_transformer" in tree


def load(path: str | Path) -> Imported:
    """The network of a JSON file in this format; YAML is read where configurations are."""
    return read(read_json(path, "a network as JSON"), str(path))


def read(tree: Mapping[str, Any], path: str = "") -> Imported:
    """The network that plain values describe; FileError lists every fault with its field."""
    faults = [
        Fault(key, "an unknown key", ", ".join(TOP), near(key, TOP)) for key in tree if key not in TOP
    ]
    keys = Keys(tree, path, faults=faults)
    name = keys.get("name", Path(path).stem or "custom")
    source = keys.get("source", "")
    for key, value in (("name", name), ("source", source)):
        if not isinstance(value, str):
            keys.wrong(key, shown(value), "a text")
    sequence = keys.whole("sequence", 1)
    if "operators" in tree and "decoder_transformer" in tree:
        keys.wrong("operators", "both operators and decoder_transformer", "one of them")
    if "decoder_transformer" in tree:
        return _decoder(keys, name, source, sequence)
    if "operators" not in tree:
        keys.wrong("operators", "nothing", "a list of operators, or decoder_transformer")
        keys.done()
    sample = keys.get("sample", "sequence" if "sequence" in tree else "image")
    if not isinstance(sample, str) or not sample:
        keys.wrong("sample", shown(sample), "a text: image, sequence, row")
    divides = keys.inner("tensor_divides")
    degrees = tuple((str(key), divides.whole(str(key), 1)) for key in divides.data)
    described = {key: tree[key] for key in ("inputs", "operators") if key in tree}
    _Builder(described, sequence, str(name), faults).graph()
    keys.done()
    made = Described(json.dumps(described), sequence, str(name))
    return Imported(GraphNetwork(str(name), made, sequence, str(sample), source, degrees), sequence)


def _decoder(keys: Keys, name: Any, source: Any, sequence: int) -> Imported:
    given = keys.get("decoder_transformer", {})
    if not isinstance(given, dict):
        keys.wrong("decoder_transformer", shown(given), "a mapping of sizes")
        keys.done()
    for key in ("inputs", "sample", "tensor_divides"):
        if key in keys.data:
            keys.wrong(key, "a key of graphs", "none beside decoder_transformer")
    sizes = values_of(
        {"name": name, "source": source} | given, DecoderTransformer, "decoder_transformer.", keys.faults
    )  # fmt: skip
    keys.done()
    try:
        network = DecoderTransformer(**sizes)
    except ValueError as error:
        said = str(error).split("; ")
        raise FileError(keys.path, [_sized(part) for part in said]) from None
    return Imported(network, sequence if "sequence" in keys.data else 0)


def _sized(text: str) -> Fault:
    name, colon, rest = text.partition(": found ")
    found, _, allowed = rest.partition(", allowed: ")
    return Fault(f"decoder_transformer.{name}", found, allowed) if colon else Fault("decoder_transformer", text, "")


@dataclass(frozen=True)
class Described:
    """Builds the graph that a text describes; equal texts are equal networks, and it can be sent to other processes."""

    text: str
    sequence: int
    name: str

    def __call__(self, sequence: int) -> Graph:
        """The graph for samples of so many tokens; without the word `sequence` in a shape there is one length."""
        tree = json.loads(self.text)
        fixed = not any(SEQUENCE in shape for shape in _shapes(tree))
        if fixed and sequence != self.sequence:
            raise ValueError(
                f"sequence: found {sequence}, allowed: {self.sequence} (the file gives shapes in numbers; for other "
                f"lengths write the word {SEQUENCE} in the shape of an input)"
            )
        faults: list[Fault] = []
        graph = _Builder(tree, sequence, self.name, faults).graph()
        if faults:
            raise ValueError("; ".join(str(fault) for fault in faults))
        return graph


def _shapes(tree: Any) -> Iterator[list[Any]]:
    """Shapes of the data of a description."""
    yield from tree.get("inputs", {}).values()
    for item in tree.get("operators", ()):
        if item.get("operator") == INPUT:
            yield item["shape"]
        yield from _shapes({"operators": item.get("operators", ())})


class _Builder:
    """Adds the operators of a description to a graph, one after the other."""

    def __init__(self, tree: Mapping[str, Any], sequence: int, name: str, faults: list[Fault]) -> None:
        self.tree, self.sequence, self.faults = tree, sequence, faults
        self.made = Graph(name)
        self.named: dict[str, Value] = {}
        self.last: Value | None = None
        self.broken = False

    def graph(self) -> Graph:
        """The graph; where an operator is wrong, those after it are checked for their own fields alone."""
        self._inputs()
        self._all(self.tree.get("operators"), "operators", "", 0)
        if not self.faults and not any(node.operator for node in self.made.nodes):
            self._wrong("operators", "an empty list", "at least one operator")
        return self.made

    def _wrong(self, where: str, found: str, allowed: str, nearest: str = "", hint: str = "") -> None:
        self.faults.append(Fault(where, found, allowed, nearest, hint))
        self.broken = True

    def _inputs(self) -> None:
        given = self.tree.get("inputs", {})
        if not isinstance(given, dict):
            self._wrong("inputs", shown(given), "a mapping from a name to a shape, for example image: [3, 224, 224]")
            return
        for name, shape in given.items():
            self._input(shape, f"inputs.{name}", str(name), "")

    def _input(self, shape: Any, where: str, name: str, cell: str) -> None:
        """Data of a shape in numbers, or with the word for the tokens of a sample."""
        sizes = [self.sequence if one == SEQUENCE else one for one in shape] if isinstance(shape, list) else []
        if not 1 <= len(sizes) <= 8 or not all(fits(one, int) and one >= 1 for one in sizes):
            found = shown(str(shape))[1:-1] if isinstance(shape, list) else shown(shape)
            self._wrong(where, found, f"1 to 8 whole numbers >= 1, or the word {SEQUENCE}")
            return
        with self.made.cell(cell):
            self.last = self.named[name] = self.made.input(tuple(sizes), name)

    def _all(self, given: Any, where: str, cell: str, level: int) -> None:
        if not isinstance(given, list):
            self._wrong(where, "nothing" if given is None else shown(given), "a list of operators")
            return
        for i, item in enumerate(given):
            place = f"{where}[{i}]"
            if len(self.made.nodes) > MOST_OPERATORS or len(self.faults) > 200:
                return
            if not isinstance(item, dict):
                self._wrong(place, shown(item), "a mapping with the key operator, or repeat")
            elif "repeat" in item:
                self._repeat(item, place, cell, level)
            else:
                self._one(item, place, cell)

    def _repeat(self, item: Mapping[str, Any], place: str, cell: str, level: int) -> None:
        known = ("repeat", "first", "cell", "operators")
        for key in item:
            if key not in known:
                self._wrong(f"{place}.{key}", "an unknown key", ", ".join(known), near(key, known))
        times, name = item["repeat"], item.get("cell", "")
        if not fits(times, int) or not 1 <= times <= MOST_OPERATORS:
            self._wrong(f"{place}.repeat", shown(times), f"a whole number from 1 to {MOST_OPERATORS}")
            times = 1
        first = item.get("first", 0)
        if not fits(first, int) or not 0 <= first <= MOST_OPERATORS:
            self._wrong(f"{place}.first", shown(first), f"a whole number from 0 to {MOST_OPERATORS}")
            first = 0
        if not isinstance(name, str):
            self._wrong(f"{place}.cell", shown(name), "a text; {} in it is the number of the repeat")
            name = ""
        if level >= MOST_LEVELS:
            self._wrong(place, "repeats nested too deeply", f"{MOST_LEVELS} levels")
            return
        for i in range(times):
            before = len(self.faults)
            nodes = len(self.made.nodes)
            inner = cell or (name.replace("{}", str(first + i)) if name else "")
            self._all(item.get("operators"), f"{place}.operators", inner, level + 1)
            if len(self.faults) > before or len(self.made.nodes) == nodes:
                return
            if len(self.made.nodes) > MOST_OPERATORS:
                self._wrong(place, f"more than {MOST_OPERATORS} operators", "fewer repeats")
                return

    def _one(self, item: Mapping[str, Any], place: str, cell: str) -> None:
        kind, known = item.get("operator"), operators()
        if kind == INPUT:
            self._data(item, place, cell)
            return
        if not isinstance(kind, str) or kind not in known:
            found = "nothing" if kind is None else shown(kind)
            close = near(str(kind), known)
            allowed = f"one of {len(known)} operators of docs/importers.md" if close else ", ".join(sorted(known))
            self._wrong(f"{place}.operator", found, allowed, close)
            return
        before = len(self.faults)
        fields_ = values_of(item, known[kind], f"{place}.", self.faults, PLACES)
        texts = {key: item.get(key, "") for key in ("name", "cell")}
        for key, text in texts.items():
            if not isinstance(text, str):
                self._wrong(f"{place}.{key}", shown(text), "a text")
        sources = self._sources(item, place)
        shares = self._source(item["tied_to"], f"{place}.tied_to") if "tied_to" in item else None
        self.broken = self.broken or len(self.faults) > before
        try:
            operator = known[kind](**fields_) if len(self.faults) == before else None
        except ValueError as error:
            self.faults += [told(place, ValueError(part)) for part in str(error).split("; ")]
            self.broken = True
            return
        if not sources and not self.broken:
            self._wrong(place, "no input", "inputs: {name: shape} at the top, or an operator above")
        if self.broken or operator is None:
            return
        self._add(operator, sources, place, str(texts["name"]), cell or str(texts["cell"]), shares)

    def _data(self, item: Mapping[str, Any], place: str, cell: str) -> None:
        known = ("operator", "shape", "name", "cell")
        for key in item:
            if key not in known or (key != "shape" and not isinstance(item[key], str)):
                found = "an unknown key" if key not in known else shown(item[key])
                self._wrong(f"{place}.{key}", found, ", ".join(known) if key not in known else "a text")
        inside = cell or str(item.get("cell", ""))
        self._input(item.get("shape"), f"{place}.shape", str(item.get("name", "input")), inside)

    def _add(
        self, operator: Any, sources: list[Value], place: str, name: str, cell: str, shares: Value | None
    ) -> None:  # fmt: skip
        try:
            with self.made.cell(cell):
                self.last = self.made.add(operator, *sources, name=name, shares=shares)
        except (ValueError, IndexError, ZeroDivisionError, TypeError) as error:
            self.faults.append(told(place, error))
            self.broken = True
            return
        counts = self.made.nodes[self.last.number].counts
        if counts.elements > LARGEST or counts.parameters > LARGEST:
            self._wrong(place, f"a result of {shown(counts.result)} elements", f"at most {LARGEST:.0e}")
        if name:
            self.named[name] = self.last

    def _sources(self, item: Mapping[str, Any], place: str) -> list[Value]:
        given = item.get("inputs")
        if given is None:
            return [self.last] if self.last is not None else []
        listed = given if isinstance(given, list) else [given]
        if not 1 <= len(listed) <= MOST_INPUTS:
            self._wrong(f"{place}.inputs", f"{len(listed)} inputs", f"1 to {MOST_INPUTS}")
            return []
        found = [self._source(one, f"{place}.inputs[{i}]") for i, one in enumerate(listed)]
        return [one for one in found if one is not None]

    def _source(self, name: Any, place: str) -> Value | None:
        if isinstance(name, str) and name in self.named:
            return self.named[name]
        number = len(self.made.nodes)
        if isinstance(name, str) and name[:1] == "#" and name[1:].isdecimal() and len(name) < 8:
            if int(name[1:]) < number:
                return Value(self.made, int(name[1:]))
        if fits(name, int) and -number <= name < 0:
            return Value(self.made, number + name)
        if self.broken:  # what it names may be what could not be built
            return None
        names = ", ".join(shown(one) for one in [*self.named][-12:])
        allowed = f"the name of a result above ({names}), -1 to -{number}, or #0 to #{number - 1}"
        self._wrong(place, shown(name), allowed, near(str(name), self.named))
        return None
