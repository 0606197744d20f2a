"""The least traffic of a matrix product: numbers by hand, tilings walked one by one, and ten thousand products."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
import pytest

from hw_models.memory.tiling import compulsory_traffic, traffic, traffic_lower_bound

BF16 = {"operand_bytes": 2, "output_bytes": 2, "accumulator_bytes": 4}
WORDS = {"operand_bytes": 1, "output_bytes": 1, "accumulator_bytes": 1}


def random_products(count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Sizes of 1 to 30,000, batches, and buffers of a kilobyte to a gigabyte."""
    random = np.random.default_rng(seed)
    sizes = [np.floor(np.exp(random.uniform(0, np.log(30_000), count))) for _ in range(3)]
    groups = np.floor(np.exp(random.uniform(0, np.log(100), count)))
    return [*sizes, groups], np.floor(np.exp(random.uniform(np.log(1e3), np.log(1e9), count)))


# By hand.


def test_a_buffer_of_sixteen_words_moves_at_least_a_word_in_two_multiply_adds() -> None:
    # T = 38.4 words; (38.4/3)^1.5 = 45.79, (70.4/3)^1.5 = 113.68: 79.74 multiply-adds a phase on average.
    # 64^3 / 79.74 = 3287.6 phases, 3286.6 x 38.4 = 126,210 words;  2 M N K / sqrt(S) is 131,072.
    found = float(traffic_lower_bound(64, 64, 64, 1, capacity=16, **WORDS))
    assert found == pytest.approx(126_200, rel=2e-4)
    assert found == pytest.approx(38.4 * (64**3 / (((38.4 / 3) ** 1.5 + (70.4 / 3) ** 1.5) / 2) - 1), rel=1e-12)
    assert 0.95 * 131_072 < found < 131_072


def test_a_product_that_fits_moves_its_operands_and_results_and_no_less() -> None:
    assert traffic_lower_bound(8, 4, 2, 3, capacity=1000, **BF16) == 3 * 2 * (8 * 2 + 4 * 2 + 8 * 4)


def test_the_constant_tends_to_nineteen_twentieths_of_the_pebble_games() -> None:
    large = float(traffic_lower_bound(1e7, 1e7, 1e7, 1, capacity=1e4, **WORDS))
    assert large * sqrt(1e4) / 1e21 == pytest.approx(1.926, abs=1e-3)


def test_no_other_length_of_a_phase_gives_more_for_large_products() -> None:
    best = traffic_lower_bound(1e6, 1e6, 1e6, 1, capacity=1e4, **WORDS)
    for phase in (0.5, 1.0, 2.0, 3.0, 5.0):
        assert traffic_lower_bound(1e6, 1e6, 1e6, 1, capacity=1e4, phase=phase, **WORDS) < best


# Tilings walked one by one: an oracle that shares no code.


class Tiling(NamedTuple):
    """Tiles of a product, the loops over them from the outermost, and the words that move."""

    tiles: tuple[int, int, int]
    order: tuple[str, ...]
    operands_in: int
    partial_in: int
    partial_out: int
    results_out: int

    def bytes(self, operand: float, output: float, accumulator: float) -> float:
        partial = accumulator * (self.partial_in + self.partial_out)
        return operand * self.operands_in + partial + output * self.results_out


def walk(m: int, n: int, k: int, tiles: tuple[int, int, int], order: tuple[str, ...]) -> Tiling:
    """Visit every tile of the loops; a tile of A, B or C moves when it is not the one visited last."""
    lengths = dict(zip("mnk", (m, n, k), strict=True))
    step = dict(zip("mnk", tiles, strict=True))
    held: dict[str, tuple[int, int]] = {}
    seen: dict[tuple[int, int], int] = {}  # multiply-adds along K done of a tile of C
    moved = {"operands": 0, "partial_in": 0, "partial_out": 0, "results": 0}

    def leave(tile: tuple[int, int]) -> None:
        words = size("m", tile[0]) * size("n", tile[1])
        moved["results" if seen[tile] == k else "partial_out"] += words

    def size(axis: str, at: int) -> int:
        return min(step[axis], lengths[axis] - at)

    for at in product(*(range(0, lengths[axis], step[axis]) for axis in order)):
        i, j, p = (at[order.index(axis)] for axis in "mnk")
        for name, tile, (rows, columns) in (("a", (i, p), "mk"), ("b", (p, j), "kn")):
            if held.get(name) != tile:
                moved["operands"] += size(rows, tile[0]) * size(columns, tile[1])
                held[name] = tile
        if held.get("c") != (i, j):
            if "c" in held:
                leave(held["c"])
            held["c"] = (i, j)
            moved["partial_in"] += size("m", i) * size("n", j) if seen.get((i, j)) else 0
        seen[i, j] = seen.get((i, j), 0) + size("k", p)
    leave(held["c"])
    return Tiling(tiles, order, moved["operands"], moved["partial_in"], moved["partial_out"], moved["results"])


@cache
def tilings(sizes: tuple[int, int, int]) -> tuple[Tiling, ...]:
    """All tile sizes in all orders of the three loops."""
    m, n, k = sizes
    every = product(range(1, m + 1), range(1, n + 1), range(1, k + 1))
    return tuple(walk(m, n, k, tiles, order) for tiles in every for order in permutations("mnk"))


SMALL = [(6, 6, 5), (7, 5, 4), (3, 6, 7), (8, 7, 2), (1, 9, 9), (9, 9, 1), (4, 4, 8)]


def test_a_walk_moves_what_can_be_counted_by_hand() -> None:
    # 4 x 4 x 4 in tiles of 2: C stays while K runs: A and B twice each, results once.
    kept = walk(4, 4, 4, (2, 2, 2), ("m", "n", "k"))
    assert (kept.operands_in, kept.partial_in, kept.partial_out, kept.results_out) == (64, 0, 0, 16)
    # A stays while N runs: A once, B twice; every result is written as a partial sum and read again.
    spilled = walk(4, 4, 4, (2, 2, 2), ("m", "k", "n"))
    assert (spilled.operands_in, spilled.partial_in, spilled.partial_out, spilled.results_out) == (48, 16, 16, 16)


@pytest.mark.parametrize("sizes", SMALL)
@pytest.mark.parametrize(("operand", "output", "accumulator"), [(1, 1, 1), (2, 2, 4), (1, 2, 4), (2, 8, 4)])
def test_no_tiling_and_no_order_of_loops_beats_the_bound(
    sizes: tuple[int, int, int], operand: int, output: int, accumulator: int
) -> None:
    # What a walk holds at once is all the buffer it needs.
    walked = tilings(sizes)
    tm, tn, tk = np.array([found.tiles for found in walked]).T
    bound = traffic_lower_bound(
        *sizes, 1, capacity=operand * (tm * tk + tk * tn) + accumulator * tm * tn, operand_bytes=operand,
        output_bytes=output, accumulator_bytes=accumulator,
    )  # fmt: skip
    moved = np.array([found.bytes(operand, output, accumulator) for found in walked])
    assert np.all(moved >= bound)


def test_the_bound_is_more_than_compulsory_for_every_product_with_a_small_buffer() -> None:
    for m, n, k in SMALL[:4]:
        bound = traffic_lower_bound(m, n, k, 1, capacity=3, **WORDS)
        assert bound > compulsory_traffic(m, n, k, 1, operand_bytes=1, output_bytes=1)
        assert bound < min(found.bytes(1, 1, 1) for found in tilings((m, n, k)) if found.tiles == (1, 1, 1))


@pytest.mark.parametrize("sizes", SMALL)
def test_the_tiling_of_the_model_is_at_most_a_quarter_above_the_best_and_never_below(
    sizes: tuple[int, int, int]
) -> None:
    # The model keeps the tile that the innermost loop leaves alone in half of the buffer and streams the others, so
    # the innermost step is one; a loop of one step leaves a second tile alone, which nobody pays for.
    best: dict[int, float] = {}
    for found in tilings(sizes):
        tile, inner = dict(zip("mnk", found.tiles, strict=True)), found.order[-1]
        if tile[inner] > 1 or sizes["mnk".index(inner)] == 1:
            continue
        kept = {"k": 4 * tile["m"] * tile["n"], "n": 2 * tile["m"] * tile["k"], "m": 2 * tile["n"] * tile["k"]}[inner]
        best[2 * kept] = min(best.get(2 * kept, np.inf), found.bytes(2, 2, 4))
    least = np.inf
    for capacity in range(8, 2 * max(best) + 1):  # half of it holds an accumulator
        least = min(least, best.get(capacity, np.inf))
        if least < np.inf:
            moved = float(traffic(*sizes, 1, capacity=capacity, **BF16))
            assert least <= moved <= 1.25 * least, capacity


def test_short_panels_move_less_than_a_bound_that_counts_results_twice() -> None:
    # K = 10; a panel of 10 x 10 of A and a column of B and of C: 121 words.  M = N = 1000: A once, B 100 times, C once.
    m, n, k = 1000, 1000, 10
    moved = m * k + ceil(m / 10) * k * n + m * n
    assert moved == 2_010_000
    assert moved < 2 * m * n * k / sqrt(121) + m * n
    assert moved >= traffic_lower_bound(m, n, k, 1, capacity=121, **WORDS)


# Ten thousand products.


@pytest.mark.parametrize("kinds", [BF16, WORDS, {"operand_bytes": 1, "output_bytes": 2, "accumulator_bytes": 4}])
def test_the_model_moves_at_least_the_bound_and_rarely_thrice_as_much(kinds: dict[str, float]) -> None:
    sizes, capacity = random_products(10_000, 1)
    moved = traffic(*sizes, capacity=capacity, **kinds)
    bound = traffic_lower_bound(*sizes, capacity=capacity, **kinds)
    ratio = moved / bound
    assert ratio.min() >= 1.0
    # Half of the buffer streams: sqrt(2); accumulators of 4 B for results of 2 B: sqrt(2) again.
    assert np.median(ratio) < 1.05 and np.percentile(ratio, 99) < 3.0


def test_the_bound_never_grows_with_capacity_and_ends_at_compulsory() -> None:
    sizes, _ = random_products(997, 2)
    capacity = np.geomspace(100, 1e13, 400)[:, None]
    bound = traffic_lower_bound(*sizes, capacity=capacity, **BF16)
    assert np.all(np.diff(bound, axis=0) <= 1e-12 * bound[:-1])
    np.testing.assert_array_equal(bound[-1], compulsory_traffic(*sizes, operand_bytes=2, output_bytes=2))


def test_the_bound_knows_no_rows_from_columns_or_depth_beyond_compulsory_and_groups_add_up() -> None:
    (m, n, k, groups), capacity = random_products(997, 3)
    bound = traffic_lower_bound(m, n, k, groups, capacity=capacity, **WORDS)
    np.testing.assert_array_equal(bound, traffic_lower_bound(n, m, k, groups, capacity=capacity, **WORDS))
    one = traffic_lower_bound(m, n, k, 1, capacity=capacity, **WORDS)
    assert np.all(bound >= groups * one * (1 - 1e-12))


def test_a_design_alone_and_in_a_batch_has_the_same_bits() -> None:
    sizes, capacity = random_products(53, 4)
    batch = traffic_lower_bound(*sizes, capacity=capacity, **BF16)
    for row in range(53):
        alone = traffic_lower_bound(*(float(size[row]) for size in sizes), capacity=float(capacity[row]), **BF16)
        assert alone == batch[row]
