"""ONNX models: counts equal to the framework's, operators by hand, and files of strangers."""

from __future__ import annotations

import csv
import os
import pickle
import time
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import REAL, WHOLE, block, model, node, number, tensor, value, varint

from workloads.graph_network import GraphNetwork
from workloads.importers.onnx import coverage, load, summary
from workloads.importers.onnx_file import read
from workloads.networks import GRAPHS as NETWORKS

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "data" / "onnx"
with (SAMPLES / "counts.csv").open(encoding="utf-8") as table:
    COUNTS = {row["model"]: row for row in csv.DictReader(table)}


@cache
def sample(name: str) -> GraphNetwork:
    """A model of the table; two leave the number of tokens open."""
    return load(SAMPLES / f"{name}.onnx", {"sequence": 128} if name in ("bert_base", "gpt2") else None)


def written(folder: Path, *arguments: Any, name: str = "net", **settings: Any) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(model(*arguments, **settings))
    return path


def word(one: Any) -> str:
    """What an operator of a graph is: one of ours, or as the file calls it."""
    if one.is_data:
        return "data"
    return str(one.operator.kind) if type(one.operator).__name__ == "Foreign" else type(one.operator).__name__


def only(network: GraphNetwork, kind: str) -> Any:
    """Counts of the one operator of a kind."""
    found = [one.counts for one in network.graph().nodes if word(one) == kind]
    assert len(found) == 1, [word(one) for one in network.graph().nodes]
    return found[0]


# Real models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTS)
def test_a_real_model_without_weights_has_the_counts_of_its_framework(name: str) -> None:
    network = sample(name)
    row, graph = COUNTS[name], network.graph()
    assert (graph.parameters, graph.macs) == (int(row["parameters"]), int(row["macs"]))
    assert sum(block.flops for block in network.blocks(network.sequence)) == 2 * int(row["macs"])


def test_there_are_over_twenty_models_of_less_than_a_megabyte_each() -> None:
    files = {path.stem: path.stat().st_size for path in SAMPLES.glob("*.onnx")}
    assert set(files) == set(COUNTS) and len(files) >= 20
    assert max(files.values()) < 1_000_000 and sum(files.values()) < 3_000_000


def test_no_file_says_where_it_was_made() -> None:
    for path in SAMPLES.glob("*.onnx"):
        content = path.read_bytes()
        assert not any(word in content for word in (b"/home", b"/tmp", b"/usr", b"-packages", b"/root", b".py")), path


def test_training_is_three_times_forward_but_for_the_gradient_of_the_image() -> None:
    network = sample("resnet50")
    body = network.blocks(1)[1]
    stem = 2 * 64 * 112 * 112 * 3 * 49
    assert body.training_flops == 3 * body.flops - stem


@pytest.mark.parametrize(("name", "built"), [("resnet50", "resnet50"), ("densenet121", "densenet121")])
def test_an_imported_model_is_the_network_that_was_built_by_hand(name: str, built: str) -> None:
    """Products, passes and what is kept; only names and where a pipeline may be cut differ."""
    theirs, ours = (network.blocks(1)[1] for network in (sample(name), NETWORKS[built]))
    for part in ("matmuls", "vectors"):
        found = [sorted(repr(replace(one, name="")) for one in getattr(block, part)) for block in (theirs, ours)]
        assert found[0] == found[1], part
    assert replace(theirs.saved, input=0) == replace(ours.saved, input=0)
    assert (theirs.kernels, theirs.parameters) == (ours.kernels, ours.parameters)


def test_an_image_model_has_a_cell_a_residual_block() -> None:
    body = sample("resnet50").blocks(1)[1]
    assert len(body.cells) == 18  # stem, 16 blocks, head
    assert sum(cell.flops for cell in body.cells) == body.flops


def test_a_tied_table_is_counted_once() -> None:
    graph = sample("gpt2").graph()
    tied = [one for one in graph.nodes if one.shares >= 0]
    assert len(tied) == 1 and tied[0].counts.parameters == 50257 * 768
    assert graph.parameters == 124_439_808


def test_a_written_out_causal_mask_is_seen() -> None:
    assert sample("gpt2").blocks(128)[1].causal and sample("llama_small").blocks(128)[1].causal
    assert not sample("bert_base").blocks(128)[1].causal


def test_keys_that_heads_share_are_found() -> None:
    (core,) = sample("llama_small").blocks(128)[1].attentions
    assert (core.heads, core.key_value_heads, core.head_dim, core.repeats) == (8, 2, 64, 4)


def test_windows_attend_apart_and_their_heads_divide_a_tensor_split() -> None:
    network = sample("swin_t")
    assert set(network.divisors().values()) == {3, 6, 12, 24}
    first = network.blocks(1)[1].attentions[0]
    assert (first.heads, first.queries, first.head_dim) == (64 * 3, 49, 32)  # 64 windows of 7 x 7


def test_logits_of_a_language_model_get_a_loss_and_features_do_not() -> None:
    assert sample("gpt2").blocks(128)[2].vectors and not sample("t5_small_encoder").blocks(128)[2].vectors
    assert not load(SAMPLES / "gpt2.onnx", {"sequence": 128}, loss=False).blocks(128)[2].vectors


def test_twice_the_tokens_is_twice_the_linear_work_and_four_times_the_attention() -> None:
    network = sample("bert_base")
    short, long = (sum(one.flops for one in network.blocks(tokens)[1].matmuls if one.core) for tokens in (128, 256))
    assert long == 4 * short
    linear = [sum(one.flops for one in network.blocks(t)[1].matmuls if not one.core and one.m > 1) for t in (128, 256)]
    assert linear[1] == 2 * linear[0]


def test_a_model_of_a_fixed_length_has_no_other() -> None:
    with pytest.raises(ValueError, match="found 64, allowed: 128"):
        sample("distilbert").graph(64)


def test_dimensions_that_are_open_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Relu", "x", "y")], [], [value("x", ("batch", 3, "height", "width"))])
    with pytest.raises(ValueError, match="leaves open: height, width: give each, such as dimensions={'height': 128}"):
        load(path)
    assert load(path, {"height": 5, "width": 7}).graph().nodes[1].counts.result == (3, 5, 7)
    with pytest.raises(ValueError, match="found depth, allowed: batch, height, width"):
        load(path, {"height": 5, "width": 7, "depth": 3})
    with pytest.raises(ValueError, match="allowed: a whole number >= 1"):
        load(path, {"height": 0, "width": 7})


def test_a_number_of_tokens_may_stay_open(tmp_path: Path) -> None:
    network = load(SAMPLES / "bert_base.onnx")
    assert network.sequence == 1 and network.sample == "sequence"  # as of any network that takes all lengths
    assert network.graph(128).macs == int(COUNTS["bert_base"]["macs"])
    with pytest.raises(ValueError, match="do not broadcast"):
        network.graph(513)  # the table of positions has 512 rows


def test_a_network_goes_to_another_process() -> None:
    network = sample("resnet18")
    again = pickle.loads(pickle.dumps(network))
    assert again == network and again.graph().macs == network.graph().macs


def test_a_summary_tells_what_is_stored_from_what_is_trained() -> None:
    found = summary(SAMPLES / "resnet50.onnx")
    statistics = 2 * (53120 // 2)  # mean and variance, a channel of batch norm each
    assert found.parameters == 25_557_032 and found.stored == found.parameters + statistics
    assert found.operators["Conv"] == 53 and found.opset == 18


# Operators by hand -----------------------------------------------------------------------------------------------


def test_a_linear_layer(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Gemm", "x w b", "y", transB=1)], [tensor("w", (5, 7)), tensor("b", (5,))],
                   [value("x", (1, 7))])  # fmt: skip
    graph = load(path).graph()
    assert (graph.parameters, graph.macs) == (40, 35)


def test_a_convolution_with_uneven_padding_strides_and_groups(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Conv", "x w", "y", strides=[2, 1], pads=[0, 1, 1, 2], dilations=[1, 2], group=2)],
                   [tensor("w", (6, 2, 3, 2))], [value("x", (1, 4, 9, 5))])  # fmt: skip
    counts = only(load(path), "Conv")
    # (9 + 0 + 1 - 3) // 2 + 1 = 4 rows, 5 + 1 + 2 - 2 = 6 columns
    assert counts.result == (6, 4, 6) and counts.parameters == 72
    assert counts.flops == 2 * 6 * 24 * 2 * 6


def test_a_transposed_convolution(tmp_path: Path) -> None:
    path = written(tmp_path, [node("ConvTranspose", "x w b", "y", strides=[2, 2], pads=[1, 1, 1, 1])],
                   [tensor("w", (4, 3, 4, 4)), tensor("b", (3,))], [value("x", (1, 4, 5, 5))])  # fmt: skip
    counts = only(load(path), "ConvTranspose")
    assert counts.result == (3, 10, 10) and counts.flops == 2 * 25 * 4 * 3 * 16 and counts.parameters == 195


def test_statistics_of_batch_norm_are_not_trained(tmp_path: Path) -> None:
    path = written(tmp_path, [node("BatchNormalization", "x s b m v", "y")],
                   [tensor(name, (3,)) for name in "sbmv"], [value("x", (1, 3, 8, 8))])  # fmt: skip
    assert load(path).graph().parameters == 6


def test_a_product_of_two_tensors_of_data_trains_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, [node("MatMul", "a b", "y")], [], [value("a", (1, 3, 5, 7)), value("b", (1, 3, 7, 11))])
    graph = load(path).graph()
    (product,) = only(load(path), "MatMul").products
    assert (product.m, product.n, product.k, product.groups, product.weight) == (5, 11, 7, 3, False)
    assert graph.parameters == 0 and graph.macs == 3 * 5 * 11 * 7


def attention_nodes(*, scaled: bool = True) -> list[bytes]:
    """Projections, scores, softmax and context of 3 heads, of 6 tokens and width 12."""
    made = []
    for name in "qkv":
        made += [node("MatMul", f"x w{name}", f"{name}0"), node("Reshape", f"{name}0 heads", f"{name}1"),
                 node("Transpose", f"{name}1", f"{name}", perm=[0, 2, 1, 3])]  # fmt: skip
    made += [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s0"),
             node("Mul" if scaled else "Identity", "s0 half" if scaled else "s0", "s"),
             node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "o0"),
             node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]), node("Reshape", "o1 flat", "o2"),
             node("MatMul", "o2 wo", "y")]  # fmt: skip
    return made


ATTENTION = [tensor(f"w{name}", (12, 12)) for name in "qkvo"] + [
    tensor("heads", (4,), [1, 6, 3, 4], WHOLE), tensor("flat", (3,), [1, 6, 12], WHOLE), tensor("half", (), [0.5]),
]  # fmt: skip


def test_attention_written_out_is_one_operator(tmp_path: Path) -> None:
    network = load(written(tmp_path, attention_nodes(), ATTENTION, [value("x", (1, 6, 12))]))
    counts = only(network, "Attention")
    core = counts.attention
    assert (core.heads, core.queries, core.keys, core.head_dim, core.value_dim) == (3, 6, 6, 4, 4)
    assert counts.flops == 2 * 2 * 3 * 6 * 6 * 4 and all(product.core for product in counts.products)
    assert network.graph().parameters == 4 * 144 and network.divisors() == {"attention heads": 3}
    kinds = [word(one) for one in network.graph().nodes]
    assert kinds == ["data", *["Linear"] * 3, "Attention", "MatMul", "CrossEntropy"]


def test_a_tensor_split_of_imported_attention_reduces_once_a_layer(tmp_path: Path) -> None:
    """Queries, keys and values by column, heads apart, the projection by row: one all-reduce."""
    body = load(written(tmp_path, attention_nodes(), ATTENTION, [value("x", (1, 6, 12))]), loss=False).blocks(6)[1]
    splits = {(one.name, one.split): one.repeats for one in body.matmuls}
    assert splits == {("linear", "n"): 3, ("scores", "groups"): 1, ("context", "groups"): 1, ("linear", "k"): 1}


def test_gelu_and_layer_norm_written_out_are_one_pass_each(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w", "a"), node("ReduceMean", "a", "m", axes=[-1]), node("Sub", "a m", "d"),
        node("Pow", "d two", "d2"), node("ReduceMean", "d2", "v", axes=[-1]), node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "r"), node("Div", "d r", "n"), node("Mul", "n g", "ng"), node("Add", "ng b", "l"),
        node("Div", "l root", "e0"), node("Erf", "e0", "e1"), node("Add", "e1 one", "e2"), node("Mul", "l e2", "e3"),
        node("Mul", "e3 half", "y"),
    ]  # fmt: skip
    numbers = {"two": 2.0, "eps": 1e-5, "root": 1.41, "one": 1.0, "half": 0.5}
    tensors = [tensor("w", (4, 8)), tensor("g", (8,)), tensor("b", (8,))]
    tensors += [tensor(name, (), [one]) for name, one in numbers.items()]
    network = load(written(tmp_path, nodes, tensors, [value("x", (1, 3, 4))], opset=13))
    kinds = [word(one) for one in network.graph().nodes]
    assert kinds == ["data", "Linear", "LayerNorm", "Activation"]
    assert network.graph().parameters == 32 + 16
    assert network.blocks(3)[1].kernels == 3


def test_numbers_and_what_raw_data_meets_are_not_trained(tmp_path: Path) -> None:
    nodes = [node("Sub", "x mean", "a"), node("Mul", "a scale", "b"), node("Conv", "b w", "c"),
             node("Mul", "c gamma", "y")]  # fmt: skip
    tensors = [tensor("mean", (1, 3, 1, 1)), tensor("scale", ()), tensor("w", (4, 3, 1, 1)), tensor("gamma", (4, 1, 1))]
    path = written(tmp_path, nodes, tensors, [value("x", (1, 3, 8, 8))])
    assert load(path).graph().parameters == 12 + 4
    assert load(path, frozen=["gam*"]).graph().parameters == 12


def test_shapes_that_a_model_computes_are_known(tmp_path: Path) -> None:
    """What exporters write for `x.view(x.shape[0], -1)`."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n axes", "n1"),
             node("Concat", "n1 rest", "shape", axis=0), node("Reshape", "x shape", "f"),
             node("MatMul", "f w", "y")]  # fmt: skip
    tensors = [tensor("zero", (), [0], WHOLE), tensor("axes", (1,), [0], WHOLE), tensor("rest", (1,), [-1], WHOLE),
               tensor("w", (60, 2))]  # fmt: skip
    assert load(written(tmp_path, nodes, tensors, [value("x", ("batch", 3, 4, 5))])).graph().macs == 120


def test_a_batch_that_a_file_fixes_is_one_sample(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y")]
    path = written(tmp_path, nodes, [tensor("w", (4, 3, 1, 1))], [value("x", (8, 3, 5, 5))])
    assert load(path).graph().macs == 4 * 3 * 25


def test_a_recurrent_layer_runs_a_step_at_a_time(tmp_path: Path) -> None:
    path = written(tmp_path, [node("LSTM", "x w r b", "y", hidden_size=5)],
                   [tensor("w", (1, 20, 3)), tensor("r", (1, 20, 5)), tensor("b", (1, 40))],
                   [value("x", (7, 1, 3))])  # fmt: skip
    network = load(path)
    counts = only(network, "LSTM")
    assert counts.parameters == 60 + 100 + 40 and counts.flops == 2 * 7 * 20 * (3 + 5)
    assert [product.steps for product in counts.products] == [1, 7]


@pytest.mark.parametrize(
    ("equation", "a", "b", "expected"),
    [("bij,bjk->bik", (1, 3, 5), (1, 5, 7), 105), ("bhid,bhjd->bhij", (1, 2, 3, 5), (1, 2, 4, 5), 120),
     ("i,j->ij", (3,), (5,), 15), ("bij,bij->bij", (1, 3, 5), (1, 3, 5), 0)],
)  # fmt: skip
def test_einsum_counts_its_letters(
    tmp_path: Path, equation: str, a: tuple[int, ...], b: tuple[int, ...], expected: int
) -> None:
    path = written(tmp_path, [node("Einsum", "a b", "y", equation=equation)], [], [value("a", a), value("b", b)])
    assert load(path).graph().macs == expected


# Files of strangers ----------------------------------------------------------------------------------------------


def test_every_operator_that_cannot_be_read_is_named_at_once(tmp_path: Path) -> None:
    nodes = [node("Loop", "x", "a"), node("NonMaxSuppression", "a", "b"), node("Loop", "b", "c"),
             node("Gelu", "c", "y", domain="com.example")]  # fmt: skip
    with pytest.raises(ValueError, match=r"Loop \(2, first 'node of a'\), NonMaxSuppression \(1.*com.example::Gelu|"
                                         r"NonMaxSuppression.*com.example") as caught:  # fmt: skip
        load(written(tmp_path, nodes, [], [value("x", (1, 3))]))
    message = str(caught.value)
    assert all(words in message for words in ("Loop (2, first 'node of a')", "com.example::Gelu (1", "NonMax"))


NODES, TENSORS, INPUTS = [node("Gemm", "x w", "y")], [tensor("w", (7, 5))], [value("x", (1, 7))]
GOOD = model(NODES, TENSORS, INPUTS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "found 0 bytes"),
        (b"layers: 12\nhidden: 768\n" * 20, "not an ONNX model"),
        (b'{"model_type": "bert"}', "not an ONNX model"),
        (bytes(1000), "field 0"),
        (b"\xff" * 1000, "more than 64 bits"),
        (model([], [], INPUTS), "no node"),
        (number(1, 8), "no graph"),
        (model(NODES, TENSORS, []), "no input that is data"),
        (model(NODES, [], INPUTS), "reads 'w', which nothing before it makes"),
        (model([node("Relu", "a", "b"), node("Relu", "b", "a")], [], INPUTS), "nothing before it makes"),
        (model([node("Relu", "x", "y"), node("Relu", "x", "y")], [], INPUTS), "there is already"),
        (model(NODES, [tensor("w", (10**12, 10**12))], INPUTS), "allowed: >= 0"),
        (model(NODES, [tensor("w", (-7, 5))], INPUTS), "allowed: >= 0"),
        (model(NODES, [tensor("w", (1,) * 100)], INPUTS), "100 axes"),
        (model(NODES, TENSORS, [value("x", (1, 10**12))]), "do not fit"),
        (model([node("Relu", "x", "y")], [], [value("x", (10**7, 10**7))]), "elements in all"),
        (model([node("Expand", "x s", "y")], [tensor("s", (3,), [10**6] * 3, WHOLE)], [value("x", (1, 1))]), "in all"),
        (model([node("Range", "a b c", "r"), node("Add", "x r", "y")],
               [tensor(n, (), [v], WHOLE) for n, v in zip("abc", (0, 10**14, 1), strict=True)], INPUTS), "in all"),
        (model([node("Reshape", "x s", "y")], [tensor("s", (2,), [3, 3], WHOLE)], INPUTS), "as many elements"),
        (model([node("Reshape", "x s", "y")], [tensor("s", (2,), kind=WHOLE)], INPUTS), "not in the file"),
        (model([node("Gather", "x i", "y", axis=9)], [tensor("i", (1,), [0], WHOLE)], INPUTS), "axis: found 9"),
        (model([node("Conv", "x w", "y")], [tensor("w", (4, 3, 9, 9))], [value("x", (1, 3, 5, 5))]), "no larger"),
        (model([node("Conv", "x w", "y", strides=[0, 0])], [tensor("w", (4, 3, 1, 1))], [value("x", (1, 3, 5, 5))]),
         "numbers >= 1"),
        (model([node("Conv", "x w", "y", group=0)], [tensor("w", (4, 3, 1, 1))], [value("x", (1, 3, 5, 5))]), "fit"),
        (model([node("Split", "x", "y z", axis=-5)], [], INPUTS), "axis: found -5"),
        (model([node("Transpose", "x", "y", perm=[0, 0])], [], INPUTS), "each axis"),
        (model([node("Softmax", "x", "y", axis="last")], [], INPUTS), ""),
        (model([node("Gemm", "x", "y")], [], INPUTS), "input 1 is missing"),
        (model([node("DepthToSpace", "x", "y", blocksize=0)], [], INPUTS), "blocksize: found 0"),
        (block(7, block(1, block(5, block(6, block(1, b"\x0a" * 5000))))), ""),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    started = time.monotonic()
    try:
        load(path)
    except ValueError as error:
        assert said in str(error) and "broken" in str(error) and len(str(error)) < 1000, error
        assert error.__cause__ is None
    else:
        assert not said, "it was taken"
    assert time.monotonic() - started < 2


def test_a_file_that_ends_anywhere_is_one_clear_error(tmp_path: Path) -> None:
    assert load(_bytes(tmp_path, GOOD)).graph().macs == 35
    for size in range(1, len(GOOD)):
        try:
            load(_bytes(tmp_path, GOOD[:size]))
        except ValueError as error:
            assert "cut" in str(error)


def test_changed_bytes_are_an_error_or_another_model_but_no_crash(tmp_path: Path) -> None:
    content = np.frombuffer((SAMPLES / "lstm.onnx").read_bytes(), np.uint8)
    random = np.random.default_rng(7)
    for _ in range(150):
        changed = content.copy()
        changed[random.integers(0, len(changed), 3)] = random.integers(0, 256, 3)
        try:
            load(_bytes(tmp_path, changed.tobytes()))
        except ValueError as error:
            assert str(error)


def _bytes(folder: Path, content: bytes) -> Path:
    path = folder / "cut.onnx"
    path.write_bytes(content)
    return path


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=tmp_path.name):
        load(tmp_path)
    with pytest.raises(ValueError, match="No such file"):
        load(tmp_path / "absent.onnx")


def test_data_in_other_files_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    tensors = [tensor("w", (7, 5), location="pipe")]
    assert load(written(tmp_path, NODES, tensors, INPUTS)).graph().parameters == 35


def test_a_file_of_a_gigabyte_of_weights_is_read_in_a_moment(tmp_path: Path) -> None:
    """The file is sparse: its weights are a hole that nobody reads."""
    size = 2**30
    weight = number(1, 2**14) + number(1, 2**14) + number(2, REAL) + block(8, "w") + varint(9 << 3 | 2) + varint(size)
    rest = block(1, node("Gemm", "x w", "y")) + block(11, value("x", (1, 2**14)))
    graph = varint(5 << 3 | 2) + varint(len(weight) + size) + weight
    head = number(1, 8) + varint(7 << 3 | 2) + varint(len(rest) + len(graph) + size) + rest + graph
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    started = time.monotonic()
    assert load(path).graph().parameters == 2**28
    assert time.monotonic() - started < 2


def test_a_file_of_nothing_but_small_fields_ends_soon(tmp_path: Path) -> None:
    path = tmp_path / "fields.onnx"
    path.write_bytes(number(1, 1) * 1_100_000)
    started = time.monotonic()
    with pytest.raises(ValueError, match="more than"):
        load(path)
    assert time.monotonic() - started < 20


# Documentation and an oracle -------------------------------------------------------------------------------------


def test_the_page_lists_the_operators_that_are_read() -> None:
    page = (ROOT / "docs" / "importers_onnx.md").read_text(encoding="utf-8")
    assert coverage() in page
    assert all(f"| {name} |" in page for name in COUNTS)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "llama_small", "gru"])
def test_shapes_are_those_that_the_onnx_package_infers(name: str) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx package (an oracle, not a dependency)")
    from workloads.importers.onnx import network
    from workloads.importers.walk import Walk

    path = SAMPLES / f"{name}.onnx"
    theirs = onnx.shape_inference.infer_shapes(onnx.load(str(path), load_external_data=False), data_prop=True)
    parsed = read(path)
    build: Any = network(parsed, name).build
    walk = Walk(build.model, name, {one.name: build._sizes(one, None) for one in build.data})
    walk.run(False)
    compared = 0
    for one in theirs.graph.value_info:
        sizes = [size.dim_value for size in one.type.tensor_type.shape.dim]
        if all(sizes) and one.name in walk.sizes and prod(sizes):
            assert walk.sizes[one.name].shape == tuple(sizes), one.name
            compared += 1
    assert compared > 3
