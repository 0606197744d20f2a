"""Parameters of real models as the transformers library counts them, for tests of the Hugging Face importer.

    python benchmarks/importer_counts.py            compare the committed table with the importer (nothing to install)
    python benchmarks/importer_counts.py --page     write both tables of docs/importers.md (counts, operators)
    python benchmarks/importer_counts.py --write    make configurations and counts anew (needs torch and transformers)

Models are built on torch's meta device, without weights; a tensor that two layers share counts once.  Sizes are those
of the released configurations; files are written by the library (`PretrainedConfig.to_json_string`).
Last written with transformers 5.24 and torch 2.14.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "data" / "huggingface"
TABLE = FOLDER / "counts.csv"
PAGE = ROOT / "docs" / "importers.md"
sys.path.insert(0, str(ROOT))
#: Keys that say nothing of sizes and change with every release of the library.
DROPPED = ("transformers_version", "_name_or_path", "output_attentions", "output_hidden_states", "return_dict")


def sizes(hidden: int, ffn: int, layers: int, heads: int, vocabulary: int, kv: int = 0, **other: Any) -> dict[str, Any]:
    """Sizes under the usual names."""
    found = {
        "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "vocab_size": vocabulary,
    }  # fmt: skip
    return found | ({"num_key_value_heads": kv} if kv else {}) | other


#: Name -> model type, class that is counted, keys that differ from the class's defaults.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama2-7b": ("llama", "LlamaForCausalLM", sizes(4096, 11008, 32, 32, 32000, max_position_embeddings=4096)),
    "llama3-8b": ("llama", "LlamaForCausalLM", sizes(4096, 14336, 32, 32, 128256, 8, max_position_embeddings=8192)),
    "llama3.1-405b": ("llama", "LlamaForCausalLM", sizes(16384, 53248, 126, 128, 128256, 8)),
    "llama3.2-1b": (
        "llama", "LlamaForCausalLM", sizes(2048, 8192, 16, 32, 128256, 8, head_dim=64, tie_word_embeddings=True),
    ),
    "tinyllama-1.1b": ("llama", "LlamaForCausalLM", sizes(2048, 5632, 22, 32, 32000, 4)),
    "mistral-7b": ("mistral", "MistralForCausalLM", {}),
    "mistral-nemo-12b": (
        "mistral", "MistralForCausalLM", sizes(5120, 14336, 40, 32, 131072, 8, head_dim=128, sliding_window=None),
    ),
    "mixtral-8x7b": ("mixtral", "MixtralForCausalLM", {}),
    "mixtral-8x22b": ("mixtral", "MixtralForCausalLM", sizes(6144, 16384, 56, 48, 32768, 8)),
    "qwen2.5-0.5b": ("qwen2", "Qwen2ForCausalLM", sizes(896, 4864, 24, 14, 151936, 2, tie_word_embeddings=True)),
    "qwen2.5-7b": ("qwen2", "Qwen2ForCausalLM", sizes(3584, 18944, 28, 28, 152064, 4)),
    "qwen1.5-moe-a2.7b": ("qwen2_moe", "Qwen2MoeForCausalLM", {}),
    "qwen3-0.6b": ("qwen3", "Qwen3ForCausalLM", sizes(1024, 3072, 28, 16, 151936, 8, tie_word_embeddings=True)),
    "qwen3-8b": ("qwen3", "Qwen3ForCausalLM", sizes(4096, 12288, 36, 32, 151936, 8)),
    "qwen3-30b-a3b": (
        "qwen3_moe", "Qwen3MoeForCausalLM", sizes(2048, 6144, 48, 32, 151936, 4, head_dim=128),
    ),
    "gemma-2b": ("gemma", "GemmaForCausalLM", sizes(2048, 16384, 18, 8, 256000, 1)),
    "gemma2-2b": ("gemma2", "Gemma2ForCausalLM", {}),
    "gemma2-9b": ("gemma2", "Gemma2ForCausalLM", sizes(3584, 14336, 42, 16, 256000, 8)),
    "gemma3-1b": ("gemma3_text", "Gemma3ForCausalLM", sizes(1152, 6912, 26, 4, 262144, 1)),
    "phi-1.5": ("phi", "PhiForCausalLM", {}),
    "phi-2": ("phi", "PhiForCausalLM", sizes(2560, 10240, 32, 32, 51200, partial_rotary_factor=0.4)),
    "phi3-mini": ("phi3", "Phi3ForCausalLM", {}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {}),
    "gpt2-xl": ("gpt2", "GPT2LMHeadModel", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "starcoderbase-15b": (
        "gpt_bigcode", "GPTBigCodeForCausalLM",
        {"n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576, "n_positions": 8192, "vocab_size": 49152},
    ),
    "gpt-neo-125m": (
        "gpt_neo", "GPTNeoForCausalLM",
        {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]},
    ),
    "gpt-neo-1.3b": ("gpt_neo", "GPTNeoForCausalLM", {}),
    "gpt-neox-20b": ("gpt_neox", "GPTNeoXForCausalLM", {}),
    "pythia-1b": ("gpt_neox", "GPTNeoXForCausalLM", sizes(2048, 8192, 16, 8, 50304)),
    "gpt-j-6b": ("gptj", "GPTJForCausalLM", {}),
    "codegen-350m": ("codegen", "CodeGenForCausalLM", {"n_embd": 1024, "n_layer": 20, "n_head": 16, "rotary_dim": 32,
                                                       "vocab_size": 51200}),
    "opt-125m": ("opt", "OPTForCausalLM", {}),
    "opt-350m": (
        "opt", "OPTForCausalLM",
        {"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
         "word_embed_proj_dim": 512, "do_layer_norm_before": False},
    ),
    "opt-6.7b": (
        "opt", "OPTForCausalLM",
        {"hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32, "num_attention_heads": 32,
         "word_embed_proj_dim": 4096},
    ),
    "bloom-560m": ("bloom", "BloomForCausalLM", {"hidden_size": 1024, "n_layer": 24, "n_head": 16}),
    "bloom-7.1b": ("bloom", "BloomForCausalLM", {"hidden_size": 4096, "n_layer": 30, "n_head": 32}),
    "falcon-7b": ("falcon", "FalconForCausalLM", {}),
    "falcon-40b": (
        "falcon", "FalconForCausalLM",
        {"hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
         "new_decoder_architecture": True},
    ),
    "falcon-rw-1b": (
        "falcon", "FalconForCausalLM",
        {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 50304, "alibi": True,
         "bias": True, "multi_query": False, "parallel_attn": False},
    ),
    "mpt-7b": ("mpt", "MptForCausalLM", {"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}),
    "starcoder2-3b": ("starcoder2", "Starcoder2ForCausalLM", {}),
    "olmo-7b": ("olmo", "OlmoForCausalLM", {}),
    "olmo2-7b": ("olmo2", "Olmo2ForCausalLM", sizes(4096, 11008, 32, 32, 100352)),
    "olmoe-1b-7b": ("olmoe", "OlmoeForCausalLM", sizes(2048, 1024, 16, 16, 50304)),
    "deepseek-v2-lite": (
        "deepseek_v2", "DeepseekV2ForCausalLM",
        sizes(2048, 10944, 27, 16, 102400, 16, q_lora_rank=None, moe_intermediate_size=1408, n_shared_experts=2,
              n_routed_experts=64, num_experts_per_tok=6, first_k_dense_replace=1),
    ),
    "deepseek-v2": (
        "deepseek_v2", "DeepseekV2ForCausalLM",
        sizes(5120, 12288, 60, 128, 102400, 128, q_lora_rank=1536, moe_intermediate_size=1536, n_shared_experts=2,
              n_routed_experts=160, num_experts_per_tok=6, first_k_dense_replace=1),
    ),
    "deepseek-v3": ("deepseek_v3", "DeepseekV3ForCausalLM", {}),
    "gpt-oss-20b": ("gpt_oss", "GptOssForCausalLM", {"num_hidden_layers": 24, "num_local_experts": 32}),
    "stablelm-3b": ("stablelm", "StableLmForCausalLM", {}),
    "smollm3-3b": ("smollm3", "SmolLM3ForCausalLM", {}),
    "command-r-35b": ("cohere", "CohereForCausalLM", {}),
    "granite-default": ("granite", "GraniteForCausalLM", {}),
    "olmo3-7b": ("olmo3", "Olmo3ForCausalLM", sizes(4096, 11008, 32, 32, 100278)),
    "minitron-8b": ("nemotron", "NemotronForCausalLM", sizes(4096, 16384, 32, 48, 256000, 8, head_dim=128)),
    "bert-base-classifier": ("bert", "BertForSequenceClassification", {"num_labels": 3}),
    "bert-base": ("bert", "BertForMaskedLM", {}),
    "bert-base-pretraining": ("bert", "BertForPreTraining", {}),
    "bert-large": ("bert", "BertForMaskedLM", sizes(1024, 4096, 24, 16, 30522)),
    "roberta-base": (
        "roberta", "RobertaForMaskedLM", {"max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 50265},
    ),
    "xlm-roberta-base": (
        "xlm-roberta", "XLMRobertaForMaskedLM",
        {"max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 250002},
    ),
    "distilbert-base": ("distilbert", "DistilBertForMaskedLM", {}),
    "camembert-base": (
        "camembert", "CamembertForMaskedLM",
        {"max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 32005},
    ),
    "mt5-small-tied": ("mt5", "MT5ForConditionalGeneration", {}),
    "umt5-small-tied": ("umt5", "UMT5ForConditionalGeneration", {}),
    "t5-small": ("t5", "T5ForConditionalGeneration", {}),
    "t5-base": (
        "t5", "T5ForConditionalGeneration", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    "t5-3b": (
        "t5", "T5ForConditionalGeneration",
        {"d_model": 1024, "d_ff": 16384, "num_layers": 24, "num_heads": 32, "d_kv": 128},
    ),
    "vit-base-16": ("vit", "ViTForImageClassification", {"num_labels": 1000}),
    "vit-large-16": ("vit", "ViTForImageClassification", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_labels": 1000}),
    "mamba-130m": ("mamba", "MambaForCausalLM", {"hidden_size": 768, "num_hidden_layers": 24}),
    "mamba-2.8b": ("mamba", "MambaForCausalLM", {"hidden_size": 2560, "num_hidden_layers": 64}),
    "mamba2-130m": (
        "mamba2", "Mamba2ForCausalLM",
        {"hidden_size": 768, "num_heads": 24, "num_hidden_layers": 24, "n_groups": 1, "vocab_size": 50288,
         "tie_word_embeddings": True},
    ),
}  # fmt: skip


def made(name: str) -> tuple[dict[str, Any], int]:
    """Configuration as the library writes it, and its number of parameters."""
    import torch
    import transformers

    kind, architecture, keys = MODELS[name]
    config = transformers.AutoConfig.for_model(kind, **keys)
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config)
    model.tie_weights()
    count = sum({id(tensor): tensor.numel() for tensor in model.parameters()}.values())
    tree = json.loads(config.to_json_string(use_diff=True))
    tree |= {"model_type": kind, "architectures": [architecture]}
    return {key: value for key, value in tree.items() if key not in DROPPED}, count


def write() -> None:
    """Every configuration and the table of counts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with TABLE.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(("name", "model_type", "architecture", "parameters"))
        for name, (kind, architecture, _) in MODELS.items():
            tree, count = made(name)
            text = json.dumps(tree, indent=None if len(str(tree)) > 5_000 else 1, sort_keys=True)
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            rows.writerow((name, kind, architecture, count))
            print(f"{name}: {count:,}", flush=True)


def compare() -> list[tuple[str, str, int, int]]:
    """Name, model type, the library's count and the importer's, of every row."""
    from workloads.importers.huggingface import load
    from workloads.training import parameters

    found = []
    with TABLE.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            imported = load(FOLDER / f"{row['name']}.json")
            counted = parameters(imported.network, imported.sequence or 128)
            found.append((row["name"], row["model_type"], int(row["parameters"]), counted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="make configurations and counts with transformers")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/importers.md")
    options = parser.parse_args()
    if options.write:
        write()
    elif options.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(counts_table(), end="")


def counts_table() -> str:
    """Every row with the library's count and the importer's."""
    lines = ["| model | `model_type` | parameters of the library | importer |", "|---|---|---:|---|"]
    for name, kind, library, counted in compare():
        lines.append(f"| {name} | {kind} | {library:,} | {'equal' if library == counted else f'{counted:,}'} |")
    return "\n".join(lines) + "\n"


def operators_table() -> str:
    """Every operator of a network file with its fields."""
    from workloads.importers.network_operators import operators

    lines = ["| operator | fields |", "|---|---|"]
    for name, kind in sorted(operators().items()):
        shown = ", ".join(one.name + ("" if one.default is MISSING else "?") for one in fields(kind))
        lines.append(f"| `{name}` | {shown} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with both tables made anew: each begins at its first line and ends before an empty one."""
    for table in (counts_table(), operators_table()):
        before, head, rest = text.partition(table.splitlines()[0] + "\n")
        assert head, f"no table {table.splitlines()[0]}"
        text = before + table + rest[rest.index("\n\n") + 1 :]
    return text


if __name__ == "__main__":
    main()
