"""Ways to divide work that users of such models have asked about: heads, experts, odd device counts, batches."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import Result
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.published import network
from workloads.training import parameters
from workloads.transformer import DecoderTransformer

DEVICES = "tensor * pipeline * data * context == devices"
BATCH = "global_batch % (data * micro_batch)"


def run(net: Any, devices: int, *, batch: int = 96, sequence: int = 8, **plan: Any) -> Result:
    fabric = Cluster(devices, (Tier(devices),))
    return evaluate(Design(a100(), fabric, Plan(**plan), Workload(net, sequence, batch), stack("ideal")))


@pytest.mark.parametrize(("heads", "tensor", "rest"), [(12, 8, 4), (40, 16, 8), (8, 16, 8)])
def test_heads_that_do_not_divide_are_a_named_number_and_no_failure(heads: int, tensor: int, rest: int) -> None:
    net = small_network(heads=heads, hidden=heads * 16, ffn=tensor * 64)
    found = run(net, tensor, tensor=tensor)
    assert found.violated() == {"heads % tensor": float(rest)} and not found.feasible.any()
    assert run(net, 4, tensor=4).feasible.all()


def test_more_tensor_ranks_than_key_value_heads_copy_one_head_each_and_never_hold_none() -> None:
    # 64 heads of 128, 2 key and value heads, 8 ranks: a rank holds one of each, 2 h 128 weights, four times in all
    hidden, width = 8192, 128
    few, all_ = (
        DecoderTransformer("grouped", 4, hidden, 64, 1024, 1024, kv_heads=kv, head_dim=width, positions="rotary",
                           biases="none", norm="rmsnorm", dropout=False, tied=False) for kv in (2, 8)
    )  # fmt: skip
    held = {kv: run(net, 8, tensor=8).value("memory_weights") for kv, net in ((2, few), (8, all_))}
    assert held[2] == held[8]  # one key and one value head a rank either way
    assert parameters(all_, 8) - parameters(few, 8) == 4 * 2 * hidden * width * (8 - 2)
    # 32 heads, 8 key and value heads, 2 ranks: four each, no copy
    plain = small_network(heads=32, kv_heads=8, hidden=512, ffn=1024)
    one, two = run(plain, 1).value("memory_weights"), run(plain, 2, tensor=2).value("memory_weights")
    norms = 2 * (2 * 4 + 1) * 512  # on both ranks
    assert 2 * two - one == norms


@pytest.mark.parametrize(
    ("experts", "devices", "plan", "rule"),
    [
        (8, 16, {"data": 16, "expert": 16}, "experts % expert"),
        (8, 3, {"data": 3, "expert": 3}, "experts % expert"),
        (8, 6, {"data": 6, "expert": 4}, "(data * context) % expert"),
        (8, 4, {"data": 4, "expert": 8}, "(data * context) % expert"),
    ],
)
def test_an_expert_degree_that_does_not_divide_is_named(
    experts: int, devices: int, plan: dict[str, int], rule: str
) -> None:
    net = network("mixtral-8x7b")
    assert net.experts == experts
    found = run(net, devices, batch=devices, **plan).violated()
    assert rule in found and found[rule] > 0


@pytest.mark.parametrize("expert", [1, 2, 4, 8])
def test_expert_degrees_that_divide_are_fine(expert: int) -> None:
    found = run(network("mixtral-8x7b"), 8, batch=8, data=8, expert=expert)
    assert set(found.violated()) <= {"memory"}


def test_a_dense_network_has_no_expert_ranks() -> None:
    assert run(small_network(), 8, data=8, expert=2).violated()["experts % expert"] > 0


def test_every_way_to_divide_twelve_devices_is_open_and_no_other() -> None:
    net = small_network(layers=36, heads=12, hidden=48, ffn=144)
    fits = _triples(net)
    assert len(fits) == 18 and {t * p * d for t, p, d in fits} == {12}


def _triples(net: DecoderTransformer) -> list[tuple[int, int, int]]:
    """Degrees of all combinations up to 12, in one batch, whose only broken rule could be their product."""
    found = np.array(list(product(range(1, 13), repeat=3)), dtype=float)
    plan = Plan(tensor=found[:, 0], pipeline=found[:, 1], data=found[:, 2])
    result = evaluate(Design(a100(), Cluster(12, (Tier(12),)), plan, Workload(net, 8, 27720), stack("ideal")))
    return [(int(t), int(p), int(d)) for (t, p, d), fits in zip(found, result.feasible, strict=True) if fits]


def test_ten_devices_are_no_multiple_of_four_and_the_rule_says_by_how_much() -> None:
    net = small_network(heads=4)
    assert run(net, 10, tensor=4, data=2, batch=10).violated() == {DEVICES: 2.0}
    assert run(net, 10, tensor=4, data=3, batch=9).violated() == {DEVICES: 2.0}


@pytest.mark.parametrize(
    ("batch", "data", "micro_batch", "rest"), [(1, 8, 1, 1), (100, 8, 3, 4), (8, 1, 16, 8), (96, 8, 3, 0)]
)
def test_a_batch_is_never_cut_short(batch: int, data: int, micro_batch: int, rest: int) -> None:
    found = run(small_network(), data, batch=batch, data=data, micro_batch=micro_batch)
    assert found.violated() == ({BATCH: float(rest)} if rest else {})
    # what is timed is at least the whole batch
    assert found.value("micro_batches") * data * micro_batch >= batch


@pytest.mark.parametrize(("sequence", "context", "tensor", "rest"), [(8, 3, 1, 2), (12, 4, 2, 4), (8, 4, 2, 0)])
def test_a_sample_divides_over_context_ranks_and_over_tensor_ranks_within_them(
    sequence: int, context: int, tensor: int, rest: int
) -> None:
    found = run(small_network(), context * tensor, sequence=sequence, context=context, tensor=tensor,
                sequence_parallel=int(tensor > 1))  # fmt: skip
    rule = "sequence % (context * tensor with sequence parallel)"
    assert found.violated() == ({rule: float(rest)} if rest else {})


def test_degree_one_of_every_axis_changes_no_bit() -> None:
    plain = run(small_network(), 1)
    same = run(small_network(), 1, context=1, expert=1, zero_stage=0, zero_group=0, reshard=1, offload="none")
    assert {name: value.tolist() for name, value in plain.metrics.items()} == {
        name: value.tolist() for name, value in same.metrics.items()
    }
