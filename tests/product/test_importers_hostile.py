"""Files of strangers: a clear error in bounded time and memory, never a traceback, a hang or a silent guess."""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dse
import dse.inputs.yaml.load  # noqa: F401  read at the first YAML file otherwise, under the clock of that test
from dse.base.errors import ConfigError
from dse.command.main import main
from workloads.importers import calculon, huggingface, network_file, reading, scalesim
from workloads.importers.reading import FileError, read_json

CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 7, "hidden_size": 12, "intermediate_size": 5, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
NETWORK: dict[str, Any] = {
    "name": "n", "inputs": {"x": [4, 8]},
    "operators": [{"operator": "linear", "outputs": 3}, {"repeat": 2, "operators": [{"operator": "dropout"}]}],
}  # fmt: skip
#: Seconds that a refusal may take on a busy machine; an honest one takes milliseconds.
PATIENCE = 10.0
BILLION_LAUGHS = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  \n\t\n",
    "no json": b"{'model_type': 'llama'}",
    "a list": b"[1, 2]",
    "a number": b"3",
    "cut short": b'{"model_type": "llama", "hidden_size": ',
    "binary": bytes(range(256)),
    "utf-16": '{"model_type": "llama"}'.encode("utf-16"),
    "latin-1": '{"model_type": "llama", "name": "Größe"}'.encode("latin-1"),
    "nul": b"\0" * 1000,
    "NaN": b'{"model_type": "llama", "hidden_size": NaN}',
    "infinite": b'{"model_type": "llama", "hidden_size": Infinity}',
    "too large a number": b'{"model_type": "llama", "hidden_size": 1e999}',
    "many digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 20_000 + b"}",
    "a key twice": b'{"model_type": "llama", "hidden_size": 12, "hidden_size": 24}',
    "deep lists": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep mappings": b'{"a": ' * 5_000 + b"1" + b"}" * 5_000,
    "many values": b'{"a": [' + b",".join([b"1"] * 200_000) + b"]}",
    "too long": b'{"a": "' + b"x" * 3_000_000 + b'"}',
}


def bounded(action: Callable[[], Any]) -> str:
    """What a refusal says; it is quick, and takes little memory beside the file."""
    tracemalloc.start()
    begin = time.perf_counter()
    with pytest.raises(ConfigError) as error:
        action()
    taken, (_, peak) = time.perf_counter() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < PATIENCE and peak < 120e6
    text = str(error.value)
    assert len(text) < 20_000
    return text


@pytest.mark.parametrize("suffix", ["json", "yaml", "csv"])
@pytest.mark.parametrize("content", CONTENTS, ids=str)
def test_a_file_that_is_no_network_is_refused_with_its_name(content: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"config.{suffix}"
    path.write_bytes(CONTENTS[content])
    assert str(path) in bounded(lambda: dse.load_network(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("empty", "an empty file"), ("no json", "no valid JSON"), ("a list", "a list at the top"),
        ("latin-1", "not UTF-8"), ("NaN", "NaN"), ("infinite", "Infinity"), ("too large a number", "1e999"),
        ("many digits", "20000 digits"), ("a key twice", '"hidden_size" twice'), ("deep lists", "nested too deeply"),
        ("deep mappings", "nested too deeply"), ("many values", "more than 100000 values"),
        ("too long", "2000000 bytes"),
    ],
)  # fmt: skip
def test_a_refused_json_file_says_why(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(CONTENTS[content])
    assert said in bounded(lambda: dse.load_network(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BILLION_LAUGHS, "more than 20000 values"),
        ("a: &a [*a]\n", "alias inside its own anchor"),
        ("operators: " + "[" * 500 + "]" * 500 + "\n", "nested"),
        ("name: !!python/object/apply:os.system ['true']\n", "tag"),
        ("name: a\nname: b\n", 'the key "name" again'),
        ("operators: [\n", "unclosed"),
        ("sequence: 1" + "0" * 300 + "\noperators: []\n", "sequence"),
        ("sequence: .nan\noperators: []\n", "sequence"),
        ("inputs: {x: [1.0e+17, 3]}\noperators: [{operator: dropout}]\n", "inputs.x"),
        ("a" * 300_000, "200000 bytes"),
    ],
)
def test_a_refused_yaml_file_says_why(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(text)
    assert said in bounded(lambda: dse.load_network(tmp_path / "model.yaml"))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    assert "a directory" in bounded(lambda: dse.load_network(tmp_path / "folder.json"))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "did you mean config.json?" in bounded(lambda: dse.load_network(tmp_path / "confg.json"))
    assert "no such file" in bounded(lambda: dse.load_network(tmp_path / "no" / "config.json"))
    assert bounded(lambda: dse.load_network(tmp_path / "a\0b.json"))
    assert bounded(lambda: dse.load_network(tmp_path / ("x" * 5000 + ".json")))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert "not a file" in bounded(lambda: dse.load_network(tmp_path / "config.json"))


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(CONFIG).encode())
    assert dse.load_network(tmp_path / "config.json").name


@pytest.mark.parametrize("key", [key for key in CONFIG if key != "model_type"])
@pytest.mark.parametrize("value", [-1, 0, 10**30, 1.5, "12", True, [12], {"a": 1}, "x" * 100_000])
def test_no_value_of_a_size_gets_through_that_is_none(key: str, value: Any) -> None:
    with pytest.raises(FileError, match=key) as error:
        huggingface.read(CONFIG | {key: value})
    assert len(str(error.value)) < 1_000


def test_sizes_that_are_large_one_by_one_are_counted_exactly_and_quickly() -> None:
    """Integers do not overflow: 10^4 layers of 10^9 columns."""
    tree = CONFIG | {"num_hidden_layers": 10_000, "intermediate_size": 10**9, "hidden_size": 10**8, "head_dim": 64}
    blocks = huggingface.read(tree).network.blocks(8)
    assert blocks[1].count * blocks[1].parameters > 10_000 * 3 * 10**17


def test_a_very_deep_encoder_is_built_in_bounded_time_or_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 10**7}))
    assert "num_hidden_layers: found 10000000" in bounded(lambda: dse.load_network(tmp_path / "config.json"))


def _values() -> list[Any]:
    return [
        None, True, 0, -1, 3, 2.5, float("nan"), 10**40, "", "x", "#0", [], [1], [[]], {}, {"a": 1}, "sequence",
    ]  # fmt: skip


def _mutated(draw: random.Random, tree: Any) -> Any:
    """The tree with one value replaced, one key dropped, renamed, or one value put into a list."""
    if isinstance(tree, dict) and tree and draw.random() < 0.8:
        key = draw.choice(list(tree))
        changed = dict(tree)
        way = draw.randrange(4)
        if way == 0:
            del changed[key]
        elif way == 1:
            changed[f"{key}x"] = changed.pop(key)
        else:
            changed[key] = _mutated(draw, tree[key])
        return changed
    if isinstance(tree, list) and tree and draw.random() < 0.8:
        at = draw.randrange(len(tree))
        return [*tree[:at], _mutated(draw, tree[at]), *tree[at + 1 :]]
    return draw.choice(_values())


@pytest.mark.parametrize(
    ("read", "tree"),
    [
        (huggingface.read, CONFIG),
        (huggingface.read, {"model_type": "bert", "num_hidden_layers": 1, "id2label": {"0": "a"},
                            "architectures": ["BertModel"]}),
        (huggingface.read, {"model_type": "qwen3_moe", "mlp_only_layers": [0], "rope_parameters": {"a": 1}}),
        (huggingface.read, {"model_type": "gemma3", "text_config": {"hidden_size": 64, "sliding_window": 8}}),
        (network_file.read, NETWORK),
        (network_file.read, {"decoder_transformer": {"layers": 2, "hidden": 8, "heads": 2, "ffn": 4, "vocabulary": 3}}),
        (calculon.application, {"hidden": 8, "feedforward": 8, "seq_size": 4, "attn_heads": 2, "attn_size": 4,
                                "num_blocks": 2}),
        (calculon.execution, {"num_procs": 4, "tensor_par": 2, "pipeline_par": 2, "data_par": 1, "batch_size": 4}),
    ],
    ids=["llama", "bert", "qwen3_moe", "gemma3", "graph", "decoder", "application", "execution"],
)  # fmt: skip
def test_whatever_is_changed_in_a_file_it_is_read_or_refused(read: Callable[[Any], Any], tree: dict[str, Any]) -> None:
    draw = random.Random(11)
    refused = 0
    for _ in range(150):
        changed = _mutated(draw, tree)
        for _ in range(draw.randrange(3)):
            changed = _mutated(draw, changed)
        if not isinstance(changed, dict):
            continue
        try:
            read(changed)
        except FileError as error:
            refused += 1
            assert error.faults and str(error)
    assert refused > 20


def test_whatever_is_changed_in_a_table_it_is_read_or_refused() -> None:
    text = "Layer name,h,w,r,s,c,m,stride\nConv1,224,224,11,11,3,96,4\nConv2,27,27,5,5,96,256,1\n"
    draw = random.Random(13)
    for _ in range(300):
        at = draw.randrange(len(text))
        changed = text[:at] + draw.choice(["", ",", "\n", '"', "-", "9" * 30, "x", "\r", "é", "1.5"]) + text[at + 1 :]
        try:
            scalesim.read(changed)
        except FileError as error:
            assert error.faults


def test_a_message_repeats_little_of_what_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "y" * 1_000_000}))
    assert len(bounded(lambda: dse.load_network(tmp_path / "config.json"))) < 2_000


def test_limits_are_checked_before_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(5_000_000_000)
    with pytest.raises(FileError, match="more than 2000000 bytes"):
        read_json(path)
    assert reading.LARGEST_FILE == 2_000_000


def test_the_command_line_says_one_message_and_exits_with_2(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_bytes(CONTENTS["deep lists"])
    flags = f"--network {tmp_path / 'config.json'} --chip a100-sxm-80gb --devices 8 --global-batch 64 --sequence 8"
    assert main(["evaluate", *flags.split()]) == 2
    said = capsys.readouterr()
    assert "nested too deeply" in said.err and "Traceback" not in said.err and not said.out
