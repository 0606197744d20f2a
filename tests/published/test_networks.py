"""Published networks: sizes, parameter counts, names and bad sizes."""

from __future__ import annotations

import csv
import importlib
import keyword
import random
from dataclasses import fields, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path

import pytest

import workloads
from workloads.network import Network
from workloads.published import default_sequence, identifier, name_of, network, published
from workloads.published import transformer_names as names
from workloads.published import transformer_table as table
from workloads.training import active_parameters, embedding_parameters, parameters
from workloads.transformer import DecoderTransformer

#: Printed counts that the printed sizes do not make: GPT-3 says 350 million of a shape that holds 356 million (355
#: in GPT-2), Kimi K2 1.04 of 1.026 trillion, and Llama 4 Scout counts its vision encoder.
PRINTED_OTHERWISE = {"gpt3-350m": 0.02, "kimi-k2": 0.015, "llama4-scout": 0.012}
#: Printed counts of active parameters that leave the table of input embeddings out.
ACTIVE_WITHOUT_TABLE = {"gpt-oss-20b", "gpt-oss-120b", "deepseek-v2-lite"}

FLOPS_PER_TOKEN = {row["name"]: row["forward_flops_per_token"] for row in table()}


def blocks(name):
    return {block.name: block for block in network(name).blocks(default_sequence(name))}


def tensors(net: DecoderTransformer) -> dict[str, tuple[int, ...]]:
    """Every parameter tensor of a network by name, written as a checkpoint would list it."""
    query, key, bias = net.heads * net.head_dim, net.kv_heads * net.head_dim, net.biases
    rows = -(-net.vocabulary // net.vocabulary_multiple) * net.vocabulary_multiple
    found: dict[str, tuple[int, ...]] = {"tokens": (rows, net.hidden)}

    def norm(name):
        found[f"{name}.weight"] = (net.hidden,)
        if net.norm == "layernorm":
            found[f"{name}.bias"] = (net.hidden,)

    def linear(name, outputs, inputs, biased):
        found[f"{name}.weight"] = (outputs, inputs)
        if biased:
            found[f"{name}.bias"] = (outputs,)

    def attention(i):
        linear(f"{i}.query", query, net.hidden, bias != "none")
        linear(f"{i}.key", key, net.hidden, bias != "none")
        linear(f"{i}.value", key, net.hidden, bias != "none")
        linear(f"{i}.output", net.hidden, query, bias == "all")
        if net.qk_norm:
            found[f"{i}.query_norm"] = found[f"{i}.key_norm"] = (net.head_dim,)
        if net.sinks:
            found[f"{i}.sinks"] = (net.heads,)

    def latent(i):
        width = net.heads * (net.head_dim + net.rotary_dim)
        if net.query_rank:
            linear(f"{i}.query_a", net.query_rank, net.hidden, False)
            linear(f"{i}.query_b", width, net.query_rank, False)
            found[f"{i}.query_a_norm"] = (net.query_rank,)
        else:
            linear(f"{i}.query", width, net.hidden, False)
        linear(f"{i}.kv_a", net.key_value_rank + net.rotary_dim, net.hidden, False)
        found[f"{i}.kv_a_norm"] = (net.key_value_rank,)
        linear(f"{i}.kv_b", net.heads * (net.head_dim + net.value_dim), net.key_value_rank, False)
        linear(f"{i}.output", net.hidden, net.heads * net.value_dim, False)

    def mlp(name, width):
        for matrix in ("gate", "up") if net.gated else ("up",):
            linear(f"{name}.{matrix}", width, net.hidden, bias == "all")
        linear(f"{name}.down", net.hidden, width, bias == "all")

    if net.positions == "learned":
        found["positions"] = (net.max_sequence, net.hidden)
    if net.embedding_norm:
        norm("embedding")
    for i in range(net.layers):
        norm(f"{i}.attention")
        if not net.parallel_block:
            norm(f"{i}.mlp")
        if net.key_value_rank:
            latent(i)
        else:
            attention(i)
        if i < net.lead_layers or not net.experts:
            mlp(f"{i}", net.ffn)
            continue
        linear(f"{i}.router", net.experts, net.hidden, bias == "all")
        for j in range(net.experts):
            mlp(f"{i}.expert.{j}", net.expert_ffn)
        if net.shared_ffn:
            mlp(f"{i}.shared", net.shared_ffn)
    norm("final")
    if not net.tied:
        found["head"] = (rows, net.hidden)
    return found


@cache
def listed(name: str) -> dict[str, tuple[int, ...]]:
    return tensors(network(name))


def idle(name: str, net: DecoderTransformer) -> bool:
    """Whether a token that is sent to the first experts does not meet the tensor."""
    parts = name.split(".")
    return len(parts) > 2 and parts[1] == "expert" and int(parts[2]) >= net.experts_per_token


def test_gpt2_small_has_124_439_808_parameters_and_untying_its_head_adds_the_table_once_more():
    small = network("gpt2-small")
    assert parameters(small, 1024) == 124_439_808
    assert parameters(replace(small, tied=False), 1024) == 163_037_184 == 124_439_808 + 50257 * 768


@pytest.mark.parametrize(
    ("name", "count"),
    [("llama3-8b", 8_030_261_248), ("qwen1.5-72b", 72_287_920_128), ("bloom-176b", 176_247_271_424)],
)
def test_counts_equal_the_released_weights(name, count):
    assert parameters(network(name), default_sequence(name)) == count


@pytest.mark.parametrize("name", names())
def test_every_network_counts_what_was_published(name):
    entry = published()[name]
    counted, printed = parameters(entry.network, entry.sequence), entry.published_parameters
    if entry.exact:
        assert counted == printed
        return
    half_of_last_digit = Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)
    allowed = max(Decimal(str(PRINTED_OTHERWISE.get(name, 0.01))) * printed, half_of_last_digit)
    assert abs(counted - printed) <= allowed


@pytest.mark.parametrize("name", [name for name, entry in published().items() if entry.published_active])
def test_every_mixture_counts_the_active_parameters_that_were_published(name):
    entry = published()[name]
    net, printed = entry.network, entry.published_active
    table_rows = net.padded_vocabulary * net.hidden if name in ACTIVE_WITHOUT_TABLE else 0
    counted = active_parameters(net, entry.sequence) - table_rows
    # rounded or cut to its printed digits
    last_digit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    assert abs(counted - printed) <= max(last_digit, Decimal("0.01") * printed)
    used = sum(prod(shape) for key, shape in listed(name).items() if not idle(key, net))
    assert active_parameters(net, entry.sequence) == used


@pytest.mark.parametrize("name", [name for name in names() if not network(name).experts])
def test_every_parameter_of_a_dense_network_is_active(name):
    assert active_parameters(network(name), 7) == parameters(network(name), 7)


def test_every_mixture_says_how_many_parameters_are_active():
    mixtures = {name for name in names() if network(name).experts}
    assert mixtures == {name for name, entry in published().items() if entry.published_active}
    assert {"mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"} <= mixtures


def test_most_networks_are_anchored_on_an_exact_count():
    exact = [name for name, entry in published().items() if entry.exact]
    assert len(exact) >= 30 and {"gpt2-xl", "opt-30b", "bloom-7.1b", "llama1-65b", "llama2-70b"} <= set(exact)


@pytest.mark.parametrize("name", names())
def test_parameters_equal_the_sum_over_a_list_of_tensors(name):
    expected = sum(prod(shape) for shape in listed(name).values())
    assert parameters(network(name), default_sequence(name)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_parameters_of_random_shapes_equal_the_sum_over_a_list_of_tensors(seed):
    draw = random.Random(seed)
    kv = draw.choice([1, 3, 7])
    net = DecoderTransformer(
        "random", layers=draw.choice([1, 5, 11]), hidden=draw.choice([13, 101]), heads=kv * draw.choice([1, 5]),
        kv_heads=kv, head_dim=draw.choice([2, 17]), ffn=draw.choice([19, 211]), vocabulary=draw.choice([23, 1009]),
        vocabulary_multiple=draw.choice([1, 64]), gated=draw.random() < 0.5, tied=draw.random() < 0.5,
        positions=draw.choice(["learned", "rotary", "alibi"]), norm=draw.choice(["layernorm", "rmsnorm"]),
        biases=draw.choice(["all", "qkv", "none"]), parallel_block=draw.random() < 0.5,
        embedding_norm=draw.random() < 0.5, dropout=draw.random() < 0.5, max_sequence=draw.choice([29, 31]),
    )  # fmt: skip
    assert parameters(net, 29) == sum(prod(shape) for shape in tensors(net).values())


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("megatron-", "korthikanti-"))])
def test_megatron_shapes_follow_the_closed_form_of_their_paper(name):
    # Narayanan et al. 2021, eq. 2, which leaves out the final norm
    net = network(name)
    layers, h, rows = net.layers, net.hidden, net.padded_vocabulary + net.max_sequence
    assert parameters(net, 2048) - 2 * h == 12 * layers * h * h + 13 * layers * h + rows * h


def test_a_two_matrix_count_of_a_gated_mlp_is_short_by_one_matrix_a_layer():
    qwen = network("qwen1.5-72b")
    plain = parameters(replace(qwen, gated=False), 4096)
    assert parameters(qwen, 4096) - plain == 80 * 8192 * 24576
    assert round(plain / 1e9, 2) == 56.18


@pytest.mark.parametrize("ffn", [1, 11008, 28672, 3 * 8192 + 1])
def test_the_mlp_width_is_any_positive_integer(ffn):
    assert replace(network("llama2-70b"), ffn=ffn).blocks(17)[1].matmuls[-1].k == ffn


@pytest.mark.parametrize("name", [name for name in names() if network(name).tied])
def test_a_tied_head_is_counted_once_and_stored_twice_when_stages_part_it_from_the_embedding(name):
    found = blocks(name)
    table_size = network(name).padded_vocabulary * network(name).hidden
    held_apart = sum(block.count * block.parameters for block in found.values())
    assert found["head"].shared_parameters == table_size
    assert held_apart == parameters(network(name), default_sequence(name)) + table_size


def test_gpt2_small_on_two_stages_holds_163_037_184_parameters():
    assert sum(block.count * block.parameters for block in blocks("gpt2-small").values()) == 163_037_184
    assert blocks("gpt2-small")["head"].shared_parameters == 38_597_376


@pytest.mark.parametrize("name", names())
def test_totals_split_into_embedding_and_body(name):
    net, sequence = network(name), default_sequence(name)
    layers = [block for block in blocks(name).values() if block.place in ("lead", "body")]
    assert sum(block.count for block in layers) == net.layers
    inside = sum(block.count * block.parameters for block in layers)
    assert embedding_parameters(net, sequence) + inside == parameters(net, sequence)
    by_tensor = listed(name)
    outside = sum(prod(shape) for key, shape in by_tensor.items() if not key[0].isdigit())
    assert embedding_parameters(net, sequence) == outside


def test_nemotron_splits_into_the_published_embedding_and_other_parameters():
    net = network("nemotron4-340b")
    outside = embedding_parameters(net, 4096)
    assert round(outside / 1e9, 1) == 9.4
    assert round((parameters(net, 4096) - outside) / 1e9, 1) == 331.6


@pytest.mark.parametrize("multiple", [1, 64, 1024])
def test_padding_adds_whole_rows_of_the_table_and_nothing_else(multiple):
    padded = replace(network("gpt2-small"), vocabulary_multiple=multiple)
    extra = padded.padded_vocabulary - 50257
    assert padded.padded_vocabulary % multiple == 0 and 0 <= extra < multiple
    assert parameters(padded, 1024) == 124_439_808 + extra * 768


def test_the_gpt2_vocabulary_pads_to_51200_as_in_megatron():
    assert replace(network("gpt2-small"), vocabulary_multiple=1024).padded_vocabulary == 51200


@pytest.mark.parametrize("name", names())
def test_parameters_do_not_depend_on_the_sequence(name):
    assert parameters(network(name), 7) == parameters(network(name), 4099)


def test_names_and_identifiers_are_one_to_one():
    for name in names():
        assert name_of(identifier(name)) == name
        assert identifier(name).isidentifier() and not keyword.iskeyword(identifier(name))
    assert len({identifier(name) for name in names()}) == len(names())
    assert identifier("gpt3-175b") == "gpt3_175b" and identifier("llama3.1-8b") == "llama3_1_8b"


@pytest.mark.parametrize(
    ("wrong", "near"), [("gpt3_175b", "gpt3-175b"), ("GPT3-175B", "gpt3-175b"), ("lama2-70b", "llama2-70b")]
)
@pytest.mark.parametrize("look_up", [network, default_sequence])
def test_an_unknown_network_names_what_was_found_and_the_nearest(look_up, wrong, near):
    with pytest.raises(ValueError, match=rf"network: found '{wrong}'.*{near}"):
        look_up(wrong)


def test_an_unknown_identifier_names_the_nearest():
    with pytest.raises(ValueError, match="network: found 'gpt3_175'.*gpt3_175b"):
        name_of("gpt3_175")


def test_a_network_unlike_any_other_lists_all_that_are_allowed():
    with pytest.raises(ValueError, match="allowed: .*bloom-176b"):
        network("?")


def test_the_table_of_networks_is_complete_and_cited():
    rows = table()
    assert [row["name"] for row in rows] == list(names())
    for row in rows:
        assert row["source"] and row["published_parameters"] > 0
        assert row["parameters"] > row["embedding_parameters"] > 0
    gpt3 = next(row for row in rows if row["name"] == "gpt3-175b")
    assert (gpt3["layers"], gpt3["hidden"], gpt3["heads"], gpt3["vocabulary"]) == (96, 12288, 96, 51200)


@pytest.mark.parametrize("name", names())
def test_forward_flops_a_token_are_twice_the_products_weights_and_four_times_the_attention_span(name):
    net, sequence = network(name), default_sequence(name)
    shapes = listed(name)
    matrices = {key: shape for key, shape in shapes.items() if key.endswith(".weight") and len(shape) == 2}
    used = sum(prod(shape) for key, shape in matrices.items() if not idle(key, net))
    head = prod(shapes["tokens"])
    columns = net.head_dim + net.rotary_dim + (net.value_dim or net.head_dim)
    attention = 2 * net.layers * sequence * net.heads * columns
    assert FLOPS_PER_TOKEN[name] == 2 * (used + head) + attention


def test_every_network_meets_the_contract_of_a_network():
    for name in names():
        assert isinstance(network(name), Network)
        net = network(name)
        places = [block.place for block in net.blocks(default_sequence(name))]
        assert places == (["first", "lead", "body", "last"] if net.lead_layers else ["first", "body", "last"])
        dense = net.lead_layers or not net.experts
        widths = {"ffn": net.ffn if dense else 0, "expert_ffn": net.expert_ffn, "shared_ffn": net.shared_ffn}
        assert net.divisors() == {"heads": net.heads} | {key: size for key, size in widths.items() if size}


def test_the_columns_of_the_file_are_the_fields_of_the_builder():
    text = (files("workloads") / "data" / "networks.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))
    sizes = {field.name for field in fields(DecoderTransformer)}
    others = {"sequence", "published_parameters", "published_active_parameters"}
    # what no published network differs in has no column
    optional = {
        "causal", "capacity_factor", "norms", "final_norm", "head_bias", "embedding_dim", "qk_norm_whole", "shared_gate"
    }  # fmt: skip
    assert sizes - optional <= set(rows[0]) - others <= sizes
    assert others <= set(rows[0])
    assert all(len(row) == len(rows[0]) for row in rows)
    assert len({row[0] for row in rows}) == len(rows)


def test_bad_sizes_are_reported_together():
    with pytest.raises(ValueError) as error:
        DecoderTransformer("bad", layers=0, hidden=-1, heads=True, ffn=2.5, vocabulary=7, norm="batch")  # type: ignore[arg-type]
    for word in ("layers: found 0", "hidden: found -1", "heads: found True", "ffn: found 2.5", "norm: found 'batch'"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 5}, r"heads % kv_heads: 12 % 5 != 0"),
        ({"kv_heads": 24}, r"heads % kv_heads: 12 % 24 != 0"),
        ({"heads": 7, "kv_heads": 0, "head_dim": 0}, r"hidden % heads: 768 % 7 != 0 \(give head_dim\)"),
        ({"kv_heads": -1}, "kv_heads: found -1"),
    ],
)
def test_heads_that_do_not_fit_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        replace(network("gpt2-small"), **change)


def test_heads_may_be_wider_than_the_hidden_size_allows():
    palm = network("palm-540b")
    assert palm.heads * palm.head_dim == 12288 < palm.hidden == 18432


def test_the_public_names_of_workloads_exist_and_hide_no_module():
    for name in workloads.__all__:
        assert getattr(workloads, name) is not None
    assert workloads.__all__ == sorted(workloads.__all__)
    modules = {path.stem for path in Path(workloads.__file__).parent.glob("*.py")}
    assert not modules & set(workloads.__all__)
    assert importlib.import_module("workloads.network").Workload is workloads.Workload
