"""How long one collective takes on uniform links: published alpha-beta formulas, nothing about placement.

Not here: which links a group uses (groups, topology) and which algorithm is chosen (collective_time).
Theory: Hockney's model t = a + V/B; Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19(1), 2005; Patarasuk and Yuan, "Bandwidth optimal all-reduce", JPDC 69(2), 2009.

Symbols, the same everywhere: n `ranks`, S `message` [B], the FULL tensor (for all-to-all: what one rank holds),
B `bandwidth` of one rank [B/s] per direction, a `latency` of one message [s].  Times [s] broadcast their arguments.
A latency may be one for large shards times `protocol_share`.
One rank or no bytes cost exactly 0.  Ignored: reduction arithmetic (it hides behind the transfer), congestion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Smallest positive number: keeps a quotient defined where nothing is sent.
_TINY = np.finfo(np.float64).tiny


def ceil_log2(ranks: Any) -> Any:
    """Smallest whole k with 2^k >= ranks, exact (read off the floating point exponent)."""
    mantissa, exponent = np.frexp(ranks)
    return exponent - (mantissa == 0.5)


def is_power_of_two(ranks: Any) -> Any:
    """Whether a whole number is a power of two, exact."""
    return np.frexp(ranks)[0] == 0.5


def transfer_time(delay: Any, sent: Any, bandwidth: Any) -> Any:
    """Time to send bytes over one link: t = delay + sent / B, and 0 where nothing is sent [s]."""
    return np.multiply(np.greater(sent, 0), delay) + np.divide(sent, bandwidth)


def scattered(ranks: Any, message: Any) -> Any:
    """Bytes one rank sends to reduce-scatter or all-gather a tensor: (n-1)/n S [B]; no algorithm sends fewer."""
    return message * ((ranks - 1) / ranks)


def protocol_share(message: Any, low_latency_message: Any, *, least: float = 0.18) -> Any:
    """Small messages carry flags with the data and skip the handshake of large ones: share of its latency.

    r = sqrt((S + l^2 S0) / (S + S0))
    S0 `low_latency_message` [B], l `least`: share that is left for the smallest.  Between the two the library runs
    ever more channels, and each costs a start: the best number of channels grows with sqrt(S), and so does the time.
    S0 = 0 gives 1: one protocol for all.
    l = 0.6/3.4 on NVLink and 2.7/14 on a network: latency of a ring step, LL over Simple protocol, in NCCL
    src/graph/tuning.cc.
    Ignores jumps between protocols and between channel counts.
    """
    return np.sqrt((message + least * least * low_latency_message) / np.maximum(message + low_latency_message, _TINY))


def switch_all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any, messages: float = 7.4) -> Any:
    """Each rank pulls the sum of its shard through the switch and multicasts it: t = m a + (n+1)/n S/B  [s].

    A link carries S to the switch for the shards of all ranks, and S/n for its own sum; as much comes back.
    m `messages` of a ring this takes, whatever n: 25 us over 3.4 us, base latencies of NVLS and of a ring step,
    NCCL src/graph/tuning.cc.  One rank costs 0.  No bus bandwidth 2 (n-1)/n S/t passes 2 (n-1)/(n+1) B, so a ring
    on the same links is as fast up to three ranks.
    On eight H200 (n+1)/n S/t is 304 to 311 GB/s for 5 to 8 ranks and 8 GiB: the law holds in n.
    """
    sent = np.where(np.greater(ranks, 1), message * ((ranks + 1) / ranks), 0.0)
    return transfer_time(messages * latency, sent, bandwidth)


def ring_reduce_scatter(ranks: Any, message: Any, bandwidth: Any, *, latency: Any, steps: Any = None) -> Any:
    """A ring reduce-scatter passes n-1 shards to the neighbour: t = (n-1) a + (n-1)/n S/B  [s].

    `steps` replaces n-1 where several short rings do the work (one along each dimension of a torus).
    """
    steps = ranks - 1 if steps is None else steps
    return transfer_time(steps * latency, scattered(ranks, message), bandwidth)


def ring_all_gather(ranks: Any, message: Any, bandwidth: Any, *, latency: Any, steps: Any = None) -> Any:
    """A ring all-gather is a reduce-scatter run backwards and takes the same time [s].  S is the gathered tensor."""
    return ring_reduce_scatter(ranks, message, bandwidth, latency=latency, steps=steps)


def ring_all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any, steps: Any = None) -> Any:
    """A ring all-reduce is reduce-scatter then all-gather: t = 2 (n-1) a + 2 (n-1)/n S/B  [s]."""
    return 2.0 * ring_reduce_scatter(ranks, message, bandwidth, latency=latency, steps=steps)


def halving_doubling_reduce_scatter(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """Recursive halving swaps ever smaller halves with partners 2^k away: t = log2(n) a + (n-1)/n S/B  [s].

    Infinite where n is not a power of two.  Needs links on which distant partners do not share a wire.
    """
    time = transfer_time(ceil_log2(ranks) * latency, scattered(ranks, message), bandwidth)
    return np.where(is_power_of_two(ranks), time, np.inf)


def halving_doubling_all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """Recursive halving, then doubling: t = 2 log2(n) a + 2 (n-1)/n S/B, powers of two only (else infinite) [s]."""
    return 2.0 * halving_doubling_reduce_scatter(ranks, message, bandwidth, latency=latency)


def tree_all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """Reduce to a root and broadcast, whole messages on a binomial tree: t = 2 ceil(log2 n) (a + S/B)  [s]."""
    depth = ceil_log2(ranks)
    return transfer_time(2.0 * depth * latency, 2.0 * depth * message, bandwidth)


def double_tree_all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """Two complementary pipelined binary trees, half the message each: t = 2 ceil(log2 n) a + 2 S/B  [s].

    The tree of today's communication libraries.  Ignores the filling of the pipeline with small pieces.
    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    Parallel Computing 35(12), 2009.
    """
    return transfer_time(2.0 * ceil_log2(ranks) * latency, 2.0 * message * np.greater(ranks, 1), bandwidth)


def all_to_all(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """Every rank sends S/n to each other one: t = (n-1) a + (n-1)/n S/B  [s]; S is what one rank holds."""
    return transfer_time((ranks - 1) * latency, scattered(ranks, message), bandwidth)


def broadcast(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """A pipelined broadcast is paced by one copy on every link: t = ceil(log2 n) a + S/B  [s]."""
    return transfer_time(ceil_log2(ranks) * latency, message * np.greater(ranks, 1), bandwidth)


def point_to_point(message: Any, bandwidth: Any, *, latency: Any) -> Any:
    """One message from one rank to another: t = a + S/B  [s]."""
    return transfer_time(latency, message, bandwidth)


def parameter_server(workers: Any, message: Any, bandwidth: Any, *, servers: Any, server_bandwidth: Any) -> Any:
    """Push to dedicated servers and pull back, paced by the busier side: t = 2 max(w S/(s Bs), S/Bw)  [s].

    w workers, s servers that hold S/s each, B [B/s] of a worker and of a server, per direction.  Ignores latency.
    """
    return 2.0 * np.maximum(workers * message / (servers * server_bandwidth), np.divide(message, bandwidth))


def colocated_parameter_server(ranks: Any, message: Any, bandwidth: Any) -> Any:
    """Each of n ranks also serves its shard of S/n: t = 2 (n-1)/n S/B, the bytes of a ring [s].  Ignores latency."""
    return 2.0 * np.divide(scattered(ranks, message), bandwidth)


def staged_reduce_scatter(
    ranks: Sequence[Any],
    message: Any,
    bandwidth: Sequence[Any],
    *,
    latency: Sequence[Any],
    stage: Callable[..., Any] = ring_reduce_scatter,
) -> Any:
    """A reduce-scatter tier by tier, innermost first: t = sum_i stage(n_i, S / (n_0 ... n_{i-1}), B_i, a_i)  [s].

    Each tier works on the shard the tiers inside it left.  Stages follow each other (they do not overlap).
    """
    total: Any = 0.0
    for members, link, delay in zip(ranks, bandwidth, latency, strict=True):
        total = total + stage(members, message, link, latency=delay)
        message = message / members
    return total


def hierarchical_all_reduce(
    ranks: Sequence[Any], message: Any, bandwidth: Sequence[Any], *, latency: Sequence[Any]
) -> Any:
    """Reduce-scatter inside, all-reduce of S/g across, all-gather inside: twice the staged reduce-scatter [s]."""
    return 2.0 * staged_reduce_scatter(ranks, message, bandwidth, latency=latency)
