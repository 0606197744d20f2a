"""Pipeline cuts of a chain of different layers: optimal, and what the stages hold adds up."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.simulation.step import simulated_step_time
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from workloads.cuts import balanced, cut_cells, even
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers import Activation, Conv, CrossEntropy, GlobalPool, Linear
from workloads.network import Workload
from workloads.plan import Plan


def best_by_trying_all(costs: tuple[float, ...], stages: int) -> float:
    """The least largest stage over every way to place the borders."""
    n = len(costs)
    found = float("inf")
    for borders in combinations(range(1, n), stages - 1):
        edges = (0, *borders, n)
        found = min(found, max(sum(costs[a:b]) for a, b in zip(edges, edges[1:], strict=False)))
    return found


def test_the_cut_is_the_best_of_all_cuts_of_random_chains() -> None:
    draw = np.random.default_rng(3)
    for _ in range(150):
        n = int(draw.integers(1, 10))
        costs = tuple(draw.integers(0, 20, n).astype(float))
        for stages in range(1, n + 1):
            starts = balanced(costs, stages)
            assert starts[0] == 0 and sorted(set(starts)) == list(starts)
            edges = (*starts, n)
            slowest = max(sum(costs[a:b]) for a, b in zip(edges, edges[1:], strict=False))
            assert slowest == best_by_trying_all(costs, stages)


def test_five_layers_in_two_stages_by_hand() -> None:
    assert balanced((4.0, 1.0, 1.0, 1.0, 3.0), 2) == (0, 2)  # 5 and 5
    assert even(5, 2) == (0, 3)


@pytest.mark.parametrize("stages", [0, 4])
def test_a_number_of_stages_that_the_chain_cannot_fill_is_an_error(stages: int) -> None:
    with pytest.raises(ValueError, match="allowed: 1 to 3"):
        balanced((1.0, 1.0, 1.0), stages)


def uneven(width: int = 32) -> GraphNetwork:
    """Convolutions that shrink: early ones hold activations, late ones parameters."""

    def build(_: int) -> Graph:
        graph = Graph("uneven")
        x = graph.input((3, 64, 64))
        for layer in range(8):
            with graph.cell(f"layer {layer}"):
                x = graph.add(Conv(width * (1 + layer // 2), 3, 1 + layer % 2, 1), x)
                x = graph.add(Activation(), x)
        with graph.cell("head"):
            x = graph.add(Linear(100), graph.add(GlobalPool(), x))
            graph.add(CrossEntropy(), x)
        return graph

    return GraphNetwork("uneven", build)


NETWORK = uneven()


def design(plan: Plan, batch: int = 256) -> Design:
    devices = int(plan.tensor * plan.pipeline * plan.data)
    return Design(chip("a100-sxm-80gb"), Cluster(devices, (Tier(8),)), plan, Workload(NETWORK, 1, batch))


def test_shares_of_the_stages_add_up_to_the_network() -> None:
    cells = NETWORK.blocks(1)[1].cells
    assert len(cells) == 9
    assert sum(cell.parameters for cell in cells) == NETWORK.graph().parameters
    assert sum(cell.flops for cell in cells) == NETWORK.graph().flops
    for stages in range(1, 10):
        for by_cost in (False, True):
            cut = cut_cells(cells, stages, by_cost)
            for shares in (cut.cost, cut.parameters, cut.kept, cut.input):
                assert len(shares) == stages and sum(shares) == pytest.approx(1.0)


def test_a_balanced_cut_is_never_slower_than_equal_numbers_of_layers_by_cost() -> None:
    cells = NETWORK.blocks(1)[1].cells
    for stages in range(1, 10):
        assert max(cut_cells(cells, stages, True).cost) <= max(cut_cells(cells, stages, False).cost)


@pytest.mark.parametrize("pipeline", [2, 3, 4, 8])
@pytest.mark.parametrize("split", [0, 1])
def test_the_step_of_cut_layers_agrees_with_the_event_simulation(pipeline: int, split: int) -> None:
    one = design(Plan(pipeline=pipeline, split=split, micro_batch=16))
    assert evaluate(one).value("step_time") == pytest.approx(simulated_step_time(one), rel=0.06)


def test_cut_plans_have_the_same_bits_alone_and_together() -> None:
    pipeline, split = np.array([1, 2, 3, 4, 8, 2, 9]), np.array([0, 1, 0, 1, 1, 0, 1])
    together = evaluate(
        Design(
            chip("a100-sxm-80gb"), Cluster(8, (Tier(8),)), Plan(pipeline=pipeline, split=split, micro_batch=16),
            Workload(NETWORK, 1, 256),
        )
    )  # fmt: skip
    for row in range(len(pipeline)):
        alone = evaluate(
            Design(
                chip("a100-sxm-80gb"), Cluster(8, (Tier(8),)),
                Plan(pipeline=int(pipeline[row]), split=int(split[row]), micro_batch=16), Workload(NETWORK, 1, 256),
            )
        )  # fmt: skip
        for name in ("step_time", "memory", "energy_per_step"):
            assert alone.value(name) == together[name][row]


def test_more_stages_than_layers_and_interleaving_are_named_violations() -> None:
    result = evaluate(design(Plan(pipeline=10, micro_batch=16), 160))
    assert result.violated().keys() >= {"pipeline <= layers"}
    result = evaluate(design(Plan(pipeline=3, interleave=3, micro_batch=16), 144))
    assert "interleave needs layers of one kind" in result.violated()


def test_full_recomputation_repeats_the_forward_pass_and_keeps_inputs() -> None:
    plain, full = (evaluate(design(Plan(micro_batch=64, recompute=kind))) for kind in ("none", "full"))
    assert full.value("time_recompute") == pytest.approx(plain.value("time_forward"), rel=0.05)
    assert full.value("memory_activations") < plain.value("memory_activations")


def test_a_stage_holds_the_parameters_of_its_own_layers() -> None:
    cells = NETWORK.blocks(1)[1].cells
    result = evaluate(design(Plan(pipeline=2, split=0, micro_batch=16)))
    late = sum(cell.parameters for cell in cells[5:])
    assert late > sum(cell.parameters for cell in cells[:5])
    # the first stage keeps two micro-batches of the larger activations and is the fullest here
    early = sum(cell.parameters for cell in cells[:5])
    assert result.value("memory_weights") == pytest.approx(2.0 * early)


def test_products_that_read_one_tensor_reduce_its_gradient_once() -> None:
    def build(branches: int) -> Graph:
        graph = Graph("siblings")
        x = graph.add(Linear(64, bias=False), graph.input((16, 32)))
        x = graph.add(Linear(64, bias=False), x)
        for _ in range(branches):
            y = graph.add(Linear(64, bias=False), x)
            graph.add(Linear(64, bias=False), y)
        return graph

    # column, row; then a column and a row for each branch: a row reduces forward, the shared tensor once backward
    one, three = (GraphNetwork("siblings", lambda _, n=n: build(n)).blocks(1)[1] for n in (1, 3))
    elements = 16 * 64
    assert one.reductions == 2 and one.exchanged == -(-(2 + 1) * elements // 4)
    assert three.reductions == 4 and three.exchanged == -(-(4 + 1) * elements // 8)
