"""A front under draws: intervals of one constant by hand, order that draws cannot change, columns and bars."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse.insight.front_intervals as module
from dse.api.search import SearchReport, search
from dse.inputs.yaml.load import load_search
from dse.insight.front_intervals import front_intervals
from dse.insight.front_uncertainty import front_results
from dse.insight.uncertainty import residual_of, time_power, uniform
from dse.present.figures.data import front_data
from dse.present.figures.front import front_figure
from dse.present.text.search import intervals_text
from dse.problem.filter import filtered
from dse.record.write import front_frame, write_outputs

TINY = """\
name: tiny
workload:
  network: {name: tiny, layers: 2, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 997}
  sequence: 1024
  global_batch: 8
stack: compiled
chip:
  process: 7nm
  array_count: [4, 64]
  array_rows: 32
  array_columns: 32
  clock: [0.8 GHz, 1.2 GHz]
  vector_lanes: 1024
  shared_sram: 16 MiB
  hbm_stacks: [1, 2, 4]
  hbm_stack_capacity: 8 GB
cluster: {devices: 4, tiers: [{size: 4, bandwidth: chip links}]}
plan: {micro_batch: 1, order: tensor-data-pipeline, split: uniform}
constraints: {die_area: "<= 290 mm2"}
objectives: [throughput, energy_per_token, die_area]
search: {mode: exhaustive, budget: 12, seed: 0}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    path = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    path.write_text(TINY)
    return search(load_search(path), jobs=1)


def shown(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(item.get_text() for item in figure.findobj(Text))


def test_intervals_are_quantiles_of_the_draws_with_the_residual(report: SearchReport) -> None:
    from scipy.special import ndtri

    found = front_intervals(report, count=64)
    assert len(report) > 1 and found.low.shape == (len(report), 3)
    for i, result in enumerate(front_results(report, len(report), 64, 0)):
        pair = report.spec.stack.name, result.design.chip.name
        z = ndtri(uniform(f"residual {'+'.join(pair)}", 64, 0)) * residual_of(*pair)[0]
        for j, name in enumerate(found.objectives):
            drawn = result.column(name) * np.exp(z * time_power(result, name))
            low, high = np.quantile(drawn, [0.1, 0.9])
            assert (found.low[i, j], found.high[i, j]) == (pytest.approx(low), pytest.approx(high))
    assert np.all(found.low <= found.high)


def test_a_wider_level_is_a_wider_interval_and_draws_are_repeatable(report: SearchReport) -> None:
    narrow, wide = front_intervals(report, count=64, level=0.5), front_intervals(report, count=64, level=0.9)
    assert np.all(wide.low <= narrow.low) and np.all(narrow.high <= wide.high)
    again = front_intervals(report, count=64, level=0.5)
    assert np.array_equal(again.low, narrow.low) and np.array_equal(again.on_front, narrow.on_front)
    assert not np.array_equal(front_intervals(report, count=64, seed=1).low, front_intervals(report, count=64).low)
    with pytest.raises(ValueError, match="level"):
        front_intervals(report, level=1.0)


def test_blocks_of_designs_have_the_draws_of_one_block(report: SearchReport, monkeypatch: pytest.MonkeyPatch) -> None:
    import dse.insight.front_uncertainty as uncertainty

    whole = front_intervals(report, count=16)
    monkeypatch.setattr(uncertainty, "AT_ONCE", 2)
    parts = front_intervals(report, count=16)
    assert np.array_equal(whole.low, parts.low) and np.array_equal(whole.within_limits, parts.within_limits)


def drawn(monkeypatch: pytest.MonkeyPatch, values: Any) -> None:
    """Objectives (N, K, J) in the place of the draws."""
    found = np.asarray(values, dtype=float)
    monkeypatch.setattr(
        module, "_drawn", lambda report, n, count, seed, *, objectives: (found[:n], ["hand"], np.ones(n))
    )


def test_a_design_stays_on_the_front_in_the_draws_in_which_nothing_beats_it(
    report: SearchReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(report, result=replace(report.result, rows=report.result.rows[:2], plans=report.result.plans[:2]))
    # throughput (more), energy (less), area (less): the second is beaten in draws 0 and 1, never the first
    first = [[10, 1.0, 5], [10, 1.0, 5], [10, 1.0, 5], [10, 1.0, 5]]
    second = [[9, 1.1, 5], [9, 1.0, 6], [11, 1.1, 5], [9, 0.9, 5]]
    drawn(monkeypatch, [first, second])
    found = front_intervals(two, count=4)
    assert found.on_front.tolist() == [1.0, 0.5]
    # the first is beaten where the second is better in one and worse in none
    drawn(monkeypatch, [first, [[10, 1.0, 4], [11, 1.0, 5], [10, 1.0, 5], [9, 2.0, 9]]])
    assert front_intervals(two, count=4).on_front.tolist() == [0.5, 0.75]


def test_a_design_far_inside_its_limits_keeps_them_and_one_at_the_limit_may_not(report: SearchReport) -> None:
    found = front_intervals(report, count=128)
    area = report.result.values[:, 2]
    assert np.all((0 <= found.within_limits) & (found.within_limits <= 1))
    assert found.within_limits[np.argmin(area)] >= found.within_limits[np.argmax(area)]
    free = replace(report, spec=replace(report.spec, constraints=()))
    assert np.all(front_intervals(free, count=128).within_limits == 1.0), "memory does not depend on a drawn constant"


def test_a_residual_alone_changes_no_order(report: SearchReport, monkeypatch: pytest.MonkeyPatch) -> None:
    # without uncertain constants every draw is the front itself, whatever the residual
    import dse.insight.uncertainty as uncertainty

    monkeypatch.setattr(uncertainty, "_drawn", lambda model, tables, count, seed: {})
    time_only = filtered(report, objectives=["throughput", "die_area"])
    found = front_intervals(time_only, count=32)
    assert np.all(found.on_front == 1.0)
    assert np.all(found.low[:, 0] < found.high[:, 0]) and np.array_equal(found.low[:, 1], found.high[:, 1])


def test_designs_beyond_the_most_have_no_interval(report: SearchReport) -> None:
    found = front_intervals(report, count=16, most=1)
    assert found.designs == 1 and np.isfinite(found.low[0]).all() and np.isnan(found.low[1:]).all()
    assert math.isnan(found.on_front[1]) and len(found.to_plain()["designs"]) == 1
    assert json.dumps(found.to_plain(), allow_nan=False)
    front_figure(front_data(report, found))


def test_an_empty_front_has_no_intervals(report: SearchReport) -> None:
    none = filtered(report, [("die_area", "<=", 1e-9)])
    found = front_intervals(none)
    assert len(none) == 0 and found.designs == 0 and found.low.shape == (0, 3)


def test_tables_carry_the_intervals_with_units(report: SearchReport) -> None:
    found = report.uncertainty(count=32)
    frame = front_frame(report, found)
    for heading in (
        "throughput low 80% [token/s]", "throughput high 80% [token/s]", "energy per token low 80% [J]",
        "die area high 80% [mm2]", "probability on front", "probability within limits",
    ):  # fmt: skip
        assert heading in frame.columns
    assert frame["die area low 80% [mm2]"].to_numpy() == pytest.approx(found.low[:, 2] * 1e6, rel=1e-9)
    assert len(front_frame(report).columns) == len(frame.columns) - 8
    text = intervals_text(report, found)
    assert max(len(line) for line in text.splitlines()) <= 100 and "(80% intervals" in text and "on front" in text


def test_the_picture_has_bars_that_lie_inside_its_axes(report: SearchReport, tmp_path: Path) -> None:
    found = report.uncertainty(count=64)
    figure = front_figure(front_data(report, found))
    text = shown(figure)
    steady = int(np.sum(found.on_front >= 0.5))
    assert "80% interval of a design of the front" in text
    assert f"{steady} of {len(report)} designs stay on the front" in text.replace("\n", " ")
    assert "80% interval of a design of the front" not in shown(front_figure(front_data(report)))
    axes = figure.axes[0]
    bottom, top = sorted(axes.get_ylim())
    unit = {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6}[axes.get_ylabel().partition("[")[2].partition("]")[0].replace("µ", "u")]
    assert bottom * unit <= found.low[:, 1].min() and found.high[:, 1].max() <= top * unit
    one = filtered(report, objectives=["throughput"])
    assert "80% interval of a design of the front" in shown(front_figure(front_data(one, one.uncertainty(count=16))))
    paths = write_outputs(report, tmp_path / "bars", found)
    assert "probability on front" in paths["pareto.csv"].read_text().splitlines()[0]
    assert f"{steady} of {len(report)} designs stay on the front in at least half" in paths["summary.md"].read_text()
