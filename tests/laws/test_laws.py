"""What holds for every design: a row is a row in any batch, more hardware is never slower, nothing is lost."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import small_network

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate, evaluate_rows
from dse.evaluation.layout import OPERATOR_COLUMNS, lay_out
from dse.evaluation.price import price, price_matmuls
from dse.evaluation.result import Result
from dse.evaluation.work import work
from dse.exploration.plans import enumerate_plans, plan_of
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import FULL, PER_OPERATOR, RECOMPUTE, SELECTIVE, Plan
from workloads.precision import Training
from workloads.training import hardware_flops

DEVICES, BATCH, SEQUENCE = 24, 24, 768
NETWORK = small_network(layers=6, hidden=1536, heads=12, kv_heads=4, ffn=6144, vocabulary=8000)
WORKLOAD = Workload(NETWORK, SEQUENCE, BATCH)
KINDS = ("systolic", "tensor_core")
EVERY_KIND = frozenset((SELECTIVE, FULL, PER_OPERATOR))


def random_chips(count: int, seed: int, kind: str) -> dict[str, np.ndarray]:
    """Chip columns over the range of real devices."""
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> np.ndarray:
        return low * (high / low) ** rng.random(count)

    found = {
        "array_count": rng.integers(1, 33, count).astype(float),
        "array_rows": rng.choice([8.0, 16.0, 64.0, 128.0], count),
        "array_columns": rng.choice([8.0, 16.0, 64.0, 128.0], count),
        "clock": between(5e8, 2e9),
        "dataflow": rng.integers(0, 3, count).astype(float),
        "double_buffered": rng.integers(0, 2, count).astype(float),
        "vector_lanes": np.floor(between(256, 65536)),
        "local_sram": between(6e4, 4e6),
        "shared_sram": between(1e6, 2e8),
        "shared_sram_bandwidth": between(2e11, 1e13),
        "hbm_stacks": rng.integers(1, 9, count).astype(float),
        "hbm_stack_capacity": between(4e9, 3e10),
        "hbm_stack_bandwidth": between(1e11, 1e12),
        "links": rng.integers(1, 19, count).astype(float),
        "link_bandwidth": between(1e10, 1e11),
    }
    if kind == "tensor_core":
        found["array_count"] = np.floor(between(64, 640))
        found["array_rows"], found["array_columns"] = np.full(count, 8.0), np.full(count, 16.0)
    return found


@cache
def table() -> Any:
    return enumerate_plans(WORKLOAD, DEVICES)


def random_plans(count: int, seed: int) -> dict[str, np.ndarray]:
    found = table()
    index = np.random.default_rng(seed).integers(0, len(found), count)
    return {name: column[index].astype(float) for name, column in found.columns.items()}


def chips_of(columns: dict[str, np.ndarray], kind: str) -> Chip:
    return Chip(compute=kind, **columns)


def fabric(bandwidth: Any = 2.5e10, latency: Any = 5e-6) -> Cluster:
    return Cluster(DEVICES, (Tier(8, latency=1e-6), Tier(DEVICES, bandwidth=bandwidth, latency=latency)))


def step(chips: Chip, plans: Plan, cluster: Cluster | None = None, name: str = "generic", **training: Any) -> Result:
    return evaluate(Design(chips, cluster or fabric(), plans, WORKLOAD, stack(name), Training(**training)))


def same_bits(left: Result, right: Result, take: Any = slice(None)) -> None:
    for name in left.metrics:
        np.testing.assert_array_equal(left.column(name), right.column(name)[take], err_msg=name)
    for name in left.violations:
        np.testing.assert_array_equal(left.violation(name), right.violation(name)[take], err_msg=name)


# --- A batch is its rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["fused", "materialized"])
def test_a_row_alone_in_pairs_and_in_a_product_has_the_same_bits(kind: str, attention: str) -> None:
    chips, plans = random_chips(13, 1, kind), random_plans(13, 2)
    pairs = step(chips_of(chips, kind), plan_of(plans), attention=attention)
    assert pairs.shape == (13,)
    product = step(chips_of({k: v[:, None] for k, v in chips.items()}, kind), plan_of(plans), attention=attention)
    assert product.shape == (13, 13)
    diagonal = np.arange(13) * 13 + np.arange(13)
    same_bits(pairs, product, diagonal)
    for row in range(13):
        alone = step(
            chips_of({k: v[row].item() for k, v in chips.items()}, kind),
            Plan(**{k: int(v[row]) for k, v in plans.items()}),
            attention=attention,
        )
        same_bits(alone, pairs, slice(row, row + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_one_chip_with_many_plans_and_many_chips_with_one_plan(kind: str) -> None:
    chips, plans = random_chips(7, 3, kind), random_plans(11, 4)
    product = step(chips_of({k: v[:, None] for k, v in chips.items()}, kind), plan_of(plans))
    for row in range(7):
        one = step(chips_of({k: v[row].item() for k, v in chips.items()}, kind), plan_of(plans))
        same_bits(one, product, slice(row * 11, (row + 1) * 11))
    for column in range(11):
        many = step(chips_of(chips, kind), Plan(**{k: int(v[column]) for k, v in plans.items()}))
        same_bits(many, product, slice(column, None, 11))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 100])
def test_any_chunking_gives_the_same_bits(kind: str, size: int) -> None:
    count = 23 if size < 17 else 101
    chips, plans = random_chips(count, 5, kind), random_plans(count, 6)
    whole = step(chips_of(chips, kind), plan_of(plans))
    shared = step(chips_of({k: v[:1] for k, v in chips.items()}, kind), plan_of(plans))
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        same_bits(
            step(
                chips_of({k: v[part] for k, v in chips.items()}, kind), plan_of({k: v[part] for k, v in plans.items()})
            ),
            whole,
            part,
        )
        same_bits(
            step(chips_of({k: v[:1] for k, v in chips.items()}, kind), plan_of({k: v[part] for k, v in plans.items()})),
            shared,
            part,
        )


def test_the_order_of_rows_and_of_memory_does_not_matter() -> None:
    chips, plans = random_chips(97, 7, "systolic"), random_plans(97, 8)
    whole = step(chips_of(chips, "systolic"), plan_of(plans))
    back = slice(None, None, -1)
    same_bits(
        step(
            chips_of({k: v[back] for k, v in chips.items()}, "systolic"),
            plan_of({k: v[back] for k, v in plans.items()}),
        ),
        whole,
        back,
    )
    product = {k: np.asfortranarray(v[:, None]) for k, v in chips.items()}
    first = step(chips_of(product, "systolic"), plan_of(plans))
    second = step(
        chips_of({k: v[:, None].copy() for k, v in chips.items()}, "systolic"),
        plan_of({k: v[back][back] for k, v in plans.items()}),
    )
    same_bits(first, second)


def test_a_layout_made_before_gives_the_same_bits() -> None:
    chips, plans = random_chips(5, 9, "systolic"), random_plans(31, 10)
    design = Design(chips_of({k: v[:, None] for k, v in chips.items()}, "systolic"), fabric(), plan_of(plans), WORKLOAD)
    layout = lay_out(plan_of(plans), WORKLOAD, design.training, paired=False)
    same_bits(evaluate_rows(replace(rows(design), plan=layout.plan), layout), evaluate(design))


def test_a_metric_has_the_same_bits_whichever_others_are_wanted() -> None:
    plans = plan_of(random_plans(31, 10))
    r = rows(Design(chips_of(random_chips(31, 9, "systolic"), "systolic"), fabric(), plans, WORKLOAD))
    layout = lay_out(r.plan, WORKLOAD, r.training, paired=True)
    everything = evaluate_rows(r, layout)
    for name in everything.metrics:
        alone = evaluate_rows(r, layout, frozenset((name,)))
        assert set(alone.metrics) == {name}
        np.testing.assert_array_equal(alone.column(name), everything.column(name), err_msg=name)
        np.testing.assert_array_equal(alone.feasible, everything.feasible)


# --- More is never slower --------------------------------------------------------------------------------------------

MORE = {
    "HBM bandwidth": {"hbm_stack_bandwidth": 1.7},
    "arrays": {"array_count": 3.0},
    "vector lanes": {"vector_lanes": 2.0},
    "clock": {"clock": 1.3},
    "shared SRAM": {"shared_sram": 2.3},
    "bandwidth of shared SRAM": {"shared_sram_bandwidth": 1.9},
    "local SRAM": {"local_sram": 2.9},
    "link bandwidth": {"link_bandwidth": 1.9},
    "links": {"links": 2.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", list(MORE))
def test_more_of_a_chip_is_never_slower(kind: str, what: str) -> None:
    chips, plans = random_chips(1009, 11, kind), random_plans(1009, 12)
    base = step(chips_of(chips, kind), plan_of(plans), name="ideal").column("step_time")
    more = {name: chips[name] * MORE[what].get(name, 1.0) for name in chips}
    time = step(chips_of(more, kind), plan_of(plans), name="ideal").column("step_time")
    assert np.all(time <= base * (1 + 1e-12))
    assert np.any(time < base * 0.999), "it never matters"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1.01, 2.0, 3.7])
def test_a_little_or_much_more_of_everything_at_once_is_never_slower(kind: str, factor: float) -> None:
    chips, plans = random_chips(499, 13, kind), random_plans(499, 14)
    grown = ("hbm_stack_bandwidth", "clock", "shared_sram", "shared_sram_bandwidth", "local_sram", "link_bandwidth")
    more = {name: chips[name] * (factor if name in grown else 1.0) for name in chips}
    base = step(chips_of(chips, kind), plan_of(plans)).column("step_time")
    assert np.all(step(chips_of(more, kind), plan_of(plans)).column("step_time") <= base * (1 + 1e-12))


def test_a_better_network_is_never_slower() -> None:
    chips, plans = chips_of(random_chips(1009, 15, "systolic"), "systolic"), plan_of(random_plans(1009, 16))
    base = step(chips, plans).column("step_time")
    for better in (fabric(bandwidth=6e10), fabric(latency=1e-6)):
        time = step(chips, plans, better).column("step_time")
        assert np.all(time <= base * (1 + 1e-12)) and np.any(time < base)


def test_software_that_costs_nothing_is_never_slower() -> None:
    chips, plans = chips_of(random_chips(499, 17, "systolic"), "systolic"), plan_of(random_plans(499, 18))
    assert np.all(
        step(chips, plans, name="ideal").column("step_time") <= step(chips, plans).column("step_time") * (1 + 1e-12)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_overlap_is_never_slower(kind: str) -> None:
    """Hiding a gradient reduction helps; hiding transfers does too, up to the error of the two closed forms."""
    chips, plans = chips_of(random_chips(997, 19, kind), kind), random_plans(997, 20)
    shown = {**plans, "overlap_data": np.zeros(997)}
    hidden = {**plans, "overlap_data": np.ones(997)}
    assert np.all(
        step(chips, plan_of(hidden)).column("step_time")
        <= step(chips, plan_of(shown)).column("step_time") * (1 + 1e-12)
    )


# --- Nothing is lost -------------------------------------------------------------------------------------------------


def test_degree_one_is_the_identity() -> None:
    for attention in ("fused", "materialized"):
        chips = chips_of(random_chips(29, 21, "systolic"), "systolic")
        alone = Cluster(1, (Tier(8), Tier(8, bandwidth=1e9)))
        result = step(chips, Plan(), alone, "ideal", attention=attention)
        for name in (
            "time_tensor",
            "time_data",
            "communication_tensor",
            "communication_pipeline",
            "communication_data",
            "energy_communication",
        ):
            assert np.all(result.column(name) == 0.0), name
        assert np.all(np.abs(result.column("time_bubble")) <= 1e-14 * result.column("step_time"))


def exact_plans(count: int, seed: int) -> dict[str, np.ndarray]:
    """Plans whose every size divides (kv heads 4, vocabulary 8000): no rounding up, no replication."""
    plans = random_plans(6 * count, seed)
    keep = np.flatnonzero(np.isin(plans["tensor"], [1, 2, 4]))[:count]
    return {name: column[keep] for name, column in plans.items()}


@pytest.mark.parametrize("recompute", [0, 1, 2, 3])
def test_multiply_adds_are_conserved_under_any_plan(recompute: int) -> None:
    """What all devices are priced for is what the network needs: 2 FLOP a multiply-add, from operators to the step."""
    plans = {**exact_plans(307, 22), "recompute": np.full(307, float(recompute))}
    design = Design(
        chip("a100-sxm-80gb"), fabric(), plan_of(plans), WORKLOAD, training=Training(attention="materialized")
    )
    r = rows(design)
    layout = lay_out(r.plan, WORKLOAD, r.training, paired=False)
    done = layout.work
    macs = done.m * done.n * done.k * done.groups
    total: Any = 0.0
    for task in done.tasks:
        if task.kind != "product":
            continue
        block = layout.blocks[task.place]
        # nothing, the attention core, all of it, every second product outside the core
        repeated = (0.0, float(task.core), 1.0, 0.0 if task.core else 0.5)[recompute]
        again = repeated if task.phase == "forward" and block.recomputed else 0.0
        total = total + block.count * macs[task.row] * (1.0 + again)
    work = layout.passes.spread(layout.operators.spread(total)).reshape(-1)
    everywhere = 2.0 * work * plans["tensor"] * plans["data"] * layout.stages.micro_batches
    # attention that is materialized computes the full square
    expected = float(hardware_flops(WORKLOAD, RECOMPUTE[recompute]))
    np.testing.assert_allclose(everywhere, expected, rtol=1e-12)
    result = evaluate(design)
    peak = DEVICES * chip("a100-sxm-80gb").peak_flops("bf16")
    np.testing.assert_allclose(result.column("hfu") * result.column("step_time") * peak, expected, rtol=1e-12)


def test_dynamic_energy_of_computing_does_not_depend_on_pipeline_or_data_degree() -> None:
    """Without update and recomputation the same work is done wherever it is placed."""
    plans = exact_plans(211, 23)
    plans |= {
        "recompute": np.zeros(211),
        "sequence_parallel": np.ones(211),
        "zero_stage": np.ones(211),
        "micro_batch": np.ones(211),
    }
    keep = plans["tensor"] == 2
    energy = step(chip("a100-sxm-80gb"), plan_of({k: v[keep] for k, v in plans.items()}), name="ideal").column(
        "energy_compute"
    )
    assert keep.sum() > 20
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_never_faster_than_the_model_flops_at_peak(kind: str) -> None:
    chips = chips_of(random_chips(1009, 24, kind), kind)
    result = step(chips, plan_of(random_plans(1009, 25)), name="ideal")
    assert np.all(result.column("hfu") <= 1.0)
    assert np.all(result.column("mfu") <= result.column("hfu") * (1 + 1e-12))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_never_faster_than_its_memory_traffic(kind: str) -> None:
    """The update alone streams 34 B of every parameter that a device keeps."""
    chips = random_chips(509, 26, kind)
    plans = {**random_plans(509, 27), "zero_stage": np.zeros(509)}
    result = step(chips_of(chips, kind), plan_of(plans), name="ideal")
    bandwidth = chips["hbm_stacks"] * chips["hbm_stack_bandwidth"]
    floor = result.column("memory_weights") / 2 * 34 / bandwidth
    assert np.all(result.column("time_update") >= floor * (1 - 1e-12))
    assert np.all(result.column("step_time") >= floor)


@pytest.mark.parametrize("kind", KINDS)
def test_full_recomputation_is_slower_and_smaller(kind: str) -> None:
    chips, plans = chips_of(random_chips(509, 28, kind), kind), random_plans(509, 29)
    found = [step(chips, plan_of({**plans, "recompute": np.full(509, float(value))})) for value in (0, 1, 2)]
    times, sizes = ([r.column(name) for r in found] for name in ("step_time", "memory"))
    assert np.all(times[0] < times[2]) and np.all(times[1] < times[2]) and np.all(times[0] <= times[1])
    assert np.all(sizes[2] <= sizes[0]) and np.all(sizes[1] <= sizes[0])
    assert np.any(sizes[2] < sizes[0])


@pytest.mark.parametrize("attention", ["fused", "materialized"])
def test_memory_does_not_depend_on_the_chip(attention: str) -> None:
    plans = plan_of(random_plans(61, 30))
    first = step(
        chips_of({k: v[0].item() for k, v in random_chips(1, 31, "systolic").items()}, "systolic"),
        plans,
        attention=attention,
    )
    second = step(chip("h100-sxm"), plans, attention=attention)
    np.testing.assert_array_equal(first.column("memory"), second.column("memory"))


def test_a_fused_attention_kernel_is_never_slower_on_a_chip_whose_memory_paces_it() -> None:
    chips, plans = chips_of(random_chips(211, 32, "systolic"), "systolic"), random_plans(211, 33)
    starved = replace(chips, hbm_stack_bandwidth=chips.hbm_stack_bandwidth / 1e3)
    long = Workload(NETWORK, 4096, BATCH)
    both = [
        evaluate(Design(starved, fabric(), plan_of(plans), long, stack("ideal"), Training(attention=kind))).column(
            "step_time"
        )  # type: ignore[arg-type]
        for kind in ("fused", "materialized")
    ]
    assert np.all(both[0] <= both[1] * (1 + 1e-12))


# --- The contract of situations --------------------------------------------------------------------------------------


def test_operator_prices_depend_on_the_situation_fields_alone() -> None:
    """Every plan field beside those of a situation may change without moving a price."""
    fixed = OPERATOR_COLUMNS
    plans = random_plans(53, 34)
    other = random_plans(53, 35)
    changed = {name: plans[name] if name in fixed else other[name] for name in plans}
    chips = chips_of(random_chips(53, 36, "systolic"), "systolic")

    def prices(columns: dict[str, np.ndarray]) -> Any:
        r = rows(Design(chips, fabric(), plan_of(columns), WORKLOAD))
        layout = lay_out(r.plan, WORKLOAD, r.training, paired=True)
        assert set(layout.at_operator) == set(fixed)
        return price(r, layout.work, repeats=EVERY_KIND, splits_backward=True, splits_core=True)

    before, after = prices(plans), prices(changed)
    for item in fields(before):
        left, right = leaves(getattr(before, item.name)), leaves(getattr(after, item.name))
        assert left.keys() == right.keys() and left, item.name
        for name, one in left.items():
            np.testing.assert_array_equal(one, right[name], err_msg=f"{item.name} {name}")


def leaves(tree: Any) -> dict[tuple[Any, ...], Any]:
    """Columns of nested dictionaries by their path."""
    if not isinstance(tree, dict):
        return {(): tree}
    return {(key, *path): value for key, inner in tree.items() for path, value in leaves(inner).items()}


@pytest.mark.parametrize("field", ["tensor", "micro_batch", "sequence_parallel"])
def test_each_situation_field_moves_prices(field: str) -> None:
    plans = {name: np.array([float(getattr(Plan(tensor=2), name))] * 2) for name in Plan.names()}
    plans[field] = np.array([1.0, 2.0]) if field != "sequence_parallel" else np.array([0.0, 1.0])
    r = rows(Design(chip("a100-sxm-80gb"), fabric(), plan_of(plans), WORKLOAD, stack("ideal")))
    layout = lay_out(r.plan, WORKLOAD, r.training, paired=False)
    priced = price(r, layout.work, repeats=layout.repeats)
    body = layout.operators.spread(priced.forward["body"]).reshape(-1)
    assert body[0] != body[-1]


def test_equal_products_priced_once_cost_what_each_costs_alone() -> None:
    """Products of the same sizes share a row; pricing every block by itself must give the same times."""
    plans = plan_of(exact_plans(43, 37))
    for attention in ("fused", "materialized"):
        r = rows(Design(chip("a100-sxm-80gb"), fabric(), plans, WORKLOAD, training=Training(attention=attention)))  # type: ignore[arg-type]
        layout = lay_out(r.plan, WORKLOAD, r.training, paired=False)
        together = price_matmuls(r, layout.work)
        for place, block in layout.blocks.items():
            for matmul in block.matmuls:
                one_block = {place: replace(block, matmuls=(matmul,))}
                single = work(one_block, r.training, layout.at_operator, paired=False)
                alone = price_matmuls(r, single)
                mine, its = (
                    [t for t in found.tasks if (t.kind, t.place, t.operator) == ("product", place, matmul.name)]
                    for found in (layout.work, single)
                )
                assert [task.phase for task in its] == [task.phase for task in mine]
                for one, two in zip(its, mine, strict=True):
                    for name in ("time", "sram", "hbm"):
                        np.testing.assert_array_equal(getattr(alone, name)[one.row], getattr(together, name)[two.row])


def test_only_gradients_of_weights_can_be_put_off_by_a_schedule() -> None:
    """Both gradients of attention's products are input gradients, which the stage before waits for."""
    plan = plan_of({**exact_plans(3, 5), "recompute": np.zeros(3)})
    for attention in ("fused", "materialized"):
        training = Training(attention=attention)  # type: ignore[arg-type]
        done = lay_out(plan, WORKLOAD, training, paired=False).work
        late = {task.operator for task in done.tasks if task.place == "body" and "weights" in task.sets}
        products = {task.operator for task in done.tasks if task.kind == "product" and task.place == "body"}
        assert late == products - {"scores", "context"} and late
