"""`dse network show`: totals, layers and operators of networks, and their pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from dse.command.main import main
from dse.inputs.catalogs import networks
from dse.insight.network_report import PHASES, Work, network_report
from dse.present.figures.network import kind_of, places
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv
from workloads.operators import Matmul, Vector
from workloads.published import network

CONVOLUTIONS = ("resnet50", "unet", "googlenet", "mobilenet-v2", "densenet121")


@pytest.fixture
def run(capsys: Any) -> Any:
    def call(text: str) -> tuple[int, str, str]:
        status = main(text.split())
        found = capsys.readouterr()
        return status, found.out, found.err

    return call


# By hand --------------------------------------------------------------------------------------------------------------


def test_a_product_moves_two_operands_and_a_result_once() -> None:
    from dse.insight.network_report import pass_work, product_work

    work = product_work(Matmul("x", 3, 4, 5), 2)
    assert work["forward"] == Work(2.0 * 6 * 4 * 5, 2.0 * (6 * 5 + 4 * 5 + 6 * 4))
    assert work["weight_gradient"] == work["input_gradient"] == work["forward"]
    assert "input_gradient" not in product_work(Matmul("x", 3, 4, 5, input_gradient=False), 2)
    scores = product_work(Matmul("x", 3, 4, 5, groups=7, weight=False), 2)
    assert scores["forward"] == Work(2.0 * 7 * 6 * 4 * 5, 2.0 * 7 * (6 * 5 + 2 * 4 * 5 + 6 * 4))
    assert scores["input_gradient"].flops == 2 * scores["forward"].flops
    done = pass_work(Vector("y", 10, reads=2, writes=1, operations=3, backward_reads=1, backward_writes=1), 2)
    assert done["passes_forward"] == Work(60.0, 2 * 20 * 3.0) and done["passes_backward"] == Work(40.0, 2 * 20 * 2.0)


def test_a_convolution_reads_its_image_once_not_its_windows() -> None:
    from dse.insight.network_report import product_work

    one = Matmul("x", 100, 8, 4 * 9, window=9)
    assert product_work(one, 1)["forward"].moved == 2 * (100 * 4 + 8 * 36 + 100 * 8)


# Totals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_layers_add_up_to_the_network(name: str) -> None:
    report, graph, blocks = network_report(network(name)), network(name).graph(), network(name).blocks(1)
    assert report.parameters == graph.parameters
    assert report.phase("forward").flops == graph.flops
    products = report.phase("forward", "input_gradient", "weight_gradient").flops
    assert products == sum(block.training_flops for block in blocks)
    assert report.kept == sum(cell.kept for block in blocks for cell in block.cells)
    assert sum(layer.count for layer in report.layers) == len(blocks[1].cells)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-8b", "mixtral-8x7b"])
def test_blocks_add_up_to_a_transformer(name: str) -> None:
    from workloads.network import Workload
    from workloads.published import default_sequence
    from workloads.training import model_flops

    report, length = network_report(network(name)), default_sequence(name)
    assert report.phase("forward", "input_gradient", "weight_gradient").flops == model_flops(
        Workload(network(name), length, 1)
    )
    assert report.layers[1].count == network(name).layers and report.sequence == length


def test_weights_are_read_once_a_micro_batch() -> None:
    one, many = (network_report(network("resnet50"), micro_batch=b) for b in (1, 64))
    assert many.phase("forward").flops == 64 * one.phase("forward").flops
    assert one.phase("forward").moved > many.phase("forward").moved / 64
    assert many.phase("forward").intensity > 1.5 * one.phase("forward").intensity
    assert many.kept == one.kept  # a sample


def test_runs_of_equal_layers_are_one_with_a_count() -> None:
    layers = {layer.name: layer.count for layer in network_report(network("resnet50")).layers}
    assert layers["block 2.2..2.4"] == 3 and layers["block 3.2..3.6"] == 5 and layers["stem"] == 1


def test_links_jump_where_a_skip_does() -> None:
    report = network_report(network("unet"))
    at = {layer.name: number for number, layer in enumerate(report.layers)}
    jumps = {(link.source, link.target): link.elements for link in report.links if link.target > link.source + 1}
    assert jumps == {
        (at[f"down {n}"], at[f"up {n}"]): channels * size * size
        for n, channels, size in ((1, 64, 568), (2, 128, 280), (3, 256, 136), (4, 512, 64))
    }


@pytest.mark.parametrize("batch", [0, -1, 1.5, True])
def test_a_bad_micro_batch_is_named(batch: Any) -> None:
    with pytest.raises(ValueError, match="micro_batch"):
        network_report(network("resnet50"), micro_batch=batch)


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_totals_layers_and_on_demand_operators(run: Any) -> None:
    status, text, _ = run("network show resnet50")
    assert status == 0 and "25,557,032 parameters" in text and "8.178 GFLOP" in text and "2.971 times" in text
    assert "3.2..3.6" in text and max(map(len, text.splitlines())) <= 100
    longer = run("network show resnet50 --operators")[1]
    assert longer.startswith(text.rstrip("\n")) and "batch norm" not in text and "64x112x112" in longer


def test_the_command_gives_exact_numbers_as_json(run: Any) -> None:
    status, text, _ = run("network show vgg16 --json --micro-batch 2")
    found = json.loads(text)
    assert status == 0 and found["parameters"] == 138_357_544 and found["micro_batch"] == 2
    assert found["phases"]["forward"]["flops"] == 4 * 15_470_264_320
    assert tuple(found["phases"]) == PHASES and found["layers"][0]["operators"][0]["size"] == "50176 x 64 x 27"


def test_sequences_change_transformers(run: Any) -> None:
    short, long = (json.loads(run(f"network show gpt2-small --json --sequence {n}")[1]) for n in (128, 1024))
    assert short["sequence"] == 128 and short["phases"]["forward"]["flops"] < long["phases"]["forward"]["flops"] / 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("network show resnet-50", "resnet50"), ("network draw resnet50", "show"),
        ("network show resnet50 --out a.jpg", ".png or .svg"), ("network show resnet50 --out no/such/a.png", "folder"),
        ("network show resnet50 --micro-batch 0", "whole number >= 1"), ("network show json:dumps", "network"),
        ("network show missing.yaml", "missing.yaml: found no such file"),
        ("network show resnet50.onnx", "did you mean resnet50?"),
        (f"network show {Path(__file__).parents[1]}/data/onnx/gpt2.onnx", "sequence: found none"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_and_status_2(run: Any, text: str, words: str) -> None:
    status, out, err = run(text)
    assert status == 2 and words in err and not out and "Traceback" not in err


def test_images_are_counted_as_images_and_have_no_length(run: Any) -> None:
    scene = "--network resnet50 --chip h100-sxm --devices 8 --global-batch 2048"
    for command in ("evaluate", "explain", "plan"):
        status, text, _ = run(f"{command} {scene}" + (" --data 8 --micro-batch 64" if command != "plan" else ""))
        assert status == 0 and " image/s" in text and "sequence 1" not in text and "2,048 tokens" not in text
    assert "energy_per_token" in run(f"evaluate {scene} --data 8")[1]  # metrics keep their names
    for command in ("evaluate", "plan"):
        status, _, err = run(f"{command} {scene} --sequence 128")
        assert status == 2 and "--sequence: found 128; allowed: 1, or none: a sample of resnet50 is one image" in err
    with pytest.raises(ValueError, match="a sample of resnet50 is one image"):
        networks.resnet50(sequence=128)


def test_what_a_user_forgets_in_a_graph_is_named() -> None:
    graph = Graph("mine")
    data = graph.input((3, 8, 8))
    for operator, value, message in (
        (Conv, data, "found the operator <class"), ("conv", data, "found the operator 'conv'"),
        (Conv(4, 3), 0, "found the input 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            graph.add(operator, value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="network 'mine': its function returned NoneType, allowed: a Graph"):
        network_report(GraphNetwork("mine", lambda sequence: None))  # type: ignore[arg-type, return-value]


def test_a_network_of_the_users_own_is_shown(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "mine_shown.py").write_text(
        "from workloads.graph import Graph\n"
        "from workloads.layers.dense import Linear\n"
        "def build(sequence):\n"
        "    graph = Graph('mine')\n"
        "    graph.add(Linear(7), graph.input((sequence, 5)))\n"
        "    return graph\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, text, _ = run("network show mine_shown:build --sequence 11 --json")
    found = json.loads(text)
    assert status == 0 and found["parameters"] == 42 and found["phases"]["forward"]["flops"] == 2 * 11 * 5 * 7


def test_the_page_of_networks_is_what_its_command_writes() -> None:
    root = Path(__file__).resolve().parents[2]
    spec = spec_from_file_location("networks_page", root / "benchmarks" / "networks_page.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    again = "python benchmarks/networks_page.py writes it again"
    assert (root / "docs" / "networks.md").read_text(encoding="utf-8") == module.page(), again


# Pictures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet50", "gpt3-175b", "densenet121", "efficientdet-d0"])
def test_boxes_do_not_overlap_and_the_widest_has_most_flop(name: str) -> None:
    layers = network_report(network(name)).layers
    boxes = places(layers)
    for number, box in enumerate(boxes):
        for other in boxes[number + 1 :]:
            beside = box.x + box.width <= other.x or other.x + other.width <= box.x
            assert beside or box.y + box.height <= other.y or other.y + other.height <= box.y
    flops = [layer.phase(*PHASES).flops for layer in layers]
    widest = max(range(len(boxes)), key=lambda i: boxes[i].width)
    assert flops[widest] == max(flops)


def test_layers_are_coloured_by_what_most_of_their_work_is() -> None:
    kinds = {layer.name: kind_of(layer.operators) for layer in network_report(network("resnet50")).layers}
    assert kinds["stem"] == "convolution" and kinds["head"] == "linear"
    blocks = network_report(network("gpt3-175b")).layers
    assert [kind_of(layer.operators) for layer in blocks] == ["no product", "linear", "linear"]


def test_pictures_are_written_as_png_and_svg(run: Any, tmp_path: Path) -> None:
    for name, ending, start in (("resnet50", "png", b"\x89PNG"), ("gpt3-175b", "svg", b"<?xml")):
        path = tmp_path / f"{name}.{ending}"
        status, _, err = run(f"network show {name} --out {path}")
        assert status == 0 and str(path) in err and path.read_bytes().startswith(start)
    text = path.read_text(encoding="utf-8")
    assert "gpt3-175b" in text and text.count("<path") > 20


def test_a_report_is_made_without_matplotlib() -> None:
    call = "from dse.command.main import main; main(['network', 'show', 'vgg16'])"
    code = f"import sys; {call}; assert 'matplotlib' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0
