"""An ONNX file as plain values: nodes, sizes of tensors, and the numbers of small ones; weights are never read.

The file is mapped, not loaded, so that a model of a gigabyte costs as little as its list of nodes.
Format: the protocol buffer of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (its field numbers are below).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from workloads.importers.onnx_model import FLOATING, TYPES, Declared, OnnxModel, OnnxNode, Stored

#: A protocol buffer holds no more; larger models keep their weights in other files.
LARGEST_FILE = 2**31
#: Fields of messages that are looked at: a file of more is refused (a large model has a few hundred thousand).
MOST_FIELDS = 1_000_000
#: Numbers of a tensor whose values are read: shapes, axes, scales; not weights.
FEW = 4096
#: Rows of a mask that is looked at, to see whether it hides later positions.
LARGEST_MASK = 4096
#: Elements of a tensor: more fit no machine, and are a broken file.
MOST_ELEMENTS = 10**13
#: Dimensions an axis may be given by, and axes a tensor may have.
MOST_AXES = 32


#: A field of a message: its number, and a whole number or the bytes it holds.
Field = tuple[int, "int | memoryview"]


class _Reader:
    """Fields of messages, counted so that a hostile file ends soon."""

    def __init__(self) -> None:
        self.seen = 0

    def fields(self, data: memoryview) -> Iterator[Field]:
        """The fields of one message, in order."""
        at, end = 0, len(data)
        while at < end:
            self.seen += 1
            if self.seen > MOST_FIELDS:
                raise ValueError(f"found more than {MOST_FIELDS} fields")
            key = data[at]
            if key < 0x80:  # nearly all are one byte: twice as fast
                at += 1
            else:
                key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if number == 0:
                raise ValueError("found field 0")
            if kind == 0:
                value, at = _varint(data, at)
                yield number, value
            elif kind in (1, 2, 5):
                size = 8 if kind == 1 else 4
                if kind == 2 and at < end and data[at] < 0x80:
                    size, at = data[at], at + 1
                elif kind == 2:
                    size, at = _varint(data, at)
                if at + size > end:
                    raise ValueError(f"it ends within a field: {size} bytes are announced, {end - at} are left")
                yield number, data[at : at + size]
                at += size
            else:
                raise ValueError(f"found wire type {kind}")

    def numbers(self, value: int | memoryview) -> list[int]:
        """Whole numbers of a repeated field, packed or one of them."""
        if isinstance(value, int):
            return [_signed(value)]
        found, at = [], 0
        while at < len(value):
            self.seen += 1
            if self.seen > MOST_FIELDS:
                raise ValueError(f"found more than {MOST_FIELDS} numbers")
            one, at = _varint(value, at)
            found.append(_signed(one))
        return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("found a number of more than 64 bits")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _text(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise ValueError("found a number where text should be")
    return bytes(value).decode("utf-8", "replace")


def _whole(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("found bytes where a number should be")
    return _signed(value)


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("found a number where a message should be")
    return value


def read(path: str | Path) -> OnnxModel:
    """The model in a file; ValueError where it is none.  Data in other files is not looked for."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file() or not 0 < size < LARGEST_FILE:
            raise ValueError(f"{path.name}: found {size} bytes, allowed: a file of 1 to {LARGEST_FILE - 1}")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            with memoryview(content) as data:
                return _guarded(data, path.name)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None


def parse(content: bytes, name: str = "model") -> OnnxModel:
    """The model in the bytes of a file."""
    return _guarded(memoryview(content), name)


def _guarded(data: memoryview, name: str) -> OnnxModel:
    try:
        return _model(data)
    except (ValueError, struct.error, OverflowError) as error:
        message = str(error)
    # outside the handler: a traceback would keep views of the mapped file open
    raise ValueError(f"{name}: not an ONNX model that can be read: {message}") from None


def _model(data: memoryview) -> OnnxModel:
    reader = _Reader()
    graph: memoryview | None = None
    opsets: dict[str, int] = {}
    producer = ""
    functions = 0
    for number, value in reader.fields(data):
        if number == 2:
            producer = _text(value)
        elif number == 7:
            graph = _message(value)
        elif number == 8:
            domain, version = "", 0
            for inner, item in reader.fields(_message(value)):
                if inner == 1:
                    domain = _text(item)
                elif inner == 2:
                    version = _whole(item)
            opsets["" if domain == "ai.onnx" else domain] = version
        elif number == 25:
            functions += 1
    if graph is None:
        raise ValueError("found no graph")
    return _graph(reader, graph, opsets, producer)


def _graph(reader: _Reader, data: memoryview, opsets: dict[str, int], producer: str) -> OnnxModel:
    nodes: list[OnnxNode] = []
    stored: dict[str, Stored] = {}
    inputs: list[Declared] = []
    outputs: list[str] = []
    for number, value in reader.fields(data):
        if number == 1:
            nodes.append(_node(reader, _message(value)))
        elif number == 5:
            tensor = _tensor(reader, _message(value))
            stored[tensor.name] = tensor
        elif number == 15:
            raise ValueError("found a sparse initializer, allowed: dense ones")
        elif number == 11:
            inputs.append(_declared(reader, _message(value)))
        elif number == 12:
            outputs.append(_declared(reader, _message(value)).name)
    if not nodes:
        raise ValueError("found no node")
    return OnnxModel(tuple(nodes), stored, tuple(inputs), tuple(outputs), opsets, producer)


def _node(reader: _Reader, data: memoryview) -> OnnxNode:
    inputs: list[str] = []
    outputs: list[str] = []
    name = op = domain = ""
    attributes: dict[str, Any] = {}
    for number, value in reader.fields(data):
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            op = _text(value)
        elif number == 5:
            key, found = _attribute(reader, _message(value))
            attributes[key] = found
        elif number == 7:
            domain = _text(value)
    domain = "" if domain == "ai.onnx" else domain
    return OnnxNode(op, name or (outputs[0] if outputs else op), tuple(inputs), tuple(outputs), attributes, domain)


#: Kinds of an attribute by the number of its type: as its values are stored.
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = range(1, 9)


def _attribute(reader: _Reader, data: memoryview) -> tuple[str, Any]:
    """Name and value; a graph within (the body of a loop) is not read, and stands as its op's own refusal."""
    name, kind = "", 0
    single: Any = None
    floats: list[float] = []
    ints: list[int] = []
    strings: list[str] = []
    for number, value in reader.fields(data):
        if number == 1:
            name = _text(value)
        elif number == 20:
            kind = _whole(value)
        elif number == 2:
            single = struct.unpack("<f", _message(value))[0]
        elif number == 3:
            single = _whole(value)
        elif number == 4:
            single = _text(value)
        elif number == 5:
            single = _tensor(reader, _message(value))
        elif number == 7:
            floats += _floats(_message(value))
        elif number == 8:
            ints += reader.numbers(value)
        elif number == 9:
            strings.append(_text(value))
    repeated = {FLOATS: floats, INTS: ints, STRINGS: strings}.get(kind)
    if repeated is None and single is None and kind == 0:
        repeated = floats or ints or strings  # files of the first version state no type
    if repeated is not None:
        values: tuple[Any, ...] = tuple(repeated)  # type: ignore[arg-type]
        return name, values
    if single is None:
        single = {FLOAT: 0.0, INT: 0, STRING: ""}.get(kind)
    return name, single


def _floats(value: memoryview) -> list[float]:
    if len(value) % 4 or len(value) > 4 * MOST_FIELDS:
        raise ValueError(f"found {len(value)} bytes of floats")
    return list(struct.unpack(f"<{len(value) // 4}f", value))


def _tensor(reader: _Reader, data: memoryview) -> Stored:
    """Sizes, and numbers where they are few; data in another file is not read."""
    dims: list[int] = []
    kind = 0
    name = ""
    raw: memoryview | None = None
    typed: list[memoryview | int] = []
    typed_field = 0
    for number, value in reader.fields(data):
        if number == 1:
            dims += reader.numbers(value)
        elif number == 2:
            kind = _whole(value)
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = _message(value)
        elif number in (4, 5, 7, 10, 11):
            typed_field = number
            if len(typed) <= FEW:
                typed.append(value)
    shape = checked(tuple(dims), name)
    known = None
    if prod(shape) <= FEW and TYPES.get(kind, ("", None))[1]:
        known = _numbers(reader, kind, raw, typed_field, typed)
        if known is not None:
            known = known.reshape(shape) if known.size == prod(shape) else None
    return Stored(name, shape, kind, known, _causal(shape, kind, raw))


def _causal(shape: tuple[int, ...], kind: int, raw: memoryview | None) -> bool:
    """Whether a square tensor lets each row see the columns up to its own and no later one."""
    code = TYPES.get(kind, ("", None))[1]
    if raw is None or code is None or len(shape) < 2 or prod(shape[:-2]) != 1 or not 1 < shape[-1] == shape[-2]:
        return False
    rows, dtype = shape[-1], np.dtype(code)
    if rows > LARGEST_MASK or len(raw) != rows * rows * dtype.itemsize or (kind not in FLOATING and kind != 9):
        return False
    square = np.frombuffer(raw, dtype).reshape(rows, rows)
    # the first row decides in nearly all cases, before anything is copied
    if not (square[0, 1:] == square[0, 1]).all() or square[0, 0] == square[0, 1]:
        return False
    seen = (square == square[0, 0]).copy()
    hidden = bool(square[0, 1]) if kind == 9 else not square[0, 0] and square[0, 1] < -1e4
    return bool((seen == np.tri(rows, dtype=bool)).all()) and (kind == 9 or hidden)


def _numbers(
    reader: _Reader, kind: int, raw: memoryview | None, typed_field: int, typed: list[memoryview | int]
) -> np.ndarray | None:
    """Numbers of a small tensor, None where the file holds none."""
    dtype = np.dtype(TYPES[kind][1])
    if raw is not None and len(raw):
        return np.frombuffer(bytes(raw), dtype) if len(raw) % dtype.itemsize == 0 else None
    if not typed:
        return np.zeros(0, dtype) if raw is None else None
    if typed_field in (4, 10):
        code = "<f4" if typed_field == 4 else "<f8"
        joined = b"".join(bytes(_message(part)) for part in typed)
        return np.frombuffer(joined, code).astype(dtype) if len(joined) % np.dtype(code).itemsize == 0 else None
    values = [number for part in typed for number in reader.numbers(part)]
    if kind == 10:  # half precision is stored as the whole number of its bits
        return np.array(values, np.uint16).view("<f2")
    return np.array(values).astype(dtype)


def checked(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """A shape that a tensor can have: no negative size, no more elements than any machine holds."""
    if len(shape) > MOST_AXES:
        raise ValueError(f"tensor {name!r}: found {len(shape)} axes, allowed: at most {MOST_AXES}")
    if any(size < 0 for size in shape) or prod(shape) > MOST_ELEMENTS:
        raise ValueError(f"tensor {name!r}: found sizes {shape}, allowed: >= 0 and {MOST_ELEMENTS:.0e} elements in all")
    return shape


def _declared(reader: _Reader, data: memoryview) -> Declared:
    """Name, type and shape of an input or output."""
    name, kind = "", 0
    shape: tuple[int | str, ...] | None = None
    for number, value in reader.fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for inner, item in reader.fields(_message(value)):
                if inner == 1:
                    kind, shape = _tensor_type(reader, _message(item))
    return Declared(name, kind, shape)


def _tensor_type(reader: _Reader, data: memoryview) -> tuple[int, tuple[int | str, ...] | None]:
    kind = 0
    shape: tuple[int | str, ...] | None = None
    for number, value in reader.fields(data):
        if number == 1:
            kind = _whole(value)
        elif number == 2:
            sizes: list[int | str] = []
            for inner, item in reader.fields(_message(value)):
                if inner == 1:
                    size: int | str = ""
                    for deep, part in reader.fields(_message(item)):
                        size = _whole(part) if deep == 1 else _text(part) if deep == 2 else size
                    sizes.append(size)
            if len(sizes) > MOST_AXES:
                raise ValueError(f"an input has {len(sizes)} axes, allowed: at most {MOST_AXES}")
            shape = tuple(sizes)
    return kind, shape
