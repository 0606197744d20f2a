"""What a training step computes and keeps: FLOP of forward, backward and recomputation, shards, activation bytes."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hw_models.chip import Chip
from workloads.network import Workload
from workloads.operators import Block, Matmul
from workloads.precision import BYTES, Training
from workloads.published import default_sequence, network
from workloads.published import transformer_names as names
from workloads.training import (
    PHASES,
    forward_flops,
    gradient_phase,
    hardware_flops,
    model_flops,
    parameters,
    phase_dimensions,
)
from workloads.transformer import DecoderTransformer

GPT3 = network("gpt3-175b")


def body(net: DecoderTransformer, sequence: int) -> Block:
    return next(block for block in net.blocks(sequence) if block.place == "body")


def head(net: DecoderTransformer, sequence: int) -> Block:
    return next(block for block in net.blocks(sequence) if block.place == "last")


def copied_parameters(block: Block) -> int:
    """Parameters that every tensor rank holds."""
    return block.parameters - block.parameters_split - block.parameters_grouped - block.parameters_expert


def dividing(net: DecoderTransformer) -> list[int]:
    """Tensor degrees that divide everything that is split."""
    whole = (
        net.heads, net.kv_heads, net.ffn, net.padded_vocabulary, net.experts, net.expert_ffn, net.shared_ffn,
        net.query_rank, net.key_value_rank + net.rotary_dim,
    )  # fmt: skip
    return [t for t in range(1, 65) if all(size % t == 0 for size in whole)]


# Numbers to check by hand


def test_llama3_8b_counts_grouped_query_attention():
    llama = network("llama3-8b")
    per_layer = sum(matmul.flops for matmul in body(llama, 8192).matmuls if matmul.weight) // (2 * 8192)
    assert per_layer == 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 == 218_103_808
    linear = 32 * (body(llama, 8192).flops - body(llama, 8192).core_flops)
    assert linear == 114_349_209_288_704
    assert 32 * body(llama, 8192).core_flops == 35_184_372_088_832
    assert head(llama, 8192).flops == 8_607_114_461_184
    step = Workload(llama, sequence=8192, global_batch=1)
    assert forward_flops(step) == 158_140_695_838_720
    assert model_flops(step) == 474_422_087_516_160


def test_gpt3_matches_the_closed_forms_of_narayanan_beyond_the_exact_range_of_floats():
    step = Workload(GPT3, sequence=2048, global_batch=1536)
    assert model_flops(step) == 3_386_196_746_387_324_928
    assert hardware_flops(step, "full") == 4_510_970_753_323_106_304
    assert model_flops(step) > 2**53


def test_gpt2_small_head_costs_77_194_752_flop_a_token_and_its_look_up_none():
    small = network("gpt2-small")
    assert head(small, 1024).flops == 1024 * 77_194_752
    assert small.blocks(1024)[0].flops == 0


def test_a_multiply_add_is_two_flop_in_products_and_in_peaks():
    # a 7 x 7 convolution of stride 2, 3 to 64 channels, 224 x 224 to 112 x 112, as a product
    convolution = Matmul("convolution", 112 * 112, 64, 3 * 7 * 7)
    assert convolution.n * convolution.k == 9408
    assert convolution.m * convolution.n * convolution.k == 118_013_952
    assert convolution.flops == 236_027_904
    array = Chip(array_count=1, array_rows=128, array_columns=128, clock=1e9)
    assert array.macs_per_cycle * array.clock == 16.384e12
    assert array.peak_flops("bf16") == 32.768e12


def test_totals_stay_exact_and_positive_where_64_bits_would_wrap():
    step = Workload(network("llama3.1-405b"), sequence=131072, global_batch=1 << 20)
    total = hardware_flops(step, "full")
    assert total > 2**63 and isinstance(total, int)
    assert total % (1 << 20) == 0
    once = hardware_flops(replace(step, global_batch=1), "full")
    assert total == once << 20
    logits = Workload(GPT3, sequence=64 * 131072, global_batch=16384)
    assert logits.tokens == 137_438_953_472


# Laws


def scaled_down(name: str) -> int:
    """A sequence whose tokens are the same for every expert."""
    each = network(name).experts or 1
    return min(default_sequence(name), 4096) // each * each


@pytest.mark.parametrize("name", names())
def test_training_is_three_times_forward_product_by_product(name):
    net, sequence = network(name), scaled_down(name)
    for matmul in (matmul for block in net.blocks(sequence) for matmul in block.matmuls):
        m, n, k, groups = (int(size) for size in matmul.shard(1, 1))
        phases = ["forward", "input_gradient", "weight_gradient"]
        by_phase = [2 * int(np.prod(phase_dimensions(m, n, k, phase), dtype=object)) * groups for phase in phases]
        assert sum(by_phase) == 3 * matmul.flops
    step = Workload(net, sequence, 3)
    assert model_flops(step) == 3 * forward_flops(step)


@pytest.mark.parametrize("name", names())
def test_full_recomputation_repeats_the_blocks_and_never_the_head(name):
    net, sequence = network(name), scaled_down(name)
    step = Workload(net, sequence, 5)
    forward, core = forward_flops(step), 5 * net.layers * body(net, sequence).core_flops
    repeatable = forward - 5 * head(net, sequence).flops
    assert hardware_flops(step, "none") == 3 * forward
    assert hardware_flops(step, "full") == 3 * forward + repeatable
    assert hardware_flops(step, "selective") == 3 * forward + core
    assert 2 * (hardware_flops(step, "per_operator") - 3 * forward) == repeatable - core
    assert hardware_flops(step, "none") < hardware_flops(step, "selective") < hardware_flops(step, "full")


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("megatron-", "korthikanti-", "mt-nlg"))])
@pytest.mark.parametrize("batch", [1, 1537])
def test_multi_head_shapes_follow_the_closed_forms_exactly(name, batch):
    net, s = network(name), 2048
    layers, h, v = net.layers, net.hidden, net.padded_vocabulary
    step = Workload(net, s, batch)
    unit = Fraction(batch * s * layers * h * h)
    assert model_flops(step) == 72 * unit * (1 + Fraction(s, 6 * h) + Fraction(v, 12 * layers * h))
    assert hardware_flops(step, "full") == 96 * unit * (1 + Fraction(s, 6 * h) + Fraction(v, 16 * layers * h))
    # mixing the two denominators leaves a quarter of the head out
    mixed = 72 * unit * (1 + Fraction(s, 6 * h) + Fraction(v, 16 * layers * h))
    assert model_flops(step) - mixed == Fraction(3 * batch * head(net, s).flops, 4)


@pytest.mark.parametrize("name", names())
def test_tying_the_head_changes_parameters_and_no_flop(name):
    net = network(name)
    tied, untied = (Workload(replace(net, tied=tied), 512, 2) for tied in (True, False))
    assert forward_flops(tied) == forward_flops(untied)
    more = parameters(untied.network, 512) - parameters(tied.network, 512)
    assert more == net.padded_vocabulary * net.hidden


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8, 16, 32])
def test_fewer_key_and_value_heads_shrink_their_projection_and_not_the_core(kv_heads):
    whole = network("llama1-7b")
    grouped = body(replace(whole, kv_heads=kv_heads), 2048)
    assert grouped.core_flops == body(whole, 2048).core_flops == 4 * 2048 * 2048 * 32 * 128
    saved = 2 * 2 * 2048 * 4096 * (32 - kv_heads) * 128
    assert body(whole, 2048).flops - grouped.flops == saved


@pytest.mark.parametrize("name", names())
def test_a_breakdown_by_block_and_product_adds_to_the_total_and_to_100_percent(name):
    net, sequence = network(name), scaled_down(name)
    rows = [(block.count * matmul.flops) for block in net.blocks(sequence) for matmul in block.matmuls]
    total = forward_flops(Workload(net, sequence, 1))
    assert sum(rows) == total
    assert sum(Fraction(100 * row, total) for row in rows) == 100


@pytest.mark.parametrize("name", names())
def test_shards_conserve_flops_for_every_dividing_tensor_degree(name):
    net = network(name)
    for t in dividing(net):
        for block in net.blocks(509 if not net.experts else net.experts):
            for matmul in block.matmuls:
                m, n, k, groups = matmul.shard(t, 3)
                assert all(float(size).is_integer() for size in (m, n, k, groups))
                assert t * 2 * int(m) * int(n) * int(k) * int(groups) == 3 * matmul.flops, (block.name, matmul.name, t)


@pytest.mark.parametrize("name", names())
def test_parameters_of_all_tensor_ranks_are_the_whole_plus_the_copies_of_what_is_not_split(name):
    for block in network(name).blocks(7):
        copied = copied_parameters(block)
        assert 0 <= copied < block.parameters
        for t in dividing(network(name)):
            assert t * block.parameters_per_device(t) == block.parameters + (t - 1) * copied
        for t in (1, 2, 3, 4, 8, 12, 16):
            assert t * block.parameters_per_device(t) >= block.parameters - 1e-9 * block.parameters


@pytest.mark.parametrize("name", names())
def test_tensor_ranks_copy_norms_tables_row_parallel_biases_routers_and_down_projections_to_latents_only(name):
    net = network(name)
    norm = net.hidden * (2 if net.norm == "layernorm" else 1)
    positions = net.max_sequence * net.hidden if net.positions == "learned" else 0
    biased = net.biases == "all"
    attention = (1 if net.parallel_block else 2) * norm + (net.hidden if biased else 0)
    attention += 2 * net.head_dim if net.qk_norm else 0
    if net.key_value_rank:
        narrow = net.query_rank + net.key_value_rank
        attention += net.hidden * (narrow + net.rotary_dim) + narrow
    dense = net.hidden if biased else 0
    router = net.experts * (net.hidden + biased)
    expected = {
        "embedding": positions + net.embedding_norm * norm,
        "block": attention + (router if net.experts else dense),
        "head": norm,
    }
    if net.lead_layers:
        expected["dense block"] = attention + dense
    copied = {block.name: copied_parameters(block) for block in net.blocks(7)}
    assert copied == expected


def test_a_tensor_degree_above_the_key_and_value_heads_repeats_them_and_keeps_at_least_one():
    net = replace(network("llama2-7b"), heads=64, kv_heads=2, head_dim=128)
    qkv = body(net, 11).matmuls[0]
    block = body(net, 11)
    own = net.hidden * 2 * 128
    for t, held in [(1, 2), (2, 1), (8, 1), (64, 1)]:
        assert qkv.shard(t, 1)[1] == 64 * 128 / t + held * 2 * 128
        copied = copied_parameters(block)
        assert block.parameters_per_device(t) == copied + block.parameters_split / t + held * own


def test_shards_of_a_column_of_degrees_have_the_bits_of_each_alone():
    degrees = np.array([1.0, 2.0, 3.0, 7.0, 8.0, 96.0])
    samples = np.array([1.0, 3.0, 2.0, 5.0, 1.0, 13.0])
    for block in network("llama3-70b").blocks(1021):
        column = block.parameters_per_device(degrees)
        assert [float(value) for value in np.broadcast_to(column, degrees.shape)] == [
            float(block.parameters_per_device(t)) for t in degrees
        ]
        for matmul in block.matmuls:
            together = [np.broadcast_to(size, degrees.shape) for size in matmul.shard(degrees, samples)]
            for i, (t, b) in enumerate(zip(degrees, samples, strict=True)):
                assert [float(size[i]) for size in together] == [float(size) for size in matmul.shard(t, b)]
        for vector in block.vectors:
            together = np.broadcast_to(vector.shard(degrees, 1, samples), degrees.shape)
            alone = [float(vector.shard(t, 1, b)) for t, b in zip(degrees, samples, strict=True)]
            assert [float(x) for x in together] == alone


def test_samples_multiply_rows_of_weights_and_groups_of_activations():
    products = {matmul.name: matmul for matmul in body(GPT3, 2048).matmuls}
    assert products["up"].shard(8, 3) == (3 * 2048, 49152 / 8, 12288, 1)
    assert products["down"].shard(8, 3) == (3 * 2048, 12288, 49152 / 8, 1)
    assert products["scores"].shard(8, 3) == (2048, 2048, 128, 96 / 8 * 3)


def test_sequence_parallelism_divides_norms_and_leaves_the_inside_alone():
    vectors = {vector.name: vector for vector in body(GPT3, 2048).vectors}
    for name, plain, sequence in [("norm", 1, 8), ("residual", 1, 8), ("activation", 8, 8), ("softmax", 8, 8)]:
        whole = 5 * vectors[name].elements
        assert vectors[name].shard(8, 0, 5) == whole / plain
        assert vectors[name].shard(8, 1, 5) == whole / sequence


# An oracle that multiplies matrices and counts


class Counter:
    """Runs one layer forward and backward on real arrays and adds up 2 m n k of every product."""

    def __init__(self) -> None:
        self.flops = 0

    def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right

    def forward_backward(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
        result = self.product(left, right)
        gradient = np.ones_like(result)
        shapes = [(*left.shape[:1], right.shape[1], left.shape[1])]
        to_left, to_right = self.product(gradient, right.T), self.product(left.T, gradient)
        assert to_left.shape == left.shape and to_right.shape == right.shape
        shapes += [(*to_left.shape, result.shape[1]), (*to_right.shape, result.shape[0])]
        return result, shapes


def run_layer(net: DecoderTransformer, sequence: int, counter: Counter) -> list[list[tuple[int, int, int]]]:
    """(M, N, K) of forward, left gradient and right gradient of each product of one layer."""
    random = np.random.default_rng(7)
    h, d = net.hidden, net.head_dim
    x, shapes = random.normal(size=(sequence, h)), []

    def multiply(left, right):
        result, found = counter.forward_backward(left, right)
        shapes.append(found)
        return result

    qkv = multiply(x, random.normal(size=(h, (net.heads + 2 * net.kv_heads) * d)))
    query, key, value = np.split(qkv, [net.heads * d, (net.heads + net.kv_heads) * d], axis=1)
    share, outputs = net.heads // net.kv_heads, []
    for i in range(net.heads):
        own = slice((i // share) * d, (i // share + 1) * d)
        scores = multiply(query[:, i * d : (i + 1) * d], key[:, own].T)
        outputs.append(multiply(scores, value[:, own]))
    multiply(np.concatenate(outputs, axis=1), random.normal(size=(net.heads * d, h)))
    up = multiply(x, random.normal(size=(h, (2 if net.gated else 1) * net.ffn)))
    multiply(up[:, : net.ffn], random.normal(size=(net.ffn, h)))
    return shapes


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
def test_a_layer_costs_what_multiplying_its_matrices_costs(gated, kv_heads):
    net = DecoderTransformer(
        "prime", layers=1, hidden=13, heads=6, kv_heads=kv_heads, head_dim=5, ffn=17, vocabulary=19, gated=gated
    )
    counter = Counter()
    executed = run_layer(net, 11, counter)
    block = body(net, 11)
    assert counter.flops == 3 * block.flops
    derived = []
    for matmul in block.matmuls:
        m, n, k, groups = (int(size) for size in matmul.shard(1, 1))
        derived += [[phase_dimensions(m, n, k, phase) for phase in PHASES]] * groups
    assert sorted(executed) == sorted(derived)


def test_the_gradient_of_an_activation_operand_is_an_input_gradient():
    phases = {matmul.name: gradient_phase(matmul) for matmul in body(GPT3, 8).matmuls}
    assert phases["scores"] == phases["context"] == "input_gradient"
    assert phases["qkv"] == phases["up"] == "weight_gradient"


def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="phase: found 'backward', allowed: forward"):
        phase_dimensions(1, 2, 3, "backward")


def test_an_unknown_recomputation_is_refused():
    with pytest.raises(ValueError, match="recompute: found 'some', allowed: none, selective, full, per_operator"):
        hardware_flops(Workload(GPT3, 2048, 1), "some")  # type: ignore[arg-type]


# What a layer keeps for its backward pass (Korthikanti et al. 2022)


def kept(block: Block, tensor: int, *, sequence_parallel: bool = False, recompute: str = "none", fused: bool = False):
    """Bytes a device keeps of one block and one sample, put together from the parts of `saved`."""
    saved, over = block.saved, tensor if sequence_parallel else 1
    if recompute == "full":
        return Fraction(saved.input, over)
    core = saved.statistics if fused else (0 if recompute == "selective" else saved.core)
    return Fraction(saved.sequence, over) + Fraction(saved.tensor + core, tensor)


def test_one_gpt3_layer_keeps_what_the_paper_says():
    layer = body(GPT3, 2048)
    assert kept(layer, 1) == 2_868_903_936
    assert kept(layer, 1, recompute="selective") == 855_638_016
    assert layer.saved.core == 2_013_265_920
    assert kept(layer, 8) == 578_813_952
    assert kept(layer, 8, sequence_parallel=True) == 358_612_992
    assert kept(layer, 8, sequence_parallel=True, recompute="selective") == 106_954_752
    assert kept(layer, 8, recompute="selective") == 327_155_712
    assert kept(layer, 1, recompute="full") == kept(layer, 8, recompute="full") == 50_331_648


def test_the_tensors_of_a_layer_add_to_what_it_keeps():
    s, h, a, layer = 2048, 12288, 96, body(GPT3, 2048)
    sequence = {
        "first norm input": 2 * s * h, "second norm input": 2 * s * h, "qkv input": 2 * s * h, "up input": 2 * s * h,
        "attention dropout mask": s * h, "mlp dropout mask": s * h,
    }  # fmt: skip
    tensor = {
        "query": 2 * s * h, "key": 2 * s * h, "value": 2 * s * h, "projection input": 2 * s * h,
        "activation input": 8 * s * h, "down input": 8 * s * h,
    }  # fmt: skip
    core = {"softmax output": 2 * a * s * s, "dropout mask": a * s * s, "dropout output": 2 * a * s * s}
    assert sequence["first norm input"] == 50_331_648
    assert sequence["first norm input"] + sequence["second norm input"] == 100_663_296
    assert layer.saved.sequence == sum(sequence.values())
    assert layer.saved.tensor == sum(tensor.values())
    assert layer.saved.core == sum(core.values())


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("megatron-", "korthikanti-", "gpt2-"))])
@pytest.mark.parametrize("s", [1009, 2048])
def test_plain_layers_with_dropout_keep_the_published_formulas_for_every_degree(name, s):
    net, layer = network(name), body(network(name), s)
    h, span = net.hidden, Fraction(5 * net.heads * s, net.hidden)
    for t in (1, 2, 4, 8, 16):
        assert kept(layer, t) == s * h * (10 + Fraction(24, t) + span / t)
        assert kept(layer, t, sequence_parallel=True) == Fraction(s * h, t) * (34 + span)
        assert kept(layer, t, recompute="selective") == s * h * (10 + Fraction(24, t))
        assert kept(layer, t, sequence_parallel=True, recompute="selective") == Fraction(34 * s * h, t)
        assert kept(layer, t, recompute="full") == 2 * s * h


def test_the_head_keeps_norm_and_projection_inputs_and_logits_of_four_bytes():
    saved = head(GPT3, 2048).saved
    # Korthikanti et al. 2022, section 4.3: 4 s b h (1 + v / h), and one byte an element for the embedding's dropout
    assert saved.sequence + saved.tensor == 4 * 2048 * (12288 + 51200)
    assert GPT3.blocks(2048)[0].saved.sequence == 2048 * 12288


def test_a_fused_kernel_keeps_row_statistics_in_place_of_the_scores():
    layer = body(GPT3, 2048)
    assert layer.saved.statistics == 786_432
    fused = kept(layer, 1, fused=True)
    assert fused == 855_638_016 + 786_432
    # selective recomputation then has nothing left to save
    assert (fused - kept(layer, 1, recompute="selective")) / fused < Fraction(1, 1000)
    assert kept(layer, 1, recompute="selective") / kept(layer, 1) == Fraction(34, 114)


@pytest.mark.parametrize("name", names())
def test_keeping_less_is_ordered_full_selective_none(name):
    layer = body(network(name), scaled_down(name))
    for t in (1, 2, 8):
        for sequence_parallel in (False, True):
            ordered = [
                kept(layer, t, sequence_parallel=sequence_parallel, recompute=recompute)
                for recompute in ("full", "selective", "none")
            ]
            assert 0 < ordered[0] < ordered[1] < ordered[2]
            fused = kept(layer, t, sequence_parallel=sequence_parallel, fused=True)
            assert ordered[1] < fused < ordered[2]


def test_without_dropout_no_mask_is_kept():
    s, h, a = 2048, 12288, 96
    layer = body(replace(GPT3, dropout=False), s)
    assert kept(body(GPT3, s), 1) - kept(layer, 1) == 2 * s * h + 3 * a * s * s
    assert replace(GPT3, dropout=False).blocks(s)[0].saved.sequence == 0


def test_gated_layers_keep_gate_up_and_their_product():
    llama = network("llama1-7b")
    plain = replace(llama, gated=False)
    assert body(llama, 127).saved.tensor - body(plain, 127).saved.tensor == 2 * 127 * llama.ffn


def test_published_shares_of_activation_memory_are_reproduced():
    """Korthikanti et al. 2022, figure 7, against every row that is a share of the tensor-parallel baseline."""
    folder = os.environ.get("DSE_DATA")
    if not folder or not (Path(folder) / "memory.csv").is_file():
        pytest.skip("needs DSE_DATA with memory.csv")
    shapes = {"megatron-22B": "korthikanti-22b", "gpt3-175B": "korthikanti-175b",
              "turing-530B": "korthikanti-530b", "megatron-1T": "korthikanti-1t"}  # fmt: skip
    modes = {"none": (False, "none"), "seq": (True, "none"), "sel": (False, "selective"),
             "seqsel": (True, "selective"), "full": (False, "full")}  # fmt: skip
    checked = 0
    with open(Path(folder) / "memory.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["quantity"] != "activations" or not row["unit"].startswith("%"):
                continue
            layer = body(network(shapes[row["model"]]), 2048)
            sequence_parallel, recompute = modes[row["mode"]]
            share = kept(layer, 8, sequence_parallel=sequence_parallel, recompute=recompute) / kept(layer, 8)
            # read off a bar chart: a tenth of a percentage point
            assert abs(100 * share - Fraction(row["value"])) < Fraction(2, 10), row
            checked += 1
    assert checked == 20


# Number formats and optimizer state


@pytest.mark.parametrize(
    ("format", "gigabytes"),
    [("fp32", 28.0), ("tf32", 28.0), ("bf16", 14.0), ("fp16", 14.0), ("fp8", 7.0), ("int8", 7.0), ("int4", 3.5)],
)
def test_seven_billion_weights_take_their_formats_bytes(format, gigabytes):
    assert 7e9 * BYTES[format] == gigabytes * 1e9


@pytest.mark.parametrize(
    ("training", "total"),
    [
        (Training(), 18),
        (Training(gradient_bytes=2), 16),
        (Training(precision="fp32"), 16),
        (Training(precision="tf32"), 16),
        (Training(optimizer="sgd"), 10),
        (Training(optimizer="momentum"), 14),
        (Training(precision="fp8"), 18),
    ],
)
def test_bytes_a_parameter_add_up(training, total):
    assert training.weight_bytes + training.gradient_bytes + training.state_bytes == total


def test_bad_training_choices_are_reported_together():
    with pytest.raises(ValueError) as error:
        Training(precision="fp6", gradient_bytes=3, optimizer="lion", attention="linear")  # type: ignore[arg-type]
    for word in ("precision: found 'fp6'", "gradient_bytes: found 3", "optimizer: found 'lion'", "attention: found"):
        assert word in str(error.value)
