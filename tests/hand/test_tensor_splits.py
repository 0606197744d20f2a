"""What a tensor degree may divide, and what a rank holds where a dimension does not divide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.exploration.plans import PlanSpace, enumerate_plans
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers import Conv, CrossEntropy, FeedForward, GlobalPool, Linear, MultiHeadAttention
from workloads.lowering import classes
from workloads.network import Workload
from workloads.operators import Block
from workloads.plan import Plan
from workloads.published import network
from workloads.splits import Indivisible, indivisible

#: 24 query heads, which 6 and 12 divide, share 8 heads of keys and values, which they do not.
GROUPED = replace(network("llama3-8b"), hidden=3072, heads=24, kv_heads=8, head_dim=128, ffn=12288)


def violations(net: object, tensor: int) -> dict[str, float]:
    plan = Plan(tensor=tensor)
    design = Design(chip("a100-sxm-80gb"), cluster("dgx-a100", tensor), plan, Workload(net, 64, 8), stack("ideal"))  # type: ignore[arg-type]
    found = evaluate(design).violations
    return {name: np.asarray(value).item() for name, value in found.items() if name.endswith("% tensor")}


@pytest.mark.parametrize(("tensor", "left"), [(1, 0), (2, 0), (4, 0), (8, 0), (6, 2), (12, 4), (24, 0)])
def test_heads_of_keys_are_divided_or_copied_evenly(tensor: int, left: int) -> None:
    """8 heads on 6 ranks leave 2; on 12 ranks 4 ranks would hold a copy more; on 24 each has three copies."""
    assert violations(GROUPED, tensor) == {"heads % tensor": 0, "ffn % tensor": 0, "kv_heads % tensor": left}


def test_plans_never_cut_a_head_of_keys() -> None:
    table = enumerate_plans(Workload(GROUPED, 64, 24), 24, PlanSpace(pipeline=(1,), context=(1,)))
    assert set(np.unique(table.columns["tensor"]).astype(int)) == {1, 2, 4, 8, 24}


def test_a_graph_of_ones_own_has_the_rules_of_its_attention() -> None:
    def build(sequence: int) -> Graph:
        graph = Graph("own")
        x = graph.add(Linear(48), graph.input((sequence, 8)))
        graph.add(CrossEntropy(), graph.add(MultiHeadAttention(6, kv_heads=3), x))
        return graph

    net = GraphNetwork("own", build, 8, "sequence")
    assert indivisible(net, 8) == (Indivisible("heads", (6,)), Indivisible("kv_heads", (3,), copies=True))
    assert violations(net, 4) == {"heads % tensor": 2, "kv_heads % tensor": 1}


def test_multi_head_attention_has_one_rule() -> None:
    assert [rule.name for rule in indivisible(network("gpt3-175b"), 8)] == ["heads", "ffn"]


# Whole pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", [2, 3, 4, 5, 7, 8])
def test_a_rank_holds_whole_rows_of_the_vocabulary(tensor: int) -> None:
    """GPT-2: 50257 rows of 768 on 2 ranks are 25129, not 25128.5."""
    first, _, last = network("gpt2-small").blocks(64)
    rows = -(-50257 // tensor)
    positions, norm = 1024 * 768, 2 * 768
    assert first.dense_parameters(tensor) == rows * 768 + positions
    assert last.dense_parameters(tensor) == rows * 768 + norm
    assert last.shared_on_device(tensor) == rows * 768
    assert last.matmuls[-1].shard(tensor, 1)[1] == rows


def layer(*operators: object, shape: tuple[int, ...] = (5, 16)) -> Block:
    graph = Graph("one")
    x = graph.input(shape)
    with graph.cell("layer"):
        for operator in operators:
            x = graph.add(operator, x)  # type: ignore[arg-type]
    with graph.cell("loss"):
        graph.add(CrossEntropy(), x)
    return classes(graph).body[0]


@pytest.mark.parametrize(
    ("block", "held"),
    [
        # inner columns of an MLP: 4 of 10, with a row and a column of 16 and a bias each; the outer bias is copied
        (layer(FeedForward(10)), 4 * (16 + 16 + 1) + 16),
        # output columns of a linear layer with their biases
        (layer(Linear(7)), 3 * (16 + 1)),
        # output channels of a convolution, then input channels of the next, whose bias is copied
        (layer(Conv(10, 3, padding=1), Conv(5, 1), GlobalPool(), shape=(2, 8, 8)), 4 * (18 + 1) + 4 * 5 + 5),
    ],
)
def test_a_rank_holds_whole_columns_and_channels(block: Block, held: int) -> None:
    assert block.dense_parameters(3) == held


@pytest.mark.parametrize("name", ["gpt3-175b", "mixtral-8x7b", "deepseek-v3", "bert-large", "resnet50"])
def test_degrees_that_divide_hold_equal_parts(name: str) -> None:
    net = network(name)
    for block in net.blocks(64):
        for tensor in (1, 2, 4):
            if all(pieces % tensor == 0 for pieces, _ in block.pieces):
                split = block.parameters_split + block.parameters_grouped
                whole = block.parameters - split - block.parameters_expert
                assert block.dense_parameters(tensor) == whole + split / tensor
