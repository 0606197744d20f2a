"""Encoders, translators and their relatives as graphs; decoder transformers are rows of `data/networks.csv`.

A sample is a sequence, or a pair of sequences of the same length.  Sources are at each network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.attention import AdditiveAttention, FeedForward, Gather, MultiHeadAttention, Residual
from workloads.layers.dense import Linear
from workloads.layers.embedding import Bias, Embedding, Positions
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Activation, Add, Concat, Dropout
from workloads.layers.recurrent import LSTM

__all__ = ["NETWORKS"]


def post_norm(graph: Graph, x: Value, operator: MultiHeadAttention | FeedForward, *others: Value) -> Value:
    """Half a layer whose norm follows its sum (Vaswani et al. 2017)."""
    y = graph.add(operator, x, *others)
    return graph.add(LayerNorm(), graph.add(Residual(), x, y))


def pre_norm(
    graph: Graph, x: Value, operator: MultiHeadAttention | FeedForward, *others: Value, norm: LayerNorm | None = None,
    dropout: bool = True,
) -> Value:  # fmt: skip
    """Half a layer whose norm comes before."""
    y = graph.add(operator, graph.add(norm or LayerNorm(), x), *others)
    return graph.add(Residual(dropout), x, y)


# BERT ------------------------------------------------------------------------------------------------------------


def bert(
    sequence: int, *, layers: int, hidden: int, heads: int, vocabulary: int = 30522, positions: int = 512,
    predicted: int = 0,
) -> Graph:  # fmt: skip
    """BERT with both pre-training heads (masked words, next sentence).

    predicted   positions whose words are predicted; 0: 20 of each 128 tokens, as the released pre-training data holds
    """
    graph = Graph("bert")
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "words"), name="words")
        x = graph.add(Positions(2, kinds=True), graph.add(Positions(positions), words), name="sentence types")
        x = graph.add(Dropout(0.1), graph.add(LayerNorm(), x))
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            x = post_norm(graph, x, MultiHeadAttention(heads))
            x = post_norm(graph, x, FeedForward(4 * hidden))
    with graph.cell("heads"):
        y = graph.add(Gather(predicted or -(-sequence * 20 // 128)), x, name="masked positions")
        y = graph.add(LayerNorm(), graph.add(Activation("gelu"), graph.add(Linear(hidden), y)))
        y = graph.add(Bias(), graph.add(Linear(vocabulary, bias=False), y, name="words predicted", shares=words))
        graph.add(CrossEntropy(), y)
        z = graph.add(Linear(hidden), graph.add(Gather(1), x, name="first token"), name="pooler")
        graph.add(CrossEntropy(), graph.add(Linear(2), graph.add(Activation("tanh"), z), name="next sentence"))
    return graph


# Encoder-decoder transformers ------------------------------------------------------------------------------------


def transformer(sequence: int, *, layers: int, hidden: int, heads: int, vocabulary: int, pre: bool = False) -> Graph:
    """The first transformer: encoder and decoder of `layers` each, one table for both and the head, fixed positions.

    pre   norms before (the variant that translation recipes train), with one more after each stack
    """
    graph = Graph("transformer")
    half = pre_norm if pre else post_norm
    attention, mlp = MultiHeadAttention(heads), FeedForward(4 * hidden, "relu", dropout=True)
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "source"), name="words")
        x = graph.add(Dropout(0.1), words)
    for layer in range(layers):
        with graph.cell(f"encoder {layer}"):
            x = half(graph, half(graph, x, attention), mlp)
    with graph.cell("decoder embedding"):
        x = graph.add(LayerNorm(), x) if pre else x
        target = graph.input((sequence,), "target")
        y = graph.add(Dropout(0.1), graph.add(Embedding(vocabulary, hidden), target, shares=words))
    masked = MultiHeadAttention(heads, causal=True)
    for layer in range(layers):
        with graph.cell(f"decoder {layer}"):
            y = half(graph, half(graph, half(graph, y, masked), attention, x), mlp)
    with graph.cell("head"):
        y = graph.add(LayerNorm(), y) if pre else y
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), y, shares=words))
    return graph


def text_to_text(
    sequence: int, *, layers: int, hidden: int, heads: int, ffn: int, vocabulary: int = 32128, head_dim: int = 64
) -> Graph:
    """T5: norms before without bias, biases of scores by distance (one table a stack), a tied head.

    A sample is a span-corrupted sequence: 114 target tokens for each 512 of the source (Raffel et al. 2019, 3.1.4).
    """
    graph = Graph("t5")
    rms, targets = LayerNorm(kind="rms"), -(-sequence * 114 // 512)
    attention = MultiHeadAttention(heads, head_dim, biases="none", scores_biased=True)
    crossing = MultiHeadAttention(heads, head_dim, biases="none")
    mlp = FeedForward(ffn, "relu", bias=False, dropout=True)
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "source"), name="words")
        x = graph.add(Dropout(0.1), words)
    for layer in range(layers):
        with graph.cell(f"encoder {layer}"):
            x = pre_norm(graph, x, replace(attention, buckets=0 if layer else 32), norm=rms)
            x = pre_norm(graph, x, mlp, norm=rms)
    with graph.cell("decoder embedding"):
        x = graph.add(Dropout(0.1), graph.add(rms, x))
        y = graph.add(Embedding(vocabulary, hidden), graph.input((targets,), "target"), shares=words)
        y = graph.add(Dropout(0.1), y)
    for layer in range(layers):
        with graph.cell(f"decoder {layer}"):
            y = pre_norm(graph, y, replace(attention, causal=True, buckets=0 if layer else 32), norm=rms)
            y = pre_norm(graph, y, crossing, x, norm=rms)
            y = pre_norm(graph, y, mlp, norm=rms)
    with graph.cell("head"):
        y = graph.add(Dropout(0.1), graph.add(rms, y))
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), y, shares=words))
    return graph


def bart(
    sequence: int, *, layers: int, hidden: int, heads: int, vocabulary: int = 50265, positions: int = 1026
) -> Graph:
    """BART: encoder and decoder with learned positions and a norm after each embedding, a tied head."""
    graph = Graph("bart")
    attention, mlp = MultiHeadAttention(heads), FeedForward(4 * hidden)
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "source"), name="words")
        x = graph.add(Dropout(0.1), graph.add(LayerNorm(), graph.add(Positions(positions), words)))
    for layer in range(layers):
        with graph.cell(f"encoder {layer}"):
            x = post_norm(graph, post_norm(graph, x, attention), mlp)
    with graph.cell("decoder embedding"):
        y = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "target"), shares=words)
        y = graph.add(Dropout(0.1), graph.add(LayerNorm(), graph.add(Positions(positions), y)))
    for layer in range(layers):
        with graph.cell(f"decoder {layer}"):
            y = post_norm(graph, y, replace(attention, causal=True))
            y = post_norm(graph, post_norm(graph, y, attention, x), mlp)
    with graph.cell("head"):
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), y, shares=words))
    return graph


# Recurrent translation -------------------------------------------------------------------------------------------


def gnmt(sequence: int, *, layers: int, hidden: int = 1024, vocabulary: int = 32320) -> Graph:
    """GNMT version 2: LSTM encoder and decoder of `layers` each, additive attention, one embedding table.

    The first encoder layer runs in both directions; sums skip layers from the third on; the context of attention joins
    the input of every decoder layer after the first.  The head has a matrix of its own.
    """
    graph = Graph("gnmt")
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "source"), name="words")
        x = graph.add(Dropout(0.2), words)
    for layer in range(layers):
        with graph.cell(f"encoder {layer}"):
            y = graph.add(LSTM(hidden, bidirectional=not layer), graph.add(Dropout(0.2), x) if layer else x)
            x = graph.add(Add(), y, x) if layer > 1 else y
    with graph.cell("decoder 0"):
        target = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "target"), shares=words)
        y = graph.add(LSTM(hidden), target)
        context = graph.add(AdditiveAttention(hidden), y, x, name="attention")
    for layer in range(1, layers):
        with graph.cell(f"decoder {layer}"):
            joined = graph.add(Concat(axis=-1), graph.add(Dropout(0.2), y), context)
            z = graph.add(LSTM(hidden), joined)
            y = graph.add(Add(), z, y) if layer > 1 else z
    with graph.cell("head"):
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary), y, name="classifier"))
    return graph


def _network(
    name: str, build: Callable[[int], Graph], sequence: int, source: str, *, sample: str = "sequence", **divides: int
) -> GraphNetwork:
    return GraphNetwork(name, build, sequence, sample, source, tuple(divides.items()))


BERT = "Devlin et al. 2018, arXiv 1810.04805, section 3; released configuration (30522 word pieces)"
VASWANI = "Vaswani et al. 2017, arXiv 1706.03762, table 3"
RAFFEL = "Raffel et al. 2019, arXiv 1910.10683, section 3.1; released configuration (32128 word pieces)"
LEWIS = "Lewis et al. 2019, arXiv 1910.13461, section 4; released configuration (50265 word pieces)"
GNMT = "NVIDIA/DeepLearningExamples, PyTorch/Translation/GNMT (GNMT v2), after Wu et al. 2016, arXiv 1609.08144"

#: Encoders and translators, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    _network("bert-base", partial(bert, layers=12, hidden=768, heads=12), 512, BERT, heads=12),
    _network("bert-large", partial(bert, layers=24, hidden=1024, heads=16), 512, BERT, heads=16),
    _network(
        "transformer-base",
        partial(transformer, layers=6, hidden=512, heads=8, vocabulary=37000),
        32,
        VASWANI,
        heads=8,
        sample="pair",
    ),
    _network(
        "transformer-big",
        partial(transformer, layers=6, hidden=1024, heads=16, vocabulary=33712, pre=True),
        32,
        f"{VASWANI}; vocabulary of NVIDIA/DeepLearningExamples, PyTorch/Translation/Transformer",
        heads=16,
        sample="pair",
    ),
    _network(
        "t5-base",
        partial(text_to_text, layers=12, hidden=768, heads=12, ffn=3072),
        512,
        RAFFEL,
        heads=12,
        sample="pair",
    ),
    _network(
        "t5-large",
        partial(text_to_text, layers=24, hidden=1024, heads=16, ffn=4096),
        512,
        RAFFEL,
        heads=16,
        sample="pair",
    ),
    _network("bart-large", partial(bart, layers=12, hidden=1024, heads=16), 512, LEWIS, heads=16, sample="pair"),
    _network("gnmt-4", partial(gnmt, layers=4), 32, GNMT, sample="pair", hidden=1024),
    _network("gnmt-8", partial(gnmt, layers=8), 32, f"{GNMT}; 8 layers", sample="pair", hidden=1024),
)
