"""Networks from files: this product's YAML and JSON, there and back, and every place that takes a name of a network."""

from __future__ import annotations

import importlib.util
import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import dse
from dse.base.errors import ConfigError
from dse.command.main import main
from dse.inputs.networks import import_network, names_file, usual_sequence
from dse.inputs.yaml.load import load_design
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.importers import huggingface
from workloads.importers.network_file import PLACES, read
from workloads.importers.network_operators import operators, word
from workloads.importers.network_text import plain, yaml_text
from workloads.importers.reading import FileError
from workloads.layers.attention import MultiHeadAttention
from workloads.layers.convolution import Conv, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import LayerNorm
from workloads.layers.pointwise import Activation, Add, Concat, GlobalPool
from workloads.networks import GRAPHS
from workloads.published import network as published
from workloads.training import parameters

TINY = """
name: tiny
inputs: {image: [3, 32, 32]}
operators:
  - {operator: conv, filters: 16, kernel: 3, padding: 1, name: first, cell: stem}
  - repeat: 4
    cell: block {}
    operators:
      - {operator: conv, filters: 16, kernel: 3, padding: 1, bias: false}
      - {operator: activation}
      - {operator: add, inputs: [-1, -3]}
  - {operator: add, inputs: [-1, first], cell: head}
  - {operator: global_pool, cell: head}
  - {operator: linear, outputs: 10, cell: head}
  - {operator: cross_entropy, cell: head}
"""
DESIGN = """
name: relative
workload: {{network: {network}, global_batch: 64}}
chip: {{base: a100-sxm-80gb}}
cluster: {{base: dgx-a100, devices: 8}}
plan: {{data: 8}}
"""


def back(network: Any, sequence: int | None = None) -> GraphNetwork:
    found = read(yaml.safe_load(yaml_text(network, sequence)), "back.yaml").network
    assert isinstance(found, GraphNetwork)
    return found


def same(one: GraphNetwork, other: GraphNetwork) -> None:
    first, second = one.graph(), other.graph()
    assert (first.parameters, first.flops, len(first.nodes)) == (second.parameters, second.flops, len(second.nodes))
    for node, twin in zip(first.nodes, second.nodes, strict=True):
        assert (node.counts, node.inputs, node.name, node.shares) == (twin.counts, twin.inputs, twin.name, twin.shares)
        assert node.cell == twin.cell or node.is_data
    assert one.blocks(one.sequence) == other.blocks(other.sequence)
    assert (one.name, one.sample, one.sequence, one.divisors()) == (
        other.name, other.sample, other.sequence, other.divisors()
    )  # fmt: skip


# The format -------------------------------------------------------------------------------------------------------


def test_a_file_builds_the_graph_that_it_lists(tmp_path: Path) -> None:
    """A stem of 3 x 16 x 9 weights and 16 biases, four blocks of 16 x 16 x 9, a classifier of 16 x 10 and 10."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    network = dse.load_network(tmp_path / "tiny.yaml")
    assert isinstance(network, GraphNetwork)
    graph = network.graph()
    assert graph.parameters == (3 * 16 * 9 + 16) + 4 * 16 * 16 * 9 + (16 * 10 + 10)
    assert graph.macs == 32 * 32 * (3 * 16 * 9 + 4 * 16 * 16 * 9) + 160
    assert [cell.name for cell in network.blocks(1)[1].cells] == [
        "stem", "block 0", "block 1", "block 2", "block 3", "head"
    ]  # fmt: skip
    added = graph.nodes[-4]
    assert [graph.nodes[source].name for source in added.inputs][1] == "first"


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "tiny.json").write_text(json.dumps(yaml.safe_load(TINY)))
    assert dse.load_network(tmp_path / "tiny.yaml") == dse.load_network(tmp_path / "tiny.json")


def test_a_decoder_is_given_by_its_sizes(tmp_path: Path) -> None:
    sizes = "{layers: 3, hidden: 12, heads: 4, ffn: 48, vocabulary: 7}"
    (tmp_path / "d.yaml").write_text(f"name: small\nsequence: 16\ndecoder_transformer: {sizes}\n")
    network = dse.load_network(tmp_path / "d.yaml")
    assert network == dse.DecoderTransformer("small", layers=3, hidden=12, heads=4, ffn=48, vocabulary=7)
    assert usual_sequence(network) == 16


def test_the_word_sequence_in_a_shape_takes_any_length() -> None:
    tree = {"name": "s", "sequence": 8, "inputs": {"x": ["sequence", 4]}, "operators": [
        {"operator": "linear", "outputs": 6}, {"operator": "cross_entropy"}]}  # fmt: skip
    network = read(tree).network
    assert isinstance(network, GraphNetwork)
    assert network.graph(8).macs * 3 == network.graph(24).macs
    fixed = read(tree | {"inputs": {"x": [8, 4]}}).network
    assert isinstance(fixed, GraphNetwork)
    with pytest.raises(ValueError, match="sequence: found 24, allowed: 8"):
        fixed.graph(24)


def test_shared_parameters_count_once() -> None:
    tree = {"name": "t", "inputs": {"x": [8]}, "operators": [
        {"operator": "embedding", "rows": 13, "width": 4, "name": "words"},
        {"operator": "linear", "outputs": 13, "bias": False, "tied_to": "words"},
        {"operator": "cross_entropy"}]}  # fmt: skip
    assert parameters(read(tree).network, 1) == 13 * 4


def test_an_inner_cell_gives_way_to_the_outer_one_and_repeats_may_be_nested() -> None:
    layer = {"operator": "linear", "outputs": 5, "cell": "inner"}
    tree = {"name": "n", "inputs": {"x": [5]}, "operators": [
        {"repeat": 2, "cell": "stage {}", "first": 3, "operators": [{"repeat": 3, "operators": [layer]}]}]}  # fmt: skip
    network = read(tree).network
    assert isinstance(network, GraphNetwork)
    assert [node.cell for node in network.graph().nodes[1:]] == ["stage 3"] * 3 + ["stage 4"] * 3


def test_no_operator_has_a_field_that_the_format_has_a_meaning_for() -> None:
    assert not [name for name, kind in operators().items() if {item.name for item in fields(kind)} & set(PLACES)]


def test_names_of_operators_are_words() -> None:
    assert (word("BatchNorm"), word("LSTM"), word("PReLU"), word("MultiHeadAttention")) == (
        "batch_norm", "lstm", "prelu", "multi_head_attention"
    )  # fmt: skip
    assert {"conv", "linear", "multi_head_attention", "lstm", "embedding_bags", "counted"} <= set(operators())
    assert len(operators()) == len(set(operators().values()))


# There and back ---------------------------------------------------------------------------------------------------


#: A network of each kind of operator.
SOME = (
    "resnet50", "googlenet", "mobilenet-v3-small", "unet", "ssd300-resnet50", "convnext-tiny", "vit-b16", "bert-base",
    "transformer-base", "t5-base", "gnmt-4", "transformer-xl-base", "mamba2-130m", "dlrm-small", "ads-a",
    "tgn-wikipedia", "glm-covtype", "scd-criteo-by-example", "mandelbrot", "quartznet-15x5", "shufflenet-v2-1.0",
    "rnn-t",
)  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_every_built_in_graph_survives_the_way_to_yaml_and_back(name: str) -> None:
    same(GRAPHS[name], back(GRAPHS[name]))


@pytest.mark.parametrize("name", ["gpt2-xl", "llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_a_decoder_survives_the_way_to_yaml_and_back(name: str) -> None:
    assert read(yaml.safe_load(yaml_text(published(name), 1024))).network == published(name)


@pytest.mark.parametrize("file", ["alexnet.csv", "bert.json"])
def test_an_imported_network_survives_the_way_to_yaml_and_back(file: str, tmp_path: Path) -> None:
    (tmp_path / "alexnet.csv").write_text(
        "Layer name,h,w,r,s,c,m,stride\nConv1,224,224,11,11,3,96,4\nConv2,27,27,5,5,96,256,1\n"
    )
    (tmp_path / "bert.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 2}))
    network = dse.load_network(tmp_path / file)
    assert isinstance(network, GraphNetwork)
    same(network, back(network))


def test_random_graphs_survive_the_way_to_yaml_and_back() -> None:
    draw = random.Random(7)
    for number in range(30):
        same(*(pair := (_random(draw, number),)), back(pair[0]))


def _random(draw: random.Random, number: int) -> GraphNetwork:
    graph = Graph(f"random {number}")
    values = [graph.input((8, 12, 12), f"image {number}")]
    for step in range(draw.randrange(3, 30)):
        with graph.cell(f"part {step // draw.choice((1, 2, 3))}" if draw.random() < 0.8 else ""):
            one = draw.choice(values)
            kind = draw.randrange(5)
            if kind == 0:
                values.append(graph.add(Conv(8, 3, padding=1, groups=draw.choice((1, 8))), one))
            elif kind == 1:
                values.append(graph.add(Activation(draw.choice(("relu", "gelu"))), one, name="same name"))
            elif kind == 2:
                values.append(graph.add(Add(), one, draw.choice(values)))
            elif kind == 3:
                values.append(graph.add(Pool(3, 1, 1, draw.choice(("max", "average"))), one))
            else:
                joined = graph.add(Concat(), one, draw.choice(values))
                values.append(graph.add(Conv(8, (1, 1), bias=draw.random() < 0.5), joined))
    head = graph.add(Linear(10), graph.add(GlobalPool(), values[-1]))
    graph.add(CrossEntropy(), head)
    return GraphNetwork(f"random {number}", Fixed(graph))


class Fixed:
    """A graph that is built already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, sequence: int) -> Graph:
        return self.graph


def test_a_network_of_any_length_is_written_with_the_word_for_it_and_others_with_a_number() -> None:
    assert plain(published("transformer-base"))["inputs"] == {"source": ["sequence"]}
    assert back(published("transformer-base")).blocks(64) == published("transformer-base").blocks(64)
    assert plain(published("bert-base"))["inputs"] == {"words": [512]}  # the positions it predicts depend on it
    assert plain(published("resnet50"))["inputs"] == {"image": [3, 224, 224]}
    fixed = Graph("fixed")
    fixed.add(Linear(3), fixed.input((16, 4), "x"))
    assert plain(GraphNetwork("fixed", Fixed(fixed), 16, "sequence"))["inputs"] == {"x": [16, 4]}


def test_layers_that_are_alike_are_written_once() -> None:
    tree = plain(published("bert-base"))
    repeats = [item for item in tree["operators"] if "repeat" in item]
    assert [(item["repeat"], item["cell"]) for item in repeats] == [(12, "layer {}")]


def test_an_operator_of_somebody_else_is_written_by_its_counts() -> None:
    class Mine:
        """Twice a linear layer."""

        def counts(self, *shapes: tuple[int, ...]) -> Any:
            return Linear(6).counts(*shapes)

    graph = Graph("mine")
    graph.add(CrossEntropy(), graph.add(Mine(), graph.input((4, 3))))
    network = GraphNetwork("mine", Fixed(graph))
    assert "operator: counted" in yaml_text(network)
    same(network, back(network))


def test_what_is_no_decoder_and_no_graph_cannot_be_written() -> None:
    class Odd:
        name = "odd"

    with pytest.raises(ValueError, match="found a Odd, allowed: a DecoderTransformer or a GraphNetwork"):
        yaml_text(Odd())  # type: ignore[arg-type]


# Faults -----------------------------------------------------------------------------------------------------------


def test_every_fault_of_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "name: bad\ninput: {x: [3]}\ninputs: {image: [3, 32, 0]}\noperators:\n"
        "  - {operator: convv, filters: 16}\n  - {operator: conv, filter: 16, kernel: '3'}\n"
        "  - repeat: 4\n    operators:\n      - {operator: activation, kind: gelo}\n"
        "      - {operator: add, inputs: [image, nothere]}\n"
    )
    with pytest.raises(ConfigError) as error:
        dse.load_network(tmp_path / "bad.yaml")
    text = str(error.value)
    for part in (
        "bad.yaml:2:1: input: found an unknown key", "did you mean inputs?",
        "bad.yaml:3:10: inputs.image: found [3, 32, 0]; allowed: 1 to 8 whole numbers >= 1",
        'bad.yaml:5:6: operators[0].operator: found "convv"', "did you mean conv?",
        "operators[1].filter: found an unknown key", "did you mean filters?", 'operators[1].kernel: found "3"',
        "operators[2].operators[0].kind: found 'gelo'; allowed: relu",
    ):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"operators": []}, "operators: found an empty list"),
        ({"operators": [{"operator": "linear", "outputs": 3, "inputs": "nothere"}]}, "allowed: the name of a result"),
        ({"operators": [{"operator": "linear", "outputs": 3, "inputs": "#9"}]}, 'found "#9"'),
        ({"operators": [{"operator": "linear", "outputs": 3, "inputs": -5}]}, "found -5"),
        ({"operators": [{"operator": "linear", "outputs": 3, "tied_to": "x"}]}, "parameters differ in number"),
        ({"operators": [{"operator": "linear", "outputs": 10**16}]}, "operators[0].outputs: found 10000000000000000"),
        ({"operators": [{"operator": "linear", "outputs": 10**15 - 1}]}, "a result of"),
        ({"operators": [{"operator": "linear", "outputs": True}]}, "operators[0].outputs: found true"),
        ({"operators": [{"operator": "conv", "filters": 3, "kernel": 9}]}, "operators[0]"),
        ({"operators": [{"repeat": 0, "operators": []}]}, "operators[0].repeat: found 0"),
        ({"operators": [{"repeat": 5000, "operators": [{"operator": "dropout"}] * 2}]}, "more than 5000 operators"),
        ({"operators": [3]}, "operators[0]: found 3; allowed: a mapping"),
        ({"operators": {"a": 1}}, "operators: found a mapping; allowed: a list"),
        ({"inputs": [1]}, "inputs: found a list"),
        ({"inputs": {}}, "no input"),
        ({"sequence": 0}, "sequence: found 0"),
        ({"sample": 3}, "sample: found 3"),
        ({"tensor_divides": {"heads": "x"}}, 'tensor_divides.heads: found "x"'),
        ({"decoder_transformer": {}}, "both operators and decoder_transformer"),
    ],
)
def test_a_description_that_makes_no_graph_is_refused_by_field(change: dict[str, Any], part: str) -> None:
    tree = {"name": "n", "inputs": {"x": [4, 8]}, "operators": [{"operator": "linear", "outputs": 3}]}
    with pytest.raises(FileError) as error:
        read(tree | change)
    assert part in str(error.value)


def test_sizes_of_a_decoder_are_checked_like_those_of_a_configuration() -> None:
    with pytest.raises(FileError) as error:
        read({"decoder_transformer": {"layers": 3, "hiden": 12, "heads": "4", "ffn": 48}})
    text = str(error.value)
    for part in ("did you mean hidden?", 'heads: found "4"', "decoder_transformer.hidden: found nothing", "vocabulary"):
        assert part in text
    with pytest.raises(FileError, match="decoder_transformer.layers: found 0; allowed: a whole number >= 1"):
        read({"decoder_transformer": {"layers": 0, "hidden": 12, "heads": 4, "ffn": 48, "vocabulary": 7}})


# The page -----------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "importers.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_what_the_program_says() -> None:
    """Otherwise: python benchmarks/importer_counts.py --page"""
    path = Path(__file__).parents[2] / "benchmarks" / "importer_counts.py"
    spec = importlib.util.spec_from_file_location("importer_counts", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.page(PAGE) == PAGE


def test_the_page_lists_every_model_type() -> None:
    assert set(huggingface.types()) <= set(PAGE.replace(",", " ").replace(":", " ").split())


def test_the_example_of_the_page_is_a_network() -> None:
    text = PAGE.split("```yaml")[1].split("```")[0]
    assert read(yaml.safe_load(text)).network.blocks(1)[1].cells[1].name == "block 0"


# Every place that takes a name ------------------------------------------------------------------------------------


def test_what_is_meant_as_a_file() -> None:
    assert names_file("config.json") and names_file("a/b/model.onnx") and names_file("t.csv") and names_file("./x")
    assert not names_file("resnet50") and not names_file("gpt3-6.7b") and not names_file("my_models:build")


def test_a_file_is_seen_from_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "tiny.yaml").write_text(TINY)
    (tmp_path / "design.yaml").write_text(DESIGN.format(network="nets/tiny.yaml"))
    workload = load_design(tmp_path / "design.yaml").workloads[0]
    assert (workload.network.name, workload.sequence) == ("tiny", 1)


def test_faults_of_a_network_file_are_said_beside_those_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("global_pool", "globl_pool"))
    (tmp_path / "design.yaml").write_text(DESIGN.format(network="tiny.yaml").replace("data: 8", "data: none"))
    with pytest.raises(ConfigError) as error:
        load_design(tmp_path / "design.yaml")
    text = str(error.value)
    assert "design.yaml:6:" in text and "plan.data" in text
    assert "tiny.yaml:13:6: operators[3].operator" in text and "did you mean global_pool?" in text


@pytest.mark.parametrize("attribute", ["graph", "build", "network", "of_length"])
def test_an_attribute_may_be_a_network_a_graph_or_a_function_that_makes_one(
    attribute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "user_model.py").write_text(
        "from dse import Graph, GraphNetwork\nfrom workloads.layers.dense import Linear\n"
        "def of_length(sequence):\n    made = Graph('mine')\n    made.add(Linear(8), made.input((sequence, 8)))\n"
        "    return made\ngraph = of_length(16)\ndef build():\n    return graph\n"
        "network = GraphNetwork('mine', of_length, 16, 'sequence')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = f"--network user_model:{attribute} --chip a100-sxm-80gb --devices 2 --data 2 --global-batch 8 --json"
    more = ["--sequence", "16"] if attribute == "of_length" else []
    assert main(["evaluate", *flags.split(), *more]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]


def test_the_command_line_takes_a_file_and_its_design_is_read_back_to_the_same_bits(
    tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    flags = f"--network {tmp_path / 'tiny.yaml'} --chip a100-sxm-80gb --devices 8 --data 8 --global-batch 64 --json"
    assert main(["evaluate", *flags.split()]) == 0
    first = capsys.readouterr().out
    (tmp_path / "design.json").write_text(first)
    assert main(["evaluate", str(tmp_path / "design.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == json.loads(first)["metrics"]


def test_a_built_in_graph_needs_no_sequence_and_is_stored_by_its_name(capsys: Any) -> None:
    flags = "--network resnet18 --chip a100-sxm-80gb --devices 8 --data 8 --global-batch 64 --json"
    assert main(["evaluate", *flags.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["design"]["workload"]["network"] == {"published": "resnet18"}


def test_a_decoder_from_a_file_needs_a_sequence(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    flags = f"--network {tmp_path / 'config.json'} --chip a100-sxm-80gb --devices 8 --data 8 --global-batch 64"
    assert main(["evaluate", *flags.split()]) == 2
    assert "--sequence: found nothing" in capsys.readouterr().err
    assert main(["evaluate", *flags.split(), "--sequence", "64"]) == 0


def test_notes_of_an_importer_are_said(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma2", "num_hidden_layers": 2}))
    assert import_network(tmp_path / "config.json").notes
    flags = f"--network {tmp_path} --chip a100-sxm-80gb --devices 8 --data 8 --global-batch 64 --sequence 64"
    assert main(["evaluate", *flags.split()]) == 0
    assert "sliding window" in capsys.readouterr().err


def test_import_writes_a_network_that_the_other_commands_take(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2}))
    assert main(["import", str(tmp_path / "config.json"), "--out", str(tmp_path / "l.yaml")]) == 0
    assert dse.load_network(tmp_path / "l.yaml").blocks(64) == dse.load_network(tmp_path / "config.json").blocks(64)
    assert main(["import", "resnet18"]) == 0
    text = capsys.readouterr().out
    assert read(yaml.safe_load(text)).network.blocks(1) == GRAPHS["resnet18"].blocks(1)
    assert main(["import", "a.json", "b.json"]) == 2
    assert main(["import", "resnet18", "--out", str(tmp_path / "none" / "x.yaml")]) == 2


def test_a_transformer_layer_can_be_written_by_hand() -> None:
    graph = Graph("hand")
    x = graph.input((16, 32), "x")
    with graph.cell("layer"):
        graph.add(LayerNorm(), graph.add(Add(), x, graph.add(MultiHeadAttention(4, causal=True), x)))
    tree = {"name": "hand", "inputs": {"x": [16, 32]}, "operators": [
        {"operator": "multi_head_attention", "heads": 4, "causal": True, "cell": "layer"},
        {"operator": "add", "inputs": ["x", -1], "cell": "layer"},
        {"operator": "layer_norm", "cell": "layer"}]}  # fmt: skip
    assert read(tree).network.blocks(1) == GraphNetwork("hand", Fixed(graph)).blocks(1)
