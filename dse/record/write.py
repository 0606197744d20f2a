"""What a search leaves in its output folder: the front for people, exact designs, every trial, and how it was found.

Tables carry human units (dse.record.columns); exact base SI is in `designs.json`; one read from there evaluates to
the same bits.  Files are equal for equal searches, except the `run` part of the manifest.
How a result reads as text is in `dse.present.text.search`, as a picture in `dse.present.figures.front`.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.base.files import write_atomic
from dse.base.headings import heading, human_unit
from dse.inputs.serialize import design_to_plain, plain
from dse.inputs.spec import SearchSpec
from dse.present.figures import front as plots
from dse.present.figures.data import front_data
from dse.present.text import search as texts
from dse.problem.build import problem_of
from dse.problem.rows import blocks, hardware_of, named_plans
from dse.problem.solved import Solved
from dse.record.columns import Column, csv_pieces, front_columns, interval_columns, trial_pieces
from dse.record.manifest import FORMAT, described, manifest
from dse.record.read import read_json
from dse.simulation.step import re_score

if TYPE_CHECKING:
    import pandas

    from dse.insight.front_intervals import FrontIntervals

__all__ = ["FILES", "begin", "check_out", "front_frame", "read_designs", "write_outputs"]

#: Everything that `write_outputs` writes, in this order: the manifest last, when all others are there.
FILES = ("pareto.csv", "designs.json", "trials.csv.gz", "pareto.png", "summary.md", "manifest.json")


def front_frame(report: Solved, intervals: FrontIntervals | None = None) -> pandas.DataFrame:
    """The table of `pareto.csv`: one row a design of the front, objectives first, units in the headings."""
    import pandas

    return pandas.DataFrame({column.heading: column.series() for column in exported_columns(report, intervals)})


#: Designs of a front that are simulated at most, and tasks of all their simulations: some seconds together.
SIMULATED, SIMULATED_TASKS = 1_000, 1_000_000


def exported_columns(report: Solved, intervals: FrontIntervals | None = None) -> list[Column]:
    """The columns of the front, each design's step time by event simulation and, where given, its intervals.

    The best designs come first; those for which `SIMULATED` or `SIMULATED_TASKS` leaves nothing have no such time.
    """
    keys = [
        (tuple(row), tuple(plan))
        for row, plan in zip(report.result.rows.tolist(), report.result.plans.tolist(), strict=True)
    ]
    first: dict[Any, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    chosen = list(first.items())[:SIMULATED]
    times = re_score((report.design(i) for _, i in chosen), budget=SIMULATED_TASKS)
    known = dict(zip((key for key, _ in chosen), times, strict=True))
    size, unit = human_unit("step_time", "s")
    values = np.array([known.get(key, np.nan) for key in keys], dtype=float) / size
    columns = [*front_columns(report), Column(heading("step_time_simulated", unit), values)]
    return columns if intervals is None else columns + interval_columns(intervals, report.problem)


# Exact designs -----------------------------------------------------------------------------------------------------


def read_designs(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The designs of `designs.json` in a folder: row, objectives [base SI], design as `design_from_plain` reads it."""
    path = Path(out) / "designs.json"
    data = read_json(path)
    if data.get("format") != FORMAT or not isinstance(data.get("designs"), list):
        raise ValueError(f"{path}: found format {data.get('format')!r}, allowed: {FORMAT} with a list of designs")
    designs: list[dict[str, Any]] = data["designs"]
    return designs


def _designs_pieces(report: Solved) -> Iterator[bytes]:
    """`designs.json`, one design a line."""
    yield f'{{"format": {FORMAT}, "search": {json.dumps(report.spec.name)}, "designs": ['.encode()
    names = [item.name for item in report.problem.objectives]
    for block in blocks(len(report)):
        values = report.result.values[block].tolist()
        lines = []
        for i, text in enumerate(_design_texts(report, block)):
            objectives = json.dumps(dict(zip(names, values[i], strict=True)))
            lines.append(f'\n{{"row": {block.start + i}, "objectives": {objectives}, "design": {text}}}')
        yield ((",") * (block.start > 0) + ",".join(lines)).encode()
    yield b"\n]}\n"


def _design_texts(report: Solved, block: slice) -> list[str]:
    """JSON of `design_to_plain` of every design of a block; what designs share is written to text once."""
    rows, named = report.result.rows[block], named_plans(report.result.plans[block])
    texts = [""] * len(rows)
    for hardware in hardware_of(report.problem, rows):
        first = block.start + int(hardware.rows[0])
        shared = design_to_plain(report.design(first))
        chips = _plain_rows(hardware.chip, len(hardware.rows))
        clusters = _plain_rows(hardware.cluster, len(hardware.rows))
        tail = json.dumps({key: value for key, value in shared.items() if key not in ("chip", "cluster", "plan")})[1:]
        for member, chip, cluster in zip(hardware.rows.tolist(), chips, clusters, strict=True):
            plan = {name: column[member] for name, column in named.items()}
            head = json.dumps({"chip": chip, "cluster": cluster, "plan": plan})[:-1]
            texts[member] = f"{head}, {tail}"
    return texts


def _plain_rows(model: Any, count: int) -> list[dict[str, Any]]:
    """A model of columns as `count` plain models, each as `plain` gives it for scalars."""
    columns: dict[str, Any] = {}
    for item in fields(model):
        value = getattr(model, item.name)
        if isinstance(value, np.ndarray):
            numbers = np.broadcast_to(value.reshape(-1), (count,)).tolist()
            columns[item.name] = [int(number) for number in numbers] if item.metadata.get("whole") else numbers
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            columns[item.name] = [list(inner) for inner in zip(*(_plain_rows(m, count) for m in value), strict=True)]
        else:
            columns[item.name] = [plain(value)] * count
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

# Folder ------------------------------------------------------------------------------------------------------------


def check_out(out: str | os.PathLike[str]) -> Path:
    """The output folder, made with its parents and tried with a file; ValueError names a path that cannot be used."""
    folder, allowed = Path(out), "a folder that can be written"
    in_the_way = next((part for part in (folder, *folder.parents) if os.path.lexists(part)), None)
    if in_the_way is not None and not in_the_way.is_dir():
        kind = "a file" if in_the_way.is_file() else "something that is not a folder"
        raise ValueError(f"{folder}: found {kind} at {in_the_way}, allowed: {allowed}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}), allowed: {allowed}") from None
    folders = [name for name in FILES if (folder / name).is_dir()]
    if folders:
        raise ValueError(f"{folder}: found a folder named {', '.join(folders)}, allowed: {allowed} as files")
    foreign = [name for name in FILES if (folder / name).exists()]
    if foreign and not (folder / "archive").is_dir() and not _is_ours(folder / "manifest.json"):
        found = ", ".join(foreign)
        raise ValueError(f"{folder}: found {found} of something else, allowed: a new folder, or one of a search")
    return folder


def _is_ours(path: Path) -> bool:
    try:
        return bool(read_json(path).get("format"))
    except ValueError:
        return False


def begin(spec: SearchSpec, out: str | os.PathLike[str]) -> Path:
    """Check the folder and keep the configuration in it, so that a search that is killed can be read and exported."""
    folder = check_out(out)
    path = folder / "manifest.json"
    if not path.exists():
        _write_json(path, {"format": FORMAT, **described(spec, problem_of(spec)), "stopped": "running"})
    return folder


def write_outputs(
    report: Solved, out: str | os.PathLike[str], intervals: FrontIntervals | None = None
) -> dict[str, Path]:
    """Write every output of a search into `out`, each file whole or not at all; name -> path.

    intervals   uncertainty of the front, for columns of its table and error bars of its picture
    """
    folder = check_out(out)
    write_atomic(folder / "pareto.csv", _front_pieces(report, intervals))
    write_atomic(folder / "designs.json", _designs_pieces(report))
    write_atomic(folder / "trials.csv.gz", _gzip(trial_pieces(report)))
    write_atomic(folder / "pareto.png", plots.front_png(front_data(report, intervals)))
    write_atomic(folder / "summary.md", texts.summary_markdown(_without_clock(report), intervals))
    _write_json(folder / "manifest.json", manifest(report))
    return {name: folder / name for name in FILES}


def _without_clock(report: Solved) -> Solved:
    """The report without what only this run of an equal search has: its duration, and that it was continued."""
    notes = tuple(note for note in report.result.notes if not _of_this_run(note, report))
    return replace(report, result=replace(report.result, elapsed=0.0, notes=notes))


def _of_this_run(note: str, report: Solved) -> bool:
    return note in report.result.archive.notes or note.startswith("continued from ")


def _front_pieces(report: Solved, intervals: FrontIntervals | None) -> Iterator[bytes]:
    columns = exported_columns(report, intervals)
    return csv_pieces(iter([columns]), [column.heading for column in columns])


def _gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # zlib writes no time and no name into the header: equal contents are equal files
    stream = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _write_json(path: Path, data: Any) -> None:
    write_atomic(path, json.dumps(data, indent=1) + "\n")
