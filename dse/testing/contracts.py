"""The contracts of what can be plugged in, as functions: pass your model, get an AssertionError that says which
law it breaks and with which numbers, or nothing.  Every built-in passes the same contracts.

    from dse.testing.contracts import check_link
    check_link(my_transfer_time)

Inputs are seeded columns of prime length, so that a shape that only works by chance fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.exploration.plans import Strategy, enumerate_plans
from dse.exploration.searchers import Searcher
from dse.exploration.variables import Space, Variable
from hw_models.chip import Chip
from workloads.graph_network import GraphNetwork
from workloads.network import Network, Workload
from workloads.training import phase_dimensions

__all__ = ["check_compute", "check_link", "check_network", "check_searcher", "check_strategy"]

#: Designs in a batch.
ROWS = 101
#: Sequence lengths at which a network is looked at.
SEQUENCES = (512, 2048)


def check_compute(matmul_time: Callable[..., Any], chip: Chip | None = None, *, precision: str = "bf16") -> None:
    """A matrix engine `matmul_time(chip, m, n, k, groups, *, precision) -> time [s]`.

    Times are finite and positive; no product beats the peak of the chip; a faster clock and more arrays are
    never slower; a larger product is never faster; a batch equals its rows, bit by bit.
    """
    base = chip or Chip()
    rng = np.random.default_rng(0)
    m, n, k = (rng.integers(1, 4097, ROWS).astype(float) for _ in range(3))
    groups = rng.integers(1, 33, ROWS).astype(float)

    def time(engine: Chip, *sizes: Any) -> np.ndarray:
        return np.asarray(matmul_time(engine, *sizes, precision=precision), dtype=float)

    times = time(base, m, n, k, groups)
    _shape("matmul_time", times)
    _all("a time is finite and > 0 s", np.isfinite(times) & (times > 0), m=m, n=n, k=k, groups=groups, time=times)
    least = 2.0 * m * n * k * groups / base.peak_flops(precision)
    _all("no product is faster than the peak rate", times >= least * (1 - 1e-9), time=times, at_peak=least)
    for name in ("clock", "array_count"):
        faster = time(replace(base, **{name: 2 * getattr(base, name)}), m, n, k, groups)
        _all(f"twice the {name} is never slower", faster <= times * (1 + 1e-12), before=times, after=faster)
    larger = time(base, 2 * m, n, k, groups)
    _all("twice the rows are never faster", larger >= times * (1 - 1e-12), before=times, after=larger)
    _rows_equal_batch("matmul_time", lambda *sizes: time(base, *sizes), (m, n, k, groups), times)


def check_link(transfer_time: Callable[..., Any]) -> None:
    """A transfer `transfer_time(ranks, message, bandwidth, *, latency) -> time [s]`, a collective or a link.

    Zero bytes cost zero, and so does a group of one; times are not negative; more bandwidth and less latency are
    never slower; more bytes are never faster; a batch equals its rows, bit by bit.
    """
    rng = np.random.default_rng(0)
    ranks = 2.0 ** rng.integers(1, 11, ROWS)
    message = 10.0 ** rng.uniform(0, 10, ROWS)
    bandwidth = 10.0 ** rng.uniform(9, 12, ROWS)
    latency = 10.0 ** rng.uniform(-7, -5, ROWS)

    def time(*values: Any) -> np.ndarray:
        return np.asarray(transfer_time(*values[:3], latency=values[3]), dtype=float)

    times = time(ranks, message, bandwidth, latency)
    _shape("transfer_time", times)
    shown = {"ranks": ranks, "message": message, "bandwidth": bandwidth, "time": times}
    _all("a time is finite and >= 0 s", np.isfinite(times) & (times >= 0), **shown)
    nothing = time(ranks, 0.0 * message, bandwidth, latency)
    _all("zero bytes cost zero", nothing == 0, ranks=ranks, time=nothing)
    alone = time(np.ones(ROWS), message, bandwidth, latency)
    _all("a group of one costs zero", alone == 0, message=message, time=alone)
    for claim, other in {
        "twice the bandwidth is never slower": (ranks, message, 2 * bandwidth, latency),
        "half the latency is never slower": (ranks, message, bandwidth, latency / 2),
        "half the bytes are never slower": (ranks, message / 2, bandwidth, latency),
    }.items():
        after = time(*other)
        _all(claim, after <= times * (1 + 1e-12), **shown, after=after)
    _rows_equal_batch("transfer_time", time, (ranks, message, bandwidth, latency), times)


def check_network(network: Any) -> None:
    """A network: the attributes of `workloads.network.Network`, and counts that are conserved.

    One class of first, body and last blocks, at most one of leading layers; whole positive counts; a tensor degree of
    one changes nothing; the shards of a degree that divides everything hold the FLOP of the whole, and so do the
    devices that split experts; a parameter's gradients cost as much as the forward product each; an attention core is
    what its products compute; blocks of one sequence do not depend on an earlier call.
    """
    if not isinstance(network, Network):
        raise AssertionError(f"network: found {type(network).__name__}, allowed: an object with name, blocks, divisors")
    if not network.name or not isinstance(network.name, str):
        raise AssertionError(f"network: found the name {network.name!r}, allowed: a text")
    sizes = network.divisors()
    bad = {name: size for name, size in sizes.items() if isinstance(size, bool) or int(size) != size or size < 1}
    _claim("divisors are whole numbers >= 1", not bad, bad)
    for sequence in _sequences(network):
        blocks = network.blocks(sequence)
        places = [block.place for block in blocks]
        needed = sorted(place for place in places if place != "lead")
        _claim("exactly one class of first, body and last blocks", needed == ["body", "first", "last"], places)
        _claim("at most one class of leading layers", places.count("lead") <= 1, places)
        _claim("the same sequence gives the same blocks", network.blocks(sequence) == blocks, sequence)
        for block in blocks:
            _check_block(block, _common_degree(sizes))


def _sequences(network: Any) -> tuple[int, ...]:
    """Lengths to ask a network for: a graph may be limited to its own."""
    if isinstance(network, GraphNetwork):
        return tuple(dict.fromkeys((max(network.sequence // 2, 1), network.sequence)))
    return SEQUENCES


def check_searcher(make: Callable[[Space], Searcher], *, space: Space | None = None) -> None:
    """A searcher, by the function that makes a new one for a space: `make(space)`.

    Rows are choice numbers inside the space; no row is asked twice; two new searchers that are told the same ask the
    same; an exhausted space gives fewer rows and then none.
    """
    chosen = space or Space([Variable("a", (1, 2, 3)), Variable("b", (1, 2, 3, 4, 5)), Variable("c", ("x", "y"))])
    first, second = make(chosen), make(chosen)
    asked: set[tuple[int, ...]] = set()
    for _ in range(chosen.size + 1):
        rows, again = np.asarray(first.ask(7)), np.asarray(second.ask(7))
        _claim("two new searchers that are told the same ask the same", np.array_equal(rows, again), (rows, again))
        if not len(rows):
            break
        _claim("a row has a choice number a variable", rows.shape[1:] == (len(chosen.shape),), rows.shape)
        _claim("at most as many rows as asked for", len(rows) <= 7, len(rows))
        inside = (rows >= 0) & (rows < np.asarray(chosen.shape))
        _claim("choice numbers lie inside the space", bool(np.all(inside)), rows)
        keys = [tuple(row) for row in rows.tolist()]
        repeated = sorted(asked & set(keys))
        _claim("no row is asked twice", len(set(keys)) == len(keys) and not repeated, repeated)
        asked |= set(keys)
        values, violations = _answers(rows)
        first.tell(rows, values, violations)
        second.tell(rows, values, violations)
    _claim("a small space is exhausted", len(asked) == chosen.size, f"{len(asked)} of {chosen.size}")


def check_strategy(keep: Callable[[Mapping[str, np.ndarray]], Any], *, workload: Workload, devices: int) -> None:
    """A rule for the plans that are looked at: `keep(columns) -> mask`, tried on every plan of a workload.

    A mask of the plans, the same when asked again and when a plan is asked alone; it leaves the columns as they are and
    keeps at least one plan.
    """
    table = enumerate_plans(workload, devices)
    columns = {name: column.copy() for name, column in table.columns.items()}
    kept = Strategy("of check_strategy", keep).chosen(table)
    changed = [name for name, column in columns.items() if not np.array_equal(table.columns[name], column)]
    _claim("the columns stay as they are", not changed, changed)
    _claim("at least one plan is looked at", len(kept) > 0, f"0 of {len(table)}")
    mask = np.asarray(keep(table.columns))
    _claim("asked again it says the same", np.array_equal(mask, np.asarray(keep(table.columns))), mask)
    for row in np.random.default_rng(0).integers(0, len(table), min(ROWS, len(table))).tolist():
        alone = np.asarray(keep({name: column[row : row + 1] for name, column in table.columns.items()}))
        same = alone.shape == (1,) and bool(alone[0]) == bool(mask[row])
        _claim("a plan alone is kept as among others", same, {"row": row, "among others": mask[row], "alone": alone})


def _answers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two objectives in conflict, one rule, and a row in five that failed."""
    total = rows.sum(axis=1).astype(float)
    values = np.stack([total, -total], axis=1)
    values[total % 5 == 4] = np.nan
    return values, (total - 6.0)[:, None]


def _common_degree(sizes: Any) -> int:
    """The largest of 8, 4, 2, 1 that divides everything that a tensor degree must divide."""
    return next(degree for degree in (8, 4, 2, 1) if all(size % degree == 0 for size in sizes.values()))


def _check_block(block: Any, degree: int) -> None:
    name = block.name
    _claim(f"{name}: a whole count >= 1", block.count >= 1 and int(block.count) == block.count, block.count)
    _claim(f"{name}: parameters >= 0", block.parameters >= 0, block.parameters)
    whole = float(np.asarray(block.parameters_per_device(1.0)).reshape(-1)[0])
    _claim(f"{name}: degree 1 changes nothing", whole == block.parameters, (whole, block.parameters))
    parts = (block.parameters_split, block.parameters_grouped, block.parameters_expert)
    _claim(f"{name}: parts of the parameters are no more than all", 0 <= sum(parts) <= block.parameters, parts)
    met, held = block.experts_per_token, block.expert_count
    _claim(f"{name}: a token meets 1 to all of the experts", 1 <= met <= held, (met, held))
    if block.attentions:
        core = sum(one.flops for one in block.attentions)
        _claim(f"{name}: the attention core is what its products compute", core == block.core_flops, core)
    for matmul in block.matmuls:
        if matmul.experts:
            _check_experts(f"{name}, {matmul.name}", matmul)
            continue
        alone = _shard_flops(matmul, 1.0)
        label = f"{name}, {matmul.name}"
        _claim(f"{label}: degree 1 changes nothing", alone == matmul.flops, (alone, matmul.flops))
        split = degree * _shard_flops(matmul, float(degree)) if matmul.split else alone
        _claim(f"{label}: shards hold at least the FLOP of the whole", split >= matmul.flops, (split, matmul.flops))
        divided = {"n": matmul.n, "k": matmul.k, "groups": matmul.groups}.get(matmul.split, degree)
        if divided % degree == 0 and matmul.n_groups % degree == 0:
            _claim(f"{label}: FLOP are conserved over {degree} shards", split == matmul.flops, (split, matmul.flops))
        m, n, k, _ = matmul.shard(1.0, 1.0)
        products = [np.prod([float(d) for d in phase_dimensions(m, n, k, p)]) for p in ("forward", "weight_gradient")]
        _claim(f"{label}: a gradient costs as much as the forward product", products[0] == products[1], products)


def _check_experts(label: str, matmul: Any) -> None:
    """Experts on one device, split over as many, whole and split over two tensor ranks: rows as even as they divide."""
    even = float(matmul.experts)  # samples, so that every expert meets as many rows
    for expert, tensor, split in ((1.0, 1.0, 1.0), (even, 1.0, 1.0), (even, 2.0, 0.0), (1.0, 2.0, 1.0)):
        if split and tensor > 1 and {"n": matmul.n, "k": matmul.k}.get(matmul.split, 1) % 2:
            continue
        m, n, k, groups = (
            float(np.asarray(size).reshape(-1)[0]) for size in matmul.shard(tensor, 2 * even, 1.0, expert, split)
        )
        found, whole = tensor * 2.0 * m * n * k * groups * matmul.repeats, 2 * even * matmul.flops
        shown = {"expert": expert, "tensor": tensor, "expert_tensor": split, "found": found, "whole": whole}
        _claim(f"{label}: FLOP are conserved over devices", found == whole, shown)


def _shard_flops(matmul: Any, degree: float) -> float:
    m, n, k, groups = (float(np.asarray(size).reshape(-1)[0]) for size in matmul.shard(degree, 1.0))
    return 2.0 * m * n * k * groups * float(matmul.repeats)


def _rows_equal_batch(
    name: str, time: Callable[..., np.ndarray], columns: Sequence[np.ndarray], times: np.ndarray
) -> None:
    for row in (0, 1, ROWS // 2, ROWS - 1):
        alone = time(*(column[row : row + 1] for column in columns)).reshape(-1)
        same = alone.size == 1 and alone[0] == times[row]
        _claim(f"{name}: a batch equals its rows, bit by bit", same, {"row": row, "batch": times[row], "alone": alone})


def _shape(name: str, times: np.ndarray) -> None:
    _claim(f"{name}: columns of {ROWS} give {ROWS} times", times.shape == (ROWS,), times.shape)


def _claim(claim: str, holds: bool, found: Any) -> None:
    if not holds:
        raise AssertionError(f"{claim}: found {found}")


def _all(claim: str, holds: Any, **columns: Any) -> None:
    """The claim for every row; the message shows the first row that breaks it."""
    good = np.broadcast_to(holds, (ROWS,))
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        shown = {name: float(np.broadcast_to(column, (ROWS,))[row]) for name, column in columns.items()}
        raise AssertionError(f"{claim}: {int((~good).sum())} of {ROWS} rows break it, the first with {shown}")
