"""Mixtures of experts and latent attention: what they compute, hold, keep and send, and how it is split."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from dse.base.errors import ConfigError
from dse.evaluation.messages import Message, Messages
from dse.inputs.yaml.load import load_design
from dse.testing import check_network
from workloads.network import Workload
from workloads.operators import Attention, Block, Matmul
from workloads.published import network
from workloads.published import transformer_names as names
from workloads.training import active_parameters, forward_flops, hardware_flops, model_flops, parameters
from workloads.transformer import DecoderTransformer

MIXTURES = [name for name in names() if network(name).experts]
LATENT = [name for name in names() if network(name).key_value_rank]

#: Four experts of width 6, two a token, a shared MLP of width 10, one leading dense layer of width 16.
SMALL = DecoderTransformer(
    "small", layers=3, hidden=8, heads=2, kv_heads=1, head_dim=4, ffn=16, vocabulary=11, gated=True, tied=False,
    positions="rotary", norm="rmsnorm", biases="none", dropout=False, experts=4, experts_per_token=2, expert_ffn=6,
    shared_ffn=10, lead_layers=1,
)  # fmt: skip
#: Latent attention: queries and keys of 5 + 3 columns, values of 7, from 11 and 13 columns.
NARROW = DecoderTransformer(
    "narrow", layers=2, hidden=17, heads=3, head_dim=5, ffn=19, vocabulary=23, gated=True, tied=False,
    positions="rotary", norm="rmsnorm", biases="none", dropout=False, query_rank=11, key_value_rank=13, rotary_dim=3,
    value_dim=7,
)  # fmt: skip


def at(net: DecoderTransformer, place: str, sequence: int) -> Block:
    return next(block for block in net.blocks(sequence) if block.place == place)


def matmuls(block: Block) -> dict[str, Matmul]:
    return {matmul.name: matmul for matmul in block.matmuls}


def size(matmul: Matmul, *degrees: Any) -> list[float]:
    return [float(np.asarray(value)) for value in matmul.shard(*degrees)]


def flops_on_device(matmul: Matmul, *degrees: Any) -> float:
    return 2.0 * prod(size(matmul, *degrees))


# Numbers to check by hand


def test_a_small_mixture_layer_holds_its_router_every_expert_and_the_shared_mlp():
    block, dense = at(SMALL, "body", 5), at(SMALL, "lead", 5)
    attention = 2 * 8 * 8 + 8 * (4 + 4)  # queries and output 8 x 8 each, key and value 8 x 4 each
    norms = 2 * 8
    assert block.parameters_expert == 4 * (3 * 8 * 6) == 576
    assert block.parameters == attention + norms + 8 * 4 + 576 + 3 * 8 * 10 == 1056
    assert dense.parameters == attention + norms + 3 * 8 * 16 == 592
    assert (block.count, dense.count) == (2, 1)
    total = 2 * 1056 + 592 + 2 * 11 * 8 + 8
    assert parameters(SMALL, 5) == total
    # two of four experts idle in two layers
    assert active_parameters(SMALL, 5) == total - 2 * 288


def test_a_small_mixture_layer_computes_the_rows_that_are_sent():
    block = at(SMALL, "body", 5)
    found = {name: matmul.flops for name, matmul in matmuls(block).items()}
    assert found["router"] == 2 * 5 * 8 * 4
    assert found["expert up"] == 2 * (5 * 2) * 8 * (2 * 6) and found["expert down"] == 2 * (5 * 2) * 6 * 8
    assert found["shared up"] + found["shared down"] == 2 * 5 * 3 * 8 * 10
    assert (block.routed, block.expert_count, block.experts_per_token) == (5 * 2 * 8, 4, 2)
    assert [at(SMALL, place, 5).routed for place in ("first", "lead", "last")] == [0, 0, 0]


def test_a_shared_mlp_has_its_own_width():
    net = replace(SMALL, hidden=1024, heads=16, head_dim=64, kv_heads=16, experts=64, experts_per_token=4)
    net = replace(net, expert_ffn=512, shared_ffn=1536)
    found = matmuls(at(net, "body", 1))
    routed = found["expert up"].flops + found["expert down"].flops
    shared = found["shared up"].flops + found["shared down"].flops
    assert (routed, shared, routed + shared) == (12_582_912, 9_437_184, 22_020_096)
    assert found["router"].flops == 2 * 1024 * 64


def test_mixtral_computes_with_the_experts_of_a_token_and_holds_all():
    net = network("mixtral-8x7b")
    experts = [m for m in at(net, "body", 1).matmuls if m.experts]
    assert 32 * sum(matmul.flops for matmul in experts) == 22_548_578_304
    assert 32 * 2 * at(net, "body", 1).parameters_expert == 90_194_313_216
    assert parameters(net, 1) == 46_702_792_704 and active_parameters(net, 1) == 12_879_925_248


def test_deepseek_v3_has_671_billion_parameters_of_which_a_token_meets_37():
    net = network("deepseek-v3")
    assert parameters(net, 4096) == 671_026_404_352
    assert active_parameters(net, 4096) == 671_026_404_352 - 58 * 248 * 3 * 7168 * 2048
    assert [(block.place, block.count) for block in net.blocks(4096)] == [
        ("first", 1), ("lead", 3), ("body", 58), ("last", 1),
    ]  # fmt: skip
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    assert at(net, "lead", 8).parameters == attention + 2 * 7168 + 3 * 7168 * 18432


def test_latent_attention_widens_one_narrow_vector_a_token():
    found = matmuls(at(NARROW, "body", 29))
    shapes = {name: (m.m, m.n, m.k, m.groups) for name, m in found.items()}
    assert shapes["key and value down"] == (29, 13 + 3, 17, 1)
    assert shapes["query down"] == (29, 11, 17, 1) and shapes["query up"] == (29, 3 * 8, 11, 1)
    assert shapes["key and value up"] == (29, 3 * (5 + 7), 13, 1)
    assert shapes["scores"] == (29, 29, 8, 3) and shapes["context"] == (29, 7, 29, 3)
    assert shapes["projection"] == (29, 17, 3 * 7, 1)
    straight = matmuls(at(replace(NARROW, query_rank=0), "body", 29))
    assert "query down" not in straight and (straight["query"].n, straight["query"].k) == (24, 17)


def test_a_latent_layer_keeps_narrow_vectors_heads_and_outputs():
    s, h = 29, 17
    saved = at(NARROW, "body", s).saved
    norms = 2 * 2 * 2 * s * h  # two norms, input and output, 2 B
    latents = 2 * 2 * s * (11 + 13)  # before and after their norms
    heads = 2 * s * 3 * (8 + 8 + 7) + 2 * s * 3 * 7  # query, key, value; the core's output
    mlp = 2 * s * (19 + 19 + 19)
    assert (saved.sequence, saved.tensor) == (norms + latents, heads + mlp)
    assert (saved.core, saved.statistics) == (2 * 3 * s * s, 4 * 3 * s)


def test_a_mixture_layer_keeps_the_rows_of_its_experts_and_what_its_router_decided():
    s, h, rows = 5, 8, 10
    block, dense = at(SMALL, "body", s).saved, at(SMALL, "lead", s).saved
    assert block.sequence - dense.sequence == 4 * s * 4
    attention = 2 * s * (8 + 8) + 2 * s * 8
    assert dense.tensor == attention + 2 * s * 3 * 16
    assert block.tensor == attention + 2 * rows * (h + 3 * 6) + 2 * s * 3 * 10


def test_rows_are_read_and_written_once_where_they_are_permuted_and_twice_where_they_are_regrouped():
    passes = {vector.name: vector for vector in at(SMALL, "body", 5).vectors}
    rows, tokens = 10 * 8, 5 * 8
    found = {name: (v.elements * v.reads, v.elements * v.writes) for name, v in passes.items()}
    assert found["permute"] == (tokens, rows) and found["unpermute"] == (rows, tokens)
    assert found["regroup"] == (2 * rows, 2 * rows)
    assert found["router"][0] == 5 * 4
    assert found["expert activation"] == (2 * 10 * 6, 10 * 6)
    assert found["shared activation"] == (2 * 5 * 10, 5 * 10)
    # tensor ranks have different rows, or different columns of the same experts
    assert all(passes[name].split == "tensor" for name in ("permute", "regroup", "unpermute", "expert activation"))


# Laws


@pytest.mark.parametrize("name", names())
def test_every_published_network_meets_its_contract(name):
    check_network(network(name))


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize(("tensor", "context", "data", "expert", "whole"), [
    (1, 1, 8, 8, 1), (2, 1, 4, 4, 1), (2, 2, 4, 8, 1), (2, 1, 4, 8, 0), (4, 2, 2, 16, 0), (1, 4, 2, 1, 1),
])  # fmt: skip
def test_devices_together_compute_the_whole(name, tensor, context, data, expert, whole):
    """All devices of one stage, each with 3 samples of 512 tokens: what divides is not computed twice."""
    net = network(name)
    if net.experts % expert:
        net = replace(net, experts=expert * net.experts, layers=2, lead_layers=0)
    devices, samples = tensor * context * data, 3
    sequence = 32 * net.experts
    for block in net.blocks(sequence):
        for matmul in block.matmuls:
            found = devices * flops_on_device(matmul, tensor, samples, context, expert, whole)
            assert found == samples * data * matmul.flops, (block.name, matmul.name)


@pytest.mark.parametrize("name", MIXTURES)
def test_devices_together_hold_every_expert_once_and_copies_of_the_rest(name):
    block = at(network(name), "body", 7)
    count = block.expert_count
    for tensor, expert in product((1, 2, 4), (1, 2, 4, 8, count)):
        if count % expert:
            continue
        # each expert split over the tensor axis: `expert` groups of `tensor` devices hold all of them
        assert tensor * expert * block.expert_parameters(tensor, expert, 1) == block.parameters_expert
        # whole experts: as many devices as the expert degree
        assert expert * block.expert_parameters(tensor, expert, 0) == block.parameters_expert
    dense = block.dense_parameters(1)
    assert dense == block.parameters - block.parameters_expert
    assert block.parameters_per_device(1, count, 1) == dense + block.parameters_expert / count


@pytest.mark.parametrize("name", MIXTURES)
def test_what_a_token_sends_is_its_width_to_each_of_its_experts(name):
    net = network(name)
    assert at(net, "body", 4099).routed == 4099 * net.experts_per_token * net.hidden


@pytest.mark.parametrize("name", MIXTURES)
def test_more_experts_hold_more_and_compute_only_more_routing(name):
    net = network(name)
    more = replace(net, experts=2 * net.experts)
    one, two = (Workload(n, 64, 1) for n in (net, more))
    layers = net.layers - net.lead_layers
    assert forward_flops(two) - forward_flops(one) == layers * 2 * 64 * net.hidden * net.experts
    assert at(more, "body", 64).parameters_expert == 2 * at(net, "body", 64).parameters_expert
    idle = active_parameters(more, 64) - active_parameters(net, 64)
    assert idle == layers * net.experts * (net.hidden + (net.biases == "all"))


@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0])
def test_a_capacity_factor_pads_the_rows_of_experts_and_what_is_sent(factor):
    padded, plain = (at(replace(SMALL, capacity_factor=f), "body", 64) for f in (factor, 1.0))
    assert padded.routed == factor * plain.routed
    for name, matmul in matmuls(padded).items():
        share = factor if matmul.experts else 1
        assert matmul.flops == share * matmuls(plain)[name].flops
    assert padded.parameters == plain.parameters


def test_rows_that_do_not_divide_are_rounded_up_for_every_expert():
    up = matmuls(at(SMALL, "body", 5))["expert up"]
    assert size(up, 1, 1) == [3, 12, 8, 4]  # ten rows over four experts: three each
    assert size(up, 1, 1, 1, 4, 1) == [10, 12, 8, 1]  # four peers bring forty rows to four experts, one a device
    assert size(up, 1, 1, 1, 3, 1) == [5, 12, 8, 2]  # the fullest of three holds two


def test_an_expert_of_one_is_a_dense_mlp():
    single = replace(SMALL, experts=1, experts_per_token=1, expert_ffn=16, shared_ffn=0)
    up, down = (matmuls(at(single, "body", 31))[name] for name in ("expert up", "expert down"))
    dense = matmuls(at(single, "lead", 31))
    for degrees in ((1, 1), (2, 3), (4, 7)):
        assert up.shard(*degrees) == dense["up"].shard(*degrees)
        assert down.shard(*degrees) == dense["down"].shard(*degrees)


@pytest.mark.parametrize("name", MIXTURES)
def test_recomputation_repeats_leading_layers_too(name):
    net = network(name)
    sequence = 2 * net.experts
    step = Workload(net, sequence, 3)
    head = at(net, "last", sequence).flops
    assert hardware_flops(step, "full") == model_flops(step) + forward_flops(step) - 3 * head


@pytest.mark.parametrize("name", [*MIXTURES, *LATENT])
def test_a_column_of_degrees_has_the_bits_of_each_alone(name):
    rng = np.random.default_rng(5)
    tensor, samples, context, expert = (2.0 ** rng.integers(0, 5, 31) for _ in range(4))
    whole = rng.integers(0, 2, 31).astype(float)
    for block in network(name).blocks(1021):
        held = np.broadcast_to(block.parameters_per_device(tensor, expert, whole), (31,))
        for matmul in block.matmuls:
            columns = [np.broadcast_to(v, (31,)) for v in matmul.shard(tensor, samples, context, expert, whole)]
            for i in (0, 7, 30):
                alone = size(matmul, tensor[i], samples[i], context[i], expert[i], whole[i])
                assert [float(column[i]) for column in columns] == alone
        for i in (0, 7, 30):
            assert float(held[i]) == float(block.parameters_per_device(tensor[i], expert[i], whole[i]))


# The attention core


@pytest.mark.parametrize("name", names())
def test_the_attention_core_is_what_its_products_compute(name):
    for block in network(name).blocks(509):
        if block.place not in ("lead", "body"):
            assert block.attention is None and not block.causal and not block.context_exchange
            continue
        core = block.attention
        assert core is not None and core.causal and block.causal
        assert core.flops == block.core_flops
        scores, context = matmuls(block)["scores"], matmuls(block)["context"]
        assert (scores.m, scores.n, scores.k) == (core.queries, core.keys, core.head_dim)
        assert (context.m, context.n, context.k) == (core.queries, core.value_dim, core.keys)
        assert core.heads == scores.groups == context.groups == network(name).heads


def test_context_ranks_exchange_keys_and_values_as_the_core_reads_them():
    assert at(network("llama3-8b"), "body", 100).context_exchange == 100 * 2 * 8 * 128
    assert at(network("deepseek-v3"), "body", 100).context_exchange == 100 * 128 * (192 + 128)
    assert at(network("deepseek-v3"), "body", 100).attention == Attention(128, 128, 100, 100, 192, 128, True)


def test_masking_changes_no_count():
    causal, full = (at(replace(SMALL, causal=value), "body", 64) for value in (True, False))
    assert not full.causal and full.attention == replace(causal.attention, causal=False)
    assert (full.flops, full.saved, full.parameters) == (causal.flops, causal.saved, causal.parameters)


# An oracle that routes tokens, multiplies matrices and counts


class Counter:
    """Adds up 2 m n k of every product it makes."""

    def __init__(self) -> None:
        self.flops = 0

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right


def gated(multiply: Counter, x: np.ndarray, width: int) -> np.ndarray:
    both = multiply(x, np.ones((x.shape[1], 2 * width)))
    return multiply(both[:, :width] * both[:, width:], np.ones((width, x.shape[1])))


def test_a_mixture_costs_what_sending_tokens_to_experts_costs():
    s, h = 16, SMALL.hidden
    x, multiply, sent = np.random.default_rng(3).normal(size=(s, h)), Counter(), 0
    multiply(x, np.ones((h, SMALL.experts)))
    # an even router: token i goes to experts i and i + 1
    chosen = [{(i + j) % SMALL.experts for j in range(SMALL.experts_per_token)} for i in range(s)]
    for expert in range(SMALL.experts):
        rows = x[[i for i in range(s) if expert in chosen[i]]]
        sent += rows.size
        gated(multiply, rows, SMALL.expert_ffn)
    gated(multiply, x, SMALL.shared_ffn)
    block = at(SMALL, "body", s)
    attention = sum(m.flops for m in block.matmuls if m.name in ("qkv", "scores", "context", "projection"))
    assert multiply.flops == block.flops - attention
    assert sent == block.routed


@pytest.mark.parametrize("query_rank", [0, 11])
def test_latent_attention_costs_what_multiplying_its_matrices_costs(query_rank):
    net, s = replace(NARROW, query_rank=query_rank), 29
    x, multiply = np.ones((s, net.hidden)), Counter()
    width = net.head_dim + net.rotary_dim
    narrow = multiply(x, np.ones((net.hidden, query_rank))) if query_rank else x
    query = multiply(narrow, np.ones((narrow.shape[1], net.heads * width)))
    latent = multiply(x, np.ones((net.hidden, net.key_value_rank + net.rotary_dim)))
    rotary = latent[:, net.key_value_rank :]
    both = net.heads * (net.head_dim + net.value_dim)
    wide = multiply(latent[:, : net.key_value_rank], np.ones((net.key_value_rank, both)))
    outputs = []
    for i, part in enumerate(np.split(wide, net.heads, axis=1)):
        key, value = np.concatenate([part[:, : net.head_dim], rotary], axis=1), part[:, net.head_dim :]
        outputs.append(multiply(multiply(query[:, i * width : (i + 1) * width], key.T), value))
    multiply(np.concatenate(outputs, axis=1), np.ones((net.heads * net.value_dim, net.hidden)))
    block = at(net, "body", s)
    mlp = sum(m.flops for m in block.matmuls if m.name in ("up", "down"))
    assert multiply.flops == block.flops - mlp


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts_per_token": 5}, r"experts_per_token: found 5, allowed: 1 to 4 \(experts\)"),
        ({"experts_per_token": 0}, "experts_per_token: found 0, allowed: 1 to 4"),
        ({"lead_layers": 3}, r"lead_layers: found 3, allowed: less than 3 \(layers\)"),
        ({"experts": 0}, "experts_per_token: found 2, allowed: 0 without experts; .*lead_layers: found 1"),
        ({"experts": -1}, "experts: found -1, allowed: a whole number >= 0"),
        ({"parallel_block": True}, "parallel_block: found True, allowed: False with experts"),
        ({"capacity_factor": 0}, "capacity_factor: found 0, allowed: a number > 0"),
        ({"rotary_dim": 8, "value_dim": 2}, "rotary_dim: found 8, allowed: at most 4 .*; value_dim: found 2"),
    ],
)
def test_sizes_of_a_mixture_that_do_not_fit_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 1}, "kv_heads: found 1, allowed: 3 with key_value_rank"),
        ({"biases": "all", "qk_norm": True}, "biases: found 'all', allowed: 'none' .*; qk_norm: found True"),
        ({"positions": "alibi"}, "positions: found 'alibi', allowed: 'rotary' with key_value_rank"),
    ],
)
def test_sizes_of_latent_attention_that_do_not_fit_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        replace(NARROW, **change)


# In a configuration


def test_a_configuration_describes_a_mixture_by_its_sizes(tmp_path):
    file = tmp_path / "mixture.yaml"
    sizes = (
        "{layers: 3, hidden: 64, heads: 4, ffn: 160, vocabulary: 997, gated: true, tied: false, positions: rotary, "
        "norm: rmsnorm, biases: none, key_value_rank: 24, rotary_dim: 8, value_dim: 12, experts: 8, "
        "experts_per_token: 2, expert_ffn: 48, shared_ffn: 48, lead_layers: 1, capacity_factor: 1.25}"
    )
    text = f"name: one\nworkload: {{network: {sizes}, sequence: 128, global_batch: 64}}\n"
    text += "chip: {base: a100-sxm-80gb}\ncluster: {devices: 8, tiers: [{size: 8}]}\nplan: {tensor: 2}\n"
    file.write_text(text, encoding="utf-8")
    found = load_design(file).workloads[0].network
    assert (found.experts, found.lead_layers, found.capacity_factor, found.key_value_rank) == (8, 1, 1.25, 24)
    assert [block.place for block in found.blocks(128)] == ["first", "lead", "body", "last"]
    file.write_text(text.replace("1.25", "0"), encoding="utf-8")
    with pytest.raises(ConfigError, match="capacity_factor"):
        load_design(file)


def test_gradients_of_experts_and_of_touched_rows_fill_buckets_beside_the_dense_ones() -> None:
    # 10 dense and 30 expert parameters of 2 bytes, and 4 ranks that send 12 bytes of rows each: 20 + 60 + 12
    none = Message(1.0, 1.0, 0.0)
    dense = Messages(none, None, None, None, None, None, None, none, Message(8.0, 1.0, 10.0), None, None, none)
    assert dense.reduced_once(2.0) == 20.0
    mixed = replace(dense, experts=Message(2.0, 4.0, 30.0), rows=Message(4.0, 1.0, 48.0))
    assert mixed.reduced_once(2.0) == 92.0
