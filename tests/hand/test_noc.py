"""Networks on chip: bandwidth, distance, energy and area by hand, laws, and a count of links by brute force."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from hw_models.chip import NOC
from hw_models.memory.noc import CROSSBAR, MESH, RING, noc_area, noc_bandwidth, noc_energy, noc_hops, noc_wire


def test_sixteen_cores_by_hand() -> None:
    rate = [float(noc_bandwidth(kind, 16.0, width=64.0, clock=1e9)) for kind in range(1, 4)]
    assert rate == [16 * 64e9, 8 * 64e9, 4 * 4 * 64e9]
    assert [float(noc_hops(kind, 16.0)) for kind in range(1, 4)] == [1.0, 4.0, 2.5]


def test_one_core_has_its_port_and_one_hop_whatever_the_topology() -> None:
    for kind in range(1, 4):
        assert noc_bandwidth(kind, 1.0, width=32.0, clock=2e9) == 64e9
        assert noc_hops(kind, 1.0) == 1.0


def loads(kind: int, cores: int) -> tuple[float, float]:
    """Largest load of a link and mean distance, one byte from everyone to everyone, shortest ways, ties split."""
    used: Counter[tuple[int, int]] = Counter()
    far = 0.0
    side = round(cores**0.5)
    for a, b in itertools.product(range(cores), repeat=2):
        if kind == RING:
            right = (b - a) % cores
            ways = [1] * (right <= cores - right) + [-1] * (cores - right <= right) if right else []
            for step in ways:
                at = a
                for _ in range(min(right, cores - right)):
                    used[at, (at + step) % cores] += 1 / len(ways)
                    at = (at + step) % cores
            far += min(right, cores - right)
        else:
            at, (row, column) = a, divmod(b, side)
            while at % side != column:
                step = 1 if column > at % side else -1
                used[at, at + step] += 1
                at += step
            while at // side != row:
                step = side if row > at // side else -side
                used[at, at + step] += 1
                at += step
            far += abs(a % side - column) + abs(a // side - row)
    return max(used.values()), far / cores**2


@pytest.mark.parametrize(("kind", "cores"), [(RING, 16), (RING, 64), (MESH, 16), (MESH, 64), (MESH, 144)])
def test_bandwidth_and_distance_are_those_of_counted_links(kind: int, cores: int) -> None:
    """Everyone sends a byte to everyone: the fullest link paces, n^2 bytes in so many cycles of one byte."""
    load, distance = loads(kind, cores)
    assert noc_bandwidth(kind, float(cores), width=1.0, clock=1.0) == pytest.approx(cores**2 / load, rel=0.05)
    assert noc_hops(kind, float(cores)) == pytest.approx(distance, rel=0.02)


def test_wider_faster_and_more_cores_never_carry_less() -> None:
    rng = np.random.default_rng(5)
    kind, cores = rng.integers(1, 4, 997), rng.integers(1, 513, 997).astype(float)
    width, clock = rng.uniform(8, 256, 997), rng.uniform(5e8, 2e9, 997)
    base = noc_bandwidth(kind, cores, width=width, clock=clock)
    for more in ((cores + 1, width, clock), (cores, width * 1.1, clock), (cores, width, clock * 1.1)):
        assert np.all(noc_bandwidth(kind, more[0], width=more[1], clock=more[2]) >= base)
    assert np.all(base <= cores * width * clock)
    assert np.all(noc_hops(kind, cores + 1) >= noc_hops(kind, cores))


def test_energy_and_area_by_hand() -> None:
    # 16 cores of 4 mm2: side 2 mm; a crossbar byte goes 4 mm, a mesh byte 2.5 hops of 2 mm
    assert float(noc_wire(CROSSBAR, 16.0, core_area=4e-6)) == pytest.approx(4e-3)
    energy = noc_energy(MESH, 16.0, core_area=4e-6, wire_energy=8e-10, router_energy=6e-13)
    assert float(energy) == pytest.approx(2.5 * (2e-3 * 8e-10 + 6e-13))
    # 16 ports of 64 B at 0.1 um: 0.8192 mm squared, twice
    area = noc_area(CROSSBAR, 16.0, width=64.0, wire_pitch=1e-7, router_area=5e-10)
    assert float(area) == pytest.approx(2 * (16 * 512 * 1e-7) ** 2)
    mesh, ring = (float(noc_area(kind, 16.0, width=64.0, wire_pitch=1e-7, router_area=5e-10)) for kind in (MESH, RING))
    assert mesh == pytest.approx(16 * 512 * 5e-10) and ring == pytest.approx(mesh * 9 / 25)
    assert NOC[CROSSBAR] == "crossbar"


def test_columns_have_the_bits_of_scalars() -> None:
    kinds, cores = np.array([1, 2, 3]), np.array([7.0, 108.0, 132.0])
    together = noc_bandwidth(kinds, cores, width=64.0, clock=1.41e9)
    for i in range(3):
        assert together[i] == noc_bandwidth(int(kinds[i]), float(cores[i]), width=64.0, clock=1.41e9)
