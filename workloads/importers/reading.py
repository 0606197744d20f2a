"""Reads files of strangers: bounded in size, depth and numbers, every fault of a file in one error.

It knows JSON and tables; YAML is read where the configuration is.  What the values mean is in the other modules here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

#: Bytes of a configuration or a table; a file of this size is read in well under a second.
LARGEST_FILE = 2_000_000
#: Levels of lists and mappings, values of a file, and characters of a number.
DEEPEST, MOST_VALUES, LONGEST_NUMBER = 40, 100_000, 40
#: Largest size of anything: beyond it a product of sizes is no network that anyone trains.
LARGEST_SIZE = 1_000_000_000
#: Faults of one file that a message lists.
MOST_FAULTS = 50
#: Characters of the user's text that a message repeats.
SHOWN = 60
#: How like a known key an unknown one must be to be taken for a misspelling.
LIKENESS = 0.88


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in a file: where, what was found, what is allowed, the nearest valid name."""

    field: str
    found: str
    allowed: str
    nearest: str = ""
    hint: str = ""
    line: int = 0

    def __str__(self) -> str:
        parts = [f"found {self.found}"] + ([f"allowed: {self.allowed}"] if self.allowed else [])
        parts += [f"did you mean {self.nearest}?"] if self.nearest else []
        parts += [self.hint] if self.hint else []
        place = f"line {self.line}: " if self.line else ""
        return place + (f"{self.field}: " if self.field else "") + "; ".join(parts)


class FileError(ValueError):
    """A file that cannot be imported: its path and every fault."""

    def __init__(self, path: str, faults: Iterable[Fault]) -> None:
        self.path, self.faults = path, tuple(faults)
        more = len(self.faults) - MOST_FAULTS
        lines = [f"{path}: {fault}" if path else str(fault) for fault in self.faults[:MOST_FAULTS]]
        super().__init__("\n".join(lines + ([f"{path}: {more} more faults"] if more > 0 else [])))

    def __reduce__(self) -> tuple[type[FileError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.path, self.faults)


def shown(value: Any) -> str:
    """A value of the user as a message repeats it."""
    if isinstance(value, (dict, Mapping)):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = " ".join((f'"{value}"' if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def near(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that `name` most likely stands for, or ""."""
    plain = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    match = get_close_matches(str(name)[:200].lower().replace("-", "_"), plain, n=1, cutoff=likeness)
    return plain[match[0]] if match else ""


def file_text(path: str | Path, largest: int = LARGEST_FILE, what: str = "a file") -> str:
    """The text of a UTF-8 file of at most `largest` bytes."""
    file, name = Path(path), str(path)
    try:
        if file.is_dir():
            raise FileError(name, [Fault("", "a directory", what)])
        if not file.exists():
            raise FileError(name, [_missing(file, what)])
        if not file.is_file():
            raise FileError(name, [Fault("", "something that is not a file", what)])
        with file.open("rb") as stream:
            content = stream.read(largest + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        said = getattr(error, "strerror", None) or str(error)
        raise FileError(name, [Fault("", f"a file that cannot be read ({said})", what)]) from None
    if len(content) > largest:
        raise FileError(name, [Fault("", f"more than {largest} bytes", f"at most {largest} bytes")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        found = f"the byte 0x{content[error.start]:02x}, which is not UTF-8"
        raise FileError(name, [Fault("", found, "UTF-8 text", hint="save the file as UTF-8", line=line)]) from None
    if not text.strip():
        raise FileError(name, [Fault("", "an empty file", what)])
    return text


def _missing(file: Path, what: str) -> Fault:
    beside = []
    if file.parent.is_dir():
        beside = [item.name for _, item in zip(range(1000), file.parent.iterdir(), strict=False)]
    return Fault("", "no such file", what, nearest=near(file.name, sorted(beside)))


# JSON -------------------------------------------------------------------------------------------------------------


def read_json(path: str | Path, what: str = "a JSON file") -> dict[str, Any]:
    """The mapping of a JSON file: no key twice, no NaN, no number that is too long, not too deep."""
    name, text = str(path), file_text(path, what=what)
    try:
        tree = json.loads(
            text, object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_refused
        )
    except _Refused as error:
        raise FileError(name, [error.fault]) from None
    except json.JSONDecodeError as error:
        fault = Fault("", f"no valid JSON ({error.msg})", what, line=error.lineno)
        raise FileError(name, [fault]) from None
    except RecursionError:
        raise FileError(name, [Fault("", "lists or mappings nested too deeply", f"{DEEPEST} levels")]) from None
    if not isinstance(tree, dict):
        raise FileError(name, [Fault("", f"{shown(tree)} at the top", "a mapping { ... }")])
    bounded(tree, name)
    return tree


class _Refused(Exception):
    def __init__(self, found: str, allowed: str) -> None:
        self.fault = Fault("", found, allowed)
        super().__init__(found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused(f"the key {shown(key)} twice", "each key once")
        found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise _Refused(f"a number of {len(text)} digits", f"at most {LONGEST_NUMBER} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"the number {shown(text)}", "a number that a double can hold")
    return number


def _refused(text: str) -> float:
    raise _Refused(f"the number {text}", "numbers of JSON, which has no NaN or Infinity")


def bounded(tree: Any, name: str) -> None:
    """FileError where a tree is too deep or holds too many values."""
    count, level = 0, [tree]
    for _ in range(DEEPEST):
        level = [
            value
            for item in level
            if isinstance(item, (dict, list))
            for value in (item.values() if isinstance(item, dict) else item)
        ]
        count += len(level)
        if count > MOST_VALUES:
            raise FileError(name, [Fault("", f"more than {MOST_VALUES} values", "fewer values")])
        if not level:
            return
    raise FileError(name, [Fault("", "lists or mappings nested too deeply", f"{DEEPEST} levels")])


# Keys of a mapping ------------------------------------------------------------------------------------------------


@dataclass
class Keys:
    """The keys of one mapping of a file: what is read, what is wrong, and what nobody asked for.

    A key that is absent or null has its default.  Aliases are other names of the same key; the first that is given
    counts.
    """

    data: Mapping[str, Any]
    path: str = ""
    where: str = ""
    faults: list[Fault] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def get(self, key: str, default: Any, *aliases: str) -> Any:
        """The value as it is."""
        self.read.update((key, *aliases))
        for name in (key, *aliases):
            if self.data.get(name) is not None:
                return self.data[name]
        return default

    def has(self, key: str) -> bool:
        """Whether the key is given, and not null."""
        self.read.add(key)
        return self.data.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is given as null, where that differs from a key that is absent."""
        self.read.add(key)
        return key in self.data and self.data[key] is None

    def wrong(self, key: str, found: str, allowed: str, nearest: str = "", hint: str = "") -> None:
        """Notes a fault."""
        self.faults.append(Fault(self.where + key, found, allowed, nearest, hint))

    def whole(self, key: str, default: int | None, *aliases: str, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """A whole number; a default of None: it must be given."""
        value = self.get(key, default, *aliases)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            bounds = f"a whole number >= {least}" if most == LARGEST_SIZE else f"a whole number from {least} to {most}"
            found = "nothing" if value is None else shown(value)
            self.wrong(key, found, bounds if not isinstance(value, int) or value < least else f"at most {most}")
            return least if least else 1
        return value

    def number(self, key: str, default: float | None, *aliases: str, low: float = 0.0, above: bool = False) -> float:
        """A finite number >= `low` (or above it)."""
        value = self.get(key, default, *aliases)
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not good or value < low or (above and value == low):
            found = "nothing" if value is None else shown(value)
            self.wrong(key, found, f"a number {'>' if above else '>='} {low:g}")
            return low + 1.0
        return float(value)

    def flag(self, key: str, default: bool, *aliases: str) -> bool:
        """A truth value."""
        value = self.get(key, default, *aliases)
        if not isinstance(value, bool):
            self.wrong(key, shown(value), "true or false")
            return default
        return value

    def choice(self, key: str, default: str, names: Iterable[str]) -> str:
        """One of some texts."""
        value, known = self.get(key, default), tuple(names)
        if not isinstance(value, str) or value not in known:
            self.wrong(key, shown(value), ", ".join(known), near(str(value), known))
            return known[0]
        return value

    def must(self, key: str, allowed: Any, default: Any = None, why: str = "") -> None:
        """Only one value can be imported."""
        value = self.get(key, allowed if default is None else default)
        if value != allowed or isinstance(value, bool) != isinstance(allowed, bool):
            self.wrong(key, shown(value), shown(allowed), hint=why)

    def inner(self, key: str) -> Keys:
        """The keys of a mapping inside; its faults come here too."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            self.wrong(key, shown(value), "a mapping")
            value = {}
        return Keys(value, self.path, f"{self.where}{key}.", self.faults)

    def misspelled(self, known: Iterable[str] = ()) -> None:
        """A key that nobody reads but that is very like one that is read and absent is a fault."""
        absent = [key for key in self.read if key not in self.data]
        for key in self.data:
            if key not in self.read and key not in known:
                close = near(key, absent, LIKENESS)
                if close:
                    self.wrong(key, "a key that is not read", "the keys of this model type", close)

    def done(self) -> None:
        """Raises what is wrong."""
        if self.faults:
            raise FileError(self.path, self.faults)


def attempt(keys: Keys, make: Callable[[], Any]) -> Any:
    """What `make` makes; its ValueError becomes faults of the file."""
    keys.done()
    try:
        return make()
    except ValueError as error:
        raise FileError(keys.path, [Fault("", *_split(part)) for part in str(error).split("; ")]) from None


def _split(text: str) -> tuple[str, str]:
    """ "hidden: found 3, allowed: 4" as found and allowed."""
    found, _, allowed = text.partition(", allowed: ")
    return found.replace(": found ", " = ", 1), allowed
