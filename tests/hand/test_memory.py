"""What a device holds: published formulas by hand, then every stage of a pipeline counted one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import small_network
from pipeline_simulator import Pipeline, most_held
from plan_columns import columns

from dse.evaluation.memory import Memory, in_flight, memory, saved_bytes
from dse.evaluation.stages import blocks_by_place, sharing, stages, strides
from dse.exploration.plans import plan_of
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

MATERIALIZED = Training(attention="materialized")


def held(
    net: DecoderTransformer, plan: Plan, *, batch: int = 8, sequence: int = 8, training: Training = MATERIALIZED
) -> Memory:
    workload = Workload(net, sequence, batch)
    blocks = blocks_by_place(workload)
    return memory(plan, training, blocks, stages(plan, workload, net.layers), sharing(plan, strides(plan)))


# s = 2048, b = 2, h = 4096, a = 32: s b h = 16,777,216 and 5 a s / h = 80
S, B, H, A = 2048, 2, 4096, 32
SBH, SCORES = S * B * H, 5 * A * S / H
GPT_BLOCK = DecoderTransformer("gpt", 4, H, A, 4 * H, 1024)


@pytest.mark.parametrize(
    ("plan", "per_sbh"),
    [
        ({}, 34 + SCORES),
        ({"tensor": 8}, 10 + 24 / 8 + SCORES / 8),
        ({"tensor": 8, "sequence_parallel": 1}, (34 + SCORES) / 8),
        ({"recompute": 1}, 34),
        ({"tensor": 8, "sequence_parallel": 1, "recompute": 1}, 34 / 8),
        ({"recompute": 2}, 2),
    ],
)
def test_activations_of_a_layer_are_the_published_ones(plan: dict[str, int], per_sbh: float) -> None:
    block = blocks_by_place(Workload(GPT_BLOCK, S, B))["body"]
    chosen = columns(micro_batch=B, **plan)
    found = saved_bytes(block, chosen, MATERIALIZED, recompute=chosen.recompute)
    assert found[0] == pytest.approx(SBH * per_sbh, rel=1e-12)


# one sample of a layer of GPT-3 175B: s = 2048, h = 12288, a = 96
GPT3_SBH, GPT3_SCORES = 2048 * 12288, 96 * 2048 * 2048


@pytest.mark.parametrize(
    ("precision", "dropout", "expected"),
    [
        # 34 s b h + 5 a s^2 b
        ("bf16", True, 34 * GPT3_SBH + 5 * GPT3_SCORES),
        # two masks of s b h bytes, and one of a s^2 b, are as wide as before; the rest is twice as wide
        ("fp32", True, (2 * 32 + 2) * GPT3_SBH + (2 * 4 + 1) * GPT3_SCORES),
        ("tf32", True, 5_284_823_040),
        # no masks: all of it is in the format of activations
        ("fp32", False, 2 * (32 * GPT3_SBH + 2 * GPT3_SCORES)),
    ],
)
def test_masks_of_a_byte_stay_a_byte_in_fp32(precision: str, dropout: bool, expected: int) -> None:
    net = DecoderTransformer("gpt3", 96, 12288, 96, 4 * 12288, 51200, dropout=dropout)
    block = blocks_by_place(Workload(net, 2048, 1))["body"]
    training = Training(precision=precision, attention="materialized")  # type: ignore[arg-type]
    chosen = columns(micro_batch=1)
    assert saved_bytes(block, chosen, training, recompute=chosen.recompute)[0] == expected


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_fp32_logits_are_as_wide_in_every_format(precision: str) -> None:
    net = DecoderTransformer("gpt3", 2, 64, 4, 256, 1024, dropout=False)
    chosen = columns(micro_batch=3)
    head = blocks_by_place(Workload(net, 16, 3))["last"]
    width = {"bf16": 2, "fp32": 4}[precision]
    found = saved_bytes(head, chosen, Training(precision=precision), recompute=chosen.recompute)  # type: ignore[arg-type]
    # inputs of the last norm and of the head, and the logits
    assert found[0] == 3 * 16 * (2 * width * 64 + 4 * 1024)


def test_what_is_kept_grows_with_the_format_by_no_more_than_its_width() -> None:
    for place in ("first", "body", "last"):
        block = blocks_by_place(Workload(GPT_BLOCK, S, B))[place]
        for recompute in range(4):
            chosen = columns(micro_batch=B, recompute=recompute)
            narrow, wide = (
                saved_bytes(block, chosen, Training(precision=item, attention="materialized"),
                            recompute=chosen.recompute)[0]  # type: ignore[arg-type]
                for item in ("bf16", "fp32")
            )  # fmt: skip
            assert narrow <= wide <= 2 * narrow


def layers_by_stage(pipeline: int, layers: int, split: int) -> list[int]:
    dealt = [0] * pipeline
    for unit in range(layers + 2 * split * (pipeline > 1)):
        dealt[unit % pipeline] += 1
    if split and pipeline > 1:
        dealt[0] -= 1
        dealt[-1] -= 1
    return dealt


def test_micro_batches_in_flight_by_hand() -> None:
    # 32 layers on 4 stages, 8 a stage: 32, 24, 16 and 8 layers of activations; two micro-batches: 16 on the first
    def first_second_last(micro_batches: int, interleave: int = 1, schedule: int = 1) -> list[float]:
        plan = columns(pipeline=4, interleave=interleave, schedule=schedule)
        found = stages(plan, Workload(small_network(layers=32), 8, micro_batches), 32)
        return [8 * float(part[0]) for part in in_flight(plan, found)]

    assert first_second_last(8) == [32, 24, 8]
    assert first_second_last(2) == [16, 16, 8]
    # 1 + (p - 1)/(p v) = 1.375 times 32
    assert first_second_last(8, interleave=2)[0] == 44
    assert first_second_last(8, schedule=0) == [64, 64, 64]


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_in_flight_is_what_the_order_of_passes_holds(chunks: int) -> None:
    for stages_ in (2, 3, 5, 7):
        for micro_batches in (stages_, 2 * stages_, 4 * stages_):
            plan = columns(pipeline=stages_, interleave=chunks)
            found = stages(plan, Workload(small_network(layers=stages_ * chunks), 8, micro_batches), stages_ * chunks)
            parts = [float(part[0]) * chunks for part in in_flight(plan, found)]
            simulated = most_held(
                Pipeline([[1.0] * chunks] * stages_, [[1.0] * chunks] * stages_, micro_batches),
                "1f1b" if chunks == 1 else "interleaved",
            )
            assert parts[0] == pytest.approx(simulated[0], rel=1e-12)
            assert parts[1] == pytest.approx(simulated[1], rel=1e-12)
            assert parts[2] == pytest.approx(simulated[-1], rel=1e-12)


def test_one_stage_keeps_one_micro_batch_whatever_the_schedule_is_called() -> None:
    # accumulating gradients runs each backward pass right after its forward pass
    net = small_network()
    plan = columns(schedule=[0, 1])
    total = held(net, plan, batch=16).total
    assert total[0] == total[1]


def by_stage(net: DecoderTransformer, values: dict[str, int], batch: int, training: Training) -> list[float]:
    """Bytes of every stage, one at a time: parameters, what the micro-batches in flight keep, logits."""
    workload = Workload(net, 8, batch)
    blocks = blocks_by_place(workload)
    t, p, d, b = (values[name] for name in ("tensor", "pipeline", "data", "micro_batch"))
    m = -(-batch // (d * b))
    plan = columns(**values)
    one = {name: float(saved_bytes(blocks[name], plan, training, recompute=plan.recompute)[0]) for name in ("body",)}
    full = {name: float(saved_bytes(blocks[name], plan, training, recompute=0 * plan.recompute)[0]) for name in blocks}
    parameters = {name: float(blocks[name].parameters_per_device(t)) for name in blocks}
    recipe = training.weight_bytes + training.gradient_bytes + training.state_bytes / (d if values["zero_stage"] else 1)
    found = []
    for stage, layers in enumerate(layers_by_stage(p, net.layers, values["split"])):
        kept = m if values["schedule"] == 0 and p > 1 else min(p - stage, m)
        count = layers * parameters["body"]
        again = full["body"] - one["body"]
        if stage == p - 1:  # logits are gone when blocks are recomputed: the larger of both counts
            again = max(again - full["last"], 0.0)
        activations = kept * layers * one["body"] + again
        if stage == 0:
            count += parameters["first"]
            activations += kept * full["first"]
        if stage == p - 1:
            count += parameters["last"] - (blocks["last"].shared_parameters / t if p == 1 else 0)
            # gpipe has run every head before the first backward pass
            activations += (m if values["schedule"] == 0 and p > 1 else 1) * full["last"]
        found.append(count * recipe + activations)
    return found


@pytest.mark.parametrize("tied", [False, True])
def test_memory_is_that_of_the_fullest_of_all_stages(tied: bool) -> None:
    net = small_network(layers=13, heads=8, kv_heads=2, ffn=64, vocabulary=1000 if tied else 64, tied=tied)
    rng = np.random.default_rng(7)
    for _ in range(307):
        values = {
            "tensor": int(rng.choice([1, 2, 4])),
            "pipeline": int(rng.integers(1, 14)),
            "data": int(rng.integers(1, 5)),
            "micro_batch": int(rng.integers(1, 4)),
            "schedule": int(rng.integers(0, 2)),
            "split": int(rng.integers(0, 2)),
            "zero_stage": int(rng.integers(0, 2)),
            "recompute": int(rng.integers(0, 3)),
            "sequence_parallel": int(rng.integers(0, 2)),
        }
        found = held(net, columns(**values), batch=24)
        expected = max(by_stage(net, values, 24, MATERIALIZED))
        assert found.total[0] == pytest.approx(expected, rel=1e-12), values
        added = 0.0
        for part in found.by_kind.values():
            added = added + float(part[0])
        assert added == pytest.approx(expected, rel=1e-12), values


def test_a_tied_head_on_another_stage_stores_its_own_copy() -> None:
    tied, untied = small_network(vocabulary=4096, tied=True), small_network(vocabulary=4096)
    plan = columns(pipeline=[1, 2])
    table = 4096 * 32
    weights = [held(net, plan).by_kind["weights"] for net in (tied, untied)]
    assert weights[1][0] - weights[0][0] == 2 * table
    assert weights[1][1] == weights[0][1]


def random_columns(count: int = 401) -> dict[str, Any]:
    rng = np.random.default_rng(31337)
    return {
        "tensor": rng.choice([1, 2, 4, 8], count),
        "pipeline": rng.integers(1, 14, count),
        "data": rng.integers(1, 9, count),
        "micro_batch": rng.integers(1, 5, count),
        "schedule": rng.integers(0, 2, count),
        "split": rng.integers(0, 2, count),
        "zero_stage": rng.integers(0, 2, count),
        "recompute": rng.integers(0, 3, count),
        "sequence_parallel": rng.integers(0, 2, count),
        "interleave": np.ones(count),
    }


@pytest.mark.parametrize("attention", ["fused", "materialized"])
def test_memory_never_grows_with_sharding_or_recomputation(attention: str) -> None:
    net = small_network(layers=13, heads=8, ffn=64)
    base, training = random_columns(), Training(attention=attention)  # type: ignore[arg-type]

    def total(**changes: Any) -> np.ndarray:
        # the same number of micro-batches whatever the data degree, so that only what is held differs
        return np.asarray(held(net, columns(**{**base, **changes}), batch=5040, training=training).total)

    tolerance = 1 + 1e-12
    assert np.all(total(zero_stage=1) <= total(zero_stage=0) * tolerance)
    assert np.all(total(zero_stage=1, data=2 * base["data"], schedule=1) <= total(zero_stage=1, schedule=1) * tolerance)
    assert np.all(total(recompute=2) <= total(recompute=1) * tolerance)
    assert np.all(total(recompute=1) <= total(recompute=0) * tolerance)
    assert np.all(total(recompute=3) <= total(recompute=0) * tolerance)
    assert np.all(total(sequence_parallel=1) <= total(sequence_parallel=0) * tolerance)
    assert np.all(total(schedule=1) <= total(schedule=0) * tolerance)
    assert np.all(total(tensor=2 * base["tensor"]) <= total() * tolerance)
    assert np.all(total(micro_batch=base["micro_batch"] + 1, schedule=1) > total(schedule=1) * (1 - 1e-12))


def test_parameters_are_divided_and_none_is_lost() -> None:
    net = small_network(layers=6, heads=8, ffn=64)
    alone = float(held(net, columns(tensor=1)).dense[0])
    blocks = blocks_by_place(Workload(net, 8, 8))
    whole = sum(
        block.count * (block.parameters - block.parameters_split - block.parameters_grouped)
        for block in blocks.values()
    )
    for tensor in (2, 4, 8):
        here = float(held(net, columns(tensor=tensor)).dense[0])
        assert here * tensor - whole * (tensor - 1) == pytest.approx(alone, rel=1e-12)


def test_wider_activations_take_more_and_fused_attention_less() -> None:
    net, plan = small_network(), plan_of({name: np.atleast_1d(getattr(Plan(), name)) for name in Plan.names()})
    bf16 = held(net, plan, sequence=512).by_kind["activations"][0]
    fp32 = held(net, plan, sequence=512, training=Training(precision="fp32", attention="materialized")).by_kind[
        "activations"
    ][0]
    fused = held(net, plan, sequence=512, training=Training(attention="fused")).by_kind["activations"][0]
    assert fp32 == pytest.approx(2 * bf16, rel=1e-12)
    assert fused < bf16
