"""What users of counters and array models have found wrong with convolutions, as tests of ours."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hw_models.compute.systolic import mapping_efficiency
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.pointwise import GlobalPool
from workloads.network import Workload

WS = 1


def macs(counts: Any) -> int:
    return counts.flops // 2


@pytest.mark.parametrize(
    ("operator", "shape", "batch", "found", "size"),
    [
        (ConvTranspose(1, 3), (32, 1, 1), 1, 288, (3, 3)),
        (ConvTranspose(1, 2, 2), (3, 2, 2), 1, 48, (4, 4)),
        (ConvTranspose(6, 4, 2, 1), (4, 8, 8), 2, 49_152, (16, 16)),
        (ConvTranspose(4, 3, 2, 1, 1, groups=4), (4, 8, 8), 2, 4_608, (16, 16)),
    ],
)
def test_a_transposed_convolution_is_counted_by_its_input_positions(operator, shape, batch, found, size) -> None:
    """Not by its output positions, not with output channels squared, and a depthwise one is not nothing."""
    counts = operator.counts(shape)
    assert batch * macs(counts) == found
    assert counts.result == (operator.filters, *size)


def test_a_grouped_convolution_is_not_counted_as_a_dense_one() -> None:
    depthwise, wider = Conv(32, 3, 1, 1, groups=32), Conv(64, 3, 1, 1, groups=32)
    assert macs(depthwise.counts((32, 112, 112))) == 3_612_672
    assert macs(Conv(32, 3, 1, 1).counts((32, 112, 112))) == 115_605_504
    assert macs(wider.counts((32, 112, 112))) == 7_225_344
    assert depthwise.counts((32, 112, 112)).parameters == 32 * 9 + 32
    with pytest.raises(ValueError, match=r"groups: channels % groups: 32 % 3 != 0"):
        Conv(32, 3, groups=3).counts((32, 112, 112))


def test_a_depthwise_convolution_leaves_most_of_an_array_idle() -> None:
    """One input channel a filter: products of 9 rows and one column fill a 128 x 128 array by a thousandth."""
    used = {}
    for name, groups in (("dense", 1), ("depthwise", 32)):
        one = Conv(32, 3, 1, 1, groups=groups).counts((32, 112, 112)).products[0]
        used[name] = float(mapping_efficiency(one.m, one.n, one.k, dataflow=WS, rows=128, columns=128))
    assert used["depthwise"] < 1e-3 < 100 * used["depthwise"] < used["dense"]


def test_each_axis_has_its_own_stride() -> None:
    counts = Conv(64, 3, (2, 1), 1).counts((64, 56, 56))
    assert counts.result == (64, 28, 56) and macs(counts) == 57_802_752
    assert Pool((3, 1), (2, 1)).counts((1, 9, 9)).result == (1, 4, 9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv(8, 3, stride=0), "stride: found 0, allowed: a whole number >= 1"),
        (lambda: Conv(8, 3, stride=-1), "stride: found -1, allowed: a whole number >= 1"),
        (lambda: Conv(8, 3, dilation=0), "dilation: found 0, allowed: a whole number >= 1"),
        (lambda: Conv(8, 0), "kernel: found 0, allowed: a whole number >= 1"),
        (lambda: Graph().input((0, 56, 56)), "allowed: whole numbers >= 1"),
        (lambda: Workload(GraphNetwork("one", one_layer), 1, 0), "global_batch: found 0, allowed: a whole number >= 1"),
    ],
)  # fmt: skip
def test_sizes_below_one_are_named_at_once(make, words: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=words):
        make()
    assert time.perf_counter() - start < 1.0


def one_layer(_: int) -> Graph:
    graph = Graph("one")
    graph.add(GlobalPool(), graph.add(Conv(8, 3, stride=126_322_568, padding=1), graph.input((3, 56, 56))))
    return graph


def test_a_stride_beyond_the_image_leaves_one_position_and_does_not_overflow() -> None:
    counts = Conv(8, 3, stride=126_322_568, padding=1).counts((3, 56, 56))
    assert counts.result == (8, 1, 1) and macs(counts) == 8 * 3 * 9
    layers = GraphNetwork("one", one_layer).blocks(1)[1]
    assert layers.flops == 2 * 8 * 3 * 9 and layers.cells[0].boundary >= 0


def test_all_faults_of_a_convolution_are_said_at_once() -> None:
    with pytest.raises(ValueError) as fault:
        Conv(0, (3, 0), stride=-1, padding=-2, dilation=0, groups=0)
    for name in ("filters", "kernel", "stride", "padding", "dilation", "groups"):
        assert f"{name}: found" in str(fault.value)
