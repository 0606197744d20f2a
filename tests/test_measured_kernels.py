"""Measured kernels: what a printed rate means, what is skipped and why, what a call costs, errors on real rows."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from dse.measured_kernels import (
    CALLS,
    attention_operations,
    gemm_seconds,
    kernel_cases,
    kernel_seconds,
    measured_seconds,
)
from dse.measured_runs import Skip
from hw_models.stack import Stack

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


def test_a_product_of_a_row_is_between_its_peak_and_one_and_a_half_times_it() -> None:
    ideal = 2 * 4096**3 / 312e12
    assert ideal < gemm_seconds(GEMM) < 1.5 * ideal


def test_fused_attention_is_faster_than_attention_that_writes_its_scores() -> None:
    fused, written = (kernel_seconds({**ATTENTION, "impl": impl}) for impl in ("FlashAttention-2", "PyTorch"))
    assert fused < 0.6 * written


def test_validation_rows_of_every_kind_of_kernel_are_predicted() -> None:
    folder = os.environ.get("DSE_DATA")
    if not folder or not (Path(folder) / "kernels.csv").is_file():
        pytest.skip("needs DSE_DATA, a folder with kernels.csv")
    with (Path(folder) / "kernels.csv").open() as file:
        cases = [case for case in kernel_cases(csv.DictReader(file), "kernels") if case.split == "validation"]
    errors = defaultdict(list)
    for case in cases:
        if case.predicted is not None and case.measured:
            errors[case.set].append(abs(case.predicted / case.measured - 1))
    medians = {name: float(np.median(found)) for name, found in errors.items()}
    for name in ("GEMM", "attention", "softmax", "layernorm", "gelu", "GPT3 layer op"):
        assert medians[f"kernels/{name}"] < 0.18, medians
