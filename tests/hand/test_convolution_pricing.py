"""What a convolution costs a chip: windows read once, layouts, Winograd, lanes for depthwise ones, split-K, jitter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate
from dse.evaluation.layout import expected_largest, lay_out
from dse.evaluation.price import price_matmuls, price_vectors
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.compute.tensor_core import matmul_time
from hw_models.compute.vector import lane_product_time
from hw_models.devices import chip
from hw_models.stack import Stack
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers import Conv
from workloads.network import Workload
from workloads.operators import Matmul
from workloads.plan import Plan
from workloads.precision import Training

IDEAL = Stack("ideal")


def one_convolution(conv: Conv, channels: int = 64, size: int = 32) -> GraphNetwork:
    def build(_: int) -> Graph:
        graph = Graph("one")
        image = graph.add(Conv(channels, 1, bias=False), graph.input((8, size, size)))
        graph.add(conv, image, name="it")
        return graph

    return GraphNetwork("one", build)


def priced(conv: Conv, *, precision: str = "bf16", device: Chip | None = None, samples: int = 16, **how: str):
    training = Training(precision=precision, optimizer="sgd", **how)  # type: ignore[arg-type]
    design = Design(
        device or chip("a100-sxm-80gb"), Cluster(1, (Tier(1),)), Plan(micro_batch=samples),
        Workload(one_convolution(conv), 1, samples), IDEAL, training,
    )  # fmt: skip
    r = rows(design)
    layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
    return design, layout, price_matmuls(r, layout.work), price_vectors(r, layout.work)


def test_the_phases_of_a_convolution_do_the_same_work_on_its_own_sizes() -> None:
    conv = Matmul("c", 14 * 14, 256, 128 * 9, window=9, stride=1)
    strided = Matmul("c", 14 * 14, 256, 128 * 9, window=9, stride=4)
    small = Matmul("c", 14 * 14, 256, 128, window=1, stride=4)
    assert conv.phase_sizes("input_gradient", 196.0, 256.0, 1152.0) == (196.0, 128.0, 2304.0, 1.0 / 9.0)
    # four input positions for each output; each meets 9/4 taps
    assert strided.phase_sizes("input_gradient", 196.0, 256.0, 1152.0) == (784.0, 128.0, 576.0, 1.0 / 9.0)
    # a 1 x 1 kernel of stride 2 reaches a quarter of the input, and no more gets a gradient
    assert small.phase_sizes("input_gradient", 196.0, 256.0, 128.0) == (196.0, 128.0, 256.0, 1.0)
    for product in (conv, strided, small):
        for phase in ("forward", "input_gradient", "weight_gradient"):
            m, n, k, _ = product.phase_sizes(phase, 196.0, 256.0, float(product.k))
            assert m * n * k == 196 * 256 * product.k


def test_a_convolution_reads_its_image_and_not_nine_copies_of_it() -> None:
    design, layout, products, _ = priced(Conv(64, 3, padding=1, bias=False))
    image = result = 16 * 64 * 32 * 32 * 2.0
    weights = 64 * 64 * 9 * 2.0
    forward = next(task for task in layout.work.tasks if task.operator == "convolution" and task.phase == "forward"
                   and float(np.ravel(layout.work.k[task.row])[0]) == 576.0)  # fmt: skip
    assert float(np.ravel(products.hbm[forward.row])[0]) == pytest.approx(image + weights + result)


def test_channels_first_converts_around_tensor_core_convolutions_and_nothing_else() -> None:
    conv = Conv(64, 3, padding=1, bias=False)
    _, layout, _, passes = priced(conv, precision="tf32", layout="channels_first")
    moved = {task.phase: float(np.ravel(passes.hbm[task.row])[0]) for task in layout.work.tasks
             if task.operator == "layout"}  # fmt: skip
    # the first convolution reads 8 channels, both write 64; read and written in 4 bytes
    image, maps = 16 * 8 * 1024 * 8.0, 16 * 64 * 1024 * 8.0
    assert moved["forward"] == pytest.approx(image + maps + 2 * maps)
    # the first has a weight gradient only, the second both
    assert moved["gradient"] == pytest.approx(image + maps + 2 * 2 * maps)
    for how in ({"precision": "fp32", "layout": "channels_first", "device": chip("v100-sxm2")}, {"precision": "tf32"}):
        _, layout, _, _ = priced(conv, **how)  # type: ignore[arg-type]
        assert not [task for task in layout.work.tasks if task.operator == "layout"]


def test_winograd_multiplies_less_in_fp32_and_only_where_its_window_allows() -> None:
    device = chip("v100-sxm2")
    for conv, gain in ((Conv(64, 3, padding=1), 2.25), (Conv(64, 3, 2, 1), 1.0), (Conv(64, 5, padding=2), 1.0)):
        _, layout, direct, _ = priced(conv, precision="fp32", device=device)
        _, _, fast, _ = priced(conv, precision="fp32", device=device, convolution="winograd")
        row = next(task.row for task in layout.work.tasks if task.kind == "product" and task.phase == "forward"
                   and float(np.ravel(layout.work.k[task.row])[0]) in (576.0, 1600.0))  # fmt: skip
        slow, quick = (float(np.ravel(table.streams["array"][row])[0]) for table in (direct, fast))
        assert slow == pytest.approx(gain * quick)
    _, _, half, _ = priced(Conv(64, 3, padding=1), precision="fp16", device=device, convolution="winograd")
    _, _, plain, _ = priced(Conv(64, 3, padding=1), precision="fp16", device=device)
    assert np.array_equal(half.time, plain.time)


def test_depthwise_convolutions_run_on_lanes_where_arrays_are_slower() -> None:
    device = chip("a100-sxm-80gb")
    _, layout, products, _ = priced(Conv(64, 3, padding=1, groups=64, bias=False), device=device)
    rows_of = {task.phase: task.row for task in layout.work.tasks if np.ravel(layout.work.groups[task.row])[0] > 1}
    macs = 16 * 64 * 32 * 32 * 9.0
    for row in rows_of.values():
        assert np.ravel(products.streams["array"][row])[0] == pytest.approx(float(lane_product_time(device, macs)))
    # dense convolutions never do
    _, layout, dense, _ = priced(Conv(64, 3, padding=1, bias=False), device=device)
    row = next(task.row for task in layout.work.tasks if np.ravel(layout.work.k[task.row])[0] == 576)
    assert np.ravel(dense.streams["array"][row])[0] < float(lane_product_time(device, macs * 64))


def test_a_product_with_few_outputs_is_cut_along_k_until_it_fills_the_chip() -> None:
    device = chip("a100-sxm-80gb")
    time = {
        k: float(np.ravel(matmul_time(device, 64.0, 64.0, float(k), 1.0, precision="bf16"))[0]) for k in (2**18, 2**20)
    }
    alone = 2.0 * 64 * 64 * 2**20 / (float(device.peak_flops("bf16")) / 108.0)
    assert time[2**20] < alone / 50.0  # one core would take 108 times as long as all
    assert 3.0 < time[2**20] / time[2**18] < 4.0


def test_the_slowest_of_many_devices_is_expected_from_tables_of_order_statistics() -> None:
    # largest of 2, 10 and 100 standard normal numbers (Harter 1961)
    assert expected_largest(np.array([1.0, 2.0, 10.0, 100.0])) == pytest.approx([0.0, 0.5642, 1.5388, 2.5076], abs=0.03)
    network = one_convolution(Conv(64, 3))
    stack = replace(IDEAL, jitter=0.05)
    for devices in (1, 8):
        design = Design(
            chip("a100-sxm-80gb"), Cluster(devices, (Tier(8),)), Plan(data=devices, micro_batch=4),
            Workload(network, 1, 4 * devices), stack,
        )  # fmt: skip
        result = evaluate(design)
        running = result.value("time_forward") + result.value("time_backward")
        factor = float(expected_largest(np.array([float(devices)]))[0])
        assert result.value("time_straggler") == pytest.approx(0.05 * factor * running, rel=1e-9)
    assert expected_largest(np.array([1.0]))[0] == 0.0


def test_composite_operators_cost_more_where_a_framework_runs_them_piece_by_piece() -> None:
    from workloads.layers import Activation

    def build(_: int) -> Graph:
        graph = Graph("gelu")
        x = graph.add(Conv(64, 1, bias=False), graph.input((8, 32, 32)))
        graph.add(Activation("gelu"), x)
        return graph

    seconds = []
    for eager in (0.0, 0.5, 1.0):
        design = Design(
            chip("a100-sxm-80gb"), Cluster(1, (Tier(1),)), Plan(micro_batch=64),
            Workload(GraphNetwork("gelu", build), 1, 64), replace(IDEAL, eager=eager),
        )  # fmt: skip
        r = rows(design)
        layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
        seconds.append(float(np.ravel(price_vectors(r, layout.work).hbm.sum(axis=0))[0]))
    assert seconds[1] == pytest.approx(seconds[0] * 4.5) and seconds[2] == pytest.approx(seconds[0] * 8.0)
