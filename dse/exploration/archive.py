"""The record of a search on the disk: what each hardware row answered, chunk by chunk.

A folder holds `archive/fingerprint.json` (what was searched), `archive/chunk-000001.npz`, ... and a lock.  A chunk
is complete or absent; it carries its own checksum and the checksum of the chunk before it, so a torn, altered or
missing chunk ends the record there and the rest is searched again.  Everything else is recomputed, not stored.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.base.files import write_atomic
from dse.exploration.variables import Floats, Integers, Outcome

__all__ = [
    "Archive",
    "Chunk",
    "DifferentSearch",
    "FolderInUse",
    "differences",
    "pack",
    "plain",
    "refuse_difference",
    "take",
]


class DifferentSearch(ValueError):
    """The record belongs to another search; the message shows path, old and new of every difference."""


class FolderInUse(ValueError):
    """Another process is writing this folder."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some hardware rows and what they answered, as columns.

    header          JSON-able: batch, asked, complete, record, totals (rows, evaluated, feasible, failures), faults
    rows            (n, V) choice numbers
    evaluated       (n,) plans priced;  feasible (n,) plans that violate nothing
    failures        (n, F) plans by violated constraint, names in header["failure_names"]
    offsets         (n + 1,) row i owns front[offsets[i]:offsets[i + 1]]
    front           (K, J) objectives, natural sign;  plans (K, P) plan fields
    miss            (n, C) violations of the nearest miss, names in header["miss_names"], NaN where not given
    miss_plan       (n, P), -1 where absent;  miss_objectives (n, J), NaN where absent;  missed (n,) which are present
    """

    header: dict[str, Any]
    rows: Integers
    evaluated: Integers
    feasible: Integers
    failures: Integers
    offsets: Integers
    front: Floats
    plans: Integers
    miss: Floats
    miss_plan: Integers
    miss_objectives: Floats
    missed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    def outcome(self, i: int) -> Outcome:
        """The answer of row i."""
        part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        names, violations = self.header["miss_names"], self.miss[i]
        return Outcome(
            evaluated=int(self.evaluated[i]),
            feasible=int(self.feasible[i]),
            failures={n: int(c) for n, c in zip(self.header["failure_names"], self.failures[i], strict=True) if c},
            front=self.front[part],
            plans=self.plans[part],
            miss={n: float(v) for n, v in zip(names, violations, strict=True) if not np.isnan(v)},
            miss_plan=self.miss_plan[i] if self.missed[i] else None,
            miss_objectives=self.miss_objectives[i] if self.missed[i] else None,
        )

    def outcomes(self) -> list[Outcome]:
        """The answers of all rows."""
        return [self.outcome(i) for i in range(len(self))]


_ARRAYS = tuple(name for name in Chunk.__dataclass_fields__ if name != "header")


def pack(
    header: Mapping[str, Any], rows: Integers, outcomes: Sequence[Outcome], *, constraints: Sequence[str],
    objectives: int, plan_fields: int,
) -> Chunk:  # fmt: skip
    """Rows (n, V) and their answers as one chunk with its totals."""
    failure_names = _names(constraints, (o.failures for o in outcomes))
    miss_names = _names(constraints, (o.miss for o in outcomes))
    n = len(outcomes)
    absent_plan, absent_value = np.full(plan_fields, -1), np.full(objectives, np.nan)
    missed = np.array([o.miss_plan is not None and o.miss_objectives is not None for o in outcomes], dtype=bool)
    evaluated = np.array([o.evaluated for o in outcomes], dtype=np.int64)
    feasible = np.array([o.feasible for o in outcomes], dtype=np.int64)
    failures = np.array([[o.failures.get(k, 0) for k in failure_names] for o in outcomes], dtype=np.int64)
    failures = failures.reshape(n, len(failure_names))
    totals = {
        "rows": n,
        "evaluated": int(evaluated.sum()),
        "feasible": int(feasible.sum()),
        "failures": {k: int(c) for k, c in zip(failure_names, failures.sum(axis=0), strict=True)},
    }
    return Chunk(
        header={**header, "failure_names": failure_names, "miss_names": miss_names, "totals": totals},
        rows=np.asarray(rows, dtype=np.int64),
        evaluated=evaluated,
        feasible=feasible,
        failures=failures,
        offsets=np.cumsum([0] + [len(o.front) for o in outcomes], dtype=np.int64),
        front=_stack([np.reshape(o.front, (-1, objectives)) for o in outcomes], objectives, np.float64),
        plans=_stack([np.reshape(o.plans, (-1, plan_fields)) for o in outcomes], plan_fields, np.int64),
        miss=np.array([[o.miss.get(k, np.nan) for k in miss_names] for o in outcomes]).reshape(n, len(miss_names)),
        miss_plan=_stack([(absent_plan if not m else o.miss_plan) for o, m in zip(outcomes, missed, strict=True)],
                         plan_fields, np.int64),
        miss_objectives=_stack(
            [(absent_value if not m else o.miss_objectives) for o, m in zip(outcomes, missed, strict=True)],
            objectives, np.float64),
        missed=missed,
    )  # fmt: skip


def take(chunk: Chunk, keep: NDArray[np.bool_], which: Sequence[int]) -> Chunk:
    """A thin copy: only the front points in mask `keep` (K,) and only the rows `which`; the totals stay those of
    all rows.  An exhaustive sweep stores this, so its record stays small."""
    owners = np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))
    rows = np.asarray(which, dtype=np.int64)
    chosen = keep & np.isin(owners, rows)
    counts = np.bincount(owners[chosen], minlength=len(chunk))[rows] if len(rows) else np.zeros(0, dtype=np.int64)
    columns = {name: getattr(chunk, name)[rows] for name in _ARRAYS if name not in ("offsets", "front", "plans")}
    return replace(
        chunk,
        header={**chunk.header, "thin": True},
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        front=chunk.front[chosen],
        plans=chunk.plans[chosen],
        **columns,
    )


class Archive:
    """The chunks of one search, in memory and (with a folder) on the disk.

    `open` locks the folder for writing, refuses another search, and drops what is torn; `read` only looks."""

    def __init__(self, folder: Path | None, fingerprint: Mapping[str, Any]) -> None:
        self.folder, self.fingerprint = folder, plain(fingerprint)
        self.chunks: list[Chunk] = []
        self.notes: list[str] = []
        self._last = ""
        self._lock = -1

    @classmethod
    def open(cls, out: str | os.PathLike[str] | None, fingerprint: Mapping[str, Any]) -> Archive:
        """The archive in folder `out` (None: in memory only), ready for `append`."""
        if out is None:
            return cls(None, fingerprint)
        archive = cls(Path(out) / "archive", fingerprint)
        archive._lock = _lock_folder(archive.folder_path)
        try:
            for left in archive.folder_path.glob(".*.tmp"):
                left.unlink()
            path = archive.folder_path / "fingerprint.json"
            if path.exists():
                refuse_difference(_read_fingerprint(path), archive.fingerprint, where=str(out))
            else:
                _refuse_orphans(archive.folder_path)
                write_atomic(path, json.dumps(archive.fingerprint, indent=1) + "\n")
            archive._load(drop=True)
        except BaseException:
            archive.close()
            raise
        return archive

    @classmethod
    def read(cls, out: str | os.PathLike[str]) -> Archive:
        """The archive in folder `out` as far as it is sound, without locking or changing it."""
        folder = Path(out) / "archive"
        if not (folder / "fingerprint.json").exists():
            raise ValueError(f"{out}: found no search record, allowed: the output folder of a search")
        archive = cls(folder, _read_fingerprint(folder / "fingerprint.json"))
        archive._load(drop=False)
        return archive

    @property
    def folder_path(self) -> Path:
        assert self.folder is not None
        return self.folder

    def append(self, chunk: Chunk) -> None:
        """Commit one chunk: when this returns it survives a kill."""
        number = len(self.chunks) + 1
        chunk = replace(chunk, header=plain({**chunk.header, "chunk": number, "previous": self._last}))
        if self.folder is not None:
            checksum, data = _to_bytes(chunk)
            write_atomic(self.folder / _name(number), data)
            self._last = checksum
        self.chunks.append(chunk)

    def close(self) -> None:
        """Give the folder free; the system does it for a killed process."""
        if self._lock in _HELD:
            _HELD.discard(self._lock)
            _unlock(self._lock)
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, *, drop: bool) -> None:
        paths = sorted(self.folder_path.glob("chunk-*.npz"))
        sound = 0
        for number, path in enumerate(paths, start=1):
            try:
                if path.name != _name(number):
                    raise ValueError(f"{_name(number)} is missing")
                checksum, chunk = _from_bytes(path.read_bytes())
                if chunk.header["previous"] != self._last or chunk.header["chunk"] != number:
                    raise ValueError("it does not follow the chunk before it")
            except (ValueError, OSError) as fault:
                dropped = len(paths) - sound
                self.notes.append(f"{path.name}: {fault}; dropped {dropped} chunk(s), their rows are searched again")
                break
            self._last, sound = checksum, number
            self.chunks.append(chunk)
        if drop:
            for path in paths[sound:]:
                path.rename(path.with_suffix(".dropped"))


def differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Every place where two JSON-able values differ, as (path, old, new); lists of plain values differ as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in dict.fromkeys([*old, *new]):
            here = f"{path}.{key}" if path else str(key)
            found += differences(old.get(key, "(absent)"), new.get(key, "(absent)"), here)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if any(isinstance(v, (dict, list)) for v in old + new):
            return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    return [] if json.dumps(old) == json.dumps(new) else [(path, old, new)]


def plain(value: Any) -> Any:
    """`value` as JSON gives it back: lists, dicts with text keys, plain numbers."""
    return json.loads(json.dumps(value, default=_plain_item))


def _plain_item(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def refuse_difference(old: Any, new: Any, *, where: str) -> None:
    """DifferentSearch when two fingerprints differ, with every difference."""
    found = differences(old, new)
    if found:
        lines = [f"  {path}: was {json.dumps(a)}, now {json.dumps(b)}" for path, a, b in found]
        raise DifferentSearch(
            f"{where}: found the record of another search, allowed: the same search, or another folder or study\n"
            + "\n".join(lines)
        )


def _refuse_orphans(folder: Path) -> None:
    if any(folder.glob("chunk-*.npz")):
        raise ValueError(f"{folder}: found chunks without fingerprint.json, allowed: a new or a complete folder")


def _read_fingerprint(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ValueError(f"{path}: found no valid JSON ({fault}), allowed: the file as it was written") from None


def _unlock(descriptor: int) -> None:
    """Free the lock for all copies of the descriptor, also of a process that is just being forked."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(descriptor, fcntl.LOCK_UN)


#: Descriptors of the locks that this process holds.
_HELD: set[int] = set()


def _let_go() -> None:
    """A forked process is no search: a copy of the lock would hold the folder after the search was killed."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _lock_folder(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as fault:
        raise ValueError(f"{folder.parent}: cannot be written ({fault.strerror}), allowed: a writable folder") from None
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: one process per folder is up to the user
        _HELD.add(descriptor)
        return descriptor
    try:
        # The system frees the lock with the process, so a killed search blocks nobody.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(descriptor, 64).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise FolderInUse(f"{folder.parent}: found in use by process {owner}, allowed: one search per folder") from None
    _HELD.add(descriptor)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _to_bytes(chunk: Chunk) -> tuple[str, bytes]:
    arrays = {name: np.ascontiguousarray(getattr(chunk, name)) for name in _ARRAYS}
    header = json.dumps(chunk.header).encode("utf-8")
    checksum = _checksum(header, arrays)
    stream = io.BytesIO()
    members: dict[str, Any] = {"header": np.frombuffer(header, np.uint8)}
    members["checksum"] = np.frombuffer(checksum.encode(), np.uint8)
    np.savez(stream, **(members | arrays))
    return checksum, stream.getvalue()


def _from_bytes(data: bytes) -> tuple[str, Chunk]:
    """ValueError when the bytes are not those that were written."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as store:
            header, stored = store["header"].tobytes(), store["checksum"].tobytes().decode("ascii")
            arrays = {name: store[name] for name in _ARRAYS}
    except Exception as fault:  # zip, numpy and zlib each raise their own kinds for torn bytes
        raise ValueError(f"cannot be read ({type(fault).__name__})") from None
    if _checksum(header, arrays) != stored:
        raise ValueError("the checksum differs")
    return stored, Chunk(header=json.loads(header), **arrays)


def _checksum(header: bytes, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(header)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _names(first: Sequence[str], dicts: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(first) + sorted({k for d in dicts for k in d} - set(first))


def _stack(parts: Sequence[Any], width: int, kind: Any) -> NDArray[Any]:
    if not parts:
        return np.empty((0, width), dtype=kind)
    return np.concatenate([np.reshape(p, (-1, width)) for p in parts]).astype(kind, copy=False)


def _name(number: int) -> str:
    return f"chunk-{number:06d}.npz"
