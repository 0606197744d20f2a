"""Writes a file so that a reader sees the old content or the new content, never a part of it.

It does not lock and does not order several files; the archive of a search builds that on top.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

__all__ = ["file_name", "write_atomic"]


#: What a name of a file may not hold on any system: separators, control and reserved characters, a leading dot.
_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]|^[.\s]+|[.\s]+$')
#: Letters of a name at most; with an ending it stays below the 255 bytes that file systems take.
_LONGEST = 60


def file_name(name: str) -> str:
    """A name as one part of a path: as it is where that is safe, else cleaned, with a digest that keeps it distinct.

    `../../escape` becomes `-..-escape-1f6b2c9d`: no separator is left, and it never starts with a dot."""
    safe = _UNSAFE.sub("-", name)[:_LONGEST]
    if safe == name and name:
        return name
    return f"{safe}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def write_atomic(path: str | os.PathLike[str], data: bytes | str | Iterable[bytes]) -> None:
    """Replace `path` by `data`: temporary file beside it, flushed to the disk, then renamed.

    Text is written as UTF-8; pieces are written as they come, so a file need not fit into memory.  The folder must
    exist.  When the process is killed, or a piece cannot be made, the old file stays."""
    target = Path(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    pieces = (content,) if isinstance(content, bytes) else content
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            for piece in pieces:
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


def _flush_folder(folder: Path) -> None:
    # The rename itself is only durable once the folder is flushed; not every file system allows it.
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
