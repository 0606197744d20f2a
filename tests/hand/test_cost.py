"""Yield, wafers, cost of a chip, of an hour, and carbon."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from hw_models.chip import Chip
from hw_models.devices import chip
from hw_models.physical.area import die_area
from hw_models.physical.cost import (
    PARTS,
    RUNNING_PARTS,
    Market,
    area_per_die,
    chip_cost,
    constants,
    device_hour_cost,
    die_yield,
    dies_per_wafer,
    embodied_carbon,
    good_die_cost,
    market,
    market_of,
    nodes,
    operational_carbon,
    reticle_excess,
    silicon_area,
    total,
    wafer_carbon,
)
from hw_models.tables import table
from hw_models.technology import memories, technology

NODES = ("28nm", "16nm", "12nm", "7nm", "6nm", "5nm", "4nm", "3nm")


def test_negative_binomial_yield_by_hand() -> None:
    # 3 cm2 at 0.1 defects a cm2, three clusters: (1 + 0.3/3)^-3 = 1/1.331
    assert die_yield(3e-4, 1000.0) == pytest.approx(1 / 1.331)
    assert die_yield(3e-4, 1000.0, clustering=1) == pytest.approx(1 / 1.3)
    assert die_yield(3e-4, 0.0) == 1.0


def test_many_clusters_tend_to_poisson() -> None:
    assert die_yield(3e-4, 1000.0, clustering=5000) == pytest.approx(math.exp(-0.3), rel=1e-4)


def test_dies_per_wafer_by_hand() -> None:
    # 100 mm2 dies on 300 mm without rim or scribe: 70,685.8/100 - 942.48/14.142 = 706.86 - 66.64 = 640.2
    assert dies_per_wafer(1e-4, edge_exclusion=0.0, scribe=0.0) == 640
    assert dies_per_wafer(0.08) == 0


def test_dies_per_wafer_follow_a_count_of_squares_on_a_disc() -> None:
    # oracle: place a grid of squares on the disc, the best of some offsets; the formula ignores how rows interlock
    for side in (10e-3, 20e-3, 28e-3):
        best = 0
        for shift in np.linspace(0.0, 1.0, 5):
            edges = (np.arange(-40, 41) + shift) * side
            reach = np.maximum(np.abs(edges), np.abs(edges + side))
            best = max(best, int(np.sum(reach[:, None] ** 2 + reach[None, :] ** 2 <= 0.15**2)))
        assert dies_per_wafer(side * side, edge_exclusion=0.0, scribe=0.0) == pytest.approx(best, rel=0.12)


def test_a_good_die_by_hand() -> None:
    # 640 dies of 100 mm2 at 0.09 a cm2: yield (1.03)^-3; 9,346 USD a wafer: 15.96 USD
    m = replace(market("7nm"), edge_exclusion=0.0, scribe=0.0)
    assert good_die_cost(1e-4, market=m) == pytest.approx(9346 / 640 * 1.03**3)
    assert good_die_cost(0.08, market=m) == np.inf


def test_two_dies_yield_better_and_pay_for_their_links() -> None:
    m = market("5nm", "hbm3")
    assert area_per_die(8e-4, dies=2, market=m) == pytest.approx(4.4e-4)
    assert area_per_die(8e-4, dies=1, market=m) == 8e-4
    one, two = good_die_cost(8e-4, market=m), 2 * good_die_cost(area_per_die(8e-4, dies=2, market=m), market=m)
    assert two < one


def test_the_reticle_is_a_number() -> None:
    m = market("5nm", "hbm3")
    assert reticle_excess(858e-6, market=m) == pytest.approx(0.0)
    assert reticle_excess(1600e-6, market=m) > 0 > reticle_excess(1500e-6, dies=2, market=m)


def test_the_cost_of_an_h100_is_below_its_published_manufacturing_cost_and_above_its_memory() -> None:
    # an analyst's 3,320 USD (Raymond James, by Epoch AI) holds a margin of the foundry's and memory maker's customers
    device = chip("h100-sxm")
    parts = chip_cost(device, technology("5nm", "hbm3"), market=market("5nm", "hbm3"))
    assert tuple(parts) == PARTS
    assert 0.4 * 3320 < float(total(parts)) < 1.2 * 3320
    assert float(parts["memory"]) == pytest.approx(5 * 17179869184 * 12e-9)
    assert float(parts["lost_in_package"]) == pytest.approx(float(total(parts)) * 0.02, rel=1e-9)


def test_the_interposer_of_a_reticle_and_five_stacks_costs_what_a_calculator_says() -> None:
    # 1,705 mm2 and 206 USD with a yield of 74% (legitlads.com), inside low and high of the price
    rows = {row["constant"]: row for row in constants("5nm", "hbm3")}
    low, high = (float(rows["interposer_price"][key]) for key in ("low", "high"))
    assert low * 1705e-6 < 206 <= high * 1705e-6 * 1.01
    assert (858e-6 + 5 * 110e-6) * float(rows["interposer_margin"]["value"]) == pytest.approx(1705e-6, rel=0.02)


def test_a_day_of_a_kilowatt_by_hand() -> None:
    # 1 kW x PUE 1.1 x 0.083 USD/kWh; 10,000 USD over four years; building 10 USD/W over fifteen
    m = market("7nm")
    parts = device_hour_cost(10_000.0, 1000.0, design_power=1000.0, market=m)
    assert tuple(parts) == RUNNING_PARTS
    assert parts["electricity"] == pytest.approx(1.1 * 0.083)
    assert parts["device"] == pytest.approx(10_000 / (4 * 365.25 * 24))
    assert parts["power_provision"] == pytest.approx(1000 * 1.1 * 10 / (15 * 365.25 * 24))


def test_half_the_work_costs_twice_the_hardware_and_the_same_electricity() -> None:
    m = market("7nm")
    full, half = (device_hour_cost(1e4, 500.0, design_power=700.0, market=m, utilization=u) for u in (1.0, 0.5))
    assert half["device"] == 2 * full["device"] and half["server"] == 2 * full["server"]
    assert half["electricity"] == full["electricity"]


def test_carbon_of_a_wafer_and_of_a_training_run_by_hand() -> None:
    # ACT, 7 nm: 2.15 kWh x 0.583 + 0.35 + 0.5 kg a cm2; LLaMA-65B: 449 MWh with PUE 1.1 at 0.385 kg/kWh = 173 t
    assert wafer_carbon(market("7nm")) == pytest.approx((2.15 * 0.583 + 0.35 + 0.5) * 1e4)
    assert operational_carbon(449e6 * 3600 / 1.1, market=market("7nm")) == pytest.approx(173e3, rel=0.005)
    device, t = chip("a100-sxm-80gb"), technology("7nm", "hbm2e")
    parts = embodied_carbon(device, t, market=market("7nm", "hbm2e"))
    assert all(float(value) > 0 for value in parts.values()) and 10 < float(total(parts)) < 100


def test_more_defects_area_and_memory_never_cost_less() -> None:
    rng = np.random.default_rng(7)
    drawn = Chip(
        array_count=np.ceil(rng.uniform(1, 60, 500)), shared_sram=rng.uniform(1e6, 3e8, 500),
        hbm_stacks=np.ceil(rng.uniform(1, 8, 500)),
    )
    t, m = technology("5nm", "hbm3"), market("5nm", "hbm3")
    base = total(chip_cost(drawn, t, market=m))
    larger = total(chip_cost(replace(drawn, array_count=drawn.array_count + 8), t, market=m))
    fuller = total(chip_cost(replace(drawn, hbm_stack_capacity=drawn.hbm_stack_capacity * 2), t, market=m))
    worse = total(chip_cost(drawn, t, market=replace(m, defect_density=m.defect_density * 2)))
    assert np.all(larger >= base) and np.all(fuller > base) and np.all(worse > base)


def test_a_chip_alone_costs_the_bits_it_costs_in_a_batch() -> None:
    counts = np.array([3.0, 17.0, 29.0])
    t, m = technology("7nm", "hbm2e"), market("7nm", "hbm2e")
    batch = chip_cost(Chip(array_count=counts), t, market=m)
    for i, count in enumerate(counts):
        alone = chip_cost(Chip(array_count=count), t, market=m)
        assert all(float(alone[part]) == float(np.broadcast_to(batch[part], 3)[i]) for part in PARTS)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("hbm", memories())
def test_every_price_has_unit_range_source_and_place(node: str, hbm: str) -> None:
    units = {item.name: item.metadata["unit"] for item in fields(Market) if item.name != "name"}
    rows = constants(node, hbm)
    assert sorted(row["constant"] for row in rows) == sorted(units)
    for row in rows:
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"]), row
        assert row["unit"] == units[row["constant"]], row
        assert row["source"].strip() and row["where"].strip() and row["confidence"].strip(), row
    assert die_area(Chip(), technology(node, hbm)) > 0


def test_newer_wafers_cost_more() -> None:
    prices = [market(node).wafer_price for node in NODES]
    assert prices == sorted(prices)
    assert {row["node"] for row in table("cost")} >= set(NODES)


def test_an_unknown_node_or_memory_names_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="process: found '8nm', allowed: "):
        market("8nm")
    with pytest.raises(ValueError, match="hbm: found 'hbm9'"):
        market("7nm", "hbm9")
    with pytest.raises(ValueError, match="wafer_price: found -1"):
        replace(market("7nm"), wafer_price=-1.0)


def test_a_chip_has_the_market_of_its_node_and_a_template_has_none() -> None:
    assert market_of(chip("h100-sxm")) == market("5nm", "hbm3")
    assert market_of(Chip(process="phaze22nm")) is None
    assert nodes() == NODES


def test_several_dies_add_their_links_to_the_silicon_and_the_chip_says_how_many_there_are() -> None:
    two, t, m = chip("b200-sxm"), technology("5nm", "hbm3e"), market("5nm", "hbm3e")
    one = replace(two, dies=1)
    assert silicon_area(one, t) == die_area(one, t)
    assert float(silicon_area(two, t)) == pytest.approx(1.1 * float(die_area(one, t)))
    assert chip_cost(two, t, market=m) == chip_cost(one, t, market=m, dies=2)
    assert embodied_carbon(two, t, market=m) == embodied_carbon(one, t, market=m, dies=2)
