"""Utilisation that users of such models have asked about: dense peaks, the peak of the precision, never above one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import small_network

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import Result
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip, names
from hw_models.stack import Stack
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.training import model_flops
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
def test_utilisation_is_model_flops_over_the_peak_of_the_precision_that_ran(name: str) -> None:
    for precision in chip(name).matmul_rates:
        if precision in ("bf16", "fp16", "tf32", "fp32", "fp8"):
            found = run(name, precision)
            peak = chip(name).peak_flops(precision)
            work = model_flops(Workload(WIDE, 1024, 16))
            assert found.value("mfu") == pytest.approx(work / (peak * found.value("step_time")), rel=1e-12)


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
