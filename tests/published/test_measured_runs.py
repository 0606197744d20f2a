"""How rows of measured runs become designs: sharding, degrees, networks, clusters, and times from rates."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from dse.evidence.measured.devices import DEVICES, chip_of, cluster_of, slices_of
from dse.evidence.measured.runs import NEEDED, Skip, design_of, measured_time, run_case, sharding
from dse.evidence.measured.stack_rules import STACKS
from hw_models import stacks
from workloads.training import active_parameters, model_flops, parameters

#: A fully sharded run of 8 devices; tests change cells.
RUN = {
    "row_id": "R1", "group": "g", "model": "Llama-3.1-8B", "layers": "32", "hidden": "4096", "ffn": "14336",
    "heads": "32", "kv_heads": "8", "vocab": "128256", "seq_len": "8192", "global_batch": "16", "micro_batch": "2",
    "device": "H100-SXM-80GB", "num_devices": "8", "tp": "1", "pp": "1", "dp": "8", "cp": "1", "ep": "",
    "interleave": "", "zero_stage": "3", "recompute": "full", "precision": "bf16", "stack": "torchtitan",
    "measured_iter_time_s": "2.0", "notes": "",
}  # fmt: skip


def plan(**cells: str) -> dict[str, Any]:
    return design_of({**RUN, **cells}).plan.named()


@pytest.mark.parametrize(
    ("text", "ranks", "stage", "group"),
    [
        ("", 8, 0, 0),
        ("0", 8, 0, 0),
        ("1 (bf16/fp16 opt)", 8, 1, 0),
        ("2", 8, 2, 0),
        ("3", 64, 3, 0),
        ("3(FSDP)", 64, 3, 0),
        ("FSDP 64", 64, 3, 0),
        ("FSDP 64", 128, 3, 64),
        # eight ranks are one group of eight: no copies
        ("1 (group of 8)", 8, 1, 0),
        ("1 (group of 8)", 512, 1, 8),
    ],
)
def test_sharding_is_read_as_stage_and_group(text: str, ranks: int, stage: int, group: int) -> None:
    assert sharding(text, ranks) == (stage, group)


def test_words_without_a_stage_are_not_guessed() -> None:
    with pytest.raises(Skip, match="does not name a stage"):
        sharding("DeepSpeed Y", 8)


def test_context_takes_devices_from_the_data_axis_and_blank_degrees_are_the_rest() -> None:
    found = plan(cp="4", dp="", num_devices="64", tp="2", global_batch="16")
    assert (found["tensor"], found["context"], found["data"]) == (2, 4, 8)
    # torchtitan gathers keys and values, and splits norms over its tensor axis
    assert not found["context_ring"] and found["sequence_parallel"]


def test_a_pipeline_of_torchtitan_gathers_once_a_step_and_has_as_many_micro_batches_as_stages() -> None:
    assert plan()["zero_stage"] == 3 and plan(pp="4", dp="2")["zero_stage"] == 1
    blank = plan(pp="4", dp="2", micro_batch="", global_batch="64")
    assert blank["micro_batch"] == 64 // (2 * 4)
    assert plan(pp="4", dp="2", micro_batch="2")["micro_batch"] == 2


def test_an_interleaved_pipeline_counts_embedding_and_head_where_layers_alone_do_not_divide() -> None:
    # 126 layers in 8 x 2 chunks: 126 / 16 is no whole number, (126 + 2) / 16 is 8
    assert plan(layers="126", pp="8", dp="1", interleave="2")["split"] == "balanced"
    assert plan(layers="128", pp="8", dp="1", interleave="2")["split"] == "uniform"
    assert plan(layers="126", pp="8", dp="1", interleave="1")["split"] == "uniform"


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp8 tensorwise async TP", "fp8"), ("bf16 vanilla TP", "bf16"), ("mxfp8", "fp8"), ("fp8_full", "fp8"),
        ("fp16/bf16 (see source)", "bf16"), ("", "bf16"),
    ],
)  # fmt: skip
def test_a_recipe_is_the_format_its_name_begins_with(precision: str, expected: str) -> None:
    assert design_of({**RUN, "precision": precision}).training.precision == expected


def test_per_operator_recomputation_is_a_plan() -> None:
    assert plan(recompute="selective(per-op)")["recompute"] == "per_operator"


@pytest.mark.parametrize("written", STACKS)
def test_every_measured_stack_is_a_stack_of_the_product(written: str) -> None:
    assert STACKS[written].name in stacks.names()
    assert design_of({**RUN, "stack": written}).stack.name == STACKS[written].name


def test_megatron_reduces_in_the_open_and_fully_sharded_stacks_behind_computation() -> None:
    assert not plan(stack="Megatron-LM", zero_stage="0")["overlap_data"]
    assert all(plan(stack=name)["overlap_data"] for name in ("llm-foundry", "torchtitan", "InternEvo", "MaxText"))


def test_blank_cells_of_a_plan_are_what_the_stack_does_by_default() -> None:
    blank = {"zero_stage": "", "recompute": ""}
    found = {name: plan(**blank, stack=name) for name in ("Megatron-LM", "Megatron-Bridge", "MaxText", "InternEvo")}
    assert [plan["zero_stage"] for plan in found.values()] == [0, 1, 3, 0]
    assert [plan["recompute"] for plan in found.values()] == ["none", "none", "full", "none"]


def test_recipes_of_megatron_core_overlap_tensor_exchanges_and_keep_fp8_weights() -> None:
    cells = {"stack": "Megatron-Bridge", "tp": "2", "dp": "4", "precision": "fp8", "zero_stage": ""}
    assert plan(**cells)["overlap_tensor"] and not plan(**{**cells, "tp": "1", "dp": "8"})["overlap_tensor"]
    assert not plan(**{**cells, "stack": "torchtitan"})["overlap_tensor"]
    training = design_of({**RUN, **cells}).training
    assert (training.weight_casts, training.dispatch) == ("once", "token")
    assert design_of({**RUN, "precision": "fp8"}).training.weight_casts == "pass"


def test_a_device_of_maxtext_works_on_its_whole_batch_at_once_unless_told() -> None:
    blank = {"stack": "MaxText", "micro_batch": "", "global_batch": "64"}
    assert plan(**blank)["micro_batch"] == 8 and plan(**{**blank, "micro_batch": "2"})["micro_batch"] == 2
    assert plan(**{**blank, "stack": "llm-foundry"})["micro_batch"] == 1


def test_only_dualpipe_sends_rows_to_experts_behind_another_micro_batch() -> None:
    hidden = {name for name in STACKS if plan(stack=name)["overlap_expert"]}
    assert hidden == {"HAI-LLM (DualPipe)"}


def test_gradients_are_added_up_in_the_format_of_the_stack() -> None:
    widths = {name: design_of({**RUN, "stack": name}).training.gradient_bytes for name in STACKS}
    assert widths["Megatron-LM"] == widths["torchtitan"] == 4 and widths["llm-foundry"] == widths["InternEvo"] == 2


@pytest.mark.parametrize(
    ("model", "cells", "count"),
    [
        # 80 (12 h^2 + 13 h) + (50368 + 2048 + 2) h with h = 8192: learned positions, biases, tied embeddings
        ("MPT-70b", {"layers": "80", "hidden": "8192", "ffn": "32768", "heads": "64", "kv_heads": "64",
                     "vocab": "50368", "seq_len": "2048"}, 80 * (12 * 8192**2 + 13 * 8192) + 52418 * 8192),
        # heads of 256: 32 x (4 x 12288 x 8192 + 2 x 12288 x 49152 + 2 x 12288) + 2 x 32000 x 12288 + 12288
        ("MaxText-52B", {"layers": "32", "hidden": "12288", "ffn": "49152", "heads": "32", "kv_heads": "32",
                         "vocab": "32000", "stack": "MaxText"},
         32 * (4 * 12288 * 8192 + 2 * 12288 * 49152 + 2 * 12288) + (2 * 32000 + 1) * 12288),
        ("Llama-3.1-8B", {}, 8_030_261_248),
    ],
)  # fmt: skip
def test_a_family_has_the_parameters_counted_by_hand(model: str, cells: dict[str, str], count: int) -> None:
    found = design_of({**RUN, "model": model, **cells}).workload
    assert parameters(found.network, found.sequence) == count


def test_a_mixture_takes_its_experts_from_the_published_network() -> None:
    cells = {"model": "Qwen3_30B_a3B", "layers": "48", "hidden": "2048", "ffn": "", "heads": "32", "kv_heads": "4",
             "vocab": "151936", "seq_len": "4096", "ep": "8", "zero_stage": "", "stack": "Megatron-Bridge"}  # fmt: skip
    found = design_of({**RUN, **cells})
    assert parameters(found.workload.network, 4096) == pytest.approx(30.5e9, rel=0.01)
    assert active_parameters(found.workload.network, 4096) == pytest.approx(3.3e9, rel=0.02)
    assert (found.plan.expert, found.plan.expert_tensor) == (8, 0)
    with pytest.raises(Skip, match="other layers"):
        design_of({**RUN, **cells, "layers": "47"})


def test_a_step_time_follows_from_model_flops_utilization() -> None:
    row = {**RUN, "measured_iter_time_s": "", "mfu_pct": "40", "peak_tflops_used": "1000"}
    design = design_of(row)
    # 3 x forward FLOP over 40% of 8 x 1,000 TFLOP/s
    assert measured_time(row, design) == pytest.approx(model_flops(design.workload) / (0.4 * 8e15), rel=1e-12)
    # without a stated peak, the chip's own
    assert measured_time({**row, "peak_tflops_used": ""}, design) == pytest.approx(
        model_flops(design.workload) / (0.4 * 8 * 989.4e12), rel=1e-3
    )


def test_hardware_flops_count_the_recomputed_layers_and_model_flops_do_not() -> None:
    row = {**RUN, "measured_iter_time_s": "", "measured_tflops_per_device": "400", "tflops_kind": "model"}
    design = design_of(row)
    plain = measured_time(row, design)
    assert plain == pytest.approx(model_flops(design.workload) / (8 * 400e12), rel=1e-12)
    # layers are repeated, the head is not: less than 4/3
    again = measured_time({**row, "tflops_kind": "hardware(incl recompute)"}, design)
    assert 1.25 < again / plain < 4 / 3
    with pytest.raises(Skip, match="no measured step time"):
        measured_time({**row, "tflops_kind": "as reported"}, design)


def test_slices_are_pods_joined_by_the_network_and_copies_of_each_other() -> None:
    notes = "2 slice(s), fsdp=64 within slice"
    assert slices_of(notes) == 2 and slices_of("") == 1
    found = design_of({**RUN, "device": "TPUv4", "num_devices": "128", "dp": "128", "global_batch": "256",
                       "stack": "MaxText", "notes": notes})  # fmt: skip
    assert [(tier.size, tier.topology) for tier in found.cluster.tiers] == [(64, "torus3d"), (128, "fat_tree")]
    assert (found.plan.zero_stage, found.plan.zero_group) == (3, 64)


def test_jobs_use_64_of_the_72_devices_of_a_rack() -> None:
    assert [tier.size for tier in cluster_of("GB200", 256).tiers] == [64, 256]
    assert [tier.size for tier in cluster_of("GB200", 64).tiers] == [72, 72]


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_of_the_tables_has_a_chip_and_a_cluster(device: str) -> None:
    found = chip_of(device)
    assert found.peak_flops(next(name for name in ("bf16", "fp16", "fp32") if name in found.matmul_rates)) > 0
    assert cluster_of(device, 8).devices == 8


@pytest.mark.parametrize("split", ["calibration", "validation"])
def test_nearly_every_complete_row_is_a_design(split: str) -> None:
    if not os.environ.get("DSE_DATA"):
        pytest.skip("needs DSE_DATA, a folder of measured tables")
    with (Path(os.environ["DSE_DATA"]) / "training_runs.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == split and all(row[name] for name in NEEDED)]
    reasons = [case.skipped for case in (run_case(row, "runs", 1) for row in rows) if case.design is None]
    assert len(rows) >= 90 and len(reasons) <= 0.05 * len(rows), reasons
