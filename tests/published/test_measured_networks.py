"""Rows of a table of throughputs: hand-made rows, what facts fill in, and the shares of the measured table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dse.evidence.calibration.calibrate import calibrate
from dse.evidence.measured.networks import FRAMEWORKS, batches, design_of, facts_of, network_case, network_cases
from dse.evidence.measured.runs import Case, Skip
from dse.evidence.measured.tables import read_table
from dse.evidence.validation.networks import scaling, scaling_error
from dse.evidence.validation.validate import predicted_cases, validate
from hw_models.devices import chip
from hw_models.stacks import names, stack
from workloads.networks import GRAPHS
from workloads.training import parameters

#: A training of ResNet-50 that says everything but its image and optimizer.
ROW = {
    "row_id": "N1", "model": "ResNet50v1.5", "task": "train", "framework": "MxNet", "device": "A100-80GB",
    "system": "DGX A100", "num_devices": "8", "batch_per_device": "256", "global_batch": "", "seq_len": "",
    "precision": "fp16-AMP", "throughput_total_per_s": "20480", "throughput_per_device_per_s": "2560",
    "unit": "images", "section": "", "split": "validation",
}  # fmt: skip


def row(**cells: str) -> dict[str, str]:
    return ROW | cells


def case(**cells: str) -> Case:
    return network_case(row(**cells), "cnn_runs", 1)


def design(**cells: str) -> Any:
    found = case(**cells)
    assert found.design is not None, found.skipped
    return found.design


# What a row becomes -------------------------------------------------------------------------------------------------


def test_seconds_of_a_step_are_its_samples_over_the_printed_rate() -> None:
    # 8 devices x 256 images at 20,480 images a second
    assert case().measured == pytest.approx(0.1, rel=1e-12)
    assert case(throughput_total_per_s="").measured == pytest.approx(0.1, rel=1e-12)


def test_a_row_is_data_parallel_with_what_its_recipe_says() -> None:
    found = design()
    assert (found.plan.data, found.plan.tensor, found.plan.micro_batch) == (8, 1, 256)
    assert found.workload.global_batch == 2048 and found.workload.network.name == "resnet50"
    assert found.training.precision == "fp16" and found.training.optimizer == "momentum"
    assert found.training.gradient_bytes == 2, "MXNet reduces gradients in half precision"
    assert found.stack.name == "mxnet" and found.chip.name == "a100-sxm-80gb"


def test_layout_and_transforms_follow_the_number_format() -> None:
    # half precision keeps channels last; fp32 on vector lanes transforms 3 x 3 convolutions, TF32 does not
    assert design().training.layout == "channels_last"
    tensor, lanes = design(precision="TF32").training, design(precision="FP32", device="V100-16GB").training
    assert (tensor.precision, tensor.layout, tensor.convolution) == ("tf32", "channels_first", "direct")
    assert (lanes.precision, lanes.layout, lanes.convolution) == ("fp32", "channels_first", "winograd")
    assert design(precision="FP32").training.precision == "tf32", "fp32 products of an A100 run as TF32"


def test_half_and_single_precision_have_their_own_batch_in_one_cell() -> None:
    cells = {"batch_per_device": "60,32", "global_batch": "61440 , 65536", "model": "BERT-large", "seq_len": "128",
             "framework": "TensorFlow2", "device": "V100-32GB", "num_devices": "4"}  # fmt: skip
    half, single = design(**cells), design(**cells, precision="FP32")
    assert (half.plan.micro_batch, half.workload.global_batch) == (60, 61440)
    assert (single.plan.micro_batch, single.workload.global_batch) == (32, 65536)


def test_tokens_are_samples_times_counted_words() -> None:
    # 10,240 padded tokens are 320 pairs of 32, of which 28 target words are counted
    cells = {"model": "Transformer", "framework": "PyTorch", "batch_per_device": "10240", "num_devices": "1"}
    found = case(**cells, throughput_total_per_s="8960")
    assert found.design is not None and found.design.plan.micro_batch == 320
    assert found.measured == pytest.approx(320 * 28 / 8960, rel=1e-12)


def test_gradients_that_merge_are_reduced_once_a_step() -> None:
    found = design(model="BERT-large", framework="PaddlePaddle", section="Pre-training NVIDIA DGX A100 (8x A100 80GB)",
                   batch_per_device="8192", seq_len="128", num_devices="1")  # fmt: skip
    assert (found.plan.micro_batch, found.workload.global_batch) == (256, 8192)


def test_an_image_size_of_the_facts_replaces_that_of_the_network() -> None:
    small = design(model="InceptionV3", framework="TensorFlow 1.x", device="K80 (one GK210)", precision="FP32")
    assert small.workload.network.build.image == 299
    square = design(model="SSD", framework="TensorFlow", batch_per_device="32").workload.network
    assert square.build.size == (320, 320)


# What is not predicted, and why -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "LeNet"}, "not identified"),
        ({"device": "GTX 480"}, "not in the table of chips"),
        ({"framework": "Theano", "batch_per_device": "256"}, "has no stack"),
        ({"precision": "int4"}, "no such recipe"),
        ({"precision": "bf16", "device": "V100-16GB"}, "has no matrix rate"),
        ({"task": "fine-tune"}, "fine-tune: listed"),
        ({"task": "MLPerf time-to-train"}, "time-to-train: listed"),
        ({"num_devices": "0"}, "not a whole number"),
        ({"num_devices": "some"}, "not a number"),
        ({"throughput_total_per_s": "", "throughput_per_device_per_s": ""}, "no measured throughput"),
        ({"model": "GPUNet-0", "framework": "PyTorch"}, "GPUNet"),
        ({"model": "MaskRCNN", "framework": "TensorFlow2"}, "no operator"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_what_it_lacks(cells: dict[str, str], reason: str) -> None:
    found = case(**cells)
    assert found.design is None and reason in found.skipped


def test_a_misprint_is_left_out_and_its_neighbour_is_not() -> None:
    cells = {"model": "efficientnet-b4", "framework": "PyTorch", "device": "V100-32GB", "precision": "FP32",
             "section": "Training performance: NVIDIA DGX-1 (8x V100 32GB)", "batch_per_device": ""}  # fmt: skip
    assert "misprint" in case(**cells, num_devices="1").skipped
    assert design(**cells).plan.micro_batch == 32


def test_a_row_without_a_batch_of_its_own_or_of_the_facts_is_incomplete() -> None:
    with pytest.raises(Skip, match="incomplete: no batch_per_device"):
        batches(row(batch_per_device=""), {}, 8, "fp16")


# Tables that belong together ----------------------------------------------------------------------------------------


def test_every_network_and_stack_of_the_facts_exists() -> None:
    from dse.evidence.measured.networks import _facts

    assert {rules.stack for rules in FRAMEWORKS.values()} <= set(names())
    for line in _facts():
        assert not line["network"] or line["network"] in GRAPHS, line
        assert not line["stack"] or line["stack"] in names(), line
        assert line["source"], line


def test_later_lines_of_the_facts_say_more_of_fewer_rows() -> None:
    found = facts_of(row(model="Transformer-XL", framework="PyTorch", section="Large model"))
    assert found["network"] == "transformer-xl-large" and found["sequence"] == "384"
    assert facts_of(row(model="Transformer-XL", framework="PyTorch"))["network"] == "transformer-xl-base"


# Calibration --------------------------------------------------------------------------------------------------------


def made_with(truth: dict[str, float], precision: str = "fp16-AMP") -> list[Case]:
    """Rows of ResNet-50 under MXNet, of one and eight V100, that take what the model says with the true constants."""
    found = []
    for device, devices, batch in (("V100-32GB", "1", "64"), ("V100-32GB", "8", "64"), ("V100-16GB", "8", "16")):
        row_id = f"{device}-{devices}-{batch}"
        item = case(device=device, num_devices=devices, batch_per_device=batch, precision=precision,
                    split="calibration", row_id=row_id)  # fmt: skip
        assert item.design is not None
        known = replace(stack("mxnet", item.design.chip.name, calibrated=False), **truth)  # type: ignore[arg-type]
        (done,), _ = predicted_cases([replace(item, design=replace(item.design, stack=known))])
        found.append(replace(item, measured=done.predicted))
    return found


def test_networks_tell_constants_of_their_stack_and_device_and_of_no_other() -> None:
    found = calibrate(made_with({"vector_passes": 2.0}), parts=[])
    values = {item.key: item.value for item in found.fitted}
    # the stated value is 0.8; priors of the others leave some of the difference
    assert values["stack", "mxnet", "vector_passes"] == pytest.approx(2.0, rel=0.15)
    assert {key[1] for key in values} <= {"mxnet", "v100-sxm2"}, "nothing of generic stacks and devices"
    errors = {error.device: error for error in found.errors}
    assert all(error.mape < 3.0 < error.before_mape for error in errors.values())


def test_chips_of_one_die_share_what_networks_tell() -> None:
    truth = {"lane_efficiency": 0.6}
    rows = calibrate(made_with(truth) + made_with(truth, "FP32"), parts=[]).constants.rows
    lanes = {row["name"]: float(row["value"]) for row in rows if row["field"] == "lane_efficiency"}
    assert set(lanes) == {"v100-sxm2", "v100-sxm2-16gb"} and len(set(lanes.values())) == 1
    assert min(lanes.values()) == pytest.approx(0.6, rel=0.15)


# Scaling ------------------------------------------------------------------------------------------------------------


def scaled(devices: int, predicted: float, measured: float, **changes: Any) -> Case:
    found = case(num_devices=str(devices), row_id=f"N{devices}")
    return replace(found, predicted=predicted, measured=measured, **changes)


def test_scaling_is_the_rate_of_a_device_over_that_of_one_alone() -> None:
    # the same 256 images a device take 0.1 s alone; on 8 devices 0.125 s predicted, 0.2 s measured
    rows = [scaled(1, 0.1, 0.1), scaled(8, 0.125, 0.2)]
    (found,) = scaling(rows)
    assert found.devices == 8
    assert (found.predicted_percent, found.measured_percent) == pytest.approx((80.0, 50.0))
    assert found.points == pytest.approx(30.0)
    assert scaling_error([found]) == pytest.approx((30.0, 30.0, 30.0))


def test_scaling_needs_a_single_device_of_the_same_inputs_and_a_scored_row() -> None:
    alone, eight = scaled(1, 0.1, 0.1), scaled(8, 0.125, 0.2)
    assert scaling([eight]) == () and scaling_error([]) is None
    other = replace(alone, traits={**alone.traits, "batch": "128"})
    assert scaling([other, eight]) == ()
    assert scaling([alone, replace(eight, split="calibration")]) == ()
    assert len(scaling([replace(alone, split="calibration"), eight])) == 1


# The table the product ships ----------------------------------------------------------------------------------------


def test_googlenet_is_predicted_on_one_to_sixteen_devices() -> None:
    # Xu and Dandapanthu 2016: 220, 411, 730, 1472, 2227 and 2955 images a second
    found = validate(None, ("networks/googlenet/MXNet*",), rows=True)
    assert found.rows is not None and len(found.rows) == 4
    for item in found.rows:
        assert abs(item.error_percent) < 10.0, item
    assert all(abs(item.points) < 6.0 for item in found.scaling)


def test_three_weeks_on_one_k20_are_predicted() -> None:
    found = validate(None, ("networks/googlenet/Caffe",), rows=True)
    assert found.rows is not None
    (item,) = found.rows
    assert abs(item.error_percent) < 30.0, "Caffe of 2014 is not fitted; K80 tells the lanes"


# The measured table -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> Sequence[Case]:
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("needs DSE_DATA, the folder of measured tables")
    _, rows, faults = read_table(Path(folder) / "cnn_runs.csv")
    assert not faults
    return list(network_cases(rows, "cnn_runs"))


def test_four_of_five_training_rows_are_identified(measured: Sequence[Case]) -> None:
    train = [item for item in measured if item.traits["task"] == "train" and item.split == "validation"]
    assert len(train) > 600 and sum(item.design is not None for item in train) >= 0.9 * len(train)


def test_rows_of_one_device_are_near_on_every_framework(measured: Sequence[Case]) -> None:
    # a twentieth of the rows, in the order of the table: the median error of all is 13 %
    some = [item for item in measured if item.design is not None and item.split == "validation"][::20]
    done, _ = predicted_cases(some)
    errors = sorted(abs(item.predicted / item.measured - 1.0) for item in done if item.predicted and item.measured)
    assert len(errors) > 25 and errors[len(errors) // 2] < 0.18


def test_a_graph_of_a_row_has_the_parameters_of_its_network() -> None:
    network = design().workload.network
    assert parameters(network, 1) == 25557032, "torchvision resnet50"
    assert chip("p100-pcie").peak_flops("fp32") == pytest.approx(9.34e12, rel=0.01)
    assert design_of(row(), facts_of(row())).workload.network == network
