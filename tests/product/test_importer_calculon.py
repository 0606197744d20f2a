"""Calculon's application, system and execution become a network, a chip in its cluster, and a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.base.errors import ConfigError
from dse.inputs.importers import calculon
from workloads.importers.calculon import application, execution
from workloads.importers.reading import FileError
from workloads.training import parameters

#: Megatron-1T (Narayanan et al. 2021, table 1) as Calculon's users write it.
APPLICATION = {"hidden": 25600, "feedforward": 102400, "seq_size": 2048, "attn_heads": 160, "attn_size": 160,
               "num_blocks": 128}  # fmt: skip
NETWORK = {"ops": {"p2p": [1.0, None]}, "must_be_filled": True, "processor_usage": 0.15}
SYSTEM: dict[str, Any] = {
    "matrix": {"float16": {"tflops": 312, "gflops_efficiency": [[128, 0.99], [1, 0.6], [0, 0.1]]}},
    "vector": {"float16": {"tflops": 78, "gflops_efficiency": [[16, 0.95], [0, 0.1]]}},
    "mem1": {"GiB": 80, "GBps": 2048, "MB_efficiency": [[100, 0.95], [0, 0.3]]},
    "mem2": {"GiB": 512, "GBps": 32},
    "processing_mode": "no_overlap",
    "networks": [
        {"bandwidth": 300, "efficiency": 0.65, "size": 8, "latency": 1e-5, **NETWORK},
        {"bandwidth": 25, "efficiency": 0.9, "size": 65536, "latency": 2e-5, **NETWORK},
    ],
}
EXECUTION: dict[str, Any] = {
    "num_procs": 3072, "tensor_par": 8, "pipeline_par": 64, "data_par": 6, "tensor_par_net": 0, "pipeline_par_net": 1,
    "data_par_net": 1, "batch_size": 3072, "microbatch_size": 1, "datatype": "float16", "fused_activation": True,
    "attention_type": "multihead", "activation_recompute": "attn_only", "pipeline_interleaving": 2,
    "optimizer_sharding": True, "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none", "seq_par_ag_redo": True,
    "data_par_overlap": True, "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
    "training": True,
}  # fmt: skip


def written(folder: Path, **changes: dict[str, Any]) -> tuple[Path, Path, Path]:
    paths = []
    for name, tree in (("application", APPLICATION), ("system", SYSTEM), ("execution", EXECUTION)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(tree | changes.get(name, {})))
        paths.append(path)
    return paths[0], paths[1], paths[2]


def test_the_network_has_as_many_parameters_as_calculon_counts() -> None:
    """Its formula: matrices, biases and norms of a block, 51200 words and the positions."""
    h, f, a, blocks = 25600, 102400, 160 * 160, 128
    block = 2 * h * f + 4 * h * a + h + f + 3 * a + h + 4 * h
    found = application(APPLICATION)
    assert parameters(found.network, 2048) == blocks * block + (51200 + 2048) * h
    assert found.sequence == 2048


def test_an_execution_is_a_plan() -> None:
    found = execution(EXECUTION)
    plan = found.plan.named()
    assert (plan["tensor"], plan["pipeline"], plan["data"], found.devices) == (8, 64, 6, 3072)
    assert (plan["micro_batch"], plan["interleave"], found.global_batch) == (1, 2, 3072)
    assert (plan["recompute"], plan["zero_stage"]) == ("selective", 1)
    assert plan["sequence_parallel"] and plan["overlap_data"] and not plan["overlap_tensor"]
    assert execution(EXECUTION | {"tensor_par_comm_type": "ar"}).plan.named()["sequence_parallel"] is False
    assert execution(EXECUTION | {"optimizer_offload": True}).plan.named()["offload"] == "optimizer"
    assert execution(EXECUTION | {"weight_offload": True}).plan.named()["offload"] == "all"
    assert execution(EXECUTION | {"activation_recompute": "full"}).plan.named()["recompute"] == "full"


def test_a_system_is_a_chip_with_its_peaks_and_a_cluster_with_its_networks(tmp_path: Path) -> None:
    design = calculon(*written(tmp_path)).design
    assert float(design.chip.peak_flops("fp16")) == pytest.approx(312e12, rel=1e-12)
    assert float(design.chip.vector_flops) == pytest.approx(78e12, rel=1e-3)
    assert float(design.chip.hbm_capacity) == 80 * 2**30 and float(design.chip.hbm_bandwidth) == 2048e9
    assert float(design.chip.scale_up_bandwidth) == 300e9
    assert [(tier.size, tier.bandwidth, tier.latency) for tier in design.cluster.tiers] == [
        (8, 0.0, 1e-5), (3072, 25e9, 2e-5)
    ]  # fmt: skip
    assert design.cluster.host_bandwidth == 32e9
    assert (design.stack.link_efficiency, design.stack.network_efficiency) == (0.65, 0.9)
    assert (design.stack.matmul_efficiency, design.stack.memory_efficiency) == (0.99, 0.95)
    assert design.training.precision == "fp16"


def test_a_set_up_can_be_evaluated_and_more_matrix_rate_is_never_slower(tmp_path: Path) -> None:
    slow = dse.evaluate(calculon(*written(tmp_path)).design).value("step_time")
    double = {"matrix": {"float16": {"tflops": 624}}}
    fast = dse.evaluate(calculon(*written(tmp_path, system=double)).design).value("step_time")
    assert 0 < fast < slow


def test_a_base_chip_keeps_its_arrays_and_takes_peak_and_memory_of_the_system(tmp_path: Path) -> None:
    base = dse.chips.a100_sxm_80gb()
    design = calculon(*written(tmp_path), base=base).design
    assert (design.chip.compute, design.chip.array_count) == (base.compute, base.array_count)
    assert float(design.chip.peak_flops("fp16")) == pytest.approx(312e12, rel=1e-12)


def test_what_has_no_counterpart_is_listed(tmp_path: Path) -> None:
    notes = calculon(*written(tmp_path, execution={"activations_offload": True, "new_key": 1})).notes
    for part in (
        "embedding and head of 51200 words", "fused_activation", "seq_par_ag_redo", "activations_offload", "new_key",
        "processing_mode", "networks.ops", "networks.processor_usage", "mem2",
    ):  # fmt: skip
        assert any(part in note for note in notes), part


def test_multiquery_attention_has_one_head_of_keys_and_values(tmp_path: Path) -> None:
    design = calculon(*written(tmp_path, execution={"attention_type": "multiquery"})).design
    assert design.workload.network.kv_heads == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"num_procs": 3000}, "num_procs: found 3000; allowed: tensor_par x pipeline_par x data_par = 3072"),
        ({"batch_size": 3073}, "batch_size: found 3073; allowed: a multiple of data_par x microbatch_size = 6"),
        ({"activation_recompute": "atn_only"}, "did you mean attn_only?"),
        ({"training": False}, "training: found false; allowed: true"),
        ({"tensor_par": 0}, "tensor_par: found 0"),
        ({"datatype": "int8"}, 'datatype: found "int8"'),
    ],
)
def test_an_execution_that_makes_no_sense_is_refused_by_key(change: dict[str, Any], part: str) -> None:
    with pytest.raises(FileError) as error:
        execution(EXECUTION | change)
    assert part in str(error.value)


def test_every_fault_of_a_system_is_a_problem_of_its_file(tmp_path: Path) -> None:
    broken = {
        "matrix": {"float17": {"tflops": 1}}, "mem1": {"GiB": -1}, "networks": [{"bandwidth": 0, "size": 8}],
    }  # fmt: skip
    with pytest.raises(ConfigError) as error:
        calculon(*written(tmp_path, system=broken))
    text = str(error.value)
    for part in ("system.json", "float17", "GiB: found -1", "GBps: found nothing", "networks[0].bandwidth: found 0"):
        assert part in text


def test_a_network_that_is_too_small_for_the_execution_is_refused(tmp_path: Path) -> None:
    small = {"networks": [SYSTEM["networks"][0]]}
    with pytest.raises(ConfigError, match=r"networks\[0\].size: found 8; allowed: at least 3072"):
        calculon(*written(tmp_path, system=small))


def test_an_application_misses_nothing() -> None:
    with pytest.raises(FileError) as error:
        application({"hidden": 8, "feed_forward": 3})
    text = str(error.value)
    assert text.count("found nothing") == 5 and "did you mean feedforward?" in text
