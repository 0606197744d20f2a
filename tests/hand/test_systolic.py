"""Systolic arrays: cycle counts by hand, laws, a register-level oracle, and a published cycle-level simulator."""

from __future__ import annotations

import csv
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hw_models import compute
from hw_models.chip import DATAFLOW, Chip
from hw_models.compute.systolic import (
    array_cycles,
    chosen_dataflow,
    fold_cycles,
    mapped,
    mapping_efficiency,
    matmul_time,
    partial_sum_words,
    reduction_words,
    sram_words,
)
from hw_models.compute.vector import vector_time

OS, WS, IS, BEST = 0, 1, 2, 3
#: Cycles over hertz are rounded once on either side of a comparison.
ROUNDING = 1 + 4 * np.finfo(float).eps


def reference(name: str) -> dict[str, np.ndarray]:
    folder = os.environ.get("DSE_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"needs DSE_DATA, a folder with {name}")
    with (Path(folder) / name).open() as file:
        rows = list(csv.DictReader(file))
    columns: dict[str, np.ndarray] = {"dataflow": np.array([DATAFLOW.index(row["dataflow"]) for row in rows])}
    for field in rows[0]:
        if field not in ("mode", "dataflow", "layer", "bw_mode"):
            columns[field] = np.array([float(row[field] or "nan") for row in rows])
    return columns


def one_array(rows: int, columns: int, **fields: object) -> Chip:
    return Chip(**{"array_count": 1, "array_rows": rows, "array_columns": columns, **fields})  # type: ignore[arg-type]


def sizes(chip: Chip) -> dict[str, np.ndarray]:
    return {"rows": chip.array_rows, "columns": chip.array_columns}


def random_products(count: int, seed: int, largest: int = 3000) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    sizes = np.floor(np.exp(random.uniform(0, np.log(largest), (4, count))))
    sizes[3] = random.integers(1, 40, count)
    return tuple(sizes)


def random_chip(count: int, seed: int) -> Chip:
    random = np.random.default_rng(seed)
    return Chip(
        array_count=random.integers(1, 130, count),
        array_rows=random.choice([1, 7, 16, 32, 128], count),
        array_columns=random.choice([1, 5, 16, 64, 128], count),
        dataflow=random.integers(0, 3, count),
        double_buffered=random.integers(0, 2, count),
        clock=random.choice([7e8, 1e9, 1.41e9], count),
    )


# By hand.


def test_a_weight_stationary_product_of_128_cubed_takes_510_cycles_on_128_and_894_on_256() -> None:
    # One fold: 128 + 2 x 128 + 128 - 2, and 128 + 2 x 256 + 256 - 2: a larger array is not faster.
    assert array_cycles(128, 128, 128, dataflow=WS, rows=128, columns=128) == 510
    assert array_cycles(128, 128, 128, dataflow=WS, rows=256, columns=256) == 894


@pytest.mark.parametrize(("m", "cycles", "percent"), [(256, 7656, 40.1), (1, 4596, 0.26)])
def test_a_matrix_vector_product_uses_almost_nothing_of_an_array(m: int, cycles: int, percent: float) -> None:
    # K = 768, N = 256 on 128 x 128: 6 x 2 folds of M + 2 x 128 + 128 - 2 cycles.
    found = array_cycles(m, 256, 768, dataflow=WS, rows=128, columns=128)
    assert found == cycles
    assert 100 * m * 256 * 768 / (found * 128 * 128) == pytest.approx(percent, rel=0.01)


def test_folds_whose_weights_are_in_place_take_the_278400_cycles_of_the_wham_paper() -> None:
    # 64 folds of 4096 + 128 + 128 - 2 (94.16% of peak): loads hidden, fills not.  It lies between our two arrays.
    m, n, k = 4096, 1024, 1024
    published = 64 * fold_cycles(OS, 128, 128, m)
    assert published == 278_400
    assert m * n * k / published / 128**2 == pytest.approx(0.9416, abs=5e-5)
    serial, buffered = (
        array_cycles(m, n, k, dataflow=WS, rows=128, columns=128, double_buffered=option) for option in (0, 1)
    )
    assert serial == 64 * (4096 + 3 * 128 - 2) == 286_592
    assert buffered == 128 + 63 * 4096 + 4096 + 2 * 128 - 2 == 262_526
    assert buffered < published < serial


def test_sixteen_times_the_cells_give_at_most_thirteen_times_the_speed_at_ragged_edges() -> None:
    # K = 147, N = 64: 10 x 4 folds on 16 x 16, 3 x 1 on 64 x 64.
    small, large = (array_cycles(1e9, 64, 147, dataflow=WS, rows=size, columns=size) for size in (16, 64))
    assert small / large == pytest.approx(40 / 3, rel=1e-6)
    assert 147 / (10 * 16) == pytest.approx(0.919, abs=5e-4)
    assert 147 / (3 * 64) == pytest.approx(0.766, abs=5e-4)


def test_seconds_are_cycles_over_hertz() -> None:
    # One fold of 1 x 1: M + 2 + 1 - 2 cycles.
    assert matmul_time(one_array(1, 1, clock=1e9), 999, 1, 1, 1, precision="bf16") == pytest.approx(1.000e-6, rel=1e-12)
    assert matmul_time(one_array(1, 1, clock=940e6), 999_999, 1, 1, 1, precision="bf16") == pytest.approx(
        1.0638e-3, rel=1e-4
    )
    for clock in (0.0, -1.0):
        with pytest.raises(ValueError, match="clock"):
            one_array(1, 1, clock=clock)


def test_a_ragged_last_round_is_cut_along_the_stream() -> None:
    # Six folds on four arrays: a round of four, then two folds in two pieces of 500 each.
    chip = Chip(array_count=4, array_rows=2, array_columns=3, dataflow="ws", double_buffered=1, clock=1.0)
    assert matmul_time(chip, 1000, 3, 2, 6, precision="bf16") == 2 + 1000 + 500 + 2 + 3 - 2
    # Of seven, three are left, too many to cut: one stream of 7000 in four lengths of 1750 instead of 1000 + 1000.
    # An array meets up to three folds and does the shortest part last, so that no swap of R = 2 cycles shows.
    assert matmul_time(chip, 1000, 3, 2, 7, precision="bf16") == 2 + 1750 + 2 + 3 - 2
    # A serial array waits for a fill, 2 + 2 + 3 - 2, at each of its three folds: 2 x (1000 + 5) is beaten too.
    serial = replace(chip, double_buffered=0)
    assert matmul_time(serial, 1000, 3, 2, 7, precision="bf16") == 1750 + 3 * 5


def test_output_stationary_arrays_pay_to_add_the_pieces_of_k() -> None:
    # One fold, K = 1002, R = 2, on 4 arrays: 2 + 1000/4 instead of 1002 streams, and 2 x 3 tiles exchanged.
    chip = Chip(array_count=4, array_rows=2, array_columns=3, dataflow="os", double_buffered=0, clock=1.0)
    assert matmul_time(chip, 2, 3, 1002, 1, precision="bf16") == 2 + 250 + 2 + 3 - 2
    assert reduction_words(chip, 2, 3, 1002, 1) == 2 * 3 * (2 * 3)
    assert reduction_words(chip, 2, 3, 2, 1) == 0
    # Seven folds of K = 1000: four lengths of 1750 with three cuts; an array waits for three fills of 2 + 3 - 2 and
    # exchanges half of a tile at both of its ends, 2 x 2 / 2 rows.
    assert matmul_time(chip, 2, 3, 1000, 7, precision="bf16") == 1750 + 3 * 3 + 2
    assert reduction_words(chip, 2, 3, 1000, 7) == 2 * 3 * (2 * 3)
    weights = Chip(array_count=4, array_rows=2, array_columns=3, dataflow="ws", clock=1.0)
    assert reduction_words(weights, 1000, 3, 2, 1) == 0


def test_vector_time_is_operations_over_lanes_and_clock() -> None:
    assert vector_time(Chip(vector_lanes=128, clock=1e9), 128e9) == 1.0


# Laws.


def test_each_dimension_is_mapped_once() -> None:
    assert [tuple(map(int, mapped(dataflow, 2, 3, 5))) for dataflow in (OS, WS, IS)] == [
        (2, 3, 5),
        (5, 3, 2),
        (5, 2, 3),
    ]


def test_double_buffering_is_never_slower_and_never_beats_the_peak() -> None:
    m, n, k, _ = random_products(4001, 1)
    chip = random_chip(4001, 2)
    shape = {"dataflow": chip.dataflow, "rows": chip.array_rows, "columns": chip.array_columns}
    serial, buffered = (array_cycles(m, n, k, **shape, double_buffered=option) for option in (0, 1))
    assert np.all(buffered <= serial) and np.any(buffered < serial)
    assert np.all(buffered * chip.array_rows * chip.array_columns >= m * n * k)


def test_more_arrays_or_more_clock_are_never_slower() -> None:
    count = 2003
    products, chip = random_products(count, 3), random_chip(count, 4)
    shape = {name: getattr(chip, name) for name in ("array_rows", "array_columns", "dataflow", "double_buffered")}
    arrays = np.arange(1, 120)[:, None]
    time = matmul_time(Chip(array_count=arrays, clock=1e9, **shape), *products, precision="bf16")
    assert time.shape == (119, count)
    assert np.all(np.diff(time, axis=0) <= 0) and np.all(time[-1] <= time[0])
    faster = matmul_time(Chip(array_count=arrays, clock=1.1e9, **shape), *products, precision="bf16")
    assert np.all(faster < time)


def test_eight_cores_are_faster_than_one_on_every_large_product() -> None:
    for dataflow in DATAFLOW:
        one, eight = (
            matmul_time(Chip(array_count=count, dataflow=dataflow), 2048, 2048, 2048, 1, precision="bf16")
            for count in (1, 8)
        )
        assert 7.0 < one / eight <= 8.0


def test_no_schedule_beats_the_peak() -> None:
    products, chip = random_products(4001, 5), random_chip(4001, 6)
    m, n, k, groups = products
    time = matmul_time(chip, *products, precision="bf16")
    assert np.all(2 * m * n * k * groups <= chip.peak_flops("bf16") * time * (1 + 1e-12))


def test_one_array_and_one_product_equal_array_cycles() -> None:
    m, n, k, _ = random_products(3001, 7)
    chip = random_chip(3001, 8)
    alone = Chip(
        array_count=1,
        array_rows=chip.array_rows,
        array_columns=chip.array_columns,
        dataflow=chip.dataflow,
        double_buffered=chip.double_buffered,
        clock=1.0,
    )
    cycles = array_cycles(
        m,
        n,
        k,
        dataflow=chip.dataflow,
        rows=chip.array_rows,
        columns=chip.array_columns,
        double_buffered=chip.double_buffered,
    )
    np.testing.assert_array_equal(matmul_time(alone, m, n, k, 1, precision="bf16"), cycles)


def test_products_of_a_batch_cost_what_they_cost_one_by_one_on_one_array() -> None:
    m, n, k, groups = random_products(997, 21)
    serial = replace(random_chip(997, 22), array_count=1, double_buffered=0)
    together, apart = (matmul_time(serial, m, n, k, count, precision="bf16") for count in (groups, 1))
    np.testing.assert_allclose(together, groups * apart, rtol=1e-12)


def test_a_batch_is_never_slower_than_its_products_one_after_another() -> None:
    m, n, k, groups = random_products(9973, 21)
    chip = random_chip(9973, 22)
    batch, single = (matmul_time(chip, m, n, k, count, precision="bf16") for count in (groups, 1))
    assert (batch >= single).all() and (batch <= groups * single * ROUNDING).all()
    assert (batch < groups * single * 0.99).any()


@pytest.mark.parametrize("dataflow", [OS, WS, IS, BEST])
def test_doubling_a_product_or_its_batch_never_more_than_doubles_the_time(dataflow: int) -> None:
    m, n, k, groups = random_products(9973, 27)
    chip = replace(random_chip(9973, 28), dataflow=dataflow)
    once = matmul_time(chip, m, n, k, groups, precision="bf16")
    for doubled in ((2 * m, n, k, groups), (m, 2 * n, k, groups), (m, n, 2 * k, groups), (m, n, k, 2 * groups)):
        twice = matmul_time(chip, *doubled, precision="bf16")
        assert (twice <= 2 * once * ROUNDING).all() and (twice >= once).all()


def test_twice_the_arrays_are_at_most_twice_as_fast() -> None:
    products, chip = random_products(9973, 29), random_chip(9973, 30)
    twice = replace(chip, array_count=2 * chip.array_count)
    ratio = matmul_time(chip, *products, precision="bf16") / matmul_time(twice, *products, precision="bf16")
    assert (ratio >= 1).all() and (ratio <= 2 * ROUNDING).all()


def test_a_transposed_product_on_a_transposed_array_takes_the_same_time() -> None:
    # (A B)^T = B^T A^T swaps M and N: outputs turn with the array, and a weight becomes an input.
    m, n, k, groups = random_products(4001, 31)
    chip = random_chip(4001, 32)
    shape = {"rows": chip.array_rows, "columns": chip.array_columns, "double_buffered": 0}
    turned = {**shape, "rows": shape["columns"], "columns": shape["rows"]}
    np.testing.assert_array_equal(
        array_cycles(m, n, k, dataflow=OS, **shape), array_cycles(n, m, k, dataflow=OS, **turned)
    )
    weights, inputs = (replace(chip, dataflow=dataflow) for dataflow in (WS, IS))
    np.testing.assert_array_equal(
        matmul_time(weights, m, n, k, groups, precision="bf16"), matmul_time(inputs, n, m, k, groups, precision="bf16")
    )
    # Outputs leave an array through its columns, so that swaps and exchanges tell rows from columns; a square does not.
    for dataflow in (OS, BEST):
        square = replace(chip, dataflow=dataflow, array_columns=chip.array_rows)
        there, back = (matmul_time(square, *size, k, groups, precision="bf16") for size in ((m, n), (n, m)))
        np.testing.assert_array_equal(there, back)
    words, flipped = sram_words(m, n, k, dataflow=WS, **sizes(chip)), sram_words(n, m, k, dataflow=IS, **sizes(chip))
    for one, other in zip(words, (flipped[1], flipped[0], flipped[2]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_best_dataflow_is_the_fastest_of_the_three_for_each_product() -> None:
    # One array of 4 x 4, serial.  2 x 2 x 1000: os one fold of 1000 + 6, ws and is 250 folds of 2 + 10.
    # 1000 x 4 x 4: ws one fold of 1000 + 10, os 250 folds of 4 + 6, is 250 of 4 + 10.  4 x 1000 x 4: is by symmetry.
    chip = one_array(4, 4, clock=1.0, double_buffered=0, dataflow="best")
    for (m, n, k), dataflow, cycles in (((2, 2, 1000), OS, 1006), ((1000, 4, 4), WS, 1010), ((4, 1000, 4), IS, 1010)):
        assert matmul_time(chip, m, n, k, 1, precision="bf16") == cycles
        assert chosen_dataflow(chip, m, n, k, 1) == dataflow
    # Equally fast: 4 x 4 x 4 os 4 + 6, ws and is 4 + 10; a 1 x 1 array of 1: os 1, ws and is 2.
    assert chosen_dataflow(chip, 4, 4, 4, 1) == OS


def test_the_best_dataflow_is_never_slower_than_any_and_as_fast_as_one() -> None:
    products, chip = random_products(9973, 33), random_chip(9973, 34)
    each = np.array([
        matmul_time(replace(chip, dataflow=dataflow), *products, precision="bf16") for dataflow in (OS, WS, IS)
    ])  # fmt: skip
    free = replace(chip, dataflow=BEST)
    best = matmul_time(free, *products, precision="bf16")
    np.testing.assert_array_equal(best, each.min(axis=0))
    chosen = chosen_dataflow(free, *products).astype(int)
    np.testing.assert_array_equal(np.take_along_axis(each, chosen[None, :], 0)[0], best)
    assert all((chosen == dataflow).sum() > 100 for dataflow in (OS, WS, IS))
    # The words and the exchange are those of the dataflow that runs.
    fixed = replace(chip, dataflow=chosen)
    np.testing.assert_array_equal(reduction_words(free, *products), reduction_words(fixed, *products))
    np.testing.assert_array_equal(chosen_dataflow(fixed, *products), chosen)


def test_designs_with_a_dataflow_of_their_own_keep_their_bits_beside_one_that_chooses() -> None:
    products, chip = random_products(997, 35), random_chip(997, 36)
    alone = matmul_time(chip, *products, precision="bf16")
    mixed = replace(chip, dataflow=np.where(np.arange(997) % 3, chip.dataflow, BEST))
    together = matmul_time(mixed, *products, precision="bf16")
    own = np.arange(997) % 3 > 0
    np.testing.assert_array_equal(together[own], alone[own])
    assert (together[~own] <= alone[~own]).all() and (together[~own] < alone[~own]).any()


def test_words_and_cycles_of_one_array_need_a_dataflow_that_is_chosen() -> None:
    shape = {"dataflow": BEST, "rows": 4, "columns": 4}
    for count in (array_cycles, sram_words, mapping_efficiency):
        with pytest.raises(ValueError, match="chosen_dataflow"):
            count(2, 2, 2, **shape)
    with pytest.raises(ValueError, match="chosen_dataflow"):
        partial_sum_words(2, 2, 2, dataflow=BEST, rows=4)


def test_arrays_that_share_a_batch_do_all_of_its_work() -> None:
    # Fills aside, the cycles of all arrays hold every fold's stream: P x time >= groups x folds x T.
    m, n, k, groups = random_products(997, 23)
    chip = random_chip(997, 24)
    on_rows, on_columns, stream = mapped(chip.dataflow, m, n, k)
    folds = groups * np.ceil(on_rows / chip.array_rows) * np.ceil(on_columns / chip.array_columns)
    cycles = matmul_time(chip, m, n, k, groups, precision="bf16") * chip.clock
    assert (chip.array_count * cycles >= folds * stream * (1 - 1e-12)).all()


def test_a_merged_batch_is_never_slower_than_its_products_apart() -> None:
    # Samples that share weights are more rows of one product; those that do not are products of their own.
    m, n, k, groups = random_products(499, 25)
    for dataflow in (OS, WS, IS):
        chip = replace(random_chip(499, 26), dataflow=dataflow, array_count=1)
        merged = matmul_time(chip, groups * m, n, k, 1, precision="bf16")
        assert (merged <= matmul_time(chip, m, n, k, groups, precision="bf16") * (1 + 1e-12)).all()


def test_a_depthwise_convolution_is_one_nearly_empty_fold_a_channel() -> None:
    # 32 channels, 3 x 3, 112 x 112 pixels: 32 products (12544 x 9)(9 x 1) = 3,612,672 multiply-adds.
    # ws: K = 9 on 128 rows, N = 1 on 128 columns: 32 folds of 12544 + 3 x 128 - 2, 0.055% of the cells busy.
    chip = one_array(128, 128, clock=1.0, dataflow="ws", double_buffered=0)
    cycles = matmul_time(chip, 12544, 1, 9, 32, precision="bf16")
    assert cycles == 32 * (12544 + 382) == 413_632
    assert 12544 * 9 * 32 == 3_612_672
    assert 3_612_672 / cycles / 128**2 == pytest.approx(0.000533, abs=1e-6)
    assert mapping_efficiency(12544, 1, 9, dataflow=WS, rows=128, columns=128) == 9 / 128**2
    # Dense: K = 288, N = 32: 3 folds of 12544 + 382 do 32 times the work, 10 times as fast.
    dense = matmul_time(chip, 12544, 32, 288, 1, precision="bf16")
    assert dense == 3 * 12926 and 12544 * 32 * 288 == 32 * 3_612_672
    assert 32 * 3_612_672 / dense / 128**2 == pytest.approx(0.182, abs=5e-4)
    # os: M on the rows, one column, 98 folds of 9 + 254 a channel; is: M on the columns, 98 folds of 1 + 382.
    for dataflow, fold in (("os", 9 + 254), ("is", 1 + 382)):
        assert matmul_time(replace(chip, dataflow=dataflow), 12544, 1, 9, 32, precision="bf16") == 32 * 98 * fold


def test_two_filters_a_channel_share_its_fold() -> None:
    # in 32, out 64, groups 32: N = 2 columns of the same fold, twice the work in the same time.
    chip = one_array(128, 128, clock=1.0, dataflow="ws", double_buffered=0)
    one, two = (matmul_time(chip, 12544, filters, 9, 32, precision="bf16") for filters in (1, 2))
    assert one == two and 12544 * 2 * 9 * 32 == 7_225_344


def test_a_grouped_convolution_lies_between_depthwise_and_dense() -> None:
    # 256 channels, 3 x 3, 28 x 28 pixels, in g groups: K = 9 x 256 / g and N = 256 / g, the work falls with g.
    chip = one_array(128, 128, clock=1.0, dataflow="best")
    groups = 2.0 ** np.arange(9)
    cycles = matmul_time(chip, 784, 256 / groups, 9 * 256 / groups, groups, precision="bf16")
    busy = 784 * 9 * 256**2 / groups / cycles / 128**2
    assert (np.diff(busy) <= 0).all() and busy[0] > 0.8 and busy[-1] < 0.001
    # Two groups halve the work and the time; 256 of them leave 1/256 of the work and take more than 1/10 of it.
    assert cycles[0] / cycles[1] == pytest.approx(2, rel=0.02) and cycles[0] / cycles[-1] < 10


def test_mapping_is_complete_where_tiles_fill_the_array() -> None:
    assert mapping_efficiency(5, 256, 384, dataflow=WS, rows=128, columns=128) == 1
    assert mapping_efficiency(5, 256, 384, dataflow=OS, rows=128, columns=128) == 5 / 128


def test_fp8_halves_the_time_and_an_unknown_precision_is_an_error() -> None:
    chip = Chip()
    bf16, fp8 = (matmul_time(chip, 512, 512, 512, 3, precision=name) for name in ("bf16", "fp8"))
    assert fp8 == bf16 / 2
    with pytest.raises(ValueError, match="int4"):
        matmul_time(chip, 1, 1, 1, 1, precision="int4")


def test_sizes_beyond_32_bits_stay_positive_and_exact() -> None:
    m, n, k = (np.int32(size) for size in (64 * 131072, 16384, 16384))
    a, b, c = sram_words(m, n, k, dataflow=WS, rows=128, columns=128)
    assert a == 128 * 64 * 131072 * 16384 and b == 16384**2 and c == 128 * 64 * 131072 * 16384
    assert partial_sum_words(m, n, k, dataflow=WS, rows=128) == 127 * 64 * 131072 * 16384
    assert 0 < matmul_time(Chip(), m, n, k, np.int32(96), precision="bf16") < np.inf


def test_partial_sums_are_re_read_once_a_pass_after_the_first() -> None:
    assert partial_sum_words(7, 5, 48, dataflow=WS, rows=16) == 2 * 7 * 5
    assert partial_sum_words(7, 5, 48, dataflow=IS, rows=16) == 2 * 7 * 5
    assert partial_sum_words(7, 5, 48, dataflow=OS, rows=16) == 0


def test_a_design_alone_in_a_batch_and_in_a_sweep_has_the_same_bits() -> None:
    products, chip = random_products(53, 9), random_chip(53, 10)
    batch = matmul_time(chip, *products, precision="bf16")
    fields = ("array_count", "array_rows", "array_columns", "dataflow", "double_buffered", "clock")
    column = Chip(**{name: getattr(chip, name)[:, None] for name in fields})
    sweep = matmul_time(column, *products, precision="bf16")
    for row in range(53):
        single = Chip(**{name: getattr(chip, name)[row] for name in fields})
        assert matmul_time(single, *(size[row] for size in products), precision="bf16") == batch[row]
    np.testing.assert_array_equal(np.diagonal(sweep), batch)


def test_each_matrix_engine_is_chosen_by_name() -> None:
    assert sorted(compute.MODELS) == ["systolic", "tensor_core"]
    chip = Chip()
    assert compute.matmul_time(chip, 64, 64, 64, 1, precision="bf16") == matmul_time(
        chip, 64, 64, 64, 1, precision="bf16"
    )


# Oracles that share no code.


def simulated_weight_stationary(a: np.ndarray, b: np.ndarray, rows: int, columns: int, buffered: bool) -> int:
    """Registers of an R x C array moved cycle by cycle; checks the product, returns the cycles it took.

    Operand t of a fold enters row i in cycle start + t + i and moves right; sums move down.  Each operand carries
    its fold, by which a cell picks its weight.
    """
    (m, k), n = a.shape, b.shape[1]
    folds = [(i, j) for i in range(0, k, rows) for j in range(0, n, columns)]
    starts, clock = [], 0
    for number in range(len(folds)):
        if number == 0 or not buffered:
            clock += rows  # the load before the stream
            starts.append(clock)
            clock += m + rows + columns - 2
        else:
            starts.append(starts[-1] + max(m, rows))  # shadow weights are complete R cycles after the last swap
    enters = {start + t: (fold, t) for fold, start in enumerate(starts) for t in range(m)}
    assert len(enters) == m * len(folds)
    operand = np.full((rows, columns), None, dtype=object)
    total = np.zeros((rows, columns))
    result = np.zeros((m, n))
    written = 0
    cycle = 0
    while written < m * len(folds) * columns:
        moved = np.full((rows, columns), None, dtype=object)
        moved[:, 1:] = operand[:, :-1]
        for i in range(rows):
            moved[i, 0] = enters.get(cycle - i)
        operand, above, total = moved, total, np.zeros((rows, columns))
        for i in range(rows):
            for j in range(columns):
                if operand[i, j] is None:
                    continue
                fold, t = operand[i, j]
                row, column = folds[fold][0] + i, folds[fold][1] + j
                inside = row < k and column < n
                total[i, j] = (above[i - 1, j] if i else 0.0) + (a[t, row] * b[row, column] if inside else 0.0)
                if i == rows - 1:
                    written += 1
                    if column < n:
                        result[t, column] += total[i, j]
        cycle += 1
    np.testing.assert_array_equal(result, a @ b)
    return cycle


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "rows", "columns"), [(7, 5, 8, 3, 2), (2, 3, 11, 5, 3), (1, 4, 4, 4, 4)])
def test_cycles_equal_a_register_level_simulation_that_computes_the_product(
    m: int, n: int, k: int, rows: int, columns: int, buffered: bool
) -> None:
    random = np.random.default_rng(11)
    a, b = random.integers(-9, 9, (m, k)).astype(float), random.integers(-9, 9, (k, n)).astype(float)
    expected = simulated_weight_stationary(a, b, rows, columns, buffered)
    assert array_cycles(m, n, k, dataflow=WS, rows=rows, columns=columns, double_buffered=buffered) == expected


def scheduled(chip: Chip, m: int, n: int, k: int, groups: int) -> tuple[float, float]:
    """Cycles of the two schedules, worked off array by array: whole folds in rounds, and one stream cut in lengths."""
    arrays, rows, columns = int(chip.array_count), int(chip.array_rows), int(chip.array_columns)
    across, along, stream = {OS: (m, n, k), WS: (k, n, m), IS: (k, m, n)}[int(chip.dataflow)]
    folds = groups * -(-across // rows) * -(-along // columns)
    load = 0 if chip.dataflow == OS else rows

    def piece(parts: int) -> int:
        if chip.dataflow != OS or stream <= rows:
            return stream if chip.dataflow == OS else -(-stream // parts)
        return rows + -(-(stream - rows) // parts)

    def finish(pieces: list[int]) -> int:
        if not chip.double_buffered:
            return sum(load + length + rows + columns - 2 for length in pieces)
        start = load
        for length in pieces[:-1]:
            start += max(length, rows)
        return start + pieces[-1] + rows + columns - 2

    whole = [[] for _ in range(arrays)]  # type: list[list[int]]
    left = folds
    while left > arrays:
        for pieces in whole:
            pieces.append(stream)
        left -= arrays
    for number in range(left * (arrays // left)):
        whole[number].append(piece(arrays // left))

    length = -(-folds * stream // arrays)
    parts: list[dict[int, int]] = []  # of each array: vectors of each fold
    for start in range(0, folds * stream, length):
        at, end, meets = start, min(start + length, folds * stream), {}
        while at < end:
            fold = at // stream
            meets[fold] = min((fold + 1) * stream, end) - at
            at += meets[fold]
        parts.append(meets)
    shares = Counter(fold for meets in parts for fold in meets)
    wrapped = 0.0
    for meets in parts:
        exchange = sum(rows * (1 - 1 / shares[fold]) for fold in meets) if chip.dataflow == OS else 0.0
        wrapped = max(wrapped, finish(sorted(meets.values(), reverse=True)) + exchange)
    return max(finish(pieces) for pieces in whole if pieces), wrapped


def test_matmul_time_equals_the_rounds_or_no_less_than_the_lengths_of_explicit_schedules() -> None:
    m, n, k, groups = random_products(401, 12, largest=100)
    groups = np.minimum(groups, 12)
    chip = random_chip(401, 13)
    time = matmul_time(chip, m, n, k, groups, precision="bf16") * chip.clock
    fields = ("array_count", "array_rows", "array_columns", "dataflow", "double_buffered")
    equal = closer = 0
    for row in range(401):
        single = Chip(**{name: int(getattr(chip, name)[row]) for name in fields})  # type: ignore[arg-type]
        rounds, wrapped = scheduled(single, *(int(size[row]) for size in (m, n, k, groups)))
        assert min(rounds, wrapped - 1) * (1 - 1e-12) <= time[row] <= rounds * (1 + 1e-12)
        equal += time[row] == pytest.approx(rounds, rel=1e-12)
        if time[row] < rounds * (1 - 1e-12):
            # the closed form takes the array that meets most folds and has the shortest ends
            late = (2 if single.dataflow == OS else 1) * int(single.array_rows)
            fill = 0 if single.double_buffered else 2 * int(single.array_rows) + int(single.array_columns)
            assert time[row] <= wrapped + late + fill
            closer += 1
    assert equal > 250 and closer > 25


# Literature: a cycle-level simulator (SCALE-Sim v2, last cycle counted).


@pytest.mark.parametrize(("name", "count"), [("scalesim_reference.csv", 289), ("scalesim_resnet50.csv", 162)])
def test_serial_cycles_and_sram_words_equal_the_cycle_level_simulator_on_every_row(name: str, count: int) -> None:
    data = reference(name)
    sizes, shape = (data["M"], data["N"], data["K"]), {key: data[key] for key in ("dataflow", "rows")}
    cycles = array_cycles(*sizes, **shape, columns=data["cols"])
    assert cycles.size == count
    np.testing.assert_array_equal(cycles, data["cycles_true"])
    a, b, c = sram_words(*sizes, **shape, columns=data["cols"])
    np.testing.assert_array_equal(a, data["sram_ifmap_reads"])
    np.testing.assert_array_equal(b, data["sram_filter_reads"])
    if "sram_ofmap_writes_clean" in data:
        np.testing.assert_array_equal(c, data["sram_ofmap_writes_clean"])
    found = 100 * mapping_efficiency(*sizes, **shape, columns=data["cols"])
    # The simulator prints six decimals.
    np.testing.assert_allclose(found, data["mapping_eff_pct"], rtol=0, atol=5.1e-7)
