"""Reads configuration files: YAML with the place of every value, all faults of a file in one error.

The only module that knows YAML. What a file may say is in `dse.inputs.yaml.schema`, what it means in `dse.inputs.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from dse.base.errors import ConfigError, Problem, nearest, shorten
from dse.base.units import NUMBER, read_number
from dse.evaluation.result import METRICS
from dse.inputs.spec import Catalog, DesignSpec, SearchSpec
from dse.inputs.yaml.readers import Fault, Location, Scalar
from dse.inputs.yaml.schema import json_schema, read_chip, read_design, read_search
from dse.inputs.yaml.sections import faults_of
from hw_models import clusters, devices, stacks, technology
from hw_models.chip import Chip
from workloads.published import names as network_names
from workloads.published import network as network_named

__all__ = [
    "default_catalog", "has_workload", "json_schema", "load_chip", "load_design", "load_search", "recorded_search",
    "shipped_searches",
]  # fmt: skip

Place = tuple[int, int]
Spec = TypeVar("Spec", SearchSpec, DesignSpec)
Read = TypeVar("Read", SearchSpec, DesignSpec, Chip)

#: Bytes; YAML is read at about 40 kB/s on a busy core, and a search is a few kB.
LARGEST_FILE = 200_000
#: Values after aliases are followed: a small file of nested aliases can stand for billions.
MOST_NODES = 20_000
DEEPEST = 30
#: Faults of one file that are listed; the others are counted.
MOST_PROBLEMS = 100
SHIPPED = "searches"
SUFFIXES = (".yaml", ".yml")

#: What a parser says -> how to repair it.
SYNTAX_HINTS = {
    "indentation indicators": 'a text that starts with > needs quotes, for example ">= 5 W"',
    "mapping values are not allowed": 'check the indentation; a text with ": " inside needs quotes',
    "expected <block end>": "check the indentation",
    "cannot start any token": "a text that starts with this character needs quotes",
}

TAG = "tag:yaml.org,2002:"
#: What YAML resolves a plain scalar to, as far as the format knows; timestamps and the rest stay text.
KINDS = {"str": "text", "int": "number", "float": "number", "bool": "boolean", "null": "null", "timestamp": "text"}
#: Numbers of YAML 1.1 that people do not mean: octal 017, base-60 1:30, 0x1F; as text they get a message.
SPECIAL_NUMBER = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)


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
    name, content = _content(str(path))
    found = _Tree(name).read(_decoded(content, name))
    return "workload" in found or "workloads" in found


def plain_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Place]]:
    """A YAML file as plain values, and line and column of each by its path; for files that others make sense of."""
    name, content = _content(str(path))
    tree = _Tree(name)
    data = _bare(tree, tree.read(_decoded(content, name)), ())
    if tree.problems:
        raise ConfigError(_in_order(tree.problems, name))
    return data, {_path(place): where for place, where in {**tree.values, **tree.keys}.items()}


def _bare(tree: _Tree, value: Any, location: Location) -> Any:
    """Numbers, texts and truth values of scalars with their places."""
    if isinstance(value, dict):
        return {key: _bare(tree, inner, (*location, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_bare(tree, inner, (*location, i)) for i, inner in enumerate(value)]
    if value.kind == "null":
        return None
    if value.kind == "boolean":
        return value.text.lower() in ("true", "on", "yes")
    if value.kind != "number":
        return value.text
    number = read_number(value.text)
    if number is None or abs(number) >= 10**18:
        tree.problems.append(tree.problem(Fault(value.shown(), "a number below 1e18", location=location)))
        return 0
    return int(number) if number.denominator == 1 and "." not in value.text else float(number)


def shipped_searches() -> tuple[str, ...]:
    """Names of the searches that come with the product."""
    names = (item.name for item in files(SHIPPED).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


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
    name, content = _content(str(path))
    text = _decoded(content, name)
    return _said_by(text, name, catalog or default_catalog(), read), name, text


def _said_by(text: str, name: str, catalog: Catalog, read: Callable[[Any, Catalog], Read]) -> Read:
    """What the text of a file says; names of files in it are seen from its folder."""
    tree = _Tree(name)
    data = tree.read(text)
    spec = None
    try:
        spec = read(data, replace(catalog, folder=str(Path(name).parent)))
    except ValidationError as error:
        tree.problems += [problem for fault in faults_of(error) for problem in tree.said(fault)]
    if tree.problems:
        raise ConfigError(_in_order(tree.problems, name))
    assert spec is not None
    return spec


def _in_order(problems: list[Problem], name: str) -> list[Problem]:
    """Problems from the top of the file downwards, each once, as many as a person can read."""
    ordered = sorted(dict.fromkeys(problems), key=lambda one: (one.file not in ("", name), one.line, one.column))
    more = len(ordered) - MOST_PROBLEMS
    return ordered[:MOST_PROBLEMS] + ([Problem(f"{more} more faults", "", file=name)] if more > 0 else [])


# The file ---------------------------------------------------------------------------------------------------------


def _content(path: str) -> tuple[str, bytes]:
    """Name to show and bytes of a file, or of a shipped search."""
    file = Path(path)
    allowed = "a YAML file"
    try:
        if file.is_file():
            with file.open("rb") as stream:
                return path, _bounded(stream.read(LARGEST_FILE + 1), path)
        if file.exists() and path not in shipped_searches():
            found = "a directory" if file.is_dir() else "something that is not a file"
            raise ConfigError([Problem(found, allowed, file=path)])
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([Problem(f"a file that cannot be read ({_said(error)})", allowed, file=path)]) from None
    if path in shipped_searches():
        return f"{SHIPPED}/{path}.yaml", (files(SHIPPED) / f"{path}.yaml").read_bytes()
    raise ConfigError([_missing(file, path)])


def _said(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _bounded(content: bytes, path: str) -> bytes:
    if len(content) > LARGEST_FILE:
        found = f"more than {LARGEST_FILE} bytes"
        raise ConfigError([Problem(found, f"a YAML file of at most {LARGEST_FILE} bytes", file=path)])
    return content


def _missing(file: Path, path: str) -> Problem:
    """A path where nothing is: files beside it and shipped searches are candidates."""
    beside = []
    if file.parent.is_dir():
        beside = [str(item) for item in sorted(file.parent.iterdir()) if item.suffix in SUFFIXES]
    shipped = shipped_searches()
    near = nearest(path, [*shipped, *beside]) or nearest(file.stem, shipped)
    return Problem("no such file", f"a YAML file, or one of {', '.join(shipped)}", file=path, nearest=near)


def _decoded(content: bytes, name: str) -> str:
    """The text of a file, which must be UTF-8; a byte order mark is fine."""
    allowed = "UTF-8 text"
    if content[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in content[:2]:
        raise ConfigError([Problem("UTF-16 text", allowed, file=name, line=1, hint="save the file as UTF-8")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        found = f"the byte 0x{content[error.start]:02x}, which is not UTF-8"
        raise ConfigError(
            [Problem(found, allowed, file=name, line=line, column=column, hint="save the file as UTF-8")]
        ) from None
    return text


# The tree ---------------------------------------------------------------------------------------------------------


@dataclass
class _Tree:
    """Mappings, lists and scalars of one file, with the place of each value and key."""

    file: str
    values: dict[Location, Place] = field(default_factory=dict)
    keys: dict[Location, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def read(self, text: str) -> Any:
        """The plain tree of the text; what cannot be read at all is raised, other faults are collected."""
        root = self._compose(text)
        if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == f"{TAG}null"):
            raise ConfigError(
                [Problem("nothing: the config is empty", "a mapping with a name, a chip, ...", file=self.file)]
            )
        if not isinstance(root, yaml.MappingNode):
            found = "a list" if isinstance(root, yaml.SequenceNode) else f'"{shorten(str(root.value))}"'
            raise ConfigError(
                [self._at(root.start_mark, "", f"{found} at the top", "a mapping with a name, a chip, ...")]
            )
        return self._plain(root, (), [])

    def said(self, fault: Fault) -> tuple[Problem, ...]:
        """A fault as problems of this file, or of the file that is named there."""
        return fault.problems or (self.problem(fault),)

    def problem(self, fault: Fault) -> Problem:
        """A fault with its place in the file; a value that is missing is placed at what should hold it."""
        place = self.keys.get(fault.location) if fault.at_key else self.values.get(fault.location)
        outer = fault.location
        while place is None and outer:
            outer = outer[:-1]
            place = self.keys.get(outer) or self.values.get(outer)
        line, column = place or (1, 1)
        return Problem(
            found=fault.found,
            allowed=fault.allowed,
            field=_path(fault.location),
            file=self.file,
            line=line,
            column=column,
            nearest=fault.nearest,
            hint=fault.hint,
        )

    def _compose(self, text: str) -> yaml.Node | None:
        with self._syntax(text):
            loader = yaml.SafeLoader(text)
            try:
                root = loader.get_node() if loader.check_node() else None
                if loader.check_node():
                    second = loader.get_node()
                    mark = second.start_mark if second else None
                    raise ConfigError([self._at(mark, "", "a second document (---)", "one document a file")])
            finally:
                loader.dispose()
        return root

    @contextmanager
    def _syntax(self, text: str) -> Iterator[None]:
        """Faults of the YAML itself, as one problem."""
        try:
            yield
        except yaml.MarkedYAMLError as error:
            raise ConfigError([self._syntax_problem(error, text)]) from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            place = {"line": before.count("\n") + 1, "column": error.position - before.rfind("\n")}
            found = f"the control character U+{_code(error.character):04X}"
            raise ConfigError([Problem(found, "printable text", file=self.file, **place)]) from None
        except RecursionError:
            raise ConfigError(
                [Problem("lists or mappings nested too deeply", f"{DEEPEST} levels", file=self.file)]
            ) from None

    def _syntax_problem(self, error: yaml.MarkedYAMLError, text: str) -> Problem:
        said, context = " ".join(str(error.problem).split()), " ".join(str(error.context or "").split())
        mark = error.problem_mark or error.context_mark
        if mark is not None and "'\\t'" in said:
            return self._at(mark, "", "a tab", "spaces for indentation")
        at_end = mark is None or mark.index >= len(text.rstrip())
        if error.context_mark is not None and "flow" in context:
            opened = text[error.context_mark.index : error.context_mark.index + 1]
            closing = {"{": "}"}.get(opened, "]")
            if at_end or mark is None or mark.line > error.context_mark.line:
                return self._at(error.context_mark, "", f"an unclosed {opened}", f"its closing {closing}", said)
            return self._at(mark, "", f"YAML that cannot be read ({said})", f"a comma or the closing {closing}")
        if error.context_mark is not None and "quoted scalar" in context and "unexpected" in said:
            return self._at(error.context_mark, "", "an unclosed quote", "its closing quote")
        hint = next((hint for words, hint in SYNTAX_HINTS.items() if words in said), "")
        return self._at(mark, "", f"YAML that cannot be read ({said})", "valid YAML, with equal indentation", hint)

    def _at(self, mark: Any, path: str, found: str, allowed: str, hint: str = "") -> Problem:
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return Problem(found, allowed, field=path, file=self.file, line=line, column=column, hint=hint)

    def _plain(self, node: yaml.Node, location: Location, above: list[yaml.Node]) -> Any:
        """The plain value of a node; `above` are the nodes it is in, where an alias may not lead back to."""
        self.nodes += 1
        mark, path = node.start_mark, _path(location)
        if self.nodes > MOST_NODES:
            raise ConfigError(
                [self._at(mark, path, f"more than {MOST_NODES} values", "fewer values, or fewer aliases")]
            )
        if len(above) > DEEPEST or any(node is outer for outer in above):
            found = "an alias inside its own anchor" if len(above) <= DEEPEST else "lists or mappings nested too deeply"
            raise ConfigError([self._at(mark, path, found, f"at most {DEEPEST} levels")])
        self.values[location] = (mark.line + 1, mark.column + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._leaf(node, path)
        known = {f"{TAG}map", f"{TAG}seq"}
        if node.tag not in known:
            self.problems.append(self._at(mark, path, f"the tag {_tag(node)}", "values without tags"))
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*location, i), [*above, node]) for i, item in enumerate(node.value)]
        return self._mapping(node, location, [*above, node])

    def _mapping(self, node: yaml.Node, location: Location, above: list[yaml.Node]) -> dict[str, Any]:
        """Keys of a mapping; those that `<<` merges in give way to those that are written."""
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG}merge":
                found = self._merged(value_node, location, above) | found
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG}merge":
                continue
            key = self._key(key_node, location)
            if key is None:
                continue
            mark = key_node.start_mark
            place = (*location, key)
            if key in lines:
                hint = f"it is on line {lines[key]} and on line {mark.line + 1}"
                self.problems.append(self._at(mark, _path(place), f'the key "{key}" again', "each key once", hint))
                continue
            lines[key] = mark.line + 1
            self.keys[place] = (mark.line + 1, mark.column + 1)
            found[key] = self._plain(value_node, place, above)
        return found

    def _merged(self, node: yaml.Node, location: Location, above: list[yaml.Node]) -> dict[str, Any]:
        """The mapping, or the mappings, that `<<` names; of two the first wins."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        here = self.values[location]
        found: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, yaml.MappingNode):
                self.problems.append(self._at(node.start_mark, _path(location), "<< with no mapping", "<<: *name"))
                continue
            found = self._plain(part, location, above) | found
            self.values[location] = here
        return found

    def _key(self, node: yaml.Node, location: Location) -> str | None:
        """The text of a key; other keys are faults."""
        path = _path(location)
        if not isinstance(node, yaml.ScalarNode):
            self.problems.append(self._at(node.start_mark, path, "a list or mapping as a key", "a name as a key"))
            return None
        leaf = self._leaf(node, path)
        if leaf.kind == "text":
            return leaf.text
        hint = leaf.hint or f'for a name write "{leaf.text}" in quotes'
        found = f"the key {leaf.text or 'that is empty'}, a {leaf.kind}"
        self.problems.append(self._at(node.start_mark, path, found, "a name as a key", hint))
        return None

    def _leaf(self, node: yaml.ScalarNode, path: str) -> Scalar:
        tag, text, quoted = _tag(node), str(node.value), node.style is not None
        if tag not in KINDS:
            self.problems.append(self._at(node.start_mark, path, f"the tag {tag}", "values without tags"))
        kind = "text" if quoted else KINDS.get(tag, "text")
        if not quoted and (NUMBER.fullmatch(text) or SPECIAL_NUMBER.fullmatch(text)):
            kind = "number"
        elif kind == "number":
            kind = "text"
        return Scalar(kind, text, quoted)  # type: ignore[arg-type]


def _code(character: int | str) -> int:
    return ord(character) if isinstance(character, str) else character


def _tag(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(TAG)


def _path(location: Location) -> str:
    """chip.array_rows[2]"""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return shown.removeprefix(".")
