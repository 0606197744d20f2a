"""Operators of sequences: attention, feed-forward, recurrent layers, state space, experts.  Hand counts and laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workloads.graph import Graph
from workloads.layers.attention import (
    AdditiveAttention,
    FeedForward,
    Gather,
    LatentAttention,
    MultiHeadAttention,
    Residual,
)
from workloads.layers.dense import Linear
from workloads.layers.embedding import AdaptiveEmbedding, AdaptiveSoftmax, Bias, Embedding, Positions
from workloads.layers.experts import MixtureOfExperts
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.recurrent import GRU, LSTM, AlignmentLoss, StackTime, TransducerJoint
from workloads.layers.state_space import StateSpace
from workloads.lowering import lower
from workloads.transformer import DecoderTransformer


def decoder_layer(sequence: int, hidden: int, attention, mlp, *, dropout: bool = True, kind: str = "layer"):
    """One pre-norm layer as a graph, between an embedding and a loss."""
    graph = Graph("one layer")
    x = graph.add(Embedding(7, hidden), graph.input((sequence,)))
    with graph.cell("layer"):
        for operator in (attention, mlp):
            y = graph.add(operator, graph.add(LayerNorm(kind=kind), x))
            x = graph.add(Residual(dropout), x, y)
    graph.add(CrossEntropy(), x)
    return graph


def products(graph: Graph) -> int:
    return sum(node.counts.flops for node in graph.nodes if node.cell == "layer")


def test_a_gpt2_layer_of_operators_counts_what_the_decoder_transformer_counts():
    s, h = 37, 48
    net = DecoderTransformer("small", layers=1, hidden=h, heads=6, ffn=192, vocabulary=7, max_sequence=s)
    block = next(block for block in net.blocks(s) if block.place == "body")
    graph = decoder_layer(s, h, MultiHeadAttention(6, causal=True), FeedForward(192))
    body = lower(graph)[1]
    assert products(graph) == block.flops
    assert graph.parameters - 7 * h == block.parameters
    assert (body.parameters_split, body.parameters_grouped) == (block.parameters_split, block.parameters_grouped)
    assert body.attentions == block.attentions
    assert replace(body, name=block.name) == block


def test_a_grouped_gated_layer_counts_what_the_decoder_transformer_counts():
    s, h = 29, 64
    net = DecoderTransformer(
        "small", layers=1, hidden=h, heads=8, kv_heads=2, head_dim=16, ffn=88, gated=True, vocabulary=7,
        positions="rotary", norm="rmsnorm", biases="none", dropout=False, qk_norm=True,
    )  # fmt: skip
    block = next(block for block in net.blocks(s) if block.place == "body")
    attention = MultiHeadAttention(
        8, 16, kv_heads=2, biases="none", causal=True, rotary=True, qk_norm=True, dropout=False
    )
    mlp = FeedForward(88, "silu", gated=True, bias=False)
    graph = decoder_layer(s, h, attention, mlp, dropout=False, kind="rms")
    body = lower(graph)[1]
    assert products(graph) == block.flops
    assert graph.parameters - 7 * h == block.parameters
    assert block.saved.core == 2 * 8 * s * s
    assert replace(body, name=block.name) == block


def test_latent_attention_counts_what_the_decoder_transformer_counts():
    s, h = 23, 80
    net = DecoderTransformer(
        "small", layers=1, hidden=h, heads=4, head_dim=12, ffn=64, vocabulary=7, positions="rotary", norm="rmsnorm",
        biases="none", dropout=False, key_value_rank=20, query_rank=28, rotary_dim=8, value_dim=16,
    )  # fmt: skip
    block = next(block for block in net.blocks(s) if block.place == "body")
    attention = LatentAttention(4, 12, 20, 28, 8, 16)
    graph = decoder_layer(s, h, attention, FeedForward(64, bias=False), dropout=False, kind="rms")
    assert products(graph) == block.flops
    assert graph.parameters - 7 * h == block.parameters
    assert lower(graph)[1].attentions == block.attentions


def test_experts_count_what_the_decoder_transformer_counts():
    s, h = 31, 40
    net = DecoderTransformer(
        "small", layers=1, hidden=h, heads=4, ffn=64, vocabulary=7, gated=True, norm="rmsnorm", biases="none",
        dropout=False, experts=6, experts_per_token=2, expert_ffn=24, shared_ffn=56,
    )  # fmt: skip
    block = next(block for block in net.blocks(s) if block.place == "body")
    attention = MultiHeadAttention(4, biases="none", causal=True, dropout=False)
    graph = decoder_layer(s, h, attention, MixtureOfExperts(6, 2, 24, shared=56), dropout=False, kind="rms")
    assert products(graph) == block.flops
    assert graph.parameters - 7 * h == block.parameters
    assert sum(matmul.experts for matmul in lower(graph)[1].matmuls) == 2 * 6


def test_cross_attention_reads_queries_of_one_input_and_keys_of_the_other():
    counts = MultiHeadAttention(2, 4, biases="none").counts((5, 10), (7, 6))
    assert counts.result == (5, 10)
    # W_q 10 x 8, W_k and W_v 6 x 16, W_o 8 x 10
    assert counts.parameters == 80 + 96 + 80
    macs = 5 * 8 * 10 + 7 * 16 * 6 + 2 * 5 * 7 * 4 * 2 + 5 * 10 * 8
    assert counts.flops == 2 * macs


def test_a_frozen_context_gets_no_gradient():
    graph = Graph()
    text = graph.input((7, 6))
    x = graph.add(Embedding(3, 8), graph.input((5,)))
    graph.add(CrossEntropy(), graph.add(MultiHeadAttention(2, biases="none", context_is_data=True), x, text))
    body = lower(graph)[1]
    key_value = 2 * 7 * 16 * 6
    assert body.training_flops == 3 * body.flops - key_value


def test_a_window_limits_the_keys_a_query_sees_and_a_wide_one_changes_nothing():
    whole = MultiHeadAttention(2, causal=True).counts((64, 16))
    assert MultiHeadAttention(2, causal=True, window=99).counts((64, 16)).flops == whole.flops
    windowed = MultiHeadAttention(2, causal=True, window=16).counts((64, 16))
    assert whole.flops - windowed.flops == 2 * 2 * 64 * (64 - 16) * (8 + 8)


def test_relative_attention_with_memory_by_hand():
    counts = MultiHeadAttention(2, biases="none", causal=True, memory=5, relative=True, relative_biases=True).counts(
        (5, 8)
    )
    # q, k, v, positions and output: 5 of 8 x 8, and two vectors of 8
    assert counts.parameters == 5 * 64 + 16
    macs = 10 * 24 * 8 + 2 * 2 * 5 * 10 * 4 + 2 * 5 * 10 * 4 + 5 * 8 * 8
    assert counts.flops == 2 * macs
    assert counts.attention is None


@pytest.mark.parametrize(
    ("layer", "width", "parameters"),
    [
        # torch.nn.LSTM(10, 20): 4 x 20 x (10 + 20 + 2)
        (LSTM(20), 20, 2560),
        (LSTM(20, bidirectional=True), 40, 5120),
        # torch.nn.LSTM(10, 20, proj_size=5): 80 x (10 + 5 + 2) + 5 x 20
        (LSTM(20, projection=5), 5, 1460),
        (GRU(20), 20, 1920),
    ],
)  # fmt: skip
def test_recurrent_layers_have_the_parameters_of_torch(layer, width, parameters):
    counts = layer.counts((7, 10))
    assert counts.parameters == parameters
    assert counts.result == (7, width)


def test_an_lstm_meets_every_weight_once_a_step():
    counts = LSTM(20, projection=5).counts((7, 10))
    assert counts.flops == 2 * 7 * (80 * 15 + 100)
    assert [product.steps for product in counts.products] == [1, 7, 7]


def test_two_directions_cost_two_layers():
    one, two = LSTM(12).counts((9, 16)), LSTM(12, bidirectional=True).counts((9, 16))
    assert two.flops == 2 * one.flops
    assert two.parameters == 2 * one.parameters
    assert two.kept_bytes == 2 * one.kept_bytes


def test_the_recurrent_product_of_a_first_layer_has_an_input_gradient_and_the_input_product_has_none():
    graph = Graph()
    graph.add(CrossEntropy(), graph.add(LSTM(12), graph.input((9, 16))))
    body = lower(graph)[1]
    assert body.training_flops == 3 * body.flops - 2 * 9 * 48 * 16


def test_additive_attention_by_hand():
    counts = AdditiveAttention(8).counts((3, 4), (5, 6))
    # W_q 4 x 8, W_k 6 x 8, v, bias, scale
    assert counts.parameters == 32 + 48 + 8 + 8 + 1
    assert counts.flops == 2 * (3 * 8 * 4 + 5 * 8 * 6 + 3 * 6 * 5)
    assert counts.result == (3, 6)


def test_a_transducer_meets_every_step_with_every_label():
    joint = TransducerJoint().counts((11, 8), (5, 8))
    assert joint.result == (55, 8)
    loss = AlignmentLoss(4, "transducer").counts((55, 29))
    assert all(one.loss for one in loss.passes)
    assert loss.result == (11 + 4,)


def test_ctc_walks_a_lattice_of_twice_its_labels_and_one():
    loss = AlignmentLoss(4).counts((11, 29))
    assert [one.elements for one in loss.passes] == [11 * 29, 11 * 9]


def test_stacked_time_keeps_the_elements_but_for_padding():
    assert StackTime(2).counts((7, 10)).result == (4, 20)


def test_a_state_space_layer_by_hand():
    counts = StateSpace(state=4, head_dim=3, groups=1, chunk=5).counts((10, 6))
    # inner 12, 4 heads, made 2 x 12 + 2 x 4 + 4; convolution of 20 columns, 4 taps and bias
    assert counts.parameters == 6 * 36 + 20 * 5 + 3 * 4 + 12 + 12 * 6
    scan = 2 * (5 * 5 * 4) + 8 * (5 * 3 * 5 + 4 * 3 * 5 + 5 * 3 * 4)
    assert counts.flops == 2 * (10 * 36 * 6 + scan + 10 * 6 * 12)


def test_a_scan_grows_with_tokens_while_attention_grows_with_their_square():
    scan, attention = StateSpace(chunk=64), MultiHeadAttention(4)
    assert scan.counts((512, 64)).flops * 2 == scan.counts((1024, 64)).flops
    assert attention.counts((1024, 64)).flops > 2 * attention.counts((512, 64)).flops


def test_a_tied_head_counts_its_table_once_and_its_product_in_full():
    def build(tied: bool) -> Graph:
        graph = Graph()
        words = graph.add(Embedding(50, 8), graph.input((6,)))
        head = graph.add(Linear(50, bias=False), words, shares=words if tied else None)
        graph.add(CrossEntropy(), graph.add(Bias(), head))
        return graph

    assert build(True).parameters == 50 * 8 + 50
    assert build(False).parameters == 2 * 50 * 8 + 50
    assert build(True).flops == build(False).flops == 2 * 6 * 50 * 8


def test_an_adaptive_vocabulary_computes_tails_for_their_tokens_alone():
    softmax = AdaptiveSoftmax(100, (10, 40), (0.25, 0.0)).counts((8, 16))
    assert softmax.flops == 2 * (8 * 12 * 16 + 2 * 30 * 16)
    # biases of all words and tails, and the tails' rows in the head
    assert softmax.parameters == 100 + 2 * 17
    narrow = AdaptiveEmbedding(100, 16, (10, 40), (0.25, 0.25), divide=4).counts((8,))
    assert narrow.parameters == 10 * 16 + 30 * 4 + 60 * 1 + 16 * (16 + 4 + 1)
    assert narrow.flops == 2 * 16 * (4 * 16 + 2 * 4 + 2 * 1)


SPLIT = [
    (MultiHeadAttention(8, kv_heads=8), (12, 64)),
    (FeedForward(96, gated=True), (12, 64)),
    (LSTM(32), (12, 64)),
    (LatentAttention(8, 8, 16), (12, 64)),
]


@pytest.mark.parametrize(("operator", "shape"), SPLIT, ids=[type(one).__name__ for one, _ in SPLIT])
@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_a_tensor_split_conserves_the_products(operator, shape, tensor):
    for product in operator.counts(shape).products:
        whole = np.prod(product.shard(1, 1))
        part = np.prod(product.shard(tensor, 1))
        assert part * tensor == whole


@pytest.mark.parametrize(
    "operator",
    [
        MultiHeadAttention(4),
        FeedForward(24),
        LSTM(12),
        GRU(12),
        StateSpace(state=8, head_dim=4),
        LayerNorm(),
        Gather(6),
    ],
    ids=lambda one: type(one).__name__,
)
def test_training_costs_three_forward_passes_behind_a_trained_layer(operator):
    graph = Graph()
    x = graph.add(Embedding(7, 16), graph.input((6,)))
    graph.add(CrossEntropy(), graph.add(operator, x))
    body = lower(graph)[1]
    assert body.training_flops == 3 * body.flops


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadAttention(0), "heads: found 0"),
        (lambda: MultiHeadAttention(6, kv_heads=4), "heads % kv_heads: 6 % 4 != 0"),
        (lambda: MultiHeadAttention(3).counts((5, 16)), "hidden % heads: 16 % 3 != 0"),
        (lambda: MultiHeadAttention(4, biases="some"), "biases: found 'some'"),
        (lambda: FeedForward(True), "inner: found True"),
        (lambda: FeedForward(8, "swish"), "activation: found 'swish'"),
        (lambda: LSTM(0), "hidden: found 0"),
        (lambda: LSTM(8).counts((5,)), "input: found shape (5,)"),
        (lambda: LSTM(8, bidirectional=2), "bidirectional: found 2"),
        (lambda: MultiHeadAttention(2, relative=True).counts((5, 8), (5, 8)), "allowed: 1 with memory or relative"),
        (lambda: MultiHeadAttention(2).counts((5, 8), (5,)), "input: found shape (5,)"),
        (lambda: MultiHeadAttention(2).counts(), "inputs: found 0"),
        (lambda: Positions(9).counts((10, 4)), "found 10 tokens, allowed: at most 9"),
        (lambda: MixtureOfExperts(2, 1, 8, capacity_factor=float("inf")), "capacity_factor: found inf"),
        (lambda: MixtureOfExperts(2, 3, 8), "chosen: found 3"),
        (lambda: StateSpace(head_dim=7).counts((5, 16)), "% head_dim: 32 % 7 != 0"),
        (lambda: Gather(9).counts((5, 16)), "rows: found 9, allowed: at most 5"),
        (lambda: AlignmentLoss(3, "rnnt"), "kind: found 'rnnt'"),
        (lambda: Embedding(0, -1), "rows: found 0"),
        (lambda: AdaptiveSoftmax(10, (5, 5), (0.1, 0.1)), "cutoffs: found (5, 5)"),
        (lambda: Residual().counts((5, 16), (5, 8)), "allowed: two equal ones"),
    ],
)  # fmt: skip
def test_a_bad_size_is_an_error_that_names_the_field(make, message):
    with pytest.raises(ValueError) as caught:
        make()
    assert message in str(caught.value)


def test_positions_and_biases_are_trained_but_cost_no_product():
    counts = Positions(9).counts((9, 4))
    assert (counts.parameters, counts.flops) == (36, 0)
    assert replace(Embedding(9, 4)).counts((3,)).flops == 0
