"""A small mixture of experts, with a shared MLP and a dense layer, that many degrees divide."""

from __future__ import annotations

from conftest import small_network

DEVICES, BATCH, SEQUENCE = 24, 24, 48
#: Eight experts of which a token meets two, a shared MLP, and a leading dense layer.
MIXTURE = small_network(
    layers=6, hidden=64, heads=8, ffn=192, vocabulary=64, gated=True, experts=8, experts_per_token=2, expert_ffn=32,
    shared_ffn=64, lead_layers=1,
)  # fmt: skip
