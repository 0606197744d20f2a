"""Calibration: constants that made the rows are found again, rows are weighed as stated, files are read and written."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.base.errors import ConfigError
from dse.command.main import main
from dse.evidence.calibration.calibrate import Calibration, calibrate, leave_one_out
from dse.evidence.calibration.constants import HEADINGS, constants_text, read_constants, write_constants
from dse.evidence.calibration.fit import Constraint, Information
from dse.evidence.calibration.priors import Prior, priors
from dse.evidence.calibration.rows import weights
from dse.evidence.calibration.stages import Point, collective_point, fit_parts, kernel_point, read_parts
from dse.evidence.measured.runs import Case, run_case
from dse.evidence.validation.cases import read_cases
from dse.evidence.validation.networks import is_network
from dse.evidence.validation.validate import predicted_cases, validate, with_constants
from hw_models.stack import DEVICE_FIELDS
from hw_models.stacks import Constants, constants, shipped, stack

#: A run that the product can express; rows differ from it in a few cells.
RUN = {
    "row_id": "R1", "group": "g", "model": "GPT", "layers": "8", "hidden": "1024", "heads": "16", "seq_len": "1024",
    "global_batch": "8", "micro_batch": "1", "device": "A100-80GB", "num_devices": "1", "tp": "1", "pp": "1", "dp": "1",
    "zero_stage": "0", "recompute": "full", "precision": "fp16", "attention_impl": "", "stack": "Megatron-LM",
    "vocab": "51200", "notes": "", "split": "calibration",
    "measured_iter_time_s": "1",
}  # fmt: skip
#: Widths, micro-batches, tensor degrees and global batches of the synthetic rows: fast and slow kernels, short and
#: long steps, so that rates, host times and overheads are told apart.
SHAPES = [
    (hidden, micro, tensor, micro * times)
    for hidden, tensor in ((512, 1), (6144, 4)) for micro in (1, 4) for times in (1, 8)
]  # fmt: skip
TRUTH = {"sustained_clock": 0.72, "host_time_per_operator": 2e-5, "step_overhead": 0.03}


def known(values: dict[str, float], device: str = "a100-sxm-80gb", name: str = "megatron-lm") -> Constants:
    """Constants of one device and stack as the rows of a file."""
    rows = []
    for field, value in values.items():
        scope = "device" if field in DEVICE_FIELDS else "stack"
        row = dict.fromkeys(HEADINGS, "") | {"scope": scope, "field": field, "value": repr(value)}
        rows.append(row | {"name": device if scope == "device" else name})
    return Constants(tuple(rows), "made up")


def row_of(hidden: int, micro: int, tensor: int, batch: int, **cells: str) -> dict[str, str]:
    made = {
        "hidden": str(hidden), "heads": str(hidden // 64), "micro_batch": str(micro), "tp": str(tensor),
        "num_devices": str(tensor), "global_batch": str(batch), "row_id": f"R{hidden}-{micro}-{tensor}-{batch}",
    }  # fmt: skip
    return RUN | made | cells


def measured_as(rows: Sequence[dict[str, str]], truth: Constants) -> list[dict[str, str]]:
    """Rows whose measured time is what the model says with the true constants."""
    cases = [with_constants(run_case(row, "training_runs", 1), truth) for row in rows]
    found, _ = predicted_cases(cases)
    assert all(case.predicted for case in found), [case.skipped for case in found]
    return [row | {"measured_iter_time_s": repr(case.predicted)} for row, case in zip(rows, found, strict=True)]


def cases_of(rows: Sequence[dict[str, str]]) -> list[Case]:
    return [run_case(row, "training_runs", number) for number, row in enumerate(rows, start=1)]


def synthetic(truth: Constants, **cells: str) -> list[dict[str, str]]:
    return measured_as([row_of(*shape, **cells) for shape in SHAPES], truth)


def values(found: Calibration) -> dict[tuple[str, str, str], float]:
    return {item.key: item.value for item in found.fitted}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return synthetic(known(TRUTH))


@pytest.fixture(scope="module")
def found(rows: list[dict[str, str]]) -> Calibration:
    return calibrate(cases_of(rows))


# Recovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", TRUTH)
def test_constants_that_made_the_rows_are_found_again(found: Calibration, field: str) -> None:
    owner = ("device", "a100-sxm-80gb") if field in DEVICE_FIELDS else ("stack", "megatron-lm")
    # the stated values differ by 19, 60 and 67 percent; priors of the other constants leave a few percent
    assert values(found)[(*owner, field)] == pytest.approx(TRUTH[field], rel=0.12)


def test_rows_made_by_the_model_are_predicted_within_a_percent_after_the_fit(found: Calibration) -> None:
    (error,) = found.errors
    assert error.n == len(SHAPES) and error.split == "calibration"
    assert error.before_mape > 10.0 and error.mape < 1.0


def test_a_constant_that_no_row_depends_on_stays_unwritten(found: Calibration) -> None:
    # no row leaves the node, so nothing is known of the network between nodes
    key = ("device", "a100-sxm-80gb", "network_efficiency")
    assert key in {item.key for item in found.prior}
    assert "network_efficiency" not in {row["field"] for row in found.constants.rows}


def test_fitted_values_stay_in_their_stated_ranges_where_the_truth_does_not() -> None:
    # 0.3 of the short benchmark's clock is below what the table allows for any device
    rows = synthetic(known({"sustained_clock": 0.3}))
    for item in calibrate(cases_of(rows)).fitted:
        assert item.prior.low <= item.value <= item.prior.high, item.key


def test_a_row_ten_times_too_slow_hardly_moves_the_constants(rows: list[dict[str, str]], found: Calibration) -> None:
    wild = [rows[0] | {"measured_iter_time_s": repr(10 * float(rows[0]["measured_iter_time_s"]))}, *rows[1:]]
    key = ("device", "a100-sxm-80gb", "sustained_clock")
    assert values(calibrate(cases_of(wild)))[key] == pytest.approx(values(found)[key], rel=0.05)


def test_the_bytes_are_the_same_again_without_splits_and_whatever_validation_rows_say(
    rows: list[dict[str, str]], found: Calibration
) -> None:
    bare = [row | {"split": ""} for row in rows]
    other = [row | {"split": "validation", "measured_iter_time_s": "9.0", "row_id": "V"} for row in rows[:3]]
    assert constants_text(calibrate(cases_of(bare + other)).constants) == constants_text(found.constants)


# Kernels and collectives -------------------------------------------------------------------------------------------

#: What the synthetic kernels and collectives were made with.
PARTS = {
    "matmul_efficiency": 0.7, "memory_efficiency": 0.91, "link_efficiency": 0.9, "collective_launch": 1.2e-5,
}  # fmt: skip
BLANK = dict.fromkeys(
    "row_id kernel impl device dtype direction M N K groups batch heads seq_len head_dim causal time_us tflops_per_s "
    "kind collective topology num_devices payload_bytes busbw_GBps algorithm notes source split".split(), ""
)  # fmt: skip


def parts(truth: dict[str, float], device: str = "A100", split: str = "calibration") -> list[Point]:
    """Products, passes and all-reduces that take what the model says with the true constants."""
    kernel = BLANK | {"device": device, "dtype": "fp16", "time_us": "1", "split": split}
    message = BLANK | {"kind": "measured", "collective": "all_reduce", "device": device, "num_devices": "8",
                       "time_us": "1", "split": split}  # fmt: skip
    made = [kernel_point(kernel | {"kernel": "GEMM", "M": m, "N": "8192", "K": "8192"}) for m in ("4096", "16384")]
    made += [kernel_point(kernel | {"kernel": "gelu", "M": m, "N": "65536"}) for m in ("4096", "8192")]
    for size in ("16384", "262144", "1000000000", "4000000000"):
        point = collective_point(message | {"payload_bytes": size, "time_us": "1" if len(size) < 9 else "10000"})
        made.append(point)
    base = stack("generic", calibrated=False)
    return [replace(point, measured=float(point.seconds(replace(base, **truth)))) for point in made]


@pytest.mark.parametrize("field", PARTS)
def test_constants_that_made_kernels_and_collectives_are_found_again(field: str) -> None:
    made = {item.key: item for item in fit_parts(parts(PARTS), ("calibration",), Constants())}
    found = made[("device", "a100-sxm-80gb", field)]
    # priors leave a few percent; the stated values are 20, 7, 9 and 45 percent away
    assert found.identified and found.value == pytest.approx(PARTS[field], rel=0.05)


def test_validation_rows_of_kernels_are_never_fitted() -> None:
    right, wrong = parts(PARTS), parts(PARTS | {"matmul_efficiency": 0.55}, split="validation")
    assert fit_parts(right + wrong, ("calibration",), Constants()) == fit_parts(right, ("calibration",), Constants())


def test_what_kernels_tell_is_held_while_steps_tell_the_clock(rows: list[dict[str, str]]) -> None:
    # steps were made with 0.84 x 0.72 of the peak rate, of which kernels say that 0.7 is the benchmark's
    made = calibrate(cases_of(rows), parts=parts(PARTS))
    written = {(row["name"], row["field"]): row for row in made.constants.rows if row["scope"] == "device"}
    kernel, step = (written["a100-sxm-80gb", field] for field in ("matmul_efficiency", "sustained_clock"))
    assert kernel["source"] == "dse calibrate: kernels" and step["source"] == "dse calibrate: training_runs"
    assert float(kernel["value"]) == pytest.approx(0.7, rel=0.03)
    assert float(kernel["value"]) * float(step["value"]) == pytest.approx(0.84 * 0.72, rel=0.05)
    assert {error.table for error in made.parts} == {"kernels", "collectives"}
    assert all(error.median < 3.0 < error.before_median for error in made.parts)


def test_chips_of_one_die_and_links_share_what_one_of_them_measured(rows: list[dict[str, str]]) -> None:
    made = calibrate(cases_of(rows), parts=parts(PARTS))
    value = {row["name"]: row for row in made.constants.rows if row["field"] == "matmul_efficiency"}
    assert value["a100-sxm-40gb"]["value"] == value["a100-sxm-80gb"]["value"]
    assert "of a100-sxm-80gb, the same die" in value["a100-sxm-40gb"]["where"]
    assert set(value) == {"a100-sxm-40gb", "a100-sxm-80gb", "generic"}


def test_calls_timed_from_a_host_do_not_tell_a_launch() -> None:
    sizes = {"M": "64", "N": "64", "K": "64"}
    cells = BLANK | sizes | {"kernel": "GEMM", "device": "A100", "dtype": "fp16", "time_us": "90"}
    assert "kernel_launch" in kernel_point(cells).fields
    assert "kernel_launch" not in kernel_point(cells | {"source": "github x/LLMCompass"}).fields


def test_one_device_without_kernels_of_its_own_keeps_what_ships(rows: list[dict[str, str]]) -> None:
    shipped_rows = {row["field"]: row["value"] for row in shipped().rows if row["name"] == "a100-sxm-80gb"}
    made = calibrate(cases_of(rows[4:]), device="a100-sxm-80gb")
    kept = {row["field"]: row["value"] for row in made.constants.rows if row["name"] == "a100-sxm-80gb"}
    assert kept["matmul_efficiency"] == shipped_rows["matmul_efficiency"]
    assert kept["sustained_clock"] != shipped_rows["sustained_clock"]
    # with kernels of its own it has theirs, and its sister chip keeps what shipped
    made = calibrate(cases_of(rows[4:]), device="a100-sxm-80gb", parts=parts(PARTS))
    value = {row["name"]: float(row["value"]) for row in made.constants.rows if row["field"] == "matmul_efficiency"}
    assert value["a100-sxm-80gb"] == pytest.approx(0.7, rel=0.03)
    assert value["a100-sxm-40gb"] == float(shipped_rows["matmul_efficiency"])


# Weights ----------------------------------------------------------------------------------------------------------


def test_a_situation_counts_once_however_often_it_was_repeated(rows: list[dict[str, str]]) -> None:
    # two rows differ in global batch only, and one of them was run three times: one situation of four rows
    first, again = rows[0], rows[1]
    assert first["hidden"] == again["hidden"] and first["global_batch"] != again["global_batch"]
    assert weights(cases_of([first, first, first, again, rows[2]])) == pytest.approx([0.25] * 4 + [1.0])


def test_a_pair_of_many_situations_is_damped_by_the_root_of_their_number(rows: list[dict[str, str]]) -> None:
    # 4 situations of one pair and 1 of another: mean 2.5, so sqrt(2.5 / 4) for each of the first
    many = [rows[number] for number in (0, 2, 4, 6)]  # two widths with two micro-batches
    other = rows[0] | {"device": "H100"}
    assert weights(cases_of([*many, other])) == pytest.approx([0.625**0.5] * 4 + [1.0])


# Priors and what rows say ------------------------------------------------------------------------------------------


def test_without_rows_the_standard_error_is_the_width_of_the_prior() -> None:
    alone = Constraint({("device", "x", "f"): Prior(0.5, 0.0, 1.0, "")}, [("device", "x", "f")])
    nothing = Information(np.zeros((1, 1)), alone.prior_jacobian(), list(alone.free))
    assert nothing.errors() == pytest.approx([0.5])  # in units of the range


def test_two_equal_constants_and_their_centre_by_hand() -> None:
    # widths 1: both at 3, stated 0.  Least squares of (3 - m)^2 twice and m^2: m = 2
    parent, one, two = (("device", name, "f") for name in ("generic", "a", "b"))
    prior = Prior(0.0, -1.0, 1.0, "")
    three = Constraint(
        {parent: prior, one: replace(prior, parent=parent), two: replace(prior, parent=parent)}, [one, two, parent]
    )
    scaled = three.scaled(np.array([{"generic": 2.0}.get(key[1], 3.0) for key in three.free]))
    gradient = three.prior_jacobian().T @ three.prior_residuals(scaled)
    assert gradient[three.at[parent]] == pytest.approx(0.0, abs=1e-12)


def test_a_constant_that_is_taken_out_says_nothing_of_the_others() -> None:
    slopes = np.array([[1.0, 0.0], [0.0, 5.0]])
    parent, child = ("device", "generic", "f"), ("device", "a", "f")
    both = Information(slopes, 2.0 * np.eye(2), [child, parent])
    both.take_out(0)
    # 1 / sqrt(5^2 + 2^2)
    assert both.keys == [parent] and both.errors() == pytest.approx([29**-0.5])


def test_definitions_are_not_fitted_and_a_stacks_own_values_are_its_centre() -> None:
    found = priors([("megatron-lm", "a100-sxm-80gb"), ("compiled", "tpu-v4")])
    assert ("stack", "compiled", "host_time_per_operator") not in found  # 0 by definition
    assert found[("stack", "megatron-lm", "host_time_per_operator")].parent is None
    assert found[("stack", "megatron-lm", "update_passes")].parent == ("stack", "generic", "update_passes")
    assert found[("device", "a100-sxm-80gb", "sustained_clock")].parent == ("device", "generic", "sustained_clock")
    assert found[("device", "tpu-v4", "sustained_clock")].parent is None
    # steps only tell its product with the sustained clock
    assert "matmul_efficiency" not in {field for _, _, field in found}


def test_an_unseen_device_is_expected_between_the_fitted_ones() -> None:
    one_device = synthetic(known({"sustained_clock": 0.75}))[4:]
    other = synthetic(known({"sustained_clock": 0.82}, device="v100-sxm2"), device="V100")[4:]
    made = calibrate(cases_of(one_device + other))
    got = values(made)
    one, two = (got[("device", name, "sustained_clock")] for name in ("a100-sxm-80gb", "v100-sxm2"))
    shared = got[("device", "generic", "sustained_clock")]
    # two fitted ones and the stated 0.86, of equal widths
    assert shared == pytest.approx((one + two + 0.86) / 3, abs=0.01)
    assert float(stack("megatron-lm", "unheard-of", calibrated=made.constants).sustained_clock) == pytest.approx(
        shared, rel=1e-4
    )


# One device or stack alone ------------------------------------------------------------------------------------------


def test_one_device_alone_leaves_other_constants_as_shipped(rows: list[dict[str, str]]) -> None:
    made = calibrate(cases_of(rows[4:]), device="a100-sxm-80gb")
    assert {item.key[:2] for item in (*made.fitted, *made.prior)} == {("device", "a100-sxm-80gb")}
    others, kept = (
        [row for row in known.rows if row["name"] != "a100-sxm-80gb" and row["scope"] != "pair"]
        for known in (shipped(), made.constants)
    )
    assert kept == sorted(
        others, key=lambda row: (row["scope"], row["name"], row["field"])
    )


def test_one_stack_alone_fits_only_its_own_constants(rows: list[dict[str, str]]) -> None:
    made = calibrate(cases_of(rows[4:]), stack_name="megatron-lm")
    assert {item.key[:2] for item in (*made.fitted, *made.prior)} == {("stack", "megatron-lm")}


def test_a_device_without_rows_is_an_error_with_the_nearest_name(rows: list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="a100-sxm-80gb") as error:
        calibrate(cases_of(rows), device="a100-sxm", stack_name="megatron")
    assert len(error.value.problems) == 2


def test_nothing_to_fit_is_an_error(rows: list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="calibration"):
        calibrate(cases_of([row | {"split": "validation"} for row in rows]))


# Leaving a pair out --------------------------------------------------------------------------------------------------


def test_a_pair_left_out_takes_its_device_from_other_stacks(rows: list[dict[str, str]]) -> None:
    # the second pair's rows are ten times too slow: left out, they cannot spoil the prediction of themselves
    other = measured_as([row_of(*shape, stack="other", split="validation") for shape in SHAPES[4:]], known(TRUTH))
    slow = [
        row | {"split": "calibration", "measured_iter_time_s": repr(10 * float(row["measured_iter_time_s"]))}
        for row in other[:2]
    ]
    left = {item.stack: item for item in leave_one_out(cases_of(rows[4:] + other + slow))}
    found = left["generic"]
    assert found.n == len(other) and found.mape < found.fitted_mape
    # the device's rate comes from the first pair: nearer than as stated
    assert found.mape < found.stated_mape


# Files --------------------------------------------------------------------------------------------------------------


def test_a_written_file_is_read_as_the_same_constants(tmp_path: Path, found: Calibration) -> None:
    file = tmp_path / "constants.csv"
    write_constants(file, found.constants)
    assert file.read_text(encoding="utf-8").splitlines()[0] == ",".join(HEADINGS)
    again = read_constants(file)
    assert again.rows == found.constants.rows
    made = stack("megatron-lm", "a100-sxm-80gb", calibrated=again)
    want = values(found)[("device", "a100-sxm-80gb", "sustained_clock")]
    assert float(made.sustained_clock) == pytest.approx(want, rel=1e-4)


def test_the_shipped_table_has_the_headings_of_a_constants_file() -> None:
    from importlib.resources import files

    text = files("hw_models").joinpath("data", "calibrated.csv").read_text(encoding="utf-8")
    assert tuple(text.splitlines()[0].split(",")) == HEADINGS


def test_all_faults_of_a_constants_file_are_one_error(tmp_path: Path) -> None:
    file = tmp_path / "constants.csv"
    lines = [
        "scope,name,field,unit,value", "chip,a100-sxm-80gb,matmul_efficiency,,0.8",
        "stack,megatron,step_overhead,s,0.1",
        "device,a100-sxm-80gb,step_overhead,s,0.1", "device,a100-sxm-80gb,matmul_efficiency,,1.7",
        "stack,megatron-lm,step_overhead,s,much", "device,v,matmul_efficiency,,0.5", "device,v,matmul_efficiency,,0.5",
    ]  # fmt: skip
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_constants(file)
    assert [problem.line for problem in error.value.problems] == [2, 3, 4, 5, 6, 8]
    assert "megatron-lm" in str(error.value)


def test_a_file_without_the_headings_or_no_file_at_all_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "constants.csv"
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="scope, name, field"):
        read_constants(file)
    with pytest.raises(ConfigError, match="dse calibrate"):
        read_constants(tmp_path / "none.csv")


# Which row counts ----------------------------------------------------------------------------------------------------


def test_fitted_stated_and_generic_rows_count_in_the_stated_order() -> None:
    def made(scope: str, name: str, field: str, value: float) -> dict[str, str]:
        return dict.fromkeys(HEADINGS, "") | {"scope": scope, "name": name, "field": field, "value": repr(value)}

    given = Constants(
        (
            made("device", "generic", "matmul_efficiency", 0.61),
            made("device", "v100-sxm2", "matmul_efficiency", 0.62),
            made("stack", "generic", "step_overhead", 0.041), made("stack", "generic", "update_passes", 1.91),
        )
    )  # fmt: skip

    def value(name: str, device: str, field: str) -> str:
        return {row["field"]: row["value"] for row in constants(name, device, calibrated=given)}[field]

    assert value("megatron-lm", "v100-sxm2", "matmul_efficiency") == "0.62"  # its own
    assert value("megatron-lm", "another", "matmul_efficiency") == "0.61"  # as devices in general
    assert value("compiled", "another", "matmul_efficiency") == "0.9"  # stated for the stack
    assert value("megatron-lm", "another", "step_overhead") == "0.01"  # stated for the stack
    assert value("megatron-lm", "another", "update_passes") == "1.91"  # as stacks in general
    assert value("generic", "another", "step_overhead") == "0.041"
    assert value("ideal", "v100-sxm2", "matmul_efficiency") == "1"  # software that costs nothing


# The command ---------------------------------------------------------------------------------------------------------


def table_in(folder: Path, rows: Sequence[dict[str, str]]) -> None:
    with (folder / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_the_command_writes_what_validate_then_uses(
    tmp_path: Path, rows: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    table_in(data, rows + [row | {"split": "validation"} for row in rows])
    out = tmp_path / "constants.csv"
    assert main(["calibrate", "--data", str(data), "--out", str(out), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "sustained_clock" in text and "validation" in text and str(out) in text
    assert main(["validate", "--data", str(data), "--constants", str(out), "--json"]) == 0
    (score,) = [s for s in json.loads(capsys.readouterr().out)["sets"] if s["set"] == "runs/g"]
    assert score["mape_percent"] < 1.0
    assert next(s for s in validate(data).sets if s.set == "runs/g").mape_percent > 10.0  # type: ignore[operator]


def test_bad_flags_of_the_command_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", str(tmp_path / "none"), "--out", str(tmp_path / "no" / "file"), "--leave-one-out"]
    assert main(["calibrate", *flags]) == 2
    message = capsys.readouterr().err
    assert all(flag in message for flag in ("--data", "--out", "--leave-one-out"))


@pytest.mark.xfail(strict=True, reason="fitted before the description of networks changed; dse calibrate fits anew")
def test_the_shipped_constants_are_a_fixed_point_of_the_fit_to_the_calibration_rows() -> None:
    """Another round of the fit that starts from the shipped constants finds them again.

    Not compared: whether a first round from stated values ends here (which takes the whole command), and whether
    constants that do not ship would be identified.
    """
    if not os.environ.get("DSE_DATA"):
        pytest.skip("needs DSE_DATA, a folder of measured tables")
    stored = {(row["scope"], row["name"], row["field"]): float(row["value"]) for row in shipped().rows}
    if not stored:
        pytest.skip("needs fitted constants in hw_models/data/calibrated.csv")
    folder = os.environ["DSE_DATA"]
    every = [*read_cases(folder)[0], *(case for case in read_cases(None)[0] if is_network(case))]
    train = [case for case in every if case.split == "calibration"]
    made = calibrate(train, parts=read_parts(folder), start=shipped())
    found = {(r["scope"], r["name"], r["field"]): float(r["value"]) for r in made.constants.rows}
    assert found.keys() == stored.keys()
    # a residual is written to a thousandth, and may round the other way
    for field, within in (("residual", {"abs": 1.1e-3}), ("", {"rel": 1e-3})):
        of = [key for key in stored if (key[2] == "residual") == bool(field)]
        assert {key: found[key] for key in of} == pytest.approx({key: stored[key] for key in of}, **within)
