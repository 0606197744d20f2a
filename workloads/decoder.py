"""What describes a decoder transformer: its sizes and options, what they may be, and what follows from them.

`DecoderTransformer` is a network of it; its layers as a graph are in `workloads.decoder_graph`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BIASED", "NORMS", "Decoder"]

#: Linear layers that have a bias, by the word of `Decoder.biases`.
BIASED: dict[str, tuple[str, ...]] = {
    "all": ("qkv", "projection", "mlp"),
    "attention": ("qkv", "projection"),
    "qkv": ("qkv",),
    "projection_mlp": ("projection", "mlp"),
    "mlp": ("mlp",),
    "none": (),
}
#: Words of `Decoder.norm`.
NORMS = ("layernorm", "layernorm_weight", "layernorm_plain", "rmsnorm")

POSITIVE = ("layers", "hidden", "heads", "ffn", "vocabulary", "max_sequence", "vocabulary_multiple")
OPTIONAL = ("query_rank", "key_value_rank", "rotary_dim", "experts", "experts_per_token", "shared_ffn", "lead_layers")
ZERO_DEFAULT = ("kv_heads", "head_dim", "value_dim", "expert_ffn", "norms", "embedding_dim")
DEFAULTED = "a whole number >= 1, or 0 for the default"


@dataclass(frozen=True)
class Decoder:
    """Sizes and options of a decoder-only transformer, checked.

    layers, hidden, heads, kv_heads, head_dim, ffn   sizes; kv_heads = heads is MHA, 1 is MQA, else GQA
    gated        the MLP has gate, up and down matrices (SwiGLU, GEGLU) instead of up and down
    vocabulary   as published; `vocabulary_multiple` pads it for sharding (1: not padded)
    positions    "learned" (a table of `max_sequence` rows), "rotary", "alibi"
    tied         head and input embedding are one tensor
    norm         "layernorm" (weight and bias), "layernorm_weight", "layernorm_plain" (neither), "rmsnorm" (weight)
    norms        norms a layer; 0: two, one in a parallel block.  A parallel block with 2 gives its MLP a norm of its
                 own (GPT-NeoX); 4 norm what attention and MLP give, too (Gemma 2)
    final_norm   a norm before the head
    biases       linear layers that have one: "all", "attention" (qkv and projection), "qkv", "projection_mlp", "mlp",
                 "none"; experts and router are part of the MLP
    head_bias    the head has a bias (GPT-J)
    embedding_dim    width of the table, projected to hidden and back before the head (OPT-350M); 0: hidden
    parallel_block   attention and MLP read the same input and are summed (PaLM): one reduction, one norm
    embedding_norm   a norm after the embedding (BLOOM)
    dropout      keeps dropout masks for the backward pass
    causal       a token attends to no later one, so that a fused kernel may skip masked tiles; `flops` and kept
                 scores count the full square all the same (see `workloads.training.executed_flops`)
    qk_norm      a norm (like `norm`, of head_dim) of each head's queries and of its keys, after the projection
    qk_norm_whole    its weights are of all heads together, not shared by them (OLMo 2)
    sinks        a learned score a head that attention may spend weight on (gpt-oss)
    rotary_dim   columns of a head that rotate, 0: all
    key_value_rank   latent attention of this rank, 0: grouped-query; with it `query_rank` (0: full), `rotary_dim`
                 columns of queries and keys beside head_dim, and `value_dim` (0: head_dim)
    experts      routed MLPs of width `expert_ffn` (0: ffn) in place of the MLP, `experts_per_token` of them a token
    shared_ffn   width of an MLP beside them that every token meets (shared experts together, or a dense residual)
    shared_gate  a learned gate (hidden weights) scales what it gives (Qwen2-MoE)
    lead_layers  of `layers`, leading ones with a dense MLP of width `ffn`
    capacity_factor   rows an expert computes over its even share; 1 is dropless with tokens spread evenly
    source       where the sizes were published
    """

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = False
    positions: Literal["learned", "rotary", "alibi"] = "learned"
    max_sequence: int = 2048
    tied: bool = True
    norm: Literal["layernorm", "layernorm_weight", "layernorm_plain", "rmsnorm"] = "layernorm"
    norms: int = 0
    final_norm: bool = True
    biases: Literal["all", "attention", "qkv", "projection_mlp", "mlp", "none"] = "all"
    head_bias: bool = False
    embedding_dim: int = 0
    parallel_block: bool = False
    embedding_norm: bool = False
    dropout: bool = True
    vocabulary_multiple: int = 1
    causal: bool = True
    qk_norm: bool = False
    qk_norm_whole: bool = False
    sinks: bool = False
    query_rank: int = 0
    key_value_rank: int = 0
    rotary_dim: int = 0
    value_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    lead_layers: int = 0
    capacity_factor: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        problems = self._bad_values()
        if problems:
            raise ValueError("; ".join(problems))
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.hidden % self.heads:
            problems.append(f"hidden % heads: {self.hidden} % {self.heads} != 0 (give head_dim)")
        if self.heads % self.kv_heads:
            problems.append(f"heads % kv_heads: {self.heads} % {self.kv_heads} != 0")
        problems += self._bad_experts() + self._bad_latent()
        if problems:
            raise ValueError("; ".join(problems))
        object.__setattr__(self, "head_dim", self.head_dim or self.hidden // self.heads)
        if self.experts:
            object.__setattr__(self, "expert_ffn", self.expert_ffn or self.ffn)

    def _bad_values(self) -> list[str]:
        """What is no number or choice of its field."""
        problems = []
        for names, least, allowed in (
            (POSITIVE, 1, "a whole number >= 1"), (ZERO_DEFAULT, 0, DEFAULTED),
            (OPTIONAL, 0, "a whole number >= 0"),
        ):  # fmt: skip
            for name in names:
                value = getattr(self, name)
                if isinstance(value, bool) or not isinstance(value, int) or value < least:
                    problems.append(f"{name}: found {value!r}, allowed: {allowed}")
        choices = {
            "positions": ("learned", "rotary", "alibi"),
            "norm": NORMS,
            "biases": tuple(BIASED),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                problems.append(f"{name}: found {getattr(self, name)!r}, allowed: {', '.join(known)}")
        factor = self.capacity_factor
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor < float("inf"):
            problems.append(f"capacity_factor: found {factor!r}, allowed: a number > 0")
        return problems

    def _bad_experts(self) -> list[str]:
        """Sizes of routed experts that do not fit together."""
        if not self.experts:
            names = ("experts_per_token", "expert_ffn", "shared_ffn", "lead_layers", "shared_gate")
            return [f"{n}: found {getattr(self, n)}, allowed: 0 without experts" for n in names if getattr(self, n)]
        problems = []
        if not 1 <= self.experts_per_token <= self.experts:
            found = f"experts_per_token: found {self.experts_per_token}"
            problems.append(f"{found}, allowed: 1 to {self.experts} (experts)")
        if self.lead_layers >= self.layers:
            problems.append(f"lead_layers: found {self.lead_layers}, allowed: less than {self.layers} (layers)")
        if self.parallel_block:
            problems.append("parallel_block: found True, allowed: False with experts")
        if self.shared_gate and not self.shared_ffn:
            problems.append("shared_gate: found True, allowed: False without shared_ffn")
        return problems

    def _bad_latent(self) -> list[str]:
        """Sizes of latent attention that do not fit together."""
        if not self.key_value_rank:
            width = (self.head_dim or self.hidden // self.heads) if self.positions == "rotary" else 0
            limits = {"query_rank": 0, "rotary_dim": width, "value_dim": 0}
            allowed = {"rotary_dim": f"at most {width} (head_dim that rotates)"}
            return [
                f"{name}: found {getattr(self, name)}, allowed: {allowed.get(name, '0 without key_value_rank')}"
                for name, limit in limits.items()
                if getattr(self, name) > limit
            ]
        must = {"kv_heads": self.heads, "biases": "none", "qk_norm": False, "sinks": False, "positions": "rotary"}
        return [
            f"{name}: found {getattr(self, name)!r}, allowed: {value!r} with key_value_rank"
            for name, value in must.items()
            if getattr(self, name) != value
        ]

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding table after padding."""
        return -(-self.vocabulary // self.vocabulary_multiple) * self.vocabulary_multiple

    def divisors(self) -> dict[str, int]:
        """What the tensor degree must divide."""
        if not self.experts:
            return {"heads": self.heads, "ffn": self.ffn}
        used = {"ffn": self.ffn if self.lead_layers else 0, "shared_ffn": self.shared_ffn}
        return {"heads": self.heads, "expert_ffn": self.expert_ffn} | {n: size for n, size in used.items() if size}
