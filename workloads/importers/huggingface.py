"""A Hugging Face `config.json` as a network: sizes and structure, no weights, no download.

Types of decoder-only models are in `huggingface_decoders`, of other models in `huggingface_graphs`.
Which types and with what counts: docs/importers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads.importers.huggingface_decoders import DECODERS
from workloads.importers.huggingface_graphs import GRAPHS
from workloads.importers.huggingface_graphs import network as graph_network
from workloads.importers.imported import Imported
from workloads.importers.reading import Fault, FileError, Keys, attempt, near, read_json, shown
from workloads.transformer import DecoderTransformer

#: Model types whose language model is a configuration inside, and the type it has where it does not say.
INSIDE = {"gemma3": "gemma3_text", "mistral3": "mistral", "llava": "llama"}
#: Ends of the classes that are language models.
LANGUAGE = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
#: Keys that say how a model is stored, run or sampled, and nothing of its sizes.
ASIDE = frozenset(
    {
        "architectures", "attn_implementation", "auto_map", "bos_token_id", "dtype", "eos_token_id",
        "generation_config",
        "id2label", "initializer_range", "label2id", "pad_token_id", "quantization_config", "rope_parameters",
        "rope_scaling", "rope_theta", "summary_type", "task_specific_params", "torch_dtype", "transformers_version",
        "use_cache", "_name_or_path", "pretraining_tp",
    }
)  # fmt: skip


def types() -> tuple[str, ...]:
    """The model types that can be imported."""
    return tuple(sorted([*DECODERS, *GRAPHS, *INSIDE]))


def load(path: str | Path) -> Imported:
    """The network of a file, or of the `config.json` in a folder."""
    file = Path(path)
    if (file / "config.json").is_file():
        file = file / "config.json"
    tree = read_json(file, "a Hugging Face config.json")
    return read(tree, name=file.parent.resolve().name if file.name == "config.json" else file.stem, path=str(file))


def read(tree: Mapping[str, Any], name: str = "", path: str = "") -> Imported:
    """The network that a configuration describes; FileError names every key that is wrong."""
    kind = tree.get("model_type")
    if not isinstance(kind, str) or kind not in types():
        found = "nothing" if kind is None else shown(kind)
        raise FileError(path, [Fault("model_type", found, ", ".join(types()), near(str(kind), types()))])
    keys, notes = Keys(tree, path, read={"model_type"}), []
    if kind in INSIDE:
        keys, kind = keys.inner("text_config"), _inner_kind(keys, kind)
        keys.done()
        notes.append("the language model alone: what sees images is left out")
    name = name or str(tree.get("_name_or_path") or kind)
    if kind in GRAPHS:
        return _graph(keys, notes, kind, name)
    notes += _headless(tree)
    sizes = DECODERS[kind](keys, notes)
    keys.misspelled(ASIDE)
    network = attempt(keys, lambda: DecoderTransformer(name=name, source=_source(kind, notes), **sizes))
    return Imported(network, 0, tuple(notes))


def _headless(tree: Mapping[str, Any]) -> list[str]:
    """Decoders are language models here, with the head that makes words."""
    given = tree.get("architectures")
    name = given[0] if isinstance(given, list) and given else ""
    if not isinstance(name, str) or not name or name.endswith(LANGUAGE):
        return []
    return [f"{shown(name)} is counted as a language model, with the head that makes words"]


def _graph(keys: Keys, notes: list[str], kind: str, name: str) -> Imported:
    """A network of one of the other families; its graph is built once, so that sizes that do not fit show now."""
    network = attempt(keys, lambda: graph_network(kind, keys, notes, name, ""))
    keys.misspelled(ASIDE)
    keys.done()
    attempt(keys, lambda: network.graph())
    return Imported(replace(network, source=_source(kind, notes)), network.sequence, tuple(notes))


def _source(kind: str, notes: list[str]) -> str:
    return "; ".join([f"Hugging Face configuration, model type {kind}", *notes])


def _inner_kind(keys: Keys, kind: str) -> str:
    inner = keys.data.get("text_config")
    given = inner.get("model_type", INSIDE[kind]) if isinstance(inner, dict) else INSIDE[kind]
    if given not in DECODERS:
        keys.wrong("text_config.model_type", shown(given), ", ".join(sorted(DECODERS)), near(str(given), DECODERS))
        return INSIDE[kind]
    return str(given)
