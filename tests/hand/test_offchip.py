"""Off-chip words of an array behind three buffers, and its stalls: by hand, laws, a walk of folds, a simulator."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.evidence.measured.arrays import systolic_cases
from hw_models.compute.systolic import array_cycles, sram_words
from hw_models.memory.offchip import active_half, off_chip_words, separate_channel_cycles, shared_channel_cycles

OS, WS, IS = 0, 1, 2


def reference(name: str) -> dict[str, np.ndarray]:
    folder = os.environ.get("DSE_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"needs DSE_DATA, a folder with {name}")
    with (Path(folder) / name).open() as file:
        rows = [row for row in csv.DictReader(file) if row["ifmap_kB"]]
    columns: dict[str, np.ndarray] = {"dataflow": np.array([("os", "ws", "is").index(row["dataflow"]) for row in rows])}
    for field in rows[0]:
        if field not in ("mode", "dataflow", "bw_mode"):
            columns[field] = np.array([float(row[field]) for row in rows])
    width = [row["bw_mode"].removeprefix("USER").removeprefix("CALC") for row in rows]
    columns["bandwidth"] = np.array([float(words or "nan") for words in width])
    return columns


def random_products(count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    m, n, k = np.floor(np.exp(random.uniform(0, np.log(200), (3, count))))
    return {
        "m": m, "n": n, "k": k, "dataflow": random.integers(0, 3, count), "rows": random.choice([2, 5, 16], count),
        "columns": random.choice([3, 7, 16], count),
    }  # fmt: skip


# By hand.


def test_half_a_buffer_of_64_kib_is_32750_words_in_whole_hundredths() -> None:
    assert active_half(65536) == 50 * 655 == 32750
    assert active_half(65536, parts=2) == 32768


def test_an_operand_that_does_not_fit_is_read_once_a_tile_of_columns() -> None:
    # 8 x 8 array, M = 100, N = 24, K = 10: 3 tiles of columns; A holds 1000 words.
    for active, times in ((1000, 1), (999, 3)):
        a, b, c = off_chip_words(100, 24, 10, dataflow=WS, rows=8, columns=8, active_a=active, active_b=0)
        assert (a, b, c) == (times * 1000, 240, 2 * 2400)


def test_output_stationary_keeps_the_weights_of_one_tile_of_columns() -> None:
    # 13 tiles of rows; a tile of weights has K x 8 = 80 words, K x 3 = 30 where only 3 columns are used.
    for n, active, times in ((24, 80, 1), (24, 79, 13), (3, 30, 1), (3, 29, 13)):
        _, b, c = off_chip_words(100, n, 10, dataflow=OS, rows=8, columns=8, active_a=0, active_b=active)
        assert (b, c) == (times * n * 10, 100 * n)
    assert off_chip_words(8, 24, 10, dataflow=OS, rows=8, columns=8, active_a=0, active_b=0)[1] == 240


def test_an_array_waits_for_the_slowest_of_its_channels() -> None:
    words, resident = (900.0, 500.0, 300.0), (100.0, 100.0, 400.0)
    assert separate_channel_cycles(50.0, words, resident, bandwidth=4.0) == 200
    assert separate_channel_cycles(250.0, words, resident, bandwidth=4.0) == 250


def test_a_shared_channel_fills_then_streams_then_drains() -> None:
    words = (900.0, 500.0, 300.0)
    # 150 words before, 50 after, 1500 beside the array: 37.5 + 375 + 12.5, or the array in the middle.
    assert shared_channel_cycles(100.0, words, first_fill=150, last_drain=50, bandwidth=4.0) == 1700 / 4
    assert shared_channel_cycles(1000.0, words, first_fill=150, last_drain=50, bandwidth=4.0) == 1000 + 200 / 4


# Laws.


def test_more_of_a_buffer_never_moves_more_and_never_less_than_each_operand_once() -> None:
    shape = random_products(997, 1)
    size = np.floor(np.exp(np.random.default_rng(2).uniform(0, 11, 997)))
    once = np.array([shape["m"] * shape["k"], shape["k"] * shape["n"], shape["m"] * shape["n"]])
    small = np.array(off_chip_words(**shape, active_a=size, active_b=size))
    large = np.array(off_chip_words(**shape, active_a=2 * size, active_b=2 * size))
    ample = np.array(off_chip_words(**shape, active_a=1e9, active_b=1e9))
    assert (large <= small).all() and (ample <= large).all() and (large < small).any()
    np.testing.assert_array_equal(ample[:2], once[:2])
    assert (ample[2] >= once[2]).all()


def test_off_chip_words_never_exceed_the_words_between_array_and_sram() -> None:
    shape = random_products(997, 3)
    moved = np.array(off_chip_words(**shape, active_a=0, active_b=0))
    on_chip = np.array(sram_words(**shape))
    assert (moved <= on_chip).all()
    np.testing.assert_array_equal(moved[2], on_chip[2])


def test_a_wider_channel_is_never_slower_and_a_wide_one_leaves_the_array_alone() -> None:
    shape, random = random_products(499, 4), np.random.default_rng(5)
    cycles, words = array_cycles(**shape), off_chip_words(**shape, active_a=100, active_b=100)
    resident = (100.0, 100.0, 200.0)
    width = np.exp(random.uniform(-2, 6, 499))

    def separate(bandwidth: Any) -> Any:
        return separate_channel_cycles(cycles, words, resident, bandwidth=bandwidth)

    def shared(bandwidth: Any) -> Any:
        return shared_channel_cycles(cycles, words, first_fill=50, last_drain=20, bandwidth=bandwidth)

    for wait in (separate, shared):
        narrow, wide = wait(width), wait(1.5 * width)
        assert (wide <= narrow).all() and (wide < narrow).any() and (narrow >= cycles).all()
        np.testing.assert_allclose(wait(1e12), cycles, rtol=1e-9)


def test_a_shared_channel_is_between_the_longer_of_array_and_channel_and_their_sum() -> None:
    shape, random = random_products(499, 6), np.random.default_rng(7)
    cycles, words = array_cycles(**shape), off_chip_words(**shape, active_a=0, active_b=0)
    channel = (words[0] + words[1] + words[2]) / 3.0
    fill, drain = np.exp(random.uniform(0, 12, (2, 499)))
    found = shared_channel_cycles(cycles, words, first_fill=fill, last_drain=drain, bandwidth=3.0)
    assert (found >= np.maximum(cycles, channel) * (1 - 1e-12)).all()
    assert (found <= (cycles + channel) * (1 + 1e-12)).all()


def test_a_row_alone_has_the_bits_of_its_batch() -> None:
    shape = random_products(31, 8)
    batch = off_chip_words(**shape, active_a=777, active_b=333)
    for row in range(31):
        alone = off_chip_words(**{name: value[row] for name, value in shape.items()}, active_a=777, active_b=333)
        assert [float(x) for x in alone] == [float(column[row]) for column in batch]


# An oracle that shares no code: every fold in turn, a buffer that remembers what it holds.


def walked(m: int, n: int, k: int, dataflow: int, rows: int, columns: int, active: list[float]) -> list[int]:
    on_rows, on_columns = {OS: (m, n), WS: (k, n), IS: (k, m)}[dataflow]
    rows_of = [range(start, min(start + rows, on_rows)) for start in range(0, on_rows, rows)]
    columns_of = [range(start, min(start + columns, on_columns)) for start in range(0, on_columns, columns)]
    counts = [0, 0, 0]
    pass_a, pass_b = [], []
    for across in columns_of:
        for down in rows_of:
            pass_a.append({OS: (down, range(k)), WS: (range(m), down), IS: (across, down)}[dataflow])
            pass_b.append({OS: (range(k), across), WS: (down, across), IS: (down, range(n))}[dataflow])
            counts[2] += {OS: len(down) * len(across), WS: m * len(across), IS: len(across) * n}[dataflow]
    # What the innermost loop that repeats an operand runs over must fit, or it is fetched anew each time.
    whole_a, whole_b = m * k <= active[0], k * n <= active[1]
    tile_b = k * min(columns, n) <= active[1]
    held: set[tuple[range, range]] = set()
    for tile in pass_a:
        if not (whole_a and tile in held):
            counts[0] += len(tile[0]) * len(tile[1])
        held.add(tile)
    held = set()
    for tile in pass_b:
        if not ((tile_b if dataflow == OS else whole_b) and tile in held):
            counts[1] += len(tile[0]) * len(tile[1])
        held.add(tile)
    return counts


@pytest.mark.parametrize("dataflow", [OS, WS, IS])
def test_words_equal_a_walk_over_all_folds(dataflow: int) -> None:
    shape = random_products(60, 9 + dataflow) | {"dataflow": np.full(60, dataflow)}
    active = np.floor(np.exp(np.random.default_rng(20).uniform(0, 10, (2, 60))))
    found = np.array(off_chip_words(**shape, active_a=active[0], active_b=active[1]))
    for row in range(60):
        m, n, k, rows, columns = (int(shape[name][row]) for name in ("m", "n", "k", "rows", "columns"))
        assert found[:, row].tolist() == walked(m, n, k, dataflow, rows, columns, active[:, row].tolist())


# Literature: the cycle-level simulator SCALE-Sim v2.


def test_words_off_chip_equal_the_simulator_where_its_rules_are_known() -> None:
    data = reference("scalesim_reference.csv")
    a, b, c = off_chip_words(
        data["M"], data["N"], data["K"], dataflow=data["dataflow"], rows=data["rows"], columns=data["cols"],
        active_a=active_half(1024 * data["ifmap_kB"]), active_b=active_half(1024 * data["filter_kB"]),
    )  # fmt: skip
    output = data["dataflow"] == OS
    assert a.size == 254 and output.sum() == 85
    np.testing.assert_array_equal(a, data["dram_ifmap_reads"])
    np.testing.assert_array_equal(b[~output], data["dram_filter_reads"][~output])
    assert (b[output] == data["dram_filter_reads"][output]).sum() >= 74
    np.testing.assert_allclose(c, data["dram_ofmap_writes"], rtol=0.002)


def test_stalls_behind_narrow_channels_are_those_of_the_simulator() -> None:
    data = reference("scalesim_user_bw_stalls.csv")
    active = [active_half(1024 * data[name]) for name in ("ifmap_kB", "filter_kB", "ofmap_kB")]
    alone = array_cycles(
        data["M"], data["N"], data["K"], dataflow=data["dataflow"], rows=data["rows"], columns=data["cols"]
    )
    np.testing.assert_array_equal(alone - 1, data["total_cycles"] - data["stall_cycles"])
    words = (data["dram_ifmap_reads"], data["dram_filter_reads"], data["dram_ofmap_writes"])
    resident = (active[0], active[1], 2 * active[2])
    found = separate_channel_cycles(alone, words, resident, bandwidth=data["bandwidth"])
    error = np.abs(found / (data["total_cycles"] + 1) - 1)
    waits = data["stall_cycles"] > 0
    assert (error.size, waits.sum()) == (109, 58)
    assert np.median(error) <= 0.005 and np.median(error[waits]) <= 0.03


def test_a_row_of_the_simulator_is_a_case_for_each_of_its_counts() -> None:
    # One fold: 7 x 5 outputs on 8 x 8, K = 3: 3 + 8 + 8 - 2 cycles, all operands once.
    row = {"dataflow": "os", "rows": "8", "cols": "8", "M": "7", "N": "5", "K": "3", "ifmap_kB": "64",
           "filter_kB": "64", "ofmap_kB": "64", "cycles_true": "17", "mapping_eff_pct": "54.6875",
           "sram_ifmap_reads": "21", "sram_filter_reads": "15", "sram_ofmap_writes_clean": "35",
           "dram_ifmap_reads": "21",
           "dram_filter_reads": "15", "dram_ofmap_writes": "35"}  # fmt: skip
    cases = list(systolic_cases([row], "scalesim_try"))
    assert [case.set.removeprefix("systolic/try") for case in cases] == [
        "", "_mapping", "_sram_a", "_sram_b", "_sram_c", "_offchip_a", "_offchip_b", "_offchip_c"
    ]  # fmt: skip
    assert all(case.predicted == case.measured for case in cases)
    stalled = {name: value for name, value in row.items() if name != "cycles_true"}
    stalled |= {"total_cycles": "16", "stall_cycles": "0", "bw_mode": "USER4"}
    assert [(case.set, case.predicted, case.measured) for case in systolic_cases([stalled], "scalesim_try")] == [
        ("systolic/try", 17, 17)
    ]
