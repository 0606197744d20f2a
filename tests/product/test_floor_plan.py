"""A chip opened: blocks that add up, numbers worked out by hand, and pictures whose areas are to scale."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.api.chip import compare_chips, explain_chip
from dse.api.evaluation import evaluate
from dse.evaluation.design import Design
from dse.insight.floor_plan import FloorPlan
from dse.present.figures import chip as plots_chip
from dse.present.figures.chip import chip_comparison_figure, floor_plan_figure, spread
from dse.present.figures.die import Box, die_boxes, tiles
from dse.present.text.chip import BLOCK_WORDS
from hw_models import devices, technology
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.physical import area, cost, power
from hw_models.physical.dvfs import capped_point
from workloads.network import Workload
from workloads.plan import Plan
from workloads.published import network

NAMES = devices.names()

#: 2 cores of one 10 x 10 array at 1 GHz, 100 lanes, 1 MiB and 4 MiB of SRAM, one stack: every number by head.
SMALL = Chip(
    name="small", array_count=2, array_rows=10, array_columns=10, clock=1e9, vector_lanes=100, local_sram=2**20,
    shared_sram=4 * 2**20, shared_sram_bandwidth=1e12, hbm_stacks=1, hbm_stack_capacity=8e9, hbm_stack_bandwidth=2e11,
    links=3, link_bandwidth=1e10, matmul_rates={"bf16": 1.0, "fp8": 2.0},
)  # fmt: skip


def shown(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(item.get_text() for item in figure.findobj(Text))


def test_numbers_of_a_small_chip_worked_out_by_hand() -> None:
    found = explain_chip(SMALL)
    # 2 arrays x 100 multiply-adds x 2 FLOP x 1 GHz = 400 GFLOP/s; 200 GB/s over it is half a byte for each FLOP
    peaks = [(item.precision, item.flops, item.hbm_bytes_per_flop, item.sram_bytes_per_flop) for item in found.peaks]
    assert peaks == [("fp8", 8e11, 0.25, 1.25), ("bf16", 4e11, 0.5, 2.5)]
    wanted = {
        "cores": 2, "macs_per_cycle": 200, "vector_flops": 2e11, "local_sram": 2 * 2**20, "on_chip_sram": 6 * 2**20,
        "hbm_capacity": 8e9, "hbm_bandwidth": 2e11, "link_bandwidth": 3e10,
    }  # fmt: skip
    assert {name: found.fact(name) for name in wanted} == wanted
    assert next(block.value for block in found.area if block.name == "links") == pytest.approx(
        3e10 * technology.technology("7nm", "hbm2e").link_area_per_bandwidth, rel=1e-15
    )


@pytest.mark.parametrize("name", NAMES)
def test_blocks_add_up_to_what_a_search_sees(name: str) -> None:
    chip = devices.chip(name)
    known, found = technology.technology(chip.process, chip.hbm), explain_chip(devices.chip(name))
    silicon = float(cost.silicon_area(chip, known))
    assert math.fsum(block.value for block in found.area) == pytest.approx(silicon, rel=1e-12)
    assert math.fsum(block.value for block in found.power) == pytest.approx(float(power.tdp(chip, known)), rel=1e-12)
    for table, whole in (("area", "die_area"), ("power", "tdp"), ("cost", "chip_cost"), ("carbon", "embodied_carbon")):
        parts = getattr(found, table)
        assert math.fsum(block.value for block in parts) == pytest.approx(found.fact(whole), rel=1e-12)
        assert math.fsum(block.share for block in parts) == pytest.approx(1.0, rel=1e-12)
        assert {block.name for block in parts} <= set(BLOCK_WORDS)
    assert set(area.BLOCKS) | set(power.BLOCKS) <= set(BLOCK_WORDS) & set(plots_chip.COLOURS)


def test_the_floor_plan_is_that_of_the_evaluation() -> None:
    chip = devices.chip("tpu-v4")
    design = Design(
        chip, Cluster(devices=1, tiers=(Tier(size=1),)), Plan(), Workload(network("gpt2-small"), 1024, 8)
    )
    result, found = evaluate(design), explain_chip(chip)
    assert result.value("die_area") == pytest.approx(found.fact("die_area"), rel=1e-14)
    assert result.value("tdp") == pytest.approx(found.fact("tdp"), rel=1e-12), "bf16 is its hottest precision"


def test_yield_and_cost_are_those_of_the_cost_model() -> None:
    chip = devices.chip("h100-sxm")
    market, found = cost.market(chip.process, chip.hbm), explain_chip(chip)
    # negative binomial with a = 3
    assert found.fact("die_yield") == pytest.approx(
        (1 + found.fact("die_area") * market.defect_density / 3) ** -3, rel=1e-12
    )
    assert found.fact("good_dies_per_wafer") == found.fact("die_yield") * found.fact("dies_per_wafer")
    assert found.fact("good_die_cost") == pytest.approx(market.wafer_price / found.fact("good_dies_per_wafer"))
    assert next(b.value for b in found.cost if b.name == "memory") == chip.hbm_capacity * market.memory_price


def test_a_process_without_prices_says_so_and_has_no_cost() -> None:
    template = replace(
        SMALL, process="phaze22nm", array_count=8, array_rows=128, array_columns=128, vector_lanes=256,
        shared_sram=128 * 2**20,
    )  # fmt: skip
    found = explain_chip(template)
    assert found.cost == found.carbon == () and math.isnan(found.fact("chip_cost"))
    assert "no prices of the process phaze22nm" in found.text() and "none spare" in found.text()
    assert {block.name for block in found.area} == {"arrays", "vector", "local_sram", "shared_sram"}
    assert json.dumps(found.to_plain(), allow_nan=False)
    assert "no prices" in shown(floor_plan_figure(found))
    both = compare_chips(found, explain_chip(SMALL))
    assert next(pair.a for pair in both.table("cost") if pair.name == "dies") is None and "n/a" in both.text()


def test_a_preset_has_published_numbers_until_it_is_changed() -> None:
    preset = devices.chip("a100-sxm-80gb")
    known = explain_chip(preset)
    assert known.published is not None and known.published.die_area == 826e-6 and "826 mm2" in known.text()
    changed = explain_chip(replace(preset, clock=1e9))
    assert changed.published is None
    assert "changed: clock 1 GHz instead of 1.41 GHz" in changed.text() and "published" not in changed.text()


def test_a_constant_changed_by_hand_is_counted_as_such() -> None:
    base = technology.technology("7nm", "hbm2e")
    found = explain_chip(SMALL, replace(base, mac_area=2 * base.mac_area))
    assert found.constants[0].confidence["changed by hand"] == 1
    arrays = [next(b.value for b in side.area if b.name == "arrays") for side in (explain_chip(SMALL), found)]
    assert arrays[1] == pytest.approx(2 * arrays[0], rel=1e-15)


def test_it_says_which_die_it_shows() -> None:
    assert "parts that are enabled and 9.0% more cores as spares" in " ".join(explain_chip(SMALL).text().split())
    whole = replace(technology.technology("7nm", "hbm2e"), spare_cores=0.0)
    assert "none spare" in explain_chip(SMALL, whole).text()


@pytest.mark.parametrize("name", NAMES)
def test_texts_fit_a_terminal_and_name_every_part(name: str) -> None:
    found = explain_chip(devices.chip(name))
    text = found.text()
    assert max(len(line) for line in text.splitlines()) <= 100
    for words in ("Area of the logic die", "Design power", "Peaks", "of the reticle", "technology.csv", "cost.csv"):
        assert words in text
    other = compare_chips(found, explain_chip(SMALL)).text()
    assert max(len(line) for line in other.splitlines()) <= 100 and "B/A" in other


def test_a_column_of_chips_is_refused_by_field() -> None:
    with pytest.raises(ValueError, match="chip.clock: found a column"):
        explain_chip(replace(SMALL, clock=np.array([1e9, 2e9])))
    with pytest.raises(KeyError, match="die_area"):
        explain_chip(SMALL).fact("weight")


def test_several_dies_are_smaller_yield_better_and_are_named() -> None:
    chip = devices.chip("h100-sxm")
    one, two = explain_chip(chip), explain_chip(replace(chip, dies=2))
    share = cost.market(chip.process, chip.hbm).die_to_die_share
    assert two.fact("reticle_share") == pytest.approx(one.fact("reticle_share") / 2 * (1 + share), rel=1e-12)
    assert two.fact("die_yield") > one.fact("die_yield")
    assert two.fact("die_area") == pytest.approx(one.fact("die_area") * (1 + share), rel=1e-12)
    between = next(block.value for block in two.area if block.name == "die_to_die")
    assert between == pytest.approx(one.fact("die_area") * share, rel=1e-9)
    assert two.fact("chip_cost") == math.fsum(block.value for block in two.cost)
    assert "2 dies, each" in two.text()


def test_a_power_cap_shows_the_clock_that_fits_it() -> None:
    chip = devices.chip("tpu-v4")
    found = explain_chip(replace(chip, power_cap=250.0))
    assert 0 < found.fact("capped_clock") < chip.clock and "capped at 250 W" in found.text()
    assert "power_cap 250 W instead of none" in found.text() and "runs faster" not in found.text()
    followed = replace(devices.chip("h100-sxm"), power_cap=400.0)
    assert "work that draws less runs faster" in explain_chip(followed).text()
    # a cap that the lowest clock of a search does not meet is met by none here
    least = 250.0 * (1.0 + float(capped_point(found.chip, found.technology).excess))
    below, above = (explain_chip(replace(chip, power_cap=share * least)) for share in (0.99, 1.01))
    assert below.fact("capped_clock") == 0.0 and "fits at no clock" in below.text()
    assert above.fact("capped_clock") > chip.clock / 16
    with pytest.raises(KeyError):
        explain_chip(chip).fact("capped_clock")
    both = compare_chips(explain_chip(chip), found)
    assert next(pair.a for pair in both.table("facts") if pair.name == "power_cap") is None


def test_a_named_network_and_banks_are_shown_with_what_they_supply() -> None:
    found = explain_chip(replace(devices.chip("tpu-v4"), noc="mesh", sram_banks=4, sram_bank_width=64.0))
    # four banks of 64 bytes a cycle at 1.05 GHz supply less than 4 TB/s
    assert found.fact("shared_sram_bandwidth") <= 4 * 64 * 1.05e9 and "4 banks, mesh" in found.text()
    assert "noc mesh instead of none; sram_banks 4 instead of 0" in " ".join(found.text().split())


def test_two_chips_have_ratios_and_what_one_lacks_counts_nothing() -> None:
    a, b = explain_chip(SMALL), explain_chip(replace(SMALL, hbm_stacks=2, links=0, matmul_rates={"bf16": 1.0}))
    found = compare_chips(a, b)
    pairs = {(item.table, item.name): item for item in found.pairs}
    assert pairs["facts", "hbm_bandwidth"].ratio == 2.0
    assert (pairs["area", "links"].b, pairs["area", "links"].ratio) == (0.0, 0.0)
    assert (pairs["peaks", "fp8"].b, pairs["peaks", "fp8"].ratio) == (None, None)
    assert all(item.ratio == 1.0 for item in compare_chips(a, a).pairs if item.a)
    assert json.dumps(found.to_plain(), allow_nan=False)


# Pictures ------------------------------------------------------------------------------------------------------------


def overlaps(a: Box, b: Box) -> bool:
    slack = 1e-9
    return (
        a.x + slack < b.x + b.width and b.x + slack < a.x + a.width
        and a.y + slack < b.y + b.height and b.y + slack < a.y + a.height
    )  # fmt: skip


PLANS: dict[str, FloorPlan] = {
    **{name: explain_chip(devices.chip(name)) for name in ("tpu-v4", "h100-sxm", "mi300x", "p100-sxm2")},
    "small": explain_chip(SMALL), "no links": explain_chip(replace(SMALL, links=0)),
    "many cores": explain_chip(replace(SMALL, array_count=4096)),
    "four dies": explain_chip(replace(devices.chip("h100-sxm"), dies=4, hbm_stacks=8)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_boxes_on_the_die_have_the_area_of_their_blocks_and_do_not_overlap(name: str) -> None:
    plan = PLANS[name]
    boxes, dies = die_boxes(plan), int(plan.chip.dies)
    side = math.sqrt(plan.fact("die_area") / dies)
    drawn: dict[str, float] = {}
    for box in boxes:
        drawn[box.block] = drawn.get(box.block, 0.0) + box.area
        assert box.x >= -1e-9 and box.y >= -1e-9 and box.x + box.width <= side + 1e-9 >= box.y + box.height - 1e-9
    assert drawn == pytest.approx({block.name: block.value / dies for block in plan.area}, rel=1e-9)
    some = boxes[:: max(1, len(boxes) // 150)]
    assert not any(overlaps(a, b) for i, a in enumerate(some) for b in some[:i])


def test_pale_cores_are_the_spare_ones() -> None:
    # 132 enabled of round(132 x 1.09) = 144
    spare = [box for box in die_boxes(PLANS["h100-sxm"]) if box.spare and box.block == "arrays"]
    assert len(spare) == 12


@pytest.mark.parametrize("count", [1, 2, 3, 7, 11, 144])
def test_tiles_fill_their_rectangle_in_equal_areas(count: int) -> None:
    found = tiles(1.0, 2.0, 7.0, height=3.0, count=count)
    assert [w * h for _, _, w, h in found] == pytest.approx([21.0 / count] * count)
    assert min(x for x, *_ in found) == 1.0 and min(y for _, y, *_ in found) == pytest.approx(2.0)


def test_names_that_are_near_are_spread_about_their_mean() -> None:
    assert spread([0.9, 0.5], 0.1) == [0.9, 0.5]
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.55, 0.45])
    found = spread([0.9, 0.52, 0.5, 0.49, 0.1], 0.1)
    assert found == sorted(found, reverse=True) and -np.diff(found).max() >= 0.1 - 1e-12


@pytest.mark.parametrize("name", PLANS)
def test_pictures_name_the_chip_its_blocks_and_their_watts(name: str) -> None:
    plan = PLANS[name]
    text = shown(floor_plan_figure(plan))
    for words in (plan.chip.name, "mm²", "TDP", "To make one", plan.peaks[0].precision):
        assert words in text
    assert text.count("HBM") >= 3


def test_equal_chips_give_equal_pictures_and_a_wrong_ending_is_refused(tmp_path: Path) -> None:
    import matplotlib

    plan = PLANS["tpu-v4"]
    before = {name: value for name, value in matplotlib.rcParams.copy().items() if name != "backend"}
    for ending in ("png", "svg"):
        first, second = (plan.save(tmp_path / f"{i}.{ending}").read_bytes() for i in range(2))
        assert first == second
    assert before == {name: value for name, value in matplotlib.rcParams.copy().items() if name != "backend"}
    with pytest.raises(ValueError, match="png or .svg"):
        plan.save(tmp_path / "x.pdf")


def test_two_packages_are_drawn_at_one_scale() -> None:
    figure = chip_comparison_figure(compare_chips(PLANS["tpu-v4"], PLANS["h100-sxm"]))
    one, other = figure.axes[:2]
    assert one.get_xlim() == other.get_xlim() and one.get_ylim() == other.get_ylim()
    assert "h100-sxm has 1.29 times the die" in shown(figure)
