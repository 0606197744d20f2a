"""Whole numbers and shapes of operators, checked with one sentence a fault."""

from __future__ import annotations

from typing import Any

from workloads.graph import Shape

#: One number for every axis, or one an axis.
Sizes = int | tuple[int, ...]


def whole(value: Any) -> bool:
    """A whole number, not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def need(problems: list[str]) -> None:
    """One ValueError with every fault."""
    if problems:
        raise ValueError("; ".join(problems))


def at_least(least: int, **values: Any) -> list[str]:
    """Faults of numbers (or tuples of them) that must be whole and at least `least`."""
    found = []
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or any(not whole(number) or number < least for number in numbers):
            found.append(f"{name}: found {value!r}, allowed: a whole number >= {least}, or one an axis")
    return found


def spread(value: Sizes, axes: int, name: str) -> tuple[int, ...]:
    """One number an axis."""
    if isinstance(value, tuple):
        if len(value) != axes:
            raise ValueError(f"{name}: found {len(value)} numbers, allowed: 1 or {axes} (one an axis)")
        return value
    return (value,) * axes


def one_shape(shapes: tuple[Shape, ...]) -> Shape:
    """The shape of the only input."""
    if len(shapes) != 1:
        raise ValueError(f"inputs: found {len(shapes)}, allowed: 1")
    return shapes[0]


def axis_of(axis: int, shape: Shape) -> int:
    """An axis counted from the front, given from either end."""
    if not whole(axis) or not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis: found {axis!r} for {shape}, allowed: {-len(shape)}..{len(shape) - 1}")
    return axis % len(shape)
