"""How layers, samples and ranks fall on stages: by hand, then against dealing them out one at a time."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from conftest import small_network
from plan_columns import columns

from dse.evaluation.stages import Stages, blocks_by_place, stages, strides
from workloads.network import Workload
from workloads.plan import ORDER


def layers_by_stage(found: Stages, row: int, pipeline: int) -> list[float]:
    if pipeline == 1:
        return [found.first[row]]
    middle = [found.high[row]] * int(found.high_count[row]) + [found.low[row]] * int(found.low_count[row])
    return [found.first[row], *middle, found.last[row]]


@pytest.mark.parametrize(
    ("layers", "pipeline", "split", "expected"),
    [
        (61, 8, 0, [8, 8, 8, 8, 8, 7, 7, 7]),
        (43, 4, 0, [11, 11, 11, 10]),
        (30, 4, 0, [8, 8, 7, 7]),
        (7, 2, 0, [4, 3]),
        # embedding and head count as one layer each: (6 + 2) / 4
        (6, 4, 1, [1, 2, 2, 1]),
        (5, 1, 1, [5]),
    ],
)
def test_layers_of_every_stage(layers: int, pipeline: int, split: int, expected: list[int]) -> None:
    found = stages(columns(pipeline=pipeline, split=split), Workload(small_network(layers=layers), 8, 8), layers)
    assert layers_by_stage(found, 0, pipeline) == expected


def test_layers_are_dealt_out_and_none_is_lost() -> None:
    for layers in range(1, 41):
        pairs = list(product(range(1, layers + 1), (0, 1)))
        pipeline, split = (np.array(values) for values in zip(*pairs, strict=True))
        found = stages(columns(pipeline=pipeline, split=split), Workload(small_network(layers=layers), 8, 8), layers)
        for row, (p, balanced) in enumerate(pairs):
            dealt = [0] * p
            for unit in range(layers + 2 * balanced * (p > 1)):
                dealt[unit % p] += 1
            if balanced and p > 1:
                dealt[0] -= 1
                dealt[-1] -= 1
            got = layers_by_stage(found, row, p)
            assert got == dealt, (layers, p, balanced)
            assert sum(got) == layers


def test_one_stage_holds_everything_and_has_no_last() -> None:
    found = stages(columns(pipeline=1), Workload(small_network(layers=5), 8, 8), 5)
    assert (found.first[0], found.last[0], found.is_single[0], found.has_last[0]) == (5, 0, 1, 0)
    assert found.high_count[0] == found.low_count[0] == 0


def test_micro_batches_of_a_rank_are_rounded_up() -> None:
    found = stages(columns(data=[1, 8, 8, 3], micro_batch=[1, 3, 4, 2]), Workload(small_network(), 8, 96), 4)
    assert found.micro_batches.tolist() == [96, 4, 3, 16]


def test_strides_are_what_enumerating_the_ranks_gives() -> None:
    degrees = {"tensor": 2, "data": 5, "pipeline": 3}
    for index, order in enumerate(ORDER):
        found = strides(columns(**degrees, order=index))
        axes = order.split("-")
        # rank numbers with the first axis running fastest
        numbers = {}
        for rank, places in enumerate(product(*(range(degrees[axis]) for axis in reversed(axes)))):
            numbers[tuple(places[list(reversed(axes)).index(axis)] for axis in ("tensor", "data", "pipeline"))] = rank
        origin = numbers[0, 0, 0]
        assert found["tensor"][0] == numbers[1, 0, 0] - origin, order
        assert found["data"][0] == numbers[0, 1, 0] - origin, order
        assert found["pipeline"][0] == numbers[0, 0, 1] - origin, order


def test_there_are_six_orders_of_three_axes() -> None:
    assert set(ORDER) == {"-".join(axes) for axes in permutations(("tensor", "data", "pipeline"))}


def test_a_network_without_a_head_or_with_two_bodies_is_an_error() -> None:
    class Odd:
        name = "odd"

        def __init__(self, *places: str) -> None:
            self.places = places

        def blocks(self, sequence: int) -> tuple:
            return tuple(b for p in self.places for b in small_network().blocks(sequence) if b.place == p)

        def divisors(self) -> dict[str, int]:
            return {}

    with pytest.raises(ValueError, match="last"):
        blocks_by_place(Workload(Odd("first", "body"), 8, 8))
    with pytest.raises(ValueError, match="two block classes"):
        blocks_by_place(Workload(Odd("first", "body", "body", "last"), 8, 8))
