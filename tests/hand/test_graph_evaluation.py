"""Networks that are graphs, priced: what a step of ResNet-50, BERT, GNMT and DLRM takes, and laws for each."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import Result
from dse.exploration.plans import PlanTable, enumerate_plans
from dse.exploration.sweep import Goals, sweep
from dse.exploration.variables import Objective
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv
from workloads.layers.losses import CrossEntropy
from workloads.layers.pointwise import Activation, GlobalPool
from workloads.network import Workload
from workloads.plan import Plan
from workloads.published import default_sequence, network
from workloads.transformer import DecoderTransformer

DEVICES = 8
#: Convolutions with skips, an attention encoder, recurrent layers, tables that are spread, a graph of 3-D convolutions.
NETWORKS = ("resnet18", "bert-base", "gnmt-4", "dlrm-small", "vnet-nvidia")
SPREAD = np.array([0.31, 1.0, 3.3])


def workload(name: str, batch: int = 64) -> Workload:
    return Workload(network(name), default_sequence(name), batch)


@cache
def plans(name: str) -> PlanTable:
    return enumerate_plans(workload(name), DEVICES)


def some_plans(name: str, count: int, seed: int = 3) -> dict[str, np.ndarray]:
    found = plans(name)
    index = np.random.default_rng(seed).integers(0, len(found), count)
    return {key: column[index].astype(float) for key, column in found.columns.items()}


def step(name: str, plan: Any, chips: Chip | None = None, software: str = "generic", batch: int = 64) -> Result:
    model = chips if chips is not None else chip("a100-sxm-80gb")
    return evaluate(Design(model, cluster("dgx-a100", DEVICES), plan, workload(name, batch), stack(software)))


def of(columns: dict[str, np.ndarray], index: Any = slice(None)) -> Plan:
    return Plan(**{key: column[index] for key, column in columns.items()})


def same_bits(left: Result, right: Result, take: Any = slice(None)) -> None:
    for key in left.metrics:
        np.testing.assert_array_equal(left.column(key), right.column(key)[take], err_msg=key)
    for key in left.violations:
        np.testing.assert_array_equal(left.violation(key), right.violation(key)[take], err_msg=key)


# --- Numbers ----------------------------------------------------------------------------------------------------------


def test_one_convolution_on_one_array_by_hand() -> None:
    """1 x 1, 4 channels to 4 filters on 2 x 2 positions: one fold of 4 + 4 + 4 - 2 cycles each way, data has no
    gradient: forward (4, 4, 4) and weight gradient (4, 4, 4) take 10 cycles each."""

    def build(sequence: int) -> Graph:
        graph = Graph("one")
        graph.add(Conv(4, 1, bias=False), graph.input((4, 2, 2)))
        return graph

    model = Chip(
        array_count=1, array_rows=4, array_columns=4, clock=1e9, dataflow="os", double_buffered=0,
        vector_lanes=10**12, local_sram=1e9, shared_sram=1e9, shared_sram_bandwidth=1e30, hbm_stacks=1,
        hbm_stack_capacity=1e9, hbm_stack_bandwidth=1e18, links=1, link_bandwidth=1e9,
    )  # fmt: skip
    alone = Workload(GraphNetwork("one", build), 1, 1)
    result = evaluate(Design(model, Cluster(1, (Tier(1),)), Plan(), alone, stack("ideal")))
    assert result.value("time_forward") == pytest.approx(10e-9, rel=1e-6)
    assert result.value("time_backward") == pytest.approx(10e-9, rel=1e-6)


def test_resnet50_of_256_images_keeps_what_frameworks_keep() -> None:
    """43.76 MB an image in 2 B (docs/models/networks.md): 11.2 GB of activations, 10 to 20 GB in all."""
    result = step("resnet50", Plan(data=DEVICES, micro_batch=256), batch=2048)
    assert result.value("memory_activations") == pytest.approx(256 * 43.76e6, rel=2e-3)
    assert 10e9 < result.value("memory") < 20e9


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_computes_three_times_the_forward_pass_less_gradients_of_data(name: str) -> None:
    """Counted from the graph, not from its blocks: what reads only what no parameter was part of is done twice."""
    given = network(name)
    assert isinstance(given, GraphNetwork)
    graph = given.graph(default_sequence(name))
    trained: list[bool] = []
    total = 0
    for node in graph.nodes:
        reads = any(trained[source] for source in node.inputs)
        trained.append(reads or node.counts.parameters > 0)
        total += (3 if reads else 2) * node.counts.flops
    result = step(name, Plan(data=DEVICES, micro_batch=8))
    peak = DEVICES * chip("a100-sxm-80gb").peak_flops("bf16")
    assert result.value("mfu") * result.value("step_time") * peak == pytest.approx(64 * total, rel=1e-9)


def test_bert_large_as_a_graph_takes_as_long_as_the_same_decoder() -> None:
    """The graph has a masked-word head on 76 of 512 positions (15%), the decoder on all: the rest is alike."""
    decoder = DecoderTransformer(
        "same", 24, 1024, 16, 4096, 30522, positions="learned", max_sequence=512, causal=False, dropout=True
    )
    model, boxes = chip("a100-sxm-80gb"), cluster("dgx-a100", DEVICES)
    for plan in (Plan(data=8, micro_batch=32), Plan(tensor=4, data=2, micro_batch=32, sequence_parallel=True)):
        graph, blocks = (
            evaluate(Design(model, boxes, plan, one, stack("generic")))
            for one in (workload("bert-large", 256), Workload(decoder, 512, 256))
        )
        for name in ("step_time", "time_forward", "time_backward"):
            assert 0.93 < graph.value(name) / blocks.value(name) < 1.0, name
        for name in ("memory_activations", "memory_weights", "communication_tensor"):
            assert graph.value(name) == pytest.approx(blocks.value(name), rel=0.03), name


def test_thin_convolutions_are_slower_than_their_multiply_adds_say() -> None:
    """EfficientNet-B0 computes a tenth of ResNet-50, in depthwise layers and passes that memory paces; VGG-16 computes
    four times as much in dense ones."""
    rate, used = {}, {}
    for name in ("efficientnet-b0", "resnet50", "vgg16"):
        result = step(name, Plan(data=DEVICES, micro_batch=256), batch=2048)
        rate[name], used[name] = result.value("samples_per_second"), result.value("mfu")
    assert rate["vgg16"] < rate["resnet50"] < rate["efficientnet-b0"] < 3 * rate["resnet50"]
    assert used["efficientnet-b0"] < used["resnet50"] / 4 < used["resnet50"] < used["vgg16"]


# --- Plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("resnet50", "bert-base", "vnet-nvidia"))
def test_a_tensor_axis_divides_the_work_of_a_sample_and_exchanges_channels(name: str) -> None:
    """Same micro-batch and number of micro-batches: one device of more ranks does less, and sends more."""
    found = [step(name, Plan(tensor=t, data=1, micro_batch=32), batch=64, software="ideal") for t in (1, 2, 4)]
    for less, more in zip(found[1:], found, strict=False):
        for key in ("time_forward", "time_backward", "memory_activations", "memory_weights"):
            assert less.value(key) < more.value(key), key
        assert less.value("communication_tensor") > more.value("communication_tensor")
    assert found[0].value("time_tensor") == 0.0 < found[1].value("time_tensor")
    assert found[1].value("memory_weights") < 0.55 * found[0].value("memory_weights")


def test_spread_tables_take_a_share_of_memory_and_exchange_pooled_rows() -> None:
    copied, spread = (step("dlrm-small", Plan(data=8, expert=e, micro_batch=1024), batch=8192) for e in (1, 8))
    assert spread.value("memory_weights") < copied.value("memory_weights") / 6
    assert copied.value("communication_expert") == 0.0 < spread.value("communication_expert")
    rows = 26 * 128 * 2 * 1024 * 7 / 8  # a pooled row a table and sample in 2 B, to seven of eight ranks
    assert spread.value("communication_expert") == pytest.approx(2 * rows, rel=0.05)  # rows out, gradients back


def test_a_balanced_cut_is_never_slower_than_equal_numbers_of_layers() -> None:
    for name in ("resnet50", "unet-medical"):
        for stages in (2, 4):
            plan = Plan(data=DEVICES // stages, pipeline=stages, micro_batch=4)
            even, balanced = (step(name, replace(plan, split=how), batch=256) for how in ("uniform", "balanced"))
            assert balanced.value("step_time") <= even.value("step_time")
            assert name != "resnet50" or balanced.value("step_time") < 0.9 * even.value("step_time")


@pytest.mark.parametrize("name", NETWORKS)
def test_recomputing_all_takes_longer_and_keeps_less(name: str) -> None:
    none, full = (step(name, Plan(data=DEVICES, micro_batch=8, recompute=how)) for how in ("none", "full"))
    assert full.value("step_time") > none.value("step_time")
    assert full.value("memory_activations") < none.value("memory_activations")
    assert full.value("mfu") < none.value("mfu") < full.value("hfu") * 1.1


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "dlrm-small"])  # little of it is no table
def test_each_stage_of_zero_holds_less(name: str) -> None:
    held = [step(name, Plan(data=DEVICES, micro_batch=8, zero_stage=z)).value("memory") for z in range(4)]
    assert held[0] > held[1] > held[2] > held[3]
    updates = [step(name, Plan(data=DEVICES, micro_batch=8, zero_stage=z)).value("time_update") for z in (0, 1)]
    assert updates[1] < updates[0]


# --- Laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_design_alone_in_a_batch_and_in_a_product_has_the_same_bits(name: str) -> None:
    columns = some_plans(name, 7)
    base = chip("a100-sxm-80gb")
    bandwidths = base.hbm_stack_bandwidth * np.linspace(0.5, 2.0, 7)
    batch = step(name, of(columns), replace(base, hbm_stack_bandwidth=bandwidths))
    product = step(name, of(columns), replace(base, hbm_stack_bandwidth=bandwidths[:, None]))
    assert batch.shape == (7,) and product.shape == (7, 7)
    same_bits(batch, product, np.arange(7) * 8)
    for row in range(7):
        alone = step(
            name, Plan(**{key: int(column[row]) for key, column in columns.items()}),
            replace(base, hbm_stack_bandwidth=bandwidths[row].item()),
        )  # fmt: skip
        same_bits(alone, batch, slice(row, row + 1))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_front_of_a_sweep_has_the_bits_of_its_designs(name: str) -> None:
    goals = Goals((Objective("throughput", "maximize", "token/s"), Objective("memory", "minimize", "B")))
    given, table = workload(name), plans(name)
    base, boxes, software = chip("a100-sxm-80gb"), cluster("dgx-a100", DEVICES), stack("generic")

    def design(part: Any, plan: Plan) -> Design:
        chips = replace(base, hbm_stack_bandwidth=base.hbm_stack_bandwidth * SPREAD[part, None])
        return Design(chips, boxes, plan, given, software)

    outcomes = sweep(design, 3, table, goals)
    for outcome, factor in zip(outcomes, SPREAD, strict=True):
        assert outcome.evaluated == len(table) and len(outcome.front) > 0
        model = replace(base, hbm_stack_bandwidth=base.hbm_stack_bandwidth * factor)
        for point, numbers in zip(outcome.front, outcome.plans, strict=True):
            plan = Plan(**{key: int(number) for key, number in zip(table.columns, numbers, strict=True)})
            alone = evaluate(Design(model, boxes, plan, given, software))
            assert tuple(point) == (alone.value("throughput"), alone.value("memory"))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("field", ["hbm_stack_bandwidth", "clock", "vector_lanes", "shared_sram", "link_bandwidth"])
def test_more_of_a_chip_is_never_slower(name: str, field: str) -> None:
    base = chip("a100-sxm-80gb")
    columns = some_plans(name, 97, seed=5)
    grown = replace(base, **{field: getattr(base, field) * np.array([[1.0], [1.25], [4.0]])})
    times = step(name, of(columns), grown, software="ideal").column("step_time").reshape(3, -1)
    assert np.all(times[1:] <= times[:-1] * (1 + 1e-12))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_device_exchanges_nothing_and_waits_for_nobody(name: str) -> None:
    alone = Cluster(1, (Tier(8), Tier(8, bandwidth=1e9)))

    def priced(plan: Plan) -> Result:
        return evaluate(Design(chip("a100-sxm-80gb"), alone, plan, workload(name), stack("ideal")))

    result = priced(Plan(tensor=1, pipeline=1, data=1, expert=1, micro_batch=8))
    for part in ("tensor", "pipeline", "data", "expert", "context"):
        assert result.value(f"communication_{part}") == 0.0, part
    for part in ("tensor", "data", "expert", "context", "shard"):
        assert result.value(f"time_{part}") == 0.0, part
    assert result.value("time_bubble") <= 1e-12 * result.value("step_time")
    same_bits(result, priced(Plan(micro_batch=8)))


def test_a_graph_of_positions_that_no_chip_likes_is_still_a_number() -> None:
    """Three channels, sizes that divide nothing, and more ranks than channels: slower, not an error."""

    def build(sequence: int) -> Graph:
        graph = Graph("odd")
        value = graph.add(Conv(3, (3, 5), padding=(1, 2)), graph.input((3, 7, 11)))
        graph.add(CrossEntropy(), graph.add(GlobalPool(), graph.add(Activation("relu"), value)))
        return graph

    odd = Workload(GraphNetwork("odd", build), 1, 8)
    design = Design(chip("a100-sxm-80gb"), cluster("dgx-a100", DEVICES), Plan(tensor=8), odd, stack("generic"))
    result = evaluate(design)
    assert np.isfinite(result.value("step_time")) and result.value("step_time") > 0
