"""Rules of graphs and of what they are lowered to: shapes, gradients, splits, liveness, kept tensors, cells."""

from __future__ import annotations

import random
from math import prod

import pytest

from workloads.cells import cells
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy
from workloads.layers.norms import BatchNorm, LayerNorm
from workloads.layers.pointwise import Activation, Add, Concat, Dropout, Flatten, GlobalPool, Slice
from workloads.lowering import lower, node_blocks
from workloads.networks import GRAPHS
from workloads.operators import Matmul
from workloads.placing import merged


def chain(*operators, shape=(4, 8, 8)) -> Graph:
    graph = Graph("chain")
    x = graph.input(shape)
    for operator in operators:
        x = graph.add(operator, x)
    return graph


def body(graph: Graph):
    return lower(graph)[1]


# What a graph refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0, 3), (3, -1), (2.0, 3), (True, 3)])
def test_data_has_whole_positive_sizes(shape) -> None:
    with pytest.raises(ValueError, match="whole numbers >= 1"):
        Graph().input(shape)


def test_an_operator_reads_values_of_its_own_graph_alone() -> None:
    one, other = Graph(), Graph()
    value = other.input((3,))
    with pytest.raises(ValueError, match="another graph"):
        one.add(Linear(3), value)
    with pytest.raises(ValueError, match="no input"):
        one.add(Linear(3))


def test_shared_parameters_must_be_as_many() -> None:
    graph = Graph()
    x = graph.input((4, 8))
    first = graph.add(Linear(8), x)
    graph.add(Linear(8), first, shares=first)
    assert graph.parameters == 8 * 8 + 8
    with pytest.raises(ValueError, match="differ in number"):
        graph.add(Linear(9), first, shares=first)


def test_a_graph_without_operators_is_no_network() -> None:
    graph = Graph("empty")
    graph.input((3,))
    with pytest.raises(ValueError, match="no operator"):
        lower(graph)


# Gradients ------------------------------------------------------------------------------------------------------------


def test_nothing_flows_back_into_data() -> None:
    graph = chain(Pool(2), Conv(5, 3), Activation(), Conv(6, 1))
    assert graph.needs_gradient() == [False, False, True, True, True]
    first, second = (one for one in body(graph).matmuls)
    assert (first.input_gradient, second.input_gradient) == (False, True)
    assert [one.gradient for one in body(graph).vectors if one.name == "max pool"] == [False]
    assert body(graph).training_flops == 3 * graph.flops - first.flops


def test_a_branch_that_data_feeds_directly_gets_no_gradient_either() -> None:
    graph = Graph()
    x = graph.input((3, 8, 8))
    y = graph.add(Add(), graph.add(Conv(4, 1, bias=False), x), graph.add(Conv(4, 3, padding=1, bias=False), x))
    graph.add(Conv(2, 1, bias=False), y)
    products = body(graph).matmuls
    assert [one.input_gradient for one in products] == [False, False, True]


def test_a_first_norm_lets_gradients_through_to_its_own_parameters() -> None:
    graph = chain(BatchNorm(), Conv(5, 1))
    assert all(one.input_gradient for one in body(graph).matmuls)


# What is kept and live ------------------------------------------------------------------------------------------------


def test_a_tensor_that_several_operators_keep_is_held_once() -> None:
    graph = Graph()
    x = graph.add(Activation(), graph.add(Conv(4, 1, bias=False), graph.input((4, 8, 8))))
    y = [graph.add(Conv(4, 1, bias=False), x) for _ in range(3)]  # ReLU keeps its result, three convolutions the same
    graph.add(Add(), *y)
    n = 4 * 8 * 8
    assert sum(cell.kept for cell in body(graph).cells) == 2 * (n + n)  # the image, and the result of the ReLU


def test_a_view_of_a_kept_tensor_is_not_kept_again() -> None:
    graph = chain(Conv(4, 1, bias=False), Activation(), Flatten(), Linear(3, bias=False))
    assert sum(cell.kept for cell in body(graph).cells) == 2 * (4 * 64 + 4 * 64)


def test_a_part_of_a_kept_tensor_keeps_the_whole_of_it() -> None:
    """Frameworks keep the storage that a slice looks into."""
    graph = Graph()
    x = graph.add(Conv(8, 1, bias=False), graph.input((4, 8, 8)))
    graph.add(Conv(2, 1, bias=False), graph.add(Slice(0, 4), x))
    assert sum(cell.kept for cell in body(graph).cells) == 2 * (4 * 64 + 8 * 64)


def test_masks_are_kept_beside_tensors() -> None:
    plain = chain(Linear(8, bias=False), Activation(), shape=(16, 8))
    dropped = chain(Linear(8, bias=False), Activation(), Dropout(0.1), shape=(16, 8))
    kept = [sum(cell.kept for cell in body(graph).cells) for graph in (plain, dropped)]
    assert kept[1] - kept[0] == 16 * 8


def test_losses_keep_fp32_in_a_block_of_their_own() -> None:
    first, layers, last = lower(chain(Conv(5, 1), GlobalPool(), CrossEntropy()))
    assert (first.name, layers.name, last.name) == ("data", "layers", "loss")
    # fp32 probabilities of classes that the tensor axis splits
    assert last.saved.tensor == last.saved.tensor_fixed == 4 * 5 and last.flops == 0 and layers.parameters == 5 * 4 + 5
    assert [block.place for block in (first, layers, last)] == ["first", "body", "last"]


def random_graph(seed: int) -> Graph:
    """Operators that keep the shape, wired at random."""
    draw = random.Random(seed)
    graph = Graph(f"random {seed}")
    values = [graph.input((draw.randint(1, 5), 7))]
    for _ in range(draw.randint(3, 25)):
        if draw.random() < 0.3:
            values.append(graph.add(Linear(draw.choice((5, 7, 11))), draw.choice(values)))
        elif draw.random() < 0.5:
            first = draw.choice(values)
            alike = [value for value in values if value.shape == first.shape]
            values.append(graph.add(Add(), first, draw.choice(alike)))
        else:
            values.append(graph.add(Activation(), draw.choice(values)))
    return graph


def simulated_peak(graph: Graph) -> int:
    """Runs the graph, frees what nobody reads any more after each operator, and remembers the most that was held."""
    waiting = {number: 0 for number in range(len(graph.nodes))}
    for node in graph.nodes:
        for source in set(node.inputs):
            waiting[source] += 1
    held: dict[int, int] = {}
    peak = 0
    for number, node in enumerate(graph.nodes):
        held[number] = prod(node.counts.result)
        peak = max(peak, sum(held.values()))
        for source in set(node.inputs):
            waiting[source] -= 1
            if not waiting[source]:
                del held[source]
        if not waiting[number]:
            held.pop(number)
    return peak


@pytest.mark.parametrize("seed", range(40))
def test_the_liveness_peak_is_that_of_a_run(seed: int) -> None:
    graph = random_graph(seed)
    assert graph.peak_forward() == simulated_peak(graph)


@pytest.mark.parametrize("name", ["resnet50", "unet", "densenet121", "googlenet"])
def test_the_liveness_peak_of_a_network_is_that_of_a_run(name: str) -> None:
    graph = GRAPHS[name].graph()
    assert graph.peak_forward() == simulated_peak(graph)
    assert graph.peak_forward() < sum(node.counts.elements for node in graph.nodes)


@pytest.mark.parametrize("seed", range(40, 60))
def test_elements_that_cross_behind_a_node_are_those_read_later(seed: int) -> None:
    graph = random_graph(seed)
    for at, elements in enumerate(graph.live()):
        later = {source for node in graph.nodes[at + 1 :] for source in node.inputs if source <= at}
        assert elements == sum(graph.nodes[source].counts.elements for source in later)


# Cells ----------------------------------------------------------------------------------------------------------------


def test_the_outermost_name_of_a_cell_holds() -> None:
    graph = Graph()
    x = graph.input((4, 8))
    with graph.cell("outer"):
        with graph.cell("inner"):
            x = graph.add(Linear(8), x)
        x = graph.add(Activation(), x)
    with graph.cell("next"):
        graph.add(Linear(8), x)
    assert cells(graph) == ["outer", "outer", "outer", "next"]


def test_without_names_a_graph_is_cut_where_a_single_tensor_crosses() -> None:
    graph = Graph()
    x = graph.add(Linear(8), graph.input((4, 8)))
    y = graph.add(Linear(8), x)
    x = graph.add(Add(), x, y)
    graph.add(Linear(8), x)
    found = cells(graph)
    assert found[1] != found[2] == found[3] != found[4]


@pytest.mark.parametrize("name", ["resnet50", "unet", "inception-v3", "mobilenet-v3-large", "mask-rcnn-resnet50-fpn"])
def test_cells_hold_everything_once(name: str) -> None:
    graph = GRAPHS[name].graph()
    layers = body(graph)
    assert sum(cell.flops for cell in layers.cells) == graph.flops == layers.flops
    assert sum(cell.parameters for cell in layers.cells) == graph.parameters == layers.parameters
    assert sum(cell.kept for cell in layers.cells) == layers.saved.sequence + layers.saved.tensor
    assert layers.boundary == max(cell.boundary for cell in layers.cells)


def test_a_skip_crosses_every_cut_that_it_jumps() -> None:
    """A U-Net's first map is part of what every later stage passes on until it is joined."""
    layers = {cell.name: cell for cell in body(GRAPHS["unet"].graph()).cells}
    skips = sum(channels * n * n for channels, n in ((512, 64), (256, 136), (128, 280), (64, 568)))
    assert layers["down 5"].boundary == 1024 * 28 * 28 + skips
    assert layers["up 2"].boundary == 128 * 196 * 196 + 64 * 568 * 568


# Splits of channels ---------------------------------------------------------------------------------------------------


def test_two_convolutions_split_like_a_transformers_feed_forward() -> None:
    """By output channel, then by input channel with one all-reduce; the norm between works on its part."""
    graph = chain(Conv(32, 1, bias=False), BatchNorm(), Activation(), Conv(8, 1, bias=False), shape=(8, 4, 4))
    layers = body(graph)
    assert [one.split for one in layers.matmuls] == ["n", "k"]
    assert {one.name: one.split for one in layers.vectors} == {"batch norm": "tensor", "relu": "tensor"}
    assert layers.reductions == 1 and layers.parameters_split == 8 * 32 + 2 * 32 + 32 * 8
    assert layers.exchanged == -(-8 * 16 // 2)  # forward one of 128 elements; backward none: the first input is data


def test_an_operator_that_needs_all_channels_gathers_a_split_input() -> None:
    graph = chain(Linear(32), LayerNorm(), Linear(8), shape=(4, 8))
    layers = body(graph)
    assert [one.split for one in layers.matmuls] == ["n", "n"]
    assert layers.reductions >= 1


def test_joined_parts_stay_split_only_if_all_are() -> None:
    graph = Graph()
    x = graph.input((8, 4, 4))
    both = graph.add(Concat(), graph.add(Conv(4, 1), x), graph.add(Conv(4, 1), x))
    mixed = graph.add(Concat(), both, x)
    graph.add(Conv(2, 1), both)
    graph.add(Conv(2, 1), mixed)
    assert [one.split for one in body(graph).matmuls if one.n == 2] == ["k", "n"]


# Sums -----------------------------------------------------------------------------------------------------------------


def test_equal_operators_are_merged_and_nothing_is_lost() -> None:
    one = Matmul("a", 3, 4, 5)
    found = merged([one, Matmul("b", 3, 4, 5), Matmul("c", 3, 4, 6)])
    assert [(item.name, item.repeats) for item in found] == [("a", 2), ("c", 1)]


@pytest.mark.parametrize("name", ["resnet50", "efficientnet-b0", "ssd300-resnet50"])
def test_operators_alone_are_those_of_the_body_and_the_loss(name: str) -> None:
    graph = GRAPHS[name].graph()
    alone, (_, layers, loss) = node_blocks(graph).values(), lower(graph)
    assert sum(block.training_flops for block in alone) == layers.training_flops
    assert sum(block.parameters for block in alone) == layers.parameters
    assert sum(block.kernels for block in alone) == layers.kernels + loss.kernels


def test_a_network_of_a_graph_is_built_once() -> None:
    network = GraphNetwork("mine", lambda sequence: chain(Linear(sequence), shape=(4, 8)), sequence=5)
    assert network.graph() is network.graph(5) and network.blocks(5) is network.blocks(5)
    assert network.graph(9).nodes[-1].counts.result == (4, 9)
    assert network.divisors() == {}
