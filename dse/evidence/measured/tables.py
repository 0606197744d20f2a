"""Reads tables of measurements (CSV) as rows of text, and says which cells cannot be what their heading says.

Any encoding mark, line end or quoting of CSV is read; a table with unknown headings is left alone, whatever is in it.
What a row means is in `dse.evidence.measured.runs` and the other `dse.measured_*`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dse.base.errors import Problem, shorten

__all__ = ["KINDS", "Cells", "Kind", "kind_of", "read_table"]

#: Cells that say "not known" in words; where a number is expected, more of them.
BLANKS = frozenset({"", "n/a", "nan", "null"})
NO_NUMBERS = BLANKS | {"na", "none", "-", "?"}
#: Largest number of a cell: above it whole numbers are not exact, and no measured quantity is as large.
LARGEST = 2.0**53


class Cells(dict[str, str]):
    """A row: text by heading; "" for a blank cell and for a heading that the table lacks.

    line   where the row ends in its file, from 1
    """

    line: int = 0

    def __missing__(self, key: str) -> str:
        return ""


@dataclass(frozen=True)
class Kind:
    """A kind of table: the headings it is known by, and which cells must be numbers where a row is to be scored.

    whole, positive   headings of whole numbers >= 0, and of measured numbers > 0
    notes             a number may be followed by words, "512 (2 pods)"; its row is then skipped with the reason
    """

    name: str
    headings: frozenset[str]
    whole: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    notes: bool = False


def _kind(name: str, headings: str, whole: str = "", positive: str = "", *, notes: bool = False) -> Kind:
    return Kind(name, frozenset(headings.split()), tuple(whole.split()), tuple(positive.split()), notes)


#: In the order in which headings are compared.
KINDS: tuple[Kind, ...] = (
    _kind(
        "runs", "layers hidden global_batch num_devices",
        "layers hidden ffn heads kv_heads vocab seq_len global_batch micro_batch num_devices tp pp dp cp ep interleave",
        "measured_iter_time_s tokens_per_s_per_device", notes=True,
    ),
    _kind("kernels", "kernel M N K time_us", "M N K groups batch heads seq_len head_dim",
          "time_us tflops_per_s gelems_per_s mem_bw_GBps"),
    _kind("collectives", "collective payload_bytes time_us", "num_devices num_nodes gpus_per_node payload_bytes",
          "time_us busbw_GBps algbw_GBps"),
    _kind("systolic", "dataflow rows cols M N K", "rows cols M N K cycles_true total_cycles", ""),
    _kind("chips", "chip die_area_mm2 tdp_W", "", "die_area_mm2 tdp_W"),
    _kind("memory", "quantity model mode value unit", "", "value"),
    _kind("throughputs", "task throughput_per_device_per_s", "", "throughput_per_device_per_s", notes=True),
    _kind("transfer-level", "rtl_cycles"),
    _kind("loop nests", "rtl_cycle mapping", "M N K P Q R S conv_C stride_h sp_entries acc_entries", "rtl_cycle"),
)  # fmt: skip


def kind_of(headings: Iterable[str]) -> Kind | None:
    """The kind of table with these headings; None for tables that hold no measurements."""
    found = set(headings)
    return next((kind for kind in KINDS if kind.headings <= found), None)


def read_table(path: Path) -> tuple[Kind | None, list[Cells], list[Problem]]:
    """Kind, rows and faults of one file.  A file of no known kind has neither rows nor faults."""
    content = path.read_bytes()
    fault = ""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = f"a byte that is not UTF-8 at offset {error.start:,}"
        text = content.decode("latin-1")
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        headings = [heading.strip() for heading in next(lines, [])]
    except csv.Error:
        return None, [], []
    kind = kind_of(headings)
    if kind is None:
        return None, [], []
    if fault:
        return kind, [], [Problem(fault, "a table in UTF-8", file=path.name)]
    repeated = sorted({heading for heading in headings if heading and headings.count(heading) > 1})
    problems = [Problem(f"the heading {name!r} twice", "each heading once", name, path.name, 1) for name in repeated]
    rows: list[Cells] = []
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if any(cell.strip() for cell in cells[len(headings) :]):
                found = f"{len(cells)} cells under {len(headings)} headings"
                allowed = "a cell a heading; quote cells with commas"
                problems.append(Problem(found, allowed, "", path.name, lines.line_num))
                continue
            numbers = {*kind.whole, *kind.positive}
            row = Cells((name, _cell(text, name in numbers)) for name, text in zip(headings, cells, strict=False))
            row.line = lines.line_num
            rows.append(row)
            problems += faults(row, kind, path.name)
    except csv.Error as error:
        problems.append(Problem(str(error), "a table of comma-separated values", "", path.name, lines.line_num))
    return kind, rows, problems


def _cell(text: str, is_number: bool) -> str:
    """The text without blanks around it; "" where it says that nothing is known."""
    text = text.strip()
    return "" if text.lower() in (NO_NUMBERS if is_number else BLANKS) else text


def faults(row: Cells, kind: Kind, file: str) -> list[Problem]:
    """Cells of a row that cannot be the numbers of their headings; rows of the split "context" may hold anything."""
    if row["split"] == "context":
        return []
    checks: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
        (kind.whole, lambda value: value >= 0 and value == math.floor(value), "a whole number from 0"),
        (kind.positive, lambda value: value > 0, "a number above 0"),
    )
    found = []
    for names, right, allowed in checks:
        for name in names:
            text = row[name]
            if not text or (kind.notes and re.match(r"\+?\d[\d.]*[^\d.eE]", text)):
                continue
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value <= LARGEST and right(value)):
                found.append(Problem(repr(shorten(text)), f"{allowed}, to {LARGEST:.0e}", name, file, row.line))
    return found
