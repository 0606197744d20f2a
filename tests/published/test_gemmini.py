"""A decoupled weight-stationary array behind a cache: cycles by hand, laws, replacement by lot, RTL runs."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.evidence.measured.arrays import identity, is_tuned, loop_nest, loop_nest_cases, loops
from dse.evidence.measured.tables import read_table
from hw_models.compute.decoupled import (
    DecoupledArray,
    LoopNest,
    execute_cycles,
    load_cycles,
    nest_cycles,
    re_read_misses,
    store_cycles,
)

TEXT = "L3[WIO] K48 Q3 R2 - L2[WI] N1 K16X - L1[O] C48 P16 R3 C16X - L0[W] P8"
#: An array without a cost that cannot be counted by hand.
PLAIN = DecoupledArray(issue=8, miss=10, tile_overhead=0, serial_share=0)


def table() -> list[Any]:
    path = Path(os.environ.get("DSE_DATA") or ".") / "gemmini_rtl_cycles.csv"
    if not path.is_file():
        pytest.skip("needs DSE_DATA, a folder with gemmini_rtl_cycles.csv")
    _, rows, problems = read_table(path)
    assert not problems
    return rows


def random_nests(count: int, seed: int) -> LoopNest:
    random = np.random.default_rng(seed)

    def any_of(*choices: int) -> np.ndarray:
        return random.choice(np.array(choices, dtype=float), count)

    kernel = any_of(1, 2, 3, 7)
    nest = LoopNest(
        height=any_of(1, 2, 7, 13, 28), width=any_of(1, 4, 7, 16, 56, 128), inputs=any_of(3, 16, 64, 100, 512),
        outputs=any_of(2, 16, 36, 128, 1000), kernel_height=kernel, kernel_width=kernel, stride=any_of(1, 2),
        pixel_tiles=any_of(1, 5, 98), output_tiles=any_of(1, 2, 16), reduction_tiles=any_of(1, 2, 9),
    )  # fmt: skip
    return replace(nest, all_inputs=nest.tiles * nest.inputs * any_of(1, 4))


def row_of(value: Any, row: int) -> Any:
    return type(value)(**{f.name: np.asarray(getattr(value, f.name)).reshape(-1)[row] for f in fields(value)})


# By hand.


def test_a_mapping_is_a_tile_and_the_loops_around_it() -> None:
    tile, outer = loops(TEXT)
    assert tile == {"C": 768, "K": 16, "P": 128, "Q": 1, "R": 3, "S": 1, "N": 1}
    assert outer == {"C": 1, "K": 48, "P": 1, "Q": 3, "R": 2, "S": 1, "N": 1}


def test_full_blocks_take_a_cycle_a_pixel_and_short_ones_the_controller() -> None:
    # 32 pixels in 2 instructions, 4 x 2 blocks of channels.
    assert execute_cycles(PLAIN, LoopNest(height=1, width=32, inputs=64, outputs=32)) == 32 * 8
    # 7 lines of 4 pixels: 28 pixels, but 7 instructions of 8 cycles.
    assert execute_cycles(PLAIN, LoopNest(height=7, width=4, inputs=64, outputs=32)) == 56 * 8
    # 3 input channels use 3 of 16 rows of the array, at each of 49 kernel positions.
    stem = LoopNest(height=8, width=16, inputs=3, outputs=64, kernel_height=7, kernel_width=7, stride=2)
    assert execute_cycles(PLAIN, stem) == 128 * 49 * 4


def test_what_is_in_the_cache_takes_a_cycle_a_beat_and_what_is_not_a_latency_a_request() -> None:
    # A: 32 pixels of 64 B, a line and 4 beats each; B: 64 rows of 64 B.  B is read for the first time.
    nest = LoopNest(height=1, width=32, inputs=64, outputs=64)
    assert load_cycles(PLAIN, nest) == 32 * 4 + 64 * 10
    assert load_cycles(PLAIN, replace(nest, all_inputs=32 * 64)) == 32 * 10 + 64 * 10
    # Of 4 tiles of pixels the first alone finds weights missing.
    assert load_cycles(PLAIN, replace(nest, pixel_tiles=4)) == 32 * 4 + 64 * (10 + 3 * 4) / 4
    assert store_cycles(PLAIN, nest) == 32 * 4
    assert store_cycles(PLAIN, replace(nest, reduction_tiles=4)) == 32


def test_a_tile_waits_for_its_slowest_part_and_the_ends_are_not_hidden() -> None:
    nest = LoopNest(height=1, width=32, inputs=64, outputs=64, pixel_tiles=4)
    load, products, store = 128 + 64 * (10 + 3 * 4) / 4, 32 * 16, 128
    assert load < products
    assert nest_cycles(PLAIN, nest) == 4 * products + load + store
    serial = replace(PLAIN, serial_share=1, tile_overhead=100)
    assert nest_cycles(serial, nest) == 4 * (products + load + store + 100)


def test_weights_a_power_of_two_apart_meet_in_few_sets_and_miss_when_read_again() -> None:
    # 1024 rows: 512 B apart they use 128 of 1024 sets, 8 lines in each beside the inputs; 256 B apart twice as many.
    def load(output_tiles: int) -> float:
        nest = LoopNest(height=7, width=14, inputs=1024, outputs=16, pixel_tiles=2, output_tiles=output_tiles)
        return float(load_cycles(PLAIN, nest))

    assert load(32) > 1.3 * load(16)
    # A pitch of one line more spreads them over all sets.
    assert load(36) < load(32)


# Laws.


@pytest.mark.parametrize(
    ("name", "factor"),
    [("bus", 2.0), ("cache", 2.0), ("issue", 0.7), ("miss", 0.7), ("tile_overhead", 0.5), ("serial_share", 0.5)],
)
def test_a_better_array_is_never_slower(name: str, factor: float) -> None:
    nests, array = random_nests(997, 1), DecoupledArray()
    before = nest_cycles(array, nests)
    after = nest_cycles(replace(array, **{name: factor * getattr(array, name)}), nests)
    assert (after <= before * (1 + 1e-12)).all() and (after < before).any()


def test_no_nest_beats_its_cells_nor_its_bus() -> None:
    nests, array = random_nests(997, 2), DecoupledArray()
    work = nests.tiles * nests.weight_rows * nests.outputs * nests.height * nests.width
    pixels = nests.height * nests.width
    moved = nests.tiles * nests.outputs * (nests.weight_rows + pixels / nests.reduction_tiles)
    found = nest_cycles(array, nests)
    assert (found >= work / array.size**2).all()
    assert (found >= moved / (2 * array.bus)).all()
    apart = execute_cycles(array, nests) + load_cycles(array, nests) + store_cycles(array, nests)
    assert (found <= nests.tiles * (apart + array.tile_overhead) * (1 + 1e-12)).all()


def test_a_nest_alone_has_the_bits_of_its_batch() -> None:
    nests, array = random_nests(37, 3), DecoupledArray()
    batch = nest_cycles(array, nests)
    for row in range(37):
        assert float(nest_cycles(array, row_of(nests, row))) == batch[row]


def test_misses_of_lines_read_in_turn_are_those_of_random_replacement() -> None:
    # A set of 8 ways whose victims are drawn by lot, read in turn.
    random = np.random.default_rng(4)
    for lines in (4, 10, 14, 24):
        held = [-1] * 8
        missed = 0
        for turn in range(400 * lines):
            line = turn % lines
            if line not in held:
                missed += turn >= 100 * lines
                held[random.integers(8)] = line
        assert float(re_read_misses(lines, 8)) == pytest.approx(missed / (300 * lines), abs=0.08)


# Cases.


def test_half_of_the_rows_are_named_by_a_hash_that_does_not_depend_on_their_order() -> None:
    row = {"M": "128", "N": "768", "K": "768", "sp_entries": "110592", "acc_entries": "256",
           "mapping": "L3[WIO] K48 - L2[WI] N1 K16X - L1[O] C48 P16 C16X - L0[W] P8"}  # fmt: skip
    assert identity(row) == f"128x768x768 sp110592 acc256 {row['mapping']}"
    assert is_tuned(row) == is_tuned(dict(reversed(row.items())))
    names = [is_tuned(row | {"M": str(m)}) for m in range(400)]
    assert 160 < sum(names) < 240


def test_cycles_of_the_rows_that_were_not_tuned_on_are_within_15_percent_in_the_median() -> None:
    rows = table()
    cases = list(loop_nest_cases(rows, "gemmini_rtl_cycles"))
    scored = [case for case in cases if case.split != "calibration"]
    assert len(cases) == 111 and {case.set for case in cases} == {"gemmini/rtl"}
    assert 40 <= len(scored) <= 71
    errors = np.array([case.predicted / case.measured - 1 for case in scored])  # type: ignore[operator]
    assert np.median(np.abs(errors)) <= 0.15
    assert abs(errors.mean()) <= 0.1
    # The same of layers of which no row was tuned on.
    layers = {tuple(case.traits[key] for key in "MNKR") for case in cases if case.split == "calibration"}
    unseen = [abs(e) for e, case in zip(errors, scored, strict=True)
              if tuple(case.traits[key] for key in "MNKR") not in layers]  # fmt: skip
    assert len(unseen) >= 20 and np.median(unseen) <= 0.15


def test_the_model_is_nearer_than_the_products_alone() -> None:
    rows = [row for row in table() if not is_tuned(row)]
    measured = np.array([float(row["rtl_cycle"]) for row in rows])
    ideal = np.array([float(row["macs"]) for row in rows]) / 256
    nests = [nest_cycles(DecoupledArray(), loop_nest(row)) for row in rows]
    assert np.median(np.abs(np.array(nests) / measured - 1)) < np.median(np.abs(ideal / measured - 1)) / 2
