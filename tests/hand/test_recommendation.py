"""Recommendation and sparse networks: tables, interaction, sharding, linear models, temporal graphs, subdivision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import Result
from dse.evaluation.stages import blocks_by_place
from dse.evaluation.work import work
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.dense import Linear
from workloads.layers.embedding import Cross, EmbeddingBags, Interaction
from workloads.layers.losses import Loss
from workloads.layers.pointwise import Flatten
from workloads.layers.sparse import (
    AdaptiveSubdivision,
    CoordinateDescent,
    GraphGather,
    GraphScatter,
    NeighbourAttention,
    NodeMemory,
    SparseLinear,
    subdivision_work,
)
from workloads.lowering import lower
from workloads.network import Workload
from workloads.networks import GRAPHS, recommendation, sparse
from workloads.networks.sparse import GLM_DATA, TEMPORAL_DATA
from workloads.plan import Plan
from workloads.precision import Training

NETWORKS = {one.name: one for family in (recommendation, sparse) for one in family.NETWORKS}


def test_bags_read_a_row_an_index_and_write_a_row_a_table():
    counts = EmbeddingBags((10, 20, 30), 4, (1, 2, 3)).counts((6,))
    assert counts.result == (3, 4)
    assert counts.parameters == counts.row_parameters == 60 * 4
    bags = counts.passes[0]
    assert bags.elements * bags.reads == 2 * 6 * 4  # fp32 rows, in elements of 2 B
    assert bags.elements * bags.writes == 3 * 4
    # fp32 rows are updated in place: 4 B an element read and written
    assert bags.elements * bags.backward_writes == 2 * 6 * 4
    assert counts.flops == 0


def tables(rows: int, width: int, spread: str = "row") -> Graph:
    """One table, and a linear layer of width weights and a bias on its pooled row."""
    graph = Graph("tables")
    bags = EmbeddingBags((rows,), width, spread=spread)
    x = graph.add(Flatten(), graph.add(bags, graph.input((bags.indices,), "index")))
    graph.add(Loss("sigmoid"), graph.add(Linear(1), x))
    return graph


def trained(rows: int, width: int, plan: Plan | None = None, *, spread: str = "row", **training: str) -> Result:
    network = GraphNetwork("tables", lambda _: tables(rows, width, spread))
    chosen = plan or Plan()
    devices = int(chosen.data)
    return evaluate(
        Design(chip("a100-sxm-80gb"), Cluster(devices, (Tier(devices),)), chosen, Workload(network, 1, 1024),
               stack("ideal"), Training(**training))  # type: ignore[arg-type]
    )  # fmt: skip


#: A hundred million rows of 128, and the linear layer beside them: 128 weights and a bias of 12 B of adam's state.
LARGE, DENSE = 10**8 * 128, 129 * 12


@pytest.mark.parametrize(
    ("training", "weights", "state"),
    [
        ({}, 4 * LARGE, 8 * LARGE + DENSE),  # 102.4e9 B: adam keeps two moments of every element
        ({"table_optimizer": "adam"}, 4 * LARGE, 8 * LARGE + DENSE),
        ({"table_optimizer": "rowwise_adagrad"}, 4 * LARGE, 4 * 10**8 + DENSE),
        ({"table_optimizer": "sgd"}, 4 * LARGE, DENSE),
        ({"optimizer": "momentum"}, 4 * LARGE, 4 * LARGE + 129 * 8),
        ({"optimizer": "sgd"}, 4 * LARGE, 129 * 4),
        # in fp32 the dense weights are their own master too
        ({"precision": "fp32"}, 4 * LARGE, 8 * LARGE + 129 * 8),
    ],
)
def test_a_hundred_million_rows_have_weights_and_optimizer_state(training, weights, state):
    found = trained(10**8, 128, **training)
    assert found.value("memory_optimizer") == state
    dense = 129 * (4 if training.get("precision") == "fp32" else 2)
    assert found.value("memory_weights") == weights + dense
    assert found.value("memory_gradients") == 129 * 4, "rows are updated where they are read"


def test_adam_of_a_hundred_million_rows_does_not_fit_one_a100():
    assert not trained(10**8, 128).feasible[0]
    assert trained(10**8, 128, table_optimizer="rowwise_adagrad").feasible[0]


@pytest.mark.parametrize(("spread", "rows"), [("row", 1000 / 8), ("column", 1000), ("", 1000)])
def test_state_of_tables_is_spread_as_their_rows_are_and_never_by_zero(spread, rows):
    experts = 1 if spread == "" else 8
    for stage in (0, 1, 3):
        plan = Plan(data=8, expert=experts, zero_stage=stage, micro_batch=128)
        adam = trained(1000, 128, plan, spread=spread)
        plain = trained(1000, 128, plan, spread=spread, table_optimizer="sgd")
        rowwise = trained(1000, 128, plan, spread=spread, table_optimizer="rowwise_adagrad")
        dense = plain.value("memory_optimizer")
        assert adam.value("memory_optimizer") - dense == 8 * 1000 * 128 / experts
        assert rowwise.value("memory_optimizer") - dense == pytest.approx(4 * rows, rel=1e-12)


def test_offloading_leaves_tables_on_the_device_that_looks_them_up():
    for offload in ("optimizer", "all"):
        found = trained(1000, 128, Plan(offload=offload))
        assert found.value("memory_optimizer") == 8 * 1000 * 128
        assert found.value("memory_weights") >= 4 * 1000 * 128


@pytest.mark.parametrize(
    ("optimizer", "state"),
    # bytes read and written beside a row of 128 fp32 elements; one number takes a sector of 32 B
    [("sgd", 0), ("momentum", 2 * 4 * 128), ("adam", 2 * 8 * 128), ("rowwise_adagrad", 2 * 32)],
)
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_an_update_moves_the_state_of_touched_rows_alone(optimizer, state, precision):
    training = Training(precision=precision, table_optimizer=optimizer)
    width = {"bf16": 2, "fp32": 4}[precision]
    for rows in (10**3, 10**8):
        blocks = blocks_by_place(Workload(GraphNetwork("tables", lambda _, rows=rows: tables(rows, 128)), 1, 1024))
        one = dict.fromkeys(("tensor", "micro_batch", "sequence_parallel", "context", "expert", "expert_tensor"),
                            np.ones(1))  # fmt: skip
        done = work(blocks, training, one, paired=False)
        moved = {
            task.phase: float(done.moved[task.row].item()) for task in done.tasks if task.operator == "embedding bags"
        }
        # an fp32 row in, the pooled row out; its gradient in, the row read and written, and its state
        assert moved["forward"] == 128 * (4 + width)
        assert moved["gradient"] == 128 * (width + 2 * 4) + state


@pytest.mark.parametrize("spread", ["table", "row", "column"])
def test_spread_tables_exchange_a_pooled_row_a_table_however_many_indices_it_has(spread):
    once, often = (EmbeddingBags((10, 20), 4, lookups, spread).counts((2 * lookups,)) for lookups in (1, 50))
    assert once.exchanged == often.exchanged == 2 * 4
    assert EmbeddingBags((10, 20), 4, 1, "").counts((2,)).exchanged == 0


def test_the_interaction_of_criteo_has_479_numbers_and_a_27_by_27_product():
    counts = Interaction().counts((128,), (26, 128))
    assert counts.result == (128 + 27 * 26 // 2,) == (479,)
    assert counts.flops == 2 * 27 * 27 * 128
    assert Interaction(8).counts((128,), (26, 128)).result == (480,)


def test_a_cross_layer_of_full_rank_is_narrower_than_two_of_half():
    full, low = Cross().counts((64,), (64,)), Cross(16).counts((64,), (64,))
    assert full.parameters == 64 * 64 + 64
    assert low.parameters == 2 * 64 * 16 + 64
    assert (full.flops, low.flops) == (2 * 64 * 64, 4 * 64 * 16)


def test_dlrm_small_by_hand():
    graph = GRAPHS["dlrm-small"].graph()
    tables = 32_709_138 * 128
    mlp = sum(a * b + b for a, b in ((13, 512), (512, 256), (256, 128)))
    mlp += sum(a * b + b for a, b in ((480, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1)))
    assert graph.parameters == tables + mlp
    bottom, top = 13 * 512 + 512 * 256 + 256 * 128, 480 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert graph.macs == bottom + 27 * 27 * 128 + top


def test_the_sizes_of_dlrm_are_as_printed_in_fp32():
    small, large = (4 * GRAPHS[name].graph().parameters / 1e9 for name in ("dlrm-small", "dlrm-large"))
    # printed "~15 GB" (GiB: 15.6) and "~82 GB" (GiB: 84.9)
    assert small * 1e9 / 2**30 == pytest.approx(15.6, abs=0.05)
    assert large * 1e9 / 2**30 == pytest.approx(82, rel=0.04)


def test_only_the_bottom_matrix_that_reads_features_has_no_input_gradient():
    body = GRAPHS["dlrm-small"].blocks(1)[1]
    assert body.training_flops == 3 * body.flops - 2 * 13 * 512


@pytest.mark.parametrize(
    ("name", "terabytes"), [("ads-a", 0.3), ("ads-b", 0.6), ("ads-c", 2.0), ("ads-d", 6.0), ("ads-e", 10.0)]
)
def test_ads_models_have_their_size_within_the_rounding_of_columns(name, terabytes):
    """A column is 3% to 11% of a row, so that half of one is the most that a size can be off."""
    graph = GRAPHS[name].graph()
    assert 4 * graph.parameters / 1e12 == pytest.approx(terabytes, rel=0.07)


def test_a_sparse_row_costs_its_non_zeros_whatever_the_number_of_features():
    few, many = (SparseLinear(features).counts((39,)) for features in (100, 10**9))
    assert few.passes == many.passes
    row = few.passes[0]
    # an index and a value of 4 B and a sector of 32 B each
    assert 2 * row.elements * row.reads == 39 * (4 + 4 + 32)
    assert row.elements * (row.operations + row.backward_operations) == 4 * 39


@pytest.mark.parametrize(("partition", "shared"), [("example", 75_000_000), ("feature", 200_000_000)])
def test_devices_of_coordinate_descent_agree_on_a_number_a_feature_or_an_example(partition, shared):
    assert CoordinateDescent(200_000_000, 75_000_000, partition).counts((39,)).parameters == shared


def test_an_epoch_of_coordinate_descent_on_four_titan_x_takes_23_to_390_milliseconds():
    data, bandwidth = GLM_DATA["criteo"], 4 * 336e9
    nonzeros = data.examples * data.nonzeros
    streamed = nonzeros * 4 / bandwidth
    step = CoordinateDescent(data.examples, data.features).counts((data.nonzeros,)).passes[0]
    gathered = data.examples * 2 * step.elements * (step.reads + step.writes) / bandwidth
    assert streamed == pytest.approx(0.023, rel=0.02)
    assert gathered == pytest.approx(0.39, rel=0.02)
    assert math.ceil(nonzeros * 4 / 12e9) == 3


def test_gather_and_scatter_are_each_others_backward_pass():
    gather, scatter = GraphGather(40).counts((10, 8)), GraphScatter(10).counts((40, 8))
    assert (gather.result, scatter.result) == ((40, 8), (10, 8))
    assert gather.passes[0].reads == scatter.passes[0].backward_reads
    assert gather.passes[0].backward_reads == scatter.passes[0].reads


def test_node_memory_of_wikipedia_takes_its_bytes_a_copy():
    memory, nodes = NodeMemory(100, 372), TEMPORAL_DATA["wikipedia"].nodes
    # 3.69 MB of state and 13.7 MB of mail
    assert memory.state_bytes(nodes) == 4 * 9227 * (100 + 372)
    assert memory.state_bytes(nodes, copies=8) == 8 * memory.state_bytes(nodes)
    assert 4 * nodes * 100 == pytest.approx(3.69e6, rel=0.001)
    assert 4 * nodes * 372 == pytest.approx(13.7e6, rel=0.003)


def test_state_that_an_event_moves_follows_its_neighbours_and_not_the_graph():
    rows = 3 * (1 + 10)
    assert NodeMemory(100, 372).moved_bytes(rows) == 4 * (rows + 2) * 472


def test_node_memory_is_a_gru_cell_of_torch_and_a_time_encoder():
    counts = NodeMemory(100, 372, time=100).counts((33,))
    # torch.nn.GRUCell(472, 100): 300 x (472 + 100 + 2); time: 100 weights and biases
    assert counts.parameters == 300 * 574 + 200
    assert counts.flops == 2 * 33 * 300 * 572


def test_the_memory_gets_a_weight_gradient_and_no_input_gradient():
    graph = Graph()
    graph.add(Loss("sigmoid"), graph.add(NodeMemory(10, 30, 4), graph.input((7,))))
    body = lower(graph)[1]
    assert body.training_flops == 2 * body.flops


def test_neighbours_are_seen_by_their_own_root_alone():
    one = NeighbourAttention(1, 5, 2, 3, 4).counts((6, 8))
    three = NeighbourAttention(3, 5, 2, 3, 4).counts((18, 8))
    assert three.flops == 3 * one.flops
    assert three.parameters == one.parameters


# Adaptive subdivision: figures of the cost model ------------------------------------------------------------------


def test_subdividing_a_dense_picture_costs_an_eighth_more():
    side, work = 65536, 512.0
    ratio = subdivision_work(side, 1.0, work=work) / (work * side * side)
    assert ratio == pytest.approx(1.125, abs=0.0002)


def test_work_rises_with_density():
    values = [subdivision_work(65536, density, work=512.0) for density in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values == sorted(values)
    assert values[0] < values[-1]


def best_stop(density: float, work: float, launch: float) -> int:
    stops = [2**power for power in range(1, 11)]
    return min(stops, key=lambda stop: subdivision_work(65536, density, work=work, stop=stop, launch=launch))


@pytest.mark.parametrize("density", [0.25, 0.5, 0.75])
def test_a_region_is_worth_splitting_where_its_side_exceeds_four_over_one_less_density(density):
    """With no launch and much work: 4 A s + P A s^2 < A s^2 where s > 4 / (1 - P)."""
    stop = best_stop(density, 1e9, 0.0)
    assert stop <= 4 / (1 - density) + 1e-9 < 2 * stop + 1e-9


def test_launches_make_regions_that_are_computed_whole_larger():
    assert best_stop(0.5, 512.0, 500.0) == 8
    # at 384 A a region of side 32 is as well split as not: A 32^2 = 4 A 32 + 384 A + 2 A 16^2
    sixteen, whole, larger = (subdivision_work(65536, 0.5, work=1e9, stop=stop, launch=384e9) for stop in (16, 32, 64))
    assert sixteen == pytest.approx(whole, rel=1e-6)
    assert larger > 1.01 * whole


def test_levels_launch_one_kernel_each_and_regions_one_each():
    level, region = (AdaptiveSubdivision(launch=kind).counts((256, 256)) for kind in ("level", "region"))
    assert [one.elements for one in level.passes] == [one.elements for one in region.passes]
    assert sum(one.steps for one in level.passes) <= sum(one.steps for one in region.passes)
    assert all(one.steps == 1 for one in level.passes)


def test_operations_of_subdivision_are_the_cost_model_without_launches():
    passes = AdaptiveSubdivision(512.0, 0.5).counts((1024, 1024)).passes
    assert sum(one.elements * one.operations for one in passes) == subdivision_work(1024, 0.5, work=512.0)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_cells_hold_all_parameters_and_every_name_is_in_the_registry(name):
    graph, body = NETWORKS[name].graph(), NETWORKS[name].blocks(NETWORKS[name].sequence)[1]
    assert sum(cell.parameters for cell in body.cells) == graph.parameters
    assert sum(cell.flops for cell in body.cells) == graph.flops
    assert GRAPHS[name] is NETWORKS[name]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmbeddingBags((), 4), "rows: found ()"),
        (lambda: EmbeddingBags((5, 6), 4, (1, 2, 3)), "lookups: found 3 numbers, allowed: 1 or 2"),
        (lambda: EmbeddingBags((5, 6), 4, spread="rows"), "spread: found 'rows'"),
        (lambda: EmbeddingBags((5, 6), 4).counts((3,)), "allowed: (2,), the indices a sample"),
        (lambda: Interaction().counts((8,), (3, 9)), "allowed: (width,) and (tables, width)"),
        (lambda: SparseLinear(5).counts((6,)), "found 6 non-zeros, allowed: at most 5"),
        (lambda: CoordinateDescent(5, 5, "row"), "partition: found 'row'"),
        (lambda: AdaptiveSubdivision(density=1.5), "density: found 1.5"),
        (lambda: AdaptiveSubdivision(split=1), "split: found 1"),
        (lambda: AdaptiveSubdivision().counts((4, 5)), "allowed: a square"),
        (lambda: NeighbourAttention(2, 3).counts((7, 8)), "found 7 rows, allowed: 8"),
    ],
)
def test_a_bad_size_is_an_error_that_names_the_field(make, message):
    with pytest.raises(ValueError) as caught:
        make()
    assert message in str(caught.value)
