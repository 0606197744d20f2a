"""Writes a file so that a reader sees the old content or the new content, never a part of it.

It does not lock and does not order several files; the archive of a search builds that on top.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["write_atomic"]


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
