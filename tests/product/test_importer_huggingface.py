"""A Hugging Face config.json becomes the network that the library builds: same parameters, same matrix products."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from workloads.importers.huggingface import load, read, types
from workloads.importers.huggingface_decoders import DECODERS
from workloads.importers.reading import FileError
from workloads.layers.selective_scan import SelectiveScan
from workloads.published import network
from workloads.training import parameters
from workloads.transformer import DecoderTransformer

FOLDER = Path(__file__).parents[1] / "data" / "huggingface"
ROWS = list(csv.DictReader((FOLDER / "counts.csv").read_text(encoding="utf-8").splitlines()))
SMALL = {
    "model_type": "llama", "vocab_size": 7, "hidden_size": 12, "intermediate_size": 5, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def counted(tree: dict[str, Any], sequence: int = 11) -> int:
    imported = read(tree)
    return parameters(imported.network, imported.sequence or sequence)


def faults(tree: dict[str, Any]) -> str:
    with pytest.raises(FileError) as error:
        read(tree, path="config.json")
    return str(error.value)


def test_a_small_llama_has_the_parameters_of_its_tensors() -> None:
    attention = 2 * 12 * 12 + 2 * 12 * 6
    layer = attention + 3 * 12 * 5 + 2 * 12
    assert counted(SMALL) == 3 * layer + 2 * 7 * 12 + 12
    assert counted(SMALL | {"tie_word_embeddings": True}) == 3 * layer + 7 * 12 + 12
    assert counted(SMALL | {"attention_bias": True}) == 3 * (layer + 12 + 6 + 6 + 12) + 2 * 7 * 12 + 12
    assert counted(SMALL | {"mlp_bias": True}) == 3 * (layer + 2 * 5 + 12) + 2 * 7 * 12 + 12


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_real_configuration_has_as_many_parameters_as_the_library_counts(row: dict[str, str]) -> None:
    imported = load(FOLDER / f"{row['name']}.json")
    assert parameters(imported.network, imported.sequence or 64) == int(row["parameters"])


def test_every_model_type_that_is_read_is_checked_against_the_library() -> None:
    assert len(ROWS) >= 20
    wrappers = {"gemma3", "mistral3", "llava"}
    assert {row["model_type"] for row in ROWS} == set(types()) - wrappers


@pytest.mark.parametrize(
    "name", ["gpt2-xl", "llama2-7b", "llama3-8b", "mixtral-8x7b", "bloom-7.1b", "opt-6.7b", "deepseek-v3", "qwen3-8b"]
)
def test_an_import_of_a_built_in_network_computes_the_same(name: str) -> None:
    known = network(name)
    imported = load(FOLDER / f"{name}.json").network
    assert [block.flops for block in imported.blocks(1024)] == [block.flops for block in known.blocks(1024)]
    assert parameters(imported, 1024) == parameters(known, 1024)


def test_a_key_that_is_absent_has_the_default_of_the_library_and_null_may_mean_another_thing() -> None:
    assert counted({"model_type": "llama"}) == 6738415616
    assert counted({"model_type": "gpt2"}) == 124439808
    assert read({"model_type": "mistral"}).network.kv_heads == 8
    assert read({"model_type": "mistral", "num_key_value_heads": None}).network.kv_heads == 32
    assert read({"model_type": "mistral"}).notes
    assert not read({"model_type": "mistral", "sliding_window": None}).notes


def test_latent_attention_without_a_query_rank_has_one_query_matrix() -> None:
    row = json.loads((FOLDER / "deepseek-v2-lite.json").read_text(encoding="utf-8"))
    assert row["q_lora_rank"] is None
    assert read(row).network.query_rank == 0
    assert read(row | {"q_lora_rank": 512}).network.query_rank == 512


def test_heads_follow_the_task_that_the_file_names() -> None:
    """BERT: a pooler and two classes instead of the masked-word head (a linear layer, a norm, a bias a word)."""
    base = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 4,
            "num_hidden_layers": 1, "vocab_size": 13, "max_position_embeddings": 16}  # fmt: skip
    masked = counted(base | {"architectures": ["BertForMaskedLM"]})
    classes = counted(base | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}})
    assert masked - classes == (8 * 8 + 8 + 2 * 8 + 13) - (8 * 8 + 8 + 2 * 8 + 2)
    assert counted(base) == masked
    assert 'architectures[0]: found "BertForDancing"' in faults(base | {"architectures": ["BertForDancing"]})


def test_t5_as_released_in_version_1_1_has_a_head_of_its_own() -> None:
    """google/flan-t5-small: 76,961,152 parameters (Chung et al. 2022); the library ties them since its version 5."""
    tree = {"model_type": "t5", "d_model": 512, "d_ff": 1024, "d_kv": 64, "num_layers": 8, "num_heads": 6,
            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 32128}  # fmt: skip
    assert counted(tree) == 76961152


def test_the_language_model_inside_a_model_of_images_is_read() -> None:
    inner = {key: value for key, value in SMALL.items() if key != "model_type"}
    found = read({"model_type": "llava", "text_config": inner})
    assert parameters(found.network, 8) == counted(SMALL)
    assert "images is left out" in found.notes[0]


def test_a_decoder_without_a_head_is_counted_with_one_and_that_is_said() -> None:
    assert read(SMALL | {"architectures": ["LlamaForSequenceClassification"]}).notes
    assert not read(SMALL | {"architectures": ["LlamaForCausalLM"]}).notes


def test_notes_are_part_of_the_source_of_the_network() -> None:
    found = read({"model_type": "gemma2"})
    assert isinstance(found.network, DecoderTransformer)
    assert found.notes and found.notes[0] in found.network.source


def test_a_folder_is_read_by_its_configuration_and_gives_the_name(tmp_path: Path) -> None:
    (tmp_path / "my-llama").mkdir()
    (tmp_path / "my-llama" / "config.json").write_text(json.dumps(SMALL))
    assert load(tmp_path / "my-llama").network == load(tmp_path / "my-llama" / "config.json").network
    assert load(tmp_path / "my-llama").network.name == "my-llama"


def test_equal_configurations_are_equal_networks_that_can_be_sent_to_another_process() -> None:
    for kind in ("llama", "bert", "t5", "mamba2"):
        found = read({"model_type": kind}).network
        assert found == read({"model_type": kind}).network == pickle.loads(pickle.dumps(found))
    assert read({"model_type": "bert"}).network != read({"model_type": "bert", "vocab_size": 7}).network


def test_a_narrow_embedding_is_widened_and_narrowed_by_products_of_its_own() -> None:
    """OPT-350M: 512 columns of words, 1024 of the model, no norm at the end."""
    first, body, last = load(FOLDER / "opt-350m.json").network.blocks(16)
    assert [(one.m, one.n, one.k) for one in first.matmuls] == [(16, 1024, 512)]
    assert [(one.m, one.n, one.k) for one in last.matmuls] == [(16, 512, 1024), (16, 50272, 512)]
    assert "final norm" not in [one.name for one in last.vectors]
    assert first.parameters == 50272 * 512 + 2050 * 1024 + 512 * 1024


def test_the_mixer_of_mamba_has_four_products_and_a_scan() -> None:
    """Width 8, 16 inner columns, 3 states, 2 columns for the step, 4 taps, 5 tokens."""
    found = SelectiveScan(state=3, inner=16, rank=2).counts((5, 8))
    assert found.flops == 2 * 5 * (8 * 32 + 16 * (2 + 6) + 2 * 16 + 16 * 8)
    convolution, scan = 16 * 4 + 16, 16 * 3 + 16
    assert found.parameters == 8 * 32 + convolution + 16 * 8 + (2 * 16 + 16) + scan + 16 * 8
    assert found.result == (5, 8) and found.split_parameters == found.parameters
    assert [one.elements for one in found.passes] == [5 * 16, 5 * 16]


def test_norms_of_a_layer_are_counted_and_kept_as_the_type_has_them() -> None:
    """Bytes a token and column: 2 for each norm's input and 2 for what feeds attention and MLP."""
    def kept(kind: str) -> int:
        tree = {"model_type": kind, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
        body = read(tree).network.blocks(5)[1]
        norms = next(one.elements * one.repeats for one in body.vectors if one.name == "norm")
        assert norms == 5 * 8 * {"llama": 2, "gemma2": 4, "olmo2": 2, "phi": 1, "gpt_neox": 2}[kind]
        return body.saved.sequence // (5 * 8)

    assert [kept(kind) for kind in ("llama", "gemma2", "olmo2", "phi", "gpt_neox")] == [8, 12, 8, 4, 6]


def test_an_unknown_model_type_is_refused_with_the_nearest() -> None:
    assert 'model_type: found "lama"' in faults({"model_type": "lama"})
    assert "did you mean llama?" in faults({"model_type": "lama"})
    assert "model_type: found nothing" in faults({"hidden_size": 4})
    assert "model_type: found 3" in faults({"model_type": 3})


def test_every_wrong_key_is_named_at_once() -> None:
    text = faults(SMALL | {"hidden_size": -1, "intermediate_size": "big", "mlp_bias": 1, "attention_dropout": -0.5})
    for part in (
        "hidden_size: found -1", 'intermediate_size: found "big"', "mlp_bias: found 1", "attention_dropout: found -0.5"
    ):  # fmt: skip
        assert part in text
    assert text.count("config.json: ") == 4


def test_a_misspelt_key_is_a_fault_because_its_default_would_be_taken() -> None:
    tree = {key.replace("num_hidden_layers", "num_hiden_layers"): value for key, value in SMALL.items()}
    assert "num_hiden_layers: found a key that is not read" in faults(tree)
    assert "did you mean num_hidden_layers?" in faults(tree)
    assert read(SMALL | {"my_own_remark": 3, "torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0}})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, "decoder_sparse_step: found 2; allowed: 1"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [3]}, "mlp_only_layers: found a list; allowed: leading layers"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention: found true; allowed: false"),
        ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config.alibi: found false; allowed: true"),
        ({"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention"}}, "attn_type: found"),
        ({"model_type": "deepseek_v3", "attention_bias": True}, "attention_bias: found true; allowed: false"),
        ({"model_type": "mamba2", "num_heads": 7}, "num_heads: found 7 heads of 64; allowed: 8192 columns"),
        ({"model_type": "bert", "hidden_act": "tanhexp"}, 'hidden_act: found "tanhexp"; allowed: gelu'),
        (SMALL | {"num_attention_heads": 5, "num_key_value_heads": 5}, "hidden % heads"),
        (SMALL | {"num_key_value_heads": 3}, "heads % kv_heads"),
        ({"model_type": "deepseek_v2", "num_experts_per_tok": None}, "num_experts_per_tok: found nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_built_is_refused_by_key(tree: dict[str, Any], said: str) -> None:
    assert said in faults(tree)


def test_parameters_of_a_decoder_do_not_depend_on_the_length_of_its_samples() -> None:
    for kind in DECODERS:
        found = read({"model_type": kind} | ({"num_experts_per_tok": 2} if "deepseek" in kind else {})).network
        assert parameters(found, 8) == parameters(found, 16)
