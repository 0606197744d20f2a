"""Numbers of a step that fit on a line, of the product and of the oracle: what each physics says, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plain_step import energy, memory, traffic
from plain_step.plan import lay_out
from plain_step.step import Windows, step, work_of

import dse
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.graph_network import GraphNetwork
from workloads.network import Workload
from workloads.networks.recommendation import dlrm
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network
from workloads.transformer import DecoderTransformer

LAYERS, HIDDEN, SEQUENCE, VOCABULARY = 4, 64, 128, 512
#: Bytes of a layer's boundary for one sample, bf16.
BOUNDARY = SEQUENCE * HIDDEN * 2.0


def small(**changes: Any) -> DecoderTransformer:
    sizes: dict[str, Any] = {
        "layers": LAYERS, "hidden": HIDDEN, "heads": 4, "ffn": 256, "vocabulary": VOCABULARY, "positions": "rotary",
        "tied": False, "biases": "none", "norm": "rmsnorm", "dropout": False,
    }  # fmt: skip
    return DecoderTransformer("small", **{**sizes, **changes})


def design(plan: Plan, net: Any = None, *, micro_batches: int = 1, link: float = 5e10, **changes: Any) -> Any:
    """A small network on as many A100 as the plan has ranks, one switch, no software costs."""
    devices = plan.tensor * plan.pipeline * plan.data * plan.context
    workload = Workload(net or small(), changes.pop("sequence", SEQUENCE), plan.data * plan.micro_batch * micro_batches)
    cluster = Cluster(devices=devices, tiers=(Tier(size=max(devices, 2), bandwidth=link, latency=0.0),))
    built: Chip = changes.pop("chip", chip("a100-sxm-80gb"))
    software = replace(stack("ideal"), **changes.pop("stack", {}))
    return dse.Design(built, cluster, plan, workload, stack=software, **changes)


def both(one: Any, axis: str) -> tuple[float, float]:
    """Bytes over an axis: the product's and the oracle's."""
    return dse.evaluate(one).value(f"communication_{axis}"), traffic.bytes_by_axis(lay_out(one))[axis]


# Bytes ---------------------------------------------------------------------------------------------------------------


def test_recomputing_every_second_operator_sends_its_gathers_again() -> None:
    """A layer has 2 exchanges forward and 2 backward, embedding and head one each: 18; repeated gathers are half of 2 a
    layer: 22.  Each all-reduces the boundary: 2 (1/2) S."""
    none = design(Plan(tensor=2, sequence_parallel=1))
    again = design(Plan(tensor=2, sequence_parallel=1, recompute="per_operator"))  # type: ignore[arg-type]
    assert both(none, "tensor") == pytest.approx((18 * BOUNDARY,) * 2)
    assert both(again, "tensor") == pytest.approx((22 * BOUNDARY,) * 2)


def test_groups_of_zero_scatter_inside_and_all_reduce_parts_between() -> None:
    """Groups of 2 of 4 ranks, 4 B gradients, 2 B weights, D parameters: scatter 1/2 4 D, all-reduce of half of it
    between two groups 2 (1/2) 2 D, gather 1/2 2 D: 5 D.  (All 4 ranks together: 3/4 (4 + 2) D = 4.5 D.)"""
    grouped = design(Plan(data=4, zero_stage=1, zero_group=2))
    whole = design(Plan(data=4, zero_stage=1))
    size = sum(block.count * block.parameters for block in small().blocks(SEQUENCE))
    assert both(whole, "data") == pytest.approx((4.5 * size,) * 2)
    assert both(grouped, "data") == pytest.approx((5.0 * size,) * 2)


def test_rows_of_tables_are_sent_to_all_copies_of_them() -> None:
    """4 copies, 8 samples each of 26 rows x 128 columns: a device gathers 4 x 8 x 3,328 gradients of 4 B and sends 3/4
    of them, beside the dense all-reduce 2 (3/4) 4 D."""
    net = network("dlrm-small")
    one = design(Plan(data=4, micro_batch=8), net, sequence=1)
    (body,) = (block for block in net.blocks(1) if block.sparse)
    dense = 1.5 * 4 * (body.parameters - body.parameters_expert)
    assert both(one, "data") == pytest.approx((dense + 0.75 * 4 * 8 * 3_328 * 4,) * 2)


def test_embedding_and_head_are_gathered_once_for_both_passes() -> None:
    """ZeRO-3 on 2 ranks, L layer and E end parameters: a micro-batch gathers layers twice, ends once, 1/2 2 B each, and
    reduces both, 1/2 4 B: 4 L + 3 E."""
    one = design(Plan(data=2, zero_stage=3), micro_batches=3)
    blocks = small().blocks(SEQUENCE)
    layers = sum(block.count * block.parameters for block in blocks if block.place == "body")
    ends = sum(block.parameters for block in blocks if block.place != "body")
    assert both(one, "data") == pytest.approx((3 * (4 * layers + 3 * ends),) * 2)


def test_a_tied_embedding_is_sent_between_the_first_and_the_last_stage() -> None:
    """4 boundaries a step (2 micro-batches, out and back) over 2 stages, and S_t from each of both: 4 S / 2 + S_t."""
    one = design(Plan(pipeline=2), small(tied=True), micro_batches=2)
    assert both(one, "pipeline") == pytest.approx((2 * BOUNDARY + VOCABULARY * HIDDEN * 4,) * 2)


def test_a_boundary_sent_in_parts_is_gathered_over_the_tensor_axis() -> None:
    """2 tensor ranks send half of each of 2 boundaries (mean of 2 stages: S/2 each), and gather 1/2 S of each."""
    whole = design(Plan(tensor=2, pipeline=2))
    parts = design(Plan(tensor=2, pipeline=2), stack={"split_boundary": 1.0})
    assert both(whole, "pipeline") == pytest.approx((BOUNDARY,) * 2)
    assert both(parts, "pipeline") == pytest.approx((BOUNDARY / 2,) * 2)
    assert both(parts, "tensor")[0] - both(whole, "tensor")[0] == pytest.approx(BOUNDARY / 2)
    assert both(parts, "tensor")[1] - both(whole, "tensor")[1] == pytest.approx(BOUNDARY / 2)


def test_a_row_crosses_once_to_each_rank_that_wants_it() -> None:
    """2 copies of a row for 4 ranks: 4 (1 - (3/4)^2) = 1.75 ranks want it, 3/4 of them elsewhere: 1.3125 rows an
    all-to-all in place of 2 x 3/4 = 1.5; 4 all-to-alls a layer."""
    net = small(experts=8, experts_per_token=2)
    plan = Plan(data=4, expert=4)
    copies = design(plan, net)
    tokens = design(plan, net, training=Training(dispatch="token"))
    assert both(copies, "expert") == pytest.approx((LAYERS * 4 * 1.5 * BOUNDARY,) * 2)
    assert both(tokens, "expert") == pytest.approx((LAYERS * 4 * 1.3125 * BOUNDARY,) * 2)


# Windows -------------------------------------------------------------------------------------------------------------


def test_what_one_exchange_runs_beside_hides_no_other() -> None:
    """10 s of kernels: a ring of 4 s behind a core of 6 leaves 6, 5 s leave 1, of 3 s 2 are seen.  At an efficiency of
    a half, half of what runs beside them is seen too, and the window is spent all the same."""
    full, half = Windows(1.0, F=10.0), Windows(0.5, F=10.0)
    assert [full.exposed(4.0, "F", most=6.0), full.exposed(5.0, "F"), full.exposed(3.0, "F")] == [0.0, 0.0, 2.0]
    assert [half.exposed(4.0, "F", most=6.0), half.exposed(5.0, "F"), half.exposed(3.0, "F")] == [2.0, 2.5, 2.5]


def test_no_more_exchange_hides_than_there_is_computation() -> None:
    """On links so slow that each axis alone would fill the windows, at most the device's seconds hide."""
    net = small(experts=8, experts_per_token=4)
    on: dict[str, Any] = {"overlap_tensor": 1, "overlap_expert": 1, "overlap_data": 1, "context_ring": 1}
    off = dict.fromkeys(on, 0)
    degrees: dict[str, Any] = {
        "tensor": 2, "context": 2, "data": 4, "expert": 4, "sequence_parallel": 1, "zero_stage": 3, "recompute": "full",
    }  # fmt: skip
    axes, passes = ("tensor", "context", "expert", "shard"), ("forward", "backward", "recompute")

    def seen(switches: dict[str, Any], product: bool) -> tuple[float, float]:
        one = design(Plan(**degrees, **switches), net, link=1e8)
        parts = {name: dse.evaluate(one).value(f"time_{name}") for name in (*axes, *passes)} if product else _parts(one)
        return sum(parts[name] for name in axes), sum(parts[name] for name in passes)

    for product in (False, True):
        (hidden, kernels), (shown, _) = seen(on, product), seen(off, product)
        assert 0.9 * kernels < shown - hidden <= kernels * (1.0 + 1e-9)


def test_gradients_of_experts_hide_behind_the_last_pass_too() -> None:
    """A bucket that holds all dense gradients and half of those of experts leaves the other half to hide."""
    net = small(experts=8, experts_per_token=2, layers=8)
    plan = Plan(data=2)
    layout = lay_out(design(plan, net))
    dense = 4.0 * sum(block.count * (block.parameters - block.parameters_expert) for block in net.blocks(SEQUENCE))
    routed = 4.0 * sum(block.count * block.parameters_expert for block in net.blocks(SEQUENCE))
    one = design(plan, net, stack={"gradient_bucket": dense + routed / 2})
    seconds = (dense + routed) / 5e10  # 2 (1/2) S / B
    hidden = seconds * (routed / 2) / (dense + routed)
    assert layout.micro_batches == 1
    assert _parts(one)["data"] == pytest.approx(seconds - hidden)
    assert dse.evaluate(one).value("time_data") == pytest.approx(seconds - hidden)


def _parts(one: Any) -> dict[str, float]:
    layout = lay_out(one)
    return step(layout, work_of(layout)).parts


# Stages --------------------------------------------------------------------------------------------------------------


@pytest.mark.xfail(strict=True, reason="embedding and head under ZeRO-2 and 3 are priced on the first stage")
def test_the_last_stage_gathers_its_own_head() -> None:
    """ZeRO-3, 2 stages of 2 ranks, 1 micro-batch, nothing hides: ends of 32,768 and 32,832 (head and norm) parameters
    are gathered (1/2 2 B) and reduced (1/2 4 B) on their stages.  Their mean is half of their sum, as of layers."""
    one = design(Plan(pipeline=2, data=2, zero_stage=3, overlap_data=0), link=1e8)
    blocks = small().blocks(SEQUENCE)
    layers = sum(block.count * block.parameters for block in blocks if block.place == "body")
    ends = sum(block.parameters for block in blocks if block.place != "body")
    seconds = (4 * layers + 3 * ends) / 1e8 / 2
    tied = design(Plan(pipeline=2, data=2, zero_stage=3, overlap_data=0), small(tied=True), link=1e8)
    for each in (one, tied):  # the copy of the table is gathered too
        assert _parts(each)["shard"] == pytest.approx(seconds)
    for each in (one, tied):
        assert dse.evaluate(each).value("time_shard") == pytest.approx(seconds)


# Memory --------------------------------------------------------------------------------------------------------------


def test_tables_have_optimizer_state() -> None:
    """1e8 rows x 128 columns under adam in fp32: two moments of 4 B: 102.4e9 B, and 8 B of each dense parameter."""
    net = GraphNetwork("tables", lambda sequence: dlrm(sequence, rows=(10**8,)))
    one = design(Plan(), net, sequence=1, training=Training(precision="fp32"))
    dense = sum(block.parameters - block.parameters_expert for block in net.blocks(1))
    assert memory.stages(lay_out(one))[0]["optimizer"] == 102.4e9 + 8.0 * dense
    assert dse.evaluate(one).value("memory_optimizer") == 102.4e9 + 8.0 * dense


def test_masks_stay_one_byte_in_fp32() -> None:
    """GPT-3, one layer, fp32 and dropout, scores written: 5,284,823,040 B a layer, and the embedding's mask s h."""
    net = replace(network("gpt3-175b"), layers=1)
    one = design(Plan(), net, sequence=2048, training=Training(precision="fp32", attention="materialized"))
    assert memory.stages(lay_out(one))[0]["activations"] == 5_284_823_040 + 2048 * 12_288
    assert dse.evaluate(one).value("memory_activations") == 5_284_823_040 + 2048 * 12_288


# Energy --------------------------------------------------------------------------------------------------------------


@pytest.mark.xfail(strict=True, reason="joules of gradients are those of the fullest stage on every stage")
def test_uneven_stages_send_their_own_gradients() -> None:
    """5 layers on 2 stages, 2 copies of each, plain data parallelism: D parameters of all stages together cross a link,
    2 (1/2) 4 D B on each of 2 ranks, whatever their split; and a boundary each way on both."""
    net = small(layers=5)
    one = design(Plan(pipeline=2, data=2), net)
    size = sum(block.count * block.parameters for block in net.blocks(SEQUENCE))
    joules = (2 * 4 * size + 2 * 2 * BOUNDARY) * one.constants.link_energy
    assert energy.communication(lay_out(one)) == pytest.approx(joules)
    assert dse.evaluate(one).value("energy_communication") == pytest.approx(joules)


def test_a_tied_table_on_one_stage_is_updated_once() -> None:
    """On one device the update of a tied network moves V h parameters' bytes less than that of an untied one."""
    tied, untied = (design(Plan(), small(tied=flag)) for flag in (True, False))
    spared = VOCABULARY * HIDDEN * (2 * 4 + 2 * 12 + 2) * tied.constants.hbm_energy
    for product in (False, True):
        assert _compute(untied, product) - _compute(tied, product) == pytest.approx(spared, rel=1e-6)


def test_an_offloaded_update_moves_gradients_and_weights_alone() -> None:
    """4 B of gradient out and 2 B of weight in, in place of 2 (4 + 12) + 2 B: state is read where it is held."""
    size = sum(block.count * block.parameters for block in small().blocks(SEQUENCE))
    kept, away = (design(Plan(offload=number)) for number in (0, 1))
    spared = size * (34 - 6) * kept.constants.hbm_energy
    for product in (False, True):
        assert _compute(kept, product) - _compute(away, product) == pytest.approx(spared, rel=1e-6)


def _compute(one: Any, product: bool) -> float:
    if product:
        return float(dse.evaluate(one).value("energy_compute"))
    layout = lay_out(one)
    return energy.compute(layout, work_of(layout))


# Collectives ---------------------------------------------------------------------------------------------------------


def test_nothing_to_send_takes_no_time_on_any_stack() -> None:
    """3 ranks, a stack without short messages that has halving for powers of two: a number, whatever is not sent."""
    for stage in range(4):
        software = {"low_latency_message": 0.0, "algorithms": ("ring", "halving_doubling")}
        one = design(Plan(data=3, zero_stage=stage), stack=software)
        assert dse.evaluate(one).value("step_time") > 0.0
