"""Operators of `workloads.layers` by the names that files have for them, and plain values as their fields.

Every dataclass there with `counts` can be written; an operator of anybody else is written by its counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import workloads.layers
from workloads.graph import Counts, Shape
from workloads.importers.reading import Fault, near, shown

#: Largest size, and the most elements of a tensor or parameters of an operator: beyond it is a slip.
LARGEST = 10**15
#: Names that do not follow from their class.
WORDS = {"PReLU": "prelu"}


@dataclass(frozen=True)
class Counted(Counts):
    """An operator that is given by its counts alone: what another tool or user code computed."""

    def counts(self, *shapes: Shape) -> Counts:
        """As given, whatever the inputs."""
        return Counts(**{item.name: getattr(self, item.name) for item in fields(self)})


def word(name: str) -> str:
    """The name of a class as a file has it: BatchNorm is batch_norm, LSTM is lstm, PReLU is prelu."""
    if name in WORDS:
        return WORDS[name]
    found = ""
    for i, letter in enumerate(name):
        before, after = name[i - 1 : i], name[i + 1 : i + 2]
        starts = letter.isupper() and before.islower() or letter.isupper() and before.isupper() and after.islower()
        found += ("_" if i > 1 and starts else "") + letter.lower()
    return found


@cache
def operators() -> Mapping[str, type]:
    """Every operator of `workloads.layers` by the name that a file has for it."""
    found: dict[str, type] = {"counted": Counted}
    for module in iter_modules(workloads.layers.__path__):
        for item in vars(import_module(f"workloads.layers.{module.name}")).values():
            if isinstance(item, type) and is_dataclass(item) and hasattr(item, "counts"):
                found[word(item.__name__)] = item
    return found


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


# Values of fields --------------------------------------------------------------------------------------------------


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is one of a field's type; lists stand for tuples."""
    if hint is Any:
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in inner)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            return False
        each = [inner[0]] * len(value) if len(inner) == 2 and inner[1] is Ellipsis else list(inner)
        return len(each) == len(value) and all(fits(one, kind) for one, kind in zip(value, each, strict=True))
    if is_dataclass(hint):
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, hint)


def _kind(hint: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_kind(one) for one in inner))
    if origin is Literal:
        return ", ".join(str(one) or '""' for one in inner)
    if origin is tuple:
        return f"a list, each {_kind(inner[0])}"
    if is_dataclass(hint):
        return "a mapping"
    words = {int: f"a whole number below {LARGEST:.0e}", float: "a number", bool: "true or false", str: "a text"}
    return words.get(hint, "null" if hint is type(None) else str(hint))


def _made(value: Any, hint: Any) -> Any:
    """A plain value as the field wants it: lists as tuples, mappings as the operations they describe."""
    if isinstance(value, dict):
        kind = next(one for one in (hint, *get_args(hint)) if is_dataclass(one))
        allowed = _hints(kind)  # type: ignore[arg-type]
        wrong = [key for key in value if key not in allowed or not fits(value[key], allowed[key])]
        if wrong:
            raise ValueError(f"{wrong[0]}: found {shown(value[wrong[0]])}, allowed: {', '.join(allowed)}")
        try:
            return kind(**{key: _made(one, allowed[key]) for key, one in value.items()})  # type: ignore[operator]
        except TypeError as error:
            raise ValueError(f"found {error}, allowed: {', '.join(allowed)}") from None
    if isinstance(value, (list, tuple)):
        inner = next((one for one in (hint, *get_args(hint)) if get_origin(one) is tuple), hint)
        each = get_args(inner)[0] if get_args(inner) else Any
        return tuple(_made(one, each) for one in value)
    return value


def values_of(data: Mapping[str, Any], kind: type, where: str, faults: list[Fault], skip: Iterable[str] = ()) -> Any:
    """Arguments for the dataclass `kind` from a mapping; what is wrong with them goes to `faults`."""
    known: dict[str, Field[Any]] = {item.name: item for item in fields(kind)}
    found: dict[str, Any] = {}
    left = set(skip)
    for key, value in data.items():
        if key in left:
            continue
        if key not in known:
            faults.append(Fault(f"{where}{key}", "an unknown key", ", ".join([*known]), near(key, known)))
        elif not fits(value, _hints(kind)[key]):
            hint = _hints(kind)[key]
            close = near(value, map(str, get_args(hint))) if isinstance(value, str) else ""
            faults.append(Fault(f"{where}{key}", shown(value), _kind(hint), close))
        else:
            try:
                found[key] = _made(value, _hints(kind)[key])
            except ValueError as error:
                faults.append(told(f"{where}{key}", error))
    for name, item in known.items():
        if item.default is MISSING and item.default_factory is MISSING and name not in data and name not in left:
            faults.append(Fault(f"{where}{name}", "nothing", _kind(_hints(kind)[name])))
    return found


def told(where: str, error: Exception) -> Fault:
    """What a model said of its arguments: "kind: found 3, allowed: 4" is about the field `kind`."""
    text = " ".join(str(error).split())
    found, _, allowed = text.partition(", allowed: ")
    name, colon, rest = found.partition(": found ")
    if colon and name.isidentifier():
        return Fault(f"{where}.{name}", rest, allowed)
    return Fault(where, found.removeprefix("found "), allowed)
