"""Quantities as text: exact, case-sensitive, never guessed."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from dse.base.units import UnitError, example, format_quantity, parse, parse_exact, read_number


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400Gb/s", "B/s", 50e9),
        ("400 Gbps", "B/s", 50e9),
        ("50GB/s", "B/s", 50e9),
        ("50 GB/s", "B/s", 50e9),
        ("3600Gbps", "B/s", 450e9),
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2**30),
        ("1 Gbit", "B", 125e6),
        ("1 Kib", "B", 128),
        ("826 mm2", "m2", 0.000826),
        ("826 mm^2", "m2", 0.000826),
        ("826 mm²", "m2", 0.000826),
        ("300 um2", "m2", 3e-10),
        ("1.05 GHz", "Hz", 1.05e9),
        ("1.05e9 1/s", "Hz", 1.05e9),
        ("1.5 µs", "s", 1.5e-6),
        ("250 ns", "s", 2.5e-7),
        ("2 h", "s", 7200),
        ("1.2 kW", "W", 1200),
        ("3 MW", "W", 3e6),
        ("3 mW", "W", 3e-3),
        ("1.2 kJ/s", "W", 1200),
        ("7 pJ/bit", "J/B", 56e-12),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("0.09 USD/kWh", "USD/J", 0.09 / 3.6e6),
        ("2.5 USD/h", "USD/h", 2.5),
        ("60 USD/day", "USD/h", 2.5),
        ("3 J/token", "J/token", 3),
        ("1.2e6 tokens/s", "token/s", 1.2e6),
        ("0.05 W/mm2", "W/m2", 5e4),
        ("4 m2 s/B", "m2 s/B", 4),
        ("40 %", "", 0.4),
        ("1_000", "", 1000),
        ("-3 ns", "s", -3e-9),
    ],
)
def test_a_quantity_is_the_double_nearest_to_its_exact_value(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == value


def test_square_millimetres_are_not_multiplied_in_floating_point() -> None:
    assert 826 * 1e-6 != 0.000826
    assert parse("826 mm2", "m2") == 0.000826


def test_parsing_rounds_once_for_any_number_and_prefix() -> None:
    source = random.Random(7)
    powers = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
    for _ in range(500):
        digits, places = source.randrange(1, 10**17), source.randrange(0, 17)
        prefix = source.choice(list(powers))
        text = f"{digits}e-{places} {prefix}B/s"
        # Python's own decimal-to-double conversion is correctly rounded: an oracle that shares no code.
        assert parse(text, "B/s") == float(f"{digits}e{powers[prefix] - places}")


def test_what_parse_reads_is_what_repr_wrote() -> None:
    source = random.Random(11)
    for _ in range(300):
        value = source.uniform(1e-9, 1e15)
        assert parse(f"{value!r} W", "W") == value


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("400gb/s", "B/s", ["400gb/s", "ambiguous", "Gb (bits)", "GB (bytes)", "3.35 TB/s"]),
        ("5 KB", "B", ["ambiguous", "kB (1000 bytes)", "KiB (1024 bytes)"]),
        ("5 mb", "B", ["ambiguous", "Mb (bits)", "MB (bytes)"]),
        ("1 mw", "W", ["ambiguous", "mW", "MW"]),
        ("300 TFLOPs", "FLOP/s", ["ambiguous", "FLOP/s for a rate"]),
        ("1 ghz", "Hz", ["did you mean GHz"]),
        ("1 GHz", "B/s", ["in Hz", "in B/s"]),
        ("1 GB", "B/s", ["in B,", "in B/s"]),
        ("1 m", "m2", ["in m,", "826 mm2"]),
        ("5 W", "", ["in W", "a number"]),
        ("826", "m2", ["without a unit", "826 mm2"]),
        ("0", "s", ["without a unit"]),
        ("3,35 TB/s", "B/s", ["decimal point"]),
        ("1 000 s", "s", ["without spaces"]),
        ("017 s", "s", ["leading zeros"]),
        ("1e999 s", "s", ["1e300"]),
        ("1 GB/", "B/s", ["missing beside the /"]),
        ("3 parsec", "m2", ["not a unit"]),
        ("3 mm999999999", "m2", ["826 mm2"]),
        ("", "s", ["1.5 us"]),
        ("nan s", "s", ["nan s"]),
        ("inf s", "s", ["inf s"]),
        ("0x10 s", "s", ["0x10 s"]),
        ("fast", "B/s", ["fast", "3.35 TB/s"]),
        ("9" * 5000 + " s", "s", ["..."]),
    ],
)
def test_what_is_not_a_quantity_is_an_error_that_says_why(text: str, unit: str, words: list[str]) -> None:
    with pytest.raises(UnitError) as error:
        parse(text, unit)
    for word in words:
        assert word in str(error.value)


def test_a_bit_is_an_eighth_of_a_byte_and_a_gibibyte_is_more_than_a_gigabyte() -> None:
    assert 8 * parse_exact("1 Gb", "B") == parse_exact("1 GB", "B")
    assert parse_exact("1 GiB", "B") / parse_exact("1 GB", "B") == Fraction(2**30, 10**9)


@pytest.mark.parametrize("unit", ["s", "B", "B/s", "Hz", "W", "J", "J/B", "m2", "W/m2", "USD/h", "FLOP/s", "m2/B", ""])
def test_every_example_is_a_quantity_of_its_own_unit(unit: str) -> None:
    assert parse(example(unit), unit) > 0


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e9", 10**9), ("1.0e9", 10**9), ("1e+9", 10**9), ("1.5e3", 1500), ("12e03", 12000), ("1.0e+9", 10**9)]
    + [("1e-05", Fraction(1, 100000)), ("1_000", 1000), (".5", Fraction(1, 2)), ("5.", 5), ("0", 0), ("-2", -2)],
)
def test_numbers_are_read_in_every_common_notation(text: str, value: Fraction) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize("text", ["", "017", "1:30", "0x1F", "1,5", "nan", ".inf", "1e", "1 0", "1e400", "--1", "１"])
def test_what_is_not_a_plain_decimal_number_is_none(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (0.000826, "m2", "826 mm2"),
        (3e-10, "m2", "300 um2"),
        (0.0812, "s", "81.2 ms"),
        (7200.0, "s", "2 h"),
        (864000.0, "s", "10 days"),
        (1.05e9, "Hz", "1.05 GHz"),
        (700, "W", "700 W"),
        (999.96e9, "B/s", "1 TB/s"),
        (80e9, "B", "80 GB"),
        (128 * 2**20, "B", "128 MiB"),
        (80 * 2**30, "B", "80 GiB"),
        (5e-12, "J/B", "5 pJ/B"),
        (1234567.0, "token/s", "1,234,567 token/s"),
        (1500000.0, "USD", "1,500,000 USD"),
        (2.5, "USD/h", "2.5 USD/h"),
        (0.4567, "", "0.4567"),
        (1024, "", "1024"),
        (0.0, "W", "0 W"),
        (-5.5e9, "B", "-5.5 GB"),
        (float("nan"), "W", "n/a"),
        (None, "J", "n/a"),
        (float("inf"), "s", "inf s"),
    ],
)
def test_quantities_are_printed_short_with_a_fitting_prefix(value: float | None, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


def test_a_printed_quantity_reads_back_within_its_digits() -> None:
    source = random.Random(5)
    for unit in ("B/s", "s", "W", "J", "Hz", "m2", "FLOP/s"):
        for _ in range(50):
            value = 10 ** source.uniform(-5, 13)
            back = parse(format_quantity(value, unit).replace(",", "").replace("days", "day"), unit)
            assert abs(back / value - 1) <= 6e-4
