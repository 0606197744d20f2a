"""Fused attention: one tile by hand, laws, bits, an oracle that walks every tile, systolic arrays, bytes."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hw_models.chip import Chip
from hw_models.compute import systolic
from hw_models.compute.attention import around_backward, attention_time, attention_traffic

#: 108 cores of 1024 multiply-adds and 64 lanes a cycle, as an A100.
GPU = Chip(
    compute="tensor_core", array_count=432, array_rows=16, array_columns=16, arrays_per_core=4, clock=1.41e9,
    vector_lanes=6912, hbm_stacks=5, hbm_stack_bandwidth=407.8e9,
)  # fmt: skip


def time(chip: Chip, *sizes: Any, causal: bool = False, backward: bool = False, **more: Any) -> Any:
    return attention_time(chip, *sizes, causal=causal, backward=backward, **more)


def test_one_forward_wave_by_hand() -> None:
    # 108 heads of 128 queries and 1024 keys, 128 wide, one tile of queries a core.  A score: 2 x 128 / 1024 = 0.25
    # matrix cycles; 1/16 for its exponential and 4/64 on the lanes, half of which hides.
    cycles = 128 * 1024 * (0.25 + 0.125 - 0.0625) + 1000
    own = 108 * 128 * 128 * 2 * 2  # queries in, outputs out, 2 B each
    assert time(GPU, 128, 1024, 108, 128) == pytest.approx(cycles / 1.41e9 + own / 2.039e12, rel=1e-12)


def test_cores_that_hold_two_tiles_hide_the_softmax_of_kernels_that_overlap_it() -> None:
    two = replace(GPU, tiles_per_core=2)
    # a score: 0.25 matrix cycles, 0.125 of softmax, all of which hides; on cores of one tile three quarters of it
    cycles = 128 * 1024 * 0.25 + 1000
    assert time(two, 128, 1024, 108, 128, overlaps_softmax=True) == pytest.approx(cycles / 1.41e9, rel=1e-12)
    once = 128 * 1024 * (0.25 + 0.125 / 4) + 1000
    assert time(GPU, 128, 1024, 108, 128, overlaps_softmax=True) == pytest.approx(once / 1.41e9, rel=1e-12)
    # kernels that do not overlap by design gain nothing
    assert time(two, 128, 1024, 108, 128) == time(GPU, 128, 1024, 108, 128)


def test_twice_the_exponentials_a_cycle_halve_their_part_of_a_score() -> None:
    slow, fast = (time(replace(GPU, exponentials_per_core=rate), 128, 1024, 108, 128) for rate in (16, 32))
    # half of 1/16 - 1/32 hides
    assert slow - fast == pytest.approx(128 * 1024 / 64 / 1.41e9, rel=1e-9)


def test_one_backward_wave_by_hand() -> None:
    # Five products, nothing hides: 5 x 128 / 1024; exponential 1/16, lanes 6/64, local SRAM 8/128, gradients of
    # queries 4 x 128 / 128 / 64.
    score = 0.625 + 1 / 16 + 6 / 64 + 8 / 128 + 1 / 16
    own = 108 * 128 * 128 * 4 * 2
    around = 108 * 1024 * 128 * 14  # outputs and their gradient read, fp32 set to zero, read, and written in 2 B
    expected = (128 * 1024 * score + 1000) / 1.41e9 + (own + around) / 2.039e12
    assert time(GPU, 1024, 128, 108, 128, backward=True) == pytest.approx(expected, rel=1e-12)
    assert around_backward(1024, 108, 128) == around


def test_causal_attention_of_long_sequences_takes_half_and_of_one_tile_all() -> None:
    for backward in (False, True):
        full, causal = (time(GPU, 65536, 65536, 32, 128, causal=flag, backward=backward) for flag in (False, True))
        assert 0.5 < causal / full < 0.53
        one = [time(GPU, 128, 128, 32, 128, causal=flag, backward=backward) for flag in (False, True)]
        assert one[0] == one[1]


def test_a_context_rank_sees_half_of_its_scores_in_both_passes() -> None:
    # an early and a late piece of the queries: as much work as every other rank
    for backward in (False, True):
        full, causal = (time(GPU, 8192, 65536, 32, 128, causal=flag, backward=backward) for flag in (False, True))
        assert 0.5 < causal / full < 0.56


def walked_one_by_one(queries: int, groups: int, causal: bool) -> float:
    """Cores that take the next query tile when they are free, head by head: scores of the last to end."""
    tiles = queries // 128
    walks = [(tile if causal else tiles) for tile in range(tiles, 0, -1)] * groups
    cores = [0] * 108
    for walk in walks:
        heapq.heapreplace(cores, cores[0] + walk)
    return max(cores) * 128.0 * 128.0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "groups"), [(1024, 64), (2048, 100), (4096, 7), (8192, 40), (16384, 32)])
def test_scores_of_the_busiest_core_are_those_of_tiles_dealt_one_by_one(
    causal: bool, queries: int, groups: int
) -> None:
    # With endless memory, lanes and clock beside the matrix engine the time is the scores' products.
    chip = replace(GPU, hbm_stack_bandwidth=1e30, vector_lanes=10**15)
    spent = time(chip, queries, queries, groups, 1024, causal=causal) * 1.41e9
    waves = np.ceil(queries / 128 * groups / 108)
    scores = (spent - waves * 1000) / (2.0 + 0.5 / 16)
    dealt = walked_one_by_one(queries, groups, causal)
    assert scores == pytest.approx(dealt, rel=0.05 if causal else 1e-9)


def test_more_of_anything_is_never_slower_and_nothing_beats_the_peak() -> None:
    random = np.random.default_rng(5)
    length = np.floor(np.exp(random.uniform(1, 11, 211)))
    groups, width = random.integers(1, 500, 211), random.integers(1, 300, 211)
    for backward in (False, True):
        for causal in (False, True):
            base = time(GPU, length, length, groups, width, causal=causal, backward=backward)
            products = (10.0 if backward else 4.0) * length * length * width * groups * (0.5 if causal else 1.0)
            assert np.all(products <= GPU.peak_flops("bf16") * base)
            for name in ("array_count", "clock", "vector_lanes", "hbm_stacks"):
                faster = replace(GPU, **{name: 2 * getattr(GPU, name)})
                assert np.all(time(faster, length, length, groups, width, causal=causal, backward=backward) <= base)
            for more in ({"rate": 2.0}, {"overlaps_softmax": True}):
                assert np.all(
                    time(GPU, length, length, groups, width, causal=causal, backward=backward, **more) <= base
                )
            assert np.all(time(GPU, length, 2 * length, 2 * groups, width, causal=causal, backward=backward) >= base)


@pytest.mark.parametrize("compute", ["tensor_core", "systolic"])
def test_a_design_alone_and_in_a_batch_has_the_same_bits(compute: str) -> None:
    random = np.random.default_rng(6)
    sizes = [random.integers(1, 9000, 31), random.integers(9000, 20000, 31), random.integers(1, 99, 31)]
    columns = {"array_count": 4 * random.integers(1, 99, 31), "clock": random.uniform(1e9, 2e9, 31)}
    for backward in (False, True):
        batch = time(Chip(compute=compute, arrays_per_core=4, **columns), *sizes, 96, causal=True, backward=backward)
        for row in range(31):
            chip = Chip(compute=compute, arrays_per_core=4, **{name: value[row] for name, value in columns.items()})
            assert time(chip, *(size[row] for size in sizes), 96, causal=True, backward=backward) == batch[row]


def test_a_systolic_array_runs_the_products_with_lanes_beside_them() -> None:
    chip = Chip(array_count=8, array_rows=128, array_columns=128, clock=1e9, vector_lanes=8192)

    def product(m: int, n: int, k: int) -> float:
        return float(systolic.matmul_time(chip, m, n, k, 64, precision="bf16"))

    matrix = product(4096, 4096, 128) + product(4096, 128, 4096)
    softmax = 64 * 4096 * 4096 * 8 / (8192 * 1e9)
    expected = matrix + softmax - 0.5 * min(matrix, softmax)
    assert time(chip, 4096, 4096, 64, 128) == pytest.approx(expected, rel=1e-12)


def test_a_head_half_as_wide_as_the_array_takes_far_more_than_half_the_time() -> None:
    chip = Chip(array_count=8, array_rows=128, array_columns=128, vector_lanes=10**9)
    assert time(chip, 4096, 4096, 64, 64) > 0.9 * time(chip, 4096, 4096, 64, 128)


def test_traffic_is_operands_and_results_once() -> None:
    sizes = {"key_value_share": 0.25, "element_bytes": 2}
    forward = attention_traffic(100, 200, 8, 64, backward=False, **sizes)
    assert forward == 8 * 64 * 2 * (100 + 100 + 50 + 50)
    # q and the output's gradient in, fp32 gradient of q out; k, v in and their gradients out; kernels around it
    backward = attention_traffic(100, 200, 8, 64, backward=True, **sizes)
    assert backward == 8 * 64 * (100 * (2 + 2 + 4) + 4 * 50 * 2) + around_backward(100, 8, 64)
