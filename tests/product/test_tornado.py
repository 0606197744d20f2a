"""Constants that decide: swings known by hand, equal to evaluating each changed design, ranked and drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

import dse.insight.tornado as tornado_module
from dse.api.evaluation import evaluate
from dse.evaluation.design import Design
from dse.insight.tornado import DECIDED, tornado
from dse.insight.uncertainty import range_of, uncertain_constants
from dse.present.figures.tornado import tornado_figure
from dse.present.text.design import tornado_text
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.physical.area import die_area
from hw_models.physical.cost import chip_cost, market_of, total
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan


def one(stack_name: str = "generic", **changes: Any) -> Design:
    return Design(
        a100(), Cluster(devices=1, tiers=(Tier(size=1),)), Plan(**changes), Workload(small_network(), 64, 32),
        stack(stack_name),
    )  # fmt: skip


def eight() -> Design:
    return Design(
        a100(), cluster("dgx-a100", 8), Plan(tensor=2, data=4, micro_batch=4), Workload(small_network(), 64, 32),
        stack("megatron-lm", "a100-sxm-80gb"),
    )  # fmt: skip


def shown(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(item.get_text() for item in figure.findobj(Text))


def row(name: str, value: float, low: float, high: float, **more: str) -> dict[str, str]:
    given = {"unit": "s", "source": "hand", "confidence": "assumed", "constant": name}
    return given | {"value": str(value), "low": str(low), "high": str(high)} | more


@pytest.fixture
def only_step_overhead(monkeypatch: pytest.MonkeyPatch) -> Design:
    """A step whose only uncertain constant is the time once a step: 1 s, from 0.5 to 3 s."""
    rows = {"stack": {"step_overhead": row("step_overhead", 1.0, 0.5, 3.0)}, "technology": {}, "market": {}}
    monkeypatch.setattr(tornado_module, "uncertain_constants", lambda design: rows)
    design = one("ideal")
    return replace(design, stack=replace(design.stack, step_overhead=1.0))


def test_a_second_more_of_overhead_is_a_second_more_of_step(only_step_overhead: Design) -> None:
    found = tornado(only_step_overhead)
    (swing,) = found.swings
    time = found.values["step_time"]
    assert swing.effects["step_time"] == (pytest.approx(time - 0.5, rel=1e-12), pytest.approx(time + 2.0, rel=1e-12))
    assert swing.swing("step_time") == pytest.approx(2.5, rel=1e-12)
    assert swing.effects["die_area"] == (found.values["die_area"],) * 2
    assert [item.constant for item in found.ranked("step_time")] == ["stack.step_overhead"]
    assert found.ranked("die_area") == ()


def test_area_moves_by_the_counts_of_the_chip() -> None:
    design = one()
    found = tornado(design)
    swing = next(item for item in found.swings if item.constant == "technology.mac_area")
    # A = (1 + spare) multiply-adds x a: linear, so the swing is that of the constant times their number
    wanted = float(design.chip.macs_per_cycle) * (1 + design.constants.spare_cores) * (swing.high - swing.low)
    assert swing.swing("die_area") == pytest.approx(wanted, rel=1e-9)


def test_every_end_is_what_evaluating_that_design_alone_gives() -> None:
    design = eight()
    for item in tornado(design).swings:
        model, _, name = item.constant.partition(".")
        if model == "market":
            continue
        for value, end in ((item.low, 0), (item.high, 1)):
            if model == "stack":
                changed = replace(design, stack=replace(design.stack, **{name: value}))
            else:
                changed = replace(design, technology=replace(design.constants, **{name: value}))
            result = evaluate(changed)
            for metric, ends in item.effects.items():
                assert ends[end] == result.value(metric), (item.constant, metric)


def test_prices_move_the_cost_of_a_chip_and_a_token_and_nothing_else() -> None:
    design = eight()
    found = tornado(design, ("step_time", "chip_cost", "cost_per_token"))
    market = market_of(design.chip)
    assert market is not None
    for item in found.swings:
        model, _, name = item.constant.partition(".")
        if model != "market":
            continue
        assert item.effects["step_time"] == (found.values["step_time"],) * 2
        for value, end in ((item.low, 0), (item.high, 1)):
            priced = chip_cost(design.chip, design.constants, market=replace(market, **{name: value}))
            assert item.effects["chip_cost"][end] == pytest.approx(float(total(priced)), rel=1e-12), name
    moved = {item.constant for item in found.ranked("cost_per_token")}
    assert {"market.electricity_price", "market.lifetime", "market.wafer_price", "technology.mac_energy"} <= moved
    assert "market.electricity_price" not in {item.constant for item in found.ranked("chip_cost")}


def test_swings_are_ranked_and_what_moves_nothing_is_named() -> None:
    found = tornado(eight())
    for metric in DECIDED:
        swings = [item.swing(metric) for item in found.ranked(metric)]
        assert swings == sorted(swings, reverse=True) and all(swing > 0 for swing in swings)
        assert len(found.ranked(metric, 3)) == 3
    names = [item.constant for item in found.swings]
    assert not set(names) & set(found.unmoved) and "technology.shared_sram_area" in found.unmoved, "a cache instead"
    everything = {f"{model}.{name}" for model, rows in uncertain_constants(eight()).items() for name in rows}
    assert set(names) | set(found.unmoved) <= everything


def test_ranges_are_those_of_the_tables_and_fitted_ones_are_ninety_percent() -> None:
    assert range_of(row("x", 2.0, 1.0, 5.0)) == (1.0, 5.0)
    assert range_of(row("x", 2.0, 1.0, 5.0, standard_error="0.1")) == pytest.approx((2 - 0.1645, 2 + 0.1645))
    assert range_of(row("x", 2.0, 1.95, 5.0, standard_error="0.1"))[0] == 1.95, "no farther than what is possible"
    assert range_of({"value": "2", "low": "", "high": ""}) == (2.0, 2.0)


def test_a_constant_that_a_user_set_is_certain() -> None:
    design = one()
    chosen = replace(design, stack=replace(design.stack, matmul_efficiency=0.777))
    assert "stack.matmul_efficiency" in {item.constant for item in tornado(design).swings}
    assert "stack.matmul_efficiency" not in {item.constant for item in tornado(chosen).swings}


def test_the_evaluation_has_it_for_each_of_its_rows() -> None:
    design = one()
    several = evaluate(replace(design, chip=replace(design.chip, clock=np.array([1e9, 1.41e9]))))
    assert several.tornado(1).values["step_time"] == several["step_time"][1]
    assert several.tornado(0).values["step_time"] > several.tornado(1).values["step_time"]


def test_bad_requests_are_named() -> None:
    with pytest.raises(ValueError, match="metric: found 'speed'"):
        tornado(one(), ("speed",))
    with pytest.raises(ValueError, match="found 2 designs"):
        tornado(replace(one(), plan=Plan(micro_batch=[1, 2])))
    with pytest.raises(KeyError, match="step_time"):
        tornado(one()).ranked("mfu")


def test_a_metric_without_prices_is_left_out() -> None:
    chip = replace(
        a100(), compute="systolic", process="phaze22nm", array_count=8, array_rows=128, array_columns=128,
        vector_lanes=256, shared_sram=128 * 2**20,
    )  # fmt: skip
    found = tornado(replace(one(), chip=chip))
    assert "chip_cost" not in found.values and not any(item.constant.startswith("market") for item in found.swings)
    assert found.values["die_area"] == float(die_area(chip, replace(one(), chip=chip).constants))


def test_the_text_fits_a_terminal_and_the_data_are_json(only_step_overhead: Design) -> None:
    found = tornado(only_step_overhead)
    text = tornado_text(found)
    assert "die area" in text and "no constant moves it" in text and "step_overhead" in text
    ends = sorted(item / found.values["step_time"] - 1 for item in found.swings[0].effects["step_time"])
    assert f"{ends[0] * 100:+.1f}%" in text and f"{ends[1] * 100:+.1f}%" in text
    assert json.dumps(found.to_plain(), allow_nan=False)


def test_ten_constants_of_each_metric_are_shown() -> None:
    found = tornado(eight())
    text = tornado_text(found, 10)
    assert max(len(line) for line in text.splitlines()) <= 100
    for metric in DECIDED:
        assert metric.replace("_", " ") in text
    rest = len(found.ranked("energy_per_token")) - 10
    assert f"{rest} more move it less" in text


def test_the_picture_has_a_panel_a_metric_and_a_bar_for_each_end() -> None:
    found = tornado(eight())
    figure = tornado_figure(found)
    text = shown(figure)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert len(panels) == len(DECIDED)
    first = found.ranked("step_time", 1)[0]
    assert f"{first.constant.partition('.')[2].replace('_', ' ')} moves step time most" in text
    widths = sorted(patch.get_width() for patch in panels[0].patches)
    ends = [100 * (end / found.values["step_time"] - 1) for end in first.effects["step_time"]]
    assert any(math.isclose(width, max(ends), rel_tol=1e-9, abs_tol=1e-12) for width in widths)


def test_nothing_uncertain_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tornado_module, "uncertain_constants", lambda design: {"stack": {}, "technology": {}})
    found = tornado(one())
    assert found.swings == () and "no constant of this design has a range" in tornado_text(found, 10)
    assert "has a range" in shown(tornado_figure(found))
