"""Quantities with units as text: exact reading into base SI, and short printing for people.

Case matters (b is a bit, B a byte; m is milli, M mega), GB and GiB differ, and nothing is guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from dse.base.errors import nearest, shorten

__all__ = ["UnitError", "example", "format_quantity", "parse", "parse_exact", "read_number"]

Dimension = tuple[tuple[str, int], ...]

#: A decimal number as people and YAML write it; underscores group digits, a leading zero is not octal but an error.
NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?|\.[0-9][0-9_]*|0[0-9]*\.[0-9_]*)(?:[eE][-+]?[0-9]+)?")
ATOM = re.compile(r"([A-Za-z%$µμ]+)(?:\^?(-?[0-9]+))?")
SUPERSCRIPTS = str.maketrans("²³⁻¹", "23-1")
#: Largest power of ten either side of 1 that is read, so that exact arithmetic stays small.
LARGEST_EXPONENT = 300
LONGEST_NUMBER = 100

DECIMAL_PREFIXES: Mapping[str, Fraction] = MappingProxyType(
    {"": Fraction(1)}
    | {p: Fraction(10) ** (3 * i) for i, p in enumerate(["k", "M", "G", "T", "P", "E"], start=1)}
    | {p: Fraction(1, 10 ** (3 * i)) for i, p in enumerate(["m", "u", "n", "p", "f"], start=1)}
    | {"c": Fraction(1, 100)}
)
BINARY_PREFIXES: Mapping[str, Fraction] = MappingProxyType(
    {f"{p}i": Fraction(1024) ** i for i, p in enumerate("KMGTPE", start=1)}
)
LARGE = ("k", "M", "G", "T", "P", "E")
SMALL = ("m", "u", "n", "p", "f")


@dataclass(frozen=True)
class Atom:
    """A unit without prefix: its value in base units, its dimension, and the prefixes it takes."""

    value: Fraction
    dimension: Dimension
    prefixes: tuple[str, ...] = ()


def _atoms() -> dict[str, Atom]:
    binary = LARGE + tuple(BINARY_PREFIXES)
    information, time, energy = (("B", 1),), (("s", 1),), (("J", 1),)
    power: Dimension = (("J", 1), ("s", -1))
    bit = Fraction(1, 8)
    table = {
        "B": Atom(Fraction(1), information, binary),
        "b": Atom(bit, information, binary),
        "bit": Atom(bit, information, binary),
        "byte": Atom(Fraction(1), information),
        "bps": Atom(bit, (("B", 1), ("s", -1)), LARGE),
        "Bps": Atom(Fraction(1), (("B", 1), ("s", -1)), LARGE),
        "s": Atom(Fraction(1), time, SMALL),
        "min": Atom(Fraction(60), time),
        "h": Atom(Fraction(3600), time),
        "day": Atom(Fraction(86400), time),
        "Hz": Atom(Fraction(1), (("s", -1),), LARGE),
        "FLOP": Atom(Fraction(1), (("FLOP", 1),), LARGE),
        "J": Atom(Fraction(1), energy, LARGE + SMALL),
        "Wh": Atom(Fraction(3600), energy, LARGE),
        "W": Atom(Fraction(1), power, LARGE + SMALL),
        "m": Atom(Fraction(1), (("m", 1),), ("k", "c") + SMALL),
        "g": Atom(Fraction(1, 1000), (("kg", 1),), ("k", *SMALL)),
        "t": Atom(Fraction(1000), (("kg", 1),), ("k", "M")),
        "USD": Atom(Fraction(1), (("USD", 1),), ("k", "M", "G")),
        "token": Atom(Fraction(1), (("token", 1),), LARGE),
        "sample": Atom(Fraction(1), (("sample", 1),), LARGE),
        "step": Atom(Fraction(1), (("step", 1),)),
        "%": Atom(Fraction(1, 100), ()),
    }
    for name in ("bit", "byte", "day", "token", "sample", "step"):
        table[f"{name}s"] = table[name]
    return table


#: Units without prefix, by symbol.
ATOMS: Mapping[str, Atom] = MappingProxyType(_atoms())


def _spellings() -> dict[str, tuple[Fraction, Dimension]]:
    prefixes = {**DECIMAL_PREFIXES, **BINARY_PREFIXES}
    spelled: dict[str, tuple[Fraction, Dimension]] = {}
    for name, atom in ATOMS.items():
        for prefix in ("",) + atom.prefixes:
            assert prefix + name not in spelled, f"two units are written {prefix + name}"
            spelled[prefix + name] = (atom.value * prefixes[prefix], atom.dimension)
    return spelled


#: Every spelling of a unit, with its value and dimension; `min` is a minute, there is no milli-inch.
SPELLINGS: Mapping[str, tuple[Fraction, Dimension]] = MappingProxyType(_spellings())

#: A typical quantity of each dimension, shown in messages.
EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "s": "1.5 us",
        "B": "80 GB",
        "B/s": "3.35 TB/s",
        "FLOP": "3.14e23 FLOP",
        "FLOP/s": "312 TFLOP/s",
        "Hz": "1.05 GHz",
        "W": "700 W",
        "J": "1.2 MJ",
        "J/B": "7 pJ/bit",
        "J/token": "2.5 J/token",
        "token/s": "1.2e6 tokens/s",
        "sample/s": "500 samples/s",
        "m2": "826 mm2",
        "m2/B": "0.3 um2/bit",
        "W/m2": "0.05 W/mm2",
        "USD": "1.2 MUSD",
        "USD/h": "2.5 USD/h",
        "USD/token": "0.5 USD/Mtoken",
        "kg": "30 kg",
        "kg/token": "0.5 kg/Mtoken",
        "USD/J": "0.08 USD/kWh",
        "FLOP/s/W": "1.4 TFLOP/s/W",
        "FLOP/s/m2": "0.38 TFLOP/s/mm2",
        "": "0.5",
    }
)


#: Amounts too small to read for one token.
PER_MILLION: Mapping[str, str] = MappingProxyType({"USD/token": "USD/Mtoken", "kg/token": "kg/Mtoken"})


class UnitError(ValueError):
    """A text that is not a quantity of the wanted dimension."""

    def __init__(self, found: str, allowed: str, nearest: str = "", hint: str = "") -> None:
        self.found, self.allowed, self.nearest, self.hint = found, allowed, nearest, hint
        tail = "".join(f"; {part}" for part in (f"did you mean {nearest}?" if nearest else "", hint) if part)
        super().__init__(f"found {found}, allowed: {allowed}{tail}")


def parse(text: str, unit: str) -> float:
    """The quantity `text` as the double nearest to its exact value in `unit`.

    parse("3.35 TB/s", "B/s") = 3.35e12.  The arithmetic is rational, so `826 mm2` is the double nearest to
    0.000826, which 826 * 1e-6 is not.
    """
    exact = parse_exact(text, unit)
    value = float(exact)
    if value == 0 and exact != 0:
        raise UnitError(f'"{shorten(text)}"', f"{_wanted(unit)}", hint="too small for a double")
    return value


def parse_exact(text: str, unit: str) -> Fraction:
    """The quantity `text` in `unit` as an exact fraction; an error says what is wrong with it."""
    stripped = text.strip()
    match = NUMBER.match(stripped)
    found = f'"{shorten(text)}"'
    if not match:
        raise UnitError(found, _wanted(unit))
    number, written = read_number(match.group()), stripped[match.end() :].strip()
    if number is None:
        raise UnitError(found, _wanted(unit), hint=f"numbers go up to 1e{LARGEST_EXPONENT}")
    target_value, target_dimension = _unit(unit)
    if not written and target_dimension:
        raise UnitError(f"{found} without a unit", _wanted(unit))
    if written.startswith((",", ";")):
        raise UnitError(found, _wanted(unit), hint="write a decimal point, not a comma")
    if written[:1].isdigit() and not stripped[match.end() :].startswith(" 1/"):
        raise UnitError(found, _wanted(unit), hint="write a number without spaces or leading zeros")
    try:
        value, dimension = _unit(written)
    except UnitError as error:
        raise UnitError(found, _wanted(unit), error.nearest, error.hint) from None
    if dimension != target_dimension:
        raise UnitError(f"{found}, which is in {_name(dimension)}", _wanted(unit))
    return number * value / target_value


def read_number(text: str) -> Fraction | None:
    """The exact value of a plain decimal number (1e9, 1.0e+9, 12e03, 1_000), or None if it is not one."""
    if len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
        return None
    number = Decimal(text.replace("_", ""))
    if number and abs(number.adjusted()) > LARGEST_EXPONENT:
        return None
    return Fraction(number) if number else Fraction(0)


def example(unit: str) -> str:
    """A quantity of the dimension of `unit`, as a user would write it."""
    return EXAMPLES.get(unit.replace("tokens", "token").replace("samples", "sample"), f"1 {unit}".strip())


def format_quantity(value: float | None, unit: str, *, digits: int = 4) -> str:
    """A short text for people, for example `3.35 TB/s`, `826 mm2`, `81.2 ms`; n/a where there is no value."""
    if value is None or math.isnan(value):
        return "n/a"
    number = float(value)
    if unit in PER_MILLION:
        return format_quantity(number * 1e6, PER_MILLION[unit], digits=digits)
    if math.isinf(number) or number == 0 or not unit:
        return f"{_digits(number, digits)} {unit}".strip()
    if unit == "B" and (binary := _binary(number)):
        return binary
    head, slash, tail = unit.partition("/")
    text = ""
    for scale, prefixed in _steps(unit, head):
        shown = _digits(number / scale, digits)
        text = f"{shown} {prefixed}{slash}{tail}"
        if abs(float(shown.replace(",", ""))) >= 1:
            break
    return text


def _steps(unit: str, head: str) -> list[tuple[float, str]]:
    """Scales of the leading unit with their spelling, largest first; the last is the smallest that is used."""
    if unit == "s":
        return [(172800 / 2, "days"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]
    if head == "m2":
        return [(1.0, "m2"), (1e-6, "mm2"), (1e-12, "um2")]
    atom = ATOMS.get(head)
    if atom is None or not atom.prefixes or head in ("USD", "token", "tokens", "sample", "samples"):
        return [(1.0, head)]
    scales = [(float(DECIMAL_PREFIXES[p]), p + head) for p in atom.prefixes if p in DECIMAL_PREFIXES] + [(1.0, head)]
    return sorted(scales, reverse=True)


def _binary(number: float) -> str:
    """Sizes that are whole binary multiples, as memories are, or "" for the others."""
    for prefix in reversed(list(BINARY_PREFIXES)):
        scale = float(BINARY_PREFIXES[prefix])
        if abs(number) >= scale:
            return f"{number / scale:.0f} {prefix}B" if number % scale == 0 else ""
    return ""


def _digits(number: float, digits: int) -> str:
    """`digits` significant digits; whole parts are never rounded to zeros, large ones get separators."""
    if math.isinf(number) or 0 < abs(number) < 1e-4 or abs(number) >= 1e15:
        return f"{number:.{digits}g}"
    whole = f"{number:,.0f}"
    if number == round(number) or len(whole.lstrip("-").replace(",", "")) >= digits:
        return whole if abs(number) >= 1e5 else whole.replace(",", "")
    return f"{number:.{digits}g}"


def _unit(text: str) -> tuple[Fraction, Dimension]:
    """Value in base units and dimension of a unit expression such as `B/s`, `m2 s/B`, `1/s`, `FLOP/s/W`."""
    value, powers = Fraction(1), dict[str, int]()
    for position, part in enumerate(text.translate(SUPERSCRIPTS).split("/")):
        sign = -1 if position else 1
        words = part.replace("*", " ").replace("·", " ").split()
        if not words and (position or "/" in text):
            raise UnitError(f'"{shorten(text)}"', "a unit", hint="something is missing beside the /")
        for word in words:
            if word == "1" and not position:
                continue
            atom_value, dimension, power = _word(word)
            value *= atom_value ** (sign * power)
            for name, exponent in dimension:
                powers[name] = powers.get(name, 0) + sign * power * exponent
    return value, tuple(sorted((name, power) for name, power in powers.items() if power))


def _word(word: str) -> tuple[Fraction, Dimension, int]:
    match = ATOM.fullmatch(word)
    power = int(match.group(2) or 1) if match else 1
    if not match or not 1 <= abs(power) <= 4:
        raise UnitError(f'"{shorten(word)}"', "a unit")
    symbol = match.group(1).replace("µ", "u").replace("μ", "u")
    if symbol in SPELLINGS:
        value, dimension = SPELLINGS[symbol]
        return value, dimension, power
    raise _unknown(symbol)


def _unknown(symbol: str) -> UnitError:
    """What a misspelt unit may have meant: case first, because case decides between bits and bytes."""
    found = f"the unit {symbol}"
    if symbol.lower().endswith(("flops", "flop")) and symbol.endswith("s"):
        return UnitError(found, "a unit", hint=f"{symbol} is ambiguous: write FLOP for a count, FLOP/s for a rate")
    same = [spelling for spelling in SPELLINGS if spelling.lower() == symbol.lower()]
    if symbol.startswith("K") and "k" + symbol[1:] in SPELLINGS:
        same = [spelling for spelling in ("k" + symbol[1:], "Ki" + symbol[1:]) if spelling in SPELLINGS]
    if len(same) > 1:
        meanings = _meanings(same)
        return UnitError(found, "a unit", hint=f"{symbol} is ambiguous: write {meanings}")
    close = same[0] if same else nearest(symbol, SPELLINGS) if len(symbol) > 2 else ""
    return UnitError(found, "a unit", close, f"{symbol} is not a unit")


def _meanings(spellings: list[str]) -> str:
    """Spellings with what tells them apart: bits or bytes, and how many."""
    shown = []
    counts = {SPELLINGS[spelling][0] * (8 if "b" in spelling else 1) for spelling in spellings}
    for spelling in spellings:
        value, dimension = SPELLINGS[spelling]
        kind = _name(dimension)
        if "B" in dict(dimension):
            kind = "bits" if "b" in spelling else "bytes"
            value = value * 8 if kind == "bits" else value
            kind += "/s" if "s" in dict(dimension) else ""
        shown.append(f"{spelling} ({kind})" if len(counts) == 1 else f"{spelling} ({float(value):g} {kind})")
    return " or ".join(shown)


def _name(dimension: Dimension) -> str:
    """A readable name of a dimension in base units."""
    for unit in EXAMPLES:
        if unit and _unit(unit)[1] == dimension:
            return unit
    above = " ".join(n if p == 1 else f"{n}{p}" for n, p in dimension if p > 0) or "1"
    below = "".join(f"/{n}" if p == -1 else f"/{n}{-p}" for n, p in dimension if p < 0)
    return above + below if dimension else "a pure number"


def _wanted(unit: str) -> str:
    if not unit:
        return f"a number, for example {example(unit)}"
    return f"a quantity in {unit}, for example {example(unit)}"
