"""Figures show what was found, with units and names, for any number of points and objectives."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.api.evaluation import evaluate
from dse.api.search import SearchReport, search
from dse.evaluation.design import Design
from dse.exploration.pareto import non_dominated
from dse.inputs.yaml.load import load_search
from dse.present.figures.data import FrontData, Reference, front_data
from dse.present.figures.front import front_figure, front_png
from dse.problem.filter import archived_points, filtered
from dse.problem.objectives import objective
from hw_models.devices import chip

TINY = """\
name: tiny
workload:
  network: {name: tiny, layers: 2, hidden: 256, heads: 4, ffn: 1024, vocabulary: 997}
  sequence: 256
  global_batch: 8
stack: compiled
chip:
  process: 7nm
  array_count: [2, 4, 8]
  array_rows: 32
  array_columns: 32
  clock: [0.8 GHz, 1.2 GHz]
  vector_lanes: 1024
  shared_sram: [8 MiB, 16 MiB]
  hbm_stacks: 1
  hbm_stack_capacity: 8 GB
cluster: {devices: [4, 8], tiers: [{size: 4, bandwidth: chip links}, {size: all, bandwidth: 25 GB/s}]}
plan: {micro_batch: 1, order: tensor-data-pipeline, split: uniform}
constraints: {die_area: "<= 200 mm2"}
objectives: [throughput, energy_per_token, die_area]
presets: [tpu-v3, tpu-v4, v100-sxm2]
search: {mode: exhaustive, budget: 24, seed: 0}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    path = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    path.write_text(TINY)
    return search(load_search(path), jobs=1)


@pytest.fixture(scope="module")
def data(report: SearchReport) -> FrontData:
    return front_data(report)


def shown(figure: Any) -> str:
    """Every text of a figure."""
    from matplotlib.text import Text

    return "\n".join(item.get_text() for item in figure.findobj(Text))


def synthetic(front: Any, objectives: tuple[str, ...], **changes: Any) -> FrontData:
    values = np.array(front, dtype=float).reshape(-1, len(objectives))
    none = values[:0]
    fixed = {"subject": "net on 8 devices", "limits": "memory fits", "evaluations": 7, "hardware_rows": 5, "lacks": {}}
    found = {"front": values, "feasible": none, "infeasible": none, "references": (), "omitted": (), **fixed, **changes}
    return FrontData(objectives=tuple(objective(name) for name in objectives), **found)


NAMES = ("throughput", "energy_per_token", "die_area", "tdp", "step_time")


def test_the_data_hold_every_archived_point_once(report: SearchReport, data: FrontData) -> None:
    _, _, points = archived_points(report.result)
    together = np.concatenate([data.front, data.feasible])
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, points.tolist()))
    mask = non_dominated(together * [-1, 1, 1])
    assert mask[: len(data.front)].all() and not mask[len(data.front) :].any()
    missed = sum(int((chunk.missed & (np.diff(chunk.offsets) == 0)).sum()) for chunk in report.result.archive.chunks)
    assert len(data.infeasible) == missed > 0


def test_a_reference_chip_is_the_chip_itself_with_a_plan_that_exists(report: SearchReport, data: FrontData) -> None:
    reference = {item.name: item for item in data.references}["tpu-v4"]
    scene = report.problem.scene
    best = 0.0
    for devices in (4, 8):
        outer = dataclasses.replace(scene.cluster.tiers[-1], size=devices)
        cluster = dataclasses.replace(scene.cluster, devices=devices, tiers=(scene.cluster.tiers[0], outer))
        table = report.problem.plans(devices).table
        design = Design(chip("tpu-v4"), cluster, table.rows(0, len(table)), scene.workload, scene.stack, scene.training)
        best = max(best, float(evaluate(design)["throughput"].max()))
    assert reference.broken == ("die_area",)
    assert 0 < reference.values[0] <= best
    assert reference.values[2] > 200e-6


def test_a_reference_chip_that_keeps_the_limits_is_its_best_plan(report: SearchReport) -> None:
    roomy = dataclasses.replace(report.spec, constraints=(), presets=(chip("tpu-v4"),))
    found = search(roomy, jobs=1, budget=1)
    (reference,) = front_data(found).references
    scene = found.problem.scene
    outer = dataclasses.replace(scene.cluster.tiers[-1], size=8)
    cluster = dataclasses.replace(scene.cluster, devices=8, tiers=(scene.cluster.tiers[0], outer))
    table = found.problem.plans(8).table
    design = Design(chip("tpu-v4"), cluster, table.rows(0, len(table)), scene.workload, scene.stack, scene.training)
    assert reference.broken == ()
    assert reference.values[0] == evaluate(design)["throughput"].max()


def test_a_chip_without_the_number_format_is_left_out_with_a_reason(data: FrontData) -> None:
    assert [item.name for item in data.references] == ["tpu-v3", "tpu-v4"]
    assert len(data.omitted) == 1 and data.omitted[0].startswith("v100-sxm2") and "bf16" in data.omitted[0]
    assert "cannot run this: v100-sxm2" in shown(front_figure(data)).replace("\n", " ")


def test_the_figure_states_the_finding_and_labels_axes_with_units(data: FrontData) -> None:
    figure = front_figure(data)
    text = shown(figure)
    best = data.front[0, 0]
    unit = "Mtoken/s" if best >= 1e6 else "ktoken/s"
    assert f"tiny on 4 or 8 devices: {len(data.front)} designs on the front; best" in text
    axes, *bars = figure.axes
    assert axes.get_xlabel() == f"throughput [{unit}], more is better"
    assert axes.get_ylabel().startswith("energy per token [") and axes.get_ylabel().endswith("J], less is better")
    # a colour bar says more than one number only where areas differ
    assert [bar.get_ylabel() for bar in bars] == ["die area [mm²], less is better"] * int(np.ptp(data.front[:, 2]) > 0)
    assert "tpu-v4 (breaks die area)" in text and f"Pareto front ({len(data.front)})" in text
    assert "die area ≤ 200 mm²" in text and f"({len(data.infeasible):,}" in text


def test_front_and_reference_chips_lie_inside_the_axes(data: FrontData) -> None:
    axes = front_figure(data).axes[0]
    drawn = [collection for collection in axes.collections if "Pareto" in str(collection.get_label())]
    points = np.asarray(drawn[0].get_offsets())
    assert len(points) == len(data.front)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert np.all((points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > bottom) & (points[:, 1] < top))


def test_equal_data_give_equal_pictures(data: FrontData) -> None:
    first = front_png(data)
    assert first == front_png(data) and first.startswith(b"\x89PNG")


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("points", [0, 1, 2])
def test_fronts_of_few_points_and_any_number_of_objectives_are_drawn(count: int, points: int) -> None:
    values = np.array([[1e5, 0.5, 4e-4, 300.0, 2.0], [8e4, 0.4, 3e-4, 290.0, 3.0]])[:points, :count]
    figure = front_figure(synthetic(values, NAMES[:count]))
    text = shown(figure)
    if points == 0:
        assert "nothing fits" in text and "no feasible design" in text
    else:
        assert f"{points} design{'s' if points > 1 else ''} on the front; best 100 ktoken/s" in text
        assert "throughput" in text and "ktoken/s" in text
    assert front_png(synthetic(values, NAMES[:count])).startswith(b"\x89PNG")


def test_two_objectives_are_joined_by_a_staircase_that_no_design_beats() -> None:
    data = synthetic([[3e5, 0.9], [2e5, 0.5], [1e5, 0.2]], NAMES[:2])
    (line,) = front_figure(data).axes[0].lines
    assert np.allclose(line.get_xdata(), [300, 200, 200, 100, 100])
    assert np.allclose(line.get_ydata(), [900, 900, 500, 500, 200])


def test_fifty_equal_values_are_drawn_without_a_scale_of_nothing() -> None:
    figure = front_figure(synthetic([[1e5, 0.5, 4e-4]] * 50, NAMES[:3]))
    assert "Pareto front (50), die area 400 mm²" in shown(figure) and len(figure.axes) == 1


def test_nothing_feasible_shows_the_misses_and_what_they_lack() -> None:
    misses = np.array([[1e5, 0.5, 9e-4], [2e5, 0.7, 1e-3]])
    figure = front_figure(synthetic([], NAMES[:3], infeasible=misses, lacks={"die_area": 0.25}))
    text = shown(figure)
    assert "the nearest miss breaks die area by 25.00%" in text and "nearest miss of a chip" in text
    assert len(np.asarray(figure.axes[0].collections[0].get_offsets())) == 2


def test_a_hundred_thousand_points_are_drawn_and_the_background_is_thinned_the_same_way_every_time() -> None:
    generator = np.random.default_rng(5)
    many = np.stack([1e5 + 1e5 * generator.random(100_000), 0.5 + generator.random(100_000)], axis=1)
    data = synthetic(many, NAMES[:2], infeasible=many * 1.01, feasible=many * [0.99, 1.01])
    figure, again = front_figure(data), front_figure(data)
    drawn = [np.asarray(collection.get_offsets()) for collection in figure.axes[0].collections]
    assert [len(points) for points in drawn] == [20_000, 20_000, 100_000]
    assert "20,000 drawn" in shown(figure)
    for first, second in zip(drawn, again.axes[0].collections, strict=True):
        assert np.array_equal(first, np.asarray(second.get_offsets()))


def test_points_far_from_the_front_are_counted_instead_of_squeezing_it() -> None:
    far = np.array([[1.5e5, 60.0, 4e-4], [1.5e5, 0.54, 4e-4]])
    figure = front_figure(synthetic([[2e5, 0.5, 4e-4], [1e5, 0.4, 3e-4]], NAMES[:3], feasible=far))
    assert "(2, 1 outside the axes)" in shown(figure)
    assert figure.axes[0].get_ylim()[1] < 1000, "mJ"


def test_names_of_reference_chips_that_lie_close_do_not_cover_each_other() -> None:
    close = tuple(Reference(f"chip-{i}", np.array([1.5e5 + 2e3 * i, 0.5, 4e-4])) for i in range(4))
    figure = front_figure(synthetic([[2e5, 0.5, 4e-4], [1e5, 0.4, 3e-4]], NAMES[:3], references=close))
    figure.draw_without_rendering()
    names = [text for text in figure.axes[0].texts if text.get_text().startswith("chip-")]
    boxes = [text.get_window_extent() for text in names]
    assert len(boxes) == 4
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_more_than_three_objectives_are_parallel_coordinates_with_best_and_worst() -> None:
    front = [[1e5, 0.5, 4e-4, 300.0], [8e4, 0.4, 3e-4, 290.0], [5e4, 0.3, 3.5e-4, 250.0]]
    known = Reference("known", np.array([7e4, 0.45, 3.2e-4, 280.0]))
    figure = front_figure(synthetic(front, NAMES[:4], references=(known,)))
    text = shown(figure)
    for word in ("100", "50", "[mm²]", "400", "250", "less is better", "known", "best of\nthe front"):
        assert word in text
    curves = [line.get_ydata() for line in figure.axes[0].lines if len(line.get_ydata()) == 4]
    assert [1.0, 0.0, 0.0, 0.0] in [np.round(curve, 12).tolist() for curve in curves]


def test_a_filtered_front_shows_only_points_that_keep_the_filter(report: SearchReport) -> None:
    values = archived_points(report.result)[2]
    bound = float(np.median(values[:, 2]))
    data = front_data(filtered(report, [("die_area", "<=", bound)], ["throughput", "die_area"]))
    together = np.concatenate([data.front, data.feasible])
    assert len(together) == int((values[:, 2] <= bound).sum()) < len(values)
    assert together[:, 1].max() <= bound


def test_drawing_leaves_no_window_and_no_setting_behind(data: FrontData, tmp_path: Path) -> None:
    import matplotlib

    def settings() -> dict[str, Any]:
        # the backend is resolved by whoever looks at it
        return {name: value for name, value in matplotlib.rcParams.copy().items() if name != "backend"}

    before = settings()
    front_figure(data).savefig(tmp_path / "a.png")
    assert before == settings()
    assert "matplotlib.pyplot" not in sys.modules
