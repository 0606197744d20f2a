"""Tables of designs as columns with human units: the front, and every trial of a search.

Units and headings are those of `dse.base.headings`, so that files of two searches compare.  Numbers are rounded to ten
digits; exact values are in `designs.json` (dse.record.write).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.base.headings import heading, human_unit
from dse.evaluation.result import METRICS
from dse.exploration.archive import Chunk
from dse.exploration.variables import Floats, Integers, Space
from dse.insight.front_uncertainty import front_uncertainty
from dse.problem.rows import blocks, hardware_of, metrics_of, named_plans
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from workloads.plan import CHOICES, SWITCHES

if TYPE_CHECKING:
    from dse.insight.front_intervals import FrontIntervals
    from dse.problem.solved import Solved

__all__ = ["Column", "csv_pieces", "front_columns", "interval_columns", "trial_pieces"]

Texts = NDArray[np.object_]


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


def csv_pieces(parts: Iterator[Sequence[Column]], headings: Sequence[str]) -> Iterator[bytes]:
    """A CSV file as bytes, part by part; with its heading also when there is no part."""
    yield (",".join(_text_cell(text) for text in headings) + "\n").encode()
    for columns in parts:
        lines = [",".join(cells) for cells in zip(*(column.cells() for column in columns), strict=True)]
        if lines:
            yield ("\n".join(lines) + "\n").encode()


# The front ---------------------------------------------------------------------------------------------------------


def front_columns(report: Solved) -> list[Column]:
    """Columns of the front: objectives, chip, cluster, plan, all other metrics, uncertainty of the step time."""
    result, problem = report.result, report.problem
    metrics = metrics_of(problem, result.rows, result.plans)
    wanted = [item.name for item in problem.objectives]
    columns = [Column("row", np.arange(len(report)))]
    columns += _objective_columns(problem, result.values)
    columns += _hardware_columns(problem, result.rows)
    columns += _plan_columns(result.plans)
    columns += [_metric_column(name, metrics[name]) for name in METRICS if name not in wanted]
    own = {metric.name: metric.unit for metric in report.spec.metrics if metric.name not in wanted}
    columns += [Column(heading(name, unit), metrics[name]) for name, unit in own.items()]
    return columns + _uncertainty_columns(report)


def _uncertainty_columns(report: Solved) -> list[Column]:
    """90% interval of the step time, and how likely the first row is better than each; the first 200 rows."""
    found = front_uncertainty(report)
    size, unit = human_unit("step_time", "s")
    times = [Column(heading(f"step_time_{end}", unit), getattr(found, end) / size) for end in ("low", "high")]
    return [*times, Column(heading("probability_best", ""), found.probability_best)]


def interval_columns(found: FrontIntervals, problem: Any) -> list[Column]:
    """Ends of the interval of every objective, and the shares of draws on the front and within limits."""
    columns = []
    for j, item in enumerate(problem.objectives):
        size, unit = human_unit(item.name, item.unit)
        for end, values in (("low", found.low), ("high", found.high)):
            columns.append(Column(heading(f"{item.name}_{end}_{found.level:.0%}", unit), values[:, j] / size))
    shares = (("probability_on_front", found.on_front), ("probability_within_limits", found.within_limits))
    return columns + [Column(heading(name, ""), values) for name, values in shares]


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
    for block in blocks(count):
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


def _plan_columns(plans: Integers) -> list[Column]:
    columns = []
    for name, values in named_plans(plans).items():
        if name in CHOICES:
            found: NDArray[Any] = _objects(values)
        elif name in SWITCHES:
            found = _objects(["true" if value else "false" for value in values])
        else:
            found = np.array(values, dtype=np.int64)
        columns.append(Column(heading(f"plan_{name}", ""), found))
    return columns


# Every trial -------------------------------------------------------------------------------------------------------


def trial_pieces(report: Solved) -> Iterator[bytes]:
    """`trials.csv`: the hardware rows in the order of evaluation, a line for every plan of a row's inner front.

    A row where nothing is feasible has one line: its nearest miss and what it lacks.  Beside them the number of plans
    priced, feasible, and failed by constraint.  A thin record (a large exhaustive search) lists rows of the front."""
    chunks = report.result.archive.chunks
    failures = list(dict.fromkeys(name for chunk in chunks for name in chunk.header["failure_names"]))
    misses = list(dict.fromkeys(name for chunk in chunks for name in chunk.header["miss_names"]))
    owners = _rows_of_front(report) if any(chunk.header.get("thin") for chunk in chunks) else None

    def parts() -> Iterator[list[Column]]:
        number = 0
        for chunk in chunks:
            rows = np.arange(len(chunk))
            if "missing" in chunk.header:  # no answer, no trial
                lacking = {tuple(one["row"]) for one in chunk.header["missing"]}
                rows = np.array([i for i in rows if tuple(chunk.rows[i].tolist()) not in lacking], dtype=np.int64)
            if owners is not None:
                rows = np.array([i for i in rows if tuple(chunk.rows[i].tolist()) in owners], dtype=np.int64)
            for part in blocks(len(rows)):
                yield _trial_columns(report, chunk, rows[part], number, failures, misses)
                number += len(rows[part])

    example = _trial_columns(report, None, np.zeros(0, dtype=np.int64), 0, failures, misses)
    return csv_pieces(parts(), [column.heading for column in example])


def _rows_of_front(report: Solved) -> set[tuple[int, ...]]:
    """Hardware rows whose record does not depend on how an exhaustive search was cut into chunks."""
    result = report.result
    found = {tuple(row) for row in result.rows.tolist()}
    return found | ({tuple(result.miss_row.tolist())} if result.miss_row is not None else set())


def _trial_columns(
    report: Solved, chunk: Chunk | None, rows: Integers, number: int, failures: list[str], misses: list[str]
) -> list[Column]:
    """Lines of rows `rows` of a chunk; `number` counts hardware rows."""
    problem = report.problem
    lines = _Lines.of(problem, chunk, rows)
    at = lines.rows
    columns = [Column("hardware row", lines.number + number), Column("state", lines.state)]
    none = np.zeros((0, len(problem.space.shape)), dtype=np.int64)
    columns += _variable_columns(problem.space, chunk.rows[at] if chunk else none)
    columns += [
        Column("plans evaluated", chunk.evaluated[at] if chunk else rows),
        Column("plans feasible", chunk.feasible[at] if chunk else rows),
        Column("inner plan", lines.plan_number),
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
        values = zip(column.values.tolist(), present, strict=True)
        return _objects([str(value) if there else "" for value, there in values])

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
