"""Sizes, biases and attention that the configurations of decoders state, under their several names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.importers.reading import Keys, shown

__all__ = [
    "Fields", "Notes", "biases_of", "dropout_of", "gated_of", "head_dim_of", "key_value_heads_of", "rotated_of",
    "sizes_of", "window_of",
]  # fmt: skip

Fields = dict[str, Any]
#: What is counted otherwise than the model computes; shown to the person who imports it.
Notes = list[str]

#: Keys of a dropout probability, by any family.
DROPOUTS = (
    "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "emb_pdrop", "attn_pdrop", "resid_dropout",
    "embed_dropout", "dropout", "residual_dropout", "embedding_dropout", "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)  # fmt: skip


def biases_of(qkv: bool, projection: bool, mlp: bool) -> str | None:
    """The word of the builder for which linear layers have a bias; None: it has none."""
    words = {
        (True, True, True): "all", (True, True, False): "attention", (True, False, False): "qkv",
        (False, True, True): "projection_mlp", (False, False, True): "mlp", (False, False, False): "none",
    }  # fmt: skip
    return words.get((qkv, projection, mlp))


def dropout_of(c: Keys, default: float = 0.0) -> bool:
    """Whether masks are kept: any probability above zero."""
    given = [c.number(key, 0.0) for key in DROPOUTS if c.has(key)]
    return any(p > 0.0 for p in given) if given else default > 0.0


def sizes_of(
    c: Keys, *, vocabulary: int, hidden: int, ffn: int | None, layers: int, heads: int, positions: int = 2048,
    names: Mapping[str, str] | None = None,
) -> Fields:  # fmt: skip
    """Sizes every decoder has, under the usual names or those of `names`; the numbers are the library's defaults."""
    named = {
        "hidden": "hidden_size", "ffn": "intermediate_size", "layers": "num_hidden_layers",
        "heads": "num_attention_heads", "positions": "max_position_embeddings",
    } | dict(names or {})  # fmt: skip
    found: Fields = {
        "vocabulary": c.whole("vocab_size", vocabulary),
        "hidden": c.whole(named["hidden"], hidden, "hidden_size"),
        "layers": c.whole(named["layers"], layers, "num_hidden_layers", most=10_000),
        "heads": c.whole(named["heads"], heads, "num_attention_heads", most=100_000),
        "max_sequence": c.whole(named["positions"], positions, "max_position_embeddings"),
    }
    # a width that follows from hidden where none is given
    given = c.get(named["ffn"], ffn)
    found["ffn"] = 4 * found["hidden"] if given is None else c.whole(named["ffn"], ffn)
    return found


def key_value_heads_of(c: Keys, found: Fields, default: int | None = None) -> None:
    """Those of queries where the file says null; the library's default where it says nothing."""
    missing = found["heads"] if c.is_null("num_key_value_heads") else default or found["heads"]
    found["kv_heads"] = c.whole("num_key_value_heads", missing, most=100_000)


def head_dim_of(c: Keys, found: Fields, default: int = 0) -> None:
    size = c.whole("head_dim", 0 if c.is_null("head_dim") else default, least=0)
    if size:
        found["head_dim"] = size


def rotated_of(c: Keys, found: Fields, default: float, key: str = "partial_rotary_factor") -> None:
    """Columns of a head that rotate."""
    parameters = c.get("rope_parameters", {})
    inside = parameters.get("partial_rotary_factor") if isinstance(parameters, dict) else None
    share = c.number(key, inside if isinstance(inside, (int, float)) else default)
    if share > 1.0:
        c.wrong(key, shown(share), "at most 1")
    width = found.get("head_dim") or found["hidden"] // found["heads"]
    found["rotary_dim"] = int(width * share) if share < 1.0 else 0


def window_of(c: Keys, notes: Notes, default: Any = None) -> None:
    """Sliding windows are noted: attention is counted as a full square, as everywhere here."""
    used = c.flag("use_sliding_window", True)
    size = None if c.is_null("sliding_window") else c.get("sliding_window", default)
    if size and used:
        c.whole("sliding_window", default)
        notes.append(f"a sliding window of {size} tokens is counted as attention to all tokens")


def gated_of(found: Fields, c: Keys, *, tied: bool, norm: str = "rmsnorm") -> None:
    """What Llama and its kin share: gated MLP, rotary positions, a head of its own or not."""
    found |= {
        "gated": True, "positions": "rotary", "norm": norm, "tied": c.flag("tie_word_embeddings", tied),
        "dropout": dropout_of(c),
    }  # fmt: skip
