"""Networks of images and volumes: parameters and multiply-adds as frameworks and papers count them, and laws."""

from __future__ import annotations

import csv
import pickle
from importlib.resources import files

import pytest

import dse
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv
from workloads.networks import GRAPHS, classic, detection, efficient, resnets, segmentation
from workloads.networks.classic import VGG, AlexNet
from workloads.networks.detection import MaskRCNN
from workloads.networks.efficient import EfficientNet, whole_channels
from workloads.networks.resnets import SIZES, ResNet
from workloads.networks.segmentation import PlainUNet, UNet
from workloads.published import default_sequence, graph_counts, identifier, names, network, published, sample, table

FAMILIES = (resnets, classic, efficient, detection, segmentation)
OURS: tuple[GraphNetwork, ...] = tuple(one for family in FAMILIES for one in family.NETWORKS)
NAMES = [one.name for one in OURS]


# Counts ---------------------------------------------------------------------------------------------------------------


def test_resnet50_by_hand() -> None:
    """Stem, four groups of bottlenecks, classifier: weights and multiply-adds in closed form."""
    weights, work, positions, channels = 7 * 7 * 3 * 64 + 2 * 64, 112 * 112 * 7 * 7 * 3 * 64, 56 * 56, 64
    for group, number in enumerate((3, 4, 6, 3)):
        wide = 64 * 2**group
        for block in range(number):
            before = positions * (4 if block == 0 and group else 1)  # the 3 x 3 has the stride
            weights += channels * wide + 9 * wide * wide + wide * 4 * wide + 2 * (wide + wide + 4 * wide)
            work += before * channels * wide + positions * (9 * wide * wide + wide * 4 * wide)
            if block == 0:
                weights += channels * 4 * wide + 2 * 4 * wide
                work += positions * channels * 4 * wide
            channels = 4 * wide
        positions //= 4
        if group < 3:
            positions = (56 // 2 ** (group + 1)) ** 2
    graph = network("resnet50").graph()
    assert graph.parameters == weights + 2048 * 1000 + 1000 == 25_557_032
    assert graph.macs == work + 2048 * 1000 == 4_089_184_256


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_framework(name: str) -> None:
    count, graph = graph_counts()[name], network(name).graph()
    assert count.made_by and count.source and count.input
    for found, expected in ((graph.parameters, count.parameters), (graph.macs, count.macs)):
        assert expected is not None
        assert abs(found - expected) <= count.tolerance * expected, (found, expected)
    assert not count.tolerance or count.tolerance <= 0.005 and count.reason


KEPT = [name for name in NAMES if graph_counts()[name].kept_elements]


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_what_autograd_keeps(name: str) -> None:
    """Elements in 2 B, indices and masks in bytes: within 2% (statistics of norms, dropout's wider masks)."""
    count, layers = graph_counts()[name], network(name).blocks(1)[1]
    assert count.kept_elements is not None and count.kept_bytes is not None
    expected = 2 * count.kept_elements + count.kept_bytes
    assert layers.saved.sequence + layers.saved.tensor == pytest.approx(expected, rel=0.02)
    assert len(KEPT) > 35


@pytest.mark.parametrize(
    ("name", "parameters", "billions", "source"),
    [
        ("resnet50-v1", 25.6e6, 3.8, "He et al. 2016, table 1; parameters recalled"),
        ("resnet101-v1", 44.5e6, 7.6, "He et al. 2016, table 1; parameters recalled"),
        ("resnet152-v1", 60.2e6, 11.3, "He et al. 2016, table 1; parameters recalled"),
        ("resnext50-32x4d", 25.0e6, 4.2, "Xie et al. 2017, table 1"),
        ("vgg16", 138e6, 15.5, "Simonyan and Zisserman 2015, table 2; multiply-adds recalled"),
        ("vgg19", 144e6, 19.6, "Simonyan and Zisserman 2015, table 2; multiply-adds recalled"),
        ("mobilenet-v2", 3.4e6, 0.300, "Sandler et al. 2018, table 4"),
        ("mobilenet-v3-large", 5.4e6, 0.219, "Howard et al. 2019, table 3"),
        ("mobilenet-v3-small", 2.5e6, 0.056, "Howard et al. 2019, table 3"),
        ("efficientnet-b0", 5.3e6, 0.39, "Tan and Le 2019, table 2"),
        ("shufflenet-v2-1.0", 2.3e6, 0.146, "Ma et al. 2018, table 8"),
        ("densenet121", 8.0e6, 2.87, "Huang et al. 2017, table 1; multiply-adds recalled"),
        ("convnext-tiny", 28.6e6, 4.5, "Liu et al. 2022, table 1"),
        ("efficientdet-d0", 3.9e6, 2.5, "Tan, Pang and Le 2020, table 2"),
        ("alexnet-two-towers", 60e6, 0.72, "Krizhevsky et al. 2012, section 3 (60 million); multiply-adds recalled"),
    ],
)
def test_counts_are_near_what_papers_print(name: str, parameters: float, billions: float, source: str) -> None:
    """Papers round, and some leave out shortcuts, biases or the last layer: within 4%."""
    graph = network(name).graph()
    assert graph.parameters == pytest.approx(parameters, rel=0.04), source
    assert graph.macs == pytest.approx(billions * 1e9, rel=0.04), source


def test_the_table_of_counts_is_complete_and_holds_nothing_else() -> None:
    assert set(NAMES) <= set(graph_counts())
    assert set(graph_counts()) <= set(GRAPHS)
    text = (files("workloads") / "data" / "graph_counts.csv").read_text(encoding="utf-8")
    rows = [row["name"] for row in csv.DictReader(text.splitlines())]
    assert len(rows) == len(set(rows))


# Training -------------------------------------------------------------------------------------------------------------


def first_products(graph: Graph) -> int:
    """FLOP of products that only read what no parameter was part of: data, and what is made of it alone."""
    plain = {number for number, node in enumerate(graph.nodes) if node.is_data}
    for number, node in enumerate(graph.nodes):
        if not node.is_data and not node.counts.parameters and plain.issuperset(node.inputs):
            plain.add(number)
    return sum(node.counts.flops for node in graph.nodes if not node.is_data and plain.issuperset(node.inputs))


@pytest.mark.parametrize("name", NAMES)
def test_training_computes_three_times_the_forward_pass_less_the_first_input_gradient(name: str) -> None:
    graph = network(name).graph()
    layers = network(name).blocks(1)[1]
    assert layers.flops == graph.flops == 2 * graph.macs
    assert layers.training_flops == 3 * graph.flops - first_products(graph)
    assert first_products(graph) > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_network_ends_in_a_loss_and_has_layers_to_cut(name: str) -> None:
    first, layers, loss = network(name).blocks(1)
    assert any(one.loss for one in loss.vectors) and not loss.matmuls
    assert len(layers.cells) >= 7 and not first.parameters and not loss.parameters
    assert layers.saved.sequence + layers.saved.tensor > 0 and layers.kernels > layers.layers


# Laws -----------------------------------------------------------------------------------------------------------------


def test_twice_the_edge_of_an_image_is_four_times_the_convolutions() -> None:
    small, large = ResNet(SIZES[50])(1), ResNet(SIZES[50], image=448)(1)
    assert small.parameters == large.parameters
    assert large.macs - 2_048_000 == 4 * (small.macs - 2_048_000)


def test_a_stride_that_comes_later_costs_more_and_trains_as_much() -> None:
    early, late = network("resnet50-v1").graph(), network("resnet50").graph()
    assert early.parameters == late.parameters
    assert late.macs / early.macs == pytest.approx(1.0599, abs=1e-4)


def test_classes_change_the_last_layer_alone() -> None:
    few, many = ResNet(SIZES[50], classes=10)(1), ResNet(SIZES[50])(1)
    assert many.parameters - few.parameters == 990 * (2048 + 1) and many.macs - few.macs == 990 * 2048


def test_auxiliary_heads_are_the_only_difference_between_the_two_googlenets() -> None:
    for name in ("googlenet", "googlenet-bn", "inception-v3"):
        whole, plain = network(name).graph(), network(f"{name}-plain").graph()
        assert sum(node.name.startswith("auxiliary") for node in whole.nodes) == (1 if name == "inception-v3" else 2)
        assert whole.parameters > plain.parameters and whole.macs > plain.macs


def test_frozen_norms_train_nothing_and_compute_the_same_products() -> None:
    plain, frozen = ResNet(SIZES[50])(1), ResNet(SIZES[50], frozen=True)(1)
    assert plain.macs == frozen.macs and plain.parameters - frozen.parameters == 53_120


def test_heads_of_all_levels_share_their_weights() -> None:
    graph = network("retinanet-resnet50-fpn").graph()
    shared = [node for node in graph.nodes if node.shares >= 0]
    assert len(shared) == 4 * 2 * 5 and all(node.parameters == 0 for node in shared)


def test_more_regions_cost_more_and_train_as_much() -> None:
    few, many = MaskRCNN(rois=128, masked_rois=32)(1), MaskRCNN()(1)
    assert few.parameters == many.parameters == 44_401_393 and few.macs < many.macs
    head = 49 * 256 * 1024 + 1024 * 1024 + 1024 * 5 * 91
    masks = 14 * 14 * (4 * 9 * 256 * 256 + 4 * 256 * 256 + 4 * 256 * 91)
    assert many.macs - few.macs == 384 * head + 96 * masks


def test_unpadded_convolutions_of_the_unet_end_at_388() -> None:
    graph = UNet()(1)
    assert [node.counts.result for node in graph.nodes if isinstance(node.operator, Conv)][-1] == (2, 388, 388)
    assert UNet(padded=True, image=512)(1).parameters == graph.parameters


def test_a_3d_unet_of_half_the_edge_computes_an_eighth() -> None:
    levels = (32, 64, 128, 256, 320, 320)
    small, large = (PlainUNet((n, n, n), levels, 1, 3)(1) for n in (64, 128))
    assert large.macs == 8 * small.macs and large.parameters == small.parameters == 31_190_243


def test_channels_are_rounded_to_eights_and_never_down_by_a_tenth() -> None:
    assert [whole_channels(c) for c in (32 * 1.4, 16 * 1.4, 24 * 1.4, 1, 12, 120 / 4)] == [48, 24, 32, 8, 16, 32]
    assert EfficientNet(1.0, 1.0)(1).parameters == 5_288_548


@pytest.mark.parametrize("build", [ResNet(SIZES[50], image=16), VGG(image=16), AlexNet(image=32)])
def test_an_image_that_is_too_small_is_named(build) -> None:
    try:
        build(1)
    except ValueError as error:
        assert "allowed: no larger than it" in str(error) and ": " in str(error)
    else:
        assert isinstance(build, ResNet)  # which pads: 16 positions become one


# The registry ---------------------------------------------------------------------------------------------------------


def test_names_are_unique_and_every_network_is_cited() -> None:
    assert len(names()) == len(set(names())) == len(published()) + len(GRAPHS)
    assert len({identifier(name) for name in names()}) == len(names())
    assert all(one.source and one.name == name for name, one in GRAPHS.items())


def test_images_are_samples_of_one_and_presets_know_it() -> None:
    for name in NAMES:
        assert default_sequence(name) == 1
    assert dse.networks.resnet50(global_batch=32) == dse.Workload(network("resnet50"), 1, 32)
    assert sample(GRAPHS["resnet50"]) == "image 3x224x224" and sample(GRAPHS["unet3d"]) == "volume 1x128x128x128"


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ValueError, match="nearest: .*resnet50"):
        network("resnet-50")
    with pytest.raises(ValueError, match="nearest: .*vgg16"):
        default_sequence("vgg-16")


def test_the_table_has_a_row_a_network_with_its_counts() -> None:
    rows = {row["name"]: row for row in table()}
    assert list(rows) == list(names())
    assert len({tuple(row) for row in rows.values()}) == 1
    row = rows["vgg16"]
    assert (row["parameters"], row["published_parameters"], row["published_exact"]) == (138_357_544, 138_357_544, True)
    assert row["forward_flops_per_sample"] == 2 * 15_470_264_320 and row["sample"] == "image 3x224x224"
    assert rows["gpt3-175b"]["sample"] == "2,048 tokens" and rows["vgg16"]["layers"] is None


@pytest.mark.parametrize("one", OURS, ids=NAMES)
def test_a_network_travels_between_processes_as_itself(one: GraphNetwork) -> None:
    again = pickle.loads(pickle.dumps(one))
    assert again == one and hash(again) == hash(one)
