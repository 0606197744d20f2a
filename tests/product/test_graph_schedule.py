"""Branches of a graph on several units: the serial time is the evaluation's, the critical path bounds them all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.insight.graph_schedule import MATRIX, VECTOR, schedule_graph
from dse.insight.list_schedule import lower_bound
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers import Activation, Concat, Conv, CrossEntropy, GlobalPool, Linear
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network as published


def branching(branches: int) -> GraphNetwork:
    """An inception-like layer of equal branches."""

    def build(_: int) -> Graph:
        graph = Graph("branching")
        image = graph.add(Conv(64, 3, 1, 1), graph.input((16, 32, 32)))
        parts = [graph.add(Activation(), graph.add(Conv(64, 3, 1, 1), image)) for _ in range(branches)]
        joined = graph.add(Concat(), *parts) if branches > 1 else parts[0]
        graph.add(CrossEntropy(), graph.add(Linear(10), graph.add(GlobalPool(), joined)))
        return graph

    return GraphNetwork("branching", build)


def design(network: GraphNetwork, samples: int = 16, device: str = "a100-sxm-80gb") -> Design:
    constants = replace(stack("generic", device), host_time_per_operator=0.0)
    return Design(
        chip(device), Cluster(1, (Tier(1),)), Plan(micro_batch=samples), Workload(network, 1, samples), constants,
        Training(precision="fp16", optimizer="momentum"),
    )  # fmt: skip


def test_the_serial_time_is_that_of_the_evaluation() -> None:
    one = design(branching(4))
    result = evaluate(one)
    spent = result.value("time_forward") + result.value("time_backward")
    assert schedule_graph(one).serial == pytest.approx(spent, rel=1e-9)


def test_a_chain_gains_nothing_from_more_units_and_branches_do() -> None:
    found = schedule_graph(design(branching(1)))
    assert found.bounds.length <= found.makespan <= found.serial * (1 + 1e-9)
    wide = schedule_graph(design(branching(8)))
    assert wide.parallelism > 1.5 * found.parallelism


@pytest.mark.parametrize("units", [(1, 1), (2, 1), (4, 2), (8, 8)])
def test_schedules_keep_their_bounds(units: tuple[int, int]) -> None:
    found = schedule_graph(design(branching(6)), matrix_units=units[0], vector_units=units[1])
    counts = {MATRIX: units[0], VECTOR: units[1]}
    least = lower_bound(found.tasks, counts)
    work = sum(task.seconds / counts[task.kind] for task in found.tasks)
    assert least <= found.scheduled.makespan <= work + found.bounds.length
    assert found.makespan >= found.memory_time


def test_every_weight_has_a_gradient_and_the_image_has_none() -> None:
    names = [task.name for task in schedule_graph(design(branching(2))).tasks]
    assert sum(name.endswith(" weights") for name in names) == 4
    assert names.count("conv 1 weights") == 1
    # the first convolution's backward pass is the gradient of its bias alone: no product of an image's gradient
    first = [task for task in schedule_graph(design(branching(2))).tasks if task.name == "conv 1 backward"]
    assert [task.kind for task in first] == [VECTOR]


def test_transformers_of_block_classes_have_no_graph_to_schedule() -> None:
    one = Design(
        chip("a100-sxm-80gb"), Cluster(1, (Tier(1),)), Plan(), Workload(published("gpt2-small"), 1024, 1)
    )
    with pytest.raises(ValueError, match="allowed: a graph"):
        schedule_graph(one)
    with pytest.raises(ValueError, match="matrix_units: found 0"):
        schedule_graph(design(branching(2)), matrix_units=0)
