"""Transformers of images: ViT, and the U-Net of latent diffusion with its cross-attention to text."""

from __future__ import annotations

from functools import partial

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.attention import FeedForward, Gather, MultiHeadAttention, Residual
from workloads.layers.convolution import Conv
from workloads.layers.dense import Linear
from workloads.layers.embedding import AddToPositions, ClassToken, Positions
from workloads.layers.losses import CrossEntropy, Loss
from workloads.layers.norms import GroupNorm, LayerNorm
from workloads.layers.pointwise import Activation, Add, Concat, Flatten, Permute, Upsample

__all__ = ["NETWORKS"]


def _half(graph: Graph, x: Value, operator: MultiHeadAttention | FeedForward, *others: Value) -> Value:
    """Half a layer: norm, operator, sum; no dropout."""
    y = graph.add(operator, graph.add(LayerNorm(), x), *others)
    return graph.add(Residual(dropout=False), x, y)


def vit(
    _: int, *, layers: int, hidden: int, heads: int, patch: int = 16, size: int = 224, classes: int = 1000
) -> Graph:
    """Vision transformer: patches as tokens, a class token, norms before."""
    graph = Graph("vit")
    with graph.cell("patches"):
        x = graph.add(Conv(hidden, patch, patch), graph.input((3, size, size), "image"), name="patches")
        tokens = (size // patch) ** 2
        x = graph.add(Permute((1, 0)), graph.add(Flatten((hidden, tokens)), x))
        x = graph.add(Positions(tokens + 1), graph.add(ClassToken(), x))
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            x = _half(graph, x, MultiHeadAttention(heads, dropout=False))
            x = _half(graph, x, FeedForward(4 * hidden))
    with graph.cell("head"):
        x = graph.add(Gather(1), graph.add(LayerNorm(), x), name="first token")
        graph.add(CrossEntropy(), graph.add(Linear(classes), x))
    return graph


# Latent diffusion ------------------------------------------------------------------------------------------------


def _norm_conv(graph: Graph, x: Value, filters: int) -> Value:
    """Group norm, SiLU, 3 x 3 convolution."""
    return graph.add(Conv(filters, 3, padding=1), graph.add(Activation("silu"), graph.add(GroupNorm(32), x)))


def _residual(graph: Graph, x: Value, time: Value, filters: int) -> Value:
    """Two convolutions, the time embedding added between them, and a sum."""
    y = _norm_conv(graph, x, filters)
    y = graph.add(AddToPositions(), y, graph.add(Linear(filters), graph.add(Activation("silu"), time)))
    y = _norm_conv(graph, y, filters)
    return graph.add(Add(), graph.add(Conv(filters, 1), x) if x.shape[0] != filters else x, y)


def _text_attention(graph: Graph, x: Value, text: Value, heads: int) -> Value:
    """A transformer layer over positions between two 1 x 1 convolutions: attention to itself and to text, gated MLP."""
    channels, *size = x.shape
    own = MultiHeadAttention(heads, biases="projection", dropout=False)
    crossing = MultiHeadAttention(heads, biases="projection", dropout=False, context_is_data=True)
    y = graph.add(Conv(channels, 1), graph.add(GroupNorm(32), x))
    y = graph.add(Permute((1, 0)), graph.add(Flatten((channels, size[0] * size[1])), y))
    y = _half(graph, _half(graph, y, own), crossing, text)
    y = _half(graph, y, FeedForward(4 * channels, gated=True))
    y = graph.add(Flatten(x.shape), graph.add(Permute((1, 0)), y))
    return graph.add(Add(), x, graph.add(Conv(channels, 1), y))


def diffusion(
    _: int, *, channels: int = 320, multiples: tuple[int, ...] = (1, 2, 4, 4), attended: int = 3, heads: int = 8,
    latent: tuple[int, int, int] = (4, 64, 64), text: tuple[int, int] = (77, 768),
) -> Graph:  # fmt: skip
    """U-Net of Stable Diffusion 1: two residual layers a level down, three up, attention to text at the first levels.

    Latents, text and the step's sine embedding are data (autoencoder and text encoder are frozen).
    """
    graph = Graph("diffusion")
    words = graph.input(text, "text")
    with graph.cell("in"):
        step = graph.add(Linear(4 * channels), graph.input((channels,), "step"))
        time = graph.add(Linear(4 * channels), graph.add(Activation("silu"), step))
        x = graph.add(Conv(channels, 3, padding=1), graph.input(latent, "latent"))
    skips = [x]
    for level, multiple in enumerate(multiples):
        for layer in range(2):
            with graph.cell(f"down {level}.{layer}"):
                x = _residual(graph, x, time, multiple * channels)
                x = _text_attention(graph, x, words, heads) if level < attended else x
                skips.append(x)
        if level < len(multiples) - 1:
            with graph.cell(f"down {level}"):
                x = graph.add(Conv(x.shape[0], 3, 2, 1), x)
                skips.append(x)
    with graph.cell("middle"):
        x = _residual(graph, x, time, x.shape[0])
        x = _residual(graph, _text_attention(graph, x, words, heads), time, x.shape[0])
    for level, multiple in reversed(list(enumerate(multiples))):
        for layer in range(3):
            with graph.cell(f"up {level}.{layer}"):
                x = _residual(graph, graph.add(Concat(), x, skips.pop()), time, multiple * channels)
                x = _text_attention(graph, x, words, heads) if level < attended else x
        if level:
            with graph.cell(f"up {level}"):
                x = graph.add(Conv(x.shape[0], 3, padding=1), graph.add(Upsample(2), x))
    with graph.cell("out"):
        graph.add(Loss("l2"), _norm_conv(graph, x, latent[0]))
    return graph


DOSOVITSKIY = "Dosovitskiy et al. 2020, arXiv 2010.11929, table 1; torchvision"

#: Vision transformers and the diffusion U-Net, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork("vit-b16", partial(vit, layers=12, hidden=768, heads=12), 1, "image", DOSOVITSKIY, (("heads", 12),)),
    GraphNetwork("vit-l16", partial(vit, layers=24, hidden=1024, heads=16), 1, "image", DOSOVITSKIY, (("heads", 16),)),
    GraphNetwork(
        "stable-diffusion-1", partial(diffusion), 1, "image",
        "Rombach et al. 2021, arXiv 2112.10752; CompVis/stable-diffusion, configs/stable-diffusion/v1-inference.yaml",
        (("heads", 8),),
    ),
)  # fmt: skip
