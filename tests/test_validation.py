"""Validation: statistics by hand, the shipped table, every reason to skip a row, and the stable JSON form."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dse.errors import ConfigError
from dse.evaluation.evaluate import evaluate
from dse.measured_parts import OneProduct, formula_bytes, gemm_seconds
from dse.measured_runs import Case, Skip, design_of, measured_time, node_bandwidth, run_case
from dse.validation import (
    Compared,
    Score,
    Validation,
    floor_percent,
    is_scored,
    predicted_cases,
    read_cases,
    residuals,
    score_of,
    statistics,
    table_cases,
    validate,
    why_not,
)
from workloads.operators import Matmul
from workloads.training import parameters

SCORE_KEYS = (
    "set", "n", "n_scored", "mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent",
    "floor_percent", "calibrated",
)  # fmt: skip

#: A run that the product can express; tests change one cell at a time.
RUN = {
    "row_id": "R1", "group": "g", "model": "GPT-22B", "layers": "48", "hidden": "6144", "heads": "64",
    "seq_len": "2048", "global_batch": "4", "micro_batch": "4", "device": "A100-80GB", "num_devices": "8",
    "tp": "8", "pp": "1", "dp": "1", "cp": "1", "ep": "", "interleave": "1", "zero_stage": "0", "recompute": "full",
    "precision": "fp16", "attention_impl": "", "measured_iter_time_s": "1.42", "stack": "Megatron-LM",
    "vocab": "51200", "notes": "",
}  # fmt: skip


def data_folder() -> Path:
    if not os.environ.get("DSE_DATA"):
        pytest.skip("needs DSE_DATA, a folder of measured tables")
    return Path(os.environ["DSE_DATA"])


@pytest.fixture(scope="module")
def shipped() -> Validation:
    return validate(rows=True)


@pytest.fixture(scope="module")
def everything() -> Validation:
    return validate(data_folder(), rows=True)


def case(predicted: float | None, measured: float | None, **other: object) -> Case:
    return Case("s/g", "r", "s", measured=measured, predicted=predicted, **other)  # type: ignore[arg-type]


def test_errors_of_minus_ten_zero_and_thirty_percent() -> None:
    # absolute: 0, 10, 30; 95th percentile: 10 + 0.9 x 20
    found = statistics([-10.0, 0.0, 30.0])
    assert found == pytest.approx(
        {
            "mape_percent": 40 / 3, "median_percent": 10.0, "p95_percent": 28.0, "max_percent": 30.0,
            "bias_percent": 20 / 3,
        }
    )  # fmt: skip


def test_the_sign_says_that_a_prediction_of_90_for_100_is_ten_percent_too_small() -> None:
    score = score_of("s/g", [case(90.0, 100.0)])
    assert (score.bias_percent, score.mape_percent) == pytest.approx((-10.0, 10.0))


def test_the_floor_of_two_equal_runs_of_9_and_11_seconds() -> None:
    # their median is 10: 10/9 - 1 = 11.1%, 1 - 10/11 = 9.09%
    pair = [case(None, 9.0, inputs="a"), case(None, 11.0, inputs="a"), case(None, 50.0, inputs="b")]
    assert floor_percent(pair) == pytest.approx(100 * (1 / 9 + 1 / 11) / 2)


def test_a_set_without_repeated_inputs_has_no_floor() -> None:
    assert floor_percent([case(None, 9.0, inputs="a"), case(None, 9.0, inputs="b"), case(None, 9.0)]) is None


def test_no_constant_prediction_of_repeated_runs_beats_the_floor_by_much() -> None:
    generator = np.random.default_rng(11)
    measured = generator.uniform(0.8, 1.25, 13)
    floor = floor_percent([case(None, float(value), inputs=0) for value in measured])
    best = min(100 * np.mean(np.abs(guess / measured - 1)) for guess in np.linspace(0.5, 1.5, 2001))
    assert floor is not None and best <= floor <= 1.1 * best


@pytest.mark.parametrize("split", ["calibration", "stretch", "context"])
def test_rows_of_other_splits_are_listed_and_not_scored(split: str) -> None:
    found = case(1.0, 1.0, split=split)
    assert not is_scored(found) and split in why_not(found)
    assert score_of("s/g", [found]) == Score("s/g", 1)


@pytest.mark.parametrize("split", ["validation", ""])
def test_validation_rows_and_rows_of_a_file_without_split_are_scored(split: str) -> None:
    assert is_scored(case(1.0, 1.0, split=split))


def test_the_shipped_table_is_within_20_percent_on_average_and_40_at_worst(shipped: Validation) -> None:
    assert [(score.set, score.n, score.n_scored) for score in shipped.sets] == [
        ("measured_runs/megatron_sc21_t1", 10, 10),
        ("measured_runs/korthikanti_t5", 8, 8),
    ]
    errors = [abs(row.error_percent) for row in shipped.rows]
    assert np.mean(errors) <= 20 and max(errors) <= 40
    assert shipped.skipped == () and not any(score.calibrated for score in shipped.sets)


def test_every_run_of_the_shipped_table_fits_in_memory(shipped: Validation) -> None:
    assert (shipped.fit.n, shipped.fit.n_fit, shipped.fit.misses, shipped.fit.share) == (18, 18, (), 1.0)


def test_shipped_times_of_sc21_follow_from_the_printed_rates() -> None:
    # eq. 3 of the paper: F = 96 B s l h^2 (1 + s/6h + V/16lh), over the printed TFLOP/s of a device
    table = list(csv.DictReader((Path(__file__).parents[1] / "dse/data/measured_runs.csv").open(encoding="utf-8")))
    rows = [row for row in table if row["group"] == "megatron_sc21_t1"]
    for row in rows:
        names = ("global_batch", "seq_len", "layers", "hidden", "vocab", "num_devices")
        b, s, layers, h, v, n = (float(row[name]) for name in names)
        flops = 96 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
        rate = float(row["time_kind"].split()[1]) * 1e12
        assert float(row["measured_iter_time_s"]) == pytest.approx(flops / rate / n, rel=1e-3)
    assert len(rows) == 10 and all("arXiv" in row["source"] for row in table)


def test_the_json_form_has_exactly_the_agreed_keys() -> None:
    plain = json.loads(validate().to_json())
    assert list(plain) == ["sets", "skipped"]
    assert all(tuple(score) == SCORE_KEYS for score in plain["sets"])
    assert tuple(item.name for item in fields(Score)) == SCORE_KEYS


def test_rows_are_in_the_json_only_when_asked_for(shipped: Validation) -> None:
    assert len(shipped.to_plain()["rows"]) == 18 and len(shipped.to_frame()) == 18
    assert validate().rows == ()


def test_a_set_that_matches_nothing_is_reported_empty_and_not_passed() -> None:
    found = validate(sets=["nothing/*"])
    assert json.loads(found.to_json())["sets"] == [
        {**dict.fromkeys(SCORE_KEYS), "set": "nothing/*", "n": 0, "n_scored": 0, "calibrated": False}
    ]


def test_a_pattern_names_a_set_with_or_without_its_table() -> None:
    for glob in ("measured_runs/kor*", "korthikanti_t5"):
        assert [score.set for score in validate(sets=[glob]).sets] == ["measured_runs/korthikanti_t5"]


def test_a_folder_that_is_missing_or_has_no_known_table_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cost.csv").write_text("item,value\nwafer,1\n", encoding="utf-8")
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="data"):
            validate(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layers": ""}, "incomplete: no layers"),
        ({"heads": "", "device": ""}, "incomplete: no heads, device"),
        ({"device": "Gaudi2-96GB"}, "not in the table of chips"),
        ({"zero_stage": "3"}, "ZeRO-3"),
        ({"zero_stage": "FSDP 64"}, "FSDP"),
        ({"zero_stage": "1 (group of 8)", "num_devices": "128", "dp": "16"}, "groups"),
        ({"zero_stage": "DeepSpeed Y"}, "does not name a stage"),
        ({"cp": "2"}, "context parallelism"),
        ({"ep": "8"}, "expert parallelism"),
        ({"model": "Mixtral 8x7B"}, "mixture of experts"),
        ({"model": "LLAMA2-7B LoRA"}, "LoRA"),
        ({"recompute": "selective(per-op)"}, "recompute"),
        ({"precision": "nvfp4"}, "precision"),
        ({"precision": "fp8"}, "no matrix rate"),
        ({"dp": "2"}, "do not multiply"),
        ({"dp": "512 (2 pods)"}, "is not a number"),
        ({"measured_iter_time_s": ""}, "no measured step time"),
        ({"hidden": "6145"}, "hidden % heads"),
    ],
)
def test_a_row_that_cannot_be_expressed_is_skipped_with_its_reason(change: dict[str, str], reason: str) -> None:
    found = run_case({**RUN, **change}, "runs", 1)
    assert found.design is None and reason in found.skipped
    assert not is_scored(found) and reason in why_not(found)


def test_a_plan_that_breaks_a_rule_is_skipped_with_the_name_of_the_rule() -> None:
    # 4 samples do not divide into micro-batches of 3
    (found,), fit = predicted_cases([run_case({**RUN, "micro_batch": "3"}, "runs", 1)])
    assert "global_batch % (data * micro_batch)" in found.skipped and found.predicted is None and fit.n == 0


def test_a_row_becomes_the_design_that_it_describes() -> None:
    found = design_of({**RUN, "recompute": "selective+SP", "vocab": "", "notes": "8-GPU nodes; inter-node 800 Gb/s"})
    plan, network = found.plan.named(), found.workload.network
    assert (plan["tensor"], plan["pipeline"], plan["data"], plan["micro_batch"]) == (8, 1, 1, 4)
    assert (plan["recompute"], plan["sequence_parallel"], plan["zero_stage"]) == ("selective", True, 0)
    assert (found.training.precision, found.training.attention) == ("fp16", "materialized")
    assert (found.chip.name, found.stack.name) == ("a100-sxm-80gb", "megatron-lm")
    # 50304 rows padded to 128 on each of 8 devices; ffn 4 x hidden
    assert (network.padded_vocabulary, network.ffn, network.kv_heads) == (51200, 24576, 64)  # type: ignore[attr-defined]
    assert found.cluster.tiers[1].bandwidth == 12.5e9


def test_a_llama_has_gates_and_a_16_gb_v100_has_16_gb() -> None:
    row = {**RUN, "model": "Llama-3.1-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
           "ffn": "14336", "vocab": "128256", "device": "V100-SXM2-16GB", "stack": ""}  # fmt: skip
    found = design_of(row)
    assert parameters(found.workload.network, 2048) == pytest.approx(8.03e9, rel=1e-3)
    assert found.chip.hbm_capacity == 16e9 and found.training.attention == "fused"


def test_a_step_time_follows_from_tokens_a_second_and_device() -> None:
    # 4 x 2048 tokens at 128 tokens/s on 8 devices: 8 s
    assert measured_time({**RUN, "measured_iter_time_s": "", "tokens_per_s_per_device": "128"}) == 8.0


@pytest.mark.parametrize(
    ("notes", "bandwidth"),
    [
        ("8-GPU nodes; inter-node 800 Gb/s in a configuration", 12.5e9),
        ("4x100Gb RoCE inter-node; micro_num=1", 6.25e9),
        ("500 W power limit; 400 Gb/s RDMA per GPU", 50e9),
        ("aggregate 4.4 PFLOP/s", 0.0),
    ],
)
def test_the_network_of_a_node_is_read_from_the_notes(notes: str, bandwidth: float) -> None:
    assert node_bandwidth(notes) == bandwidth


def test_runs_priced_together_have_the_bits_of_runs_priced_alone() -> None:
    found, _ = predicted_cases(list(read_cases(None)))
    for item in found:
        assert item.design is not None
        assert item.predicted == float(evaluate(item.design)["step_time"][0])


def test_predictions_do_not_see_the_measured_time() -> None:
    alone, _ = predicted_cases([run_case(RUN, "runs", 1)])
    other, _ = predicted_cases([run_case({**RUN, "measured_iter_time_s": "99"}, "runs", 1)])
    assert alone[0].predicted == other[0].predicted


def test_a_run_that_would_not_fit_is_a_miss_and_an_unstated_one_is_apart() -> None:
    # 175 billion parameters on eight devices: 18 B each are 394 GB a device
    big = {**RUN, "layers": "96", "hidden": "12288", "heads": "96"}
    _, fit = predicted_cases([run_case(big, "runs", 1)])
    assert (fit.n, fit.n_fit) == (1, 0) and fit.misses[0][0] == "R1" and fit.misses[0][2] > 394 / 80
    _, fit = predicted_cases([run_case({**big, "zero_stage": "", "split": "context"}, "runs", 1)])
    assert fit.n == 0 and fit.misses == () and fit.unstated[0][0] == "R1"


def test_one_product_alone_is_priced_like_an_operator_of_a_step() -> None:
    row = {"M": "8192", "N": "8192", "K": "8192", "device": "A100-SXM-80GB", "dtype": "fp16"}
    ideal = 2 * 8192**3 / 312e12
    assert ideal < gemm_seconds(row) < 1.5 * ideal
    assert OneProduct(Matmul("p", 2, 3, 5)).blocks(1)[1].flops == 60


@pytest.mark.parametrize(
    ("model", "quantity", "mode", "gibibytes"),
    [
        # 48 layers x 12 h^2 x 18 B / 8, h = 6144
        ("megatron-22B", "parameters+optimizer", "none", 48 * 12 * 6144**2 * 18 / 8 / 2**30),
        # 48 layers x s b h (10 + 24/8 + 5 a s/(8 h)), and with sequence parallelism and no core s b h 34/8
        ("megatron-22B", "activations", "none", 48 * 2048 * 4 * 6144 * (13 + 5 * 64 * 2048 / 6144 / 8) / 2**30),
        ("megatron-22B", "activations", "seqsel", 48 * 2048 * 4 * 6144 * 34 / 8 / 2**30),
        # interleaving with 3 chunks on 8 stages: 1 + 7/24 times as much
        ("gpt3-175B", "activations", "seqsel", 96 * 2048 * 12288 * 34 / 8 * (1 + 7 / 24) / 2**30),
    ],
)
def test_block_memory_is_the_cited_formula(model: str, quantity: str, mode: str, gibibytes: float) -> None:
    assert formula_bytes(model, quantity, mode) / 2**30 == pytest.approx(gibibytes, rel=1e-12)


def test_tables_are_told_apart_by_their_headings_and_constants_are_left_alone() -> None:
    assert list(table_cases([{"item": "wafer", "value": "1"}], "cost")) == []
    (found,) = table_cases([{"task": "train", "throughput_per_device_per_s": "1", "model": "X"}], "cnn_runs")
    assert found.set == "cnn_runs/X" and "network" in found.skipped
    assert list(table_cases([], "empty")) == []


def test_residuals_are_grouped_by_a_trait_in_numeric_order() -> None:
    rows = [Compared(str(i), "s", "s", 1, 1, error, {"tensor": t}) for i, (t, error) in enumerate(
        [("8", -10.0), ("16", 5.0), ("8", -20.0)])]  # fmt: skip
    assert residuals(rows, "tensor") == [
        {"value": "8", "n": 2, "bias_percent": -15.0, "spread_percent": 5.0},
        {"value": "16", "n": 1, "bias_percent": 5.0, "spread_percent": 0.0},
    ]


def test_every_row_of_the_folder_is_scored_or_has_a_reason(everything: Validation) -> None:
    assert sum(score.n for score in everything.sets) == len(everything.rows) + len(everything.skipped)
    assert sum(score.n_scored for score in everything.sets) == len(everything.rows)
    assert all(item.reason for item in everything.skipped)


def test_at_least_97_percent_of_complete_runs_fit_in_memory(everything: Validation) -> None:
    assert everything.fit.n >= 900 and (everything.fit.share or 0) >= 0.97


def test_systolic_cycles_equal_the_simulator_and_block_memory_the_formula(everything: Validation) -> None:
    worst = {score.set: score.max_percent for score in everything.sets if score.n_scored}
    assert worst["systolic/reference"] == worst["systolic/resnet50"] == 0
    for quantity in ("activations", "parameters+optimizer"):
        assert (worst[f"memory/{quantity}"] or 0) < 1e-4


def test_networks_of_complete_rows_have_the_parameters_that_the_rows_state() -> None:
    with (data_folder() / "training_runs.csv").open(encoding="utf-8", newline="") as file:
        splits = ("calibration", "validation")
        rows = [row for row in csv.DictReader(file) if row["params_B"] and row["split"] in splits]
    checked = 0
    for row in rows:
        try:
            network = design_of({**row, "zero_stage": "0", "device": "A100-80GB", "recompute": "full", "cp": "1",
                                 "precision": "bf16"}).workload.network  # fmt: skip
        except (Skip, ValueError):
            continue
        checked += 1
        # sizes such as "22" or "3.6" are rounded; single layers of a larger network are not in these splits
        assert parameters(network, int(row["seq_len"])) / 1e9 == pytest.approx(float(row["params_B"]), rel=0.07), row
    assert checked > 300
