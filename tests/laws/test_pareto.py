"""Non-dominated rows and hypervolume against hand-made fronts and brute force."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from dse.exploration.pareto import hypervolume, merge, non_dominated


def brute_force(values: np.ndarray) -> np.ndarray:
    """Every pair compared, straight from the definition."""
    sound = ~np.isnan(values).any(axis=1)
    rivals = values[sound]
    beaten = [bool(np.any((rivals <= v).all(axis=1) & (rivals < v).any(axis=1))) for v in values]
    return sound & ~np.array(beaten)


def volume_by_inclusion(points: np.ndarray, corner: np.ndarray) -> float:
    """Inclusion-exclusion over all subsets: shares nothing with the sweep."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in itertools.combinations(range(len(points)), size):
            edge = corner - points[list(subset)].max(axis=0)
            total += (-1) ** (size + 1) * float(np.prod(np.maximum(edge, 0.0)))
    return total


def test_four_points_by_hand() -> None:
    values = np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])
    assert non_dominated(values).tolist() == [True, True, False, True]


def test_the_reported_best_is_the_minimum_of_the_log() -> None:
    assert non_dominated(np.array([[7.405], [6.045], [6.372], [6.228]])).tolist() == [False, True, False, False]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["random", "ties", "specials"])
def test_equals_brute_force_on_a_subset_of_a_large_set(objectives: int, kind: str) -> None:
    rng = np.random.default_rng(objectives)
    large = rng.random((20_011, objectives))
    subset = large[rng.choice(len(large), 499, replace=False)]
    if kind != "random":
        subset = np.floor(subset * 4)
    if kind == "specials":
        subset[rng.random(subset.shape) < 0.05] = np.nan
        subset[rng.random(subset.shape) < 0.05] = np.inf
        subset[rng.random(subset.shape) < 0.02] = -0.0
    assert np.array_equal(non_dominated(subset), brute_force(subset))


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_fronts_of_zero_one_and_two_points(objectives: int) -> None:
    assert non_dominated(np.empty((0, objectives))).shape == (0,)
    assert non_dominated(np.ones((1, objectives))).tolist() == [True]
    better = np.stack([np.ones(objectives), np.zeros(objectives)])
    assert non_dominated(better).tolist() == [False, True]
    assert non_dominated(np.full((3, objectives), np.nan)).tolist() == [False] * 3


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_fifty_designs_with_equal_values_are_all_kept(objectives: int) -> None:
    assert non_dominated(np.full((50, objectives), 2.5)).sum() == 50


@pytest.mark.parametrize("shape", [(), (3,), (3, 0), (2, 2, 2)])
def test_a_table_of_the_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        non_dominated(np.zeros(shape))


@pytest.mark.parametrize("objectives", [2, 3])
def test_a_hundred_thousand_points_take_seconds(objectives: int) -> None:
    values = np.random.default_rng(7).random((100_000, objectives))
    start = time.process_time()
    mask = non_dominated(values)
    assert time.process_time() - start < 5.0
    few = np.concatenate([np.flatnonzero(mask)[:40], np.flatnonzero(~mask)[:40]])
    for i in few:
        beats = np.all(values <= values[i], axis=1) & np.any(values < values[i], axis=1)
        assert mask[i] == (not beats.any())


@pytest.mark.parametrize("objectives", [2, 3])
def test_twenty_thousand_points_none_of_which_is_dominated(objectives: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.permutation(20_000).astype(float)
    values = np.stack([x, -x] + [rng.random(20_000)] * (objectives - 2), axis=1)
    start = time.process_time()
    assert non_dominated(values).all()
    assert time.process_time() - start < 5.0


def test_merging_piece_by_piece_gives_the_front_of_the_whole() -> None:
    values = np.floor(np.random.default_rng(5).random((997, 3)) * 12)
    front = np.empty((0, 3))
    kept = np.empty(0, dtype=int)
    for start in range(0, len(values), 89):
        old, new = merge(front, values[start : start + 89])
        kept = np.concatenate([kept[old], np.flatnonzero(new) + start])
        front = values[kept]
    assert np.array_equal(np.sort(kept), np.flatnonzero(non_dominated(values)))


def test_merging_nothing_changes_nothing() -> None:
    old, new = merge(np.array([[1.0, 2.0]]), np.empty((0, 2)))
    assert old.tolist() == [True] and new.shape == (0,)
    old, new = merge(np.empty((0, 2)), np.array([[np.nan, 0.0]]))
    assert old.shape == (0,) and new.tolist() == [False]


def test_hypervolume_of_two_points_by_hand() -> None:
    assert hypervolume([[1.0, 2.0], [2.0, 1.0]], [3.0, 3.0]) == 3.0
    assert hypervolume([[0.0, 0.0, 0.0]], [1.0, 2.0, 3.0]) == 6.0
    assert hypervolume([[2.0], [1.0]], [4.0]) == 3.0


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("levels", [0, 4])
def test_hypervolume_equals_inclusion_exclusion(objectives: int, levels: int) -> None:
    rng = np.random.default_rng(10 * objectives + levels)
    for _ in range(5):
        points = rng.random((11, objectives))
        points = np.floor(points * levels) / levels if levels else points
        corner = np.full(objectives, 0.9)
        assert hypervolume(points, corner) == pytest.approx(volume_by_inclusion(points, corner), rel=1e-9, abs=1e-12)


def test_points_beyond_the_reference_and_nan_rows_add_nothing() -> None:
    assert hypervolume(np.empty((0, 3)), [1.0, 1.0, 1.0]) == 0.0
    assert hypervolume([[2.0, 0.0], [np.nan, 0.0], [0.5, 0.5]], [1.0, 1.0]) == 0.25


def test_a_better_point_never_lowers_the_hypervolume() -> None:
    rng = np.random.default_rng(1)
    points = rng.random((101, 3))
    volumes = [hypervolume(points[:n], [1.0, 1.0, 1.0]) for n in range(1, 102)]
    assert all(b >= a for a, b in zip(volumes, volumes[1:], strict=False))
