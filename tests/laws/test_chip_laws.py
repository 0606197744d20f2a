"""Laws of the chip model over ten thousand random chips: more is never slower, every part is paid for, no roof broken.

The lower bounds are counted here from the networks' sizes; they share no code with the evaluation.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import Result
from dse.inputs.yaml.load import load_search
from hw_models.chip import DATAFLOW, NOC, Chip
from hw_models.cluster import Cluster, Tier
from hw_models.physical.area import die_area
from hw_models.physical.power import tdp
from hw_models.stacks import stack
from hw_models.technology import Technology, memories, nodes, technology
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

CHIPS = 10_000
KINDS = ("systolic", "tensor_core")
#: A step is a sum of rounded quotients.  Rounding is monotone, so that more of a chip gave no step that is longer by a
#: single bit; four units in the last place are left for sums whose parts move against each other.
ROUNDING = 1.0 + 4.0 * np.finfo(float).eps

DEVICES, SEQUENCE, BATCH = 8, 1024, 32
GPT = DecoderTransformer(
    "gpt", layers=8, hidden=2048, heads=16, ffn=8192, vocabulary=32_000, positions="rotary", tied=False, biases="none",
    dropout=False,
)  # fmt: skip
MOE = DecoderTransformer(
    "moe", layers=8, hidden=1024, heads=16, ffn=2048, vocabulary=32_000, positions="rotary", tied=False, biases="none",
    dropout=False, gated=True, experts=16, experts_per_token=2,
)  # fmt: skip
OPEN = {"overlap_data": False, "overlap_pipeline": False}
#: Nothing of a plan hides behind anything else, so that the bounds below may add arithmetic or traffic and exchanges.
PLANS: dict[str, tuple[DecoderTransformer, Plan]] = {
    "tensor": (GPT, Plan(tensor=8, micro_batch=2, **OPEN)),
    "pipeline": (GPT, Plan(pipeline=4, data=2, micro_batch=1, **OPEN)),
    "data": (GPT, Plan(data=8, micro_batch=2, **OPEN)),
    "all three": (GPT, Plan(tensor=2, pipeline=2, data=2, micro_batch=2, recompute="full", **OPEN)),
    "experts": (MOE, Plan(data=8, expert=8, micro_batch=2, **OPEN)),
    "experts and tensor": (MOE, Plan(tensor=2, data=4, expert=4, micro_batch=2, zero_stage=1, **OPEN)),
}


# --- The chips -------------------------------------------------------------------------------------------------------


@cache
def chip_columns(kind: str) -> dict[str, np.ndarray]:
    """Ten thousand chips over the ranges that the shipped searches use, and a little beyond."""
    rng = np.random.default_rng(KINDS.index(kind))

    def between(low: float, high: float) -> np.ndarray:
        return low * (high / low) ** rng.random(CHIPS)

    per_core = rng.choice([1.0, 2.0, 4.0], CHIPS)
    found = {
        # whole cores: a core has all of its arrays
        "array_count": per_core * np.floor(between(1, 1024)),
        "array_rows": rng.choice([2.0, 8.0, 16.0, 32.0, 64.0, 100.0, 128.0, 256.0], CHIPS),
        "array_columns": rng.choice([2.0, 8.0, 16.0, 32.0, 64.0, 100.0, 128.0, 256.0], CHIPS),
        "arrays_per_core": per_core,
        "clock": between(6e8, 2e9),
        "dataflow": rng.integers(0, len(DATAFLOW), CHIPS).astype(float),
        "double_buffered": rng.integers(0, 2, CHIPS).astype(float),
        "vector_lanes": np.floor(between(2, 2**20)),
        "local_sram": between(2**10, 2**23),
        "shared_sram": between(2**21, 2**28),
        "shared_sram_bandwidth": between(1e12, 1.6e13),
        "hbm_stacks": rng.integers(1, 9, CHIPS).astype(float),
        "hbm_stack_capacity": between(8e9, 4.8e10),
        "hbm_stack_bandwidth": between(1e11, 1.2e12),
        "links": rng.integers(1, 19, CHIPS).astype(float),
        "link_bandwidth": between(1.25e10, 1e11),
        # Half of the chips name the network between shared SRAM and cores, half count its banks.
        "noc": rng.integers(0, 2, CHIPS) * rng.integers(1, len(NOC), CHIPS).astype(float),
        "noc_width": np.floor(between(16, 1024)),
        "sram_banks": rng.integers(0, 2, CHIPS) * np.floor(between(8, 1024)),
        "sram_bank_width": np.floor(between(16, 256)),
    }
    if kind == "tensor_core":
        found["array_rows"], found["array_columns"] = rng.choice([4.0, 8.0, 16.0], CHIPS), np.full(CHIPS, 16.0)
    return found


def grown(kind: str, what: str) -> dict[str, np.ndarray]:
    """The chips with more of one thing: a hair, some, or several times as much; array shape and the rest as before."""
    rng = np.random.default_rng(1 + list(MORE).index(what))
    factor = 1.0 + 10.0 ** rng.uniform(-3, 0.8, CHIPS)
    columns = dict(chip_columns(kind))
    field = MORE[what]
    if field == "array_count":
        cores = columns["array_count"] / columns["arrays_per_core"]
        columns[field] = np.maximum(np.floor(cores * factor), cores + 1.0) * columns["arrays_per_core"]
    elif field in ("vector_lanes", "hbm_stacks", "links", "sram_banks"):
        more = np.maximum(np.floor(columns[field] * factor), columns[field] + 1.0)
        columns[field] = np.where(columns[field] > 0, more, 0.0)  # banks that are not counted are not more
    else:
        columns[field] = columns[field] * factor
    return columns


MORE = {
    "arrays": "array_count",
    "vector lanes": "vector_lanes",
    "local SRAM": "local_sram",
    "shared SRAM": "shared_sram",
    "bandwidth of shared SRAM": "shared_sram_bandwidth",
    "network width": "noc_width",
    "banks": "sram_banks",
    "HBM bandwidth": "hbm_stack_bandwidth",
    "HBM stacks": "hbm_stacks",
    "link bandwidth": "link_bandwidth",
    "links": "links",
    "clock": "clock",
}


@cache
def constants() -> Technology:
    """A process node and a memory generation for every chip, as columns; the free-memory template is none of them."""
    pairs = [technology(node, memory) for node in nodes() if node != "phaze22nm" for memory in memories()]
    at = np.random.default_rng(3).integers(0, len(pairs), CHIPS)
    names = [item.name for item in fields(Technology) if item.name != "name"]
    return Technology(**{name: np.array([getattr(pair, name) for pair in pairs], dtype=float)[at] for name in names})


def step(kind: str, columns: dict[str, np.ndarray], plan: str, **training: Any) -> Result:
    """A step on one switch whose bandwidth is that of the chip's links, with software that costs nothing."""
    network, chosen = PLANS[plan]
    return evaluate(
        Design(
            Chip(compute=kind, **columns), Cluster(DEVICES, (Tier(DEVICES, latency=1e-6),)), chosen,
            Workload(network, SEQUENCE, BATCH), stack("ideal"), Training(**training), constants(),
        )
    )  # fmt: skip


@cache
def base(kind: str, plan: str) -> Result:
    return step(kind, chip_columns(kind), plan)


# --- More is never slower, and never free ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", list(MORE))
def test_more_of_a_chip_never_makes_a_step_longer(kind: str, what: str) -> None:
    helped = 0
    for plan in ("tensor", "data", "all three", "experts and tensor"):
        before = base(kind, plan).column("step_time")
        after = step(kind, grown(kind, what), plan).column("step_time")
        worst = np.argmax(after / before)
        assert after[worst] <= before[worst] * ROUNDING, (plan, {k: v[worst] for k, v in chip_columns(kind).items()})
        helped += int(np.sum(after < before * (1 - 1e-6)))
    assert helped > CHIPS / 100, "it hardly ever matters"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", list(MORE))
def test_more_of_a_chip_takes_more_area_or_power_and_never_less(kind: str, what: str) -> None:
    small, large = (Chip(compute=kind, **columns) for columns in (chip_columns(kind), grown(kind, what)))
    area, power = ([model(chip, constants()) for chip in (small, large)] for model in (die_area, tdp))
    assert np.all(area[1] >= area[0]) and np.all(power[1] >= power[0])
    # What a chip does not have cannot grow: the bandwidth of a network that is named instead, a network, banks.
    named, banked = chip_columns(kind)["noc"] > 0, chip_columns(kind)["sram_banks"] > 0
    has = {"bandwidth of shared SRAM": ~named, "network width": named, "banks": banked}.get(what, named | True)
    assert np.all((area[1] > area[0])[has] | (power[1] > power[0])[has]), "it is free"


@pytest.mark.parametrize("kind", KINDS)
def test_more_of_everything_at_once_never_makes_a_step_longer_however_attention_is_done(kind: str) -> None:
    more = dict(chip_columns(kind))
    for what, field in MORE.items():
        more[field] = grown(kind, what)[field]
    for plan in ("tensor", "all three", "experts"):
        for attention in ("materialized", "pipelined"):
            small, large = (
                step(kind, columns, plan, attention=attention, precision="fp8").column("step_time")
                for columns in (chip_columns(kind), more)
            )
            assert np.all(large <= small * ROUNDING) and np.median(large / small) < 0.9


# --- An array that is configured for each product --------------------------------------------------------------------


def test_the_best_dataflow_is_never_slower_and_pays_for_the_one_that_runs() -> None:
    columns = chip_columns("systolic")
    each = [
        step("systolic", {**columns, "dataflow": np.full(CHIPS, float(flow))}, "all three")
        for flow in range(len(DATAFLOW))
    ]
    *single, best = (result.column("step_time") for result in each)
    assert np.all(best <= np.min(single, axis=0) * ROUNDING) and np.mean(best < np.min(single, axis=0) * 0.999) > 0.1
    # Outputs that stay move fewer bytes than partial sums that are written and read back, and each product pays for
    # the dataflow it runs in: the best of them is between.
    *alone, chosen = (result.column("energy_compute") for result in each)
    assert np.all(chosen >= alone[0] * (1 - 1e-12)) and np.all(chosen <= alone[1] * (1 + 1e-12))
    assert np.any(chosen > alone[0] * 1.001) and np.any(chosen < alone[1] * 0.999)
    # A design power holds for the hungriest.
    power = [tdp(Chip(**{**columns, "dataflow": np.full(CHIPS, flow)}), constants()) for flow in range(len(DATAFLOW))]
    np.testing.assert_array_equal(power[3], np.max(power[:3], axis=0))


def test_a_chip_keeps_its_bits_beside_one_that_is_configured_for_each_product() -> None:
    columns = chip_columns("systolic")
    own = columns["dataflow"] < DATAFLOW.index("best")
    mixed = base("systolic", "tensor")
    fixed = {name: np.where(own, column, 1.0) if name == "dataflow" else column for name, column in columns.items()}
    alone = step("systolic", fixed, "tensor")
    assert own.any() and not own.all()
    for name in ("step_time", "energy_per_step", "tdp"):
        np.testing.assert_array_equal(mixed.column(name)[own], alone.column(name)[own], err_msg=name)


def test_best_is_a_dataflow_that_a_search_file_may_name(tmp_path: Path) -> None:
    shipped, file = (files("searches") / "quickstart.yaml").read_text(), tmp_path / "best.yaml"
    file.write_text(shipped.replace("dataflow: ws", "dataflow: [ws, best]"))
    assert load_search(file).chip["dataflow"] == (1, 3)


# --- What cannot be avoided ------------------------------------------------------------------------------------------


def layer_weights(network: DecoderTransformer) -> tuple[int, int]:
    """Weights of a layer's products: attention and router (or dense MLP), and experts."""
    h, matrices = network.hidden, 3 if network.gated else 2
    mlp = matrices * h * network.ffn
    if not network.experts:
        return 4 * h * h + mlp, 0
    return 4 * h * h + h * network.experts, network.experts * mlp


def least_macs(network: DecoderTransformer) -> float:
    """Multiply-adds of a step, three times the forward pass: weights each token meets, and scores and context of the
    half of the pairs that a causal mask leaves."""
    dense, experts = layer_weights(network)
    met = dense + (experts / network.experts * network.experts_per_token if network.experts else 0)
    attention = 2 * network.hidden * SEQUENCE / 2
    a_token = network.layers * (met + attention) + network.hidden * network.vocabulary
    # nothing asks for the gradient of the embedding's output beyond the first layer's input: at most one product less
    return 3.0 * a_token * BATCH * SEQUENCE


def least_hbm_bytes(network: DecoderTransformer, plan: Plan, sram: Any) -> Any:
    """HBM bytes of one device with average layers in a step, whatever its caches do.

    Every pass of a micro-batch reads the bf16 weights of its layers, forward and backward; the fp32 gradients of a
    pass leave, and come back to be added to in the next; what the gradients need of the forward pass leaves and comes
    back.  Of each of these the whole SRAM saves at most what it holds.  The update reads gradient, master and moments
    (16 B) and writes master, moments and bf16 weights (14 B), of which SRAM saves what it holds on either side.
    """
    dense, experts = layer_weights(network)
    held = network.layers / plan.pipeline * (dense + experts / plan.expert) / plan.tensor
    if network.experts:
        held = network.layers * (dense / plan.tensor + experts / plan.expert / plan.tensor)
    passes = BATCH / plan.data / plan.micro_batch
    weights = 2.0 * passes * np.maximum(2.0 * held - sram, 0.0)
    gradients = (2.0 * passes - 1.0) * np.maximum(4.0 * held - sram, 0.0)
    kept = plan.micro_batch * SEQUENCE * network.layers / plan.pipeline * kept_bytes(network, plan)
    activations = 2.0 * passes * np.maximum(kept - sram, 0.0)
    owned = held / (plan.data if plan.zero_stage else 1.0)
    if network.experts and plan.zero_stage:
        owned = network.layers * (dense / plan.data + experts / plan.data) / plan.tensor
    return weights + gradients + activations + np.maximum(30.0 * owned - 2.0 * sram, 0.0)


def kept_bytes(network: DecoderTransformer, plan: Plan) -> float:
    """Bytes of a token that the gradients of a layer cannot do without: its input where it is repeated, else the inputs
    of all its products: two norms' outputs, which tensor ranks repeat, queries, keys, values, context, MLP."""
    h = network.hidden
    if plan.recompute:
        return 2.0 * h
    return 2.0 * (2 * h + (4 * h + max(network.experts_per_token, 1) * network.ffn) / plan.tensor)


def exposed_link_bytes(network: DecoderTransformer, plan: Plan) -> float:
    """Bytes that one device with average layers must send in a step while nothing of it computes.

    An all-reduce of V bytes over n ranks sends at least 2 (n - 1)/n V of each      [Patarasuk and Yuan 2009, theorem 1]
    tensor   two all-reduces of the activations a layer forward, two backward (and two repeated)
    expert   rows go out and come back, forward and backward: (n - 1)/n of them leave
    data     one all-reduce of the fp32 gradients of the layers (with ZeRO-1 the same bytes in two halves)
    """
    dense, experts = layer_weights(network)
    tokens = plan.micro_batch * SEQUENCE
    passes, layers = BATCH / plan.data / plan.micro_batch, network.layers / plan.pipeline
    boundary = 2.0 * tokens * network.hidden
    sent = (6.0 if plan.recompute else 4.0) * (2.0 * (plan.tensor - 1) / plan.tensor * boundary)
    if network.experts:
        sent += 4.0 * (plan.expert - 1) / plan.expert * network.experts_per_token * boundary / plan.tensor
    ranks = plan.data
    return passes * layers * sent + 2.0 * (ranks - 1) / ranks * 4.0 * layers * dense / plan.tensor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", list(PLANS))
def test_a_step_takes_at_least_its_arithmetic_at_peak_and_the_exchanges_that_nothing_hides(
    kind: str, plan: str
) -> None:
    columns, (network, chosen) = chip_columns(kind), PLANS[plan]
    peak = 2.0 * columns["array_count"] * columns["array_rows"] * columns["array_columns"] * columns["clock"]
    arithmetic = 2.0 * least_macs(network) / (DEVICES * peak)
    sending = exposed_link_bytes(network, chosen) / (columns["links"] * columns["link_bandwidth"])
    time = base(kind, plan).column("step_time")
    assert np.all(time >= arithmetic + sending)
    closest = ((arithmetic + sending) / time).max()
    assert closest > 0.5, "the bound says nothing"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", list(PLANS))
def test_a_step_takes_at_least_its_compulsory_traffic_and_the_exchanges_that_nothing_hides(
    kind: str, plan: str
) -> None:
    columns, (network, chosen) = chip_columns(kind), PLANS[plan]
    sram = on_chip(columns)
    moving = least_hbm_bytes(network, chosen, sram) / (columns["hbm_stacks"] * columns["hbm_stack_bandwidth"])
    sending = exposed_link_bytes(network, chosen) / (columns["links"] * columns["link_bandwidth"])
    time = base(kind, plan).column("step_time")
    assert np.all(time >= moving + sending)
    # Bytes between the operators of a layer, which a cleverer schedule might keep on chip, are the rest.
    assert (moving / time).max() > 0.15 and ((moving + sending) / time).max() > 0.3, "the bound says nothing"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", list(PLANS))
def test_a_step_takes_at_least_the_energy_of_its_multiply_adds_and_compulsory_traffic(kind: str, plan: str) -> None:
    columns, (network, chosen) = chip_columns(kind), PLANS[plan]
    made = constants()
    arithmetic = least_macs(network) * made.mac_energy
    moved = DEVICES * least_hbm_bytes(network, chosen, on_chip(columns)) * made.hbm_energy
    sent = DEVICES * exposed_link_bytes(network, chosen) * made.link_energy
    found = base(kind, plan)
    assert np.all(found.column("energy_compute") >= arithmetic + moved)
    assert np.all(found.column("energy_communication") >= sent)
    assert ((arithmetic + moved) / found.column("energy_compute")).max() > 0.5, "the bound says nothing"
    total = found.column("energy_per_step")
    assert np.all(total >= arithmetic + moved + sent + DEVICES * made.idle_power * found.column("step_time"))


def on_chip(columns: dict[str, np.ndarray]) -> Any:
    """All SRAM of a chip [B]."""
    return columns["shared_sram"] + columns["array_count"] / columns["arrays_per_core"] * columns["local_sram"]
