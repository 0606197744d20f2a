"""Who shares a unit of a tier, and what bandwidth the wiring gives: hand numbers, laws, brute-force placement."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hw_models.cluster import TOPOLOGY, Cluster, Tier
from hw_models.network.groups import ranks_per_tier
from hw_models.network.topology import wiring


def two_tiers(node: int, devices: int) -> Cluster:
    return Cluster(devices=devices, tiers=(Tier(size=node), Tier(size=devices, bandwidth=50e9)))


def wired(topology: str, members: float, *, units: float, spacing: float = 1.0, oversubscription: float = 1.0):
    return wiring(topology, 600e9, members, spacing=spacing, units=units, oversubscription=oversubscription)


# ---- placement


@pytest.mark.parametrize(
    ("size", "stride", "inside", "across"),
    [
        (8, 1, 8, 1),  # tp8 fills one node
        (2, 8, 1, 2),  # its data-parallel partner is on the other node
        (4, 4, 2, 2),
        (16, 1, 8, 2),
        (6, 1, 2, 3),  # ranks 6 to 11 straddle: two in the first node, four in the second
        (12, 1, 4, 3),
        (3, 3, 1, 3),  # stride 3 never lines up with 8
        (5, 1, 1, 5),
        (1, 1, 1, 1),
    ],
)
def test_members_inside_a_node_of_eight(size: int, stride: int, inside: int, across: int) -> None:
    assert [int(n) for n in ranks_per_tier(two_tiers(8, 960), size, stride)] == [inside, across]


def test_a_node_that_holds_the_whole_cluster_holds_every_group() -> None:
    assert [int(n) for n in ranks_per_tier(two_tiers(8, 6), 3, 2)] == [3, 1]


def test_three_nested_tiers_split_a_group_three_ways() -> None:
    cluster = Cluster(devices=256, tiers=(Tier(size=4), Tier(size=32), Tier(size=256)))
    assert [int(n) for n in ranks_per_tier(cluster, 128, 2)] == [2, 8, 8]


def test_the_product_over_tiers_is_the_group_for_any_whole_numbers() -> None:
    random = np.random.default_rng(7)
    size, stride, node, rack = (random.integers(1, 61, 997) for _ in range(4))
    cluster = Cluster(devices=5040, tiers=(Tier(size=node), Tier(size=node + rack), Tier(size=5040)))
    ranks = ranks_per_tier(cluster, size, stride)
    assert np.array_equal(ranks[0] * ranks[1] * ranks[2], size)
    assert all(np.all(members >= 1) for members in ranks)


def test_no_group_has_fewer_members_in_a_node_it_touches_than_stated() -> None:
    for node, size, stride in product((1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 8)):
        devices = 2 * node * size * stride
        counts = set()
        for block, lane in product(range(0, devices, size * stride), range(stride)):
            homes = [(block + lane + stride * i) // node for i in range(size)]
            counts |= {homes.count(home) for home in homes}
        inside = int(ranks_per_tier(two_tiers(node, devices), size, stride)[0])
        assert inside <= min(counts)
        if len(counts) == 1 and (node % stride == 0 or stride % node == 0):
            assert inside == counts.pop()


def test_a_node_size_column_gives_each_row_its_own_placement() -> None:
    nodes = np.array([4, 8, 16])
    ranks = ranks_per_tier(two_tiers(nodes, 64), 16, 1)
    assert ranks[0].tolist() == [4, 8, 16]
    assert ranks[1].tolist() == [4, 2, 1]


# ---- wiring


def test_a_switch_gives_everyone_full_bandwidth() -> None:
    assert wired("switch", 4, units=8)[:3] == (600e9, 600e9, 600e9)


def test_an_oversubscribed_fat_tree_divides_the_bandwidth() -> None:
    assert wired("fat_tree", 4, units=8, oversubscription=3.0).ring == 200e9


def test_fully_connected_links_are_divided_over_the_peers() -> None:
    assert wired("full", 8, units=8).ring == 600e9
    assert wired("full", 2, units=4).ring == 200e9
    assert wired("full", 3, units=7).direct == 200e9
    assert wired("full", 7, units=7).neighbour == 100e9


def test_a_whole_ring_uses_both_directions_and_a_part_of_it_one() -> None:
    assert wired("ring", 8, units=8).ring == 600e9
    assert wired("ring", 4, units=8).ring == 300e9
    assert wired("ring", 4, units=8, spacing=2).ring == 300e9  # closed, but two groups share every link
    assert wired("ring", 8, units=8).neighbour == 300e9


def test_a_group_along_one_dimension_of_a_torus_uses_only_its_links() -> None:
    assert wired("torus2d", 16, units=16).ring == 600e9
    assert wired("torus2d", 4, units=16).ring == 300e9
    assert wired("torus2d", 4, units=16, spacing=4).ring == 300e9
    assert wired("torus3d", 64, units=64).ring == 600e9
    assert wired("torus3d", 4, units=64).ring == pytest.approx(200e9)
    assert wired("torus3d", 16, units=64).ring == pytest.approx(400e9)
    assert wired("torus3d", 16, units=64, spacing=4).ring == pytest.approx(400e9)


def test_a_torus_needs_one_short_ring_a_dimension() -> None:
    assert wired("torus3d", 64, units=64).steps == 9
    assert wired("torus2d", 64, units=64).steps == 14
    assert wired("ring", 64, units=64).steps == 63


@pytest.mark.parametrize(("topology", "dimensions"), [("ring", 1), ("torus2d", 2), ("torus3d", 3)])
def test_all_to_all_on_a_torus_moves_what_its_bisection_carries(topology: str, dimensions: int) -> None:
    side = 8
    units = side**dimensions
    # half of the devices send half of what they hold across the cut; closed rings are cut twice
    cut_links = 2 * units / side
    crossing = (units / 2) * 0.5  # bytes, for one byte a device
    seconds = crossing / (cut_links * 600e9 / (2 * dimensions))
    assert 1.0 / wired(topology, units, units=units).direct == pytest.approx(seconds)


def test_links_of_a_ring_all_to_all_carry_what_counting_hops_says() -> None:
    side, load = 8, np.zeros(8)
    for source, target in product(range(side), repeat=2):
        distance = (target - source) % side
        if distance <= side // 2:  # the clockwise half, opposite partners split over both ways
            for hop in range(distance):
                load[(source + hop) % side] += 0.5 if distance == side // 2 else 1.0
    seconds = load.max() / side / 300e9  # one byte a device, 1/8 to each
    assert 1.0 / wired("ring", side, units=side).direct == pytest.approx(seconds)


@pytest.mark.parametrize("topology", TOPOLOGY)
def test_double_the_bandwidth_doubles_what_every_wiring_gives(topology: str) -> None:
    for members, spacing in product((1, 2, 3, 5, 8), (1, 2, 4)):
        one = wiring(topology, 1e9, members, spacing=spacing, units=64, oversubscription=1.0)
        two = wiring(topology, 2e9, members, spacing=spacing, units=64, oversubscription=1.0)
        for name in ("ring", "direct", "neighbour"):
            assert getattr(two, name) == pytest.approx(2.0 * getattr(one, name))
            assert 0 < getattr(one, name) <= 1e9
        assert two.steps == one.steps


def test_a_side_that_is_no_power_is_rounded_up() -> None:
    assert wired("torus2d", 3, units=8).ring == 300e9  # 3 x 3
    assert wired("torus3d", 4, units=50).ring == pytest.approx(200e9)
