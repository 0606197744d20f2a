"""Decoder transformers: one builder for GPT, OPT, BLOOM, PaLM, Llama, Nemotron, Mixtral, Qwen and DeepSeek shapes.

Its layers are those of every graph (`workloads.layers`) and its blocks come from the same lowering: counts follow the
operators; activation bytes follow Korthikanti et al. 2022 (arXiv 2205.05198), eq. 1-4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from workloads.decoder import Decoder
from workloads.decoder_graph import decoder_graph
from workloads.graph import Graph
from workloads.lowering import lower
from workloads.operators import Block


@dataclass(frozen=True)
class DecoderTransformer(Decoder):
    """A decoder-only transformer: its fields are those of `Decoder`, its blocks follow from them."""

    def graph(self, sequence: int) -> Graph:
        """Its operators for a sample of `sequence` tokens, a layer a cell."""
        return decoder_graph(self, sequence)

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        """Embedding, leading dense layers if any, decoder layers and head for samples of `sequence` tokens."""
        return _lowered(self, sequence)


#: Networks and sequences whose blocks are kept: a search asks for those of each a few times a step.
KEPT = 256


@lru_cache(maxsize=KEPT)
def _lowered(net: DecoderTransformer, sequence: int) -> tuple[Block, ...]:
    """Blocks of a graph with one layer of each kind, counted as often as the network has them: the whole graph's."""
    lead = net.lead_layers
    short = replace(net, layers=1 + bool(lead), lead_layers=int(bool(lead)))
    counts = {"lead": lead, "body": net.layers - lead}
    return tuple(
        replace(block, count=counts.get(block.place, 1)) for block in lower(decoder_graph(short, sequence))
    )
