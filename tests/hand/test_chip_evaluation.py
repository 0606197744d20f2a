"""What a chip's power cap, network on chip, banks, dies and prices do to an evaluated design and to a search."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dse.base.errors import ConfigError
from dse.evaluation.design import POWER_RULE, Design, rows
from dse.evaluation.evaluate import evaluate, evaluate_rows, settled
from dse.evaluation.layout import lay_out
from dse.evaluation.traffic import price_traffic
from dse.inputs.yaml.load import load_design, load_search
from dse.problem.objectives import objective
from hw_models.chip import NOC, Chip
from hw_models.clusters import cluster
from hw_models.devices import chip, names
from hw_models.memory.noc import noc_area, noc_energy, shared_sram_supply
from hw_models.physical.area import area_by_block, core_tile_area, die_area
from hw_models.physical.cost import chip_cost, die_yield, embodied_carbon, market, total
from hw_models.physical.energy import shared_sram_byte_energy
from hw_models.physical.power import tdp
from hw_models.stacks import stack
from hw_models.technology import technology
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

BERT = DecoderTransformer(name="bert-large", layers=24, hidden=1024, heads=16, ffn=4096, vocabulary=30528)
SMALL = Workload(
    DecoderTransformer(name="small", layers=8, hidden=2048, heads=16, ffn=8192, vocabulary=32000), 1024, 64
)
PLANS = Plan(
    tensor=np.array([1, 2, 4, 8, 1, 2]), pipeline=np.array([1, 1, 2, 1, 8, 2]), data=np.array([8, 4, 1, 1, 1, 2]),
    micro_batch=np.array([1, 4, 2, 8, 1, 2]),
)


def design(device: Chip, plan: Plan = PLANS, **more: object) -> Design:
    values = {"workload": SMALL, "stack": stack("compiled"), "training": Training()} | more
    return Design(chip=device, cluster=cluster("generic-8", 8), plan=plan, **values)  # type: ignore[arg-type]


def with_(device: Chip, **changes: object) -> Chip:
    return dataclasses.replace(device, **changes)


# Power cap --------------------------------------------------------------------------------------------------------


def test_a_v100_capped_at_150_watts_trains_bert_as_published() -> None:
    # McDonald et al. 2022, arXiv 2205.09646: energy -13.7%, time +6.8% against the card's own 250 W
    card = with_(chip("v100-sxm2"), clock=1.38e9)  # the PCIe part of the study
    found = []
    for cap in (250.0, 150.0):
        one = evaluate(
            Design(
                with_(card, power_cap=cap), cluster("generic-8", 1), Plan(micro_batch=32), Workload(BERT, 128, 32),
                stack("generic"), Training(precision="fp16"),
            )
        )
        assert one.value("average_power") <= cap and one.value("tdp") == cap and one.feasible[0]
        found.append(one)
    time, energy = (found[1].value(name) / found[0].value(name) - 1 for name in ("step_time", "energy_per_step"))
    assert time == pytest.approx(0.068, abs=0.03)
    assert energy == pytest.approx(-0.137, abs=0.03)
    # 150 W over the published ratio of power, 0.808: what the study's card drew
    assert found[0].value("average_power") == pytest.approx(150 / 0.808, rel=0.03)


@pytest.mark.parametrize("name", ["tpu-v4", "a100-sxm-80gb"])
def test_a_cap_above_the_power_changes_no_bit(name: str) -> None:
    device = chip(name)
    free, capped = evaluate(design(device)), evaluate(design(with_(device, power_cap=5000.0)))
    assert POWER_RULE not in free.violations and np.all(capped.violation(POWER_RULE) <= 0)
    for metric, values in free.metrics.items():
        same = np.broadcast_to(values, free.shape).reshape(-1)
        np.testing.assert_array_equal(capped.column(metric), same, err_msg=metric)


@pytest.mark.parametrize("name", ["tpu-v4", "a100-sxm-80gb"])
def test_a_lower_cap_is_never_faster_and_never_draws_more(name: str) -> None:
    caps = np.array([400.0, 300.0, 220.0, 180.0, 140.0])
    device = with_(chip(name), power_cap=caps[:, None])
    found = evaluate(design(device))
    time, power = found.metrics["step_time"], found.metrics["average_power"]
    assert np.all(np.diff(time, axis=0) >= -1e-9 * time[:-1])
    assert np.all(np.broadcast_to(power, time.shape) <= caps[:, None] * (1 + 1e-9))
    assert np.all(np.diff(found.metrics["mfu"], axis=0) <= 1e-9), "peaks stay those of the nominal clock"
    assert np.any(time[-1] > time[0])
    assert np.all(found.metrics["tdp"] <= caps[:, None])


@pytest.mark.parametrize("name", ["tpu-v4", "a100-sxm-80gb"])
def test_a_capped_design_alone_has_the_bits_it_has_in_a_batch(name: str) -> None:
    caps = np.array([0.0, 150.0, 260.0])
    mixed = evaluate(design(with_(chip(name), power_cap=caps[:, None])))
    for i, cap in enumerate(caps):
        alone = evaluate(design(with_(chip(name), power_cap=float(cap))))
        for metric, values in alone.metrics.items():
            batch = np.broadcast_to(mixed.metrics[metric], mixed.shape)[i]
            np.testing.assert_array_equal(batch, np.broadcast_to(values, alone.shape).reshape(-1), err_msg=metric)


def test_a_systolic_chip_runs_at_the_clock_at_which_its_design_power_fits() -> None:
    """By hand: the same chip without a cap, built for the lower clock and voltage, takes as long."""
    device = with_(chip("tpu-v4"), power_cap=220.0)
    r = rows(design(device))
    x = float(np.ravel(r.chip.clock / device.clock)[0])
    assert 0.3 < x < 1.0
    slow = with_(device, power_cap=0.0, clock=device.clock * x, shared_sram_bandwidth=device.shared_sram_bandwidth * x)
    np.testing.assert_array_equal(
        evaluate(design(slow)).metrics["step_time"], evaluate(design(device)).metrics["step_time"]
    )
    t = technology("7nm", "hbm2")
    v = max(0.67, x)
    assert float(np.ravel(r.technology.mac_energy)[0]) == pytest.approx(t.mac_energy * v * v)
    assert float(np.ravel(r.technology.hbm_energy)[0]) == t.hbm_energy


def test_the_parts_of_a_throttled_step_and_of_its_energy_add_up() -> None:
    found = evaluate(design(with_(chip("a100-sxm-80gb"), power_cap=200.0)))
    for whole, prefix in (("step_time", "time_"), ("energy_per_step", "energy_")):
        parts = [v for n, v in found.metrics.items() if n.startswith(prefix) and n not in (whole, "energy_per_token")]
        total_ = sum(np.broadcast_to(part, found.shape) for part in parts)
        np.testing.assert_allclose(total_, np.broadcast_to(found.metrics[whole], found.shape), rtol=1e-9)


def test_a_throttled_step_read_between_two_clocks_is_that_priced_at_its_own_clock() -> None:
    """Oracle: price the design again at the clock that was found; the line between two clocks is never shorter."""
    for name, cap in (("a100-sxm-80gb", 180.0), ("v100-sxm2", 130.0), ("h100-sxm", 260.0)):
        for i in range(6):
            plan = Plan(**{field: int(getattr(PLANS, field)[i]) for field in ("tensor", "pipeline", "data",
                                                                             "micro_batch")})  # fmt: skip
            one = design(with_(chip(name), power_cap=cap), plan, training=Training(precision="fp16"))
            r = rows(one)
            layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
            exact = evaluate_rows(settled(r, layout, price_traffic(r, layout)), layout)
            read = evaluate(one)
            assert 0 <= read.value("step_time") / exact.value("step_time") - 1 + 1e-9 < 0.02
            assert read.value("energy_per_step") == pytest.approx(exact.value("energy_per_step"), rel=0.02)


@pytest.mark.parametrize("name", ["tpu-v4", "a100-sxm-80gb"])
def test_a_cap_that_no_clock_meets_is_a_violation_with_a_number(name: str) -> None:
    found = evaluate(design(with_(chip(name), power_cap=50.0), Plan(data=8)))
    assert not found.feasible[0] and 0 < found.violated()[POWER_RULE] < 5
    assert np.isfinite(found.value("step_time"))


# Network on chip and banks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_without_a_topology_or_banks_nothing_limits_but_the_bandwidth_of_shared_sram(name: str) -> None:
    device = chip(name)
    assert (device.noc, device.sram_banks, device.power_cap) == (0, 0, 0.0)
    assert shared_sram_supply(device) is device.shared_sram_bandwidth


def test_the_least_of_bandwidth_network_and_banks_by_hand() -> None:
    base = Chip(array_count=16, clock=1e9, shared_sram_bandwidth=4e12, noc_width=64)
    # 16 cores: crossbar 16 x 64 B, ring 8 x 64 B, mesh 4 x 4 x 64 B a cycle; 10 banks of 32 B
    expected = {"none": 4e12, "crossbar": 1.024e12, "ring": 0.512e12, "mesh": 1.024e12}
    assert {noc: float(shared_sram_supply(with_(base, noc=noc))) for noc in NOC} == expected
    assert float(shared_sram_supply(with_(base, sram_banks=10, sram_bank_width=32))) == 0.32e12
    assert float(shared_sram_supply(with_(base, noc="ring", sram_banks=100))) == 0.512e12


def test_a_network_pays_for_its_own_wires_and_routers() -> None:
    device, t = with_(chip("tpu-v4"), noc="mesh", noc_width=32.0), technology("7nm", "hbm2")
    cores = device.cores * (1 + t.spare_cores)
    expected = noc_area(device.noc, cores, width=32.0, wire_pitch=t.wire_pitch, router_area=t.router_area)
    assert float(area_by_block(device, t)["noc"]) == pytest.approx(float(expected))
    carried = noc_energy(
        device.noc, device.cores, core_area=core_tile_area(device, t), wire_energy=t.wire_energy,
        router_energy=t.router_energy,
    )  # fmt: skip
    assert float(shared_sram_byte_energy(device, t)) == pytest.approx(t.bank_energy + float(carried))
    # 5 mm of wire and a bank are what the constant without a network holds
    assert t.shared_sram_energy == pytest.approx(t.bank_energy + 5e-3 * t.wire_energy)


def test_the_crossbar_of_an_a100_takes_the_area_of_the_die_photo() -> None:
    # GA100: 128 cores with a port of 64 B a cycle; 76.44 mm2 of on-chip interconnect (LLMCompass)
    t = technology("7nm", "hbm2e")
    area = noc_area(NOC.index("crossbar"), 128.0, width=64.0, wire_pitch=t.wire_pitch, router_area=t.router_area)
    assert float(area) == pytest.approx(76.44e-6, rel=0.01)


def test_a_narrow_network_slows_the_step_and_a_wide_one_does_not() -> None:
    device = chip("tpu-v4")
    base = evaluate(design(device)).metrics["step_time"]
    narrow = evaluate(design(with_(device, noc="ring", noc_width=8.0))).metrics["step_time"]
    wide = evaluate(design(with_(device, noc="crossbar", noc_width=1e6))).metrics["step_time"]
    assert np.all(narrow > base)
    np.testing.assert_array_equal(wide, base)


def test_more_banks_and_wider_links_are_never_slower_and_are_paid_for() -> None:
    rng = np.random.default_rng(4)
    count = 200
    drawn = with_(
        chip("tpu-v4"), noc=rng.integers(0, 4, count)[:, None], noc_width=rng.uniform(8, 256, count)[:, None],
        sram_banks=rng.integers(1, 64, count)[:, None], sram_bank_width=rng.uniform(8, 128, count)[:, None],
        array_count=rng.integers(1, 33, count)[:, None],
    )
    t = technology("7nm", "hbm2")
    base, area = evaluate(design(drawn)).metrics["step_time"], die_area(drawn, t)
    for field in ("noc_width", "sram_banks", "sram_bank_width"):
        more = with_(drawn, **{field: getattr(drawn, field) * 2})
        assert np.all(evaluate(design(more)).metrics["step_time"] <= base)
        assert np.all(die_area(more, t) >= area) and np.all(tdp(more, t) >= tdp(drawn, t))
    assert np.all(die_area(with_(drawn, sram_banks=drawn.sram_banks * 2), t) > area)


def test_a_topology_is_read_by_name_and_an_unknown_one_is_refused() -> None:
    assert Chip(noc="ring").noc == NOC.index("ring")
    with pytest.raises(ValueError, match="noc: found 'torus', allowed: none, crossbar, ring, mesh"):
        Chip(noc="torus")


# Dies, cost and carbon --------------------------------------------------------------------------------------------


def test_cost_yield_and_carbon_are_those_of_the_chip_alone() -> None:
    device, t, m = chip("h100-sxm"), technology("5nm", "hbm3"), market("5nm", "hbm3")
    found = evaluate(design(device, Plan(data=8)))
    assert found.value("chip_cost") == pytest.approx(float(total(chip_cost(device, t, market=m))))
    assert found.value("carbon_embodied") == pytest.approx(float(total(embodied_carbon(device, t, market=m))))
    assert found.value("die_yield") == pytest.approx(float(die_yield(die_area(device, t), m.defect_density)))
    assert found.value("reticle_excess") == pytest.approx(float(die_area(device, t)) / 858e-6 - 1)


def test_a_tokens_cost_and_carbon_by_hand() -> None:
    device = chip("a100-sxm-80gb")
    found = evaluate(design(device, Plan(data=8)))
    m, time = market("7nm", "hbm2e"), found.value("step_time")
    tokens, power, seconds = 64 * 1024, found.value("average_power"), 4 * 31_557_600.0
    capital = (found.value("chip_cost") + m.server_price) / seconds
    building = found.value("tdp") * m.pue * 10.0 / (15 * 31_557_600.0)
    cost = 8 * time * (capital + building + power * m.pue * m.electricity_price) / tokens
    assert found.value("cost_per_token") == pytest.approx(cost, rel=1e-3)
    made = 8 * time * found.value("carbon_embodied") / seconds
    used = found.value("energy_per_step") * m.pue * m.grid_carbon
    assert found.value("carbon_per_token") == pytest.approx((made + used) / tokens, rel=1e-6)


def test_two_dies_share_the_logic_pay_for_their_links_and_pass_the_reticle() -> None:
    one = with_(chip("b200-sxm"), dies=np.array([1.0, 2.0])[:, None])
    found = evaluate(design(one, Plan(data=8)))
    area, excess = found.column("die_area"), found.column("reticle_excess")
    assert area[1] == pytest.approx(1.1 * area[0])
    assert excess[0] > 0 > excess[1]
    assert found.column("die_yield")[1] > found.column("die_yield")[0]
    assert found.column("chip_cost")[1] < found.column("chip_cost")[0]


def test_bytes_that_cross_to_another_die_and_links_that_leak_are_paid_for() -> None:
    # four dies: three of four bytes between shared SRAM and a core cross, 0.5 pJ a bit; a tenth more silicon leaks
    one, t = chip("h100-sxm"), technology("5nm", "hbm3")
    four = with_(one, dies=4)
    crossed = float(shared_sram_byte_energy(four, t)) - t.shared_sram_energy
    assert crossed == pytest.approx(0.75 * 4e-12)
    leaking = 0.1 * t.leakage * float(die_area(one, t))
    moved = one.shared_sram_bandwidth * crossed * t.peak_activity
    assert float(tdp(four, t)) - float(tdp(one, t)) == pytest.approx(leaking + moved)
    batch = evaluate(design(with_(one, dies=np.array([1.0, 4.0])[:, None]), Plan(data=8)))
    alone = [evaluate(design(with_(one, dies=dies), Plan(data=8))) for dies in (1, 4)]
    for name in ("step_time", "energy_per_step", "energy_compute", "energy_static", "tdp"):
        assert batch.column(name).tolist() == [item.value(name) for item in alone]
    assert alone[1].value("step_time") == alone[0].value("step_time")
    assert alone[1].value("energy_compute") > alone[0].value("energy_compute")
    assert alone[1].value("energy_static") - alone[0].value("energy_static") == pytest.approx(
        8 * alone[0].value("step_time") * leaking
    )


def test_a_metric_that_is_not_wanted_is_not_computed_and_a_wanted_one_has_the_same_bits() -> None:
    r = rows(design(chip("a100-sxm-80gb")))
    layout = lay_out(r.plan, r.workload, r.training, paired=r.paired)
    everything = evaluate_rows(r, layout)
    some = evaluate_rows(r, layout, frozenset({"cost_per_token", "die_yield"}))
    assert set(some.metrics) == {"cost_per_token", "die_yield"}
    for name, values in some.metrics.items():
        np.testing.assert_array_equal(values, everything.metrics[name])
    assert objective("die_yield").direction == "maximize" and objective("chip_cost").unit == "USD"


def test_a_memory_generation_has_a_largest_stack() -> None:
    today = evaluate(design(chip("h100-sxm"), Plan(data=8))).value("hbm_excess")
    assert today == pytest.approx(671e9 / 819.2e9 - 1, abs=0.01)
    older = with_(chip("h200-sxm"), hbm="hbm2e")
    assert evaluate(design(older, Plan(data=8))).value("hbm_excess") > 0.5


def test_a_longer_step_costs_a_token_more_by_all_that_is_paid_by_the_hour() -> None:
    """A residual of the step time moves cost and carbon by the share that does not follow dynamic energy."""
    from dse.insight.uncertainty import time_power

    found, m = evaluate(design(chip("a100-sxm-80gb"), Plan(data=8))), market("7nm", "hbm2e")
    dynamic = (found.value("energy_compute") + found.value("energy_communication")) / (64 * 1024)
    for name, rate in (("cost_per_token", m.electricity_price), ("carbon_per_token", m.grid_carbon)):
        share = 1 - dynamic * m.pue * rate / found.value(name)
        assert time_power(found, name) == pytest.approx(share) and 0 < share < 1
    assert not time_power(found, "chip_cost").any()


# In a file --------------------------------------------------------------------------------------------------------

SEARCH = """
name: owned
workload: {network: gpt3-125m, sequence: 1024, global_batch: 64}
chip:
  base: tpu-v4
  process: [7nm, 5nm]
  hbm: [hbm2, hbm3]
  power_cap: [none, 150 W, 0.25 kW]
  noc: [none, mesh]
  noc_width: 32
  sram_banks: [0, 64]
  dies: [1, 2]
cluster: {base: generic-8, devices: 8}
plan: {micro_batch: [1, 4]}
constraints: {reticle_excess: "<= 0", hbm_excess: "<= 0", chip_cost: "<= 3 kUSD", carbon_embodied: "<= 90 kg"}
objectives: [cost_per_token, carbon_per_token, throughput]
search: {mode: exhaustive}
"""


def test_a_search_over_caps_networks_nodes_and_dies_finds_a_front(tmp_path: Path) -> None:
    from dse.api.search import search

    file = tmp_path / "owned.yaml"
    file.write_text(SEARCH)
    spec = load_search(file)
    assert spec.chip["power_cap"] == (0.0, 150.0, 250.0) and spec.chip["noc"] == (0, 3)
    limits = {limit.metric: limit.bound for limit in spec.constraints}
    assert limits["chip_cost"] == 3000.0 and limits["reticle_excess"] == 0.0
    report = search(spec, jobs=1)
    assert report.result.rows.shape[0] == len(report) > 0
    assert POWER_RULE in report.problem.constraints
    for row in range(len(report)):
        found = evaluate(report.design(row))
        assert found.feasible[0]
        for j, name in enumerate(spec.objectives):
            assert found.value(name) == report.result.values[row, j]
        cap = float(report.design(row).chip.power_cap)
        assert cap == 0 or found.value("average_power") <= cap


def test_a_cost_of_a_node_without_prices_is_a_fault_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "owned.yaml"
    file.write_text(SEARCH.replace("[7nm, 5nm]", "[7nm, phaze22nm]"))
    with pytest.raises(ConfigError, match="phaze22nm.*prices are known"):
        load_search(file)


def test_a_design_file_reads_a_cap_and_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "design.yaml"
    text = SEARCH[: SEARCH.index("plan:")].replace("[7nm, 5nm]", "7nm").replace("[hbm2, hbm3]", "hbm2")
    text = text.replace("[none, 150 W, 0.25 kW]", "300 W").replace("[none, mesh]", "mesh").replace("[0, 64]", "64")
    file.write_text(text.replace("[1, 2]", "2"))
    device = load_design(file).chip
    assert (device.power_cap, device.noc, device.sram_banks, device.dies) == (300.0, 3, 64, 2)
