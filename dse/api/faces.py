"""Gives a data class its face: the same fields, and methods that print and draw.

What is computed lies in `dse.insight`, which neither prints nor draws; texts and pictures lie in `dse.present`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["face"]

Face = TypeVar("Face")


def face(kind: type[Face], data: Any) -> Face:
    """The fields of `data` as an instance of `kind`, a subclass of its class without fields of its own."""
    return kind(**{item.name: getattr(data, item.name) for item in fields(data)})
