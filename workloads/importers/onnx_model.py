"""What an ONNX file holds: nodes, stored tensors and declared shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

__all__ = ["FLOATING", "TYPES", "Declared", "OnnxModel", "OnnxNode", "Stored"]


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor in the file.

    known    its numbers where they are few and there;  causal   a mask that hides later positions
    trained  may be trained, if it holds real numbers
    """

    name: str
    shape: tuple[int, ...]
    type: int
    known: np.ndarray | None = None
    causal: bool = False
    trained: bool = True

    @property
    def floating(self) -> bool:
        """Real numbers: may be trained."""
        return self.type in FLOATING

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class OnnxNode:
    """One operator of the file. A missing optional input is an empty name."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True)
class Declared:
    """An input of the model: whole numbers, or names of dimensions that are left open ("" without a name)."""

    name: str
    type: int
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """What is in a file."""

    nodes: tuple[OnnxNode, ...]
    stored: dict[str, Stored]
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]
    producer: str = ""

    @property
    def opset(self) -> int:
        """Version of the standard operators."""
        return self.opsets.get("", 0)


#: ONNX data types by number: (name, bytes an element, numpy type of its raw data or None).
TYPES: dict[int, tuple[str, str | None]] = {
    1: ("float", "<f4"), 2: ("uint8", "<u1"), 3: ("int8", "<i1"), 4: ("uint16", "<u2"), 5: ("int16", "<i2"),
    6: ("int32", "<i4"), 7: ("int64", "<i8"), 8: ("string", None), 9: ("bool", "?"), 10: ("float16", "<f2"),
    11: ("double", "<f8"), 12: ("uint32", "<u4"), 13: ("uint64", "<u8"), 14: ("complex64", None),
    15: ("complex128", None), 16: ("bfloat16", None), 17: ("float8e4m3fn", None), 18: ("float8e4m3fnuz", None),
    19: ("float8e5m2", None), 20: ("float8e5m2fnuz", None), 21: ("uint4", None), 22: ("int4", None),
    23: ("float4e2m1", None),
}  # fmt: skip
FLOATING = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23})
