"""The graph of a decoder transformer: embedding, layers of attention and MLP or experts, head."""

from __future__ import annotations

from typing import Literal

from workloads.decoder import BIASED, Decoder
from workloads.graph import Graph, Operator, Value
from workloads.layers.attention import FeedForward, LatentAttention, MultiHeadAttention, Residual
from workloads.layers.dense import Linear
from workloads.layers.embedding import Bias, Embedding, Positions
from workloads.layers.experts import MixtureOfExperts
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Dropout

#: The layer that norms, by the word of `Decoder.norm`.
NORM_LAYERS = {
    "layernorm": LayerNorm(),
    "layernorm_weight": LayerNorm(bias=False),
    "layernorm_plain": LayerNorm(bias=False, scale=False),
    "rmsnorm": LayerNorm(kind="rms"),
}


def decoder_graph(net: Decoder, sequence: int) -> Graph:
    """Operators of `net` for a sample of `sequence` tokens; a layer is a cell."""
    graph = Graph(net.name)
    attention, dense = _attention(net), FeedForward(net.ffn, _activation(net), net.gated, _biased(net, "mlp"))
    with graph.cell("embedding"):
        words = graph.add(Embedding(net.padded_vocabulary, net.embedding_dim or net.hidden),
                          graph.input((sequence,), "tokens"), name="words")  # fmt: skip
        x = _embedded(net, graph, words, sequence)
    for layer in range(net.layers):
        leads = layer < net.lead_layers
        with graph.cell(f"{'dense block' if leads else 'block'} {layer}"):
            x = _layer(net, graph, x, attention, _experts(net) if net.experts and not leads else dense)
    with graph.cell("head"):
        x = graph.add(NORM_LAYERS[net.norm], x, name="final norm") if net.final_norm else x
        if net.embedding_dim:
            x = graph.add(Linear(net.embedding_dim, bias=False, copied=True), x, name="head projection")
        logits = Linear(net.padded_vocabulary, bias=net.head_bias and not net.tied)
        x = graph.add(logits, x, name="logits", shares=words if net.tied else None)
        x = graph.add(Bias(), x) if net.head_bias and net.tied else x
        graph.add(CrossEntropy(), x, name="loss")
    return graph


def _biased(net: Decoder, linear: str) -> bool:
    """Whether the linear layer "qkv", "projection" or "mlp" has a bias."""
    return linear in BIASED[net.biases]


def _activation(net: Decoder) -> Literal["silu", "gelu"]:
    return "silu" if net.gated else "gelu"


def _embedded(net: Decoder, graph: Graph, words: Value, sequence: int) -> Value:
    """Rows of the table, widened, with positions, norm and dropout."""
    x = words
    if net.embedding_dim:
        x = graph.add(Linear(net.hidden, bias=False, copied=True), x, name="embedding projection")
    if net.positions == "learned":
        # of a sample longer than the table, tokens share rows
        x = graph.add(Positions(net.max_sequence, kinds=sequence > net.max_sequence), x, name="positions")
    x = graph.add(NORM_LAYERS[net.norm], x, name="embedding norm") if net.embedding_norm else x
    return graph.add(Dropout(0.1), x) if net.dropout else x


def _attention(net: Decoder) -> Operator:
    """Grouped-query attention (multi-head and multi-query are its ends), or latent attention."""
    if net.key_value_rank:
        return LatentAttention(
            net.heads, net.head_dim, net.key_value_rank, net.query_rank, net.rotary_dim, net.value_dim, net.causal,
            net.dropout,
        )  # fmt: skip
    qkv, projection = _biased(net, "qkv"), _biased(net, "projection")
    return MultiHeadAttention(
        net.heads, net.head_dim, kv_heads=net.kv_heads,
        biases="all" if qkv and projection else "qkv" if qkv else "projection" if projection else "none",
        causal=net.causal, rotary=net.positions == "rotary", rotary_dim=net.rotary_dim, qk_norm=net.qk_norm,
        qk_norm_weights=NORM_LAYERS[net.norm].weights, qk_norm_whole=net.qk_norm_whole,
        sinks=net.sinks, dropout=net.dropout,
    )  # fmt: skip


def _experts(net: Decoder) -> Operator:
    return MixtureOfExperts(
        net.experts, net.experts_per_token, net.expert_ffn, net.gated, _biased(net, "mlp"), net.shared_ffn,
        net.capacity_factor, net.shared_gate,
    )  # fmt: skip


def _layer(net: Decoder, graph: Graph, x: Value, attention: Operator, mlp: Operator) -> Value:
    """A layer of `norms` norms: before attention, before the MLP, then behind each of them."""
    norm, dropout = NORM_LAYERS[net.norm], net.dropout
    before, behind = _norms(net)

    def half(operator: Operator, source: Value, *, norms: int) -> Value:
        y = graph.add(operator, source)
        for _ in range(norms):
            y = graph.add(norm, y)
        return y

    y = graph.add(norm, x) if before[0] else x
    if net.parallel_block:
        z = graph.add(norm, x) if before[1] else y
        return graph.add(Residual(dropout), x, half(attention, y, norms=behind[0]), half(mlp, z, norms=behind[1]))
    x = graph.add(Residual(dropout), x, half(attention, y, norms=behind[0]))
    y = graph.add(norm, x) if before[1] else x
    return graph.add(Residual(dropout), x, half(mlp, y, norms=behind[1]))


def _norms(net: Decoder) -> tuple[tuple[bool, bool], tuple[int, int]]:
    """Whether a norm is before attention and before the MLP, and how many are behind each."""
    number = net.norms or (1 if net.parallel_block else 2)
    rest = max(number - 2, 0)
    return (number > 0, number > 1), (rest - rest // 2, rest // 2)
