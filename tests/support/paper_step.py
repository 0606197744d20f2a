"""A chip and a network small enough to work a step out on paper, with the numbers that follow from them."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import small_network

from hw_models.chip import Chip
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

# The paper chip: one 4 x 4 output-stationary array at 1 GHz, 10^12 B/s of HBM, 10^9 B/s of link; the rest is free.
CLOCK, HBM, LINK = 1e9, 1e12, 1e9
CYCLE = 1 / CLOCK
PAPER_CHIP = Chip(
    array_count=1,
    array_rows=4,
    array_columns=4,
    clock=CLOCK,
    dataflow="os",
    double_buffered=0,
    vector_lanes=10**12,
    local_sram=1e9,
    shared_sram=1e9,
    shared_sram_bandwidth=1e30,
    hbm_stacks=1,
    hbm_stack_capacity=1e9,
    hbm_stack_bandwidth=HBM,
    links=1,
    link_bandwidth=LINK,
)
PAPER_TRAINING = Training(precision="bf16", gradient_bytes=4, optimizer="adam", attention="materialized")

# Two layers, hidden 8, two heads of 4, MLP 16, vocabulary 16, samples of 4 tokens.  A product (M, N, K) takes
# ceil(M/4) ceil(N/4) folds of K + 6 cycles; rows: forward, input gradient (M, K, N), weight gradient (K, N, M).
#   qkv         (4, 24,  8)    6 x 14 =  84     2 x 30 = 60    12 x 10 = 120
#   scores  2 x (4,  4,  4)    2 x 10 =  20     20             20
#   context 2 x (4,  4,  4)    2 x 10 =  20     20             20
#   projection  (4,  8,  8)    2 x 14 =  28     2 x 14 = 28     4 x 10 =  40
#   up          (4, 16,  8)    4 x 14 =  56     2 x 22 = 44     8 x 10 =  80
#   down        (4,  8, 16)    2 x 22 =  44     4 x 14 = 56     8 x 10 =  80
BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_CORE = 252, 588, 40
#   logits      (4, 16,  8)    4 x 14 =  56     2 x 22 = 44     8 x 10 =  80
HEAD_FORWARD, HEAD_BACKWARD = 56, 124
# Element-wise passes in words of 2 B, (elements x words moved) forward and backward:
#   norms 64 x 2, 64 x 3;  residuals 64 x 3, 64 x 3;  activation 64 x 2, 64 x 3;  softmax 32 x 1.5, 32 x 2;
#   rotary 64 x 2, 64 x 2;  look-up 32 x 2, 32 x 5;  final norm 32 x 2, 32 x 3;  loss 64 x 1, 64 x 2
BLOCK_WORDS, BLOCK_WORDS_BACK = 624, 768
LOOK_UP_WORDS, LOOK_UP_WORDS_BACK = 64, 160
HEAD_WORDS, HEAD_WORDS_BACK = 128, 224
WORD = 2 / HBM
# Parameters: block 8 x 24 + 8 x 8 + 8 x 16 + 16 x 8 + 2 x 8 = 528, table 128, head and last norm 136.
PARAMETERS = 2 * 528 + 128 + 136
# One boundary of a sample: 4 tokens x 8 x 2 B.
BOUNDARY = 4 * 8 * 2

BODY = (BLOCK_FORWARD * CYCLE + BLOCK_WORDS * WORD, BLOCK_BACKWARD * CYCLE + BLOCK_WORDS_BACK * WORD)
EMBEDDING = (LOOK_UP_WORDS * WORD, LOOK_UP_WORDS_BACK * WORD)
HEAD = (HEAD_FORWARD * CYCLE + HEAD_WORDS * WORD, HEAD_BACKWARD * CYCLE + HEAD_WORDS_BACK * WORD)


def paper_network(**changes: Any) -> DecoderTransformer:
    return small_network(**{"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocabulary": 16, **changes})


def equal(found: float, expected: float) -> None:
    assert found == pytest.approx(expected, rel=1e-12)
