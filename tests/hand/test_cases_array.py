"""What users of array and accelerator models have found wrong with them, as tests of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import small_network

from dse.base.errors import ConfigError
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.schedule import StageTimes, pipeline_time
from dse.evaluation.stages import stages
from dse.evidence.measured.kernels import product_seconds
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.compute import matmul_time
from hw_models.compute.systolic import array_cycles, mapping_efficiency
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.published import network
from workloads.training import parameters

OS, WS, IS = 0, 1, 2


@pytest.mark.parametrize("compute", ["systolic", "tensor_core"])
def test_a_single_row_is_not_as_busy_as_a_full_product(compute: str) -> None:
    m = np.arange(1.0, 2049.0)
    chip = Chip(compute=compute, array_count=1)
    time = matmul_time(chip, m, 256, 768, 1, precision="bf16")
    used = 2 * m * 256 * 768 / (time * chip.peak_flops("bf16"))
    assert used.max() <= 1 + 1e-12 and (np.diff(time) >= -1e-18).all()
    if compute == "systolic":
        assert used[0] < 0.01 and (np.diff(used) > 0).all()


def test_an_array_of_sixteen_times_the_cells_is_at_most_sixteen_times_as_fast() -> None:
    random = np.random.default_rng(1)
    m, n, k = np.floor(np.exp(random.uniform(0, 9, (3, 2003))))
    for dataflow in (OS, WS, IS):
        small, large = (array_cycles(m, n, k, dataflow=dataflow, rows=size, columns=size) for size in (16, 64))
        assert (small / large <= 16).all()
    edges = [float(mapping_efficiency(1e6, 64, 147, dataflow=WS, rows=size, columns=size)) for size in (16, 64)]
    assert edges == pytest.approx([0.919, 0.766], abs=5e-4)
    # Full edges in the other dimension, so that the speed is the ratio of cells times the ratio of edges.
    assert 16 * edges[1] / edges[0] == pytest.approx(13.33, abs=0.01)


def test_growing_one_memory_bandwidth_or_count_at_a_time_never_slows_a_step() -> None:
    workload = Workload(small_network(hidden=512, heads=8, ffn=2048), 256, 16)
    base: dict[str, Any] = {"array_count": 3, "array_rows": 16, "array_columns": 16, "local_sram": 3e4,
                            "shared_sram": 2e5, "shared_sram_bandwidth": 1e11, "hbm_stack_bandwidth": 2e10,
                            "clock": 7e8, "link_bandwidth": 1e9, "vector_lanes": 64, "hbm_stacks": 1}  # fmt: skip
    whole = ("array_count", "vector_lanes", "hbm_stacks")
    scale = 1.19 ** np.arange(41)
    helped = set()
    for name, value in base.items():
        if name in ("array_rows", "array_columns"):
            continue
        grown = np.ceil(value * scale) if name in whole else value * scale
        chips = Chip(**{**base, name: grown})
        cluster = Cluster(4, (Tier(4, bandwidth=1e9, latency=1e-6),))
        found = evaluate(Design(chips, cluster, Plan(tensor=2, data=2), workload, stack("ideal"))).column("step_time")
        assert (np.diff(found) <= found[:-1] * 1e-12).all(), name
        helped |= {name} if found[-1] < found[0] else set()
    assert {"array_count", "clock", "hbm_stack_bandwidth"} <= helped


def test_a_depthwise_convolution_is_no_dense_one_and_keeps_an_array_idle() -> None:
    # 3 x 3 over 112 x 112 pixels of 32 channels: a product (12544 x 9)(9 x 1) for each channel.
    chip = Chip(array_count=1, dataflow="ws", double_buffered=0)
    for filters, groups, macs in ((32, 32, 3_612_672), (64, 32, 7_225_344), (32, 1, 115_605_504)):
        shape = (12544, filters // groups, 9 * 32 // groups, groups)
        assert shape[0] * shape[1] * shape[2] * shape[3] == macs
    busy = [
        12544 * n * k * groups / (float(matmul_time(chip, 12544, n, k, groups, precision="bf16")) * chip.clock * 128**2)
        for n, k, groups in ((1, 9, 32), (32, 288, 1))
    ]
    assert busy[0] == pytest.approx(9 / 128**2 * 12544 / (12544 + 382), rel=1e-9)
    assert busy[0] < busy[1] / 300


@pytest.mark.parametrize(("cycles", "clock", "seconds"), [(1000, 1e9, 1.000e-6), (1e6, 940e6, 1.0638e-3)])
def test_seconds_are_cycles_over_hertz_whatever_a_cycle_costs(cycles: float, clock: float, seconds: float) -> None:
    chip = Chip(array_count=1, array_rows=1, array_columns=1, dataflow="ws", double_buffered=0, clock=clock)
    assert matmul_time(chip, cycles - 1, 1, 1, 1, precision="bf16") == pytest.approx(seconds, rel=1e-4)
    with pytest.raises(ValueError, match="clock"):
        Chip(clock=-clock)


def test_the_slowest_of_two_partitions_is_found_wherever_it_stands() -> None:
    # Two stages that take [5, 1] and [4, 9] seconds forward and backward: 6 and 13 a micro-batch, never 5 and 4.
    # The slow stage is busy for 13 m; around it, 5 before and 1 behind it if it is the last, and if it is the first 2,
    # because it starts a second forward in the 6 seconds that the other stage takes.
    one = {name: np.array([float(getattr(Plan(pipeline=2), name))]) for name in Plan.names()}
    plan = replace(Plan(), **one)
    workload = Workload(small_network(), 8, 16)
    for count in (1, 16):
        cut = stages(replace(plan, micro_batch=np.array([16.0 / count])), workload, 4)
        for first, last, idle in (((5.0, 1.0), (4.0, 9.0), 6), ((4.0, 9.0), (5.0, 1.0), 2)):
            times = StageTimes(first, (0.0, 0.0), (0.0, 0.0), last)
            found = pipeline_time(
                times, cut, pipeline=np.array([2.0]), interleave=np.array([1.0]), is_gpipe=np.array([0.0]),
                transfer=0.0, overlaps=np.array([1.0]),
            )  # fmt: skip
            assert float(found[0]) == 13 * count + (idle if count > 1 else 6)


def test_a_product_with_one_row_takes_the_time_of_its_bytes() -> None:
    # 2 (8192 + 8192^2 + 8192) B at 3.35 TB/s: 40.07 us; the arithmetic alone 0.136 us.
    chip = Chip(compute="tensor_core", array_count=528, array_rows=16, array_columns=32, hbm_stacks=1,
                hbm_stack_bandwidth=3.35e12, clock=1.83e9, shared_sram=5e7)  # fmt: skip
    found = float(product_seconds(chip, stack("ideal"), 1, 8192, 8192))
    assert found == pytest.approx(40.07e-6, rel=2e-3)
    assert chip.peak_flops("bf16") == pytest.approx(989.5e12, rel=0.01)


def test_counts_beyond_64_bits_stay_positive_and_limits_below_one_are_errors() -> None:
    count = parameters(network("gpt3-175b"), 2048)
    assert 6 * float(count) * 300e9 == pytest.approx(3.15e23, rel=0.01)
    huge = array_cycles(np.int32(64 * 131072), np.int32(16384), np.int64(2) ** 40, dataflow=OS, rows=128, columns=128)
    assert float(huge) == 65536 * 128 * (2.0**40 + 254)
    for wrong in (-1, 0):
        with pytest.raises((ValueError, ConfigError), match="array_count"):
            Chip(array_count=wrong)
