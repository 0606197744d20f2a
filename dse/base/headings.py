"""Units and headings of tables: the unit of a column follows the quantity and never its value."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["heading", "human_unit"]

#: Base unit -> size and name of the unit that tables show.
HUMAN: Mapping[str, tuple[float, str]] = {
    "m2": (1e-6, "mm2"),
    "B": (1e9, "GB"),
    "B/s": (1e9, "GB/s"),
    "Hz": (1e9, "GHz"),
    "s": (1e-3, "ms"),
    "FLOP/s": (1e12, "TFLOP/s"),
    "J": (1e3, "kJ"),
    "token/s/m2": (1e6, "token/s/mm2"),
    "USD/token": (1e-6, "USD/Mtoken"),
    "kg/token": (1e-6, "kg/Mtoken"),
}
#: Quantities that people state in a unit of their own.
OWN: Mapping[str, tuple[float, str]] = {
    "latency": (1e-6, "us"),
    "local_sram": (2.0**10, "KiB"),
    "shared_sram": (2.0**20, "MiB"),
    "energy_per_token": (1.0, "J"),
    "mfu": (1e-2, "%"),
    "hfu": (1e-2, "%"),
}


def human_unit(name: str, unit: str) -> tuple[float, str]:
    """Size in base units and name of the unit in which tables show a quantity; it never depends on the value."""
    return OWN.get(name) or HUMAN.get(unit) or (1.0, unit)


def heading(label: str, unit: str) -> str:
    """A column's heading: words and the unit in brackets."""
    words = label.replace("_", " ")
    return f"{words} [{unit}]" if unit else words
