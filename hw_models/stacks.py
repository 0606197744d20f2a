"""Software stacks by name, on a device: constants with their range and source.

data/stacks.csv states constants before calibration, data/calibrated.csv what `dse calibrate` fitted to measured runs.
Constants fitted elsewhere are a `Constants` value, passed in the place of the shipped ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from hw_models.stack import DEVICE_FIELDS, Stack
from hw_models.tables import Row, distinct, number, table, unknown

#: The stack whose rows fill what another leaves unsaid.
GENERIC = "generic"


@dataclass(frozen=True, eq=False)
class Constants:
    """Fitted constants: rows with scope, name and field as in data/calibrated.csv, and where they come from."""

    rows: tuple[Row, ...] = ()
    source: str = ""


def names() -> tuple[str, ...]:
    """Stacks of the tables; `generic` is the default, `ideal` costs nothing."""
    return distinct("stacks", "stack")


def devices() -> tuple[str, ...]:
    """Devices whose constants were fitted."""
    return tuple(dict.fromkeys(row["name"] for row in table("calibrated") if row["scope"] == "device"))


def shipped() -> Constants:
    """The fitted constants that the product ships."""
    return Constants(table("calibrated"), "data/calibrated.csv")


def constants(name: str = GENERIC, device: str = "", *, calibrated: bool | Constants = True) -> tuple[Row, ...]:
    """One row a constant of a stack on a device: field, value, low, high, unit, source, where, confidence.

    The row that counts is the first found of: fitted for the stack (its own fields) or the device
    (`DEVICE_FIELDS`), stated for the stack, fitted for `generic` stacks or devices, stated for `generic`.
    `ideal` is as defined on every device.
    calibrated   True: the fitted rows that ship; False: none; or the rows of a `Constants`
    """
    if name not in names():
        raise unknown("stack", name, names())
    rows = calibrated.rows if isinstance(calibrated, Constants) else table("calibrated") if calibrated else ()

    def stated(stack: str) -> dict[str, Row]:
        return {row["field"]: row for row in table("stacks") if row["stack"] == stack}

    def fitted(stack: str, chip: str) -> dict[str, Row]:
        wanted = {"stack": stack, "device": chip}
        return {
            row["field"]: {"stack": stack, **row} for row in rows
            if row["name"] == wanted.get(row["scope"]) and (row["field"] in DEVICE_FIELDS) == (row["scope"] == "device")
        }

    if name == "ideal":
        return tuple((stated(GENERIC) | stated(name)).values())
    own = {} if name == GENERIC else stated(name)
    return tuple((stated(GENERIC) | fitted(GENERIC, GENERIC) | own | fitted(name, device)).values())


@cache
def stack(name: str = GENERIC, device: str = "", *, calibrated: bool | Constants = True) -> Stack:
    """The stack of that name on a device (a chip's name; another, or none, has the generic constants of devices)."""
    rows = constants(name, device, calibrated=calibrated)
    values: dict[str, Any] = {}
    for row in rows:
        text = row["value"]
        values[row["field"]] = tuple(text.split("+")) if row["field"] == "algorithms" else number(text)
    source = "; ".join(dict.fromkeys(row["source"] for row in rows))
    return Stack(name=name, source=source, **values)


def on_device(known: Stack, device: str, *, calibrated: bool | Constants = True) -> Stack:
    """A named stack with the constants of a device, and its own as fitted; a field that was changed by hand stays.

    A stack of no table is returned as it is.
    """
    if known.name not in names():
        return known
    plain, there = stack(known.name), stack(known.name, device, calibrated=calibrated)
    changes = {
        item.name: getattr(there, item.name) for item in fields(Stack)
        if item.name not in ("name", "algorithms", "source") and getattr(known, item.name) == getattr(plain, item.name)
    }  # fmt: skip
    return replace(known, **changes)
