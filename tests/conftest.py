"""What several test files share: a small network and the chips and clusters it runs on."""

from __future__ import annotations

from typing import Any

from hw_models.chip import Chip
from hw_models.devices import chip
from workloads.transformer import DecoderTransformer


def small_network(**changes: Any) -> DecoderTransformer:
    """A decoder small enough that everything about it can be written down."""
    sizes: dict[str, Any] = {
        "layers": 4,
        "hidden": 32,
        "heads": 4,
        "ffn": 128,
        "vocabulary": 64,
        "positions": "rotary",
        "tied": False,
        "biases": "none",
        "norm": "rmsnorm",
        "dropout": False,
    }
    return DecoderTransformer("small", **{**sizes, **changes})


def a100() -> Chip:
    return chip("a100-sxm-80gb")
