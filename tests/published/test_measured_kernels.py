"""Measured kernels: what a printed rate means, what is skipped and why, what a call costs, errors on real rows."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.evidence.measured.kernels import ATTENTION as LIBRARIES
from dse.evidence.measured.kernels import (
    CALLS,
    attention_operations,
    kernel_cases,
    kernel_seconds,
    measured_seconds,
    product_seconds,
)
from dse.evidence.measured.runs import Skip
from hw_models.devices import chip
from hw_models.stack import Stack
from hw_models.stacks import stack

EMPTY = dict.fromkeys(
    ("kernel", "impl", "device", "dtype", "direction", "M", "N", "K", "groups", "batch", "heads", "seq_len",
     "head_dim", "causal", "time_us", "tflops_per_s", "source"), ""
)  # fmt: skip
GEMM = {**EMPTY, "kernel": "GEMM", "device": "A100", "dtype": "fp16", "M": "4096", "N": "4096", "K": "4096"}
ATTENTION = {
    **EMPTY, "kernel": "attention", "impl": "FlashAttention-2", "device": "A100-80GB-SXM4", "dtype": "fp16/bf16",
    "direction": "fwd", "batch": "2", "heads": "3", "seq_len": "1024", "head_dim": "64", "causal": "no",
}  # fmt: skip


def test_a_printed_rate_is_a_time_by_the_operations_of_its_kind() -> None:
    assert measured_seconds({**GEMM, "time_us": "700"}) == pytest.approx(700e-6)
    # Groups count: M is that of one group.
    grouped = {**GEMM, "groups": "4", "tflops_per_s": "100"}
    assert measured_seconds(grouped) == pytest.approx(4 * 2 * 4096**3 / 100e12)
    forward = 4 * 2 * 3 * 1024 * 1024 * 64
    assert attention_operations(ATTENTION) == forward
    assert attention_operations({**ATTENTION, "direction": "fwd+bwd", "causal": "yes"}) == 3.5 * forward / 2
    assert measured_seconds(GEMM) is None


def test_rows_that_cannot_be_predicted_say_why() -> None:
    for row, reason in (
        ({**GEMM, "time_us": ""}, "no measured time"),
        ({**GEMM, "kernel": "GEMM (max achievable)", "time_us": "1"}, "best shape"),
        ({**GEMM, "device": "abacus", "time_us": "1"}, "'abacus' is not in the table of chips"),
        ({**GEMM, "dtype": "fp3", "time_us": "1"}, "no matrix rate"),
        ({**GEMM, "kernel": "sorting", "time_us": "1"}, "'sorting' is not priced alone yet"),
        ({**ATTENTION, "impl": "mine", "tflops_per_s": "1"}, "no constants of that library"),
    ):
        (case,) = kernel_cases([row], "kernels")
        assert reason in case.skipped and case.predicted is None


def test_a_call_costs_launch_and_where_calls_were_timed_from_a_framework_its_host_time() -> None:
    constants = Stack(kernel_launch=2e-6)
    alone = kernel_seconds(GEMM, constants)
    assert alone > 2e-6 + 2 * 4096**3 / 312e12
    called = kernel_seconds({**GEMM, "source": "github x/LLMCompass"}, constants)
    assert called - alone == pytest.approx(CALLS["LLMCompass", "GEMM"])
    assert kernel_seconds(GEMM, Stack()) == pytest.approx(alone - 2e-6)
    with pytest.raises(Skip):
        kernel_seconds({**GEMM, "kernel": "HBM copy"}, constants)


def test_kernels_run_at_the_clock_of_a_short_benchmark_and_steps_at_the_sustained_one() -> None:
    slow = replace(Stack(), sustained_clock=0.5)
    assert kernel_seconds(GEMM, slow) == kernel_seconds(GEMM, Stack())
    once, twice = (product_seconds(chip("a100-sxm-80gb"), one, 4096, 4096, 4096) for one in (Stack(), slow))
    assert twice == pytest.approx(2 * once, rel=1e-12)


def test_columns_of_constants_give_the_bits_of_each_alone() -> None:
    columns = replace(Stack(), matmul_efficiency=np.array([[0.7], [0.9]]), memory_efficiency=np.array([[0.8], [0.9]]))
    for row in (GEMM, ATTENTION, {**ATTENTION, "impl": "PyTorch"}, {**GEMM, "kernel": "softmax"}):
        both = kernel_seconds(row, columns)
        for number, (rate, memory) in enumerate(((0.7, 0.8), (0.9, 0.9))):
            alone = kernel_seconds(row, Stack(matmul_efficiency=rate, memory_efficiency=memory))
            assert np.broadcast_to(both, (2, 1))[number, 0] == alone


def test_a_product_of_a_row_is_between_its_peak_and_one_and_a_half_times_it() -> None:
    ideal = 2 * 4096**3 / 312e12
    part = chip("a100-sxm-80gb")
    assert ideal < product_seconds(part, stack("generic", part.name), 4096, 4096, 4096) < 1.5 * ideal


def test_fused_attention_is_faster_than_attention_that_writes_its_scores() -> None:
    fused, written = (kernel_seconds({**ATTENTION, "impl": impl}) for impl in ("FlashAttention-2", "PyTorch"))
    assert fused < 0.6 * written


def measured_rows() -> list[dict[str, str]]:
    folder = os.environ.get("DSE_DATA")
    if not folder or not (Path(folder) / "kernels.csv").is_file():
        pytest.skip("needs DSE_DATA, a folder with kernels.csv")
    with (Path(folder) / "kernels.csv").open() as file:
        return list(csv.DictReader(file))


def test_constants_of_attention_libraries_are_medians_of_their_calibration_rows() -> None:
    implied = defaultdict(list)
    for row in measured_rows():
        how = LIBRARIES.get((row["impl"], "H100" in row["device"]))
        if row["kernel"] == "attention" and row["split"] == "calibration" and how is not None:
            library = row["impl"] if how.sustained != 0.61 else "first FlashAttention"
            share = how.sustained * kernel_seconds(row) / measured_seconds(row)  # type: ignore[operator]
            implied[library, "H100" in row["device"] and how.sustained != 0.61, how.sustained].append(share)
    assert len(implied) == 6
    for (_, _, sustained), shares in implied.items():
        # two digits are written, and no library runs above its own limit
        assert sustained == pytest.approx(min(float(np.median(shares)), 1.0), abs=0.02)


def test_validation_rows_of_every_kind_of_kernel_are_predicted() -> None:
    cases = [case for case in kernel_cases(measured_rows(), "kernels") if case.split == "validation"]
    errors = defaultdict(list)
    for case in cases:
        if case.predicted is not None and case.measured:
            errors[case.set].append(abs(case.predicted / case.measured - 1))
    medians = {name: float(np.median(found)) for name, found in errors.items()}
    for name in ("GEMM", "attention", "softmax", "layernorm", "gelu", "GPT3 layer op"):
        assert medians[f"kernels/{name}"] < 0.11, medians
