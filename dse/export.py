"""What a search leaves in its output folder: the front for people, exact designs, every trial, and how it was found.

Tables carry human units, which follow the unit and never the value; exact base SI is in `designs.json`, and a design
read from there evaluates to the same bits.  Files are equal for equal searches, except the `run` part of the manifest.
How a result reads as text is in `dse.report`, as a picture in `dse.plots`.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.api import SearchReport, problem_of
from dse.atomic import write_atomic
from dse.config import load_search
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS
from dse.exploration.archive import Archive, Chunk, differences, refuse_difference
from dse.exploration.pareto import non_dominated
from dse.exploration.plans import plan_of
from dse.exploration.problem import Hardware, hardware_groups
from dse.exploration.run import SearchResult, result_of
from dse.exploration.variables import Floats, Integers, Space
from dse.objectives import objective
from dse.serialize import design_to_plain, plain
from dse.spec import Constraint, SearchSpec
from hw_models import stacks
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from workloads.plan import CHOICES, SWITCHES, Plan

if TYPE_CHECKING:
    import pandas

__all__ = [
    "FILES", "Column", "archived_points", "begin", "check_out", "csv_pieces", "filtered", "front_columns",
    "front_frame", "human_unit", "load_report", "metrics_of", "read_designs", "write_outputs",
]  # fmt: skip

FORMAT = 1
#: Everything that `write_outputs` writes, in this order: the manifest last, when all others are there.
FILES = ("pareto.csv", "designs.json", "trials.csv.gz", "pareto.png", "summary.md", "manifest.json")
#: Designs evaluated or written at once; the columns of one block stay in cache.
BLOCK = 8192

#: Base unit -> size and name of the unit that tables show.
HUMAN: Mapping[str, tuple[float, str]] = {
    "m2": (1e-6, "mm2"),
    "B": (1e9, "GB"),
    "B/s": (1e9, "GB/s"),
    "Hz": (1e9, "GHz"),
    "s": (1e-3, "ms"),
    "J": (1e3, "kJ"),
    "token/s/m2": (1e6, "token/s/mm2"),
}
#: Quantities that people state in a unit of their own.
OWN: Mapping[str, tuple[float, str]] = {
    "latency": (1e-6, "us"),
    "local_sram": (2.0**10, "KiB"),
    "shared_sram": (2.0**20, "MiB"),
    "energy_per_token": (1.0, "J"),
    "mfu": (1e-2, "%"),
    "hfu": (1e-2, "%"),
}

Texts = NDArray[np.object_]


def human_unit(name: str, unit: str) -> tuple[float, str]:
    """Size in base units and name of the unit in which tables show a quantity; it never depends on the value."""
    return OWN.get(name) or HUMAN.get(unit) or (1.0, unit)


def heading(label: str, unit: str) -> str:
    """A column's heading: words and the unit in brackets."""
    words = label.replace("_", " ")
    return f"{words} [{unit}]" if unit else words


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: numbers in the heading's unit, whole numbers, or texts (N,)."""

    heading: str
    values: NDArray[Any]

    def cells(self) -> list[str]:
        """The values as CSV cells: ten significant digits, whole numbers in full, nothing where there is no value."""
        if self.values.dtype.kind in "iu":
            return [str(value) for value in self.values.tolist()]
        return self._each_once(_text_cell if self.values.dtype == object else _number_cell)

    def series(self) -> NDArray[Any]:
        """The values as a data frame holds them, rounded as the file rounds them."""
        if self.values.dtype.kind != "f":
            return self.values
        return np.array([float(text or "nan") for text in self.cells()])

    def _each_once(self, cell: Any) -> list[str]:
        # most columns of a front repeat a few values: each is written once
        known: dict[Any, str] = {}
        values = self.values.tolist()
        for value in values:
            if value not in known:
                known[value] = cell(value)
        return [known[value] for value in values]


def _number_cell(value: float) -> str:
    return "" if value != value else f"{value:.10g}"


def _text_cell(value: str) -> str:
    if value and (set(value) & set(',"\r\n')):
        return '"' + value.replace('"', '""') + '"'
    return value


def csv_pieces(blocks: Iterator[Sequence[Column]], headings: Sequence[str]) -> Iterator[bytes]:
    """A CSV file as bytes, block by block; with its heading also when there is no block."""
    yield (",".join(_text_cell(text) for text in headings) + "\n").encode()
    for columns in blocks:
        lines = [",".join(cells) for cells in zip(*(column.cells() for column in columns), strict=True)]
        if lines:
            yield ("\n".join(lines) + "\n").encode()


# The front ---------------------------------------------------------------------------------------------------------


def front_frame(report: SearchReport) -> pandas.DataFrame:
    """The table of `pareto.csv`: one row a design of the front, objectives first, a unit in every heading that has one."""
    import pandas

    return pandas.DataFrame({column.heading: column.series() for column in front_columns(report)})


def front_columns(report: SearchReport) -> list[Column]:
    """Columns of the front: objectives, chip, cluster, plan, all other metrics."""
    result, problem = report.result, report.problem
    metrics = metrics_of(problem, result.rows, result.plans)
    wanted = [item.name for item in problem.objectives]
    columns = [Column("row", np.arange(len(report)))]
    columns += _objective_columns(problem, result.values)
    columns += _hardware_columns(problem, result.rows)
    columns += _plan_columns(result.plans)
    return columns + [_metric_column(name, metrics[name]) for name in METRICS if name not in wanted]


def metrics_of(problem: Any, rows: Integers, plans: Integers) -> dict[str, Floats]:
    """Every metric (N,) of hardware rows (N, V), each with its own plan (N, P); in blocks, to the bits of one by one."""
    found = {name: np.empty(len(rows)) for name in METRICS}
    for block in _blocks(len(rows)):
        numbers = plans[block].astype(float)
        for hardware in hardware_of(problem, rows[block]):
            members = hardware.rows
            plan = plan_of({name: numbers[members, i] for i, name in enumerate(Plan.names())})
            # one row alone is no column: hardware (1, 1) meets plan (1,)
            paired = len(members) > 1
            result = evaluate(hardware.design(np.arange(len(members)), plan, problem.scene, paired=paired))
            for name, column in found.items():
                column[block.start + members] = result.column(name)
    return found


def hardware_of(problem: Any, rows: Integers) -> list[Hardware]:
    """Hardware of rows, in groups of equal structure; what a row says about its plan is left out."""
    variables = problem.space.variables
    keep = [i for i, variable in enumerate(variables) if not variable.name.startswith("plan.")]
    if len(rows) == 0:
        return []
    return hardware_groups(Space([variables[i] for i in keep]), rows[:, keep], problem.scene)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def _metric_column(name: str, values: Floats) -> Column:
    size, unit = human_unit(name, METRICS[name][0])
    return Column(heading(name, unit), values / size)


def _objective_columns(problem: Any, values: Floats) -> list[Column]:
    columns = []
    for j, item in enumerate(problem.objectives):
        size, unit = human_unit(item.name, item.unit)
        columns.append(Column(heading(item.name, unit), values[:, j] / size))
    return columns


def _hardware_columns(problem: Any, rows: Integers) -> list[Column]:
    """Every field of chip, cluster and tiers."""
    scene, count = problem.scene, len(rows)
    tables: list[tuple[Any, str, list[Any]]] = [(Chip, "chip", [scene.chip])]
    tables += [(Tier, f"tier_{i + 1}", [tier]) for i, tier in enumerate(scene.cluster.tiers)]
    tables.insert(1, (Cluster, "cluster", [scene.cluster]))
    found: dict[tuple[str, str], Any] = {}
    for block in _blocks(count):
        for hardware in hardware_of(problem, rows[block]):
            models = [hardware.chip, hardware.cluster, *hardware.cluster.tiers]
            for (_, label, _), model in zip(tables, models, strict=True):
                for item in _shown_fields(model):
                    column = found.setdefault((label, item.name), np.empty(count, dtype=object))
                    column[block.start + hardware.rows] = _field_values(getattr(model, item.name), len(hardware.rows))
    columns = []
    for _, label, (example,) in tables:
        for item in _shown_fields(example):
            values = found.get((label, item.name), np.empty(0, dtype=object))
            columns.append(_field_column(label, item, values))
    return columns


def _shown_fields(model: Any) -> list[Any]:
    return [item for item in fields(model) if item.name not in ("tiers", "source")]


def _field_values(value: Any, count: int) -> Any:
    """A field of a model as `count` plain values."""
    if isinstance(value, Mapping):
        value = ";".join(f"{key}={number:g}" for key, number in value.items())
    return np.broadcast_to(np.asarray(value), (count,)).tolist()


def _field_column(label: str, item: Any, values: Texts) -> Column:
    size, unit = human_unit(item.name, item.metadata.get("unit", ""))
    words = heading(f"{label}_{item.name}", unit)
    names = item.metadata.get("names")
    if names:
        return Column(words, _objects([names[int(value)] for value in values]))
    if item.metadata.get("whole"):
        return Column(words, np.array([int(value) for value in values], dtype=np.int64))
    if "unit" in item.metadata:
        return Column(words, np.array(values, dtype=float) / size)
    return Column(words, values)


def _objects(values: Sequence[Any]) -> Texts:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _named_plans(plans: Integers) -> dict[str, list[Any]]:
    """Columns of plans (N, P) as `Plan.named` gives them one by one."""
    named: dict[str, list[Any]] = {}
    for i, name in enumerate(Plan.names()):
        numbers = plans[:, i].tolist()
        if name in CHOICES:
            named[name] = [CHOICES[name][number] for number in numbers]
        else:
            named[name] = [bool(number) for number in numbers] if name in SWITCHES else numbers
    return named


def _plan_columns(plans: Integers) -> list[Column]:
    columns = []
    for name, values in _named_plans(plans).items():
        if name in CHOICES:
            found: NDArray[Any] = _objects(values)
        elif name in SWITCHES:
            found = _objects(["true" if value else "false" for value in values])
        else:
            found = np.array(values, dtype=np.int64)
        columns.append(Column(heading(f"plan_{name}", ""), found))
    return columns


# Exact designs -----------------------------------------------------------------------------------------------------


def read_designs(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The designs of `designs.json` in a folder: row, objectives [base SI], design as `design_from_plain` reads it."""
    path = Path(out) / "designs.json"
    data = _read_json(path)
    if data.get("format") != FORMAT or not isinstance(data.get("designs"), list):
        raise ValueError(f"{path}: found format {data.get('format')!r}, allowed: {FORMAT} with a list of designs")
    designs: list[dict[str, Any]] = data["designs"]
    return designs


def _designs_pieces(report: SearchReport) -> Iterator[bytes]:
    """`designs.json`, one design a line."""
    yield f'{{"format": {FORMAT}, "search": {json.dumps(report.spec.name)}, "designs": ['.encode()
    names = [item.name for item in report.problem.objectives]
    for block in _blocks(len(report)):
        values = report.result.values[block].tolist()
        lines = []
        for i, text in enumerate(_design_texts(report, block)):
            objectives = json.dumps(dict(zip(names, values[i], strict=True)))
            lines.append(f'\n{{"row": {block.start + i}, "objectives": {objectives}, "design": {text}}}')
        yield ((",") * (block.start > 0) + ",".join(lines)).encode()
    yield b"\n]}\n"


def _design_texts(report: SearchReport, block: slice) -> list[str]:
    """JSON of `design_to_plain` of every design of a block; what designs share is written to text once."""
    rows, named = report.result.rows[block], _named_plans(report.result.plans[block])
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


# Every trial -------------------------------------------------------------------------------------------------------


def _trial_pieces(report: SearchReport) -> Iterator[bytes]:
    """`trials.csv`: the hardware rows in the order of evaluation, a line for every plan of a row's inner front.

    A row where nothing is feasible has one line: its nearest miss and what it lacks.  Beside them the number of plans
    priced, feasible, and failed by constraint.  A thin record (a large exhaustive search) lists rows of the front."""
    chunks = report.result.archive.chunks
    failures = list(dict.fromkeys(name for chunk in chunks for name in chunk.header["failure_names"]))
    misses = list(dict.fromkeys(name for chunk in chunks for name in chunk.header["miss_names"]))
    owners = _rows_of_front(report) if any(chunk.header.get("thin") for chunk in chunks) else None

    def blocks() -> Iterator[list[Column]]:
        number = 0
        for chunk in chunks:
            rows = np.arange(len(chunk))
            if owners is not None:
                rows = np.array([i for i in rows if tuple(chunk.rows[i].tolist()) in owners], dtype=np.int64)
            for part in _blocks(len(rows)):
                yield _trial_columns(report, chunk, rows[part], number, failures, misses)
                number += len(rows[part])

    example = _trial_columns(report, None, np.zeros(0, dtype=np.int64), 0, failures, misses)
    return csv_pieces(blocks(), [column.heading for column in example])


def _rows_of_front(report: SearchReport) -> set[tuple[int, ...]]:
    """Hardware rows whose record does not depend on how an exhaustive search was cut into chunks."""
    result = report.result
    found = {tuple(row) for row in result.rows.tolist()}
    return found | ({tuple(result.miss_row.tolist())} if result.miss_row is not None else set())


def _trial_columns(
    report: SearchReport, chunk: Chunk | None, rows: Integers, number: int, failures: list[str], misses: list[str]
) -> list[Column]:
    """Lines of rows `rows` of a chunk; `number` counts hardware rows."""
    problem = report.problem
    lines = _Lines.of(problem, chunk, rows)
    at = lines.rows
    columns = [Column("hardware row", lines.number + number), Column("state", lines.state)]
    columns += _variable_columns(problem.space, chunk.rows[at] if chunk else np.zeros((0, len(problem.space.shape)), int))
    columns += [
        Column("plans evaluated", chunk.evaluated[at] if chunk else rows),
        Column("plans feasible", chunk.feasible[at] if chunk else rows),
        Column("plan", lines.plan_number),
    ]
    columns += _objective_columns(problem, lines.values)
    columns += [Column(column.heading, lines.hidden(column)) for column in _plan_columns(np.maximum(lines.plans, 0))]
    for name in failures:
        columns.append(Column(f"plans failed: {name}", lines.table(chunk, "failures", "failure_names", name)))
    for name in misses:
        columns.append(Column(f"violation: {name} [relative]", lines.table(chunk, "miss", "miss_names", name)))
    return columns


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of the trials: hardware row in its chunk and in this block, state, plan (P) and objectives (J) of each."""

    rows: Integers
    number: Integers
    state: Texts
    plan_number: Integers
    values: Floats
    plans: Integers

    @classmethod
    def of(cls, problem: Any, chunk: Chunk | None, rows: Integers) -> _Lines:
        width, depth = len(problem.objectives), len(problem.plan_fields)
        if chunk is None:
            empty = np.zeros(0, dtype=np.int64)
            return cls(empty, empty, _objects([]), empty, np.zeros((0, width)), np.zeros((0, depth), dtype=np.int64))
        inner = np.diff(chunk.offsets)[rows]
        lines = np.maximum(inner, 1)
        number = np.repeat(np.arange(len(rows)), lines)
        at = rows[number]
        position = np.arange(len(at)) - np.repeat(np.cumsum(lines) - lines, lines)
        found = inner[number] > 0
        values = np.where(chunk.missed[at][:, None], chunk.miss_objectives[at], np.nan)
        plans = np.where(chunk.missed[at][:, None], chunk.miss_plan[at], -1)
        points = chunk.offsets[at[found]] + position[found]
        values[found], plans[found] = chunk.front[points], chunk.plans[points]
        state = _objects(["nearest miss" if missed else "failed" for missed in chunk.missed[at].tolist()])
        state[found] = "feasible"
        return cls(at, number, state, np.where(found, position, 0), values, plans)

    def hidden(self, column: Column) -> NDArray[Any]:
        """A plan's column, empty where a row answered nothing."""
        present = self.plans[:, 0] >= 0
        if present.all():
            return column.values
        return _objects([value if there else "" for value, there in zip(column.values.tolist(), present, strict=True)])

    def table(self, chunk: Chunk | None, what: str, names: str, name: str) -> NDArray[Any]:
        """A constraint's column: a count of plans, or the violation of a nearest miss."""
        if chunk is None or name not in chunk.header[names]:
            return np.zeros(len(self.rows), dtype=np.int64) if what == "failures" else np.full(len(self.rows), np.nan)
        column = getattr(chunk, what)[self.rows, chunk.header[names].index(name)]
        return np.asarray(column if what == "failures" else np.where(self.state == "nearest miss", column, np.nan))


def _variable_columns(space: Space, rows: Integers) -> list[Column]:
    """What was chosen in hardware; a plan that is part of the space is listed with the plans."""
    columns = []
    for i, variable in enumerate(space.variables):
        if variable.name.startswith("plan."):
            continue
        label, item = _field_of(variable.name)
        choices = _objects(list(variable.values))
        columns.append(_field_column(label, item, choices[rows[:, i]]))
    return columns


@cache
def _field_of(name: str) -> tuple[str, Any]:
    """Label and field that a variable stands for: chip.clock, cluster.devices, cluster.tiers.0.size."""
    *owner, last = name.split(".")
    model = {"chip": Chip, "cluster": Cluster}[owner[0]] if len(owner) == 1 else Tier
    label = owner[0] if len(owner) == 1 else f"tier_{int(owner[-1]) + 1}"
    return label, next(item for item in fields(model) if item.name == last)


# The manifest ------------------------------------------------------------------------------------------------------


def _manifest(report: SearchReport) -> dict[str, Any]:
    """How the result was found; only `run` differs between equal searches."""
    spec, result = report.spec, report.result
    return {
        "format": FORMAT,
        **_described(spec, report.problem),
        "fingerprint": sha256(json.dumps(result.archive.fingerprint, sort_keys=True).encode()).hexdigest(),
        "designs_on_front": len(report),
        "hardware_rows": result.hardware_rows,
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "failures": dict(sorted(result.failures.items())),
        "failed_rows": result.failed_rows,
        "faults": plain(list(result.faults)),
        "nearest_miss": _nearest_miss(report),
        "stopped": result.stopped,
        "constants": [_constant(row) for row in report.problem.constants or ()],
        "stack_constants": _stack_constants(spec),
        "run": {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "elapsed [s]": round(result.elapsed, 3),
            "notes": list(result.notes),
        },
    }


def _described(spec: SearchSpec, problem: Any) -> dict[str, Any]:
    """What was searched, and with what."""
    chosen, workload = spec.search, spec.workloads[0]
    return {
        "search": spec.name,
        "mode": chosen.mode,
        "sampler": chosen.sampler,
        "seed": chosen.seed,
        "budget": chosen.budget,
        "timeout [s]": chosen.timeout,
        "inner_objective": chosen.inner_objective or problem.objectives[0].name,
        "objectives": [{"name": o.name, "direction": o.direction, "unit": o.unit} for o in problem.objectives],
        "constraints": [f"{c.metric} {c.relation} {c.bound!r} {METRICS[c.metric][0]}".strip() for c in spec.constraints],
        "workload": {
            "network": workload.network.name,
            "sequence": workload.sequence,
            "global_batch": workload.global_batch,
        },
        "training": plain(spec.training),
        "space": {"hardware_rows": problem.space.size, "variables": list(problem.space.names)},
        "versions": _versions(),
        "configuration": {
            "path": spec.path,
            "sha256": sha256(spec.text.encode()).hexdigest() if spec.text else None,
            "text": spec.text,
        },
    }


def _versions() -> dict[str, str | None]:
    from dse import __version__

    found: dict[str, str | None] = {"dse": __version__, "python": python_version()}
    for name in ("numpy", "scipy", "optuna", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _nearest_miss(report: SearchReport) -> dict[str, Any] | None:
    result = report.result
    if result.miss_row is None or result.miss_plan is None:
        return None
    return {
        "violations": result.miss,
        "variables": report.problem.space.values(result.miss_row),
        "plan": Plan(*(int(number) for number in result.miss_plan)).named(),
    }


def _constant(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of a table of constants with its numbers as numbers."""
    return {key: _number(text) if key in ("value", "low", "high") else text for key, text in row.items()}


def _number(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text or None


def _stack_constants(spec: SearchSpec) -> list[dict[str, Any]]:
    """The stack's constants; a value that is not the table's has the configuration as its source."""
    known = {}
    if spec.stack.name in stacks.names():
        known = {row["field"]: _constant(row) for row in stacks.constants(spec.stack.name)}
    found = []
    for item in fields(spec.stack):
        if item.name in ("name", "source"):
            continue
        value = getattr(spec.stack, item.name)
        row = known.get(item.name, {})
        shown = "+".join(value) if isinstance(value, tuple) else plain(value)
        if row.get("value") == shown:
            found.append(row)
        else:
            given = {"stack": spec.stack.name, "field": item.name, "unit": item.metadata.get("unit", ""), "value": shown}
            found.append({**given, "low": None, "high": None, "source": "configuration"})
    return found


# Folder ------------------------------------------------------------------------------------------------------------


def check_out(out: str | os.PathLike[str]) -> Path:
    """The output folder, made with its parents and tried with a file; ValueError names the path when it cannot be used."""
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
        raise ValueError(f"{folder}: found {', '.join(foreign)} of something else, allowed: a new folder, or one of a search")
    return folder


def _is_ours(path: Path) -> bool:
    try:
        return bool(_read_json(path).get("format"))
    except ValueError:
        return False


def begin(spec: SearchSpec, out: str | os.PathLike[str]) -> Path:
    """Check the folder and keep the configuration in it, so that a search that is killed can be read and exported."""
    folder = check_out(out)
    path = folder / "manifest.json"
    if not path.exists():
        _write_json(path, {"format": FORMAT, **_described(spec, problem_of(spec)), "stopped": "running"})
    return folder


def write_outputs(report: SearchReport, out: str | os.PathLike[str]) -> dict[str, Path]:
    """Write every output of a search into `out`, each file whole or not at all; name -> path."""
    from dse import plots, report as texts

    folder = check_out(out)
    write_atomic(folder / "pareto.csv", _front_pieces(report))
    write_atomic(folder / "designs.json", _designs_pieces(report))
    write_atomic(folder / "trials.csv.gz", _gzip(_trial_pieces(report)))
    write_atomic(folder / "pareto.png", plots.front_png(plots.front_data(report)))
    write_atomic(folder / "summary.md", texts.summary_markdown(report))
    _write_json(folder / "manifest.json", _manifest(report))
    return {name: folder / name for name in FILES}


def _front_pieces(report: SearchReport) -> Iterator[bytes]:
    columns = front_columns(report)
    return csv_pieces(iter([columns]), [column.heading for column in columns])


def _gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # zlib writes no time and no name into the header: equal contents are equal files
    stream = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _write_json(path: Path, data: Any) -> None:
    write_atomic(path, json.dumps(data, indent=1) + "\n")


def _read_json(path: Path) -> Any:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}), allowed: an output of a search") from None
    except ValueError as fault:
        raise ValueError(f"{path}: found no valid JSON ({fault}), allowed: the file as it was written") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: found a {type(data).__name__}, allowed: an output of a search")
    return data


# Reading a search again --------------------------------------------------------------------------------------------


def load_report(out: str | os.PathLike[str], spec: SearchSpec | None = None) -> SearchReport:
    """The search recorded in a folder as far as it went: configuration from the manifest, results from the archive.

    spec   the specification, where the manifest has no configuration (a search that was written in Python)"""
    folder = Path(out)
    archive = Archive.read(folder)
    manifest = _read_json(folder / "manifest.json") if spec is None or (folder / "manifest.json").exists() else {}
    spec = _recorded_spec(folder, manifest) if spec is None else spec
    problem = problem_of(spec)
    recorded, now = archive.fingerprint, {"space": problem.space.describe(), "plan_fields": list(problem.plan_fields)}
    now["objectives"] = [{"name": o.name, "direction": o.direction, "unit": o.unit} for o in problem.objectives]
    refuse_difference({name: recorded[name] for name in now}, now, where=str(folder))
    result = result_of(archive)
    result = replace(result, notes=(*result.notes, *_model_changes(recorded, problem)))
    if manifest.get("hardware_rows") == result.hardware_rows:
        run = manifest["run"]
        notes = tuple(dict.fromkeys([*run["notes"], *result.notes]))
        result = replace(result, stopped=manifest["stopped"], elapsed=run["elapsed [s]"], notes=notes)
    return SearchReport(spec, problem, result)


def _recorded_spec(folder: Path, manifest: Mapping[str, Any]) -> SearchSpec:
    configuration = manifest.get("configuration") or {}
    text, path = configuration.get("text"), configuration.get("path") or "configuration.yaml"
    if not text:
        raise ValueError(f"{folder}: found no configuration (the search was made in Python), allowed: its specification")
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / Path(path).name
        copy.write_bytes(text.encode())
        spec = load_search(copy)
    search = replace(spec.search, **{name: manifest[name] for name in ("seed", "budget") if name in manifest})
    return replace(spec, path=path, search=search)


def _model_changes(recorded: Mapping[str, Any], problem: Any) -> list[str]:
    """A note when the models or constants are not those of the record, so numbers may not be reproduced."""
    old = recorded["problem"]
    new = json.loads(json.dumps(problem.fingerprint()))
    found = [path for path, _, _ in differences(old, {name: new[name] for name in old if name in new})]
    if not found:
        return []
    return [f"this version differs from the recorded search in {', '.join(found)}: values may not be reproduced"]


# Filtering ---------------------------------------------------------------------------------------------------------


def archived_points(result: SearchResult) -> tuple[Integers, Integers, Floats]:
    """Every plan of an inner front in the archive: hardware rows (N, V), plans (N, P), objectives (N, J)."""
    chunks = result.archive.chunks
    if not chunks:
        return result.rows[:0], result.plans[:0], result.values[:0]
    rows = [np.repeat(chunk.rows, np.diff(chunk.offsets), axis=0) for chunk in chunks]
    return np.concatenate(rows), np.concatenate([c.plans for c in chunks]), np.concatenate([c.front for c in chunks])


def filtered(
    report: SearchReport, where: Sequence[tuple[str, str, float]] = (), objectives: Sequence[str] | None = None
) -> SearchReport:
    """The front among archived designs that meet further limits, over the same or other objectives.

    where   (metric, "<=" or ">=", bound in base SI)
    The archive keeps what no other plan of its hardware row beats in the objectives of the search, so with other
    objectives the front is the best of those, not of all plans that were looked at; a note says so."""
    _check_filter(where, objectives)
    recorded = report.problem.objectives
    spec = replace(
        report.spec,
        objectives=tuple(objectives or report.spec.objectives),
        constraints=(*report.spec.constraints, *(Constraint(name, relation, bound) for name, relation, bound in where)),  # type: ignore[arg-type]
    )
    problem = report.problem if objectives is None and not where else problem_of(spec)
    rows, plans, values = archived_points(report.result)
    known = {item.name: values[:, j] for j, item in enumerate(recorded)}
    wanted = [item.name for item in problem.objectives]
    if any(name not in known for name in [*wanted, *(name for name, _, _ in where)]):
        known = {**metrics_of(problem, rows, plans), **known}
    keep = np.ones(len(rows), dtype=bool)
    for name, relation, bound in where:
        keep &= known[name] <= bound if relation == "<=" else known[name] >= bound
    values = np.stack([known[name] for name in wanted], axis=-1)
    order = _front_order(rows[keep], plans[keep], values[keep], np.array([o.sign for o in problem.objectives]))
    chosen = np.flatnonzero(keep)[order]
    notes = (*report.result.notes, *_filter_notes(where, wanted, [item.name for item in recorded]))
    result = replace(report.result, rows=rows[chosen], plans=plans[chosen], values=values[chosen], notes=notes)
    return SearchReport(spec, problem, result)


def _check_filter(where: Sequence[tuple[str, str, float]], objectives: Sequence[str] | None) -> None:
    faults = [f"where: found the metric {name!r}" for name, _, _ in where if name not in METRICS]
    faults += [f"where: found the relation {relation!r}, allowed: <=, >=" for _, relation, _ in where if relation not in ("<=", ">=")]
    faults += [f"where: found the bound {bound!r}, allowed: a number" for _, _, bound in where if bound != bound]
    faults += [f"objectives: found {name!r}" for name in objectives or () if name not in METRICS]
    if objectives is not None and not objectives:
        faults.append("objectives: found none, allowed: at least one")
    if any("allowed" not in fault for fault in faults):
        faults.append(f"allowed: {', '.join(METRICS)}")
    if faults:
        raise ValueError("; ".join(faults))
    for name in objectives or ():
        objective(name)


def _front_order(rows: Integers, plans: Integers, values: Floats, signs: Floats) -> Integers:
    """Numbers of the non-dominated designs, best by the first objective first, each design once."""
    signed = values * signs
    front = np.flatnonzero(non_dominated(signed)) if len(signed) else np.zeros(0, dtype=np.int64)
    keys = [*plans[front].T[::-1], *rows[front].T[::-1], *signed[front].T[::-1]]
    order = front[np.lexsort(keys)]
    _, first = np.unique(np.concatenate([rows, plans], axis=1)[order], axis=0, return_index=True)
    return np.asarray(order[np.sort(first)])


def _filter_notes(where: Sequence[tuple[str, str, float]], wanted: list[str], recorded: list[str]) -> list[str]:
    notes = []
    if where:
        limits = ", ".join(f"{name} {relation} {bound!r} {METRICS[name][0]}".strip() for name, relation, bound in where)
        notes.append(f"filtered: only designs with {limits}")
    if wanted != recorded:
        notes.append(
            f"front over {', '.join(wanted)} among the designs that were kept for {', '.join(recorded)}; "
            "a search with these objectives may find better ones"
        )
    return notes
