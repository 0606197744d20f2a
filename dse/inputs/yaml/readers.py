"""Reads one value of a configuration file: a quantity, a choice, a truth value, a name.

A reader says what it allows, says the same as JSON Schema, and turns a leaf into the stored value or one fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

from dse.base.errors import ConfigError, Problem, listed, nearest, shorten
from dse.base.units import UnitError, example, parse_exact, read_number
from dse.evaluation import metrics
from dse.exploration.plans import Strategy
from dse.exploration.searchers import Plugged
from dse.inputs import plugins
from dse.inputs.registry import attempt, plugin_names, resolve
from dse.inputs.spec import Catalog

__all__ = [
    "Choice",
    "Fault",
    "Flag",
    "Invalid",
    "Location",
    "Metric",
    "Named",
    "Probed",
    "Quantity",
    "Reader",
    "Row",
    "Rule",
    "Sampler",
    "Scalar",
    "Text",
    "refusal",
    "scalar",
    "wanted_metric",
]

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Scalar:
    """A leaf of the file: what YAML takes it for, and its text as written."""

    kind: Literal["text", "number", "boolean", "null"]
    text: str
    quoted: bool = False

    def shown(self) -> str:
        """How a message repeats it."""
        if self.kind == "null":
            return "nothing (null)"
        return f'"{shorten(self.text)}"' if self.kind == "text" else shorten(self.text)

    @property
    def hint(self) -> str:
        """Why YAML may have taken it for something else than what was meant."""
        if self.kind == "boolean":
            return f'YAML reads {self.text} as a boolean: for text write "{self.text}" in quotes'
        return ""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, at a place inside the tree; `at_key` points at the key instead of its value.

    problems   faults of another file that this place names; they are said instead
    """

    found: str
    allowed: str
    nearest: str = ""
    hint: str = ""
    location: Location = ()
    at_key: bool = False
    problems: tuple[Problem, ...] = ()

    def under(self, *location: str | int) -> Fault:
        """The same fault, seen from a section further out."""
        return replace(self, location=location + self.location)


class Invalid(Exception):
    """A leaf that cannot be read; carries one fault."""

    def __init__(self, found: str, allowed: str, nearest: str = "", hint: str = "") -> None:
        self.fault = Fault(found, allowed, nearest, hint)
        super().__init__(found)


def scalar(value: Any, allowed: str) -> Scalar:
    if isinstance(value, Scalar):
        return value
    kind = "a list" if isinstance(value, list) else "a mapping"
    raise Invalid(kind, allowed)


# One reader a kind of leaf ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """A number with the unit, bounds and wholeness of its field; `words` are texts that stand for a number."""

    unit: str
    whole: bool = False
    low: float | None = None
    high: float | None = None
    words: tuple[tuple[str, float], ...] = ()

    @property
    def bounds(self) -> str:
        """The allowed range in words."""
        low = "> 0" if self.low is None else f">= {self.low:g}"
        return low if self.high is None else f"{low} and <= {self.high:g}"

    @property
    def allowed(self) -> str:
        """What a message says is allowed."""
        words = "".join(f", or {word}" for word, _ in self.words)
        if self.unit:
            return f"a quantity {self.bounds} in {self.unit}, for example {example(self.unit)}{words}"
        return f"a {'whole ' if self.whole else ''}number {self.bounds}{words}"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the leaf."""
        if self.unit:
            return {"type": "string", "examples": [example(self.unit)]}
        bounds: dict[str, Any] = {"exclusiveMinimum": 0} if self.low is None else {"minimum": self.low}
        if self.high is not None:
            bounds["maximum"] = self.high
        number = {"type": "integer" if self.whole else "number"} | bounds
        return {"anyOf": [number, {"enum": [word for word, _ in self.words]}]} if self.words else number

    def exact(self, value: Scalar) -> Fraction:
        """The exact number in the base unit, bounds not yet checked."""
        words = dict(self.words)
        if value.kind == "text" and value.text in words:
            return Fraction(words[value.text])
        if value.kind == "number":
            number = read_number(value.text)
            if number is None:
                raise Invalid(value.shown(), self.allowed)
            if self.unit:
                raise Invalid(f"{value.shown()} without a unit", self.allowed)
            return number
        if value.kind != "text":
            raise Invalid(value.shown(), self.allowed, hint="" if value.kind == "null" else "a boolean is not a number")
        if not self.unit and value.quoted and read_number(value.text) is not None:
            raise Invalid(f"the text {value.shown()}", self.allowed, hint="remove the quotes")
        try:
            return parse_exact(value.text, self.unit)
        except UnitError as error:
            near = nearest(value.text, words) or error.nearest
            raise Invalid(error.found, self.allowed, near, "" if near in words else error.hint) from None

    def finish(self, exact: Fraction, found: str) -> int | float:
        """The number as it is stored, after its bounds."""
        above = exact > 0 if self.low is None else exact >= Fraction(self.low)
        if not above or (self.high is not None and exact > Fraction(self.high)):
            raise Invalid(found, self.allowed)
        if self.whole:
            if exact.denominator != 1:
                raise Invalid(found, self.allowed)
            return int(exact)
        try:
            number = float(exact)
        except OverflowError:
            raise Invalid(found, self.allowed, hint="too large for a double") from None
        if number == 0 and exact != 0:
            raise Invalid(found, self.allowed, hint="too small for a double")
        return number

    def read(self, value: Any, catalog: Catalog) -> int | float:
        """The stored number of a leaf."""
        leaf = scalar(value, self.allowed)
        if leaf.kind == "text" and leaf.text in dict(self.words):
            return int(dict(self.words)[leaf.text]) if self.whole else float(dict(self.words)[leaf.text])
        return self.finish(self.exact(leaf), leaf.shown())


@dataclass(frozen=True)
class Choice:
    """One of some texts; with `numbered` the stored value is the position in the list."""

    names: tuple[str, ...]
    numbered: bool = False

    @property
    def allowed(self) -> str:
        return ", ".join(self.names)

    @property
    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}

    def read(self, value: Any, catalog: Catalog) -> str | int:
        leaf = scalar(value, self.allowed)
        if leaf.kind != "text" or leaf.text not in self.names:
            near = nearest(leaf.text, self.names) if leaf.kind in ("text", "number") else ""
            raise Invalid(leaf.shown(), self.allowed, near, leaf.hint)
        return self.names.index(leaf.text) if self.numbered else leaf.text


@dataclass(frozen=True)
class Flag:
    """A truth value, stored as a boolean or as 0 and 1."""

    numbered: bool = False
    allowed: str = "true or false"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def read(self, value: Any, catalog: Catalog) -> bool | int:
        leaf = scalar(value, self.allowed)
        if leaf.kind != "boolean":
            quoted = leaf.kind == "text" and leaf.quoted and leaf.text.lower() in ("true", "false", "on", "off")
            raise Invalid(leaf.shown(), self.allowed, hint="remove the quotes" if quoted else "")
        truth = leaf.text.lower() in ("true", "on", "yes")
        return int(truth) if self.numbered else truth


@dataclass(frozen=True)
class Text:
    """A free text that is not empty."""

    allowed: str = "a text"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}

    def read(self, value: Any, catalog: Catalog) -> str:
        leaf = scalar(value, self.allowed)
        if leaf.kind == "number":
            raise Invalid(leaf.shown(), self.allowed, hint=f'YAML reads it as a number: write "{leaf.text}" in quotes')
        if leaf.kind != "text" or not leaf.text.strip():
            raise Invalid(leaf.shown(), self.allowed, hint=leaf.hint)
        return leaf.text


@dataclass(frozen=True)
class Row:
    """The name of a row of the technology table; spaces in it do not matter (`7 nm` is `7nm`)."""

    column: Literal["processes", "memories"]
    allowed: str = "a name"

    @property
    def schema(self) -> dict[str, Any]:
        return Text().schema

    def read(self, value: Any, catalog: Catalog) -> str:
        name = Text(self.allowed).read(value, catalog).replace(" ", "")
        known: tuple[str, ...] = getattr(catalog, self.column)
        if known and name not in known:
            raise Invalid(f'"{shorten(name)}"', ", ".join(known), nearest(name, known))
        return name


@dataclass(frozen=True)
class Named:
    """A name that stands for an object: a built-in, `module:attribute`, a plug-in, or a file.

    accepts   whether the object is what is wanted; one that is not is called without arguments to make it
    adapt     the object wanted for one that only stands for it, by name (a graph for its network)
    is_file, load   whether a name (seen from a folder) is meant as a file, and what that file holds
    """

    kind: str
    group: Literal["networks", "chips", "clusters", "stacks"]
    accepts: Callable[[Any], bool]
    adapt: Callable[[Any, str], Any] = lambda item, name: item
    is_file: Callable[[str, str], bool] = lambda name, folder: False
    load: Callable[[str, str], Any] | None = None

    @property
    def allowed(self) -> str:
        return f"the name of a {self.kind}, {'a file, ' if self.load else ''}or module:attribute"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "description": self.allowed}

    def read(self, value: Any, catalog: Catalog) -> Any:
        name = Text(self.allowed).read(value, catalog)
        known = getattr(catalog, self.group)
        if self.load and name not in known and self.is_file(name, catalog.folder):
            return self._loaded(name, catalog.folder)
        found = _plugged(lambda: self.adapt(resolve(self.kind, name, known, data=catalog.data), name))
        return found if self.accepts(found) else self._made(found, name)

    def _loaded(self, name: str, folder: str) -> Any:
        assert self.load is not None
        try:
            return self.load(name, folder)
        except ConfigError as error:
            invalid = Invalid(f'"{shorten(name)}"', self.allowed)
            invalid.fault = replace(invalid.fault, problems=tuple(error.problems))
            raise invalid from error

    def _made(self, maker: Any, name: str) -> Any:
        allowed = f"a {self.kind}, or a function without arguments that returns one"
        if not callable(maker):
            raise Invalid(f'"{name}", a {type(maker).__name__}', allowed)
        made, raised = attempt(lambda: self.adapt(maker(), name))
        if raised:
            raise Invalid(f'"{name}"', allowed, hint=f"calling it raised {raised}")
        if not self.accepts(made):
            raise Invalid(f'"{name}", which returns a {type(made).__name__}', allowed)
        return made


@dataclass(frozen=True)
class Metric:
    """The name of a metric of a result, or a metric of the user's own as `module:attribute`."""

    allowed: str = "the name of a metric"

    @property
    def schema(self) -> dict[str, Any]:
        return Text().schema

    def read(self, value: Any, catalog: Catalog) -> str | metrics.Metric:
        return wanted_metric(Text(self.allowed).read(value, catalog), catalog)


def wanted_metric(name: str, catalog: Catalog) -> str | metrics.Metric:
    """The metric of a name; Invalid says what is wrong with it."""
    if ":" not in name and name not in catalog.metric_units and name not in plugin_names("metric"):
        raise Invalid(f'"{shorten(name)}"', listed(catalog.metric_units), nearest(name, catalog.metric_units))
    return _plugged(lambda: plugins.metric(name, catalog.metric_units, data=catalog.data))


Found = TypeVar("Found")


def _plugged(find: Callable[[], Found]) -> Found:
    """What a lookup of plug-ins finds; its fault becomes one of the field that is read."""
    try:
        return find()
    except ConfigError as error:
        problem = error.problems[0]
        raise Invalid(problem.found, problem.allowed, problem.nearest, problem.hint) from error


@dataclass(frozen=True)
class Sampler:
    """The name of a searcher, `module:attribute`, or a sampler of Optuna as `optuna:NAME`."""

    allowed: str = "the name of a sampler"

    @property
    def schema(self) -> dict[str, Any]:
        return Text().schema

    def read(self, value: Any, catalog: Catalog) -> str | Plugged:
        name = Text(self.allowed).read(value, catalog)
        return _plugged(lambda: plugins.sampler(name, data=catalog.data))


@dataclass(frozen=True)
class Rule:
    """A rule for the plans that are looked at, as `module:attribute` or the name of a plug-in."""

    allowed: str = "the name of a strategy"

    @property
    def schema(self) -> dict[str, Any]:
        return Text().schema

    def read(self, value: Any, catalog: Catalog) -> Strategy:
        name = Text(self.allowed).read(value, catalog)
        return _plugged(lambda: plugins.strategy(name, data=catalog.data))


@dataclass(frozen=True)
class Probed:
    """A field whose bounds only its model knows: the model itself is asked whether it takes the value."""

    model: type
    name: str
    inner: Choice | Flag | Quantity

    @property
    def allowed(self) -> str:
        return self.inner.allowed

    @property
    def schema(self) -> dict[str, Any]:
        return self.inner.schema

    def read(self, value: Any, catalog: Catalog) -> Any:
        stored = self.inner.read(value, catalog)
        refused = refusal(self.model, self.name, stored)
        if refused:
            raise Invalid(str(stored), refused)
        return stored

    def exact(self, value: Scalar) -> Fraction:
        """Exact number of a leaf, for ranges."""
        assert isinstance(self.inner, Quantity)
        return self.inner.exact(value)

    def finish(self, exact: Fraction, found: str) -> int | float:
        """Stored number of a value of a range."""
        assert isinstance(self.inner, Quantity)
        stored = self.inner.finish(exact, found)
        refused = refusal(self.model, self.name, stored)
        if refused:
            raise Invalid(found, refused)
        return stored


def refusal(model: Any, name: str, value: Any) -> str:
    """What the model allows instead of `value`, or "" when it takes it."""
    try:
        model(**{name: value})
    except ValueError as error:
        return str(error).rpartition("allowed: ")[2]
    return ""


Reader = Quantity | Choice | Flag | Text | Row | Named | Metric | Sampler | Rule | Probed
