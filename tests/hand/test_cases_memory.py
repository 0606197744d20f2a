"""Memory that users of such models have asked about: ZeRO by stage, what is itemised, what pipeline stages hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate
from dse.evaluation.layout import Layout, lay_out
from dse.evaluation.result import Result
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network
from workloads.training import parameters

STATES = ("memory_weights", "memory_gradients", "memory_optimizer")
#: Bytes a parameter of weights, gradients and Adam's state with bf16 gradients: 2 + 2 + 12.
HALF = Training(gradient_bytes=2)


def step(plan: Plan, devices: int, net: Any = None, *, batch: int = 64, training: Training = HALF) -> Result:
    net = net or small_network()
    return evaluate(
        Design(a100(), Cluster(devices, (Tier(devices),)), plan, Workload(net, 8, batch), stack("ideal"), training)
    )


def states(found: Result) -> float:
    return sum(found.value(name) for name in STATES)


def laid_out(plan: Plan, net: Any, devices: int, *, sequence: int = 8) -> Layout:
    design = Design(a100(), Cluster(devices, (Tier(devices),)), plan, Workload(net, sequence, 64), stack("ideal"), HALF)
    r = rows(design)
    return lay_out(r.plan, r.workload, r.training, paired=r.paired)


# 7.5e9 parameters, 16 B each, on 64 ranks: 16 P; 4 P + 12 P/64; 2 P + 14 P/64; 16 P/64.
@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.40625), (2, 16.640625), (3, 1.875)])
def test_zero_of_7_5_billion_parameters_on_64_ranks(stage: int, gigabytes: float) -> None:
    found = step(Plan(data=64, zero_stage=stage), 64)
    bytes_a_parameter = states(found) / parameters(small_network(), 8)
    assert 7.5e9 * bytes_a_parameter / 1e9 == pytest.approx(gigabytes, rel=1e-12)


@pytest.mark.parametrize("gradient", [2, 4])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize("ranks", [1, 2, 6, 64])
def test_each_stage_of_zero_splits_one_kind_more(ranks: int, precision: Any, gradient: int) -> None:
    training = Training(precision=precision, gradient_bytes=gradient)  # type: ignore[arg-type]
    whole = step(Plan(data=ranks), ranks, batch=ranks, training=training)
    for stage, split in ((1, STATES[2:]), (2, STATES[1:]), (3, STATES)):
        found = step(Plan(data=ranks, zero_stage=stage), ranks, batch=ranks, training=training)
        for name in STATES:
            assert found.value(name) == whole.value(name) / (ranks if name in split else 1)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_in_groups_of_eight_splits_by_eight_and_the_groups_are_copies(stage: int) -> None:
    groups, alone = step(Plan(data=64, zero_stage=stage, zero_group=8), 64), step(Plan(data=8, zero_stage=stage), 8)
    assert [groups.value(name) for name in STATES] == [alone.value(name) for name in STATES]


@pytest.mark.parametrize(
    ("training", "weights", "gradients", "optimizer"),
    [
        (Training(precision="fp32", gradient_bytes=4), 4, 4, 8),
        (Training(gradient_bytes=4), 2, 4, 12),
        (Training(gradient_bytes=2), 2, 2, 12),
        (Training(precision="fp8", gradient_bytes=4), 2, 4, 12),
        (Training(gradient_bytes=4, optimizer="sgd"), 2, 4, 4),
    ],
)
def test_every_kind_of_state_has_the_bytes_of_its_format(
    training: Training, weights: int, gradients: int, optimizer: int
) -> None:
    """Pure fp32 Adam 16 B a parameter, mixed precision 18 or 16 by the gradient's format, which is an input."""
    layout = lay_out(*_columns(Plan()), training, paired=False)
    count = parameters(small_network(), 8)
    found = [float(layout.memory.by_kind[kind][0]) for kind in ("weights", "gradients", "optimizer")]
    assert found == [weights * count, gradients * count, optimizer * count]


def _columns(plan: Plan) -> tuple[Plan, Workload]:
    values = {name: np.array([float(getattr(plan, name))]) for name in Plan.names()}
    return replace(plan, **values), Workload(small_network(), 8, 8)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_items_of_memory_add_to_the_total(stage: int, recompute: str) -> None:
    found = step(Plan(data=4, pipeline=2, zero_stage=stage, recompute=recompute), 8)
    parts = [found.value(name) for name in found.metrics if name.startswith("memory_")]
    assert sum(parts) == pytest.approx(found.value("memory"), rel=1e-12) and min(parts) >= 0.0


def test_selective_recomputation_saves_less_of_all_memory_than_of_activations() -> None:
    """Scores are 80 of 114 s b h where 5 a s/h = 80, of every layer; the one at work has them where logits were."""
    net = replace(network("gpt2-xl"), layers=24, hidden=4096, heads=32, ffn=16384, kv_heads=32, head_dim=128)
    found = {}
    for recompute in ("none", "selective"):
        design = Design(
            a100(), Cluster(1, (Tier(1),)), Plan(recompute=recompute), Workload(net, 2048, 1), stack("ideal"),
            Training(attention="materialized"),
        )  # fmt: skip
        found[recompute] = evaluate(design)
    none, core = found["none"], found["selective"]
    layer = 2048 * 4096
    at_work = 80 * layer - core.value("memory_logits")
    assert none.value("memory_activations") - core.value("memory_activations") == 24 * 80 * layer - max(at_work, 0)
    shares = [core.value(name) / none.value(name) for name in ("memory_activations", "memory")]
    assert shares[0] == pytest.approx((24 * 34 * layer + max(at_work, 0)) / (24 * 114 * layer), rel=1e-3)
    assert shares[0] < shares[1] < 1.0


def test_a_tied_table_on_two_stages_is_reduced_between_them_and_on_one_is_not() -> None:
    # GPT-2 small: 50257 x 768 = 38,597,376 elements of 2 B
    net = network("gpt2-small")
    two, one = (laid_out(Plan(pipeline=p), net, p, sequence=1024).messages.tied for p in (2, 1))
    assert float(np.max(two.message)) == 2 * 38_597_376 and float(np.max(two.size)) == 2
    assert float(np.max(one.message)) * (float(np.max(one.size)) - 1) == 0.0


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite"])
def test_states_hold_every_expert_and_not_only_those_that_a_token_visits(name: str) -> None:
    net = network(name)
    found = step(Plan(), 1, net, batch=1)
    assert states(found) == pytest.approx(16 * parameters(net, 8), rel=1e-12)


def test_expert_ranks_divide_experts_and_nothing_else() -> None:
    # Mixtral: 32 layers x 8 experts x 3 x 4096 x 14336 in experts; the rest is on every rank
    net = network("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    rest = parameters(net, 8) - experts
    for expert in (1, 2, 4, 8):
        found = step(Plan(data=8, expert=expert), 8, net, batch=8)
        assert states(found) == pytest.approx(16 * (rest + experts / expert), rel=1e-12)


def test_a_stage_of_zero_splits_experts_over_the_ranks_that_hold_the_same_ones() -> None:
    net = network("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    rest = parameters(net, 8) - experts
    # 16 data ranks, experts over 8 of them: two copies of each expert
    found = step(Plan(data=16, expert=8, zero_stage=3), 16, net, batch=16)
    assert states(found) == pytest.approx(16 * (rest / 16 + experts / 8 / 2), rel=1e-12)


@pytest.mark.parametrize("context", [2, 4, 8])
def test_context_ranks_divide_activations_and_logits_and_copy_weights(context: int) -> None:
    one, many = step(Plan(), 1, batch=2), step(Plan(context=context), context, batch=2)
    for name in ("memory_activations", "memory_logits"):
        assert many.value(name) == pytest.approx(one.value(name) / context, rel=1e-12)
    assert states(many) == states(one)


def test_stages_hold_micro_batches_in_flight_and_the_fullest_decides() -> None:
    """32 layers on 4 stages keep 32, 24, 16 and 8 layers; two micro-batches 16; two chunks a stage 44."""
    net = small_network(layers=32, vocabulary=8)
    fused = laid_out(Plan(), net, 1).memory.by_kind["activations"][0] / 32

    def on_first(batch: int, **plan: int) -> float:
        design = Design(
            a100(), Cluster(4, (Tier(4),)), Plan(pipeline=4, **plan), Workload(net, 8, batch), stack("ideal"), HALF
        )
        r = rows(design)
        found = lay_out(r.plan, r.workload, r.training, paired=r.paired)
        assert float(found.memory.total[0]) == max(float(total[0]) for total in found.memory.by_stage)
        return float(found.memory.by_kind["activations"][0])

    one = on_first(1)
    assert one == pytest.approx(8 * fused, rel=0.02)
    assert [on_first(8) / one, on_first(2) / one, on_first(8, interleave=2) / one] == pytest.approx(
        [4, 2, 5.5], rel=1e-9
    )
