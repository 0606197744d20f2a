"""Bytes and joules of a step by hand: what is priced is what is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import a100, small_network
from mixture import MIXTURE
from paper_step import BOUNDARY, PAPER_CHIP, PAPER_TRAINING, PARAMETERS, equal, paper_network

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.messages import Message, Part
from hw_models.cluster import Cluster, Tier
from hw_models.stacks import stack
from hw_models.technology import technology
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network

AXES = ("tensor", "pipeline", "context", "expert", "data")
RINGS = replace(stack("ideal"), algorithms=("ring",))
LAYER, ENDS = 528, 128 + 136


def paper_step(devices: int, batch: int = 3, *, net: Any = None, **plan: Any) -> Any:
    fabric = Cluster(devices, (Tier(devices, latency=0.0),))
    workload = Workload(net or paper_network(), 4, batch)
    return evaluate(Design(PAPER_CHIP, fabric, Plan(**plan), workload, stack("ideal"), PAPER_TRAINING))


def bytes_of(net: Any, devices: int, batch: int, *, software: Any = RINGS, **plan: Any) -> dict[str, float]:
    """Bytes a device sends in a step by axis, and the bytes that joules are paid for, on one tier."""
    design = Design(
        a100(), Cluster(devices, (Tier(devices),)), Plan(**plan), Workload(net, 8, batch), software,
        Training(gradient_bytes=4),
    )  # fmt: skip
    step = evaluate(design)
    paid = step.value("energy_communication") / technology(design.chip.process, design.chip.hbm).link_energy / devices
    return {axis: step.value(f"communication_{axis}") for axis in AXES} | {"paid": paid}


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all_reduce", 150.0), ("reduce_scatter", 75.0), ("all_gather", 75.0), ("all_to_all", 75.0),
     ("point_to_point", 100.0)],
)  # fmt: skip
def test_one_of_four_ranks_sends_of_100_bytes(kind: str, sent: float) -> None:
    equal(Part(kind, Message(4, 1, 100.0)).sent, sent)


def test_a_row_for_two_of_four_ranks_crosses_once_to_each_rank_that_wants_it() -> None:
    # of 4 (1 - (3/4)^2) = 1.75 ranks on average; 3/4 of them are others
    equal(Part("all_to_all", Message(4, 1, 100.0), copies=2).sent, 50.0 * 1.75 * 0.75)


def test_recomputation_per_operator_repeats_the_gathers_of_sequence_parallelism() -> None:
    # 10 exchanges of 2 x 1/2 x 64 B a micro-batch; the two forward ones of both layers gathered again: half of 4
    split = {"tensor": 2, "sequence_parallel": 1}
    equal(paper_step(devices=2, **split).value("communication_tensor"), 3 * 10 * BOUNDARY)
    equal(paper_step(devices=2, **split, recompute="per_operator").value("communication_tensor"), 3 * 12 * BOUNDARY)
    equal(paper_step(devices=2, **split, recompute="full").value("communication_tensor"), 3 * 14 * BOUNDARY)
    # without sequence parallelism nothing was scattered
    plain = paper_step(devices=2, tensor=2, recompute="per_operator")
    equal(plain.value("communication_tensor"), 3 * 10 * BOUNDARY)


@pytest.mark.parametrize(
    ("stage", "group", "layers", "ends"),
    [
        (0, 0, 6, 6),  # all-reduce of 4 B: 2 x 3/4 x 4
        (1, 0, 3 + 1.5, 3 + 1.5),  # scattered 3/4 x 4, weights gathered 3/4 x 2
        (1, 2, 2 + 2 + 1, 2 + 2 + 1),  # scattered 1/2 x 4, halves all-reduced over two groups, gathered 1/2 x 2
        (2, 0, 3 * 3 + 1.5, 3 * 3 + 1.5),  # scattered in each of 3 micro-batches
        (2, 2, 3 * (2 + 2) + 1, 3 * (2 + 2) + 1),
        (3, 0, 3 * (3 + 2 * 1.5), 3 * (3 + 1.5)),  # a layer is gathered forward and backward, the ends once
        (3, 2, 3 * (2 + 2 + 2 * 1), 3 * (2 + 2 + 1)),
    ],
)
def test_four_data_ranks_send_by_stage_and_group_of_zero(stage: int, group: int, layers: float, ends: float) -> None:
    step = paper_step(4, 12, data=4, zero_stage=stage, zero_group=group)
    assert 2 * LAYER + ENDS == PARAMETERS
    equal(step.value("communication_data"), 2 * LAYER * layers + ENDS * ends)


def test_the_fullest_stage_of_zero_3_reports_its_own_layers_and_head() -> None:
    # two stages of a layer; the last holds the head of 136 parameters, 8 more than the table of the first
    step = paper_step(4, 6, data=2, pipeline=2, zero_stage=3)
    equal(step.value("communication_data"), 3 * (LAYER * (2 + 2 + 4) + 136 * (2 + 4)) / 2)


def test_a_tied_embedding_is_all_reduced_between_the_first_and_last_of_four_stages() -> None:
    plan = {"devices": 4, "batch": 3, "pipeline": 4}
    tied, apart = (paper_step(net=paper_network(layers=4, tied=tied), **plan) for tied in (True, False))
    # each of two sends 2 x 1/2 of 16 x 8 gradients of 4 B: half of that a stage
    equal(tied.value("communication_pipeline") - apart.value("communication_pipeline"), 2 * 128 * 4 / 4)


def test_a_cut_boundary_is_gathered_over_the_tensor_axis_after_each_transfer() -> None:
    net = small_network(layers=2, hidden=8, heads=2, ffn=16, vocabulary=16)
    whole, cut = (
        bytes_of(net, 4, 1, software=replace(RINGS, split_boundary=on), tensor=2, pipeline=2) for on in (0.0, 1.0)
    )
    # one boundary of 8 tokens x 8 x 2 B forward and one backward, over two stages: 128 B a device
    equal(whole["pipeline"], 128.0)
    equal(cut["pipeline"], 64.0)
    equal(cut["tensor"] - whole["tensor"], 64.0)


def test_touched_rows_of_tables_are_gathered_by_every_copy() -> None:
    net, batch = network("dlrm-small"), 4
    body = next(block for block in net.blocks(1) if block.place == "body")
    design = Design(a100(), Cluster(4, (Tier(4),)), Plan(data=4), Workload(net, 1, batch), RINGS, Training())
    dense = sum(block.count * block.dense_parameters(1.0) for block in net.blocks(1))
    # an all-reduce of dense gradients, and the rows that one sample touches to each of three others
    expected = 2 * 3 / 4 * dense * 4 + 3 * body.touched * 4
    equal(evaluate(design).value("communication_data"), expected)


@pytest.mark.parametrize("plan", [
    {"tensor": 4, "sequence_parallel": 1, "recompute": "per_operator"},
    {"data": 4, "zero_stage": 1, "zero_group": 2},
    {"data": 2, "tensor": 2, "zero_stage": 2},
    {"data": 4, "zero_stage": 3, "zero_group": 2, "expert": 2},
    {"data": 4, "expert": 4, "recompute": "full"},
    {"context": 2, "tensor": 2},
    {"pipeline": 2, "tensor": 2},
])  # fmt: skip
def test_joules_of_rings_on_one_tier_are_those_of_the_bytes_reported(plan: dict[str, Any]) -> None:
    """In cases where every stage sends as much over the data axis as the fullest."""
    found = bytes_of(MIXTURE, 4, 8, **plan)
    equal(sum(found[axis] for axis in AXES), found["paid"])
