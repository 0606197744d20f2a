"""Who shares a unit of a tier, and what bandwidth the wiring gives: hand numbers, laws, placement, flows."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from hw_models.chip import Chip
from hw_models.cluster import TOPOLOGY, Cluster, Tier
from hw_models.network.collective_time import collective_time
from hw_models.network.groups import ranks_per_tier
from hw_models.network.topology import wiring
from hw_models.stack import Stack


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


def test_a_hybrid_cube_mesh_gives_the_links_that_form_rings() -> None:
    link = 100e9  # one of six
    assert wired("cube_mesh", 8, units=8).ring == 6 * link
    assert wired("cube_mesh", 4, units=8).ring == 4 * link  # a quad
    assert wired("cube_mesh", 4, units=8, spacing=2).ring == 2 * link  # two pairs of twins
    assert wired("cube_mesh", 2, units=8).ring == link
    assert wired("cube_mesh", 2, units=8, spacing=4).ring == 2 * link  # twins
    assert wired("cube_mesh", 2, units=8).neighbour == link


#: Links between devices of a DGX-1: quads, and twins across (NVIDIA white paper WP-08437, figure 4).
CUBE_MESH = Counter(
    {frozenset(pair): 2 for base in (0, 4) for pair in ((base, base + 3), (base + 1, base + 2))}
    | {frozenset((base + a, base + b)): 1 for base in (0, 4) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))}
    | {frozenset((device, device + 4)): 2 for device in range(4)}
)


def test_disjoint_rings_use_every_link_of_the_cube_mesh_three_of_all_and_two_of_a_quad() -> None:
    assert all(sum(count for pair, count in CUBE_MESH.items() if device in pair) == 6 for device in range(8))
    for rings in (
        [(0, 3, 1, 2), (0, 3, 2, 1)],
        [(0, 1, 2, 6, 4, 5, 7, 3), (0, 2, 6, 5, 1, 3, 7, 4), (0, 3, 2, 1, 5, 6, 7, 4)],
    ):
        used = Counter(frozenset(edge) for ring in rings for edge in zip(ring, (*ring[1:], ring[0]), strict=True))
        inside = {pair: count for pair, count in CUBE_MESH.items() if pair <= set(rings[0])}
        assert used == inside  # every link in one ring; each ring runs both ways: two links a device


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


# ---- oracle: flows that share ports, all groups of an axis at once

INNER, OUTER, NODE, DEVICES = 450e9, 50e9, 8, 64


def cluster(outer: float = OUTER, oversubscription: float = 1.0, devices: int = DEVICES) -> Cluster:
    network = Tier(devices, "fat_tree", outer, latency=0.0, oversubscription=oversubscription)
    return Cluster(devices=devices, tiers=(Tier(NODE, latency=0.0), network))


def ports(source: int, target: int) -> list[tuple[str, int]]:
    """What one transfer occupies: links inside a node; adapters and the uplinks of both nodes across."""
    if source // NODE == target // NODE:
        return [("link out", source), ("link in", target)]
    return [
        ("adapter out", source), ("adapter in", target), ("uplink out", source // NODE), ("uplink in", target // NODE),
    ]  # fmt: skip


def fair_rates(flows: list[Counter], outer: float, oversubscription: float) -> list[float]:
    """Max-min fair rates by progressive filling: all grow together until a port is full, its flows then stop."""
    capacity = {"link out": INNER, "link in": INNER, "adapter out": outer, "adapter in": outer}
    capacity |= dict.fromkeys(("uplink out", "uplink in"), NODE * outer / oversubscription)
    rates, growing = [0.0] * len(flows), set(range(len(flows)))
    left = {port: capacity[port[0]] for flow in flows for port in flow}
    while growing:
        load: Counter = Counter()
        for index in growing:
            load.update(flows[index])
        step = min(left[port] / load[port] for port in load)
        for port in load:
            left[port] -= step * load[port]
        for index in growing:
            rates[index] += step
        full = {port for port in load if left[port] <= 1e-9 * capacity[port[0]]}
        growing -= {index for index in growing if full & flows[index].keys()}
    return rates


def axis(size: int, stride: int, devices: int = DEVICES) -> list[list[int]]:
    return [
        [base + lane + stride * i for i in range(size)]
        for base in range(0, devices, size * stride)
        for lane in range(stride)
    ]


def rings_of(group: list[int]) -> list[Counter]:
    """As many rings as members share a node, each leaving a node by another member's adapter."""
    homes: dict[int, list[int]] = {}
    for rank in group:
        homes.setdefault(rank // NODE, []).append(rank)
    rings = []
    for turn in range(min(map(len, homes.values()))):
        order = [rank for members in homes.values() for rank in (*members[turn:], *members[:turn])]
        rings.append(Counter(port for hop in zip(order, (*order[1:], order[0]), strict=True) for port in ports(*hop)))
    return rings


def simulated_all_reduce(groups: list[list[int]], message: float, outer: float, oversubscription: float) -> float:
    """Seconds until the slowest ring of all groups has passed its part 2 (n-1)/n times round."""
    flows = [(len(group), len(rings), ring) for group in groups for rings in [rings_of(group)] for ring in rings]
    rates = fair_rates([ring for *_, ring in flows], outer, oversubscription)
    return max(
        2 * (size - 1) / size * message / parts / rate for (size, parts, _), rate in zip(flows, rates, strict=True)
    )


def modelled(kind: str, size: int, stride: int, on: Cluster, algorithm: str = "ring") -> float:
    chip, stack = Chip(links=18, link_bandwidth=25e9), Stack(algorithms=(algorithm,))
    return float(collective_time(on, chip, stack, kind, size=size, stride=stride, message=1e9).time)


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    ("size", "stride"), [(2, 1), (8, 1), (2, 4), (2, 8), (8, 8), (16, 4), (8, 4), (32, 2), (16, 1), (64, 1)]
)
def test_groups_that_share_a_node_take_what_fair_sharing_of_its_ports_gives(
    size: int, stride: int, oversubscription: float
) -> None:
    flows = simulated_all_reduce(axis(size, stride), 1e9, OUTER, oversubscription)
    assert modelled("all_reduce", size, stride, cluster(OUTER, oversubscription)) == pytest.approx(flows)


def test_data_parallel_groups_of_a_node_use_an_adapter_each() -> None:
    # tensor 4 on nodes of 8: a data-parallel group has two members a node, so two of the eight adapters
    assert simulated_all_reduce(axis(16, 4), 1e9, OUTER, 1.0) == pytest.approx(2 * 15 / 16 * 1e9 / 100e9)
    assert modelled("all_reduce", 16, 4, cluster()) == pytest.approx(2 * 15 / 16 * 1e9 / 100e9)


@pytest.mark.parametrize(("size", "stride"), [(16, 1), (64, 1), (32, 2), (16, 4)])
def test_where_links_inside_a_node_limit_the_model_is_at_most_one_hop_of_a_node_slow(size: int, stride: int) -> None:
    # of n_0 hops a ring makes through a node, n_0 - 1 use its links; the model counts all of them
    flows = simulated_all_reduce(axis(size, stride), 1e9, 400e9, 1.0)
    inside = NODE // stride
    assert flows <= modelled("all_reduce", size, stride, cluster(400e9)) <= flows * inside / (inside - 1) * (1 + 1e-12)


@pytest.mark.parametrize(("size", "stride", "devices"), [(6, 1, 48), (12, 1, 48), (3, 2, 48), (3, 3, 72), (5, 1, 40)])
def test_groups_that_straddle_nodes_are_never_priced_below_fair_sharing(size: int, stride: int, devices: int) -> None:
    flows = simulated_all_reduce(axis(size, stride, devices), 1e9, OUTER, 1.0)
    assert modelled("all_reduce", size, stride, cluster(devices=devices)) >= flows * (1 - 1e-12)


@pytest.mark.parametrize("oversubscription", [1.0, 2.0])
def test_a_hierarchical_all_reduce_takes_its_stages_one_after_the_other(oversubscription: float) -> None:
    inside = simulated_all_reduce(axis(8, 1), 1e9, OUTER, oversubscription)
    across = simulated_all_reduce(axis(8, 8), 1e9 / 8, OUTER, oversubscription)
    on = cluster(OUTER, oversubscription)
    assert modelled("all_reduce", 64, 1, on, "hierarchical") == pytest.approx(inside + across)
    # the same by two calls, as sharding in groups of a node with replicas across makes them
    chip, ring = Chip(links=18, link_bandwidth=25e9), Stack(algorithms=("ring",))
    two = [
        collective_time(on, chip, ring, kind, size=8, stride=stride, message=1e9 / part).time
        for kind, stride, part in (("reduce_scatter", 1, 1), ("all_reduce", 8, 8), ("all_gather", 1, 1))
    ]
    assert sum(two) == pytest.approx(inside + across)


@pytest.mark.parametrize(("size", "stride"), [(8, 1), (8, 8), (16, 1), (32, 2), (4, 2), (16, 4)])
def test_an_all_to_all_of_what_each_rank_holds_takes_at_most_its_two_tiers_in_turn(size: int, stride: int) -> None:
    pairs = [(a, b) for group in axis(size, stride) for a, b in product(group, group) if a != b]
    left, now = [1e9 / size] * len(pairs), 0.0
    flows = [Counter(ports(*pair)) for pair in pairs]
    while flows:
        rates = fair_rates(flows, OUTER, 1.0)
        step = min(bytes_left / rate for bytes_left, rate in zip(left, rates, strict=True))
        now += step
        rest = [bytes_left - step * rate for bytes_left, rate in zip(left, rates, strict=True)]
        open_flows = [index for index, bytes_left in enumerate(rest) if bytes_left > 1e-6]
        flows, left = [flows[index] for index in open_flows], [rest[index] for index in open_flows]
    inside = (min(size, NODE // stride) - 1 if stride < NODE else 0) / size * 1e9 / INNER
    # both tiers work at once in the simulation, one after the other in the model
    assert now <= modelled("all_to_all", size, stride, cluster()) * (1 + 1e-9)
    assert modelled("all_to_all", size, stride, cluster()) <= (now + inside) * (1 + 1e-9)
