"""Decoder transformers: one builder for GPT, OPT, BLOOM, PaLM, Llama, Nemotron, Mixtral, Qwen and DeepSeek shapes.

Counts follow the operators; activation bytes follow Korthikanti et al. 2022 (arXiv 2205.05198), eq. 1-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.decoder import Decoder
from workloads.operators import Block, Matmul, Saved, Vector
from workloads.parts import (
    Part,
    attention_sizes,
    dense_mlp,
    grouped_attention,
    latent_attention,
    norm_parameters,
    routed_experts,
)


@dataclass(frozen=True)
class DecoderTransformer(Decoder):
    """A decoder-only transformer: its fields are those of `Decoder`, its blocks follow from them."""

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        """Embedding, leading dense layers if any, decoder block and head for samples of `sequence` tokens."""
        lead, count = self.lead_layers, self.layers - self.lead_layers
        dense = dense_mlp(self, sequence, self.ffn)
        mlp = routed_experts(self, sequence) if self.experts else dense
        before = (self._layer(sequence, dense, "dense block", place="lead", count=lead),) if lead else ()
        body = self._layer(sequence, mlp, "block", place="body", count=count)
        return (self._embedding(sequence), *before, body, self._head(sequence))

    def _norm_parameters(self) -> int:
        return norm_parameters(self, self.hidden)

    def _embedding(self, sequence: int) -> Block:
        width = self.embedding_dim or self.hidden
        table = self.padded_vocabulary * width
        widened = Matmul("embedding projection", sequence, self.hidden, width)
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
            matmuls=(widened,) if self.embedding_dim else (),
            vectors=tuple(vectors),
            parameters=table + positions + norm + (width * self.hidden if self.embedding_dim else 0),
            parameters_split=table,
            reductions=1,
            boundary=elements,
            # a dropout mask, and what the projection read
            saved=Saved(
                sequence=(elements if self.dropout else 0) + 2 * sequence * self.embedding_dim,
                tensor=0, core=0, statistics=0, input=0,
            ),
            kernels=len(vectors) + 1 + bool(self.embedding_dim),
            recomputed=False,
        )

    def _layer(self, sequence: int, mlp: Part, name: str, *, place: Literal["lead", "body"], count: int) -> Block:
        """A layer: norms and residuals around attention and `mlp`."""
        s, h = sequence, self.hidden
        core = attention_sizes(self, s)
        attention = latent_attention(self, s) if self.key_value_rank else grouped_attention(self, s)
        sums = 1 if self.parallel_block else 2
        norms = self.norms or sums
        matmuls = (*attention.matmuls, *mlp.matmuls)
        mask = 0.5 if self.dropout else 0.0
        vectors = (
            Vector("norm", norms * s * h, operations=8, backward_operations=16, split="sequence"),
            # forward drops out and adds; backward adds the two branches' gradients and applies the mask
            Vector(
                "residual", sums * s * h, reads=2, writes=1 + mask,
                backward_reads=3 + mask if self.dropout else 2, backward_writes=2 if self.dropout else 1,
                split="sequence",
            ),
            *mlp.vectors,
            *attention.vectors,
        )
        copied = attention.copied + mlp.copied + norms * self._norm_parameters()
        split = attention.split + mlp.split
        # inputs of the norms (2 B; a parallel block's norms read one tensor), what feeds qkv and the first MLP matrix
        # (split by sequence parallelism like those), one-byte dropout masks of attention and MLP
        read = 1 + norms if self.parallel_block else norms + 2
        kept_sequence = read * 2 * s * h + (2 * s * h if self.dropout else 0)
        return Block(
            name=name,
            count=count,
            place=place,
            matmuls=matmuls,
            vectors=vectors,
            parameters=copied + split + attention.grouped + mlp.expert,
            parameters_split=split,
            parameters_grouped=attention.grouped,
            group_count=self.kv_heads,
            reductions=1 if self.parallel_block else 2,
            boundary=s * h,
            saved=Saved(
                sequence=kept_sequence + attention.kept_sequence + mlp.kept_sequence,
                tensor=attention.kept_tensor + mlp.kept_tensor,
                # softmax output, dropout mask, dropout output; without dropout the first is the last
                core=(5 if self.dropout else 2) * core.heads * s * s,
                statistics=4 * core.heads * s,
                input=2 * s * h,
            ),
            kernels=len(matmuls) + len(vectors) + (2 if self.dropout else 0) + 2 + attention.kernels + mlp.kernels,
            parameters_expert=mlp.expert,
            expert_count=self.experts if mlp.expert else 1,
            experts_per_token=self.experts_per_token if mlp.expert else 1,
            routed=mlp.routed,
            # ranks exchange keys and values as the core reads them
            context_exchange=s * core.key_value_heads * (core.head_dim + core.value_dim),
            causal=self.causal,
            attention=core,
        )

    def _head(self, sequence: int) -> Block:
        s, h, vocabulary = sequence, self.hidden, self.padded_vocabulary
        width = self.embedding_dim or h
        narrowed = (Matmul("head projection", s, width, h),) if self.embedding_dim else ()
        norm = (Vector("final norm", s * h, operations=8, backward_operations=16, split="sequence"),)
        bias = vocabulary if self.head_bias else 0
        return Block(
            name="head",
            count=1,
            place="last",
            matmuls=(*narrowed, Matmul("logits", s, vocabulary, width, split="n")),
            vectors=(
                *(norm if self.final_norm else ()),
                # cross-entropy: logits read; read again and their gradient written
                Vector(
                    "loss", s * vocabulary, reads=1, writes=0, backward_reads=1, backward_writes=1,
                    operations=6, backward_operations=3, split="tensor",
                ),
                # in fp32 (two elements of 2 B), one operation after the other: widened, maximum, difference,
                # exponential, sum, quotient; the gradient scaled and narrowed
                Vector(
                    "loss in steps", s * vocabulary, reads=10, writes=8, backward_reads=3, backward_writes=2,
                    operations=1, backward_operations=1, split="tensor", loss=True,
                ),
            ),
            # a tied head stores a copy of the table only where the pipeline puts it on another stage
            parameters=vocabulary * width + bias
            + (self._norm_parameters() if self.final_norm else 0) + (h * width if self.embedding_dim else 0),
            parameters_split=vocabulary * width + bias,
            reductions=1,
            boundary=0,
            # final norm and head inputs, fp32 logits and their gradient-to-be
            saved=Saved(
                sequence=2 * s * h * (1 + self.final_norm) + 2 * s * self.embedding_dim,
                tensor=4 * s * vocabulary, core=0, statistics=0, input=0,
            ),
            kernels=6 - (not self.final_norm) + bool(self.embedding_dim),
            shared_parameters=vocabulary * width if self.tied else 0,
            recomputed=False,
        )  # fmt: skip
