"""How long a collective of one group takes on a tiered cluster, with the cheapest algorithm the stack has.

Joins groups (who is where), topology (what the wires give) and collectives (the formulas).
Not here: overlap with computation, contention between different axes of the plan.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.network import collectives
from hw_models.network.groups import ranks_per_tier
from hw_models.network.topology import Wiring, wiring
from hw_models.stack import ALGORITHMS, Stack

#: Traversals of the tensor by kind: a reduce-scatter is one, an all-reduce is a reduce-scatter and an all-gather.
PASSES = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}
KINDS = (*PASSES, "all_to_all", "point_to_point")
#: Number of the only algorithm of all-to-all and point to point: send directly.
DIRECT = -1
RING = ALGORITHMS.index("ring")
IN_NETWORK = ALGORITHMS.index("in_network")


class CollectiveCost(NamedTuple):
    """One collective of one group.

    time           [s]
    algorithm      index into ALGORITHMS, or DIRECT
    bytes_by_tier  bytes one device sends at each tier, innermost first, mean over the group [B]
    """

    time: Any
    algorithm: Any
    bytes_by_tier: tuple[Any, ...]


class Level(NamedTuple):
    """One tier seen by a group: `ranks` members of it, each standing for `inside` members further in.

    rails  of those members, how many one collective sends through at once
    share  part of the hops of a ring over the whole group that are hops of this tier
    """

    ranks: Any
    inside: Any
    rails: Any
    share: Any
    latency: Any
    wires: Wiring


def collective_time(
    cluster: Cluster, chip: Chip, stack: Stack, kind: str, *, size: Any, stride: Any, message: Any, copies: int = 1
) -> CollectiveCost:
    """Time of one collective over the groups {r0 + stride i, i < size}, all groups at once.

    kind     one of KINDS.  point_to_point goes to the next member and takes as long as the slowest such hop.
    message  S [B]: the full tensor (all-to-all: what one rank holds; point to point: what is sent)
    copies   of an all-to-all: S holds each row so many times, for different ranks, and a row crosses only once to
             each unit and each rank that wants it, forwarded inside (DeepEP); 1: every copy travels by itself

    ring              one pass over all ranks, paced by the slowest tier crossed.  The n_0 members of a unit, at
                      most `stack.rails` of them, are parallel rails (one ring through each), so tier i offers
                      n_0 ... n_{i-1} times one device.
                      Latency: a shard meets the hops of each tier in their share.
    tree              two pipelined trees over the units of the innermost tier, a chain inside each, as NCCL builds
                      them; all-reduce only; same rails, latency tier by tier.
    halving_doubling  partners inside first, then across; powers of two on links that are not shared.
    hierarchical      ring reduce-scatter tier by tier, stages not overlapped.
    in_network        the switch adds up: all-reduce of a group inside one unit of a reducing switch.
    The cheapest that exists in `stack` and can run is taken, ties to the first of ALGORITHMS; where none can run,
    the ring.  Beside it a collective costs one `collective_launch`, and a step the latency of its tier times
    `collectives.protocol_share` of the message.
    A group of 1 or 0 bytes costs exactly 0; a chip without links takes beyond 1e200 s.
    Shapes: all fields, size, stride and message broadcast, e.g. (H, 1) with (S,) to (H, S).
    """
    if kind not in KINDS:
        raise ValueError(f"kind: found {kind!r}, allowed: {', '.join(KINDS)}")
    size, stride, message = np.asarray(size), np.asarray(stride), np.asarray(message)
    with np.errstate(over="ignore"):  # a chip without links
        levels = group_levels(cluster, chip, stack, size=size, stride=stride)
        if kind == "point_to_point":
            cost = _point_to_point(levels, size, message, protocol=_protocol_share(stack, message))
        elif kind == "all_to_all":
            cost = _all_to_all(levels, size, message, protocol=_protocol_share(stack, message), copies=copies)
        else:
            switch = None
            if kind == "all_reduce" and "in_network" in stack.algorithms:
                switch = _switch_bandwidth(cluster.tiers[0], chip, stack)
            protocol = _protocol_share(stack, message)
            cost = _reduction(
                levels, stack.algorithms, kind, size=size, message=message, protocol=protocol, switch=switch
            )
        starts = stack.collective_launch * ((message > 0) & (size > 1))
        return cost._replace(time=cost.time + starts)


def group_levels(cluster: Cluster, chip: Chip, stack: Stack, *, size: Any, stride: Any) -> list[Level]:
    """The tiers of a cluster as a group of ranks sees them, innermost first."""
    levels: list[Level] = []
    inside, unit, crossing = np.asarray(1.0), np.asarray(1.0), np.asarray(1.0)
    ranks = ranks_per_tier(cluster, size, stride)
    for number, (tier, members) in enumerate(zip(cluster.tiers, ranks, strict=True)):
        is_last = number == len(ranks) - 1
        wires = wiring(
            tier.topology,
            _bandwidth(tier, chip, stack),
            members,
            spacing=np.maximum(stride / unit, 1.0),
            units=np.maximum((np.maximum(tier.size, cluster.devices) if is_last else tier.size) / unit, 1.0),
            oversubscription=tier.oversubscription,
        )
        reach = inside * members
        beyond = np.asarray(0.0) if is_last else (reach < size) / reach
        rails = np.minimum(inside, stack.rails)
        levels.append(Level(members, inside, rails, crossing - beyond, tier.latency, wires))
        crossing, inside, unit = beyond, reach, np.asarray(tier.size)
    return levels


def _bandwidth(tier: Tier, chip: Chip, stack: Stack) -> Any:
    """Sustained bandwidth of one device into a tier, per direction [B/s]; 0 becomes the smallest positive number."""
    own = stack.link_efficiency * chip.scale_up_bandwidth
    network = stack.network_efficiency * tier.bandwidth
    return np.maximum(np.where(np.greater(tier.bandwidth, 0), network, own), np.finfo(np.float64).tiny)


def _switch_bandwidth(tier: Tier, chip: Chip, stack: Stack) -> Any:
    """Sustained bandwidth of one device into a switch that reduces, per direction [B/s]; None for other tiers."""
    if tier.topology != "reducing_switch":
        return None
    peak = np.where(np.greater(tier.bandwidth, 0), tier.bandwidth, chip.scale_up_bandwidth)
    return np.maximum(stack.switch_efficiency * peak, np.finfo(np.float64).tiny)


def _protocol_share(stack: Stack, message: Any) -> Any:
    """Share of its tier's latency that a step of such a message pays; a plain 1 where all messages are alike."""
    small = stack.low_latency_message
    if np.ndim(small) == 0 and small == 0:  # the same bits, seven operations less
        return 1.0
    return collectives.protocol_share(message, small)


def _reduction(
    levels: list[Level], algorithms: tuple[str, ...], kind: str, *, size: Any, message: Any, protocol: Any, switch: Any
) -> CollectiveCost:
    """All-reduce, reduce-scatter or all-gather by the cheapest algorithm.

    protocol  share of its latency that a step pays
    switch    bandwidth into an innermost switch that reduces, None without one
    """
    passes, rails, staged = PASSES[kind], _rails(levels), _staged_bytes(levels, message)
    flat = collectives.scattered(size, message)
    ring = passes * (protocol * _ring_delay(levels, size) + flat / rails)
    times = {"ring": ring} if "ring" in algorithms else {}
    if "tree" in algorithms and kind == "all_reduce":
        times["tree"] = 2.0 * (protocol * _tree_delay(levels) + message / rails)
    if "halving_doubling" in algorithms:
        delay = _halving_delay(levels)  # infinite where it cannot run: a share of 0 of that is no number
        delay = np.where(np.isinf(delay), np.inf, protocol * np.where(np.isinf(delay), 0.0, delay))
        times["halving_doubling"] = passes * (delay + _staged_time(levels, staged))
    if "hierarchical" in algorithms and (len(levels) > 1 or "ring" not in times):  # on one tier it is the ring
        times["hierarchical"] = passes * (protocol * _hierarchical_delay(levels) + _staged_time(levels, staged))
    if switch is not None:
        times["in_network"] = _in_network(levels[0], size, message, protocol=protocol, switch=switch)
    best, chosen = _cheapest(times, ring)
    is_ring = chosen == RING
    sent = [passes * np.where(is_ring, flat * level.share, part) for level, part in zip(levels, staged, strict=True)]
    if switch is not None:
        sent[0] = np.where(chosen == IN_NETWORK, message * ((size + 1) / size), sent[0])
    return CollectiveCost(best * (message > 0), chosen, tuple(sent))


def _in_network(inner: Level, size: Any, message: Any, *, protocol: Any, switch: Any) -> Any:
    """All-reduce by the innermost switch; infinite for a group of one, or of several units [s]."""
    time = collectives.switch_all_reduce(size, message, switch, latency=protocol * inner.latency)
    return np.where((inner.ranks == size) & (size > 1), time, np.inf)


def _cheapest(times: dict[str, Any], ring: Any) -> tuple[Any, Any]:
    """Smallest time and the number of its algorithm; the ring where nothing else can run."""
    sure = times.keys() & {"ring", "hierarchical"}
    best: Any = np.asarray(np.inf) if times else ring
    chosen: Any = np.asarray(RING)
    for name, time in times.items():
        chosen = np.where(time < best, ALGORITHMS.index(name), chosen)
        best = np.minimum(best, time)
    return (best, chosen) if sure else (np.where(np.isinf(best), ring, best), chosen)


def _rails(levels: list[Level]) -> Any:
    """Bandwidth of a rank in rings or trees over the whole group: the slowest tier crossed, all its rails in use."""
    slowest: Any = np.asarray(np.inf)
    for level in levels:
        slowest = np.minimum(slowest, np.where(level.ranks > 1, level.rails * level.wires.ring, np.inf))
    return slowest


def _staged_bytes(levels: list[Level], message: Any) -> list[Any]:
    """Bytes a rank sends at each tier in a staged reduce-scatter: (n_i - 1)/n_i of the shard the tiers inside left.

    A tree has (n_i - 1)/(n_0 ... n_i) edges of a tier for each rank, which is the same.
    """
    return [collectives.scattered(level.ranks, message) / level.inside for level in levels]


def _staged_time(levels: list[Level], sent: list[Any]) -> Any:
    """Time of the bytes of a staged reduce-scatter, one tier after the other [s]."""
    total: Any = sent[0] / levels[0].wires.ring
    for level, part in zip(levels[1:], sent[1:], strict=True):
        total = total + part * (level.inside / level.rails) / level.wires.ring
    return total


def _ring_delay(levels: list[Level], size: Any) -> Any:
    """Latency of a ring reduce-scatter over all ranks: each shard meets the hops of a tier in their share [s]."""
    latency: Any = 0.0
    steps: Any = size - 1
    for level in levels:
        latency = latency + level.share * level.latency
        if level.wires.shared:  # a group inside one torus runs a ring along each dimension
            steps = np.where(level.ranks == size, level.wires.steps, steps)
    return steps * latency


def _hierarchical_delay(levels: list[Level]) -> Any:
    """Latency of ring reduce-scatters tier by tier [s]."""
    delay: Any = 0.0
    for level in levels:
        delay = delay + level.wires.steps * level.latency
    return delay


def _tree_delay(levels: list[Level]) -> Any:
    """Latency from the leaves of a tree to its root [s]; infinite where distant partners share wires.

    A chain of n_0 - 1 messages inside the innermost of several tiers, ceil(log2 n_i) messages in each other tier.
    """
    delay: Any = 0.0
    for number, level in enumerate(levels):
        is_chain = number == 0 and len(levels) > 1
        depth = level.ranks - 1 if is_chain else collectives.ceil_log2(level.ranks)
        passed = depth * level.latency
        delay = delay + (np.where(level.ranks > 1, np.inf, passed) if level.wires.shared else passed)
    return delay


def _halving_delay(levels: list[Level]) -> Any:
    """Latency of recursive halving, inside first and then across: log2(n_i) messages a tier [s].

    Infinite where some n_i is no power of two, or distant partners share wires.
    """
    delay: Any = 0.0
    for level in levels:
        mantissa, exponent = np.frexp(level.ranks)  # as in `ceil_log2`, read once for both
        runs = level.ranks == 1 if level.wires.shared else mantissa == 0.5
        delay = delay + np.where(runs, (exponent - 1) * level.latency, np.inf)
    return delay


def _all_to_all(
    levels: list[Level], size: Any, message: Any, *, protocol: Any, copies: int = 1, at_once: float = 8.0
) -> CollectiveCost:
    """S/n to every other rank over the innermost tier both are in; tiers one after the other.

    at_once  peers whose messages are under way together, so that a rank waits ceil(peers / at_once) latencies
             [NCCL, src/include/device.h: 8 sends and receives in a batch]
    copies   see `collective_time`: a tier carries what `_forwarded` says
    """
    time: Any = 0.0
    sent = []
    for level in levels:
        peers = (level.ranks - 1) * level.inside
        waits = np.ceil(peers / at_once)
        part = message * (peers / size)
        if copies > 1:
            part, waits = _forwarded(level, size, message, copies), np.ceil((level.ranks - 1) / at_once)
        time = time + collectives.transfer_time(waits * level.latency * protocol, part, level.wires.direct)
        sent.append(part)
    return CollectiveCost(time, np.full(np.shape(time), DIRECT), tuple(sent))


def _forwarded(level: Level, size: Any, message: Any, copies: int) -> Any:
    """Bytes a rank sends at a tier when a row crosses once to each unit that holds some of its `copies` readers.

    S/k D (n - 1)/n,  D = U (1 - (1 - 1/U)^k) of the U = size / inside units at this tier want a row, k copies drawn
    independently; of the n units beside each other here one holds the row already.
    """
    units = size / level.inside
    missed: Any = 1.0
    for _ in range(copies):
        missed = missed * (1.0 - 1.0 / units)
    return message / copies * (units * (1.0 - missed)) * ((level.ranks - 1) / level.ranks)


def _point_to_point(levels: list[Level], size: Any, message: Any, *, protocol: Any) -> CollectiveCost:
    """S to the next member; the time is that of the slowest hop of the group, the bytes are the mean hop's."""
    time: Any = 0.0
    for level in levels:
        sent = message * (level.ranks > 1)
        time = np.maximum(
            time, collectives.point_to_point(sent, level.wires.neighbour, latency=protocol * level.latency)
        )
    sent = message * (size > 1)
    return CollectiveCost(time, np.full(np.shape(time), DIRECT), tuple(sent * level.share for level in levels))
