"""Context and expert ranks, ZeRO by stage and group, offloading, recomputation by layer: on paper, then as laws.

Laws hold for random valid plans that draw every field, of a dense network and of a mixture with leading dense layers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import small_network
from mixture import BATCH, DEVICES, MIXTURE, SEQUENCE
from paper_step import BODY, BOUNDARY, LINK, PAPER_CHIP, PAPER_TRAINING, PARAMETERS, equal, paper_network

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate
from dse.evaluation.layout import lay_out
from dse.evaluation.passes import paced
from dse.evaluation.result import TIME_PARTS, Result
from dse.evaluation.traffic import price_traffic
from dse.exploration.plans import plan_of
from dse.insight.account import account
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stack import Stack
from hw_models.stacks import stack
from hw_models.technology import technology
from workloads.network import Workload
from workloads.plan import RECOMPUTE, Plan
from workloads.precision import Training
from workloads.training import hardware_flops, parameters

DENSE = small_network(layers=6, hidden=64, heads=8, kv_heads=8, ffn=192, vocabulary=64)
NETWORKS = {"dense": DENSE, "mixture": MIXTURE}
FABRIC = Cluster(DEVICES, (Tier(8, latency=1e-6), Tier(DEVICES, bandwidth=2.5e10, latency=5e-6)), host_bandwidth=2e10)
HALF = Training(gradient_bytes=2)

# --- On paper: the chip and network of paper_step.py ------------------------------------------------------------


def paper_step(
    devices: int, batch: int = 2, *, net: Any = None, software: Stack | None = None, **plan: Any
) -> Result:
    fabric = Cluster(devices, (Tier(devices, latency=0.0),), host_bandwidth=5e8)
    return evaluate(
        Design(
            PAPER_CHIP, fabric, Plan(**plan), Workload(net or paper_network(), 4, batch), software or stack("ideal"),
            PAPER_TRAINING,
        )
    )  # fmt: skip


#: Parameters of a layer, and of embedding and head together.
LAYER, ENDS = 528, 128 + 136


def test_zero_3_gathers_and_reduces_every_layer_in_every_micro_batch() -> None:
    # two ranks: each sends half of 528 weights of 2 B forward and again backward, and half of 528 gradients of 4 B
    layer, ends = LAYER * (2 + 2 + 4) / 2 / LINK, ENDS * (2 + 4) / 2 / LINK
    plan = {"data": 2, "zero_stage": 3, "overlap_data": 0}
    for batch in (2, 6):
        step = paper_step(2, batch, **plan)
        equal(step.value("time_shard"), batch / 2 * (2 * layer + ends))
        # embedding and head are gathered once for both passes
        equal(step.value("communication_data"), batch / 2 * (2 * LAYER * 8 + ENDS * 6) / 2)
        assert step.value("time_data") == 0.0
    kept = paper_step(2, 2, **plan, reshard=0)
    equal(kept.value("time_shard"), 2 * (layer - LAYER * 2 / 2 / LINK) + ends)
    # as far as the passes are long enough, layers hide behind them
    hidden = paper_step(2, 2, data=2, zero_stage=3)
    forward, backward = LAYER * 2 / 2 / LINK, LAYER * (2 + 4) / 2 / LINK
    equal(hidden.value("time_shard"), 2 * (max(forward - BODY[0], 0) + max(backward - BODY[1], 0)) + ends)


def test_zero_3_gathers_of_a_leading_layer_what_that_layer_has() -> None:
    net = paper_network(layers=3, experts=4, experts_per_token=2, expert_ffn=8, lead_layers=1)
    # 528 of the leading layer; 272 outside the experts of the others, a router of 8 x 4, four experts of 2 x 8 x 8
    layers = 528 + 2 * (8 * 24 + 8 * 8 + 2 * 8 + 8 * 4 + 4 * 2 * 8 * 8)
    assert layers + ENDS == parameters(net, 4)
    step = paper_step(2, 2, net=net, data=2, zero_stage=3, overlap_data=0)
    equal(step.value("time_shard"), (layers * 8 + ENDS * 6) / 2 / LINK)
    # two expert ranks share none of their experts' weights, and send none of them
    alone = layers - 2 * 4 * 2 * 8 * 8
    spread = paper_step(2, 2, net=net, data=2, expert=2, zero_stage=3, overlap_data=0)
    equal(spread.value("time_shard"), (alone * 8 + ENDS * 6) / 2 / LINK)


def test_zero_2_reduces_in_passes_and_gathers_after_the_update() -> None:
    step = paper_step(2, 6, data=2, zero_stage=2, overlap_data=0)
    equal(step.value("time_shard"), 3 * PARAMETERS * 4 / 2 / LINK)
    equal(step.value("time_data"), PARAMETERS * 2 / 2 / LINK)


@pytest.mark.parametrize(("stage", "reshard", "ratio"), [(1, 1, 1.0), (2, 1, 1.0), (3, 1, 1.5), (3, 0, 1.0)])
def test_bytes_of_zero_over_those_of_plain_data_parallelism(stage: int, reshard: int, ratio: float) -> None:
    """One micro-batch, 2-byte gradients: an all-reduce is 2 P, ZeRO-3 gathers twice and reduces once: 3 P.

    Of embedding and head ZeRO-3 gathers once.
    """
    sent = [
        evaluate(
            Design(chip("a100-sxm-80gb"), Cluster(8), Plan(data=8, **plan), Workload(DENSE, 8, 8), stack("ideal"), HALF)
        ).value("communication_data")
        for plan in ({}, {"zero_stage": stage, "reshard": reshard})
    ]
    equal(sent[0], 2 * 7 / 8 * 2 * parameters(DENSE, 8))
    ends = sum(block.parameters for block in DENSE.blocks(8) if block.place in ("first", "last"))
    equal(sent[1], ratio * sent[0] - (stage == 3 and reshard == 1) * 7 / 8 * 2 * ends)


def test_context_ranks_show_each_other_keys_and_values_three_times() -> None:
    # keys and values of a sample: 4 tokens x 2 heads x (4 + 4) x 2 B = 128 B, of which a rank lacks half;
    # forward, backward again, and their gradients back, in two layers
    step = paper_step(2, 3, context=2, context_ring=0)
    equal(step.value("time_context"), 3 * 2 * 3 * 64 / LINK)
    equal(step.value("communication_context"), 3 * 2 * 3 * 64)
    equal(paper_step(2, 3, context=2, context_ring=0, recompute="full").value("time_context"), 3 * 2 * 4 * 64 / LINK)
    # all tokens of a rank's samples have the same weights: one gradient reduction of them, as with data ranks
    shown = paper_step(2, 3, context=2, overlap_data=0)
    equal(shown.value("time_data"), PARAMETERS * 4 / LINK)
    assert shown.value("micro_batches") == 3


def test_routed_rows_travel_there_and_back_in_both_directions() -> None:
    # 4 tokens x 2 experts x 8 x 2 B = 128 B a sample, half of them to the other rank, four times in each of two layers
    net = paper_network(experts=4, experts_per_token=2, expert_ffn=8)
    step = paper_step(2, 6, net=net, data=2, expert=2)
    equal(step.value("time_expert"), 3 * 2 * 4 * 64 / LINK)
    equal(step.value("communication_expert"), 3 * 2 * 4 * 64)
    again = paper_step(2, 6, net=net, data=2, expert=2, recompute="full")
    equal(again.value("time_expert"), 3 * 2 * 6 * 64 / LINK)


def test_expert_ranks_hold_other_experts_and_zero_3_holds_the_same_whatever_the_expert_degree() -> None:
    net = paper_network(experts=4, experts_per_token=2, expert_ffn=8)
    experts = 2 * 4 * 2 * 8 * 8  # two layers, four experts, up and down 8 x 8
    whole = parameters(net, 4)
    for expert in (1, 2, 4):
        plain = paper_step(4, 4, net=net, data=4, expert=expert)
        equal(plain.value("memory_weights"), 2 * (whole - experts + experts / expert))
        # of a device's experts there are 4 / expert copies, which ZeRO-1 shares
        split = paper_step(4, 4, net=net, data=4, expert=expert, zero_stage=1)
        equal(split.value("memory_optimizer"), 12 * whole / 4)
        sharded = paper_step(4, 4, net=net, data=4, expert=expert, zero_stage=3)
        equal(sum(sharded.value(f"memory_{kind}") for kind in ("weights", "gradients", "optimizer")), 18 * whole / 4)


def test_whole_experts_are_spread_over_tensor_ranks_too() -> None:
    net = paper_network(experts=4, experts_per_token=2, expert_ffn=8)
    experts = 2 * 4 * 2 * 8 * 8
    cut, whole = (
        paper_step(2, 2, net=net, tensor=2, expert=expert, expert_tensor=way) for expert, way in ((1, 1), (2, 0))
    )
    # half of every expert, or all of half of the experts
    assert cut.value("memory_weights") == whole.value("memory_weights")
    # 128 B a sample, of which each tensor rank sends its half to the experts of both
    equal(whole.value("communication_expert"), 2 * 2 * 4 * (128 / 2) / 2)
    assert cut.value("communication_expert") == 0.0
    assert experts / 2 * 2 < whole.value("memory_weights")


def test_an_offloaded_optimizer_takes_the_time_of_the_host_link_and_no_memory() -> None:
    step = paper_step(1, 3, offload="optimizer")
    # gradients of 4 B to the host, weights of 2 B back, at 5e8 B/s
    equal(step.value("time_update"), PARAMETERS * 6 / 5e8)
    assert step.value("memory_optimizer") == 0.0
    equal(paper_step(1).value("memory_optimizer"), PARAMETERS * 12)


def test_offloaded_weights_cross_the_host_link_for_every_pass() -> None:
    step = paper_step(1, 1, offload="all", software=replace(stack("ideal"), overlap_efficiency=0.0))
    equal(step.value("time_shard"), (2 * 2 * LAYER + ENDS) * 2 / 5e8)
    assert step.value("memory_weights") == step.value("memory_optimizer") == 0.0
    # the layer at work and the next one, embedding and head
    equal(step.value("memory_buffers"), (2 * LAYER + ENDS) * 2)


def test_recomputing_one_layer_of_two_repeats_one() -> None:
    equal(paper_step(1, 3, recompute="full", recompute_layers=1).value("time_recompute"), 3 * BODY[0])
    both = paper_step(1, 3, recompute="full")
    some, none = paper_step(1, 3, recompute="full", recompute_layers=1), paper_step(1, 3)
    kept = 256 + 192 + 64 + 256 + 64  # see test_evaluation.py
    equal(none.value("memory_activations"), 2 * kept)
    # one input instead, but while that layer repeats its forward pass it holds all of it again, where logits were
    again = max(kept - BOUNDARY - some.value("memory_logits"), 0.0)
    equal(some.value("memory_activations"), kept + BOUNDARY + again)
    equal(both.value("memory_activations"), 2 * BOUNDARY + again)
    equal(some.value("hfu") * some.value("step_time") - none.value("hfu") * none.value("step_time"),
          (both.value("hfu") * both.value("step_time") - none.value("hfu") * none.value("step_time")) / 2)  # fmt: skip


def test_a_slow_host_paces_every_pass_by_its_operators() -> None:
    """A second an operator forward, two backward: the device has finished long before."""
    slow = replace(stack("ideal"), host_time_per_operator=1.0)
    blocks = {block.place: block for block in paper_network().blocks(4)}
    operators = 2 * blocks["body"].kernels + blocks["first"].kernels + blocks["last"].kernels
    assert paper_step(1, 3, software=slow).value("step_time") == pytest.approx(3 * 3 * operators, rel=1e-9)
    again = paper_step(1, 3, software=slow, recompute="full")
    assert again.value("step_time") == pytest.approx(3 * (3 * operators + 2 * blocks["body"].kernels), rel=1e-9)
    assert paper_step(1, 3).value("time_host") == 0.0
    # two streams that are as slow: 2^(1/4) of either; one of twice as slow: 17^(1/4) / 2 of it
    equal(float(paced(3.0, 3.0)), 3.0 * 2**0.25)
    equal(float(paced(1.0, 2.0)), 17**0.25)


def test_zero_in_groups_that_share_a_node_gathers_at_the_speed_of_the_node() -> None:
    nodes = Cluster(8, (Tier(4, bandwidth=3e11, latency=0.0), Tier(8, bandwidth=1e10, latency=0.0)))

    def fetch(group: int) -> float:
        plan = Plan(data=8, zero_stage=3, zero_group=group)
        r = rows(Design(chip("a100-sxm-80gb"), nodes, plan, Workload(DENSE, 8, 8), Stack(algorithms=("ring",)), HALF))
        layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
        return float(price_traffic(r, layout).fetch.time.reshape(-1)[0])

    body = next(block for block in DENSE.blocks(8) if block.place == "body")
    equal(fetch(4), 3 / 4 * body.parameters * 2 / 3e11)
    equal(fetch(2), 1 / 2 * body.parameters * 2 / 3e11)
    assert fetch(0) == fetch(8) >= 7 / 8 * body.parameters * 2 / 3e11
    assert fetch(0) > 2 * fetch(4)


# --- Random valid plans of every field -------------------------------------------------------------------------------

#: Values that random plans draw from; degrees are drawn so that they multiply to the devices.
DRAWN: dict[str, tuple[int, ...]] = {
    "sequence_parallel": (0, 1), "micro_batch": (1, 1, 2, 3), "interleave": (1, 1, 2, 3), "schedule": (0, 1, 2),
    "zero_stage": (0, 1, 2, 3), "recompute": (0, 1, 2, 3), "overlap_data": (0, 1), "overlap_pipeline": (0, 1),
    "split": (0, 1), "order": tuple(range(6)), "expert": (1, 2, 4, 8), "expert_tensor": (0, 1),
    "zero_group": (0, 0, 2, 3, 4), "reshard": (0, 1), "offload": (0, 0, 1, 2), "recompute_layers": (0, 0, 1, 2),
    "context_ring": (0, 1), "overlap_tensor": (0, 1), "overlap_expert": (0, 1),
}  # fmt: skip


def raw_plans(count: int, seed: int) -> dict[str, np.ndarray]:
    """Plans of `DEVICES` devices, most of them broken."""
    rng = np.random.default_rng(seed)
    degrees = np.array([d for d in product(range(1, DEVICES + 1), repeat=4) if np.prod(d) == DEVICES])
    chosen = degrees[rng.integers(0, len(degrees), count)]
    found = dict(zip(("tensor", "pipeline", "data", "context"), chosen.T.astype(float), strict=True))
    found |= {name: rng.choice(values, count).astype(float) for name, values in DRAWN.items()}
    return {name: found[name] for name in Plan.names()}


@cache
def table(name: str) -> dict[str, np.ndarray]:
    """All that break no rule among many."""
    raw = raw_plans(30011, 101)
    if name == "dense":
        raw["expert"] = np.ones(30011)
    layout = lay_out(plan_of(raw), Workload(NETWORKS[name], SEQUENCE, BATCH), Training(), paired=False)
    good = np.ones(30011, dtype=bool)
    for values in layout.violations.values():
        good &= np.broadcast_to(values, good.shape) <= 0
    return {field: column[good] for field, column in raw.items()}


def valid(name: str, count: int = 211, seed: int = 7, **changes: float) -> dict[str, np.ndarray]:
    known = table(name)
    index = np.random.default_rng(seed).integers(0, known["tensor"].size, count)
    found = {field: column[index].copy() for field, column in known.items()}
    return found | {field: np.full(count, float(value)) for field, value in changes.items()}


def step(
    name: str, plans: dict[str, np.ndarray], *, software: Stack | None = None, fabric: Cluster = FABRIC,
    training: Training = HALF, device: Chip | None = None,
) -> Result:  # fmt: skip
    workload = Workload(NETWORKS[name], SEQUENCE, BATCH)
    device = device or chip("a100-sxm-80gb")
    return evaluate(Design(device, fabric, plan_of(plans), workload, software or stack("generic"), training))


def no_more(one: Result, other: Result, metric: str = "step_time") -> None:
    """The metric of the first is nowhere above that of the second."""
    left, right = one.column(metric), other.column(metric)
    worse = np.flatnonzero(left > right * (1 + 1e-12))
    assert not worse.size, f"{worse.size} rows, the first {worse[0]}: {left[worse[0]]} > {right[worse[0]]}"


def same_bits(left: Result, right: Result, take: Any = slice(None)) -> None:
    for name in left.metrics:
        np.testing.assert_array_equal(left.column(name), right.column(name)[take], err_msg=name)
    for name in left.violations:
        np.testing.assert_array_equal(left.violation(name), right.violation(name)[take], err_msg=name)


BOTH = pytest.mark.parametrize("name", list(NETWORKS))


@BOTH
def test_valid_random_plans_draw_every_value_of_every_field(name: str) -> None:
    found = table(name)
    assert found["tensor"].size > 300
    for field, values in DRAWN.items():
        if (name, field) != ("dense", "expert"):
            assert set(found[field]) == {float(value) for value in values}, field
    assert set(found["context"]) >= {1.0, 2.0, 3.0, 4.0}


@BOTH
def test_a_design_alone_in_pairs_and_in_a_sweep_has_the_same_bits(name: str) -> None:
    plans, count = valid(name, 31), 31
    base = chip("a100-sxm-80gb")
    rates = base.hbm_stack_bandwidth * np.linspace(0.5, 1.5, count)
    links = base.link_bandwidth * np.linspace(1.7, 0.3, count)
    pairs = step(name, plans, device=replace(base, hbm_stack_bandwidth=rates, link_bandwidth=links))
    sweep = step(
        name, plans, device=replace(base, hbm_stack_bandwidth=rates[:, None], link_bandwidth=links[:, None])
    )
    assert (pairs.shape, sweep.shape) == ((count,), (count, count))
    same_bits(pairs, sweep, np.arange(count) * (count + 1))
    for row in range(count):
        device = replace(base, hbm_stack_bandwidth=rates[row].item(), link_bandwidth=links[row].item())
        one = {field: column[row : row + 1] for field, column in plans.items()}
        same_bits(step(name, one, device=device), pairs, slice(row, row + 1))


@BOTH
def test_broken_plans_have_the_same_bits_alone_and_together(name: str) -> None:
    raw = raw_plans(211, 13)
    together = step(name, raw)
    assert not together.feasible.all()
    for row in range(0, 211, 7):
        one = {field: column[row : row + 1] for field, column in raw.items()}
        same_bits(step(name, one), together, slice(row, row + 1))


def test_groups_that_do_not_divide_the_ranks_are_not_taken_for_each_other() -> None:
    # seven and eight ranks in groups of three: 2 1/3 and 2 2/3 copies
    both = np.array([7.0, 8.0])
    plans = {field: np.full(2, float(value)) for field, value in vars(Plan(zero_stage=3, zero_group=3)).items()}
    together = step("dense", {**plans, "data": both})
    for row in range(2):
        one = {**{field: column[:1] for field, column in plans.items()}, "data": both[row : row + 1]}
        same_bits(step("dense", one), together, slice(row, row + 1))


@BOTH
def test_a_narrow_format_has_the_same_bits_alone_and_together(name: str) -> None:
    plans, device, training = valid(name, 23, 17), chip("h100-sxm"), Training(precision="fp8")
    together = step(name, plans, device=device, training=training)
    for row in range(23):
        one = {field: column[row : row + 1] for field, column in plans.items()}
        same_bits(step(name, one, device=device, training=training), together, slice(row, row + 1))


@BOTH
def test_parts_add_up_and_the_step_lies_between_their_largest_and_their_sum(name: str) -> None:
    for software in (stack("generic"), stack("megatron-lm"), stack("ideal"), replace(stack("ideal"), jitter=0.03)):
        found = step(name, valid(name), software=software)
        parts = np.array([found.column(part) for part in TIME_PARTS])
        np.testing.assert_allclose(parts.sum(axis=0), found.column("step_time"), rtol=1e-11)
        assert np.all(parts >= -1e-12 * found.column("step_time"))
        assert np.all(parts.max(axis=0) <= found.column("step_time") * (1 + 1e-12))
    assert all(np.any(found.column(part) > 0) for part in TIME_PARTS if part not in ("time_expert", "time_host",
                                                                                     "time_overhead"))  # fmt: skip


def even(name: str) -> dict[str, np.ndarray]:
    """Plans whose rows of every expert are whole: 12 b e / (c brought) a micro-batch."""
    found = valid(name, 997, 19)
    brought = np.where(found["expert_tensor"] > 0, 1.0, found["tensor"])
    rows_ = 12.0 * found["micro_batch"] * found["expert"] / (found["context"] * brought)
    keep = np.flatnonzero(rows_ == np.floor(rows_))
    return {field: column[keep] for field, column in found.items()}


@BOTH
def test_multiply_adds_are_conserved_over_context_and_expert_ranks(name: str) -> None:
    plans = even(name)
    workload, training = Workload(NETWORKS[name], SEQUENCE, BATCH), Training(attention="materialized")
    layout = lay_out(plan_of(plans), workload, training, paired=False)
    total: Any = 0.0
    for place, block in layout.blocks.items():
        for phase in ("forward", "backward"):
            total = total + block.count * layout.work.macs[place, phase]
    done = layout.passes.spread(layout.operators.spread(total)).reshape(-1)
    ranks = plans["tensor"] * plans["data"] * plans["context"]
    everywhere = 2.0 * done * ranks * layout.stages.micro_batches
    np.testing.assert_allclose(everywhere, float(hardware_flops(workload, "none")), rtol=1e-12)
    assert np.any(plans["context"] > 1) and np.any(plans["expert"] > 1) == (name == "mixture")
    assert done.size > 300


@BOTH
@pytest.mark.parametrize("kind", RECOMPUTE)
def test_the_energy_of_multiply_adds_is_that_of_the_hardware_flops(name: str, kind: Any) -> None:
    """Twice the energy of a multiply-add: what is added is that of every one, on leading layers too."""
    plans, device = even(name), chip("a100-sxm-80gb")
    plans["recompute"] = np.full(plans["tensor"].size, float(RECOMPUTE.index(kind)))
    plans["recompute_layers"][:] = 0.0
    workload, constants = Workload(NETWORKS[name], SEQUENCE, BATCH), technology(device.process, device.hbm)
    once, twice = (
        evaluate(
            Design(device, FABRIC, plan_of(plans), workload, stack("ideal"), Training(attention="materialized"),
                   replace(constants, mac_energy=factor * constants.mac_energy))
        ).column("energy_compute")
        for factor in (1, 2)
    )  # fmt: skip
    added = (twice - once) / constants.mac_energy
    np.testing.assert_allclose(added, hardware_flops(workload, kind) / 2, rtol=1e-6)


def test_routed_bytes_are_conserved_over_all_ranks() -> None:
    """Every row leaves its rank unless its expert is there: (e - 1)/e of all rows, four times a layer."""
    plans = valid("mixture", 499, 23, recompute=0)
    whole = (plans["sequence_parallel"] > 0) | (plans["expert_tensor"] == 0)
    plans = {field: column[whole] for field, column in plans.items()}
    sent = step("mixture", plans).column("communication_expert") * DEVICES
    body = next(block for block in MIXTURE.blocks(SEQUENCE) if block.place == "body")
    rows_ = 4.0 * body.count * body.routed * 2.0 * BATCH
    np.testing.assert_allclose(sent, (1 - 1 / plans["expert"]) * rows_, rtol=1e-12)


@BOTH
def test_bytes_of_the_step_are_those_of_its_collectives(name: str) -> None:
    """Counted twice: in closed form by axis, and call by call over the tiers of the cluster."""
    plans, rings = valid(name, 23, 37), replace(stack("ideal"), algorithms=("ring",))
    seen = set()
    for row in range(23):
        plan = Plan(**{field: int(column[row]) for field, column in plans.items()})
        workload = Workload(NETWORKS[name], SEQUENCE, BATCH)
        found = account(Design(chip("a100-sxm-80gb"), FABRIC, plan, workload, rings, HALF))
        for axis in ("tensor", "context", "expert", *(("data",) if plan.zero_stage < 2 or plan.pipeline == 1 else ())):
            calls = [item for item in found.collectives if item.axis == axis]
            sent = sum(item.calls * sum(item.bytes_by_tier) for item in calls)
            assert sent == pytest.approx(found.value(f"communication_{axis}"), rel=1e-12), (axis, plan)
            seen |= {axis} if sent else set()
    assert seen == {"tensor", "context", "data"} | ({"expert"} if name == "mixture" else set())


@BOTH
def test_state_is_conserved_over_all_ranks_with_zero_3(name: str) -> None:
    """Without pipeline: 16 B a parameter in all, whatever holds them."""
    plans = valid(name, 499, 29, zero_stage=3, zero_group=0, offload=0)
    keep = (plans["pipeline"] == 1) & (plans["tensor"] == 1)
    found = step(name, {field: column[keep] for field, column in plans.items()})
    held = sum(found.column(f"memory_{kind}") for kind in ("weights", "gradients", "optimizer"))
    assert keep.sum() > 20
    np.testing.assert_allclose(held * DEVICES, 16.0 * parameters(NETWORKS[name], SEQUENCE), rtol=1e-12)


@BOTH
def test_each_stage_of_zero_and_more_ranks_hold_no_more_state(name: str) -> None:
    plans = valid(name, 997, offload=0, pipeline=1)
    plans["data"] = DEVICES / (plans["tensor"] * plans["context"])
    plans = {field: column[plans["data"] >= 1] for field, column in plans.items()}

    def held(stage: int, group: np.ndarray) -> np.ndarray:
        found = step(name, {**plans, "zero_stage": 0 * group + stage, "zero_group": group})
        return np.asarray(sum(found.column(f"memory_{kind}") for kind in ("weights", "gradients", "optimizer")))

    ranks = plans["data"] * plans["context"]
    whole = [held(stage, 0 * ranks) for stage in range(4)]
    some = [held(stage, np.where(ranks % 2 == 0, 2.0, 0.0)) for stage in range(4)]
    for stage in range(1, 4):
        assert np.all(whole[stage] <= whole[stage - 1] * (1 + 1e-12)) and np.any(whole[stage] < whole[stage - 1])
        assert np.all(whole[stage] <= some[stage] * (1 + 1e-12)) and np.any(whole[stage] < some[stage])
    np.testing.assert_array_equal(whole[0], some[0])


@BOTH
def test_fields_of_an_axis_of_degree_one_change_no_bit(name: str) -> None:
    plans = valid(name, context=1, expert=1, expert_tensor=1)
    plans["data"] = DEVICES / (plans["tensor"] * plans["pipeline"])
    base = step(name, plans)
    for part in ("time_context", "time_expert", "communication_context", "communication_expert"):
        assert np.all(base.column(part) == 0.0)
    same_bits(step(name, {**plans, "context_ring": 1 - plans["context_ring"]}), base)
    # a whole expert of one tensor rank, or of a network without experts, is what it was
    alone = np.where(plans["tensor"] == 1, 0.0, 1.0) if name == "mixture" else np.zeros(211)
    same_bits(step(name, {**plans, "expert_tensor": alone}), base)
    same_bits(step(name, {**plans, "overlap_tensor": plans["overlap_tensor"] * plans["sequence_parallel"]}), base)


@BOTH
def test_a_group_of_all_ranks_changes_no_bit(name: str) -> None:
    plans = valid(name, zero_group=0)
    same_bits(step(name, plans), step(name, {**plans, "zero_group": plans["data"] * plans["context"]}))


@BOTH
def test_recomputing_every_layer_of_a_stage_is_recomputing_all(name: str) -> None:
    plans = valid(name, recompute_layers=0)
    same_bits(step(name, plans), step(name, {**plans, "recompute_layers": np.full(211, 6.0)}))


@BOTH
def test_more_layers_that_recompute_take_longer_and_less_memory(name: str) -> None:
    plans = valid(name)
    found = [step(name, {**plans, "recompute_layers": np.full(211, float(count))}) for count in (1, 2, 3, 0)]
    for less, more in zip(found, found[1:], strict=False):
        no_more(less, more)
        no_more(more, less, "memory")
    none = step(name, {**plans, "recompute": np.zeros(211)})
    no_more(none, found[0])


@BOTH
def test_recomputation_by_operator_lies_between_none_and_full(name: str) -> None:
    plans = valid(name)
    none, full, by_operator = (step(name, {**plans, "recompute": np.full(211, kind)}) for kind in (0.0, 2.0, 3.0))
    for low, high in ((none, by_operator), (by_operator, full)):
        no_more(low, high)
        no_more(high, low, "memory")
    assert np.all(by_operator.column("time_recompute") > 0) and np.all(none.column("time_recompute") == 0)


@BOTH
def test_offloading_frees_memory_and_waits_for_the_host_link(name: str) -> None:
    plans = valid(name)
    none, optimizer, everything = (step(name, {**plans, "offload": np.full(211, kind)}) for kind in (0.0, 1.0, 2.0))
    assert np.all(optimizer.column("memory_optimizer") == 0) and np.all(everything.column("memory_weights") == 0)
    assert np.all(optimizer.column("memory") < none.column("memory"))
    held = none.column("memory") + everything.column("memory_buffers")
    assert np.all(everything.column("memory") < held * (1 + 1e-12))
    no_more(optimizer, everything)
    # both only shift the update and what is fetched: nothing else of the step is faster
    for part in ("time_forward", "time_backward", "time_recompute", "time_tensor", "time_data"):
        np.testing.assert_array_equal(optimizer.column(part), none.column(part))


@BOTH
def test_a_faster_host_link_is_never_slower(name: str) -> None:
    plans = valid(name)
    slow, usual, fast = (
        step(name, plans, fabric=replace(FABRIC, host_bandwidth=rate)) for rate in (1e9, 2e10, 1e30)
    )
    no_more(usual, slow)
    no_more(fast, usual)
    hosted = plans["offload"] > 0
    assert np.all(slow.column("step_time")[hosted] > fast.column("step_time")[hosted])
    np.testing.assert_array_equal(slow.column("step_time")[~hosted], fast.column("step_time")[~hosted])
    assert np.all(fast.column("time_update")[hosted] < 1e-15)


@BOTH
def test_a_faster_host_is_never_slower(name: str) -> None:
    plans = valid(name)
    found = [
        step(name, plans, software=replace(
            stack("generic"), micro_batch_overhead=0.0, host_time_per_operator=seconds, host_time_per_exchange=wait
        ))
        for seconds, wait in ((0.0, 0.0), (0.0, 1e-5), (1e-6, 1e-5), (1e-4, 1e-4))
    ]
    for faster, slower in zip(found, found[1:], strict=False):
        no_more(faster, slower)
    assert np.all(found[0].column("time_host") <= 1e-12 * found[0].column("step_time"))
    assert np.all(found[3].column("time_host") > found[2].column("time_host"))


@BOTH
@pytest.mark.parametrize("field", ["context_ring", "overlap_data", "overlap_tensor", "overlap_expert"])
def test_hiding_an_exchange_is_never_slower(field: str, name: str) -> None:
    plans = valid(name)
    shown, hidden = (step(name, {**plans, field: np.full(211, value)}) for value in (0.0, 1.0))
    no_more(hidden, shown)
    has_effect = name == "mixture" or field != "overlap_expert"
    assert has_effect == np.any(hidden.column("step_time") < shown.column("step_time"))


@BOTH
def test_gathered_weights_that_are_kept_are_fetched_once(name: str) -> None:
    plans = valid(name, zero_stage=3)
    kept, again = (step(name, {**plans, "reshard": np.full(211, value)}) for value in (0.0, 1.0))
    no_more(kept, again)
    no_more(kept, again, "communication_data")
    # until the backward pass all weights of the stage are there, beside the rank's own part
    no_more(again, kept, "memory")
    shared = plans["data"] * plans["context"] > 1
    assert np.all(kept.column("memory")[shared] > again.column("memory")[shared] * (1 - 1e-12))


def test_an_update_in_fp32_reads_the_weights_it_writes() -> None:
    wide, mixed = Training(precision="fp32", gradient_bytes=4), Training(precision="bf16", gradient_bytes=4)
    fabric = Cluster(1, (Tier(1, latency=0.0),))
    times = [
        evaluate(Design(PAPER_CHIP, fabric, Plan(), Workload(paper_network(), 4, 1), stack("ideal"), training)).value(
            "time_update"
        )
        for training in (wide, mixed)
    ]
    # fp32: gradient twice, two moments in and out, weight in and out; mixed: master and moments in and out, weight out
    equal(times[0] / times[1], (8 + 16 + 8) / (8 + 24 + 2))
