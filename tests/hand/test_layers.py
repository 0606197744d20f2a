"""Operators of graphs: hand counts first, then a convolution counted multiply-add by multiply-add in nested loops."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from math import prod

import pytest

from workloads.graph import Counts, Graph
from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import LOSSES, CrossEntropy, Loss
from workloads.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LocalResponseNorm
from workloads.layers.pointwise import (
    ACTIVATIONS,
    Activation,
    AdaptivePool,
    Add,
    ChannelShuffle,
    Concat,
    Dropout,
    Flatten,
    GlobalPool,
    Multiply,
    Permute,
    PixelShuffle,
    PReLU,
    Reduce,
    RoiAlign,
    Scale,
    Slice,
    Upsample,
)

IMAGE = (6, 8, 10)


def macs(operator, *shapes) -> int:
    return operator.counts(*shapes).flops // 2


# By hand -----------------------------------------------------------------------------------------------------------


def test_a_3_by_3_convolution_counts_positions_filters_channels_and_taps() -> None:
    counts = Conv(64, 3, padding=1).counts((16, 32, 32))
    assert counts.result == (64, 32, 32)
    assert counts.flops == 2 * 32 * 32 * 64 * 16 * 9
    assert counts.parameters == 64 * 16 * 9 + 64
    assert replace(counts, parameters=0) != counts and Conv(64, 3, bias=False).counts(IMAGE).parameters == 64 * 6 * 9


def test_the_first_layer_of_resnet50_by_hand() -> None:
    counts = Conv(64, 7, 2, 3, bias=False).counts((3, 224, 224))
    assert (counts.result, macs(Conv(64, 7, 2, 3, bias=False), (3, 224, 224))) == ((64, 112, 112), 118_013_952)
    assert Pool(3, 2, 1).counts(counts.result).result == (64, 56, 56)


def test_a_dilated_kernel_reaches_farther_and_computes_as_much() -> None:
    assert Conv(5, 3, dilation=4).counts((2, 20, 20)).result == (5, 12, 12)
    assert macs(Conv(5, 3, padding="same", dilation=4), (2, 20, 20)) == 20 * 20 * 5 * 2 * 9


def test_same_padding_divides_by_the_stride_rounding_up() -> None:
    assert Conv(1, 5, 3, "same").counts((1, 7, 8)).result == (1, 3, 3)
    assert Pool(2, 2, "same").counts((1, 7, 8)).result == (1, 4, 4)


def test_pools_that_round_up_leave_out_a_window_beyond_the_padding() -> None:
    assert Pool(3, 2, ceil=True).counts((1, 112, 112)).result == (1, 56, 56)
    assert Pool(2, 2, 1, ceil=True).counts((1, 3, 3)).result == (1, 2, 2)
    assert Pool(3).counts((1, 9, 9)).result == (1, 3, 3)


def test_a_linear_layer_mixes_the_last_axis_of_all_rows() -> None:
    counts = Linear(7).counts((5, 3))
    assert (counts.result, counts.flops, counts.parameters) == ((5, 7), 2 * 5 * 3 * 7, 3 * 7 + 7)
    assert Linear(7, bias=False).counts((3,)).parameters == 21


@pytest.mark.parametrize(
    ("operator", "shape", "parameters"),
    [
        (BatchNorm(), IMAGE, 12), (BatchNorm(affine=False), IMAGE, 0),
        (BatchNorm(frozen=True), IMAGE, 0),
        (GroupNorm(3), IMAGE, 12), (InstanceNorm(), IMAGE, 12), (LayerNorm(), (5, 7), 14),
        (LayerNorm(kind="rms"), (5, 7), 7), (LayerNorm(bias=False), (5, 7), 7), (LayerNorm(axis=0), IMAGE, 12),
        (LocalResponseNorm(5), IMAGE, 0), (PReLU(), IMAGE, 6), (Scale(learned=True), IMAGE, 6),
        (Scale(learned=True, axis=-1), IMAGE, 10), (Dropout(0.1), IMAGE, 0), (Activation("gelu"), IMAGE, 0),
    ],
)  # fmt: skip
def test_norms_and_activations_keep_the_shape_and_train_a_few_numbers_a_channel(operator, shape, parameters) -> None:
    counts = operator.counts(shape)
    assert (counts.result, counts.parameters, counts.products) == (shape, parameters, ())
    assert sum(one.elements for one in counts.passes) == prod(shape)


@pytest.mark.parametrize(
    ("operator", "shapes", "result"),
    [
        (Concat(), [(2, 3), (5, 3)], (7, 3)), (Concat(axis=-1), [(2, 3), (2, 4)], (2, 7)), (Flatten(), [IMAGE], (480,)),
        (Flatten((48, 10)), [IMAGE], (48, 10)), (Permute((2, 0, 1)), [IMAGE], (10, 6, 8)),
        (GlobalPool(), [IMAGE], (6,)),
        (AdaptivePool(4), [IMAGE], (6, 4, 4)), (Slice(1, 4), [IMAGE], (3, 8, 10)),
        (Slice(2, 9, -1), [IMAGE], (6, 8, 7)),
        (ChannelShuffle(3), [IMAGE], IMAGE), (PixelShuffle(2), [(8, 3, 5)], (2, 6, 10)),
        (PixelShuffle(-2), [(2, 6, 10)], (8, 3, 5)), (Upsample(2), [IMAGE], (6, 16, 20)),
        (Upsample(size=(9, 11), kind="linear"), [IMAGE], (6, 9, 11)), (Reduce((0,)), [IMAGE], (8, 10)),
        (Reduce((1, 2), "max", keep=True), [IMAGE], (6, 1, 1)), (Reduce((0, 1, 2), "sum"), [IMAGE], (1,)),
        (RoiAlign(5, 7), [(4, 20, 30), (4, 10, 15)], (4, 5, 7, 7)), (Add(), [IMAGE, IMAGE, IMAGE], IMAGE),
        (Multiply(), [IMAGE, IMAGE], IMAGE), (Scale(), [IMAGE, (6,)], IMAGE), (Scale(), [IMAGE, (6, 1, 1)], IMAGE),
        (CrossEntropy(), [(5, 7)], (5,)), (CrossEntropy(axis=0), [IMAGE], (80,)), (Loss("dice"), [IMAGE], (1,)),
    ],
)  # fmt: skip
def test_shapes_of_operators_without_products(operator, shapes, result) -> None:
    counts = operator.counts(*shapes)
    assert (counts.result, counts.flops) == (result, 0)


def test_a_pass_reads_and_writes_what_it_touches() -> None:
    """Elements moved, forward and backward: of an addition, a pool, an interpolation, a slice and a gate."""

    def moved(counts: Counts) -> tuple[float, float]:
        one = counts.passes[0]
        back = one.backward_reads + one.backward_writes
        return one.elements * (one.reads + one.writes), one.elements * back

    n = prod(IMAGE)
    assert moved(Add().counts(IMAGE, IMAGE)) == (3 * n, 0)
    assert moved(Multiply().counts(IMAGE, IMAGE)) == (3 * n, 5 * n)
    assert moved(Pool(2, kind="average").counts(IMAGE)) == (n + n / 4, n + n / 4)
    assert moved(Pool(2).counts(IMAGE)) == (n + n / 4 + n, n + n / 4 + n)  # an index is as long as four elements
    assert moved(Upsample(2).counts(IMAGE)) == (n + 4 * n, n + 4 * n)
    assert moved(Slice(0, 3).counts(IMAGE)) == (0, n / 2 + n)
    assert moved(Concat().counts(IMAGE, IMAGE)) == (4 * n, 4 * n)
    assert moved(Scale().counts(IMAGE, (6,))) == pytest.approx((2 * n + 6, 3 * n + 12))
    assert moved(GlobalPool().counts(IMAGE)) == (n + 6, n + 6)


def test_masks_and_choices_are_kept_in_bytes() -> None:
    n = prod(IMAGE)
    assert Dropout().counts(IMAGE).kept_bytes == n and not Dropout(0.0).counts(IMAGE).passes
    assert Dropout(samples=True).counts(IMAGE).kept_bytes == 0
    assert Pool(2).counts(IMAGE).kept_bytes == 8 * n // 4 and Pool(2, kind="average").counts(IMAGE).kept_bytes == 0
    assert CrossEntropy().counts((5, 7)).kept_bytes == 4 * 35
    assert BatchNorm(frozen=True).counts(IMAGE).keeps == () and BatchNorm().counts(IMAGE).keeps == ("inputs",)
    assert Activation("relu").counts(IMAGE).keeps == ("result",) and Add().counts(IMAGE, IMAGE).keeps == ()


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv(0, 3), "filters"), (lambda: Conv(4, (3, 0)), "kernel"),
        (lambda: Conv(4, 3, padding=-1), "padding"),
        (lambda: Conv(4, 3, padding="full"), "padding"), (lambda: Conv(True, 3), "filters"),
        (lambda: ConvTranspose(4, 3, output_padding=-1), "output_padding"), (lambda: Pool(2, kind="median"), "kind"),
        (lambda: Activation("rely"), "kind"), (lambda: Loss("l3"), "kind"), (lambda: Dropout(1.0), "rate"),
        (lambda: LayerNorm(kind="batch"), "kind"), (lambda: Upsample(0), "factor"), (lambda: Linear(0), "outputs"),
        (lambda: Reduce((0,), "product"), "kind"), (lambda: GroupNorm(0), "groups"), (lambda: RoiAlign(0, 7), "rois"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("operator", "shapes", "words"),
    [
        (Conv(4, 3), [(3,)], "input: found shape"),
        (Conv(4, 9), [(3, 5, 5)], "no larger than it"),
        (Conv(4, (3, 3, 3)), [(3, 9, 9)], "kernel"), (Conv(4, 3), [IMAGE, IMAGE], "inputs: found 2"),
        (Pool(9), [(3, 5, 5)], "no larger than it"), (Linear(3), [], "inputs: found 0"),
        (ConvTranspose(4, 1, padding=5), [(3, 5, 5)], "padding"), (GroupNorm(4), [IMAGE], "6 % 4 != 0"),
        (Add(), [IMAGE, (6, 8, 9)], "two or more equal ones"), (Multiply(), [IMAGE] * 3, "inputs: found 3"),
        (Scale(), [IMAGE, (5,)], "a number a channel"), (Concat(), [IMAGE, (6, 8)], "equal but for axis 0"),
        (Flatten((7,)), [IMAGE], "as many elements"), (Permute((0, 0, 1)), [IMAGE], "each of 0..2 once"),
        (Slice(4, 9), [IMAGE], "a part of 0:6"), (ChannelShuffle(4), [IMAGE], "6 % 4 != 0"),
        (PixelShuffle(5), [IMAGE], "factor"), (Upsample(size=(3,)), [IMAGE], "2 numbers"),
        (Reduce((5,)), [IMAGE], "axis"), (LayerNorm(axis=3), [IMAGE], "axis"), (CrossEntropy(axis=4), [IMAGE], "axis"),
        (RoiAlign(2, 7), [(4, 5, 5), (3, 5, 5)], "as many channels"), (Activation(), [IMAGE, IMAGE], "inputs: found 2"),
    ],
)  # fmt: skip
def test_a_bad_input_says_what_was_found_and_allowed(operator, shapes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operator.counts(*shapes)


def test_a_fault_in_a_graph_names_network_layer_and_operator() -> None:
    graph = Graph("mine")
    image = graph.input((3, 8, 8))
    with graph.cell("first"), pytest.raises(ValueError, match="mine: first: narrow: groups"):
        graph.add(Conv(8, 3, groups=2), image, name="narrow")


# The oracle: nested loops over everything -----------------------------------------------------------------------------


def counted(size, channels, filters, kernel, stride, padding, dilation, groups) -> tuple[tuple[int, ...], int]:
    """Result positions and multiply-adds, one by one; a tap in the padding is a multiply-add too."""
    padded = [n + 2 * p for n, p in zip(size, padding, strict=True)]
    out = []
    for n, k, s, d in zip(padded, kernel, stride, dilation, strict=True):
        starts = [start for start in range(n) if start % s == 0 and start + d * (k - 1) < n]
        out.append(len(starts))
    number = 0
    for _ in product(*(range(n) for n in out)):
        for filter_ in range(filters):
            group = filter_ * groups // filters
            for channel in range(channels):
                if channel * groups // channels == group:
                    number += sum(1 for _ in product(*(range(k) for k in kernel)))
    return tuple(out), number


def transposed(size, channels, filters, kernel, stride, groups) -> tuple[set[tuple[int, ...]], int]:
    """Result positions written (no padding) and multiply-adds: every input position spreads over its window."""
    written, number = set(), 0
    for position in product(*(range(n) for n in size)):
        for tap in product(*(range(k) for k in kernel)):
            written.add(tuple(p * s + t for p, s, t in zip(position, stride, tap, strict=True)))
            for channel in range(channels):
                number += sum(1 for f in range(filters) if f * groups // filters == channel * groups // channels)
    return written, number


def case(seed: int) -> dict:
    draw = random.Random(seed)
    axes = draw.choice((1, 2, 3))
    groups = draw.choice((1, 1, 2, 3))
    return {
        "size": tuple(draw.randint(4, 8 if axes < 3 else 5) for _ in range(axes)),
        "channels": groups * draw.randint(1, 3), "filters": groups * draw.randint(1, 3), "groups": groups,
        "kernel": tuple(draw.randint(1, 3) for _ in range(axes)),
        "stride": tuple(draw.randint(1, 3) for _ in range(axes)),
        "padding": tuple(draw.randint(0, 2) for _ in range(axes)),
        "dilation": tuple(draw.randint(1, 2) for _ in range(axes)),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_convolutions_of_any_form_equal_nested_loops(seed: int) -> None:
    c = case(seed)
    out, number = counted(**c)
    if 0 in out:
        pytest.skip("the kernel is larger than the input")
    operator = Conv(c["filters"], c["kernel"], c["stride"], c["padding"], c["dilation"], c["groups"], bias=False)
    counts = operator.counts((c["channels"], *c["size"]))
    assert counts.result == (c["filters"], *out)
    assert counts.flops == 2 * number
    assert counts.parameters == c["filters"] * (c["channels"] // c["groups"]) * prod(c["kernel"])


@pytest.mark.parametrize("seed", range(60, 90))
def test_transposed_convolutions_equal_nested_loops(seed: int) -> None:
    c = case(seed)
    written, number = transposed(c["size"], c["channels"], c["filters"], c["kernel"], c["stride"], c["groups"])
    operator = ConvTranspose(c["filters"], c["kernel"], c["stride"], groups=c["groups"], bias=False)
    counts = operator.counts((c["channels"], *c["size"]))
    assert counts.result == (c["filters"], *(1 + max(p[axis] for p in written) for axis in range(len(c["size"]))))
    assert counts.flops == 2 * number
    assert counts.parameters == c["channels"] * (c["filters"] // c["groups"]) * prod(c["kernel"])


@pytest.mark.parametrize("seed", range(90, 110))
def test_a_transposed_convolution_undoes_the_sizes_of_a_convolution(seed: int) -> None:
    c = case(seed)
    first = Conv(c["filters"], c["kernel"], c["stride"], c["padding"])
    try:
        made = first.counts((c["channels"], *c["size"])).result
    except ValueError:
        pytest.skip("the kernel is larger than the input")
    rests = tuple(
        (n + 2 * p - k) % s for n, p, k, s in zip(c["size"], c["padding"], c["kernel"], c["stride"], strict=True)
    )
    back = ConvTranspose(c["channels"], c["kernel"], c["stride"], c["padding"], rests)
    assert back.counts(made).result == (c["channels"], *c["size"])
    assert back.counts(made).flops == first.counts((c["channels"], *c["size"])).flops


@pytest.mark.parametrize("seed", range(20))
def test_each_gradient_of_a_convolution_costs_as_much_as_the_convolution(seed: int) -> None:
    c = case(seed)
    operator = Conv(c["filters"], c["kernel"], c["stride"], 2, 1, c["groups"])
    one = operator.counts((c["channels"], *c["size"])).products[0]
    for phase in ("forward", "input_gradient", "weight_gradient"):
        m, n, k, distinct = one.phase_sizes(phase, float(one.m), float(one.n), float(one.k))
        assert 2 * m * n * k * one.groups == pytest.approx(one.flops, rel=1e-12)
        assert 0 < distinct <= 1


def test_the_tensor_that_windows_overlap_on_is_read_once() -> None:
    one = Conv(8, 3, padding=1).counts((4, 10, 10)).products[0]
    m, _, k, distinct = one.phase_sizes("forward", one.m, one.n, one.k)
    assert m * k * distinct == 4 * 10 * 10
    strided = Conv(8, 1, 2).counts((4, 10, 10)).products[0]
    m, _, k, distinct = strided.phase_sizes("forward", strided.m, strided.n, strided.k)
    assert m * k * distinct == 4 * 5 * 5  # a strided 1 x 1 kernel reads a quarter


@pytest.mark.parametrize("kind", [*ACTIVATIONS])
def test_backward_of_an_activation_reads_the_gradient_and_one_kept_tensor(kind: str) -> None:
    one = Activation(kind).counts(IMAGE).passes[0]
    assert (one.reads, one.writes, one.backward_reads, one.backward_writes) == (1, 1, 2, 1)
    assert Activation(kind).counts(IMAGE).keeps in (("inputs",), ("result",))


@pytest.mark.parametrize("kind", [*LOSSES])
def test_losses_are_marked_and_keep_fp32(kind: str) -> None:
    counts = Loss(kind).counts(IMAGE)
    assert all(one.loss for one in counts.passes) and counts.kept_bytes == 4 * prod(IMAGE)
