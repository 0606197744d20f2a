"""The two halves of a layer: attention (grouped-query or latent) and MLP (dense or routed experts).

A part adds its operators, parameters and kept bytes to a block; `workloads.transformer` puts two of them together.
Sizes are for one sample and the whole model. Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from workloads.operators import Attention, Matmul, Vector

if TYPE_CHECKING:
    from workloads.transformer import DecoderTransformer

#: Kernels of a router beside its product and softmax: top-k, mask, token counts, offsets, two sorts of row numbers.
ROUTER_KERNELS = 6
#: Linear layers that have a bias, by the word of `DecoderTransformer.biases`.
BIASED: dict[str, tuple[str, ...]] = {
    "all": ("qkv", "projection", "mlp"),
    "attention": ("qkv", "projection"),
    "qkv": ("qkv",),
    "projection_mlp": ("projection", "mlp"),
    "mlp": ("mlp",),
    "none": (),
}
#: Parameters a column of a norm, by the word of `DecoderTransformer.norm`.
NORMS = {"layernorm": 2, "layernorm_weight": 1, "layernorm_plain": 0, "rmsnorm": 1}


@dataclass(frozen=True)
class Part:
    """What half a layer adds to a block.

    copied, split, grouped, expert   parameters that every tensor rank holds, that the tensor degree divides, that it
                   divides into whole key and value heads, and those of routed experts
    kept_sequence, kept_tensor       bytes kept for the backward pass, as in `Saved`
    kept_fixed     of kept_sequence, bytes whose width does not follow the activations'
    routed         elements a sample of one all-to-all
    kernels        device kernels beside one an operator
    """

    matmuls: tuple[Matmul, ...]
    vectors: tuple[Vector, ...]
    kept_tensor: int
    kept_sequence: int = 0
    copied: int = 0
    split: int = 0
    grouped: int = 0
    expert: int = 0
    routed: int = 0
    kernels: int = 0
    kept_fixed: int = 0


def biased(net: DecoderTransformer, linear: str) -> bool:
    """Whether the linear layer "qkv", "projection" or "mlp" of `net` has a bias."""
    return linear in BIASED[net.biases]


def norm_parameters(net: DecoderTransformer, width: int) -> int:
    """Parameters of a norm of `width` columns."""
    return NORMS[net.norm] * width


def attention_sizes(net: DecoderTransformer, sequence: int) -> Attention:
    """Sizes of the attention core of one layer of `net`; rotary columns widen latent attention's queries and keys."""
    width, value = net.head_dim + (net.rotary_dim if net.key_value_rank else 0), net.value_dim or net.head_dim
    return Attention(net.heads, net.kv_heads, sequence, sequence, width, value, net.causal)


def core_matmuls(core: Attention) -> tuple[Matmul, Matmul]:
    """Scores S = Q K^T and context O = P V, a product a head."""
    queries, keys, heads = core.queries, core.keys, core.heads
    return (
        Matmul(
            "scores", queries, keys, core.head_dim, groups=heads, split="groups", weight=False, core=True
        ),
        Matmul(
            "context", queries, core.value_dim, keys, groups=heads, split="groups", weight=False, core=True,
        ),
    )  # fmt: skip


def softmax(drops: bool, core: Attention) -> Vector:
    """Scale, mask and softmax as one kernel, dropout a second one.

    A causal softmax reads the half of the scores that is not masked, and writes all of them; so does its gradient.
    """
    mask = 0.5 if drops else 0.0
    seen = 0.5 if core.causal else 1.0
    dropout = 1.0 if drops else 0.0
    return Vector(
        "softmax", core.heads * core.queries * core.keys, reads=seen + dropout, writes=1.0 + dropout + mask,
        backward_reads=2.0 * seen + dropout + mask, backward_writes=1.0 + dropout, operations=6, backward_operations=4,
        split="tensor", core=True,
    )  # fmt: skip


def grouped_attention(net: DecoderTransformer, sequence: int) -> Part:
    """Multi-head, grouped-query or multi-query attention: key and value heads are shared by heads / kv_heads heads.

    Kept: query, key, value and the output; with a norm of queries and keys also what it read.
    """
    s, h, d = sequence, net.hidden, net.head_dim
    query, key_value = net.heads * d, 2 * net.kv_heads * d
    normed = query + key_value // 2
    core = attention_sizes(net, sequence)
    vectors = [softmax(net.dropout, core)]
    if net.positions == "rotary":
        turned = normed // d * (net.rotary_dim or d)
        vectors.append(Vector("rotary", s * turned, backward_reads=1, operations=4, split="tensor"))
    if net.qk_norm:
        vectors.append(
            Vector("query and key norm", s * normed, operations=8, backward_operations=16, split="tensor")
        )
    weights = norm_parameters(net, normed if net.qk_norm_whole else 2 * d) if net.qk_norm else 0
    return Part(
        matmuls=(
            Matmul("qkv", s, query, h, split="n", n_groups=net.kv_heads, n_group_width=2 * d),
            *core_matmuls(core),
            Matmul("projection", s, h, query, split="k"),
        ),
        vectors=tuple(vectors),
        kept_tensor=2 * s * (query + key_value) + 2 * s * query + (2 * s * normed if net.qk_norm else 0),
        copied=(h if biased(net, "projection") else 0) + weights,
        split=2 * h * query + (query if biased(net, "qkv") else 0) + (net.heads if net.sinks else 0),
        grouped=h * key_value + (key_value if biased(net, "qkv") else 0),
    )


def latent_attention(net: DecoderTransformer, sequence: int) -> Part:
    """Multi-head latent attention: keys and values are widened from one narrow vector a token.

    c = norm(x W_down), (K, V) = c W_up, K also gets `rotary_dim` columns that all heads share; queries likewise from
    `query_rank` columns, or straight from x where it is 0.                  [DeepSeek-V2, arXiv 2405.04434, 2.1]
    Training widens keys and values (the absorbed form is for inference), so a head works on head_dim + rotary_dim
    columns of Q and K and on value_dim of V.  Weights of the down projections are copied by tensor ranks, which share
    their work (each for its tokens, or its columns); the narrow vectors are kept before and after their norms.
    """
    s, h, heads = sequence, net.hidden, net.heads
    core, narrow = attention_sizes(net, sequence), net.key_value_rank
    query, value = heads * core.head_dim, heads * core.value_dim
    widened = heads * net.head_dim + value
    matmuls = [Matmul("key and value down", s, narrow + net.rotary_dim, h, split="n")]
    copied = h * (narrow + net.rotary_dim) + narrow
    split = narrow * widened + h * value
    if net.query_rank:
        matmuls.append(Matmul("query down", s, net.query_rank, h, split="n"))
        matmuls.append(Matmul("query up", s, query, net.query_rank, split="n"))
        copied += h * net.query_rank + net.query_rank
        split += net.query_rank * query
    else:
        matmuls.append(Matmul("query", s, query, h, split="n"))
        split += h * query
    matmuls += [Matmul("key and value up", s, widened, narrow, split="n"), *core_matmuls(core)]
    matmuls.append(Matmul("projection", s, h, value, split="k"))
    normed = narrow + net.query_rank
    return Part(
        matmuls=tuple(matmuls),
        vectors=(
            softmax(net.dropout, core),
            # rotates the rotary columns and joins them with the others, for queries and keys
            Vector("rotary", 2 * s * query, backward_reads=1, operations=1, backward_operations=1, split="tensor"),
            Vector("latent norm", s * normed, operations=8, backward_operations=16, split="sequence"),
        ),
        kept_tensor=2 * s * (2 * query + value) + 2 * s * value,
        kept_sequence=2 * s * 2 * normed,
        copied=copied,
        split=split,
    )


def dense_mlp(net: DecoderTransformer, sequence: int, ffn: int, prefix: str = "") -> Part:
    """Two matrices and an activation between them, or three where it is gated.  Kept: what each of them read."""
    s, h = sequence, net.hidden
    matrices = 2 if net.gated else 1
    columns = matrices * ffn
    bias = biased(net, "mlp")
    return Part(
        matmuls=(
            Matmul(f"{prefix}up", s, columns, h, split="n"), Matmul(f"{prefix}down", s, h, ffn, split="k"),
        ),
        vectors=(
            Vector(
                f"{prefix}activation", ffn * s, reads=matrices, writes=1, backward_reads=matrices + 1,
                backward_writes=matrices, operations=8, backward_operations=12, split="tensor",
            ),
        ),
        kept_tensor=2 * s * (columns + ffn),
        copied=h if bias else 0,
        split=h * columns + ffn * h + (columns if bias else 0),
    )  # fmt: skip


def routed_experts(net: DecoderTransformer, sequence: int) -> Part:
    """Each token is sent to `experts_per_token` of `experts` MLPs, and through a shared MLP of width `shared_ffn`.

    rows = ceil(s x experts a token x capacity factor), spread evenly over the experts: real routers are uneven, and
    the fullest expert sets the pace.  Forward: router, permute, all-to-all, regroup by expert, experts, regroup,
    all-to-all, weighted sum.  Kept: router probabilities (4 B), rows as the experts read them, MLP internals; router
    weights are applied in the activation, so that the experts' outputs are not kept.
    """
    s, h, f, chosen = sequence, net.hidden, net.expert_ffn, net.experts_per_token
    rows = ceil(s * chosen * net.capacity_factor)
    matrices = 2 if net.gated else 1
    columns = matrices * f
    bias = biased(net, "mlp")
    share = 1.0 / chosen
    vectors = [
        Vector(
            "expert activation", rows * f, reads=matrices, writes=1, backward_reads=matrices + 1,
            backward_writes=matrices, operations=9, backward_operations=14, split="tensor",
        ),
        Vector("router", s * net.experts, operations=8, backward_operations=4, split="sequence"),
        # a token is read once and written for each of its experts; backward adds them up
        Vector(
            "permute", rows * h, reads=share, backward_reads=1, backward_writes=share, operations=0,
            backward_operations=1, split="tensor",
        ),
        # rows come and go by sending rank, experts want them together
        Vector(
            "regroup", rows * h, reads=2, writes=2, backward_reads=2, backward_writes=2, operations=0,
            backward_operations=0, split="tensor",
        ),
        Vector(
            "unpermute", rows * h, writes=share, backward_reads=share, backward_writes=1, operations=1,
            backward_operations=0, split="tensor",
        ),
    ]  # fmt: skip
    matmuls = [
        # tensor ranks share the router's tokens; its weights are copied
        Matmul("router", s, net.experts, h, split="n"),
        Matmul("expert up", rows, columns, h, split="n", experts=net.experts),
        Matmul("expert down", rows, h, f, split="k", experts=net.experts),
    ]
    one_expert = h * columns + f * h + (columns + h if bias else 0)
    shared = dense_mlp(net, s, net.shared_ffn, "shared ") if net.shared_ffn else Part((), (), 0)
    return Part(
        matmuls=(*matmuls, *shared.matmuls),
        vectors=(*vectors, *shared.vectors),
        kept_tensor=2 * rows * (h + columns + f) + shared.kept_tensor,
        kept_sequence=4 * s * net.experts,
        kept_fixed=4 * s * net.experts,
        copied=h * net.experts + (net.experts if bias else 0) + shared.copied + (h if net.shared_gate else 0),
        split=shared.split,
        expert=net.experts * one_expert,
        routed=rows * h,
        # the second regrouping
        kernels=ROUTER_KERNELS + 1,
    )
