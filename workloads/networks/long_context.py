"""Language models that carry more than one segment: Transformer-XL and Mamba-2.  A sample is a segment of tokens."""

from __future__ import annotations

from functools import partial

from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.attention import FeedForward, MultiHeadAttention, Residual
from workloads.layers.dense import Linear
from workloads.layers.embedding import AdaptiveEmbedding, AdaptiveSoftmax, Embedding
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Dropout
from workloads.layers.state_space import StateSpace
from workloads.networks.language import post_norm

__all__ = ["NETWORKS"]

#: WikiText-103: words, where clusters begin, and the parts of tokens in each tail.  The parts are estimates: 103
#: million tokens, whose rarest words occur 3 times (assumed: 95, 12 and 3 times in the mean of each tail).
WORDS, CUTOFFS, SHARES = 267735, (19997, 39997, 199997), (0.018, 0.019, 0.002)


def transformer_xl(
    segment: int, *, layers: int, hidden: int, heads: int, ffn: int, divide: int = 1, attention_dropout: bool = False
) -> Graph:
    """Transformer-XL on WikiText-103: relative attention over a segment and as long a memory, adaptive softmax.

    The two vectors that are added to queries are shared by all layers.
    """
    graph = Graph("transformer-xl")
    with graph.cell("embedding"):
        words = AdaptiveEmbedding(WORDS, hidden, CUTOFFS, SHARES, divide)
        x = graph.add(Dropout(0.1), graph.add(words, graph.input((segment,), "words"), name="words"))
    for layer in range(layers):
        attention = MultiHeadAttention(
            heads, biases="none", causal=True, memory=segment, relative=True, relative_biases=not layer,
            dropout=attention_dropout,
        )  # fmt: skip
        with graph.cell(f"layer {layer}"):
            x = post_norm(graph, post_norm(graph, x, attention), FeedForward(ffn, "relu", dropout=True))
    with graph.cell("head"):
        graph.add(AdaptiveSoftmax(WORDS, CUTOFFS, SHARES, divide), graph.add(Dropout(0.1), x))
    return graph


def mamba2(sequence: int, *, layers: int, hidden: int, vocabulary: int = 50288) -> Graph:
    """Mamba-2: a norm, a state-space mixer and a sum a layer, a tied head."""
    graph = Graph("mamba2")
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "words"), name="words")
        x = words
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            y = graph.add(StateSpace(), graph.add(LayerNorm(kind="rms"), x))
            x = graph.add(Residual(dropout=False), x, y)
    with graph.cell("head"):
        x = graph.add(LayerNorm(kind="rms"), x)
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), x, shares=words))
    return graph


DAI = "Dai et al. 2019, arXiv 1901.02860; NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/Transformer-XL, wt103"
GU = "Dao & Gu 2024, arXiv 2405.21060; released configuration (50277 word pieces padded to 50288)"

#: Transformer-XL and Mamba-2, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork(
        "transformer-xl-base",
        partial(transformer_xl, layers=16, hidden=512, heads=8, ffn=2048),
        192,
        "segment",
        f"{DAI}_base.yaml (192 million parameters)",
        (("heads", 8),),
    ),
    GraphNetwork(
        "transformer-xl-large",
        partial(transformer_xl, layers=18, hidden=1024, heads=16, ffn=4096, divide=4, attention_dropout=True),
        384,
        "segment",
        f"{DAI}_large.yaml",
        (("heads", 16),),
    ),
    *(
        GraphNetwork(
            f"mamba2-{name}",
            partial(mamba2, layers=layers, hidden=hidden),
            2048,
            "sequence",
            GU,
            (("heads", 2 * hidden // 64),),
        )
        for name, layers, hidden in (
            ("130m", 24, 768),
            ("370m", 48, 1024),
            ("780m", 48, 1536),
            ("1.3b", 48, 2048),
            ("2.7b", 64, 2560),
        )
    ),
)
