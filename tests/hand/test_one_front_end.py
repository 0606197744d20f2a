"""One front end: a transformer as `DecoderTransformer` and as a graph of the product's own layers is one network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.cuts import cell_cost, cut_chain
from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers import (
    Add,
    Conv,
    CrossEntropy,
    Dropout,
    Embedding,
    FeedForward,
    GlobalPool,
    LayerNorm,
    Linear,
    MixtureOfExperts,
    MultiHeadAttention,
    Positions,
    Residual,
)
from workloads.lowering import classes, lower
from workloads.network import Network, Workload, chain_of, classes_of
from workloads.operators import Block
from workloads.plan import Plan
from workloads.published import network, published
from workloads.transformer import DecoderTransformer

GPT = DecoderTransformer("gpt-1.4b", 24, 2048, 16, 8192, 51200, max_sequence=2048)
BERT = DecoderTransformer("bert-large", 24, 1024, 16, 4096, 30528, max_sequence=512, causal=False)
MIXTRAL = network("mixtral-8x7b")


def half(graph: Graph, x: Value, operator: object, norm: LayerNorm, *, dropout: bool) -> Value:
    """Norm, operator, sum."""
    return graph.add(Residual(dropout), x, graph.add(operator, graph.add(norm, x)))  # type: ignore[arg-type]


def plain(net: DecoderTransformer, *, named: bool = True) -> Callable[[int], Graph]:
    """GPT or BERT with norms before, written by hand; not named: embedding and head belong to no cell."""

    def build(sequence: int) -> Graph:
        graph = Graph(net.name)
        attention, mlp = MultiHeadAttention(net.heads, causal=net.causal), FeedForward(net.ffn)

        def embedded() -> tuple[Value, Value]:
            words = graph.add(Embedding(net.vocabulary, net.hidden), graph.input((sequence,)))
            return words, graph.add(Dropout(0.1), graph.add(Positions(net.max_sequence), words))

        def finished(x: Value, words: Value) -> None:
            logits = graph.add(Linear(net.vocabulary, bias=False), graph.add(LayerNorm(), x), shares=words)
            graph.add(CrossEntropy(), logits)

        if named:
            with graph.cell("embedding"):
                words, x = embedded()
        else:
            words, x = embedded()
        for layer in range(net.layers):
            with graph.cell(f"layer {layer}"):
                x = half(graph, x, attention, LayerNorm(), dropout=True)
                x = half(graph, x, mlp, LayerNorm(), dropout=True)
        if named:
            with graph.cell("head"):
                finished(x, words)
        else:
            finished(x, words)
        return graph

    return build


def mixture(sequence: int) -> Graph:
    """Mixtral 8x7B: rms norms, grouped-query attention with rotation, eight experts of which a token meets two."""
    graph, rms = Graph("mixtral"), LayerNorm(kind="rms")
    attention = MultiHeadAttention(32, 128, kv_heads=8, biases="none", causal=True, rotary=True, dropout=False)
    with graph.cell("embedding"):
        x = graph.add(Embedding(32000, 4096), graph.input((sequence,)))
    for layer in range(32):
        with graph.cell(f"layer {layer}"):
            x = half(graph, x, attention, rms, dropout=False)
            x = half(graph, x, MixtureOfExperts(8, 2, 14336), rms, dropout=False)
    with graph.cell("head"):
        graph.add(CrossEntropy(), graph.add(Linear(32000, bias=False), graph.add(rms, x)))
    return graph


DOORS = {
    "gpt": (GPT, GraphNetwork("gpt-1.4b", plain(GPT), 2048, "sequence"), 2048),
    "gpt without names of its ends": (GPT, GraphNetwork("gpt-1.4b", plain(GPT, named=False), 2048, "sequence"), 2048),
    "bert": (BERT, GraphNetwork("bert-large", plain(BERT), 512, "sequence"), 512),
    "mixtral": (MIXTRAL, GraphNetwork("mixtral-8x7b", mixture, 4096, "sequence"), 4096),
}
PLANS = {
    "data": Plan(data=64),
    "pipeline": Plan(pipeline=8, data=8, recompute=2),
    "tensor": Plan(tensor=8, data=8, sequence_parallel=1),
    "experts": Plan(tensor=2, data=32, expert=8, zero_stage=1),
    "interleaved": Plan(pipeline=4, interleave=2, data=4, tensor=4),
}


def nameless(blocks: tuple[Block, ...]) -> list[Block]:
    return [replace(block, name="") for block in blocks]


@pytest.mark.parametrize("name", DOORS)
def test_both_doors_give_the_same_blocks(name: str) -> None:
    decoder, graph, sequence = DOORS[name]
    assert nameless(graph.blocks(sequence)) == nameless(decoder.blocks(sequence))
    assert [block.place for block in decoder.blocks(sequence)] == ["first", "body", "last"]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", DOORS)
def test_both_doors_give_every_metric_to_the_bit(name: str, plan: str) -> None:
    decoder, graph, sequence = DOORS[name]
    if plan == "experts" and name != "mixtral":
        pytest.skip("no experts")
    one, other = (
        evaluate(Design(chip("a100-sxm-80gb"), cluster("dgx-a100", 64), PLANS[plan], Workload(net, sequence, 512),
                        stack("megatron-lm")))  # fmt: skip
        for net in (decoder, graph)
    )
    assert one.metrics.keys() == other.metrics.keys() and one.violations.keys() >= other.violations.keys()
    for metric in one.metrics:
        assert np.array_equal(one.metrics[metric], other.metrics[metric], equal_nan=True), metric


@pytest.mark.parametrize("name", published())
def test_blocks_of_a_decoder_are_those_of_its_whole_graph(name: str) -> None:
    net, sequence = published()[name].network, 64
    assert lower(net.graph(sequence)) == net.blocks(sequence)


def test_a_sum_of_attention_and_mlp_is_reduced_once() -> None:
    body = network("palm-8b").blocks(64)[1]
    assert body.reductions == 1
    (residual,) = (one for one in body.vectors if one.name == "residual")
    assert (residual.reads, residual.writes) == (3, 1)  # input, attention and MLP in, their sum out


def test_one_byte_masks_do_not_widen() -> None:
    """GPT-3, fp32: 34 s h + 5 a s^2 bytes at two bytes an element, of which 2 s h + a s^2 are masks."""
    saved = network("gpt3-175b").blocks(2048)[1].saved
    s, h, a = 2048, 12288, 96
    assert (saved.sequence_fixed, saved.tensor_fixed, saved.core_fixed) == (2 * s * h, 0, a * s * s)
    total, fixed = saved.sequence + saved.tensor + saved.core, saved.sequence_fixed + saved.core_fixed
    assert 2 * (total - fixed) + fixed == 5_284_823_040


def test_an_mlp_with_inner_dropout_keeps_its_mask_in_bytes() -> None:
    counts = FeedForward(12, dropout=True).counts((5, 4))
    assert counts.kept_fixed == 5 * 12 and counts.kept_bytes == 2 * 5 * 24 + 5 * 12


# Classes and their order along the pipeline ---------------------------------------------------------------------------


def alternating(sequence: int) -> Graph:
    """Experts in every second layer."""
    graph = Graph("alternating")
    with graph.cell("embedding"):
        x = graph.add(Embedding(100, 16), graph.input((sequence,)))
    for layer in range(6):
        with graph.cell(f"layer {layer}"):
            x = half(graph, x, MultiHeadAttention(2), LayerNorm(), dropout=True)
            mlp = MixtureOfExperts(4, 2, 32) if layer % 2 else FeedForward(64)
            x = half(graph, x, mlp, LayerNorm(), dropout=True)
    with graph.cell("head"):
        graph.add(CrossEntropy(), graph.add(Linear(100), graph.add(LayerNorm(), x)))
    return graph


def test_layers_that_alternate_are_two_classes_in_runs_of_one() -> None:
    found = classes(alternating(8))
    assert [(one.name, one.place, one.count) for one in found.blocks] == [
        ("embedding", "first", 1), ("layer", "body", 3), ("layer", "body", 3), ("head", "last", 1),
    ]  # fmt: skip
    assert found.chain == ((0, 1), (1, 1)) * 3
    assert [one.expert_count for one in found.body] == [1, 4]


def test_a_chain_is_cut_where_its_costs_are_even() -> None:
    """A layer of experts costs more than a dense one: two stages of six layers, three each, or as costs say."""
    found = classes(alternating(8))
    assert cut_chain(found.body, found.chain, 2, by_cost=False) == (0, 3)
    (start, cut) = cut_chain(found.body, found.chain, 2, by_cost=True)
    costs = [cell_cost(found.body[number]) for number, run in found.chain for _ in range(run)]
    assert start == 0 and max(sum(costs[:cut]), sum(costs[cut:])) == min(
        max(sum(costs[:at]), sum(costs[at:])) for at in range(1, 6)
    )


def test_a_graph_without_tables_or_head_begins_with_data_and_ends_with_loss() -> None:
    graph = Graph("images")
    x = graph.input((3, 8, 8))
    for stage in range(2):
        for block in range(3):
            with graph.cell(f"stage {stage} block {block}"):
                x = graph.add(Conv(8, 3, padding=1), x)
                x = graph.add(Add(), x, graph.add(Conv(8, 1), x))
    with graph.cell("classifier"):
        x = graph.add(Linear(10), graph.add(GlobalPool(), x))
        graph.add(CrossEntropy(), x)
    found = classes(graph)
    assert (found.blocks[0].name, found.blocks[0].flops, found.blocks[-1].name) == ("data", 0, "classifier")
    assert sum(run for _, run in found.chain) == sum(one.count for one in found.body) == 6


@pytest.mark.parametrize("name", ["resnet50", "unet", "t5-base", "dlrm-small", "mamba2-130m", "vit-b16", "gnmt-4"])
def test_classes_hold_everything_once(name: str) -> None:
    net = network(name)
    graph, found = net.graph(), classes(net.graph())
    assert sum(one.count * one.flops for one in found.blocks) == graph.flops
    assert sum(one.count * (one.parameters - one.shared_parameters) for one in found.blocks) == graph.parameters
    held = [0] * len(found.body)
    for number, run in found.chain:
        held[number] += run
    assert held == [one.count for one in found.body]
    assert [one.place for one in found.blocks] == ["first", *["body"] * len(found.body), "last"]


def test_a_network_without_a_chain_has_its_classes_in_listed_order() -> None:
    net = network("deepseek-v3")
    assert chain_of(net, 64) == ((0, 3), (1, 58))
    assert classes_of(net, 64) == net.blocks(64)
    alternates = GraphNetwork("alternating", alternating, 8, "sequence")
    assert isinstance(alternates, Network)
    assert chain_of(alternates, 8) == ((0, 1), (1, 1)) * 3
    assert [one.count for one in classes_of(alternates, 8)] == [1, 3, 3, 1]


class Wrong:
    """A chain that does not hold what its classes count."""

    name = "wrong"

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        return network("gpt3-125m").blocks(sequence)

    def chain(self, sequence: int) -> tuple[tuple[int, int], ...]:
        return ((0, 5), (1, 2))

    def divisors(self) -> dict[str, int]:
        return {}


def test_a_chain_that_misses_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="network 'wrong': chain: found .*, allowed: .* 12"):
        chain_of(Wrong(), 8)
