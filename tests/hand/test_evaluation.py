"""One step worked out on paper, then what every step must satisfy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network
from paper_step import (
    BLOCK_CORE,
    BODY,
    BOUNDARY,
    CYCLE,
    EMBEDDING,
    HBM,
    HEAD,
    LINK,
    PAPER_CHIP,
    PAPER_TRAINING,
    PARAMETERS,
    WORD,
    equal,
    paper_network,
)

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import ENERGY_PARTS, MEMORY_PARTS, METRICS, TIME_PARTS, Result
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stack import Stack
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network
from workloads.transformer import DecoderTransformer


def paper_step(devices: int = 1, batch: int = 3, **plan: Any) -> Result:
    return evaluate(
        Design(
            PAPER_CHIP,
            Cluster(devices, (Tier(devices, latency=0.0),)),
            Plan(**plan),
            Workload(paper_network(), 4, batch),
            stack("ideal"),
            PAPER_TRAINING,
        )
    )


def test_one_device_computes_forward_backward_and_updates() -> None:
    step = paper_step()
    equal(step.value("time_forward"), 3 * (2 * BODY[0] + EMBEDDING[0] + HEAD[0]))
    equal(step.value("time_backward"), 3 * (2 * BODY[1] + EMBEDDING[1] + HEAD[1]))
    # read a 4 B gradient for its norm and again with 12 B of state, write the state and a 2 B weight
    equal(step.value("time_update"), PARAMETERS * (4 + 4 + 2 * 12 + 2) / HBM)
    equal(step.value("step_time"), 3 * (1860 * CYCLE + 3360 * WORD) + PARAMETERS * 34 / HBM)
    for nothing in ("time_recompute", "time_tensor", "time_context", "time_expert", "time_shard", "time_host",
                    "time_data", "time_overhead"):  # fmt: skip
        assert step.value(nothing) == 0.0
    assert abs(step.value("time_bubble")) <= 1e-15 * step.value("step_time")


def test_recomputation_repeats_the_blocks_or_the_attention_core_but_not_the_head() -> None:
    equal(paper_step(recompute="full").value("time_recompute"), 3 * 2 * BODY[0])
    # scores and context, and the softmax between them
    equal(paper_step(recompute="selective").value("time_recompute"), 3 * 2 * (BLOCK_CORE * CYCLE + 32 * 1.5 * WORD))


def test_a_tensor_axis_reduces_two_boundaries_a_block_and_direction() -> None:
    # 2 layers x (2 + 2), one for the embedding, one for the head: 10 all-reduces of 64 B a micro-batch;
    # one of two ranks sends 2 x 1/2 x 64 B
    step = paper_step(devices=2, tensor=2)
    equal(step.value("time_tensor"), 3 * 10 * BOUNDARY / LINK)
    equal(step.value("communication_tensor"), 3 * 10 * BOUNDARY)
    # full recomputation repeats the two forward ones of both blocks
    equal(paper_step(devices=2, tensor=2, recompute="full").value("time_tensor"), 3 * 14 * BOUNDARY / LINK)


def test_sequence_parallelism_moves_the_same_bytes_in_the_same_time() -> None:
    plain, split = paper_step(devices=2, tensor=2), paper_step(devices=2, tensor=2, sequence_parallel=1)
    equal(split.value("time_tensor"), plain.value("time_tensor"))
    equal(split.value("communication_tensor"), plain.value("communication_tensor"))


def test_two_stages_and_one_micro_batch_take_both_stages_and_a_transfer_each_way() -> None:
    step = paper_step(devices=2, pipeline=2, batch=1)
    busy = sum(2 * BODY[i] + EMBEDDING[i] + HEAD[i] for i in (0, 1))
    running = busy + 2 * BOUNDARY / LINK
    equal(step.value("time_bubble"), running - busy / 2)
    # the last stage holds more: 528 + 136 parameters
    equal(step.value("step_time"), running + 664 * 34 / HBM)


def test_gpipe_is_paced_by_the_slowest_forward_and_the_slowest_backward() -> None:
    step = paper_step(devices=2, pipeline=2, schedule="gpipe")
    busy = sum(2 * BODY[i] + EMBEDDING[i] + HEAD[i] for i in (0, 1))
    slowest = sum(BODY[i] + HEAD[i] for i in (0, 1))
    running = busy + 2 * BOUNDARY / LINK + 2 * slowest
    equal(step.value("time_bubble"), running - 3 * busy / 2)


def test_gradients_are_reduced_once_a_step_and_hidden_behind_the_last_backward() -> None:
    # two replicas: each sends 2 x 1/2 of 1320 gradients of 4 B; one micro-batch or three, it is sent once
    for batch in (2, 6):
        equal(paper_step(devices=2, data=2, batch=batch, overlap_data=0).value("time_data"), PARAMETERS * 4 / LINK)
    hidden = 2 * BODY[1]
    equal(paper_step(devices=2, data=2, batch=6).value("time_data"), PARAMETERS * 4 / LINK - hidden)


def test_zero_1_scatters_gradients_gathers_weights_and_divides_the_update() -> None:
    step = paper_step(devices=2, data=2, batch=6, overlap_data=0, zero_stage=1)
    equal(step.value("time_data"), PARAMETERS * (4 + 2) / 2 / LINK)
    equal(step.value("communication_data"), PARAMETERS * (4 + 2) / 2)
    equal(step.value("time_update"), PARAMETERS * 34 / 2 / HBM)


def test_memory_of_one_device_by_hand() -> None:
    step = paper_step()
    equal(step.value("memory_weights"), PARAMETERS * 2)
    equal(step.value("memory_gradients"), PARAMETERS * 4)
    equal(step.value("memory_optimizer"), PARAMETERS * 12)
    # a block keeps two norm inputs and outputs (4 x 64 B), q k v (192 B), attention output (64 B),
    # MLP in and out (256 B) and softmax (64 B); nothing of the look-up
    equal(step.value("memory_activations"), 2 * (256 + 192 + 64 + 256 + 64))
    # final norm in and out, fp32 logits
    equal(step.value("memory_logits"), 128 + 256)
    equal(step.value("memory"), PARAMETERS * 18 + 1664 + 384)


def test_energy_of_one_device_is_counts_times_cost() -> None:
    quiet = replace(
        Design(PAPER_CHIP, Cluster(1), Plan(), Workload(paper_network(), 4, 1)).constants,
        leakage=1e-300,
        idle_power=0.0,
    )
    design = Design(
        PAPER_CHIP,
        Cluster(1, (Tier(1),)),
        Plan(),
        Workload(paper_network(), 4, 3),
        stack("ideal"),
        PAPER_TRAINING,
        quiet,
    )
    step, doubled = (
        evaluate(design),
        evaluate(replace(design, technology=replace(quiet, mac_energy=2 * quiet.mac_energy))),
    )
    # forward multiply-adds: 2 (768 + 128 + 128 + 256 + 512 + 512) + 512 = 5120; three times with gradients; 3 samples
    extra = doubled.value("energy_per_step") - step.value("energy_per_step")
    assert extra == pytest.approx(3 * 3 * 5120 * quiet.mac_energy, rel=1e-9)


# --- A published model on published hardware -------------------------------------------------------------------------


def gpt3(
    devices: int = 1024, batch: int = 1536, training: Training | None = None, device: Chip | None = None, **plan: Any
) -> Result:
    chosen = {
        "tensor": 8,
        "pipeline": 8,
        "data": devices // 64,
        "interleave": 3,
        "recompute": "full",
        "sequence_parallel": 1,
        "zero_stage": 1,
        **plan,
    }
    return evaluate(
        Design(
            device or a100(),
            cluster("dgx-a100", devices),
            Plan(**chosen),
            Workload(network("gpt3-175b"), 2048, batch),
            stack("megatron-lm"),
            training or Training(attention="materialized"),
        )
    )


def test_gpt3_on_1024_a100_sustains_what_large_clusters_sustain() -> None:
    step = gpt3()
    assert 0.3 <= step.value("hfu") <= 0.7
    assert not step.violated()
    assert step.feasible.all()
    # 6 x 175e9 FLOP a token are 96% of the model FLOP; attention and head are the rest
    assert step.value("throughput") * 6 * 175e9 / (1024 * 312e12) == pytest.approx(step.value("mfu"), rel=0.1)


def many_plans(count: int = 211) -> Result:
    """Random valid and broken plans of GPT-3 on 64 devices, small batch."""
    rng = np.random.default_rng(20011)
    tensor = rng.choice([1, 2, 4, 8], count)
    pipeline = rng.choice([1, 2, 4, 8], count)
    plan = Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=64 // (tensor * pipeline),
        micro_batch=rng.choice([1, 2, 4], count),
        sequence_parallel=rng.integers(0, 2, count),
        schedule=rng.integers(0, 2, count),
        zero_stage=rng.integers(0, 2, count),
        recompute=rng.integers(0, 3, count),
        interleave=rng.choice([1, 1, 1, 3], count),
        overlap_data=rng.integers(0, 2, count),
        overlap_pipeline=rng.integers(0, 2, count),
        split=rng.integers(0, 2, count),
        order=rng.integers(0, 6, count),
    )
    return evaluate(
        Design(a100(), cluster("dgx-a100", 64), plan, Workload(network("gpt3-13b"), 2048, 128), stack("generic"))
    )


def test_every_metric_is_there_finite_and_of_the_shape_of_the_batch() -> None:
    step = many_plans()
    assert set(step.metrics) == set(METRICS)
    assert len(METRICS) >= 25
    for name in METRICS:
        assert step.column(name).shape == (211,)
        assert np.all(np.isfinite(step.column(name))), name


@pytest.mark.parametrize(
    ("total", "parts"), [("step_time", TIME_PARTS), ("memory", MEMORY_PARTS), ("energy_per_step", ENERGY_PARTS)]
)
def test_parts_add_up_to_the_whole(total: str, parts: tuple[str, ...]) -> None:
    step = many_plans()
    added = np.zeros(len(step))
    for name in parts:
        added = added + step.column(name)
    np.testing.assert_allclose(added, step.column(total), rtol=1e-12)


def test_no_part_of_time_memory_or_energy_is_negative() -> None:
    step = many_plans()
    for name in (*TIME_PARTS, *MEMORY_PARTS, *ENERGY_PARTS):
        assert np.all(step.column(name) >= -1e-12 * step.column("step_time")), name


def test_a_step_is_at_least_its_largest_part() -> None:
    step = many_plans()
    for name in TIME_PARTS:
        assert np.all(step.column("step_time") >= step.column(name) * (1 - 1e-12)), name


def test_mfu_is_at_most_hfu_and_hfu_at_most_one() -> None:
    step = many_plans()
    assert np.all(step.column("mfu") > 0)
    assert np.all(step.column("mfu") <= step.column("hfu") * (1 + 1e-12))
    good = step.violation("tensor * pipeline * data * context == devices") <= 0
    assert np.all(step.column("hfu")[good] <= 1.0)


def test_rates_follow_from_the_step_time() -> None:
    step = many_plans()
    time = step.column("step_time")
    np.testing.assert_allclose(step.column("throughput") * time, 128 * 2048, rtol=1e-12)
    np.testing.assert_allclose(step.column("samples_per_second") * time, 128, rtol=1e-12)
    np.testing.assert_allclose(step.column("average_power") * time * 64, step.column("energy_per_step"), rtol=1e-12)
    np.testing.assert_allclose(step.column("energy_per_token") * 128 * 2048, step.column("energy_per_step"), rtol=1e-12)


def test_model_flops_ignore_recomputation_and_hardware_flops_count_it() -> None:
    # GPT-3: forward F = 2 x (12 L h^2 + 2 L s h + V h) a token; the head is not repeated, the core is 4 s h a layer
    h, layers, s, vocabulary = 12288, 96, 2048, None
    none, core, full = (gpt3(recompute=kind) for kind in ("none", "selective", "full"))
    vocabulary = network("gpt3-175b").padded_vocabulary
    blocks, attention, head = 24 * layers * h * h, 4 * layers * s * h, 2 * vocabulary * h
    forward = blocks + attention + head
    work = [step.value("hfu") * step.value("step_time") for step in (none, core, full)]
    model = [step.value("mfu") * step.value("step_time") for step in (none, core, full)]
    assert model[0] == pytest.approx(model[1], rel=1e-12) == pytest.approx(model[2], rel=1e-12)
    equal(work[0] / model[0], 1.0)
    equal(work[1] / model[0], (3 * forward + attention) / (3 * forward))
    equal(work[2] / model[0], (4 * forward - head) / (3 * forward))
    assert none.value("step_time") < core.value("step_time") < full.value("step_time")


# --- Questions that users of such models have asked ------------------------------------------------------------------


def bytes_per_parameter(data: int = 1, zero_stage: int = 0, **training: Any) -> float:
    step = evaluate(
        Design(
            a100(),
            Cluster(data, (Tier(data),)),
            Plan(data=data, zero_stage=zero_stage),
            Workload(small_network(), 8, 8),
            stack("ideal"),
            Training(**training),
        )
    )
    held = sum(step.value(f"memory_{kind}") for kind in ("weights", "gradients", "optimizer"))
    return held / (step.value("memory_weights") / Training(**training).weight_bytes)


@pytest.mark.parametrize(
    ("data", "zero_stage", "training", "expected"),
    [
        (1, 0, {"gradient_bytes": 4}, 18.0),
        (1, 0, {"gradient_bytes": 2}, 16.0),
        (8, 1, {"gradient_bytes": 4}, 2 + 4 + 12 / 8),
        (8, 1, {"gradient_bytes": 2}, 2 + 2 + 12 / 8),
        (8, 0, {"gradient_bytes": 2}, 16.0),
        (64, 1, {"gradient_bytes": 2}, 4 + 12 / 64),
        (1, 0, {"precision": "fp32", "gradient_bytes": 4}, 16.0),
        (1, 0, {"optimizer": "sgd", "gradient_bytes": 4}, 10.0),
        (1, 0, {"optimizer": "momentum", "gradient_bytes": 4}, 14.0),
    ],
)
def test_bytes_a_parameter_follow_the_recipe(
    data: int, zero_stage: int, training: dict[str, Any], expected: float
) -> None:
    device = a100()
    assert "fp32" in device.matmul_rates or training.get("precision") != "fp32" or pytest.skip("no fp32 rate")
    equal(bytes_per_parameter(data, zero_stage, **training), expected)


def test_zero_1_of_7_5_billion_parameters_on_64_ranks_takes_31_4_gb() -> None:
    # 4 P + 12 P / 64; plain data parallelism 16 P = 120 GB
    equal(7.5e9 * bytes_per_parameter(64, 1, gradient_bytes=2), 31.40625e9)
    equal(7.5e9 * bytes_per_parameter(64, 0, gradient_bytes=2), 120e9)


def test_tensor_parallel_bytes_of_one_layer_forward_and_backward() -> None:
    # b s h 2 B = 67,108,864 B; 2 all-reduces forward and 2 backward, 2 x 7/8 of it each: 469,762,048 B a layer
    def sent(layers: int, recompute: str = "none", tensor: int = 8) -> float:
        net = DecoderTransformer("wide", layers, 8192, 64, 4 * 8192, 1024, positions="rotary")
        design = Design(
            a100(),
            Cluster(tensor, (Tier(8),)),
            Plan(tensor=tensor, recompute=recompute),
            Workload(net, 4096, 1),
            stack("ideal"),
        )
        return evaluate(design).value("communication_tensor")

    assert sent(2) - sent(1) == 469_762_048
    assert sent(2, "full") - sent(1, "full") == 469_762_048 * 1.5
    assert sent(2, tensor=1) == 0.0


def data_parallel_time(devices: int, node: int, **plan: Any) -> float:
    """Exposed seconds of a gradient reduction without latency, 450 GB/s inside a node and 50 GB/s outside."""
    fabric = (Tier(node, bandwidth=450e9, latency=0.0), Tier(max(devices, node), bandwidth=50e9, latency=0.0))
    net = small_network(hidden=64, heads=8)
    rings = Stack(algorithms=("ring",))
    design = Design(
        a100(),
        Cluster(devices, fabric),
        Plan(overlap_data=0, **plan),
        Workload(net, 8, 16),
        rings,
        Training(gradient_bytes=2),
    )
    step = evaluate(design)
    return step.value("time_data") / step.value("memory_gradients")


def test_ranks_decide_which_link_a_data_parallel_group_uses() -> None:
    # 8-way tensor parallelism fills a node, so the pair {0, 8} is across nodes: 2 x 1/2 S / 50 GB/s
    equal(data_parallel_time(16, 8, tensor=8, data=2), 1 / 50e9)
    equal(data_parallel_time(8, 8, data=8), 2 * 7 / 8 / 450e9)
    # with the data axis innermost the pair shares a node
    equal(data_parallel_time(16, 8, tensor=8, data=2, order="data-tensor-pipeline"), 1 / 450e9)


def test_gradients_of_four_bytes_take_twice_as_long_as_of_two() -> None:
    def reduced(size: int) -> float:
        design = Design(
            a100(),
            Cluster(8, (Tier(8, latency=0.0),)),
            Plan(data=8, overlap_data=0),
            Workload(small_network(), 8, 64),
            stack("ideal"),
            Training(gradient_bytes=size),
        )
        return evaluate(design).value("time_data")

    equal(reduced(4), 2 * reduced(2))


def test_every_network_parameter_changes_what_it_should() -> None:
    def tensor_time(bandwidth: float, ranks: int) -> float:
        net = small_network(hidden=256, heads=64, ffn=1024)
        fabric = Cluster(ranks, (Tier(64, bandwidth=bandwidth, latency=0.0),))
        design = Design(a100(), fabric, Plan(tensor=ranks), Workload(net, 64, 1), Stack(algorithms=("ring",)))
        return evaluate(design).value("time_tensor")

    equal(tensor_time(100e9, 8), tensor_time(50e9, 8) / 2)
    equal(tensor_time(50e9, 64) / tensor_time(50e9, 8), (63 / 64) / (7 / 8))
    # half the devices at the same global batch: twice the micro-batches each
    whole, half = gpt3(devices=1024), gpt3(devices=512)
    equal(half.value("time_forward"), 2 * whole.value("time_forward"))


def small_plan(devices: int, batch: int, layers: int = 36, **plan: Any) -> Result:
    net = small_network(layers=layers, hidden=64, heads=8)
    return evaluate(Design(a100(), Cluster(devices, (Tier(devices),)), Plan(**plan), Workload(net, 8, batch)))


def test_degrees_need_not_be_powers_of_two() -> None:
    assert small_plan(12, 12, tensor=4, pipeline=3).feasible.all()
    assert small_plan(24, 12, tensor=2, pipeline=3, data=4).feasible.all()
    rule = "tensor * pipeline * data * context == devices"
    assert small_plan(10, 12, tensor=4, pipeline=1, data=3).violated() == {rule: 2.0}


def test_a_batch_that_does_not_divide_is_a_named_number() -> None:
    rule = "global_batch % (data * micro_batch)"
    assert small_plan(8, 1, data=8).violated()[rule] == 1.0
    assert small_plan(8, 100, data=8, micro_batch=3).violated() == {rule: 4.0}
    ok = small_plan(8, 96, data=8, micro_batch=3)
    assert ok.feasible.all() and ok.value("micro_batches") == 4.0
    # a micro-batch larger than the batch
    assert small_plan(1, 8, micro_batch=16).violated()[rule] == 8.0


@pytest.mark.parametrize(("field", "value"), [("global_batch", 0), ("global_batch", -1), ("sequence", 0)])
def test_a_batch_of_nothing_is_an_error(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field):
        Workload(**{"network": small_network(), "sequence": 8, "global_batch": 8, field: value})


@pytest.mark.parametrize(
    ("field", "value"), [("micro_batch", -1), ("micro_batch", 0), ("interleave", 0), ("tensor", 1.5)]
)
def test_a_plan_of_no_whole_number_is_an_error(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Plan(**{field: value})


def test_uneven_layers_are_allowed_and_more_stages_than_layers_are_not() -> None:
    uneven = small_plan(4, 8, layers=30, pipeline=4)
    assert uneven.feasible.all()
    assert small_plan(2, 8, layers=7, pipeline=2).feasible.all()
    assert small_plan(4, 8, layers=3, pipeline=4).violated()["pipeline <= layers"] == 1.0

    # 8, 8, 7, 7 takes as long as four stages of 8 (but for the fill): an efficiency of 30/32 before the bubble
    def step_time(layers: int) -> float:
        net = small_network(layers=layers, hidden=64, heads=8, vocabulary=8)
        fabric = Cluster(4, (Tier(4, latency=0.0),))
        design = Design(a100(), fabric, Plan(pipeline=4), Workload(net, 8, 1000), stack("ideal"))
        return evaluate(design).value("step_time")

    assert step_time(30) > 0.98 * step_time(32) > 1.1 * step_time(28)


def test_interleaving_needs_more_than_one_stage() -> None:
    rule = "interleave needs 1f1b and pipeline > 1"
    assert small_plan(1, 8, interleave=2).violated()[rule] == 1.0
    assert small_plan(2, 8, pipeline=2, interleave=2).feasible.all()
    assert small_plan(2, 8, pipeline=2, interleave=2, schedule="gpipe").violated()[rule] == 1.0


def test_interleaving_needs_an_even_split_of_the_layers() -> None:
    """Chunks are equal parts of a stage, so that a balanced split, which is uneven, has no chunks to deal out."""
    broken = small_plan(3, 12, layers=36, pipeline=3, interleave=2, split="balanced").violated()
    assert len(broken) == 1


def test_peak_and_utilisation_follow_the_precision() -> None:
    device = chip("h100-sxm")
    peaks = {}
    for precision in ("bf16", "tf32", "fp8"):
        net = DecoderTransformer("wide", 2, 8192, 64, 4 * 8192, 1024, positions="rotary")
        design = Design(
            device,
            Cluster(1, (Tier(1),)),
            Plan(),
            Workload(net, 2048, 4),
            stack("ideal"),
            Training(precision=precision),
        )
        step = evaluate(design)
        peaks[precision] = step.value("mfu") * step.value("step_time")
        assert 0 < step.value("mfu") <= 1
    equal(peaks["tf32"] / peaks["bf16"], 2.0)
    equal(peaks["fp8"] / peaks["bf16"], 0.5)
    with pytest.raises(ValueError, match="fp8.*|.*a100.*"):
        gpt3(training=Training(precision="fp8"))


@pytest.mark.parametrize("name", ["matmul_efficiency", "memory_efficiency", "network_efficiency"])
def test_an_efficiency_above_one_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Stack(**{name: 1.5})


def test_totals_of_ten_steps_are_ten_times_those_of_one() -> None:
    one = gpt3()
    equal(10 * one.value("energy_per_step"), 10 * one.value("energy_per_token") * 1536 * 2048)
    equal(10 * one.value("step_time"), 10 * 1536 / one.value("samples_per_second"))
