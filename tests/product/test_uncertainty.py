"""Intervals and probabilities: known by hand first, then the laws of draws, then a plain Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

import dse.insight.uncertainty as uncertainty
from dse.api.search import search
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS
from dse.insight.account import comparison
from dse.insight.front_uncertainty import FRONT_COUNT, front_uncertainty
from dse.insight.uncertainty import (
    ZERO_SHOT,
    constants_drawn,
    draws,
    interval,
    market_drawn,
    priced,
    probability_better,
    residual_of,
    residual_row,
    uniform,
)
from dse.present.text.design import comparison_text
from dse.present.text.search import summary_markdown
from dse.record.write import front_frame
from hw_models import stacks
from hw_models.cluster import Cluster, Tier
from hw_models.clusters import cluster
from hw_models.physical.cost import market_of
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan

LOW, VALUE, HIGH = 0.5, 1.0, 3.0


def one(stack_name: str = "generic", **changes: Any) -> Design:
    """One device; the plan and the batch may change."""
    return Design(
        a100(), Cluster(devices=1, tiers=(Tier(size=1),)), Plan(**changes), Workload(small_network(), 64, 32),
        stack(stack_name),
    )  # fmt: skip


def eight(**changes: Any) -> Design:
    plan = {"data": 8, "micro_batch": 4, **changes}
    return Design(
        a100(), cluster("dgx-a100", 8), Plan(**plan), Workload(small_network(), 64, 32), stack("megatron-lm")
    )  # fmt: skip


def fitted(scope: str, name: str, field: str, value: float, **more: Any) -> MappingProxyType[str, str]:
    row = {"low": "", "high": "", "standard_error": "", "unit": "", "source": "", "where": "", "confidence": ""}
    row |= {"scope": scope, "name": name, "field": field, "value": str(value)}
    return MappingProxyType(row | {key: str(number) for key, number in more.items()})


@pytest.fixture
def only_step_overhead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Design]:
    """A design whose only uncertain constant is the time once a step, 1 s of 0.5 to 3 s; all else costs 0."""
    row = {"stack": "ideal", "field": "step_overhead", "value": str(VALUE), "low": str(LOW), "high": str(HIGH)}
    monkeypatch.setattr(uncertainty, "_stack_rows", lambda stack, device: [{"step_overhead": row}])
    design = one("ideal")
    yield replace(design, stack=replace(design.stack, step_overhead=VALUE))


def test_an_interval_of_one_linear_constant_is_its_quantiles(only_step_overhead: Design) -> None:
    """The rest r is certain; two triangles: 5% is low + (1 - low) sqrt(0.1), 95% high - (high - 1) sqrt(0.1)."""
    rest = evaluate(only_step_overhead).value("step_time") - VALUE
    found = interval(only_step_overhead, count=4096)
    assert found.low - rest == pytest.approx(LOW + (VALUE - LOW) * math.sqrt(0.1), abs=2e-3)
    assert found.high - rest == pytest.approx(HIGH - (HIGH - VALUE) * math.sqrt(0.1), abs=5e-3)
    assert found.median - rest == pytest.approx(VALUE, abs=2e-3)


def test_a_residual_alone_is_log_normal() -> None:
    """ideal software has no uncertain constant: low = t exp(-1.6449 s), high = t exp(1.6449 s)."""
    time = evaluate(one("ideal")).value("step_time")
    found = interval(one("ideal"), residual=0.2, count=4096)
    assert found.low == pytest.approx(time * math.exp(-1.644854 * 0.2), rel=2e-3)
    assert found.high == pytest.approx(time * math.exp(1.644854 * 0.2), rel=2e-3)
    mirrored = interval(one("ideal"), metric="throughput", residual=0.2, count=4096)
    assert mirrored.low == pytest.approx(64 * 32 / found.high, rel=2e-3)
    exact = interval(one("ideal"))
    assert exact.low == exact.high == pytest.approx(time, rel=1e-15) and "limit" in exact.source


def test_a_residual_moves_only_the_static_part_of_energy() -> None:
    result = evaluate(one("ideal"))
    share = result.value("energy_static") / result.value("energy_per_step")
    found = uncertainty.time_power(result, "energy_per_step")
    assert found == pytest.approx(share) and 0.0 < share < 1.0
    assert uncertainty.time_power(result, "average_power") == pytest.approx(share - 1.0)
    assert not uncertainty.time_power(result, "memory").any()


def test_a_fitted_constant_is_normal_and_stays_in_its_range() -> None:
    row = fitted("device", "x", "matmul_efficiency", 0.8, low=0.78, high=0.97, standard_error=0.02)
    column = uncertainty._column(row, "matmul_efficiency", 4096, 0)
    assert column is not None and 0.78 <= column.min() and column.max() < 0.97
    # cut one standard error below: median of the normal above its 15.87% quantile is at 57.93%
    assert np.median(column) == pytest.approx(0.8 + 0.02 * 0.2002, abs=1e-4)
    wide = uncertainty._column(fitted("stack", "x", "f", 1.0, low=0, high=9, standard_error=0.1), "f", 4096, 0)
    assert wide is not None and np.std(wide) == pytest.approx(0.1, rel=1e-2)


def test_a_range_of_orders_of_magnitude_is_drawn_in_the_logarithm() -> None:
    row = {"stack": "s", "value": "1e-3", "low": "1e-5", "high": "1e-1"}
    column = uncertainty._column(row, "f", 4096, 0)
    assert column is not None and np.median(np.log10(column)) == pytest.approx(-3.0, abs=2e-3)
    assert np.quantile(np.log10(column), 0.05) == pytest.approx(-5 + 2 * math.sqrt(0.1), abs=1e-2)


def test_draws_are_columns_of_what_is_uncertain() -> None:
    drawn = draws("megatron-lm", "a100-sxm-80gb", count=7)
    rows = {row["field"]: row for row in stacks.constants("megatron-lm", "a100-sxm-80gb")}
    for name, row in rows.items():
        value = getattr(drawn, name)
        if name in ("algorithms", "split_boundary", "flat_gathers") or row["low"] == row["high"]:
            assert not isinstance(value, np.ndarray)
        else:
            assert value.shape == (7, 1) and (value >= float(row["low"])).all() and (value <= float(row["high"])).all()


def test_a_constant_that_a_user_set_is_certain() -> None:
    design = one()
    chosen = replace(design, stack=replace(design.stack, matmul_efficiency=0.777))
    drawn, technology = constants_drawn(chosen, count=5)
    assert drawn.matmul_efficiency == 0.777 and drawn.memory_efficiency.shape == (5, 1)
    assert technology.mac_energy.shape == (5, 1)


def test_every_slice_of_an_unknown_is_drawn_once() -> None:
    u = uniform("x", 13, 0)
    assert sorted(np.floor(u * 13)) == list(range(13)) and (u > 0).all() and (u < 1).all()
    assert not np.array_equal(u, uniform("x", 13, 1)) and not np.array_equal(u, uniform("y", 13, 0))
    with pytest.raises(ValueError, match="count"):
        uniform("x", 0, 0)


def test_a_design_is_as_good_as_itself() -> None:
    for metric in ("step_time", "throughput", "energy_per_step", "memory"):
        assert probability_better(eight(), eight(), metric) == 0.5


def test_probabilities_of_both_orders_add_up_to_one() -> None:
    a, b = eight(), eight(micro_batch=1)
    for metric in ("step_time", "throughput", "energy_per_token"):
        assert probability_better(a, b, metric) + probability_better(b, a, metric) == pytest.approx(1.0, abs=1e-12)
    assert probability_better(a, b) == pytest.approx(probability_better(a, b, "throughput"), abs=1e-12)


def test_a_dominated_design_loses() -> None:
    slow = replace(eight(), chip=replace(a100(), hbm_stack_bandwidth=1e6))
    assert probability_better(eight(), slow) > 0.999 and probability_better(slow, eight()) < 0.001


def test_ties_of_a_certain_metric_are_one_half_and_differences_are_certain() -> None:
    small = replace(a100(), hbm_stacks=4)
    assert probability_better(replace(eight(), chip=small), eight(), "die_area") == 1.0


def test_the_same_pair_shares_half_of_its_residual_variance(only_step_overhead: Design, monkeypatch: Any) -> None:
    """Steps t and t e^g, no uncertain constants: P = Phi(g / s), of one chip and Phi(g / (s sqrt 2)) of two."""
    monkeypatch.setattr(uncertainty, "_stack_rows", lambda stack, device: [])
    monkeypatch.setattr(uncertainty, "residual_of", lambda *pair: (0.1, ""))
    rest = evaluate(only_step_overhead).value("step_time")
    slower = replace(only_step_overhead, stack=replace(only_step_overhead.stack, step_overhead=VALUE + 0.1 * rest))
    gap = math.log(evaluate(slower).value("step_time") / rest)
    phi = [0.5 * (1 + math.erf(gap / s / math.sqrt(2))) for s in (0.1, 0.1 * math.sqrt(2))]
    assert probability_better(only_step_overhead, slower) == pytest.approx(phi[0], rel=1e-12)
    other = replace(slower, chip=replace(slower.chip, name="other"))
    assert probability_better(only_step_overhead, other) == pytest.approx(phi[1], rel=1e-12)


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert interval(eight(), seed=3) == interval(eight(), seed=3) != interval(eight(), seed=4)


def test_more_draws_converge() -> None:
    exact = interval(eight(), count=4096)
    errors = [
        max(abs(interval(eight(), count=n, seed=s).high / exact.high - 1) for s in range(4)) for n in (16, 1024)
    ]
    assert errors[1] < 0.03 and errors[1] < errors[0]


def test_an_interval_agrees_with_a_plain_monte_carlo() -> None:
    """Independent random numbers: fitted constants are normal; of others, a side by a coin, a triangular distance."""
    design, random = one(), np.random.default_rng(1)
    rows = {row["field"]: row for row in stacks.constants("generic")}
    draw: dict[str, list[float]] = {}
    for _ in range(2000):
        for name, row in rows.items():
            if name in ("algorithms", "split_boundary", "flat_gathers") or row["low"] == row["high"]:
                continue
            low, value, high = (float(row[end]) for end in ("low", "value", "high"))
            if row.get("standard_error"):  # fitted: normal, cut off at its range
                error, drawn = float(row["standard_error"]), math.inf
                while not low <= drawn <= high:
                    drawn = random.normal(value, error)
                draw.setdefault(name, []).append(drawn)
                continue
            log = low > 0 and high > 10 * low
            ends = [math.log(x) if log else x for x in (low, value, high)]
            side = random.triangular(0, 0, 1)
            drawn = ends[1] + side * (ends[2] - ends[1] if random.random() < 0.5 else ends[0] - ends[1])
            draw.setdefault(name, []).append(math.exp(drawn) if log else drawn)
    columns: dict[str, Any] = {name: np.array(values) for name, values in draw.items()}
    times = evaluate(replace(design, stack=replace(design.stack, **columns))).column("step_time")
    times = times * np.exp(ZERO_SHOT * random.standard_normal(2000))
    found = interval(design, count=1024)
    assert found.median == pytest.approx(np.median(times), rel=0.05)
    assert found.low == pytest.approx(np.quantile(times, 0.05), rel=0.05)
    assert found.high == pytest.approx(np.quantile(times, 0.95), rel=0.05)


def test_a_draw_alone_gives_the_bits_of_the_batch() -> None:
    design = eight()
    drawn, technology = constants_drawn(design, count=5)
    batch = evaluate(replace(design, stack=drawn, technology=technology))
    for k in range(5):
        picked = [
            replace(model, **{n: v[k, 0] for n, v in vars(model).items() if isinstance(v, np.ndarray) and v.ndim == 2})
            for model in (drawn, technology)
        ]
        alone = evaluate(replace(design, stack=picked[0], technology=picked[1]))  # type: ignore[arg-type]
        assert all(alone.value(name) == batch.column(name)[k] for name in METRICS if batch.column(name).size == 5)


def test_the_source_says_what_an_interval_rests_on() -> None:
    rows = [fitted("pair", "megatron-lm+a100-sxm-80gb", "residual", 0.07), fitted("stack", "compiled", "f", 1.0)]
    assert residual_of("megatron-lm", "a100-sxm-80gb", rows) == (0.07, "calibrated (stack, device)")
    assert residual_of("megatron-lm", "my-chip", rows) == (ZERO_SHOT, "stack calibrated, device not")
    assert residual_of("compiled", "tpu-v4", rows) == (ZERO_SHOT, "stack calibrated, device not")
    assert residual_of("generic", "my-chip", rows) == (ZERO_SHOT, "constants alone")
    unseen = replace(one(), chip=replace(a100(), name="my-chip"))
    assert interval(unseen).source == "constants alone" and interval(unseen).residual == ZERO_SHOT


def test_a_residual_is_the_root_mean_square_of_log_ratios() -> None:
    row = residual_row("megatron-lm", "a100-sxm-80gb", [math.exp(0.1), math.exp(-0.1), math.exp(0.1), math.exp(-0.1)])
    assert row is not None and float(row["value"]) == pytest.approx(0.1)
    assert (row["scope"], row["name"], row["field"]) == ("pair", "megatron-lm+a100-sxm-80gb", "residual")
    assert residual_row("megatron-lm", "a100-sxm-80gb", [1.0, 1.1]) is None
    # the rows of constants that a stack is made of do not see it
    known = stacks.Constants((MappingProxyType(row),), "test")
    assert replace(stack("megatron-lm", "a100-sxm-80gb", calibrated=known), source="") == replace(
        stack("megatron-lm", calibrated=False), source=""
    )


def test_bad_questions_are_errors() -> None:
    with pytest.raises(ValueError, match="metric"):
        interval(one(), metric="speed")
    with pytest.raises(ValueError, match="metric"):
        probability_better(one(), one(), "speed")
    with pytest.raises(ValueError, match="level"):
        interval(one(), level=1.0)
    with pytest.raises(ValueError, match="allowed: one"):
        interval(replace(one(), plan=Plan(micro_batch=np.array([1, 2, 4]))))


def test_a_comparison_says_how_sure_it_is() -> None:
    found = comparison(eight(), eight(micro_batch=1))
    assert [pair.metric for pair in found.uncertainty] == ["step_time", "throughput", "energy_per_step"]
    assert found.uncertainty[0].a == interval(eight())
    assert found.uncertainty[0].probability_a == probability_better(eight(), eight(micro_batch=1))
    text = comparison_text(found)
    assert "A is better" in text and "constants alone" in text or "calibrated" in text
    assert "probability_a" in found.to_plain()["uncertainty"][0]


def test_a_front_says_how_sure_it_is_with_the_bits_of_each_design_alone() -> None:
    report = search("quickstart", budget=12, jobs=1)
    found, count = front_uncertainty(report), FRONT_COUNT
    name = report.problem.objectives[0].name
    for row in range(len(report)):
        alone = interval(report.design(row), count=count)
        assert (found.low[row], found.high[row]) == (alone.low, alone.high)
        better = probability_better(report.design(0), report.design(row), name, count=count)
        assert found.probability_best[row] == better and (better == 0.5 if row == 0 else better != 0.5)
    frame = front_frame(report)
    assert list(frame.columns[-4:-1]) == ["step time low [ms]", "step time high [ms]", "probability best"]
    assert "with 90% probability" in summary_markdown(report)
    assert np.isnan(front_uncertainty(report, most=1).low[1:]).all()


def test_the_cost_of_a_chip_is_as_uncertain_as_the_price_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One uncertain price of two triangles: cost = rest + capacity x price, so its quantiles are those of the price."""
    design = one("ideal")
    market = market_of(design.chip)
    assert market is not None
    price = market.memory_price
    row = {"node": "x", "value": str(price), "low": str(0.5 * price), "high": str(3 * price)}
    monkeypatch.setattr(uncertainty, "_price_rows", lambda chip: {"memory_price": row})
    monkeypatch.setattr(uncertainty, "_technology_rows", lambda process, hbm: ())
    found = interval(design, metric="chip_cost", count=4096)
    memory = design.chip.hbm_capacity * price / market.package_yield
    rest = evaluate(design).value("chip_cost") - memory
    assert found.low - rest == pytest.approx(memory * (1 - 0.5 * (1 - math.sqrt(0.1))), rel=2e-3)
    assert found.high - rest == pytest.approx(memory * (1 + 2 * (1 - math.sqrt(0.1))), rel=2e-3)


def test_prices_that_are_drawn_move_costs_and_nothing_else() -> None:
    design = eight()
    drawn = market_drawn(design, count=5)
    assert drawn is not None and drawn.wafer_price.shape == (5, 1) and isinstance(drawn.wafer_diameter, float)
    plain = evaluate(design)
    under = priced(design, plain, drawn)
    assert np.ptp(under.column("chip_cost")) > 0 and np.ptp(under.column("cost_per_token")) > 0
    assert np.all(under.column("step_time") == plain.value("step_time"))
    assert np.array_equal(priced(design, plain, market_of(design.chip)).column("chip_cost"), plain.column("chip_cost"))


def test_cost_and_carbon_of_a_token_have_intervals() -> None:
    for metric in ("cost_per_token", "carbon_per_token", "chip_cost"):
        found = interval(eight(), metric=metric, count=64)
        assert 0 < found.low < found.median < found.high
