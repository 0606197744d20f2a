"""Dense decoder transformers: one builder for GPT, OPT, BLOOM, PaLM, Llama and Nemotron shapes.

Counts follow the operators; activation bytes follow Korthikanti et al. 2022 (arXiv 2205.05198), eq. 1-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.operators import Block, Matmul, Saved, Vector


@dataclass(frozen=True)
class DecoderTransformer:
    """A decoder-only transformer.

    layers, hidden, heads, kv_heads, head_dim, ffn   sizes; kv_heads = heads is MHA, 1 is MQA, else GQA
    gated        the MLP has gate, up and down matrices (SwiGLU, GEGLU) instead of up and down
    vocabulary   as published; `vocabulary_multiple` pads it for sharding (1: not padded)
    positions    "learned" (a table of `max_sequence` rows), "rotary", "alibi"
    tied         head and input embedding are one tensor
    norm         "layernorm" (weight and bias) or "rmsnorm" (weight)
    biases       "all" linear layers, "qkv" only, or "none"
    parallel_block   attention and MLP read the same norm and are summed (PaLM): one reduction, one norm
    embedding_norm   a norm after the embedding (BLOOM)
    dropout      keeps dropout masks for the backward pass
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
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    biases: Literal["all", "qkv", "none"] = "all"
    parallel_block: bool = False
    embedding_norm: bool = False
    dropout: bool = True
    vocabulary_multiple: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        problems = []
        for name in ("layers", "hidden", "heads", "ffn", "vocabulary", "max_sequence", "vocabulary_multiple"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                problems.append(f"{name}: found {value!r}, allowed: a whole number >= 1")
        for name in ("kv_heads", "head_dim"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                problems.append(f"{name}: found {value!r}, allowed: a whole number >= 1, or 0 for the default")
        choices = {
            "positions": ("learned", "rotary", "alibi"),
            "norm": ("layernorm", "rmsnorm"),
            "biases": ("all", "qkv", "none"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                problems.append(f"{name}: found {getattr(self, name)!r}, allowed: {', '.join(allowed)}")
        if problems:
            raise ValueError("; ".join(problems))
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.hidden % self.heads:
            problems.append(f"hidden % heads: {self.hidden} % {self.heads} != 0 (give head_dim)")
        if self.heads % self.kv_heads:
            problems.append(f"heads % kv_heads: {self.heads} % {self.kv_heads} != 0")
        if problems:
            raise ValueError("; ".join(problems))
        object.__setattr__(self, "head_dim", self.head_dim or self.hidden // self.heads)

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding table after padding."""
        return -(-self.vocabulary // self.vocabulary_multiple) * self.vocabulary_multiple

    def divisors(self) -> dict[str, int]:
        """What the tensor degree must divide."""
        return {"heads": self.heads, "ffn": self.ffn}

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        """Embedding, decoder block and head for samples of `sequence` tokens."""
        return (self._embedding(sequence), self._decoder(sequence), self._head(sequence))

    def _norm_parameters(self) -> int:
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def _embedding(self, sequence: int) -> Block:
        table = self.padded_vocabulary * self.hidden
        positions = self.max_sequence * self.hidden if self.positions == "learned" else 0
        norm = self._norm_parameters() if self.embedding_norm else 0
        elements = sequence * self.hidden
        vectors = [
            # gather rows; the gradient is added into the (fp32) table rows
            Vector("look-up", elements, reads=1, writes=1, backward_reads=3, backward_writes=2, split="sequence")
        ]
        if positions:
            vectors.append(Vector("positions", elements, reads=1, writes=1, split="sequence"))
        if norm:
            vectors.append(Vector("embedding norm", elements, operations=8, backward_operations=16, split="sequence"))
        if self.dropout:
            vectors.append(Vector("dropout", elements, reads=1, writes=1.5, backward_reads=1.5, split="sequence"))
        return Block(
            name="embedding",
            count=1,
            place="first",
            matmuls=(),
            vectors=tuple(vectors),
            parameters=table + positions + norm,
            parameters_split=table,
            reductions=1,
            boundary=elements,
            saved=Saved(sequence=elements if self.dropout else 0, tensor=0, core=0, statistics=0, input=0),
            kernels=len(vectors) + 1,
            recomputed=False,
        )

    def _decoder(self, sequence: int) -> Block:
        s, h, d = sequence, self.hidden, self.head_dim
        query, key_value = self.heads * d, 2 * self.kv_heads * d
        matrices = 2 if self.gated else 1
        matmuls = (
            Matmul("qkv", s, query, h, split="n", n_groups=self.kv_heads, n_group_width=2 * d),
            Matmul("scores", s, s, d, groups=self.heads, split="groups", weight=False, core=True, resident="c"),
            Matmul("context", s, d, s, groups=self.heads, split="groups", weight=False, core=True, resident="a"),
            Matmul("projection", s, h, query, split="k"),
            Matmul("up", s, matrices * self.ffn, h, split="n"),
            Matmul("down", s, h, self.ffn, split="k"),
        )
        norms = 1 if self.parallel_block else 2
        scores = self.heads * s * s
        mask = 0.5 if self.dropout else 0.0
        vectors = [
            Vector("norm", norms * s * h, operations=8, backward_operations=16, split="sequence"),
            # forward drops out and adds; backward adds the two branches' gradients and applies the mask
            Vector(
                "residual", norms * s * h, reads=2, writes=1 + mask,
                backward_reads=3 + mask if self.dropout else 2, backward_writes=2 if self.dropout else 1,
                split="sequence",
            ),
            Vector(
                "activation", self.ffn * s, reads=matrices, writes=1,
                backward_reads=matrices + 1, backward_writes=matrices, operations=8, backward_operations=12,
                split="tensor",
            ),
            # scale, mask and softmax are one kernel, dropout a second one
            Vector(
                "softmax", scores, reads=2 if self.dropout else 1, writes=2 + mask if self.dropout else 1,
                backward_reads=3 + mask if self.dropout else 2, backward_writes=2 if self.dropout else 1,
                operations=6, backward_operations=4, split="tensor", core=True,
            ),
        ]
        if self.positions == "rotary":
            vectors.append(
                Vector("rotary", s * (query + key_value // 2), backward_reads=1, operations=4, split="tensor")
            )
        mlp_columns = matrices * self.ffn
        linear = h * query + query * h + h * mlp_columns + self.ffn * h
        grouped = h * key_value
        split_bias = {"all": query + mlp_columns, "qkv": query, "none": 0}[self.biases]
        grouped_bias = 0 if self.biases == "none" else key_value
        whole_bias = 2 * h if self.biases == "all" else 0
        parameters = linear + grouped + split_bias + grouped_bias + whole_bias + norms * self._norm_parameters()
        dropout_bytes = 1 if self.dropout else 0
        # inputs of the norms (2 B), one-byte dropout masks of attention and MLP, and the norms' outputs, which
        # feed qkv and the first MLP matrix and are split by sequence parallelism like their inputs
        kept_sequence = norms * 2 * s * h + 2 * dropout_bytes * s * h + norms * 2 * s * h
        # query, key, value; attention output; MLP internals
        kept_tensor = 2 * s * (query + key_value) + 2 * s * query + 2 * s * (mlp_columns + self.ffn)
        return Block(
            name="block",
            count=self.layers,
            place="body",
            matmuls=matmuls,
            vectors=tuple(vectors),
            parameters=parameters,
            parameters_split=linear + split_bias,
            parameters_grouped=grouped + grouped_bias,
            group_count=self.kv_heads,
            reductions=1 if self.parallel_block else 2,
            boundary=s * h,
            saved=Saved(
                sequence=kept_sequence,
                tensor=kept_tensor,
                # softmax output, dropout mask, dropout output; without dropout the first is the last
                core=(5 if self.dropout else 2) * scores,
                statistics=4 * self.heads * s,
                input=2 * s * h,
            ),
            kernels=len(matmuls) + len(vectors) + (2 if self.dropout else 0) + 2,
        )

    def _head(self, sequence: int) -> Block:
        s, h, vocabulary = sequence, self.hidden, self.padded_vocabulary
        return Block(
            name="head",
            count=1,
            place="last",
            matmuls=(Matmul("logits", s, vocabulary, h, split="n"),),
            vectors=(
                Vector("final norm", s * h, operations=8, backward_operations=16, split="sequence"),
                # cross-entropy: logits to fp32, maximum and sum, gradient in place
                Vector(
                    "loss", s * vocabulary, reads=3, writes=2, backward_reads=2, backward_writes=1,
                    operations=6, backward_operations=3, split="tensor",
                ),
            ),
            # a tied head stores a copy of the table only where the pipeline puts it on another stage
            parameters=vocabulary * h + self._norm_parameters(),
            parameters_split=vocabulary * h,
            reductions=1,
            boundary=0,
            # final norm and head inputs, fp32 logits and their gradient-to-be
            saved=Saved(sequence=2 * s * h + 2 * s * h, tensor=4 * s * vocabulary, core=0, statistics=0, input=0),
            kernels=6,
            shared_parameters=vocabulary * h if self.tied else 0,
            recomputed=False,
        )
