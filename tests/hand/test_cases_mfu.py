"""Utilisation that users of such models have asked about: dense peaks, the peak of the precision, never above one."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import small_network

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate, evaluate_rows
from dse.evaluation.layout import lay_out
from dse.evaluation.result import Result
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip, names
from hw_models.stack import Stack
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import default_sequence, network
from workloads.published import names as network_names
from workloads.training import executed_flops, model_flops
from workloads.transformer import DecoderTransformer

WIDE = DecoderTransformer("wide", 2, 4096, 32, 16384, 1024, positions="rotary")
#: Dense peaks of data sheets [FLOP/s]; the sparse ones are twice as high.
DENSE = {"a100-sxm-80gb": 312e12, "a100-sxm-40gb": 312e12, "h100-sxm": 989.5e12, "h200-sxm": 989.5e12, "tpu-v4": 275e12}


def run(name: str, precision: str = "bf16", net: Any = WIDE, *, software: Stack | None = None, **plan: Any) -> Result:
    devices = int(np.prod([plan.get(axis, 1) for axis in ("tensor", "pipeline", "data")]))
    training = Training(precision=precision)  # type: ignore[arg-type]
    workload = Workload(net, 1024, 16)
    fabric = Cluster(devices, (Tier(devices),))
    return evaluate(Design(chip(name), fabric, Plan(**plan), workload, software or stack("ideal"), training))


@pytest.mark.parametrize("name", [name for name in DENSE if name in names()])
def test_the_peak_of_a_chip_is_its_dense_one(name: str) -> None:
    assert chip(name).peak_flops("bf16") == pytest.approx(DENSE[name], rel=0.01)


@pytest.mark.parametrize("name", [name for name in names() if "bf16" in chip(name).matmul_rates])
def test_tf32_is_half_of_bf16_and_fp8_twice_where_a_chip_multiplies_it_natively(name: str) -> None:
    device = chip(name)
    ratios = {item: device.peak_flops(item) / device.peak_flops("bf16") for item in device.matmul_rates}
    assert ratios.get("tf32", 0.5) == ratios.get("fp16", 1.0) / 2 == 0.5
    # a chip that widens fp8 operands gains storage and no rate
    assert ratios.get("fp8", 2.0) in ((2.0,) if "tf32" in ratios else (1.0, 2.0))


def test_420_teraflop_a_second_on_a_hopper_are_42_percent() -> None:
    assert 420e12 / chip("h100-sxm").peak_flops("bf16") == pytest.approx(0.4245, abs=5e-4)


@pytest.mark.parametrize("name", names())
def test_utilisation_is_computed_flops_over_the_peak_of_the_precision_that_ran(name: str) -> None:
    work = Workload(WIDE, 1024, 16)
    # two layers, 16 sequences, two products forward and four backward of 32 heads of 128, half of each masked
    masked = 2 * 16 * 6 * (2 * 32 * 1024 * 1024 * 128) / 2
    for precision in chip(name).matmul_rates:
        if precision in ("bf16", "fp16", "tf32", "fp32", "fp8"):
            found = run(name, precision)
            at_peak = chip(name).peak_flops(precision) * found.value("step_time")
            assert found.value("mfu") == pytest.approx((model_flops(work) - masked) / at_peak, rel=1e-12)
            # what publications state counts the full square
            rate = found.value("model_flops_rate") * found.value("step_time")
            assert rate == pytest.approx(model_flops(work), rel=1e-12)


@pytest.mark.parametrize("name", names())
def test_no_utilisation_is_above_one_at_262144_tokens(name: str) -> None:
    """Half of a long causal square is never computed: counting it would give more than 1."""
    work = Workload(network("llama3-8b"), 262_144, 1)
    for attention in ("fused", "pipelined", "materialized"):
        training = Training(precision=next(iter(chip(name).matmul_rates)), attention=attention)  # type: ignore[arg-type]
        found = evaluate(Design(chip(name), Cluster(1, (Tier(1),)), Plan(), work, stack("ideal"), training))
        assert 0 < found.value("mfu") <= found.value("hfu") <= 1.0
        published = found.value("model_flops_rate") / chip(name).peak_flops(training.precision)
        # scores that are written to memory are computed above the diagonal too
        ratio = 1.0 if attention == "materialized" else 0.55
        assert found.value("mfu") / published == pytest.approx(ratio, rel=0.01)


def test_published_rates_over_the_peak_may_be_above_one() -> None:
    work = Workload(network("llama3-8b"), 262_144, 1)
    training = Training(attention="pipelined")
    found = evaluate(Design(chip("h100-sxm"), Cluster(1, (Tier(1),)), Plan(), work, stack("ideal"), training))
    assert found.value("model_flops_rate") > chip("h100-sxm").peak_flops("bf16")
    # 32 layers of 32 heads of 128: 6 products of 2 s^2 128 FLOP a head, half of it masked
    masked = 32 * 32 * 6 * 2 * 262_144**2 * 128 // 2
    computed = found.value("mfu") * found.value("step_time") * chip("h100-sxm").peak_flops("bf16")
    assert computed == pytest.approx(model_flops(work) - masked, rel=1e-12)


@pytest.mark.parametrize("gain", [False, True])
def test_winograd_counts_the_multiplications_that_it_does(gain: bool) -> None:
    training = Training(precision="fp32", convolution="winograd" if gain else "direct")
    work = Workload(network("vgg16"), 1, 8)
    found = evaluate(Design(chip("v100-sxm2"), Cluster(1, (Tier(1),)), Plan(), work, stack("ideal"), training))
    done = found.value("hfu") * found.value("step_time") * chip("v100-sxm2").peak_flops("fp32")
    assert 0 < found.value("mfu") <= found.value("hfu") <= 1.0
    # all of it but three linear layers is 3 x 3 convolutions of stride 1: 16 multiplications for 36
    assert done / model_flops(work) == pytest.approx(16 / 36 if gain else 1.0, abs=0.005)
    assert executed_flops(work, training) == pytest.approx(done, rel=1e-12)


def together(members: list[str]) -> Any:
    """One chip whose numbers are columns (H, 1) of those of the members; its rate of bf16 is that of their fastest
    format of two bytes or more."""
    chips = [chip(name) for name in members]
    numbers: dict[str, Any] = {
        item.name: np.array([float(getattr(one, item.name)) for one in chips])[:, None]
        for item in fields(chips[0]) if isinstance(getattr(chips[0], item.name), (int, float))
    }  # fmt: skip
    wide = [max(rate for name, rate in one.matmul_rates.items() if name != "fp8") for one in chips]
    rates = {"bf16": wide, "fp32": [one.matmul_rates["fp32"] for one in chips]}
    numbers["matmul_rates"] = {name: np.array(column)[:, None] for name, column in rates.items()}
    return replace(chips[0], **numbers)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("kind", ["systolic", "tensor_core"])
def test_no_utilisation_of_any_network_on_any_chip_is_above_one(kind: str, precision: str) -> None:
    chips = together([name for name in names() if chip(name).compute == kind])
    plans = Plan(recompute=np.array([0, 1, 2, 3]))
    for net in network_names():
        work = Workload(network(net), default_sequence(net), 1)
        training = Training(precision=precision, attention="pipelined", convolution="winograd")  # type: ignore[arg-type]
        of = rows(Design(chips, Cluster(1, (Tier(1),)), plans, work, stack("ideal"), training))
        laid = lay_out(of.plan, of.workload, of.training, paired=of.paired)
        found = evaluate_rows(of, laid, frozenset({"mfu", "hfu"}))
        assert np.all(found.column("mfu") <= found.column("hfu") * (1 + 1e-12)), net
        assert np.all(found.column("hfu") <= 1.0), net


def test_a_core_with_fewer_arrays_than_it_is_made_of_is_a_named_violation() -> None:
    whole = chip("h100-sxm")  # four arrays a core
    counts = np.array([1, 3, 4, 6, 527, 528])
    few = replace(whole, array_count=counts)
    found = evaluate(Design(few, Cluster(1, (Tier(1),)), Plan(), Workload(WIDE, 1024, 1), stack("ideal")))
    broken = found.violation("array_count % arrays_per_core")
    assert broken.tolist() == [1, 3, 0, 2, 3, 0]
    assert np.all(found.column("hfu")[broken <= 0] <= 1.0)
    assert not found.feasible[0] and found.feasible[-1]


@pytest.mark.parametrize("name", names())
def test_utilisation_is_above_zero_and_at_most_one_whatever_runs(name: str) -> None:
    plans = Plan(
        tensor=np.array([1, 4, 2, 1, 8]), pipeline=np.array([1, 1, 2, 1, 1]), data=np.array([8, 2, 2, 8, 1]),
        zero_stage=np.array([0, 1, 0, 3, 0]), recompute=np.array([0, 0, 1, 2, 2]),
    )  # fmt: skip
    precision = next(item for item in ("bf16", "fp16", "fp32") if item in chip(name).matmul_rates)
    training = Training(precision=precision)  # type: ignore[arg-type]
    for net, software in product((WIDE, small_network(heads=8)), ("ideal", "megatron-lm")):
        work = Workload(net, 1024, 16)
        found = evaluate(Design(chip(name), Cluster(8, (Tier(8),)), plans, work, stack(software), training))
        assert np.all(found.column("mfu") > 0) and np.all(found.column("mfu") <= found.column("hfu"))
        assert np.all(found.column("hfu") <= 1.0)


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0])
def test_a_compute_bound_step_takes_as_long_as_the_peak_says(factor: float) -> None:
    slow = chip("h100-sxm")
    fast = replace(slow, clock=slow.clock * factor)
    times = []
    for device in (slow, fast):
        free = replace(device, hbm_stack_bandwidth=1e18, vector_lanes=1e12, shared_sram_bandwidth=1e30)
        design = Design(free, Cluster(1, (Tier(1),)), Plan(), Workload(WIDE, 1024, 16), stack("ideal"))
        times.append(evaluate(design).value("step_time"))
    assert times[0] / times[1] == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("name", ["matmul_efficiency", "memory_efficiency", "network_efficiency"])
@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_an_efficiency_is_a_share(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Stack(**{name: value})


def test_recomputation_raises_hardware_utilisation_and_never_model_flops() -> None:
    none, full = run("a100-sxm-80gb"), run("a100-sxm-80gb", recompute="full")
    assert none.value("hfu") == none.value("mfu") and full.value("hfu") > full.value("mfu")
    flops = [found.value("mfu") * found.value("step_time") for found in (none, full)]
    assert flops[0] == pytest.approx(flops[1], rel=1e-12)
    assert full.value("step_time") > none.value("step_time")
