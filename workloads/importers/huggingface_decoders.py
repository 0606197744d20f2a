"""Decoder-only language models of the transformers library: what each key of config.json means for the builder.

One function a family of model types; it reads keys (with the library's defaults) and gives the fields of
`DecoderTransformer`.  Counts equal the library's: docs/importers.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workloads.importers.huggingface_sizes import (
    Fields,
    Notes,
    biases_of,
    dropout_of,
    gated_of,
    head_dim_of,
    key_value_heads_of,
    rotated_of,
    sizes_of,
    window_of,
)
from workloads.importers.reading import Keys, shown

# Llama and its kin -------------------------------------------------------------------------------------------------


def _llama_kin(
    c: Keys, notes: Notes, *, vocabulary: int, hidden: int, ffn: int, layers: int, heads: int, kv: int | None = None,
    positions: int = 2048, head_dim: int = 0, tied: bool = False, attention_bias: bool | None = False,
    mlp_bias: bool | None = None, qk_norm: bool = False, norms: int = 0, biases: str = "none", window: Any = None,
) -> Fields:  # fmt: skip
    """Norm, rotary grouped-query attention, gated MLP.  A bias of None is no key of the type."""
    found = sizes_of(c, vocabulary=vocabulary, hidden=hidden, ffn=ffn, layers=layers, heads=heads, positions=positions)
    key_value_heads_of(c, found, kv)
    head_dim_of(c, found, head_dim)
    gated_of(found, c, tied=tied)
    attention = c.flag("attention_bias", attention_bias) if attention_bias is not None else False
    mlp = c.flag("mlp_bias", mlp_bias) if mlp_bias is not None else False
    word = biases if biases != "none" else biases_of(attention, attention, mlp)
    if word is None:
        c.wrong("mlp_bias", "true", "false without attention_bias")
    found |= {"biases": word or "none", "qk_norm": qk_norm, "norms": norms}
    window_of(c, notes, window)
    return found


def llama(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(c, notes, vocabulary=32000, hidden=4096, ffn=11008, layers=32, heads=32, mlp_bias=False)


def mistral(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(
        c, notes, vocabulary=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv=8, positions=131072,
        attention_bias=None, window=4096,
    )  # fmt: skip


def mixtral(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=32000, hidden=4096, ffn=14336, layers=32, heads=32, kv=8, positions=131072,
        attention_bias=None,
    )  # fmt: skip
    return found | _experts(c, "num_local_experts", 8, "num_experts_per_tok", 2)


def qwen2(c: Keys, notes: Notes) -> Fields:
    c.get("max_window_layers", 28)
    found = _llama_kin(
        c, notes, vocabulary=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv=32, positions=32768,
        attention_bias=None, biases="qkv",
    )  # fmt: skip
    return found


def qwen2_moe(c: Keys, notes: Notes) -> Fields:
    biases = "qkv" if c.flag("qkv_bias", True) else "none"
    found = _llama_kin(
        c, notes, vocabulary=151936, hidden=2048, ffn=5632, layers=24, heads=16, kv=16, positions=32768,
        attention_bias=None, biases=biases,
    )  # fmt: skip
    found |= _experts(c, "num_experts", 60, "num_experts_per_tok", 4)
    found["expert_ffn"] = c.whole("moe_intermediate_size", 1408)
    found |= {"shared_ffn": c.whole("shared_expert_intermediate_size", 5632), "shared_gate": True}
    return found | _sparse_layers(c, found["layers"])


def qwen3(c: Keys, notes: Notes) -> Fields:
    c.get("max_window_layers", 28)
    return _llama_kin(
        c, notes, vocabulary=151936, hidden=4096, ffn=22016, layers=32, heads=32, kv=32, positions=32768,
        head_dim=128, qk_norm=True,
    )  # fmt: skip


def qwen3_moe(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=151936, hidden=2048, ffn=6144, layers=24, heads=32, kv=4, positions=32768, qk_norm=True,
    )  # fmt: skip
    found |= _experts(c, "num_experts", 128, "num_experts_per_tok", 8)
    found["expert_ffn"] = c.whole("moe_intermediate_size", 768)
    return found | _sparse_layers(c, found["layers"])


def gemma(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(
        c, notes, vocabulary=256000, hidden=3072, ffn=24576, layers=28, heads=16, kv=16, positions=8192, head_dim=256,
        tied=True,
    )  # fmt: skip


def gemma2(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(
        c, notes, vocabulary=256000, hidden=2304, ffn=9216, layers=26, heads=8, kv=4, positions=8192, head_dim=256,
        tied=True, norms=4, window=4096,
    )  # fmt: skip


def gemma3(c: Keys, notes: Notes) -> Fields:
    c.must("use_bidirectional_attention", False, why="the importer knows the causal model")
    return _llama_kin(
        c, notes, vocabulary=262208, hidden=2304, ffn=9216, layers=26, heads=8, kv=4, positions=131072, head_dim=256,
        tied=True, norms=4, qk_norm=True, window=4096,
    )  # fmt: skip


def phi3(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=32064, hidden=3072, ffn=8192, layers=32, heads=32, positions=4096, attention_bias=None,
    )  # fmt: skip
    rotated_of(c, found, 1.0)
    return found


def granite(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(c, notes, vocabulary=32000, hidden=4096, ffn=11008, layers=32, heads=32, mlp_bias=False)


def smollm3(c: Keys, notes: Notes) -> Fields:
    return _llama_kin(
        c, notes, vocabulary=128256, hidden=2048, ffn=11008, layers=36, heads=16, kv=4, positions=32768, tied=True,
        mlp_bias=False,
    )  # fmt: skip


def olmo(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(c, notes, vocabulary=50304, hidden=4096, ffn=11008, layers=32, heads=32)
    return found | {"norm": "layernorm_plain"}


def olmo2(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(c, notes, vocabulary=50304, hidden=4096, ffn=11008, layers=32, heads=32, qk_norm=True)
    return found | {"qk_norm_whole": True}


def olmo3(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=50304, hidden=4096, ffn=11008, layers=32, heads=32, qk_norm=True, window=4096,
    )  # fmt: skip
    return found | {"qk_norm_whole": True}


def olmoe(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=50304, hidden=2048, ffn=2048, layers=16, heads=16, positions=4096, qk_norm=True,
    )  # fmt: skip
    return found | _experts(c, "num_experts", 64, "num_experts_per_tok", 8) | {"qk_norm_whole": True}


def gpt_oss(c: Keys, notes: Notes) -> Fields:
    c.must("attention_bias", True)
    found = _llama_kin(
        c, notes, vocabulary=201088, hidden=2880, ffn=2880, layers=36, heads=64, kv=8, positions=131072, head_dim=64,
        attention_bias=None, biases="all", window=128,
    )  # fmt: skip
    return found | _experts(c, "num_local_experts", 128, "num_experts_per_tok", 4) | {"sinks": True}


def cohere(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(c, notes, vocabulary=256000, hidden=8192, ffn=22528, layers=40, heads=64, positions=8192,
                       tied=True)  # fmt: skip
    normed = c.flag("use_qk_norm", False)
    return found | {"norm": "layernorm_weight", "parallel_block": True, "qk_norm": normed, "qk_norm_whole": normed}


def stablelm(c: Keys, notes: Notes) -> Fields:
    biases = "qkv" if c.flag("use_qkv_bias", False) else "none"
    found = _llama_kin(
        c, notes, vocabulary=50304, hidden=2560, ffn=6912, layers=32, heads=32, kv=32, positions=4096,
        attention_bias=None, biases=biases,
    )  # fmt: skip
    c.must("qk_layernorm", False)
    rotated_of(c, found, 0.25)
    return found | {"norm": "layernorm", "parallel_block": c.flag("use_parallel_residual", False)}


def nemotron(c: Keys, notes: Notes) -> Fields:
    found = _llama_kin(
        c, notes, vocabulary=256000, hidden=6144, ffn=24576, layers=32, heads=48, positions=4096, mlp_bias=False,
    )  # fmt: skip
    rotated_of(c, found, 0.5)
    return found | {"norm": "layernorm", "gated": False}


# Experts -----------------------------------------------------------------------------------------------------------


def _experts(c: Keys, count: str, number: int, chosen: str, each: int | None) -> Fields:
    experts = c.whole(count, number, "num_local_experts", "num_experts", most=100_000)
    return {"experts": experts, "experts_per_token": c.whole(chosen, each, most=max(experts, 1))}


def _sparse_layers(c: Keys, layers: int) -> Fields:
    """Layers of experts must be all but leading ones."""
    c.must("decoder_sparse_step", 1, why="only leading layers may be dense")
    dense = c.get("mlp_only_layers", [])
    if not isinstance(dense, list) or sorted(map(repr, dense)) != sorted(map(repr, range(len(dense)))):
        c.wrong("mlp_only_layers", shown(dense), "leading layers: [], [0], [0, 1], ...")
        return {}
    if len(dense) >= layers:
        c.wrong("mlp_only_layers", f"{len(dense)} layers", f"fewer than {layers}")
    return {"lead_layers": len(dense)}


def deepseek_v2(c: Keys, notes: Notes) -> Fields:
    return _latent(
        c, notes, vocabulary=102400, hidden=4096, ffn=11008, moe=1407, layers=32, heads=32, experts=64, chosen=None,
        shared=2, lead=0,
    )  # fmt: skip


def deepseek_v3(c: Keys, notes: Notes) -> Fields:
    if c.get("num_nextn_predict_layers", 0):
        notes.append("layers of multi-token prediction are left out, as in the library's own model")
    c.get("scoring_func", "sigmoid")
    return _latent(
        c, notes, vocabulary=129280, hidden=7168, ffn=18432, moe=2048, layers=61, heads=128, experts=256, chosen=8,
        shared=1, lead=3,
    )  # fmt: skip


def _latent(
    c: Keys, notes: Notes, *, vocabulary: int, hidden: int, ffn: int, moe: int, layers: int, heads: int, experts: int,
    chosen: int | None, shared: int, lead: int,
) -> Fields:  # fmt: skip
    """Latent attention, shared and routed experts after `first_k_dense_replace` dense layers."""
    found = sizes_of(c, vocabulary=vocabulary, hidden=hidden, ffn=ffn, layers=layers, heads=heads)
    c.get("num_key_value_heads", heads)
    gated_of(found, c, tied=False)
    c.must("attention_bias", False, why="latent attention is built without biases")
    c.must("mlp_bias", False)
    c.must("moe_layer_freq", 1, why="only leading layers may be dense")
    found |= {
        "biases": "none",
        "head_dim": c.whole("qk_nope_head_dim", 128),
        "rotary_dim": c.whole("qk_rope_head_dim", 64),
        "value_dim": c.whole("v_head_dim", 128),
        "key_value_rank": c.whole("kv_lora_rank", 512),
        # null is a full query projection here, no default
        "query_rank": 0 if c.is_null("q_lora_rank") else c.whole("q_lora_rank", 1536),
    }
    width = c.whole("moe_intermediate_size", moe)
    dense = c.whole("first_k_dense_replace", lead, least=0)
    if dense >= found["layers"]:
        c.wrong("first_k_dense_replace", str(dense), f"less than {found['layers']} (num_hidden_layers)")
    return found | _experts(c, "n_routed_experts", experts, "num_experts_per_tok", chosen) | {
        "expert_ffn": width, "shared_ffn": width * c.whole("n_shared_experts", shared, least=0), "lead_layers": dense,
    }  # fmt: skip


# GPT and its kin ---------------------------------------------------------------------------------------------------

GPT_NAMES = {"hidden": "n_embd", "ffn": "n_inner", "layers": "n_layer", "heads": "n_head", "positions": "n_positions"}


def gpt2(c: Keys, notes: Notes) -> Fields:
    c.must("add_cross_attention", False, why="the importer knows decoders alone")
    found = sizes_of(c, vocabulary=50257, hidden=768, ffn=None, layers=12, heads=12, positions=1024, names=GPT_NAMES)
    return found | {"tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c, 0.1)}


def gpt_bigcode(c: Keys, notes: Notes) -> Fields:
    found = gpt2(c, notes)
    return found | {"kv_heads": 1 if c.flag("multi_query", True) else found["heads"]}


def gpt_neo(c: Keys, notes: Notes) -> Fields:
    names = {"layers": "num_layers", "heads": "num_heads"}
    found = sizes_of(c, vocabulary=50257, hidden=2048, ffn=None, layers=24, heads=16, names=names)
    c.get("attention_layers", None)
    if "local" in str(c.get("attention_types", [[["global", "local"], 12]]))[:1000]:
        size = c.whole("window_size", 256)
        notes.append(f"layers of local attention ({size} tokens) are counted as attention to all tokens")
    return found | {
        "biases": "projection_mlp", "tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c),
    }  # fmt: skip


def gpt_neox(c: Keys, notes: Notes) -> Fields:
    found = sizes_of(c, vocabulary=50432, hidden=6144, ffn=24576, layers=44, heads=64)
    parallel = c.flag("use_parallel_residual", True)
    biased = c.flag("attention_bias", True)
    rotated_of(c, found, 0.25, "rotary_pct")
    return found | {
        "positions": "rotary", "parallel_block": parallel, "norms": 2, "tied": c.flag("tie_word_embeddings", False),
        "biases": "all" if biased else "mlp", "dropout": dropout_of(c),
    }  # fmt: skip


def gptj(c: Keys, notes: Notes) -> Fields:
    found = sizes_of(c, vocabulary=50400, hidden=4096, ffn=None, layers=28, heads=16, names=GPT_NAMES)
    width = found["hidden"] // found["heads"]
    turned = c.whole("rotary_dim", 64, least=0)
    return found | {
        "positions": "rotary", "parallel_block": True, "biases": "mlp", "head_bias": True,
        "rotary_dim": turned if turned < width else 0, "tied": c.flag("tie_word_embeddings", False),
        "dropout": dropout_of(c),
    }  # fmt: skip


def phi(c: Keys, notes: Notes) -> Fields:
    found = sizes_of(c, vocabulary=51200, hidden=2048, ffn=8192, layers=24, heads=32)
    key_value_heads_of(c, found)
    rotated_of(c, found, 0.5)
    normed = c.flag("qk_layernorm", False)
    return found | {
        "positions": "rotary", "parallel_block": True, "head_bias": True, "qk_norm": normed,
        "tied": c.flag("tie_word_embeddings", False), "dropout": dropout_of(c),
    }  # fmt: skip


def opt(c: Keys, notes: Notes) -> Fields:
    found = sizes_of(c, vocabulary=50272, hidden=768, ffn=3072, layers=12, heads=12, names={"ffn": "ffn_dim"})
    before = c.flag("do_layer_norm_before", True)
    affine = c.flag("layer_norm_elementwise_affine", True)
    width = c.whole("word_embed_proj_dim", found["hidden"])
    # the table of positions has two more rows: positions count from the padding token
    found["max_sequence"] += 2
    return found | {
        "biases": "all" if c.flag("enable_bias", True) else "none",
        "norm": "layernorm" if affine else "layernorm_plain",
        "final_norm": before and not c.flag("_remove_final_layer_norm", False),
        "embedding_dim": width if width != found["hidden"] else 0,
        "tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c, 0.1),
    }  # fmt: skip


def bloom(c: Keys, notes: Notes) -> Fields:
    names = {"hidden": "hidden_size", "layers": "n_layer", "heads": "n_head"}
    found = sizes_of(c, vocabulary=250880, hidden=c.whole("n_embed", 64), ffn=None, layers=2, heads=8, names=names)
    found["ffn"] = 4 * found["hidden"]
    return found | {
        "positions": "alibi", "embedding_norm": True, "tied": c.flag("tie_word_embeddings", True),
        "dropout": dropout_of(c),
    }  # fmt: skip


def falcon(c: Keys, notes: Notes) -> Fields:
    names = {"ffn": "ffn_hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}
    found = sizes_of(c, vocabulary=65024, hidden=4544, ffn=None, layers=c.whole("n_layer", 32),
                   heads=c.whole("n_head", 71), names=names)  # fmt: skip
    new = c.flag("new_decoder_architecture", False)
    shared = c.flag("multi_query", True)
    given = c.whole("num_kv_heads", found["heads"], "n_head_kv")
    parallel = c.flag("parallel_attn", True) or new
    two = new and c.whole("num_ln_in_parallel_attn", 2) == 2
    return found | {
        "kv_heads": given if new else (1 if shared else found["heads"]),
        "positions": "alibi" if c.flag("alibi", False) else "rotary",
        "biases": "all" if c.flag("bias", False) else "none",
        "parallel_block": parallel, "norms": 2 if two or not parallel else 1,
        "tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c),
    }  # fmt: skip


def mpt(c: Keys, notes: Notes) -> Fields:
    names = {"hidden": "d_model", "layers": "n_layers", "heads": "n_heads", "positions": "max_seq_len"}
    found = sizes_of(c, vocabulary=50368, hidden=2048, ffn=None, layers=24, heads=16, names=names)
    found["ffn"] = found["hidden"] * c.whole("expansion_ratio", 4, most=1000)
    c.must("no_bias", True, why="the library builds it without biases")
    attention = c.inner("attn_config")
    attention.must("alibi", True, why="the library builds it with alibi positions alone")
    attention.must("qk_ln", False)
    attention.must("attn_type", "multihead_attention", why="the library builds it with as many heads of keys")
    return found | {
        "positions": "alibi", "norm": "layernorm_weight", "biases": "none",
        "tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c),
    }  # fmt: skip


def starcoder2(c: Keys, notes: Notes) -> Fields:
    found = sizes_of(c, vocabulary=49152, hidden=3072, ffn=12288, layers=30, heads=24, positions=4096)
    key_value_heads_of(c, found, 2)
    head_dim_of(c, found)
    window_of(c, notes)
    return found | {
        "positions": "rotary", "biases": "all" if c.flag("use_bias", True) else "none",
        "tied": c.flag("tie_word_embeddings", True), "dropout": dropout_of(c, 0.1),
    }  # fmt: skip


#: What reads a model type.
DECODERS: dict[str, Callable[[Keys, Notes], Fields]] = {
    "bloom": bloom, "codegen": gptj, "cohere": cohere, "deepseek_v2": deepseek_v2, "deepseek_v3": deepseek_v3,
    "falcon": falcon, "gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3, "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode, "gpt_neo": gpt_neo, "gpt_neox": gpt_neox, "gpt_oss": gpt_oss, "gptj": gptj,
    "granite": granite, "llama": llama, "mistral": mistral, "mixtral": mixtral, "mpt": mpt, "nemotron": nemotron,
    "olmo": olmo, "olmo2": olmo2, "olmo3": olmo3, "olmoe": olmoe, "opt": opt, "phi": phi, "phi3": phi3, "qwen2": qwen2,
    "qwen2_moe": qwen2_moe, "qwen3": qwen3, "qwen3_moe": qwen3_moe, "smollm3": smollm3, "stablelm": stablelm,
    "starcoder2": starcoder2,
}  # fmt: skip
