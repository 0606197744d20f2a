"""Traffic of blocked products: numbers by hand, laws, and a search over all tile sizes."""

from __future__ import annotations

import numpy as np
import pytest

from hw_models.memory.tiling import compulsory_traffic, stream_traffic, traffic

BF16 = {"operand_bytes": 2, "output_bytes": 2, "accumulator_bytes": 4}


def random_sizes(count: int, seed: int, largest: float = 20000) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    sizes = [np.floor(np.exp(random.uniform(0, np.log(largest), count))) for _ in range(3)]
    return [*sizes, random.integers(1, 30, count).astype(float)]


# By hand.


def test_a_product_that_fits_moves_each_operand_and_output_once() -> None:
    moved = traffic(128, 256, 512, 3, capacity=2**20, **BF16)
    assert moved == 3 * 2 * (128 * 512 + 512 * 256 + 128 * 256)
    assert moved == compulsory_traffic(128, 256, 512, 3, operand_bytes=2, output_bytes=2)


def test_a_square_output_tile_is_read_against_four_times() -> None:
    # Half of 8 KiB keeps 1024 accumulators, 32 x 32; M = N = 128: A and B are read 4 times; a panel of K does not fit.
    moved = traffic(128, 128, 4096, 1, capacity=8192, **BF16)
    assert moved == 2 * (4 * 128 * 4096 + 4 * 4096 * 128) + 2 * 128 * 128


def test_a_panel_of_a_short_inner_dimension_is_kept_instead_of_outputs() -> None:
    # K = 4: half of 4000 B keeps a panel of 250 rows of A: B is read 4 times for M = 1000, A once.
    moved = traffic(1000, 1000, 4, 1, capacity=4000, **BF16)
    assert moved == 2 * (1000 * 4 + 4 * 4 * 1000) + 2 * 1000 * 1000


def test_a_matrix_vector_product_moves_its_matrix_once() -> None:
    # Bytes 2 (8192 + 8192^2 + 8192); at 3.35e12 B/s 40.07 us, against 0.136 us of arithmetic: ridge 295.4 FLOP/B.
    moved = traffic(1, 8192, 8192, 1, capacity=50e6, **BF16)
    assert moved == 134_250_496
    assert moved / 3.35e12 == pytest.approx(40.07e-6, rel=1e-3)
    assert 2 * 8192**2 / 989.5e12 == pytest.approx(0.136e-6, rel=5e-3)
    assert max(moved / 3.35e12, 2 * 8192**2 / 989.5e12) == moved / 3.35e12
    assert 989.5e12 / 3.35e12 == pytest.approx(295.4, abs=0.05)


def test_sizes_beyond_32_bits_stay_exact() -> None:
    m, n, k = (np.int32(size) for size in (64 * 131072, 16384, 16384))
    moved = compulsory_traffic(m, n, k, 1, operand_bytes=1, output_bytes=1)
    assert moved == 2 * 137_438_953_472 + 16384**2
    assert moved <= traffic(m, n, k, 1, capacity=1e6, **BF16) < np.inf


# Laws.


def test_traffic_never_grows_with_capacity_and_ends_at_compulsory() -> None:
    sizes = random_sizes(1009, 1)
    capacity = np.concatenate([np.arange(1, 400), np.floor(np.geomspace(400, 1e11, 1500))])[:, None]
    moved = traffic(*sizes, capacity=capacity, **BF16)
    assert np.all(np.diff(moved, axis=0) <= 0)
    compulsory = compulsory_traffic(*sizes, operand_bytes=2, output_bytes=2)
    assert np.all(moved >= compulsory)
    np.testing.assert_array_equal(moved[-1], compulsory)


def test_traffic_never_grows_with_capacity_on_every_small_product_and_every_capacity() -> None:
    # The exhaustive check of the claim that two neighbouring tile sizes suffice: one accumulator at a time.
    m, n = (size.ravel() for size in np.meshgrid(np.arange(1.0, 61), np.arange(1.0, 61)))
    last = np.full(m.size, np.inf)
    for outputs in range(1, 3700):
        moved = traffic(m, n, 1e9, 1, capacity=8 * outputs, **BF16)
        assert np.all(moved <= last)
        last = moved


def test_rows_and_columns_are_symmetric() -> None:
    m, n, k, groups = random_sizes(2003, 2)
    capacity = np.random.default_rng(3).uniform(10, 1e8, 2003)
    np.testing.assert_array_equal(
        traffic(m, n, k, groups, capacity=capacity, **BF16), traffic(n, m, k, groups, capacity=capacity, **BF16)
    )


def test_traffic_respects_the_lower_bound_of_blocked_products() -> None:
    # 2 M N K / sqrt(S) - 2 S words with S words of buffer, accumulators included  (after Irony, Toledo, Tiskin 2004).
    m, n, k, _ = random_sizes(4001, 4)
    capacity = np.exp(np.random.default_rng(5).uniform(np.log(64), np.log(1e7), 4001))
    words = traffic(m, n, k, 1, capacity=capacity, **BF16) / 2
    bound = 2 * m * n * k / np.sqrt(capacity / 2) - 2 * capacity / 2
    assert np.all(words >= bound)
    assert np.sum(bound > words / 4) > 100


def test_groups_multiply_and_more_bytes_cost_more() -> None:
    m, n, k, _ = random_sizes(503, 6)
    one, seven = (traffic(m, n, k, groups, capacity=1e5, **BF16) for groups in (1, 7))
    np.testing.assert_allclose(seven, 7 * one, rtol=1e-15)
    wide = traffic(m, n, k, 1, capacity=1e5, operand_bytes=4, output_bytes=4, accumulator_bytes=4)
    assert np.all(wide > one)


def test_cores_stream_no_more_with_more_local_memory_and_at_least_the_compulsory_bytes() -> None:
    sizes = random_sizes(503, 7)
    local = np.floor(np.geomspace(1, 1e10, 700))[:, None]
    moved = stream_traffic(*sizes, local_capacity=local, array_outputs=256, **BF16)
    assert np.all(np.diff(moved, axis=0) <= 0)
    assert np.all(moved >= compulsory_traffic(*sizes, operand_bytes=2, output_bytes=2))


def test_a_core_without_local_memory_still_keeps_the_tile_of_its_arrays() -> None:
    # A 16 x 16 array: A and B of a 64 x 64 x K product are read 4 times.
    moved = stream_traffic(64, 64, 10**6, 1, local_capacity=1, array_outputs=16 * 16, **BF16)
    assert moved == 2 * 8 * 64 * 10**6 + 2 * 64 * 64


def test_a_design_alone_in_a_batch_and_in_a_sweep_has_the_same_bits() -> None:
    sizes = random_sizes(59, 8)
    capacity = np.random.default_rng(9).uniform(100, 1e7, 59)
    batch = traffic(*sizes, capacity=capacity, **BF16)
    sweep = traffic(*sizes, capacity=capacity[:, None], **BF16)
    np.testing.assert_array_equal(np.diagonal(sweep), batch)
    for row in range(59):
        single = traffic(*(float(size[row]) for size in sizes), capacity=float(capacity[row]), **BF16)
        assert single == batch[row]


# An oracle that shares no code.


def least_traffic(m: int, n: int, k: int, capacity: int) -> int:
    """All tile sizes of the three stationary operands; a tile of A or B that cuts K re-reads partial sums (4 B)."""
    height, width, depth = np.arange(1, m + 1), np.arange(1, n + 1), np.arange(1, k + 1)
    rows, columns, passes = -(-m // height), -(-n // width), -(-k // depth)
    spill = 2 * m * n + 8 * (passes - 1) * m * n
    outputs = 2 * (columns[None, :] * m * k + rows[:, None] * k * n) + 2 * m * n
    kept_a = 2 * (m * k + rows[:, None] * k * n) + spill[None, :]
    kept_b = 2 * (k * n + columns[:, None] * m * k) + spill[None, :]
    best = []
    for moved, tile in (
        (outputs, 4 * np.outer(height, width)),
        (kept_a, 2 * np.outer(height, depth)),
        (kept_b, 2 * np.outer(width, depth)),
    ):
        best.append(np.where(tile <= capacity // 2, moved, 10**12).min())
    return int(min(best))


def test_the_closed_form_is_feasible_and_within_a_quarter_of_the_best_of_all_tilings() -> None:
    random = np.random.default_rng(10)
    ratio = []
    for _ in range(3000):
        m, n, k = (int(size) for size in np.exp(random.uniform(0, np.log(120), 3)))
        capacity = 2 * int(np.exp(random.uniform(np.log(4), np.log(3e4))))
        ratio.append(float(traffic(m, n, k, 1, capacity=capacity, **BF16)) / least_traffic(m, n, k, capacity))
    assert min(ratio) >= 1.0
    assert max(ratio) <= 1.25
    assert np.mean(ratio) <= 1.02
