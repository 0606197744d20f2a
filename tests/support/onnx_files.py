"""Writes small ONNX files for tests, byte by byte: it shares no code with the reader."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

REAL, WHOLE = 1, 7


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name: str, shape: tuple[int, ...], values: Any = None, kind: int = REAL, location: str = "gone") -> bytes:
    """A tensor with its numbers, or one whose numbers lie in another file."""
    out = b"".join(number(1, size) for size in shape) + number(2, kind) + block(8, name)
    if values is not None:
        return out + block(9, np.asarray(values, {REAL: "<f4", WHOLE: "<i8", 9: "?"}[kind]).tobytes())
    return out + block(13, block(1, "location") + block(2, location)) + number(14, 1)


def attribute(name: str, value: Any) -> bytes:
    out = block(1, name)
    if isinstance(value, bytes):
        return out + block(5, value) + number(20, 4)
    if isinstance(value, str):
        return out + block(4, value) + number(20, 3)
    if isinstance(value, float):
        return out + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return out + number(3, value) + number(20, 2)
    return out + b"".join(number(8, one) for one in value) + number(20, 7)


def node(op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> bytes:
    """Names are separated by blanks; "-" is an input that is left out."""
    out = b"".join(block(1, "" if name == "-" else name) for name in inputs.split())
    out += b"".join(block(2, name) for name in outputs.split())
    out += block(3, f"node of {outputs}") + block(4, op) + (block(7, domain) if domain else b"")
    return out + b"".join(block(5, attribute(name, value)) for name, value in attributes.items())


def value(name: str, shape: tuple[int | str, ...], kind: int = REAL) -> bytes:
    sizes = b"".join(block(1, block(2, size) if isinstance(size, str) else number(1, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, kind) + block(2, sizes)))


def model(
    nodes: list[bytes], tensors: list[bytes], inputs: list[bytes], outputs: tuple[str, ...] = ("y",), opset: int = 18
) -> bytes:
    """A file."""
    graph = b"".join(block(1, one) for one in nodes) + block(2, "graph")
    graph += b"".join(block(5, one) for one in tensors) + b"".join(block(11, one) for one in inputs)
    graph += b"".join(block(12, block(1, one)) for one in outputs)
    return number(1, 8) + block(2, "test") + block(8, number(2, opset)) + block(7, graph)
