"""Models of the transformers library that are graphs here: BERT and kin, T5 and kin, ViT, Mamba.

One function a family; it reads the keys of config.json (with the library's defaults) and gives a network.  The task
that `architectures` names decides about heads.  Counts equal the library's: docs/importers.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.importers.reading import Keys, near, shown
from workloads.layers.attention import FeedForward, Gather, MultiHeadAttention
from workloads.layers.convolution import Conv
from workloads.layers.dense import Linear
from workloads.layers.embedding import Bias, ClassToken, Embedding, Positions
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Activation, Dropout, Flatten, Permute
from workloads.layers.selective_scan import SelectiveScan
from workloads.layers.state_space import StateSpace
from workloads.networks.language import post_norm, pre_norm

Notes = list[str]
Build = Callable[[int], Graph]
Inner = Literal["relu", "gelu", "silu"]

#: Names of activations, by the ones that are priced.
ACTIVATIONS: dict[str, Inner] = {
    "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu",
    "silu": "silu", "swish": "silu",
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """Builds a graph by a function and its sizes; equal sizes are equal networks, and it can be sent to processes."""

    function: Callable[..., Graph]
    sizes: tuple[tuple[str, Any], ...]

    def __call__(self, sequence: int) -> Graph:
        """The graph for samples of so many tokens."""
        return self.function(sequence, **dict(self.sizes))


def _activation(c: Keys, key: str, default: str) -> Inner:
    return ACTIVATIONS[c.choice(key, default, ACTIVATIONS)]


def _task(c: Keys, tasks: tuple[str, ...]) -> str:
    """The end of the class that `architectures` names; the first of `tasks` where it names none."""
    given = c.get("architectures", [])
    name = given[0] if isinstance(given, list) and given else ""
    if not name:
        return tasks[0]
    found = next((task for task in tasks if isinstance(name, str) and name.endswith(task)), "")
    if not found:
        allowed = ", ".join(f"a name that ends in {task}" for task in tasks)
        c.wrong("architectures[0]", shown(name), allowed, near(str(name), tasks))
    return found or tasks[0]


def _labels(c: Keys) -> int:
    """Classes of a classifier: as many as have names, else two."""
    named = c.get("id2label", None)
    if isinstance(named, dict) and named:
        return len(named)
    return c.whole("num_labels", 2)


def _dropout(c: Keys, key: str, default: float) -> bool:
    return c.number(key, default) > 0.0


def _masked(graph: Graph, x: Value, hidden: int, vocabulary: int, tied: Value | None) -> None:
    """Head of masked words, at every position: linear layer, norm, the table again, a bias."""
    y = graph.add(LayerNorm(), graph.add(Activation("gelu"), graph.add(Linear(hidden), x)))
    # the library keeps two biases where the table is not shared, one of them idle
    y = graph.add(Linear(vocabulary, bias=tied is None), y, name="words predicted", shares=tied)
    graph.add(CrossEntropy(), graph.add(Bias(), y))


# BERT and kin ------------------------------------------------------------------------------------------------------


def encoder(
    sequence: int, *, layers: int, hidden: int, heads: int, ffn: int, vocabulary: int, positions: int, types: int,
    task: str, labels: int, tied: bool, dropout: bool, activation: Inner = "gelu", pooled: bool = True,
    longest: int = 0,
) -> Graph:  # fmt: skip
    """Encoder with norms after, and the head of a task.

    types   rows of the table of sentence types (0: none); pooled: a linear layer over the first token comes before a
            classifier (BERT), instead of being part of it (RoBERTa)
    """
    if sequence > (longest or positions):
        raise ValueError(f"sequence: found {sequence}, allowed: at most {longest or positions} (learned positions)")
    graph = Graph("encoder")
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "words"), name="words")
        x = graph.add(Positions(positions), words)
        x = graph.add(Positions(types, kinds=True), x, name="sentence types") if types else x
        x = graph.add(LayerNorm(), x)
        x = graph.add(Dropout(0.1), x) if dropout else x
    attention = MultiHeadAttention(heads, dropout=dropout)
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            x = post_norm(graph, post_norm(graph, x, attention), FeedForward(ffn, activation))
    with graph.cell("head"):
        if task in ("ForMaskedLM", "ForPreTraining"):
            _masked(graph, x, hidden, vocabulary, words if tied else None)
        if task != "ForMaskedLM":
            y = graph.add(Gather(1), x, name="first token")
            if task != "Model" or pooled:
                y = graph.add(Activation("tanh"), graph.add(Linear(hidden), y, name="pooler"))
            graph.add(CrossEntropy(), graph.add(Linear(labels), y) if task != "Model" else y)
    return graph


def bert(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _encoder(c, notes, vocabulary=30522, positions=512, types=2)


def roberta(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _encoder(c, notes, vocabulary=50265, positions=512, types=2, offset=2, next_sentence=False)


def xlm_roberta(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _encoder(c, notes, vocabulary=30522, positions=512, types=2, offset=2, next_sentence=False)


def _encoder(
    c: Keys, notes: Notes, *, vocabulary: int, positions: int, types: int, offset: int = 0, next_sentence: bool = True
) -> tuple[Build, Any]:
    """BERT's keys; offset: positions count from the padding token."""
    tasks = ("ForMaskedLM", "ForSequenceClassification", *(("ForPreTraining",) if next_sentence else ()), "Model")
    task = _task(c, tasks)
    c.must("is_decoder", False, why="the importer knows encoders alone")
    c.must("add_cross_attention", False)
    heads = c.whole("num_attention_heads", 12)
    rows = c.whole("max_position_embeddings", positions)
    if task == "Model":
        notes.append("without a head: the loss is taken over what the last layer gives")
    sizes: dict[str, Any] = {
        "layers": c.whole("num_hidden_layers", 12, most=10_000), "hidden": c.whole("hidden_size", 768), "heads": heads,
        "ffn": c.whole("intermediate_size", 3072), "vocabulary": c.whole("vocab_size", vocabulary), "positions": rows,
        "types": c.whole("type_vocab_size", types), "task": task,
        "labels": 2 if task == "ForPreTraining" else _labels(c), "tied": c.flag("tie_word_embeddings", True),
        "dropout": _dropout(c, "hidden_dropout_prob", 0.1), "activation": _activation(c, "hidden_act", "gelu"),
        "longest": max(rows - offset, 1),
    }  # fmt: skip
    return Made(encoder, tuple(sizes.items())), (max(rows - offset, 1), "sequence", heads)


def distilbert(c: Keys, notes: Notes) -> tuple[Build, Any]:
    task = _task(c, ("ForMaskedLM", "ForSequenceClassification", "Model"))
    if task == "Model":
        notes.append("without a head: the loss is taken over what the last layer gives")
    heads = c.whole("n_heads", 12, "num_attention_heads")
    rows = c.whole("max_position_embeddings", 512)
    sizes: dict[str, Any] = {
        "layers": c.whole("n_layers", 6, "num_hidden_layers", most=10_000),
        "hidden": c.whole("dim", 768, "hidden_size"), "heads": heads, "ffn": c.whole("hidden_dim", 3072),
        "vocabulary": c.whole("vocab_size", 30522),
        "positions": rows, "types": 0, "task": task, "labels": _labels(c), "tied": c.flag("tie_word_embeddings", True),
        "dropout": _dropout(c, "dropout", 0.1), "activation": _activation(c, "activation", "gelu"), "pooled": False,
    }  # fmt: skip
    return Made(encoder, tuple(sizes.items())), (rows, "sequence", heads)


# T5 and kin --------------------------------------------------------------------------------------------------------


def encoder_decoder(
    sequence: int, *, encoders: int, decoders: int, hidden: int, heads: int, head_dim: int, ffn: int, vocabulary: int,
    buckets: int, gated: bool, activation: Inner, tied: bool, dropout: bool, each: bool = False,
) -> Graph:  # fmt: skip
    """T5: norms before (no mean), score biases by distance, a table for both sides.

    each   every layer has a table of score biases, instead of the first of each side
    """
    graph = Graph("t5")
    mlp = FeedForward(ffn, activation, gated, bias=False, dropout=dropout)

    def attention(first: bool, causal: bool, biased: bool = True) -> MultiHeadAttention:
        return MultiHeadAttention(
            heads, head_dim, biases="none", causal=causal, dropout=dropout, scores_biased=biased,
            buckets=buckets if biased and (first or each) else 0,
        )  # fmt: skip

    def half(x: Value, operator: MultiHeadAttention | FeedForward, *others: Value) -> Value:
        return pre_norm(graph, x, operator, *others, norm=LayerNorm(kind="rms"), dropout=dropout)

    def dropped(x: Value) -> Value:
        return graph.add(Dropout(0.1), x) if dropout else x

    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "source"), name="words")
        x = dropped(words)
    for layer in range(encoders):
        with graph.cell(f"encoder {layer}"):
            x = half(half(x, attention(not layer, False)), mlp)
    with graph.cell("decoder embedding"):
        x = dropped(graph.add(LayerNorm(kind="rms"), x))
        target = graph.input((sequence,), "target")
        y = dropped(graph.add(Embedding(vocabulary, hidden), target, shares=words))
    for layer in range(decoders):
        with graph.cell(f"decoder {layer}"):
            y = half(y, attention(not layer, True))
            y = half(half(y, attention(False, False, False), x), mlp)
    with graph.cell("head"):
        y = dropped(graph.add(LayerNorm(kind="rms"), y))
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), y, shares=words if tied else None))
    return graph


def t5(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _t5(c, vocabulary=32128, tied=True, proj="relu", hidden=512, ffn=2048, layers=6, heads=8)


def mt5(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _t5(c, vocabulary=250112, tied=True, proj="gated-gelu", hidden=512, ffn=1024, layers=8, heads=6)


def umt5(c: Keys, notes: Notes) -> tuple[Build, Any]:
    return _t5(c, vocabulary=250112, tied=True, proj="gated-gelu", hidden=512, ffn=1024, layers=8, heads=6, each=True)


def _t5(
    c: Keys, *, vocabulary: int, tied: bool, proj: str, hidden: int, ffn: int, layers: int, heads: int,
    each: bool = False,
) -> tuple[Build, Any]:  # fmt: skip
    _task(c, ("ForConditionalGeneration",))
    number = c.whole("num_layers", layers, "num_hidden_layers", most=10_000)
    kind = c.choice("feed_forward_proj", proj, ("relu", "gelu", "silu", "gated-relu", "gated-gelu", "gated-silu"))
    chosen = c.whole("num_heads", heads, "num_attention_heads")
    sizes: dict[str, Any] = {
        "encoders": number, "decoders": c.whole("num_decoder_layers", number, most=10_000),
        "hidden": c.whole("d_model", hidden, "hidden_size"), "heads": chosen,
        "head_dim": c.whole("d_kv", 64, "head_dim"),
        "ffn": c.whole("d_ff", ffn), "vocabulary": c.whole("vocab_size", vocabulary),
        "buckets": c.whole("relative_attention_num_buckets", 32), "gated": kind.startswith("gated"),
        "activation": kind.rpartition("-")[2], "tied": c.flag("tie_word_embeddings", tied),
        "dropout": _dropout(c, "dropout_rate", 0.1), "each": each,
    }  # fmt: skip
    return Made(encoder_decoder, tuple(sizes.items())), (c.whole("n_positions", 512), "pair", chosen)


# ViT ---------------------------------------------------------------------------------------------------------------


def vision(
    _: int, *, layers: int, hidden: int, heads: int, ffn: int, patch: int, size: int, channels: int, labels: int,
    qkv_bias: bool, dropout: bool, activation: Inner, task: str, pooled: int,
) -> Graph:  # fmt: skip
    """Vision transformer: patches as tokens, a class token, norms before, a classifier of the first token."""
    graph = Graph("vit")
    attention = MultiHeadAttention(heads, biases="all" if qkv_bias else "projection", dropout=dropout)
    with graph.cell("patches"):
        x = graph.add(Conv(hidden, patch, patch), graph.input((channels, size, size), "image"), name="patches")
        tokens = x.shape[1] * x.shape[2]
        x = graph.add(Permute((1, 0)), graph.add(Flatten((hidden, tokens)), x))
        x = graph.add(Positions(tokens + 1), graph.add(ClassToken(), x))
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            x = pre_norm(graph, x, attention, dropout=dropout)
            x = pre_norm(graph, x, FeedForward(ffn, activation), dropout=dropout)
    with graph.cell("head"):
        x = graph.add(Gather(1), graph.add(LayerNorm(), x), name="first token")
        if task == "Model":
            x = graph.add(Activation("tanh"), graph.add(Linear(pooled), x, name="pooler"))
        graph.add(CrossEntropy(), graph.add(Linear(labels), x) if task != "Model" else x)
    return graph


def vit(c: Keys, notes: Notes) -> tuple[Build, Any]:
    task = _task(c, ("ForImageClassification", "Model"))
    if task == "Model":
        notes.append("without a head: the loss is taken over what the pooler gives")
    heads, hidden = c.whole("num_attention_heads", 12), c.whole("hidden_size", 768)
    size, patch = c.whole("image_size", 224, most=100_000), c.whole("patch_size", 16, most=100_000)
    if patch > size:
        c.wrong("patch_size", str(patch), f"at most {size} (image_size)")
    sizes: dict[str, Any] = {
        "layers": c.whole("num_hidden_layers", 12, most=10_000), "hidden": hidden, "heads": heads,
        "ffn": c.whole("intermediate_size", 3072), "patch": patch, "size": size,
        "channels": c.whole("num_channels", 3), "labels": _labels(c), "qkv_bias": c.flag("qkv_bias", True),
        "dropout": _dropout(c, "hidden_dropout_prob", 0.0), "activation": _activation(c, "hidden_act", "gelu"),
        "task": task, "pooled": c.whole("pooler_output_size", hidden),
    }  # fmt: skip
    return Made(vision, tuple(sizes.items())), (1, "image", heads)


# Mamba -------------------------------------------------------------------------------------------------------------


def state_space(
    sequence: int, *, layers: int, hidden: int, vocabulary: int, mixer: StateSpace | SelectiveScan, tied: bool
) -> Graph:
    """A norm, a mixer and a sum a layer."""
    graph = Graph("mamba")
    with graph.cell("embedding"):
        words = graph.add(Embedding(vocabulary, hidden), graph.input((sequence,), "words"), name="words")
        x = words
    for layer in range(layers):
        with graph.cell(f"layer {layer}"):
            x = pre_norm(graph, x, mixer, norm=LayerNorm(kind="rms"), dropout=False)  # type: ignore[arg-type]
    with graph.cell("head"):
        x = graph.add(LayerNorm(kind="rms"), x)
        graph.add(CrossEntropy(), graph.add(Linear(vocabulary, bias=False), x, shares=words if tied else None))
    return graph


def mamba(c: Keys, notes: Notes) -> tuple[Build, Any]:
    hidden = c.whole("hidden_size", 768)
    inner = c.whole("intermediate_size", c.whole("expand", 2, most=1000) * hidden)
    rank = c.get("time_step_rank", "auto")
    mixer = SelectiveScan(
        state=c.whole("state_size", 16), inner=inner, rank=0 if rank == "auto" else c.whole("time_step_rank", 1),
        kernel=c.whole("conv_kernel", 4), bias=c.flag("use_bias", False), kernel_bias=c.flag("use_conv_bias", True),
    )  # fmt: skip
    return _mamba(c, hidden, mixer, vocabulary=50280, layers=32, tied=True, heads=0)


def mamba2(c: Keys, notes: Notes) -> tuple[Build, Any]:
    hidden, expand = c.whole("hidden_size", 4096), c.whole("expand", 2, most=1000)
    heads, head_dim = c.whole("num_heads", 128), c.whole("head_dim", 64)
    if heads * head_dim != expand * hidden:
        c.wrong("num_heads", f"{heads} heads of {head_dim}", f"{expand * hidden} columns (expand x hidden_size)")
    c.must("use_bias", False, why="the mixer is built without biases of its projections")
    c.must("use_conv_bias", True)
    mixer = StateSpace(
        state=c.whole("state_size", 128), expand=expand, head_dim=head_dim, groups=c.whole("n_groups", 8),
        kernel=c.whole("conv_kernel", 4), chunk=c.whole("chunk_size", 256),
    )  # fmt: skip
    return _mamba(c, hidden, mixer, vocabulary=32768, layers=64, tied=False, heads=heads)


def _mamba(
    c: Keys, hidden: int, mixer: StateSpace | SelectiveScan, *, vocabulary: int, layers: int, tied: bool, heads: int
) -> tuple[Build, Any]:
    _task(c, ("ForCausalLM",))
    sizes: dict[str, Any] = {
        "layers": c.whole("num_hidden_layers", layers, most=10_000), "hidden": hidden,
        "vocabulary": c.whole("vocab_size", vocabulary), "mixer": mixer,
        "tied": c.flag("tie_word_embeddings", tied),
    }  # fmt: skip
    return Made(state_space, tuple(sizes.items())), (2048, "sequence", heads)


#: What reads a model type: how its graph is made; tokens a sample, what a sample is called, heads.
GRAPHS: dict[str, Callable[[Keys, Notes], tuple[Build, Any]]] = {
    "bert": bert, "camembert": xlm_roberta, "distilbert": distilbert, "mamba": mamba, "mamba2": mamba2, "mt5": mt5,
    "roberta": roberta, "t5": t5, "umt5": umt5, "vit": vit, "xlm-roberta": xlm_roberta,
}  # fmt: skip


def network(kind: str, c: Keys, notes: Notes, name: str, source: str) -> GraphNetwork:
    """The network of a model type."""
    build, (sequence, sample, heads) = GRAPHS[kind](c, notes)
    return GraphNetwork(name, build, sequence, sample, source, (("heads", heads),) if heads else ())
