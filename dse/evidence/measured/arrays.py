"""Rows of matrix arrays: a cycle-level simulator's counts and stalls, and cycles of register-transfer runs.

One row yields one `Case` for each quantity that it holds, each quantity in a set of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evidence.measured.runs import Case, Row
from hw_models.compute.decoupled import DecoupledArray, LoopNest, nest_cycles
from hw_models.compute.systolic import array_cycles, mapping_efficiency, sram_words
from hw_models.memory.offchip import active_half, off_chip_words, separate_channel_cycles

__all__ = ["is_tuned", "loop_nest", "loop_nest_cases", "systolic_cases"]

DATAFLOWS = {"os": 0, "ws": 1, "is": 2}
#: What identifies a product on an array.
SHAPE = ("dataflow", "rows", "cols", "M", "N", "K")
#: Headings of the simulator's words on and off chip: A, B, C.
SRAM = ("sram_ifmap_reads", "sram_filter_reads", "sram_ofmap_writes_clean")
OFF_CHIP = ("dram_ifmap_reads", "dram_filter_reads", "dram_ofmap_writes")
BUFFERS = ("ifmap_kB", "filter_kB", "ofmap_kB")


def systolic_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Cycles, mapping, words on chip and off chip of one array for one product; stalls behind narrow channels."""
    group = "systolic/" + stem.removeprefix("scalesim_")
    for number, row in enumerate(table, start=1):
        case = Case(
            group, row.get("row_id") or f"{stem}:{number}", "cycle", split=row.get("split") or "",
            inputs=tuple(row[key] for key in SHAPE), traits={key: row[key] for key in SHAPE},
        )  # fmt: skip
        if row.get("cycles_true"):
            yield from _counts(case, row)
        elif row.get("total_cycles"):
            yield from _stalls(case, row)
        else:
            yield replace(case, skipped="no cycles in the row")


def _counts(case: Case, row: Row) -> Iterator[Case]:
    """The case itself with its cycles, and one for each count of the simulator that the row holds."""
    size, array = _product(row)
    yield replace(case, measured=float(row["cycles_true"]), predicted=_one(array_cycles(*size, **array)))
    if row.get("mapping_eff_pct"):
        predicted = 100.0 * _one(mapping_efficiency(*size, **array))
        yield _part(case, "mapping", "%", float(row["mapping_eff_pct"]), predicted)
    for name, heading, words in zip("abc", SRAM, sram_words(*size, **array), strict=True):
        if row.get(heading):
            yield _part(case, f"sram_{name}", "word", float(row[heading]), _one(words))
    if row.get(OFF_CHIP[0]) and row.get(BUFFERS[0]):
        active_a, active_b, _ = _active(row)
        moved = off_chip_words(*size, **array, active_a=active_a, active_b=active_b)
        for name, heading, words in zip("abc", OFF_CHIP, moved, strict=True):
            yield _part(case, f"offchip_{name}", "word", float(row[heading]), _one(words))


def _stalls(case: Case, row: Row) -> Iterator[Case]:
    """Cycles with channels of a given width, from the words that the row says have moved: no test of traffic.

    The simulator counts its last cycle from zero.  Rows that do wait are also a set of their own.
    """
    size, array = _product(row)
    active = _active(row)
    words = tuple(float(row[heading]) for heading in OFF_CHIP)
    cycles = separate_channel_cycles(
        array_cycles(*size, **array), (words[0], words[1], words[2]), (active[0], active[1], 2.0 * active[2]),
        bandwidth=float(row["bw_mode"].removeprefix("USER")),
    )  # fmt: skip
    ran = tuple(row[key] for key in (*SHAPE, *BUFFERS, "bw_mode"))
    found = replace(case, measured=float(row["total_cycles"]) + 1.0, predicted=_one(cycles), inputs=ran)
    yield found
    if float(row["stall_cycles"]) > 0:
        yield replace(found, set=case.set + "_waiting")


def _part(case: Case, name: str, unit: str, measured: float, predicted: float) -> Case:
    found = replace(case, set=f"{case.set}_{name}", unit=unit, measured=measured, predicted=predicted)
    return replace(found, row_id=f"{case.row_id}: {name}")


def _product(row: Row) -> tuple[tuple[float, ...], dict[str, Any]]:
    m, n, k, rows, columns = (float(row[key]) for key in ("M", "N", "K", "rows", "cols"))
    return (m, n, k), {"dataflow": DATAFLOWS[row["dataflow"]], "rows": rows, "columns": columns}


def _active(row: Row) -> tuple[float, ...]:
    return tuple(_one(active_half(1024.0 * float(row[heading]))) for heading in BUFFERS)


# Register-transfer runs of loop nests.

#: Loops of a nest by their letter: channels in and out, output pixels, kernel positions.
LOOPS = "CKPQRSN"
#: The level of a nest that lies off chip.
OUTERMOST = "L3"


def loop_nest_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Cycles of loop nests on a decoupled weight-stationary array, against register-transfer simulation.

    Half of the rows, by a hash of what they ran, were used to tune four constants of the array; they are listed as
    calibration rows and not scored.
    """
    array = DecoupledArray()
    for number, row in enumerate(table, start=1):
        case = Case(
            f"{stem.partition('_')[0]}/rtl", row.get("row_id") or f"{stem}:{number}", "cycle",
            split="calibration" if is_tuned(row) else row.get("split") or "",
            inputs=(identity(row), row["R"], row["stride_h"]),
            traits={key: row[key] for key in ("M", "N", "K", "R", "stride_h", "mapping")},
        )  # fmt: skip
        if not row.get("rtl_cycle"):
            yield replace(case, skipped="no cycles in the row")
        else:
            predicted = _one(nest_cycles(array, loop_nest(row)))
            yield replace(case, measured=float(row["rtl_cycle"]), predicted=predicted)


def identity(row: Row) -> str:
    """What a row ran: product, capacities and loop nest.  It does not depend on the order of the rows."""
    size = "x".join(str(int(row[key])) for key in ("M", "N", "K"))
    return f"{size} sp{row['sp_entries']} acc{row['acc_entries']} {row['mapping']}"


def is_tuned(row: Row) -> bool:
    """Whether constants were tuned on the row: the first byte of the SHA-256 of its `identity` is even."""
    return hashlib.sha256(identity(row).encode()).digest()[0] % 2 == 0


def loop_nest(row: Row) -> LoopNest:
    """The loop nest of a row: the loops of the outermost level repeat a tile, all others are the tile."""
    tile, outer = loops(row["mapping"])
    stride = float(row["stride_h"])
    return LoopNest(
        height=tile["Q"], width=tile["P"], inputs=tile["C"], outputs=tile["K"], kernel_height=tile["R"],
        kernel_width=tile["S"], stride=stride, pixel_tiles=outer["P"] * outer["Q"] * outer["N"],
        output_tiles=outer["K"], reduction_tiles=outer["C"] * outer["R"] * outer["S"],
        all_inputs=float(row["conv_C"]) * float(row["P"]) * float(row["Q"]) * stride * stride,
    )  # fmt: skip


def loops(mapping: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Trip counts of a tile and of the outer loops from text like "L3[WIO] K48 - L1[O] C48 P16 C16X - L0[W] P8".

    A letter and a number are a loop, an X behind it a spatial one; loops of the same letter multiply.
    """
    tile, outer = dict.fromkeys(LOOPS, 1), dict.fromkeys(LOOPS, 1)
    for level in mapping.split(" - "):
        name, _, nest = level.partition("] ")
        found = outer if name.startswith(OUTERMOST) else tile
        for loop in nest.split():
            found[loop[0]] *= int(loop[1:].removesuffix("X"))
    return tile, outer


def _one(column: Any) -> float:
    return float(np.asarray(column).reshape(-1)[0])
