"""Seconds and bytes of one collective over the ranks {r0 + stride i, i < size} of a tiered cluster.

Who sits where is found by placing every rank; wires and algorithms follow their published alpha-beta forms.
n ranks, S bytes of the full tensor (all-to-all: what a rank holds), B bytes a second of a rank, a seconds of a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, floor, gcd, inf, lcm, log2, sqrt
from typing import Any

LEAST_LATENCY, SWITCH_MESSAGES, PEERS_AT_ONCE = 0.18, 7.4, 8.0
ORDER = ("ring", "tree", "halving_doubling", "hierarchical", "in_network")  # of equal times the first is taken


@dataclass(frozen=True)
class Sent:
    """Seconds of one call, and bytes that one device sends at each tier, innermost first (mean of the group)."""

    seconds: float
    by_tier: tuple[float, ...]

    def joules(self, technology: Any) -> float:
        """A byte costs a link inside the innermost tier, the network outside."""
        return self.by_tier[0] * technology.link_energy + sum(self.by_tier[1:]) * technology.network_energy


@dataclass(frozen=True)
class Level:
    """A tier as a group sees it: `ranks` members of it, each for `inside` members further in.

    ring, direct, neighbour   bytes a second of a device in rings and trees, in an all-to-all, to the next member
    steps    messages one after another in a ring reduce-scatter;  share: part of a whole ring's hops
    shared   distant partners share wires: no trees, no halving
    """

    ranks: float
    inside: float
    rails: float
    share: float
    latency: float
    ring: float
    direct: float
    neighbour: float
    steps: float
    shared: bool


@cache
def members(size: int, stride: int, units: tuple[int, ...]) -> tuple[int, ...]:
    """Members of a group at each tier of `units` devices: the largest even pieces that every group falls into.

    Every start of a group up to where the pattern repeats is placed; the last tier holds what is left.
    """
    found, inside = [], 1
    for unit in units[:-1]:
        if unit >= 1 << 30:  # one unit holds the cluster
            together = size
        else:
            together, span = 0, size * stride
            for start in range(0, lcm(span, unit), span):
                for offset in range(stride):
                    counts: dict[int, int] = {}
                    for i in range(size):
                        place = (start + offset + stride * i) // unit
                        counts[place] = counts.get(place, 0) + 1
                    together = gcd(together, *counts.values())
        here = together if not found else gcd(size // inside, max(together // inside, 1))
        found.append(here)
        inside *= here
    return (*found, size // inside)


def levels(design: Any, size: int, stride: int) -> list[Level]:
    """The tiers of the cluster as the group sees them."""
    cluster, chip, stack = design.cluster, design.chip, design.stack
    tiers = cluster.tiers
    units = tuple(1 << 30 if tier.size >= cluster.devices else int(tier.size) for tier in tiers)
    found: list[Level] = []
    inside, unit, crossing = 1.0, 1.0, 1.0
    for number, (tier, ranks) in enumerate(zip(tiers, members(size, stride, units), strict=True)):
        is_last = number == len(tiers) - 1
        own = stack.link_efficiency * chip.links * chip.link_bandwidth
        bandwidth = stack.network_efficiency * tier.bandwidth if tier.bandwidth > 0 else own
        spacing = max(stride / unit, 1.0)
        holds = max(tier.size, cluster.devices) if is_last else tier.size
        wires = _wires(tier, bandwidth, ranks, spacing, max(holds / unit, 1.0))
        reach = inside * ranks
        beyond = 0.0 if is_last or reach >= size else 1.0 / reach
        found.append(Level(ranks, inside, min(inside, stack.rails), crossing - beyond, tier.latency, *wires))
        crossing, inside, unit = beyond, reach, float(tier.size)
    return found


def _wires(
    tier: Any, bandwidth: float, n: float, spacing: float, units: float
) -> tuple[float, float, float, float, bool]:
    """(ring, direct, neighbour, steps, shared) of `n` members, `spacing` apart, in a tier of `units`."""
    dimensions = {"ring": 1, "torus2d": 2, "torus3d": 3}.get(tier.topology)
    if dimensions:
        return _torus(bandwidth, n, spacing, units, dimensions)
    if tier.topology == "cube_mesh":  # six links a device; twins two, pairs in a quad one, a quad two rings, all three
        link = bandwidth / 6.0
        pair = 2.0 if spacing >= 4 else 1.0
        used = 6.0 if n >= 8 else 4.0 if n == 4 and spacing == 1 else 2.0 if n > 2 else pair
        direct = min(used, 3.5 if n >= 8 else max(n - 1.0, 1.0) * pair)
        return link * used, link * direct, link * pair, n - 1.0, True
    if tier.topology == "full":
        link = bandwidth / max(units - 1.0, 1.0)
        used = link * max(min(n, units) - 1.0, 1.0)
        return used, used, link, n - 1.0, False
    if tier.topology == "fat_tree":
        bandwidth /= tier.oversubscription
    return bandwidth, bandwidth, bandwidth, n - 1.0, False


def _torus(
    bandwidth: float, n: float, spacing: float, units: float, dimensions: int
) -> tuple[float, float, float, float, bool]:
    """B (u / D) c / gap: u of D dimensions in use, c = 1/2 where the group is an open line or slab."""
    side = 1
    while side**dimensions < units:
        side += 1
    if dimensions == 1:
        side = units  # type: ignore[assignment]
    reach, below = n * spacing, 1.0
    used, steps, gap, longest, is_open = 0, 0.0, 1.0, 1.0, False
    for _ in range(dimensions):
        apart, extent = (min(max(length / below, 1.0), side) for length in (spacing, reach))
        count = ceil(extent / apart)
        if count > 1:
            used, gap, is_open = used + 1, max(gap, apart), is_open or extent < side
        steps, longest, below = steps + count - 1.0, max(longest, count), below * side
    one = bandwidth / dimensions / gap
    ring = one * max(used, 1) * (0.5 if is_open and reach < units else 1.0)
    return ring, ring * min(1.0, 4.0 / (max(used, 1) * longest)), one / 2.0, steps, True


# Calls ---------------------------------------------------------------------------------------------------------------


def call(design: Any, kind: str, *, size: float, stride: float, message: float, copies: int = 1) -> Sent:
    """One collective: all_reduce, reduce_scatter, all_gather, all_to_all or point_to_point (the slowest next hop).

    A group of one, or no bytes, costs nothing.  Small messages pay sqrt((S + l^2 S0) / (S + S0)) of a latency.
    """
    tiers = len(design.cluster.tiers)
    if size <= 1 or message <= 0:
        return Sent(0.0, (0.0,) * tiers)
    group, small = levels(design, int(size), int(stride)), design.stack.low_latency_message
    share = sqrt((message + LEAST_LATENCY**2 * small) / (message + small)) if small else 1.0
    if kind == "point_to_point":
        found = max(share * one.latency + message / one.neighbour for one in group if one.ranks > 1)
        sent = [message * one.share for one in group]
    elif kind == "all_to_all":
        found, sent = _all_to_all(group, size, message, share, copies)
    else:
        found, sent = _reduction(design, group, kind, size, message, share)
    return Sent(found + design.stack.collective_launch, tuple(sent))


def _all_to_all(
    group: list[Level], size: float, message: float, share: float, copies: int
) -> tuple[float, list[float]]:
    """S/n to every other rank, tier after tier; with several copies a row crosses once to each unit that wants it."""
    total, sent = 0.0, []
    for one in group:
        peers = (one.ranks - 1.0) * one.inside
        part = message * peers / size
        if copies > 1:
            units = size / one.inside
            wanted = units * (1.0 - (1.0 - 1.0 / units) ** copies)
            part, peers = message / copies * wanted * (one.ranks - 1.0) / one.ranks, one.ranks - 1.0
        if part > 0:
            total += ceil(peers / PEERS_AT_ONCE) * one.latency * share + part / one.direct
        sent.append(part)
    return total, sent


def _reduction(
    design: Any, group: list[Level], kind: str, size: float, message: float, share: float
) -> tuple[float, list[float]]:
    """The cheapest algorithm that the stack has and that can run; the ring where none can.

    ring              2 or 1 times ((n - 1) a + (n - 1)/n S / B), B of the slowest tier crossed, all its rails in use
    tree              2 (depth a + S / B), all-reduce only: a chain inside the innermost of several tiers
    halving_doubling  log2(n) a a tier, powers of two
    hierarchical      a ring a tier, each on what the tiers inside left
    in_network        7.4 a + (n + 1)/n S / B on a reducing switch
    """
    stack, passes = design.stack, 2.0 if kind == "all_reduce" else 1.0
    slowest = min(one.rails * one.ring for one in group if one.ranks > 1)
    whole = (size - 1.0) / size * message
    staged = [(one.ranks - 1.0) / one.ranks * message / one.inside for one in group]
    staged_time = sum(part * (one.inside / one.rails) / one.ring for one, part in zip(group, staged, strict=True))

    hops = size - 1.0
    for one in group:
        if one.shared and one.ranks == size:
            hops = one.steps  # a ring along each dimension of the torus
    times = {"ring": passes * (share * hops * sum(one.share * one.latency for one in group) + whole / slowest)}
    distant = any(one.shared and one.ranks > 1 for one in group)
    if kind == "all_reduce" and not distant:
        depth = 0.0
        for number, one in enumerate(group):
            chain = number == 0 and len(group) > 1
            depth += (one.ranks - 1.0 if chain else ceil(log2(one.ranks))) * one.latency
        times["tree"] = 2.0 * (share * depth + message / slowest)
    if not distant and all(log2(one.ranks) == floor(log2(one.ranks)) for one in group):
        delay = sum(log2(one.ranks) * one.latency for one in group)
        times["halving_doubling"] = passes * (share * delay + staged_time)
    if len(group) > 1 or "ring" not in stack.algorithms:
        times["hierarchical"] = passes * (share * sum(one.steps * one.latency for one in group) + staged_time)
    first = design.cluster.tiers[0]
    if kind == "all_reduce" and first.topology == "reducing_switch" and group[0].ranks == size:
        peak = first.bandwidth if first.bandwidth > 0 else design.chip.links * design.chip.link_bandwidth
        moved = (size + 1.0) / size * message / (stack.switch_efficiency * peak)
        times["in_network"] = SWITCH_MESSAGES * share * group[0].latency + moved
    able = [name for name in ORDER if name in stack.algorithms and name in times] or ["ring"]
    best = min(able, key=lambda name: (times[name], ORDER.index(name)))
    if best == "ring":
        sent = [passes * whole * one.share for one in group]
    else:
        sent = [passes * part for part in staged]
    if best == "in_network":
        sent[0] = (size + 1.0) / size * message
    return times[best] if times[best] < inf else times["ring"], sent
