"""The table of plans: equal to a brute force as a set, complete, without repeats, and canonical to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.exploration.plans import PlanSpace, enumerate_plans, plan_of, stage_layers
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import ORDER, Plan
from workloads.published import network
from workloads.transformer import DecoderTransformer

GPT3_ON_512 = 644_808
#: Fields that the usual space leaves at one value (tests/hand/test_plans_open.py opens them).
CLOSED = (
    "context", "expert", "expert_tensor", "zero_group", "reshard", "offload", "recompute_layers", "context_ring",
    "overlap_tensor", "overlap_expert",
)  # fmt: skip
UNUSED = tuple(int(getattr(Plan(), name)) for name in CLOSED)


def layers_of(stages: int, layers: int, balanced: int) -> tuple[int, ...] | None:
    """Layers by dealing them out one at a time; embedding and head take a turn each in a balanced split."""
    counts = [0] * stages
    for unit in range(layers + (2 if balanced and stages > 1 else 0)):
        counts[unit % stages] += 1
    if balanced and stages > 1:
        counts[0] -= 1
        counts[-1] -= 1
    return tuple(counts) if min(counts) >= 0 else None


def brute_force(net: DecoderTransformer, sequence: int, batch: int, devices: int) -> Iterator[tuple[int, ...]]:
    """Every raw combination of the plan's fields that breaks no rule, under the name of its canonical form."""
    axes = list(permutations(("tensor", "data", "pipeline")))
    for t, p in product(range(1, devices + 1), repeat=2):
        if devices % (t * p) or net.heads % t or net.ffn % t or p > net.layers:
            continue
        d = devices // (t * p)
        for b in range(1, batch + 1):
            if batch % (d * b):
                continue
            count = batch // (d * b)
            for v in range(1, net.layers + 1):
                for schedule, split in product((0, 1), (0, 1)):
                    # chunks of equal size, embedding and head a layer each in a balanced split
                    if v > 1 and (p == 1 or schedule == 0 or (net.layers + 2 * split) % (p * v) or count % p):
                        continue
                    one_split = p == 1 or layers_of(p, net.layers, 0) == layers_of(p, net.layers, 1)
                    for sp, zero, recompute, over_d, over_p, order in product(
                        (0, 1), (0, 1), (0, 1, 2), (0, 1), (0, 1), range(6)
                    ):
                        if sp and sequence % t:
                            continue
                        active = tuple(a for a in axes[order] if {"tensor": t, "data": d, "pipeline": p}[a] > 1)
                        yield (
                            t,
                            p,
                            d,
                            sp if t > 1 else 0,
                            b,
                            v,
                            1 if p == 1 or count == 1 else schedule,
                            zero if d > 1 else 0,
                            recompute,
                            over_d if d > 1 else 1,
                            over_p if p > 1 else 1,
                            0 if one_split and v == 1 else split,
                            hash_of_order(active),
                            *UNUSED,
                        )


def hash_of_order(active: tuple[str, ...]) -> int:
    """One number for an arrangement of the axes above 1, whichever of the six orders it came from."""
    letters = {"tensor": 1, "data": 2, "pipeline": 3}
    return sum(letters[axis] * 4**i for i, axis in enumerate(active))


def as_set(table: Any) -> set[tuple[int, ...]]:
    found = []
    columns = [table.columns[name] for name in Plan.names()]
    for row in zip(*(column.tolist() for column in columns), strict=True):
        values = dict(zip(Plan.names(), row, strict=True))
        active = tuple(axis for axis in ORDER[values["order"]].split("-") if values[axis] > 1)
        found.append(tuple((values | {"order": hash_of_order(active)}).values()))
    assert len(found) == len(set(found)), "a plan twice"
    return set(found)


NETWORKS = {
    "even layers": (small_network(layers=6, heads=4, ffn=96), 8, 24),
    "odd layers": (small_network(layers=5, heads=4, ffn=96), 8, 12),
    "prime layers, grouped heads": (small_network(layers=7, heads=8, kv_heads=2, ffn=88), 6, 16),
}


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("devices", [8, 12, 24, 64])
def test_the_table_is_the_brute_force_as_a_set(name: str, devices: int) -> None:
    net, sequence, batch = NETWORKS[name]
    table = enumerate_plans(Workload(net, sequence, batch), devices)
    expected = set(brute_force(net, sequence, batch, devices))
    assert as_set(table) == expected
    assert len(table) == len(expected)


def test_the_order_of_the_fields_is_the_one_the_brute_force_writes() -> None:
    assert Plan.names() == (
        "tensor",
        "pipeline",
        "data",
        "sequence_parallel",
        "micro_batch",
        "interleave",
        "schedule",
        "zero_stage",
        "recompute",
        "overlap_data",
        "overlap_pipeline",
        "split",
        "order",
        *CLOSED,
    )


def count_gpt3(devices: int, batch: int, *, layers: int, heads: int, ffn: int, sequence: int) -> int:
    """Plans counted by explicit loops over degrees and micro-batch, choices multiplied at the end."""
    total = 0
    for t in range(1, devices + 1):
        if devices % t or heads % t or ffn % t:
            continue
        for p in range(1, min(devices // t, layers) + 1):
            if devices % (t * p):
                continue
            d = devices // (t * p)
            above_one = sum(degree > 1 for degree in (t, p, d))
            orders = {0: 1, 1: 1, 2: 2, 3: 6}[above_one]
            on_degrees = (2 if t > 1 and sequence % t == 0 else 1) * (4 if d > 1 else 1) * 3 * orders
            splits = 1 if p == 1 or layers_of(p, layers, 0) == layers_of(p, layers, 1) else 2
            for b in range(1, batch + 1):
                if batch % (d * b):
                    continue
                count = batch // (d * b)
                if p == 1:
                    shapes = 1
                else:
                    shapes = (2 if count > 1 else 1) * splits
                    if count % p == 0:
                        shapes += sum(units % (p * v) == 0 for units in (layers, layers + 2) for v in range(2, units))
                    shapes *= 2
                total += on_degrees * shapes
    return total


def test_gpt3_on_512_devices_has_as_many_plans_as_counted_by_hand() -> None:
    table = enumerate_plans(Workload(network("gpt3-175b"), 2048, 1536), 512)
    counted = count_gpt3(512, 1536, layers=96, heads=96, ffn=4 * 12288, sequence=2048)
    assert len(table) == counted == GPT3_ON_512
    packed = np.zeros(len(table), dtype=np.int64)
    for name in Plan.names():
        column = table.columns[name].astype(np.int64)
        packed = packed * (int(column.max()) + 1) + column
    assert np.unique(packed).size == len(table), "a plan twice"


def test_twelve_devices_have_eighteen_ordered_triples_and_no_power_of_two_is_preferred() -> None:
    net = small_network(layers=12, hidden=48, heads=12, ffn=96)
    table = enumerate_plans(Workload(net, 12, 12), 12)
    triples = set(zip(*(table.columns[name].tolist() for name in ("tensor", "pipeline", "data")), strict=True))
    assert len(triples) == 18
    assert (4, 3, 1) in triples


def design(plan: Plan, net: DecoderTransformer, sequence: int, batch: int, devices: int) -> Design:
    chip = a100()
    nodes = Cluster(
        devices, (Tier(4, bandwidth=3e11, latency=1e-6), Tier(max(devices, 4), bandwidth=2.5e10, latency=5e-6))
    )
    return Design(chip, nodes, plan, Workload(net, sequence, batch), stack("generic"))


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("devices", [8, 12, 24])
def test_no_enumerated_plan_breaks_a_rule(name: str, devices: int) -> None:
    net, sequence, batch = NETWORKS[name]
    table = enumerate_plans(Workload(net, sequence, batch), devices)
    result = evaluate(design(table.rows(0, len(table)), net, sequence, batch, devices))
    for rule, values in result.violations.items():
        if rule != "memory":
            assert np.all(values <= 0), rule


def random_plans(rng: np.random.Generator, count: int, devices: int) -> Plan:
    """Raw plans, most of them broken: degrees whose product is `devices`, everything else free."""
    divisors = [i for i in range(1, devices + 1) if devices % i == 0]
    tensor = rng.choice(divisors, count)
    pipeline = np.array([rng.choice([i for i in divisors if (devices // t) % i == 0]) for t in tensor])
    columns = {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": devices // (tensor * pipeline),
        "micro_batch": rng.integers(1, 9, count),
        "interleave": rng.choice([1, 1, 2, 3], count),
        "sequence_parallel": rng.integers(0, 2, count),
        "schedule": rng.integers(0, 2, count),
        "zero_stage": rng.integers(0, 2, count),
        "recompute": rng.integers(0, 3, count),
        "overlap_data": rng.integers(0, 2, count),
        "overlap_pipeline": rng.integers(0, 2, count),
        "split": rng.integers(0, 2, count),
        "order": rng.integers(0, 6, count),
    }
    return plan_of(columns | dict(zip(CLOSED, np.repeat([UNUSED], count, axis=0).T, strict=True)))


def canonical(values: dict[str, int], layers: int, batch: int) -> tuple[int, ...]:
    t, p, d = values["tensor"], values["pipeline"], values["data"]
    count = batch // (d * values["micro_batch"])
    found = dict(values)
    if t == 1:
        found["sequence_parallel"] = 0
    if d == 1:
        found["zero_stage"], found["overlap_data"] = 0, 1
    if p == 1:
        found["overlap_pipeline"], found["split"], found["schedule"] = 1, 0, 1
    elif values["interleave"] == 1 and layers_of(p, layers, 0) == layers_of(p, layers, 1):
        found["split"] = 0
    if count == 1:
        found["schedule"] = 1
    active = tuple(axis for axis in ORDER[values["order"]].split("-") if values[axis] > 1)
    found["order"] = hash_of_order(active)
    return tuple(found[name] for name in Plan.names())


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("devices", [12, 24])
def test_every_valid_random_plan_is_in_the_table_under_its_canonical_name(name: str, devices: int) -> None:
    net, sequence, batch = NETWORKS[name]
    plans = random_plans(np.random.default_rng(104729), 4001, devices)
    result = evaluate(design(plans, net, sequence, batch, devices))
    good = np.ones(len(result), dtype=bool)
    for rule in result.violations:
        if rule != "memory":
            good &= result.violation(rule) <= 0
    known = as_set(enumerate_plans(Workload(net, sequence, batch), devices))
    missing = []
    for i in np.flatnonzero(good):
        values = {field: int(getattr(plans, field)[i]) for field in Plan.names()}
        if canonical(values, net.layers, batch) not in known:
            missing.append(values)
    assert good.sum() > 20
    assert not missing, f"{len(missing)} valid plans are not enumerated, e.g. {missing[0]}"


NEUTRAL_WHEN: dict[str, Any] = {
    "sequence_parallel": lambda c, count, layers: c["tensor"] == 1,
    "zero_stage": lambda c, count, layers: c["data"] == 1,
    "overlap_data": lambda c, count, layers: c["data"] == 1,
    "overlap_pipeline": lambda c, count, layers: c["pipeline"] == 1,
    "schedule": lambda c, count, layers: (c["pipeline"] == 1) | (count == 1),
    "context_ring": lambda c, count, layers: c["context"] == 1,
    "expert_tensor": lambda c, count, layers: c["expert"] == 1,
    "zero_group": lambda c, count, layers: c["zero_stage"] == 0,
    "reshard": lambda c, count, layers: c["zero_stage"] < 3,
    "recompute_layers": lambda c, count, layers: c["recompute"] == 0,
    "split": lambda c, count, layers: np.array(
        [p == 1 or layers_of(int(p), layers, 0) == layers_of(int(p), layers, 1) for p in c["pipeline"]]
    ),
}


#: Values to try of a field; the others are switches.
TRIED = {"order": range(6), "zero_stage": range(4), "zero_group": (0, 1, 2, 3), "recompute_layers": (0, 1, 7)}


@pytest.mark.parametrize("field", [*NEUTRAL_WHEN, "order"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_field_without_effect_changes_no_bit_of_any_metric(field: str, name: str) -> None:
    net, sequence, batch = NETWORKS[name]
    devices = 12
    table = enumerate_plans(Workload(net, sequence, batch), devices)
    columns = table.columns
    count = batch // (columns["data"] * columns["micro_batch"])
    if field == "order":
        idle = np.minimum(np.minimum(columns["tensor"], columns["pipeline"]), columns["data"]) == 1
    else:
        idle = NEUTRAL_WHEN[field](columns, count, net.layers)
    rows = np.flatnonzero(idle)
    if not len(rows):
        pytest.skip(f"{field} always matters here")
    chosen = {key: column[rows] for key, column in columns.items()}
    base = evaluate(design(plan_of(chosen), net, sequence, batch, devices))
    for value in TRIED.get(field, range(2)):
        changed = chosen[field].copy()
        if field == "order":
            changed = np.array([same_arrangement(chosen, i, value) for i in range(len(rows))])
        else:
            changed[:] = value
        other = evaluate(design(plan_of({**chosen, field: changed}), net, sequence, batch, devices))
        for metric in base.metrics:
            np.testing.assert_array_equal(
                base.column(metric), other.column(metric), err_msg=f"{metric}, {field} = {value}"
            )


def same_arrangement(columns: dict[str, np.ndarray], row: int, value: int) -> int:
    """Order `value` if it places the axes above 1 as the row's order does, else the row's own."""

    def placed(order: int) -> tuple[str, ...]:
        return tuple(axis for axis in ORDER[order].split("-") if columns[axis][row] > 1)

    own = int(columns["order"][row])
    return value if placed(value) == placed(own) else own


def test_two_plans_of_the_table_never_evaluate_to_the_same_columns_everywhere() -> None:
    """The opposite of the test above: fields that are kept apart differ somewhere (an order on 2 x 2 x 2 devices)."""
    net = small_network(layers=4, heads=4, ffn=96)
    table = enumerate_plans(Workload(net, 8, 8), 8)
    fixed = {
        "tensor": 2,
        "pipeline": 2,
        "data": 2,
        "micro_batch": 1,
        "interleave": 1,
        "schedule": 1,
        "zero_stage": 0,
        "recompute": 0,
        "overlap_data": 0,
        "overlap_pipeline": 0,
        "split": 0,
        "sequence_parallel": 0,
    }
    mask = np.ones(len(table), dtype=bool)
    for name, value in fixed.items():
        mask &= table.columns[name] == value
    chosen = table.select(mask)
    assert len(chosen) == 6
    times = evaluate(design(chosen.rows(0, 6), net, 8, 8, 8)).column("step_time")
    assert len(set(times.tolist())) > 1


def test_stage_layers_deal_out_all_layers_in_order() -> None:
    # 61 over 8: five of 8 and three of 7; 43 over 4: 11, 11, 11, 10; 6 over 4 with embedding and head: 1, 2, 2, 1
    assert stage_layers(8, 61, 0) == (8, 8, 8, 8, 8, 7, 7, 7)
    assert stage_layers(4, 43, 0) == (11, 11, 11, 10)
    assert stage_layers(4, 6, 1) == (1, 2, 2, 1)
    for layers in range(1, 40):
        for stages in range(1, layers + 1):
            for balanced in (0, 1):
                assert stage_layers(stages, layers, balanced) == layers_of(stages, layers, balanced)


def test_a_space_restricts_each_field() -> None:
    net = small_network(layers=4, heads=4, ffn=96)
    everything = enumerate_plans(Workload(net, 8, 8), 8)
    only = PlanSpace.of(
        {"tensor": [2], "recompute": ["full"], "schedule": "1f1b", "zero_stage": 1, "micro_batch": [1, 2]}
    )
    table = enumerate_plans(Workload(net, 8, 8), 8, only)
    assert 0 < len(table) < len(everything)
    assert set(table.columns["tensor"].tolist()) == {2}
    assert set(table.columns["recompute"].tolist()) == {2}
    assert set(table.columns["micro_batch"].tolist()) <= {1, 2}
    assert as_set(table) <= as_set(everything)


def test_an_unknown_field_of_a_space_is_an_error() -> None:
    with pytest.raises(ValueError, match="tensors"):
        PlanSpace.of({"tensors": [1]})


def test_every_field_takes_every_value_somewhere() -> None:
    net = small_network(layers=6, hidden=48, heads=6, ffn=96)
    table = enumerate_plans(Workload(net, 12, 12), 12)
    for name, values in {
        "recompute": 3,
        "schedule": 2,
        "zero_stage": 2,
        "sequence_parallel": 2,
        "split": 2,
        "order": 6,
        "overlap_data": 2,
        "overlap_pipeline": 2,
    }.items():
        assert len(Counter(table.columns[name].tolist())) == values, name
