"""Validation: statistics by hand, the shipped table, every reason to skip a row, and the stable JSON form."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dse.base.errors import ConfigError
from dse.command.main import main
from dse.evaluation.evaluate import evaluate
from dse.evidence.measured.devices import node_bandwidth
from dse.evidence.measured.parts import formula_bytes
from dse.evidence.measured.runs import Case, Skip, design_of, measured_time, run_case
from dse.evidence.measured.tables import Cells
from dse.evidence.validation.cases import UNREAD, read_cases, table_cases
from dse.evidence.validation.residuals import comparisons, residual_figures
from dse.evidence.validation.scores import (
    Compared,
    Score,
    floor_percent,
    is_calibrated,
    is_scored,
    residuals,
    score_of,
    statistics,
    why_not,
)
from dse.evidence.validation.validate import Validation, predicted_cases, validate
from dse.record.validation import write_report
from hw_models.stacks import Constants
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


@pytest.mark.parametrize("split", ["calibration", "context"])
def test_rows_of_other_splits_are_listed_and_not_scored(split: str) -> None:
    found = case(1.0, 1.0, split=split)
    assert not is_scored(found) and split in why_not(found)
    assert score_of("s/g", [found]) == Score("s/g", 1)


@pytest.mark.parametrize("split", ["validation", ""])
def test_validation_rows_and_rows_of_a_file_without_split_are_scored(split: str) -> None:
    assert is_scored(case(1.0, 1.0, split=split))


def test_the_shipped_table_is_within_6_percent_on_average_and_15_at_worst(shipped: Validation) -> None:
    assert [(score.set, score.n, score.n_scored) for score in shipped.sets if "runs" in score.set] == [
        ("measured_runs/megatron_sc21_t1", 10, 10),
        ("measured_runs/korthikanti_t5", 8, 8),
    ]
    errors = [abs(row.error_percent) for row in shipped.rows or () if "runs" in row.set]
    assert np.mean(errors) <= 6 and max(errors) <= 15
    assert all(score.calibrated for score in shipped.sets if "runs" in score.set)
    assert {item.set.split("/")[0] for item in shipped.skipped} == {"networks"}  # calibration rows


def test_every_run_of_the_shipped_table_fits_in_memory(shipped: Validation) -> None:
    assert (shipped.fit.n, shipped.fit.n_fit, shipped.fit.misses, shipped.fit.share) == (18, 18, (), 1.0)


def test_shipped_times_of_sc21_follow_from_the_printed_rates() -> None:
    # eq. 3 of the paper: F = 96 B s l h^2 (1 + s/6h + V/16lh), over the printed TFLOP/s of a device
    shipped = Path(__file__).parents[2] / "dse" / "evidence" / "data" / "measured_runs.csv"
    table = list(csv.DictReader(shipped.open(encoding="utf-8")))
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
    assert len(shipped.to_plain()["rows"]) == 25 and len(shipped.to_frame()) == 25
    assert validate().rows is None and validate(sets=["nothing/*"], rows=True).to_plain()["rows"] == []


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
        ({"device": "Trainium2"}, "not in the table of chips"),
        ({"zero_stage": "DeepSpeed Y"}, "does not name a stage"),
        ({"model": "Mixtral 8x7B"}, "mixture of experts"),
        ({"model": "Nemotron_3_Nano"}, "no published sizes"),
        ({"model": "LLAMA2-7B LoRA"}, "LoRA"),
        ({"recompute": "qkv_proj_offloaded"}, "recompute"),
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
    assert found.chip.hbm_capacity == 16 * 2**30 and found.training.attention == "fused"


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
    found, _ = predicted_cases(read_cases(None)[0])
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
    assert list(table_cases([Cells(item="wafer", value="1")], "cost")) == []
    (found,) = table_cases([{"task": "train", "throughput_per_device_per_s": "1", "model": "X"}], "cnn_runs")
    assert found.set == "networks/X/?" and "not identified" in found.skipped
    assert list(table_cases([], "empty")) == []


def test_residuals_are_grouped_by_a_trait_in_numeric_order() -> None:
    rows = [Compared(str(i), "s", "s", 1, 1, error, {"tensor": t}) for i, (t, error) in enumerate(
        [("8", -10.0), ("16", 5.0), ("8", -20.0)])]  # fmt: skip
    assert residuals(rows, "tensor") == [
        {"value": "8", "n": 2, "bias_percent": -15.0, "spread_percent": 5.0},
        {"value": "16", "n": 1, "bias_percent": 5.0, "spread_percent": 0.0},
    ]


def test_every_row_of_the_folder_is_scored_or_has_a_reason(everything: Validation) -> None:
    tables = [score for score in everything.sets if not score.set.startswith("summary/")]
    assert sum(score.n for score in tables) == len(everything.rows or ()) + len(everything.skipped)
    assert sum(score.n_scored for score in tables) == len(everything.rows or ())
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


# Tables as people write them ----------------------------------------------------------------------------------------


def write_runs(folder: Path, *rows: dict[str, str], name: str = "training_runs.csv", **how: str) -> Path:
    """A table of runs: RUN with the cells that differ."""
    stream = io.StringIO(newline="")
    headings = [*RUN, "ffn", "kv_heads"]
    writer = csv.DictWriter(stream, headings, lineterminator=how.get("end", "\n"))
    writer.writeheader()
    writer.writerows({**RUN, **row} for row in rows)
    (folder / name).write_bytes((how.get("mark", "") + stream.getvalue()).encode("utf-8"))
    return folder


def scores_of(folder: Path, *sets: str) -> dict[str, Score]:
    return {score.set: score for score in validate(folder, sets=sets).sets}


def test_a_file_without_a_split_is_scored_whole_and_an_unknown_file_is_left_alone(tmp_path: Path) -> None:
    write_runs(tmp_path, {}, {"row_id": "R2", "recompute": "none"})
    (tmp_path / "other.csv").write_bytes(b"\xff\xfe\x00 anything,\x00\n1,2,3,4\n")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "folder.csv").mkdir()
    found = scores_of(tmp_path)
    assert (found["training_runs/g"].n, found["training_runs/g"].n_scored) == (2, 2)
    assert [name for name in found if not name.startswith("summary/")] == ["training_runs/g"]


@pytest.mark.parametrize("how", [{"mark": "\ufeff"}, {"end": "\r\n"}, {"end": "\r\n", "mark": "\ufeff"}])
def test_byte_order_marks_and_line_ends_change_nothing(tmp_path: Path, how: dict[str, str]) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    plain.mkdir(), other.mkdir()
    row = {"notes": 'a comma, "quotes"\nand a second line'}
    assert scores_of(write_runs(plain, row)) == scores_of(write_runs(other, row, **how))


def test_a_known_table_without_rows_is_a_set_of_no_rows(tmp_path: Path) -> None:
    assert scores_of(write_runs(tmp_path)) == {"training_runs": Score("training_runs", 0)}


def test_whole_numbers_written_as_floats_and_words_for_nothing_are_read(tmp_path: Path) -> None:
    write_runs(tmp_path, {}, {"tp": "8.0", "ffn": "NaN", "kv_heads": "n/a", "layers": " 48 ", "hidden": "6.144e3"})
    found = validate(tmp_path, rows=True)
    assert len({row.predicted for row in found.rows or ()}) == 1 and len(found.rows or ()) == 2


def test_a_row_without_its_measured_time_or_an_input_is_skipped_with_a_reason(tmp_path: Path) -> None:
    write_runs(tmp_path, {"row_id": "A", "measured_iter_time_s": "nan"}, {"row_id": "B", "layers": "NaN"},
               {"row_id": "C", "device": "Cerebras WSE-9"}, {"row_id": "D", "dp": "512 (2 pods)"},
               {"row_id": "E", "stack": "never heard of it"})  # fmt: skip
    found = validate(tmp_path)
    reasons = {item.row_id: item.reason for item in found.skipped}
    assert set(reasons) == {"A", "B", "C", "D"}
    assert "no measured" in reasons["A"] and "layers" in reasons["B"] and "Cerebras WSE-9" in reasons["C"]


@pytest.mark.parametrize(
    ("heading", "cell"),
    [("hidden", "wide"), ("layers", "-4"), ("num_devices", "2.5"), ("measured_iter_time_s", "inf"),
     ("measured_iter_time_s", "0"), ("seq_len", "1e300"), ("tp", "1" * 400)],
)  # fmt: skip
def test_a_cell_that_is_no_number_says_its_file_line_and_heading(tmp_path: Path, heading: str, cell: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(write_runs(tmp_path, {}, {heading: cell}))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.field) == ("training_runs.csv", 3, heading)
    assert cell[:5] in problem.found and "number" in problem.allowed


def test_all_faults_of_all_tables_come_at_once(tmp_path: Path) -> None:
    write_runs(tmp_path, {"layers": "x"}, {"heads": "y"})
    write_runs(tmp_path, {"tp": "-1"}, name="training_runs_b.csv")
    (tmp_path / "kernels.csv").write_text("kernel,M,N,K,time_us\nGEMM,1,2,3,soon\nGEMM,1,2,3,4,5\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        validate(tmp_path)
    assert [(item.file, item.line, item.field) for item in caught.value.problems] == [
        ("kernels.csv", 2, "time_us"), ("kernels.csv", 3, ""), ("training_runs.csv", 2, "layers"),
        ("training_runs.csv", 3, "heads"), ("training_runs_b.csv", 2, "tp"),
    ]  # fmt: skip


def test_a_context_row_may_hold_words_because_it_is_never_scored(tmp_path: Path) -> None:
    columns = {**RUN, "hidden": "about 6000", "split": "context"}
    (tmp_path / "runs.csv").write_text(",".join(columns) + "\n" + ",".join(columns.values()) + "\n", encoding="utf-8")
    found = validate(tmp_path)
    assert [score.n_scored for score in found.sets if score.set == "runs/g"] == [0] and len(found.skipped) == 1


def test_a_known_table_that_is_no_utf8_is_an_error_with_its_name(tmp_path: Path) -> None:
    write_runs(tmp_path, {})
    path = tmp_path / "training_runs.csv"
    path.write_bytes(path.read_bytes() + "größer".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"training_runs\.csv: found a byte that is not UTF-8"):
        validate(tmp_path)


@pytest.mark.parametrize(
    ("headings", "row", "name"),
    [
        ("kernel,M,N,K,time_us", "GEMM,4096,4096,4096,700", "kernels"),
        ("kind,collective,payload_bytes,time_us", "measured,all_reduce,1048576,50", "collectives"),
        ("dataflow,rows,cols,M,N,K,cycles_true", "os,4,4,8,8,8,100", "scalesim_x"),
        ("chip,die_area_mm2,tdp_W", "A100-SXM-80GB,826,400", "chips"),
        ("quantity,model,mode,value,unit", "activations,nothing,none,1,GiB", "memory"),
        ("layers,hidden,global_batch,num_devices", "4,512,8,8", "training_runs"),
        ("task,throughput_per_device_per_s", "train,100", "cnn_runs"),
    ],
)
def test_a_table_with_only_the_headings_it_is_known_by_gives_reasons_and_no_traceback(
    tmp_path: Path, headings: str, row: str, name: str
) -> None:
    (tmp_path / f"{name}.csv").write_text(f"{headings}\n{row}\n", encoding="utf-8")
    found = validate(tmp_path, rows=True)
    assert sum(score.n for score in found.sets if not score.set.startswith("summary/")) >= 1
    assert len(found.skipped) + len(found.rows or ()) >= 1 and all(item.reason for item in found.skipped)


def test_a_row_that_makes_no_sense_to_its_reader_is_skipped_alone(tmp_path: Path) -> None:
    headings = "row_id,dataflow,rows,cols,M,N,K,cycles_true"
    lines = [headings, "a,os,4,4,8,8,8,80", "b,sideways,4,4,8,8,8,100", "c,os,4,,8,8,8,100", ",os,4,4,8,8,8,100"]
    (tmp_path / "scalesim_x.csv").write_text("\n".join(lines), encoding="utf-8")
    found = validate(tmp_path, rows=True)
    assert [row.row_id for row in found.rows or ()] == ["a", "scalesim_x:4"]
    assert [(item.row_id, item.reason.split(":")[0]) for item in found.skipped] == [("b", UNREAD), ("c", UNREAD)]


def test_every_row_of_the_folder_makes_sense(everything: Validation) -> None:
    assert [item for item in everything.skipped if item.reason.startswith(UNREAD)] == []


def test_the_largest_clusters_and_networks_of_the_world_have_a_time(tmp_path: Path) -> None:
    big = {"layers": "128", "hidden": "25600", "heads": "160", "global_batch": "12288", "micro_batch": "1"}
    write_runs(tmp_path, {**big, "num_devices": "12288", "tp": "8", "pp": "64", "dp": "24"})
    (row,) = validate(tmp_path, rows=True).rows or ()
    assert 0 < row.predicted < 3600


def test_whatever_size_a_run_claims_it_is_a_number_or_a_reason(tmp_path: Path) -> None:
    huge = "9000000000000000"
    write_runs(tmp_path, *({name: huge} for name in ("num_devices", "global_batch", "hidden", "seq_len", "vocab")))
    found = validate(tmp_path, rows=True)
    assert all(np.isfinite(row.predicted) for row in found.rows or ())
    assert len(found.rows or ()) + len(found.skipped) == 5


def test_a_group_of_two_stacks_is_two_sets_and_keeps_its_name_for_the_one_it_names(tmp_path: Path) -> None:
    runs = [{"group": "megatron_t2", "stack": "DeepSpeed-ZeRO3", "row_id": str(i)} for i in range(3)]
    runs += [{"group": "megatron_t2", "stack": "Megatron-LM", "row_id": "M"}]
    runs += [{"group": "mix", "stack": "a"}, {"group": "mix", "stack": "b"}, {"group": "mix", "stack": "b"}]
    runs += [{"group": "one", "stack": "a"}]
    found = {name: score.n for name, score in scores_of(write_runs(tmp_path, *runs)).items()}
    assert {name.split("/")[1]: n for name, n in found.items() if not name.startswith("summary/")} == {
        "megatron_t2": 1, "megatron_t2 (DeepSpeed-ZeRO3)": 3, "mix": 2, "mix (a)": 1, "one": 1,
    }  # fmt: skip
    assert set(scores_of(tmp_path, "training_runs/megatron_t2")) == {
        "training_runs/megatron_t2", "training_runs/megatron_t2 (DeepSpeed-ZeRO3)",
    }  # fmt: skip


def test_rows_of_the_split_stretch_are_a_set_of_their_own_and_in_no_other_total(tmp_path: Path) -> None:
    columns = [*RUN, "split"]
    lines = [",".join(columns)]
    for name, split in (("V", "validation"), ("S", "stretch"), ("C", "calibration"), ("X", "context")):
        lines.append(",".join({**RUN, "row_id": name, "split": split}[column] for column in columns))
    (tmp_path / "training_runs.csv").write_text("\n".join(lines), encoding="utf-8")
    found = validate(tmp_path, rows=True)
    counts = {score.set: (score.n, score.n_scored) for score in found.sets}
    dense = counts["summary/calibrated"][1] + counts["summary/zero_shot"][1]
    assert counts["training_runs/g"] == (3, 1) and counts["training_runs/g (stretch)"] == (1, 1)
    assert dense == 1 and counts["summary/stretch"] == (1, 1)
    assert {item.row_id for item in found.skipped} == {"C", "X"} and len(found.rows or ()) == 2
    assert found.complete["training_runs/g"] == 1


def fitted_to(scope: str, name: str, where: str) -> dict[str, str]:
    return {"scope": scope, "name": name, "field": "step_overhead" if scope == "stack" else "matmul_efficiency",
            "value": "0.5", "where": where, "source": "dse calibrate"}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], False),
        ([fitted_to("stack", "megatron-lm", "3 rows, 1 situations: a100-sxm-80gb v100-sxm2")], True),
        ([fitted_to("device", "a100-sxm-80gb", "3 rows, 1 situations: megatron-lm")], True),
        # device and stack were both fitted, but never together: the pair is still a guess
        ([fitted_to("device", "a100-sxm-80gb", "3 rows: compiled"),
          fitted_to("stack", "megatron-lm", "9 rows: h100-sxm")], False),
        ([fitted_to("device", "generic", "centre of the fitted devices")], False),
    ],
)  # fmt: skip
def test_a_run_is_calibrated_where_constants_were_fitted_to_its_stack_on_its_device(
    tmp_path: Path, rows: list[dict[str, str]], expected: bool
) -> None:
    known = Constants(tuple(rows))
    assert is_calibrated(run_case(RUN, "training_runs", 1), known) is expected
    found = {score.set: score for score in validate(write_runs(tmp_path, {}), constants=known).sets}
    assert found["training_runs/g"].calibrated is expected
    assert found["summary/calibrated"].n_scored == int(expected) == 1 - found["summary/zero_shot"].n_scored


def test_a_kernel_is_calibrated_where_its_device_was_fitted_under_any_stack() -> None:
    kernel = Case("kernels/GEMM", "k", "s", traits={"device": "A100-80GB"})
    assert is_calibrated(kernel, Constants((fitted_to("stack", "compiled", "2 rows: a100-sxm-80gb"),)))
    assert not is_calibrated(kernel, Constants((fitted_to("stack", "compiled", "2 rows: h100-sxm"),)))


def test_a_summary_is_over_all_runs_and_named_like_a_set(tmp_path: Path) -> None:
    write_runs(tmp_path, {"group": "a"}, {"group": "b"})
    assert scores_of(tmp_path, "summary/*")["summary/zero_shot"].n + scores_of(tmp_path)["summary/calibrated"].n == 2
    assert set(scores_of(tmp_path, "training_runs/a")) == {"training_runs/a"}


def test_a_mixture_of_experts_is_in_no_dense_summary(tmp_path: Path) -> None:
    write_runs(tmp_path, {"model": "Mixtral-8x7B"}, {"model": "GPT-22B"})
    found = scores_of(tmp_path)
    assert found["summary/zero_shot"].n + found["summary/calibrated"].n == 1


# The report ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rows = [
        {"row_id": f"R{i}", "group": f"group {i % 3}", "hidden": str(1024 * (i + 1)), "heads": "16", "micro_batch": "1",
         "tp": "8" if i % 2 else "4", "dp": "1" if i % 2 else "2"}
        for i in range(12)
    ]  # fmt: skip
    write_runs(folder, *rows, {"row_id": "<b>", "device": "unheard <of>"})
    write_report(validate(folder, rows=True), folder / "out" / "page")
    return folder / "out" / "page"


def test_a_report_is_a_page_with_tables_and_figures_that_exist(report: Path) -> None:
    page = (report / "index.html").read_text(encoding="utf-8")
    figures = re.findall(r'<img src="([^"]+)"', page)
    assert figures == ["scatter_training_runs.png", "residuals_training_runs.png"]
    assert all((report / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    assert "unheard &lt;of&gt;" in page and "<of>" not in page
    assert "zero-shot" in page and "coverage" in page


def test_the_tables_of_a_report_hold_every_set_row_and_reason(report: Path) -> None:
    tables = {}
    for name in ("sets", "rows", "skipped"):
        with (report / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            tables[name] = list(csv.DictReader(file))
    assert len(tables["rows"]) == 12 and [row["row_id"] for row in tables["skipped"]] == ["<b>"]
    plain = json.loads((report / "validation.json").read_text(encoding="utf-8"))
    assert [row["set"] for row in tables["sets"]] == [score["set"] for score in plain["sets"]]
    assert {row["parameters"] for row in tables["rows"]} != {""}
    assert float(tables["sets"][0]["coverage_percent"]) == 100.0


def test_figures_hold_every_scored_row_in_one_unit() -> None:
    rows = [
        Compared("a", "runs/g", "s", 0.9e-3, 1e-3, -10.0, {"tensor": "1", "M": "8"}),
        Compared("b", "runs/g", "s", 1.3e-3, 1e-3, 30.0, {"tensor": "2", "M": "x"}),
        Compared("c", "runs/h", "s", 2e-3, 1e-3, 100.0, {"tensor": "", "M": "x"}),
    ]
    (found,) = comparisons(rows).values()
    assert found.unit == "ms" and [group[1] for group in found.sets] == [2, 1]
    assert np.concatenate([group[4] for group in found.sets]) == pytest.approx([0.9, 1.3, 2.0])
    (drawn,) = residual_figures(rows).values()
    panels = {panel.name: panel for panel in drawn.panels}
    # a row without the trait is left out; a trait with words is in words, the most frequent first
    assert list(panels["tensor"].places) == [1, 2] and panels["tensor"].words == ()
    assert panels["M"].words == ("x", "8") and list(panels["M"].errors) == [-10, 30, 100]


def test_sets_beyond_the_colours_are_one_and_exact_sets_have_no_residuals() -> None:
    rows = [Compared(str(i), f"t/{i}", "cycle", 1.0, 1.0, 0.0, {"rows": str(i)}) for i in range(30)]
    (found,) = comparisons(rows).values()
    assert len(found.sets) == 14 and found.sets[-1][:2] == ("other sets", 17)
    assert residual_figures(rows) == {}


def test_a_report_into_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="--report"):
        write_report(validate(rows=True), tmp_path / "file")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_the_command_writes_the_report_and_keeps_json_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path, {})
    assert main(["validate", "--data", str(tmp_path), "--json", "--report", str(tmp_path / "out")]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["sets", "skipped"]
    assert (tmp_path / "out" / "index.html").is_file()
    assert main(["validate", "--data", str(tmp_path), "--json", "--rows"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["sets", "skipped", "rows"]


def test_the_command_exits_with_2_and_one_line_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path, {"layers": "many"})
    assert main(["validate", "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "training_runs.csv:2: layers: found 'many'" in said and "Traceback" not in said
