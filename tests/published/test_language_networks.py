"""Networks of sequences, speech and patches: counts of frameworks from the committed table, and laws."""

from __future__ import annotations

import csv
from functools import partial
from importlib.resources import files

import pytest

from workloads.networks import GRAPHS, language, long_context, patches, recommendation, speech
from workloads.networks.language import bert
from workloads.operators import Block
from workloads.published import network

FAMILIES = (language, long_context, patches, speech)
NETWORKS = {one.name: one for family in FAMILIES for one in family.NETWORKS}
COUNTED = {**NETWORKS, **{one.name: one for one in recommendation.NETWORKS}}
SLOW = {"mamba2-780m", "mamba2-1.3b", "mamba2-2.7b"}


def counts() -> dict[str, dict[str, str]]:
    text = (files("workloads") / "data" / "graph_counts.csv").read_text(encoding="utf-8")
    return {row["name"]: row for row in csv.DictReader(text.splitlines()) if row["name"] in COUNTED}


def body(name: str) -> Block:
    return NETWORKS[name].blocks(NETWORKS[name].sequence)[1]


@pytest.mark.parametrize("name", sorted(counts()))
def test_parameters_and_multiply_adds_are_those_of_the_framework(name):
    row, graph = counts()[name], COUNTED[name].graph()
    tolerance = float(row["tolerance"] or 0)
    assert abs(graph.parameters - int(row["parameters"])) <= tolerance * int(row["parameters"])
    if row["macs"]:
        assert abs(graph.macs - int(row["macs"])) <= tolerance * int(row["macs"])
    assert tolerance == 0 or row["reason"]


def test_every_network_of_these_families_has_a_framework_or_printed_count():
    assert set(NETWORKS) <= set(counts())


def test_every_name_is_in_the_registry():
    assert set(NETWORKS) <= set(GRAPHS)


def test_bert_base_by_hand():
    graph = partial(bert, layers=12, hidden=768, heads=12, predicted=4)(16)
    h, v = 768, 30522
    embedding = (v + 512 + 2) * h + 2 * h
    layer = 4 * (h * h + h) + 8 * h * h + 5 * h + 4 * h
    heads = (h * h + h + 2 * h + v) + (h * h + h) + (2 * h + 2)
    assert graph.parameters == embedding + 12 * layer + heads
    macs = 12 * (16 * 12 * h * h + 2 * 16 * 16 * h) + 4 * h * h + 4 * h * v + h * h + 2 * h
    assert graph.macs == macs


def test_bert_predicts_twenty_words_of_each_128_tokens():
    short, long = (NETWORKS["bert-base"].graph(sequence) for sequence in (128, 512))
    picked = [next(node for node in graph.nodes if node.name == "masked positions") for graph in (short, long)]
    assert [node.counts.result[0] for node in picked] == [20, 80]


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - SLOW))
def test_cells_hold_all_parameters_and_products(name):
    """Whether they are layers with counts or one body of cells."""
    graph, blocks = NETWORKS[name].graph(), NETWORKS[name].blocks(NETWORKS[name].sequence)
    assert sum(one.count * (one.parameters - one.shared_parameters) for one in blocks) == graph.parameters
    assert sum(one.count * one.flops for one in blocks) == graph.flops
    for one in blocks:
        assert one.parameters_split + one.parameters_grouped <= one.parameters
        if one.cells:
            assert sum(cell.parameters for cell in one.cells) == one.parameters
            assert sum(cell.flops for cell in one.cells) == one.flops


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - SLOW))
def test_training_costs_three_forward_passes_less_the_gradient_of_the_data(name):
    """Only the first products that read data have no input gradient: none where words are looked up first."""
    layers, graph = body(name), NETWORKS[name].graph()
    missing = 3 * layers.flops - layers.training_flops
    data = {number for number, node in enumerate(graph.nodes) if node.is_data}
    first = 0
    for node in graph.nodes:
        if node.is_data or not set(node.inputs) <= data:
            continue
        outer = len(node.counts.products) - node.counts.inner
        first += sum(product.flops for product in node.counts.products[:outer])
    # keys and values of a frozen text encoder's words
    frozen = sum(
        product.flops
        for node in graph.nodes
        for product in node.counts.products
        if not product.input_gradient and not set(node.inputs) <= data
    )
    assert missing == first + frozen
    assert (missing > 0) == (
        name in {"jasper-10x5", "quartznet-15x5", "rnn-t", "vit-b16", "vit-l16", "stable-diffusion-1"}
    )


def test_a_longer_sequence_costs_more_than_in_proportion_where_attention_is_and_in_proportion_where_steps_are():
    bert_ = NETWORKS["bert-large"]
    assert bert_.graph(512).flops > 4 * bert_.graph(128).flops
    assert NETWORKS["jasper-10x5"].graph(1600).flops == 2 * NETWORKS["jasper-10x5"].graph(800).flops


def test_eight_layers_of_gnmt_are_four_more_in_encoder_and_decoder():
    four, eight = NETWORKS["gnmt-4"].graph(), NETWORKS["gnmt-8"].graph()
    encoder = 4 * 1024 * (1024 + 1024 + 2)
    decoder = 4 * 1024 * (2048 + 1024 + 2)
    assert eight.parameters - four.parameters == 4 * (encoder + decoder)


def test_gnmt_runs_a_product_a_step():
    steps = {matmul.steps for matmul in body("gnmt-4").matmuls if matmul.name == "recurrent gates"}
    assert steps == {32}


def test_the_decoder_transformers_of_wham_are_in_the_other_table():
    for name in ("opt-1.3b", "gpt2-xl", "gpt3-175b"):
        assert network(name).layers


def test_a_tensor_split_of_bert_divides_all_large_matrices():
    blocks = NETWORKS["bert-large"].blocks(512)
    copied = sum(one.count * (one.parameters - one.parameters_split - one.parameters_grouped) for one in blocks)
    # norms, position and type tables, output biases and the first-token head's small matrix
    assert copied < 0.005 * NETWORKS["bert-large"].graph(512).parameters
