"""The account of a design: parts that add up, elasticities known by hand, limits with their room."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

from dse.api.evaluation import evaluate
from dse.evaluation.design import Design
from dse.evaluation.result import TIME_PARTS
from dse.insight.account import Account, account, comparison
from dse.insight.elasticity import elasticities
from dse.present.text.design import account_text
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.stack import Stack
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network

# One 4 x 4 output-stationary array at 1 GHz: a product (M, N, K) takes ceil(M/4) ceil(N/4) folds of K + 6 cycles.
PAPER_CHIP = Chip(
    array_count=1, array_rows=4, array_columns=4, clock=1e9, dataflow="os", double_buffered=0, vector_lanes=10**12,
    local_sram=1e9, shared_sram=1e9, shared_sram_bandwidth=1e30, hbm_stacks=1, hbm_stack_capacity=1e12,
    hbm_stack_bandwidth=1e12, links=1, link_bandwidth=1e9,
)  # fmt: skip
TINY = small_network(layers=2, hidden=8, heads=2, ffn=16, vocabulary=16)


def alone(chip: Chip, **changes: Any) -> Design:
    """One device, software that costs nothing."""
    return Design(
        chip, Cluster(devices=1, tiers=(Tier(size=1),)), Plan(**changes), Workload(TINY, 4, 2), stack("ideal"),
        Training(attention="materialized"),
    )  # fmt: skip


def gpt3(**changes: Any) -> Design:
    plan: dict[str, Any] = {
        "tensor": 8, "pipeline": 8, "data": 16, "interleave": 3, "recompute": "full", "sequence_parallel": 1,
        "zero_stage": 1,
    }
    return Design(
        a100(), cluster("dgx-a100", 1024), Plan(**{**plan, **changes}), Workload(network("gpt3-175b"), 2048, 1536),
        stack("megatron-lm"), Training(attention="materialized"),
    )  # fmt: skip


def small(**changes: Any) -> Design:
    """A network so small that the host cannot issue its kernels fast enough."""
    return Design(
        a100(), cluster("dgx-a100", 16), Plan(**changes), Workload(small_network(), 64, 32), stack("megatron-lm")
    )


CASES = {
    "interleaved with full recomputation": gpt3(),
    "plain pipeline with selective recomputation": gpt3(interleave=1, recompute="selective", sequence_parallel=0),
    "uneven stages": gpt3(tensor=4, pipeline=32, data=8, interleave=1, recompute="none", split="balanced"),
    "no pipeline": gpt3(pipeline=1, data=128, interleave=1),
    "host bound": small(tensor=2, data=8),
    "host bound with recomputation": small(tensor=2, pipeline=2, data=4, recompute="full"),
    "fused attention": replace(gpt3(), training=Training(attention="fused")),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up_and_shares_are_a_whole(name: str) -> None:
    found = account(CASES[name])
    totals = {
        "time": found.value("step_time"), "energy": found.value("energy_per_step"), "memory": found.value("memory"),
        "resources": found.value("step_time"),
    }
    for group, total in totals.items():
        parts = getattr(found, group)
        assert math.fsum(part.value for part in parts) == pytest.approx(total, rel=1e-12), group
        assert math.fsum(part.share for part in parts) == pytest.approx(1.0, rel=1e-12), group


@pytest.mark.parametrize("name", CASES)
def test_operators_and_their_streams_add_up_to_forward_backward_and_recomputation(name: str) -> None:
    found = account(CASES[name])
    device = math.fsum(found.value(f"time_{phase}") for phase in ("forward", "backward", "recompute"))
    assert math.fsum(item.device_time for item in found.operators) == pytest.approx(device, rel=1e-12)
    assert math.fsum(part.value for part in found.streams) == pytest.approx(device, rel=1e-12)
    assert math.fsum(item.share for item in found.operators) == pytest.approx(1.0, rel=1e-12)
    again = math.fsum(item.device_time for item in found.operators if item.phase == "recompute")
    assert again == pytest.approx(found.value("time_recompute"), rel=1e-9)


def test_an_operator_worked_out_on_paper() -> None:
    # qkv (4, 24, 8): 6 folds of 14 cycles = 84 ns for 768 multiply-adds on 16 multipliers: 57.14% of the peak.
    found = account(alone(PAPER_CHIP))
    qkv = next(item for item in found.operators if (item.operator, item.phase) == ("qkv", "forward"))
    assert qkv.time == pytest.approx(84e-9, rel=1e-12)
    assert qkv.utilisation == pytest.approx(768 / (84 * 16), rel=1e-12)
    assert qkv.binding == "array"
    # two blocks and two micro-batches a step
    assert qkv.device_time == pytest.approx(4 * 84e-9, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_no_operator_beats_the_arrays_peak(name: str) -> None:
    used = [item.utilisation for item in account(CASES[name]).operators if item.utilisation is not None]
    assert used and all(0 < value <= 1 for value in used)


def moved(found: Account) -> dict[str, float]:
    return {item.parameter: item.elasticity for item in found.elasticities}


def test_a_memory_bound_step_follows_hbm_bandwidth_and_nothing_else() -> None:
    slow = replace(PAPER_CHIP, hbm_stack_bandwidth=1e3)
    found = account(alone(slow))
    assert {part.name for part in found.streams if part.value > 0} == {"hbm"}
    slopes = moved(found)
    assert slopes["chip.hbm_stack_bandwidth"] == pytest.approx(-1.0, rel=1e-9)
    # a second stack is twice the bandwidth, a lower efficiency less of it: whole and downward steps
    assert slopes["chip.hbm_stacks"] == pytest.approx(-1.0, rel=1e-9)
    assert slopes["stack.memory_efficiency"] == pytest.approx(-1.0, rel=1e-9)
    # 1% more traffic of the passes, or of the update, is 1% of their share of the step
    step = found.value("step_time")
    update = found.value("time_update") / step
    words = 2 * (2 * (624 + 768) + 64 + 160 + 128 + 224) * 2.0  # two micro-batches, two blocks, two bytes
    for name, share in (("stack.update_passes", update), ("stack.vector_passes", words / 1e3 / step)):
        assert slopes[name] == pytest.approx(math.log(1 + 0.01 * share) / math.log(1.01), rel=1e-9)
    assert set(slopes) == {
        "chip.hbm_stack_bandwidth", "chip.hbm_stacks", "stack.memory_efficiency", "stack.update_passes",
        "stack.vector_passes",
    }  # fmt: skip
    assert {"chip.clock", "chip.array_rows", "chip.array_count", "stack.matmul_efficiency"} <= set(found.unmoved)


def test_a_compute_bound_step_follows_the_clock() -> None:
    fast = replace(PAPER_CHIP, hbm_stack_bandwidth=1e30)
    found = account(alone(fast))
    slopes = moved(found)
    assert slopes["chip.clock"] == pytest.approx(-1.0, rel=1e-9)
    assert slopes["stack.matmul_efficiency"] == pytest.approx(-1.0, rel=1e-6)
    # samples have 4 tokens: most products have 4 rows, so 8 rows of the array only lengthen their fill
    assert slopes["chip.array_rows"] > 0
    assert "chip.hbm_stacks" not in slopes or abs(slopes["chip.hbm_stacks"]) < 1e-9


def test_elasticities_say_which_step_was_tried() -> None:
    by_name = {item.parameter: item for item in account(gpt3()).elasticities}
    assert by_name["chip.clock"].stepped == pytest.approx(1.01 * by_name["chip.clock"].value)
    assert by_name["chip.array_rows"].stepped == 2 * by_name["chip.array_rows"].value
    assert by_name["chip.array_count"].stepped == 2 * by_name["chip.array_count"].value
    assert (by_name["chip.links"].value, by_name["chip.links"].stepped) == (12, 13)
    sizes = [abs(item.elasticity) for item in account(gpt3()).elasticities]
    assert sizes == sorted(sizes, reverse=True)


def test_an_elasticity_is_what_evaluating_the_changed_chip_gives() -> None:
    design = gpt3()
    base = evaluate(design).value("step_time")
    for item in elasticities(design)[0]:
        part, *_, name = item.parameter.split(".")
        if part != "chip":
            continue
        value: Any = int(item.stepped) if isinstance(getattr(design.chip, name), int) else item.stepped
        changed = evaluate(replace(design, chip=replace(design.chip, **{name: value}))).value("step_time")
        assert changed == item.step_time, item.parameter
        assert item.elasticity == pytest.approx(math.log(changed / base) / math.log(item.stepped / item.value))


def test_every_parameter_is_moved_unmoved_or_zero_and_zero_has_no_percent() -> None:
    moved_, unmoved, zero = elasticities(gpt3())
    names = [item.parameter for item in moved_] + list(unmoved) + list(zero)
    assert len(names) == len(set(names))
    assert "cluster.tiers.0.bandwidth" in zero  # wired with the chip's own links
    assert {"chip.link_bandwidth", "cluster.tiers.1.bandwidth", "stack.kernel_launch"} <= {i.parameter for i in moved_}
    assert "chip.hbm_stack_capacity" in unmoved


@pytest.mark.parametrize("name", CASES)
def test_stages_hold_every_layer_once_and_the_fullest_decides_memory(name: str) -> None:
    found = account(CASES[name])
    design = CASES[name]
    assert sum(stage.stages for stage in found.stages) == int(design.plan.pipeline)
    layers = next(block.count for block in design.workload.network.blocks(64) if block.place == "body")
    assert sum(stage.stages * stage.layers for stage in found.stages) == layers
    held = found.value("memory") - found.value("memory_reserve")
    assert max(stage.memory for stage in found.stages) == pytest.approx(held, rel=1e-12)


def test_collectives_name_their_algorithm_tier_and_bytes() -> None:
    found = {item.name: item for item in account(gpt3()).collectives}
    exchange = found["block boundaries"]
    # eight neighbours share a node: each sends 7/8 of 1 x 2048 x 12288 x 2 B twice, and never leaves the node
    assert (exchange.ranks, exchange.tier, exchange.algorithm) == (8, 0, "ring")
    assert exchange.bytes_by_tier == (2 * 7 / 8 * 2048 * 12288 * 2, 0.0)
    assert exchange.calls * exchange.time == pytest.approx(account(gpt3()).value("time_tensor"), rel=1e-12)
    assert found["gradients"].tier == 1 and found["gradients"].ranks == 16
    assert found["stage outputs"].algorithm == "direct"
    data = [found["gradients"], found["updated weights"], found["tied embedding"]]
    waited = math.fsum(item.exposed or 0.0 for item in data)
    assert waited == pytest.approx(account(gpt3()).value("time_data"), rel=1e-12)


def test_one_device_communicates_nothing() -> None:
    assert account(alone(PAPER_CHIP)).collectives == ()


def test_a_step_that_its_cap_holds_says_at_which_clock_it_runs() -> None:
    free = account(gpt3())
    held = account(replace(gpt3(), chip=replace(a100(), power_cap=0.8 * free.value("average_power"))))
    assert free.clock == a100().clock and "power cap" not in account_text(free)
    assert 0.5 * a100().clock < held.clock < a100().clock
    assert "The power cap of " in account_text(held)


def test_limits_give_found_allowed_and_room() -> None:
    design = gpt3(tensor=4, pipeline=4, data=64, recompute="none")
    found = account(design, (("tdp", "<=", 400.0), ("die_area", "<=", 6e-4), ("throughput", ">=", 1e3)))
    limits = {item.name: item for item in found.constraints}
    capacity = a100().hbm_capacity
    assert limits["memory"].found > capacity == limits["memory"].limit
    assert limits["memory"].margin == pytest.approx(1 - limits["memory"].found / capacity)
    assert not limits["memory"].satisfied and not limits["die_area"].satisfied and limits["tdp"].satisfied
    assert limits["tdp"].margin == pytest.approx(1 - limits["tdp"].found / 400)
    assert limits["throughput"].satisfied
    assert not found.feasible and account(gpt3()).feasible
    free = {item.name: item for item in account(gpt3()).constraints}["tdp"]
    assert (free.limit, free.margin, free.satisfied) == (None, None, True)


def test_a_broken_rule_says_what_it_found() -> None:
    rules = {item.name: item for item in account(gpt3(data=24)).constraints}
    product = rules["tensor * pipeline * data * context == devices"]
    assert (product.found, product.limit, product.satisfied) == (8 * 8 * 24, 1024, False)
    deep = {item.name: item for item in account(gpt3(pipeline=128, data=1, interleave=1)).constraints}
    assert (deep["pipeline <= layers"].found, deep["pipeline <= layers"].limit) == (128, 96)
    assert not deep["pipeline <= layers"].satisfied


def test_unknown_limits_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="limits: found .*'speed'"):
        account(gpt3(), (("speed", "<=", 1.0),))
    batch = replace(gpt3(), plan=Plan(tensor=8, pipeline=8, data=16, micro_batch=np.array([1, 2])))
    with pytest.raises(ValueError, match="found 2 designs"):
        account(batch)
    with pytest.raises(ValueError, match="b: found 2 designs"):
        comparison(gpt3(), batch)


def test_the_differences_of_two_designs_add_up() -> None:
    a, b = gpt3(), gpt3(interleave=1, recompute="selective")
    found = comparison(a, b)
    whole = evaluate(b).value("step_time") - evaluate(a).value("step_time")
    assert math.fsum(part.difference for part in found.time) == pytest.approx(whole, rel=1e-12)
    assert math.fsum(part.share or 0.0 for part in found.time) == pytest.approx(1.0)
    assert {part.name for part in found.time} == set(TIME_PARTS)
    energy = evaluate(b).value("energy_per_step") - evaluate(a).value("energy_per_step")
    assert math.fsum(part.difference for part in found.energy) == pytest.approx(energy, rel=1e-9)
    assert [(item.name, item.a, item.b) for item in found.inputs] == [
        ("plan.interleave", 3, 1), ("plan.recompute", "full", "selective")
    ]  # fmt: skip
    ratio = next(pair.ratio for pair in found.metrics if pair.name == "step_time")
    assert ratio == evaluate(b).value("step_time") / evaluate(a).value("step_time")


def test_a_design_does_not_differ_from_itself() -> None:
    found = comparison(gpt3(), gpt3())
    assert found.inputs == () and found.same_work
    assert all(part.difference == 0 and part.share is None for part in found.time)
    assert all(pair.ratio == 1 for pair in found.metrics if pair.a)


def test_a_metric_that_is_zero_has_no_ratio() -> None:
    found = comparison(gpt3(recompute="none"), gpt3())
    assert next(pair.ratio for pair in found.metrics if pair.name == "time_recompute") is None


def test_other_chips_and_other_work_are_told_apart() -> None:
    newer = replace(a100(), process="5nm", hbm="hbm3")
    found = comparison(gpt3(), replace(gpt3(), chip=newer, workload=Workload(network("gpt3-175b"), 2048, 768)))
    names = {item.name for item in found.inputs}
    assert {"chip.process", "chip.hbm", "workload.global_batch"} == names  # not forty constants of the process
    assert not found.same_work


def test_a_changed_constant_is_an_input_that_differs() -> None:
    hotter = replace(gpt3().constants, leakage=2 * gpt3().constants.leakage)
    found = comparison(gpt3(), replace(gpt3(), technology=hotter))
    assert [item.name for item in found.inputs] == ["technology.leakage"]
    assert found.inputs[0].unit == "W/m2"


def test_accounts_and_comparisons_are_json() -> None:
    plain = json.loads(json.dumps(account(gpt3()).to_plain()))
    assert plain["metrics"]["step_time"] == evaluate(gpt3()).value("step_time")
    assert plain["time"][0]["name"] == "time_forward" and plain["units"]["memory"] == "B"
    assert json.loads(json.dumps(comparison(gpt3(), small(data=16)).to_plain()))["same_work"] is False


def test_an_account_does_not_change_with_the_stack_it_never_used() -> None:
    # a stack without a network: one device only
    design = alone(PAPER_CHIP)
    other = replace(design, stack=replace(design.stack, network_efficiency=0.5))
    assert isinstance(design.stack, Stack)
    assert account(other).value("step_time") == account(design).value("step_time")
