"""What a search writes can be read back: exact designs, tables with units, and the same files for the same search."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.api.evaluation import evaluate
from dse.api.search import SearchReport, search
from dse.base.units import parse
from dse.evaluation.result import METRICS
from dse.exploration.archive import Archive, Chunk, DifferentSearch, take
from dse.exploration.settings import Progress
from dse.inputs.serialize import design_from_plain, design_to_plain
from dse.inputs.yaml.load import load_search
from dse.problem.filter import archived_points, filtered
from dse.problem.rows import metrics_of
from dse.record.columns import front_columns
from dse.record.read import load_report
from dse.record.write import FILES, begin, check_out, exported_columns, front_frame, read_designs, write_outputs
from dse.simulation.step import simulated_step_time

TINY = """\
name: tiny
workload:
  network: {name: tiny, layers: 4, hidden: 256, heads: 4, ffn: 1024, vocabulary: 997}
  sequence: 256
  global_batch: 16
training: {precision: bf16}
stack: compiled
chip:
  process: [7nm, 16nm]
  hbm: hbm2e
  array_count: [2, 4, 8]
  array_rows: 32
  array_columns: 32
  clock: [0.8 GHz, 1.2 GHz]
  dataflow: [os, ws]
  vector_lanes: 1024
  shared_sram: [8 MiB, 16 MiB]
  hbm_stacks: 1
  hbm_stack_capacity: 8 GB
  hbm_stack_bandwidth: 300 GB/s
  links: 4
  link_bandwidth: 25 GB/s
cluster:
  devices: [4, 8]
  tiers:
    - {size: 4, topology: switch, bandwidth: chip links, latency: 2 us}
    - {size: all, topology: fat_tree, bandwidth: 25 GB/s, latency: 10 us}
plan: {micro_batch: [1, 2], order: tensor-data-pipeline, split: uniform}
constraints: {die_area: "<= 200 mm2"}
objectives: [throughput, energy_per_token, die_area]
presets: [tpu-v4]
search: {mode: nested, sampler: random, budget: 41, seed: 3}
"""


def run(folder: Path, text: str = TINY, **options: Any) -> SearchReport:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return search(load_search(path), jobs=1, **options)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    return run(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    text = TINY.replace("mode: nested", "mode: joint").replace("budget: 41", "budget: 211")
    return run(tmp_path_factory.mktemp("joint"), text)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    return run(tmp_path_factory.mktemp("nothing"), TINY.replace("<= 200 mm2", "<= 20 mm2"))


@pytest.fixture
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the other files: drawing is most of the time of an export."""
    monkeypatch.setattr("dse.record.write.plots.front_png", lambda data: b"")


def with_front(report: SearchReport, order: Any) -> SearchReport:
    result = report.result
    rows, plans, values = archived_points(result)
    chosen = dataclasses.replace(result, rows=rows[order], plans=plans[order], values=values[order])
    return dataclasses.replace(report, result=chosen)


def table(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


# Exact designs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["report", "joint"])
@pytest.mark.usefixtures("without_picture")
def test_every_design_of_the_file_evaluates_to_the_stored_objectives_to_the_bit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found: SearchReport = request.getfixturevalue(kind)
    write_outputs(found, tmp_path)
    designs = read_designs(tmp_path)
    assert [entry["row"] for entry in designs] == list(range(len(found))) and len(found) >= 3
    for entry in designs:
        result = evaluate(design_from_plain(entry["design"]))
        assert result.feasible.all()
        assert {name: result.value(name) for name in entry["objectives"]} == entry["objectives"]
        assert entry["design"] == json.loads(json.dumps(design_to_plain(found.design(entry["row"]))))


@pytest.mark.parametrize("kind", ["report", "joint"])
def test_columns_give_the_bits_of_designs_evaluated_one_by_one(kind: str, request: pytest.FixtureRequest) -> None:
    found: SearchReport = request.getfixturevalue(kind)
    rows, plans, values = archived_points(found.result)
    columns = metrics_of(found.problem, rows, plans)
    assert len(rows) >= 7 and len({tuple(row) for row in rows.tolist()}) >= 7
    for i in range(len(rows)):
        alone = evaluate(found.problem.design(rows[i], plans[i]))
        assert {name: alone.value(name) for name in METRICS} == {name: columns[name][i] for name in METRICS}
    for j, item in enumerate(found.problem.objectives):
        assert np.array_equal(columns[item.name], values[:, j])


def test_a_design_alone_in_its_group_has_the_bits_of_the_batch(report: SearchReport) -> None:
    rows, plans, _ = archived_points(report.result)
    together = metrics_of(report.problem, rows, plans)
    for i in range(0, len(rows), 5):
        alone = metrics_of(report.problem, rows[i : i + 1], plans[i : i + 1])
        assert all(alone[name][0] == together[name][i] for name in METRICS)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_designs(tmp_path)
    (tmp_path / "designs.json").write_text('{"format": 99, "designs": []}')
    with pytest.raises(ValueError, match="found format 99"):
        read_designs(tmp_path)
    (tmp_path / "designs.json").write_text("{")
    with pytest.raises(ValueError, match="no valid JSON"):
        read_designs(tmp_path)


# Tables -----------------------------------------------------------------------------------------------------------


def test_one_row_of_the_table_says_what_the_design_says(report: SearchReport) -> None:
    frame = front_frame(report)
    design = report.design(1)
    row = frame.iloc[1]
    assert row["chip clock [GHz]"] == pytest.approx(design.chip.clock / 1e9)
    assert row["chip shared sram [MiB]"] in (8.0, 16.0)
    assert row["die area [mm2]"] == pytest.approx(report.result.values[1, 2] * 1e6, rel=1e-9)
    assert row["throughput [token/s]"] == pytest.approx(report.result.values[1, 0], rel=1e-9)
    assert row["cluster devices"] == design.cluster.devices and row["tier 1 size"] == 4
    assert row["tier 2 latency [us]"] == 10 and row["tier 2 topology"] == "fat_tree"
    assert row["chip dataflow"] in ("os", "ws") and row["chip process"] == design.chip.process
    named = design.plan.named()
    assert row["plan order"] == named["order"] and row["plan recompute"] == named["recompute"]
    assert row["plan data"] == named["data"] and row["plan overlap data"] == str(named["overlap_data"]).lower()
    result = evaluate(design)
    assert row["step time [ms]"] == pytest.approx(result.value("step_time") * 1e3, rel=1e-9)
    assert row["mfu [%]"] == pytest.approx(result.value("mfu") * 100, rel=1e-9)


def test_the_front_has_the_simulated_step_time_beside_the_closed_form(report: SearchReport) -> None:
    frame = front_frame(report)
    assert frame.columns[-1] == "step time simulated [ms]"
    assert frame.iloc[1, -1] == pytest.approx(simulated_step_time(report.design(1)) * 1e3, rel=1e-9)
    assert np.allclose(frame.iloc[:, -1], frame["step time [ms]"], rtol=0.06)


def test_designs_beyond_the_budget_of_simulations_have_no_simulated_time(
    report: SearchReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dse.record.write.SIMULATED_TASKS", 1)
    shown = front_frame(report).iloc[:, -1]
    assert np.isfinite(shown[0]) and np.all(np.isnan(shown[1:]))


def test_every_quantity_has_its_unit_in_the_heading_and_nothing_else_has(report: SearchReport) -> None:
    headings = [column.heading for column in front_columns(report)]
    assert len(set(headings)) == len(headings) >= len(METRICS) + 30
    parts = (report.problem.scene.chip, *report.problem.scene.cluster.tiers)
    fields = [item for part in parts for item in dataclasses.fields(part)]
    with_unit = {item.name.replace("_", " ") for item in fields if item.metadata.get("unit")}
    with_unit |= {name.replace("_", " ") for name, (unit, _) in METRICS.items() if unit}
    with_unit |= {"mfu", "hfu", "cluster usd per device hour", "cluster overhead power", "cluster host bandwidth"}
    with_unit |= {"step time low", "step time high"}
    for heading in headings:
        words, _, unit = heading.partition(" [")
        bare = words if words.replace(" ", "_") in METRICS else re.sub(r"^(chip|tier \d) ", "", words)
        assert bool(unit) == (bare in with_unit), heading


def test_a_unit_of_a_heading_is_the_factor_of_its_column(report: SearchReport) -> None:
    metrics = metrics_of(report.problem, report.result.rows, report.result.plans)
    frame = front_frame(report)
    for name, (unit, _) in METRICS.items():
        heading = next(h for h in frame if re.fullmatch(re.escape(name.replace("_", " ")) + r"( \[.*\])?", h))
        shown = heading.partition(" [")[2].rstrip("]")
        factor = parse(f"1 {shown}", unit or "") if shown else 1.0
        assert np.allclose(frame[heading] * factor, metrics[name], rtol=1e-9, atol=0), heading


@pytest.mark.usefixtures("without_picture")
def test_the_file_holds_what_the_frame_holds(report: SearchReport, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_outputs(report, tmp_path)
    frame = front_frame(report)
    read = pandas.read_csv(tmp_path / "pareto.csv", keep_default_na=False)
    assert list(read) == list(frame) and len(read) == len(report)
    for heading in frame:
        if frame[heading].dtype.kind in "if":
            assert np.array_equal(read[heading].to_numpy(float), frame[heading].to_numpy(float)), heading
        else:  # pandas reads true and false as truth values
            assert read[heading].astype(str).str.lower().tolist() == frame[heading].tolist(), heading


@pytest.mark.usefixtures("without_picture")
def test_trials_list_every_hardware_row_with_its_inner_front_or_its_nearest_miss(
    report: SearchReport, tmp_path: Path
) -> None:
    write_outputs(report, tmp_path)
    lines = table(gzip.decompress((tmp_path / "trials.csv.gz").read_bytes()))
    chunks = report.result.archive.chunks
    outcomes = [outcome for chunk in chunks for outcome in chunk.outcomes()]
    rows = np.concatenate([chunk.rows for chunk in chunks])
    assert {int(line["hardware row"]) for line in lines} == set(range(41))
    for number, outcome in enumerate(outcomes):
        mine = [line for line in lines if int(line["hardware row"]) == number]
        values = report.problem.space.values(rows[number])
        assert len(mine) == max(len(outcome.front), 1)
        assert {line["state"] for line in mine} == {"feasible" if len(outcome.front) else "nearest miss"}
        for line in mine:
            assert int(line["plans evaluated"]) == outcome.evaluated
            assert int(line["plans feasible"]) == outcome.feasible
            assert int(line["chip array count"]) == values["chip.array_count"]
            assert line["chip process"] == values["chip.process"]
            assert int(line["plans failed: die_area"]) == outcome.failures.get("die_area", 0)
        wanted = outcome.front if len(outcome.front) else np.atleast_2d(outcome.miss_objectives)
        shown = [float(line["energy per token [J]"]) for line in mine]
        assert shown == pytest.approx(wanted[:, 1].tolist(), rel=1e-9)
        for name, excess in outcome.miss.items():
            assert float(mine[0][f"violation: {name} [relative]"]) == pytest.approx(excess, rel=1e-9)
    assert {line["state"] for line in lines} == {"feasible", "nearest miss"}, "the test needs both"


@pytest.mark.usefixtures("without_picture")
def test_a_row_that_failed_to_evaluate_is_listed_without_a_plan(report: SearchReport, tmp_path: Path) -> None:
    first = report.result.archive.chunks[0]
    failed = dataclasses.replace(
        first, rows=first.rows[:1], evaluated=np.array([0]), feasible=np.array([0]), failures=first.failures[:1] * 0,
        offsets=np.array([0, 0]), front=first.front[:0], plans=first.plans[:0], miss=first.miss[:1] * np.nan,
        miss_plan=np.full_like(first.miss_plan[:1], -1), miss_objectives=first.miss_objectives[:1] * np.nan,
        missed=np.array([False]),
    )  # fmt: skip
    write_outputs(with_chunks(report, [failed]), tmp_path)
    (line,) = table(gzip.decompress((tmp_path / "trials.csv.gz").read_bytes()))
    assert line["state"] == "failed" and line["plan tensor"] == "" and line["throughput [token/s]"] == ""


def with_chunks(report: SearchReport, chunks: list[Chunk]) -> SearchReport:
    archive = Archive(None, report.result.archive.fingerprint)
    archive.chunks = chunks
    return dataclasses.replace(report, result=dataclasses.replace(report.result, archive=archive))


@pytest.mark.usefixtures("without_picture")
def test_a_thin_record_lists_only_rows_that_do_not_depend_on_its_chunks(report: SearchReport, tmp_path: Path) -> None:
    def thin(chunk: Chunk, *which: int) -> Chunk:
        return take(chunk, np.ones(len(chunk.front), dtype=bool), which)

    chunks = report.result.archive.chunks  # as many as the clock made of the search
    as_cut = [thin(chunk, *range(len(chunk))) for chunk in chunks]
    row_by_row = [thin(chunk, i) for chunk in chunks for i in range(len(chunk))]
    for name, cut in (("as_cut", as_cut), ("row_by_row", row_by_row)):
        write_outputs(with_chunks(report, cut), tmp_path / name)
    trials, others = ((tmp_path / name / "trials.csv.gz").read_bytes() for name in ("as_cut", "row_by_row"))
    assert trials == others
    lines = table(gzip.decompress(trials))
    owners = {tuple(row) for row in report.result.rows.tolist()}
    assert len({line["hardware row"] for line in lines}) == len(owners) + 1, "the front and the nearest miss"


# Equal searches, equal files --------------------------------------------------------------------------------------


def outputs(folder: Path) -> dict[str, bytes]:
    found = {name: (folder / name).read_bytes() for name in FILES if name != "manifest.json"}
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("run")
    return {**found, "manifest.json": json.dumps(manifest).encode()}


def test_equal_searches_write_equal_files(report: SearchReport, tmp_path: Path) -> None:
    write_outputs(report, tmp_path / "a")
    again = search(report.spec, jobs=1, out=tmp_path / "b")
    paths = write_outputs(again, tmp_path / "b")
    assert list(paths) == list(FILES) and all(path.is_file() for path in paths.values())
    first, second = outputs(tmp_path / "a"), outputs(tmp_path / "b")
    assert {name: first[name] == second[name] for name in FILES} == dict.fromkeys(FILES, True)


@pytest.mark.usefixtures("without_picture")
def test_an_interrupted_search_is_exported_and_its_continuation_equals_an_uninterrupted_one(
    report: SearchReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dse.exploration.run._COMMIT_AFTER", 0.0)

    def interrupt(progress: Progress) -> None:
        if progress.rows >= 7:
            raise KeyboardInterrupt

    out = begin(report.spec, tmp_path / "cut")
    assert json.loads((out / "manifest.json").read_text())["stopped"] == "running"
    with pytest.raises(KeyboardInterrupt):
        search(report.spec, jobs=1, out=out, progress=interrupt)
    part = load_report(out)
    assert 7 <= part.result.hardware_rows < 41 and part.result.stopped == "recorded" and len(part)
    write_outputs(part, out)
    assert json.loads((out / "manifest.json").read_text())["hardware_rows"] == part.result.hardware_rows
    assert len(read_designs(out)) == len(part)
    begin(report.spec, out)
    write_outputs(search(report.spec, jobs=1, out=out), out)
    write_outputs(report, tmp_path / "whole")
    cut, whole = outputs(out), outputs(tmp_path / "whole")
    assert {name: cut[name] == whole[name] for name in FILES} == dict.fromkeys(FILES, True)


@pytest.mark.usefixtures("without_picture")
def test_a_loaded_report_writes_the_same_files(report: SearchReport, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = search(report.spec, jobs=1, out=out)
    write_outputs(done, out)
    before = outputs(out)
    loaded = load_report(out)
    assert loaded.spec == done.spec and np.array_equal(loaded.result.values, done.result.values)
    assert loaded.result.stopped == done.result.stopped and loaded.result.elapsed > 0
    write_outputs(loaded, out)
    after = outputs(out)
    assert {name: before[name] == after[name] for name in FILES} == dict.fromkeys(FILES, True)


@pytest.mark.usefixtures("without_picture")
def test_the_manifest_says_how_the_result_was_found(report: SearchReport, tmp_path: Path) -> None:
    write_outputs(report, tmp_path)
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert (found["seed"], found["budget"], found["mode"], found["sampler"]) == (3, 41, "nested", "random")
    assert found["configuration"]["text"] == TINY and len(found["configuration"]["sha256"]) == 64
    assert found["hardware_rows"] == 41 and found["evaluations"] == report.result.evaluations
    assert found["failures"] == dict(sorted(report.result.failures.items())) and found["failures"]["die_area"] > 0
    assert found["constraints"] == ["die_area <= 0.0002 m2"] and found["stopped"] == "budget"
    assert set(found["versions"]) == {"dse", "python", "numpy", "scipy", "optuna", "pandas"}
    assert {row["node"] for row in found["constants"]} >= {"7nm", "16nm", "hbm2e"}
    for row in found["constants"] + found["stack_constants"]:
        assert row["source"] and "unit" in row and {"value", "low", "high"} <= set(row), row
    assert set(found["run"]) == {"date", "elapsed [s]", "notes"}
    assert found["nearest_miss"]["violations"]["die_area"] > 0


@pytest.mark.usefixtures("without_picture")
def test_overrides_of_the_command_reach_the_manifest(tmp_path: Path) -> None:
    write_outputs(run(tmp_path, budget=2, seed=11), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (found["seed"], found["budget"], found["hardware_rows"]) == (11, 2, 2)


@pytest.mark.usefixtures("without_picture")
def test_a_constant_that_the_configuration_changed_says_so(tmp_path: Path) -> None:
    report = run(tmp_path, budget=1)
    stack = dataclasses.replace(report.spec.stack, step_overhead=0.123)
    changed = dataclasses.replace(report, spec=dataclasses.replace(report.spec, stack=stack))
    write_outputs(changed, tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "manifest.json").read_text())["stack_constants"]
    sources = {row["field"]: (row["value"], row["source"]) for row in rows}
    assert sources["step_overhead"] == (0.123, "configuration")
    assert sources["kernel_launch"][1] != "configuration"


# Fronts of any size -----------------------------------------------------------------------------------------------


def test_a_search_in_which_nothing_fits_writes_well_formed_files(nothing: SearchReport, report: SearchReport,
                                                                 tmp_path: Path) -> None:
    write_outputs(nothing, tmp_path)
    assert len(nothing) == 0 and read_designs(tmp_path) == []
    head = (tmp_path / "pareto.csv").read_text().splitlines()
    assert len(head) == 1
    assert next(csv.reader(head)) == [column.heading for column in exported_columns(report)]
    assert front_frame(nothing).empty and list(front_frame(nothing)) == list(front_frame(report))
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "manifest.json").read_text())["nearest_miss"]["violations"]["die_area"] > 0


def test_a_front_of_one_design_is_written(report: SearchReport, tmp_path: Path) -> None:
    write_outputs(with_front(report, [0]), tmp_path)
    assert len(table((tmp_path / "pareto.csv").read_bytes())) == len(read_designs(tmp_path)) == 1


def test_a_front_of_100000_designs_is_a_table_within_seconds(report: SearchReport) -> None:
    points = len(archived_points(report.result)[0])
    big = with_front(report, np.arange(100_000) % points)
    started = time.process_time()
    columns = front_columns(big)
    cells = columns[1].cells()
    assert len(cells) == 100_000 and time.process_time() - started < 30
    small = front_columns(with_front(report, np.arange(points)))
    for one, many in zip(small, columns, strict=True):
        if one.heading != "row":
            assert many.values[points : 2 * points].tolist() == one.values.tolist(), one.heading


@pytest.mark.usefixtures("without_picture")
def test_more_designs_than_a_block_are_each_written_once(
    report: SearchReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dse.problem.rows.BLOCK", 7)
    points = len(archived_points(report.result)[0])
    many = with_front(report, np.arange(23) % points)
    write_outputs(many, tmp_path)
    designs = read_designs(tmp_path)
    assert [entry["row"] for entry in designs] == list(range(23))
    for entry in designs:
        assert entry["design"] == json.loads(json.dumps(design_to_plain(many.design(entry["row"]))))
    assert len(table((tmp_path / "pareto.csv").read_bytes())) == 23


# Folder -----------------------------------------------------------------------------------------------------------


def test_missing_parents_of_the_output_folder_are_made(tmp_path: Path) -> None:
    assert check_out(tmp_path / "a" / "b" / "c").is_dir()
    assert list((tmp_path / "a" / "b" / "c").iterdir()) == []


@pytest.mark.parametrize("tail", ["", "inner/out"])
def test_a_file_in_the_way_of_the_output_folder_is_named(tmp_path: Path, tail: str) -> None:
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / tail
    with pytest.raises(ValueError, match="a folder that can be written") as error:
        check_out(out)
    assert str(out) in str(error.value) and str(tmp_path / "file") in str(error.value)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, which nobody can write")
def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ValueError, match=r"/proc/out: cannot be written"):
        check_out("/proc/out")


def test_files_of_something_else_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pareto.csv").write_text("mine")
    with pytest.raises(ValueError, match="pareto.csv of something else"):
        check_out(tmp_path)
    (tmp_path / "pareto.csv").unlink()
    (tmp_path / "summary.md").mkdir()
    with pytest.raises(ValueError, match="a folder named summary.md"):
        check_out(tmp_path)


@pytest.mark.usefixtures("without_picture")
def test_a_failed_export_leaves_the_old_files_whole(
    report: SearchReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_outputs(report, tmp_path)
    before = (tmp_path / "designs.json").read_bytes()

    def broken(*_: Any) -> list[str]:
        raise RuntimeError("no more")

    monkeypatch.setattr("dse.record.write._design_texts", broken)
    with pytest.raises(RuntimeError):
        write_outputs(report, tmp_path)
    assert (tmp_path / "designs.json").read_bytes() == before
    assert not list(tmp_path.glob(".*.tmp"))


# Reading and filtering --------------------------------------------------------------------------------------------


def test_a_folder_without_a_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found no search record"):
        load_report(tmp_path)


def test_a_record_is_not_read_with_another_space(report: SearchReport, tmp_path: Path) -> None:
    out = tmp_path / "out"
    search(report.spec, jobs=1, out=out, budget=2)
    other = run(tmp_path, TINY.replace("[2, 4, 8]", "[2, 4]"), budget=1).spec
    with pytest.raises(DifferentSearch, match="chip.array_count"):
        load_report(out, other)


@pytest.mark.usefixtures("without_picture")
def test_a_search_made_in_python_is_read_with_its_specification(report: SearchReport, tmp_path: Path) -> None:
    spec = dataclasses.replace(report.spec, text="", path="")
    write_outputs(search(spec, jobs=1, out=tmp_path, budget=3), tmp_path)
    with pytest.raises(ValueError, match="a search made in Python"):
        load_report(tmp_path)
    assert load_report(tmp_path, spec).result.hardware_rows == 3


def test_the_front_filtered_by_nothing_is_the_front(report: SearchReport) -> None:
    same = filtered(report)
    assert np.array_equal(same.result.rows, report.result.rows)
    assert np.array_equal(same.result.plans, report.result.plans)
    assert np.array_equal(same.result.values, report.result.values)


def test_a_filter_keeps_the_best_of_what_meets_it(report: SearchReport) -> None:
    bound = float(np.median(archived_points(report.result)[2][:, 2]))
    found = filtered(report, [("die_area", "<=", bound), ("mfu", ">=", 0.3)])
    rows, plans, values = archived_points(report.result)
    metrics = metrics_of(report.problem, rows, plans)
    keep = (values[:, 2] <= bound) & (metrics["mfu"] >= 0.3)
    signed = values[keep] * [-1, 1, 1]
    # brute force: a point is on the front when no other is at least as good everywhere and better somewhere
    alone = [not any(np.all(o <= p) and np.any(o < p) for o in signed) for p in signed]
    assert 0 < len(found) == sum(alone) < len(rows)
    assert {tuple(v) for v in found.result.values.tolist()} == {tuple(v) for v in values[keep][alone].tolist()}
    assert found.result.values[:, 0].tolist() == sorted(found.result.values[:, 0].tolist(), reverse=True)
    assert any("die_area" in note for note in found.result.notes)


@pytest.mark.usefixtures("without_picture")
def test_a_filter_over_other_objectives_says_that_the_archive_limits_it(report: SearchReport, tmp_path: Path) -> None:
    found = filtered(report, objectives=["memory", "mfu"])
    rows, plans, _ = archived_points(report.result)
    metrics = metrics_of(report.problem, rows, plans)
    assert found.result.values[0, 0] == metrics["memory"].min()
    assert found.result.values[:, 1].max() == metrics["mfu"].max()
    assert "may find better" in found.result.notes[-1]
    again = filtered(found, objectives=["throughput"])
    assert again.result.values[0, 0] == report.result.values[0, 0]
    write_outputs(found, tmp_path)
    assert [entry["objectives"].keys() for entry in read_designs(tmp_path)][0] == {"memory", "mfu"}


def test_filters_add_up(report: SearchReport) -> None:
    middle = float(np.median(archived_points(report.result)[2][:, 2]))
    twice = filtered(filtered(report, [("die_area", "<=", middle)]), [("mfu", ">=", 0.3)])
    once = filtered(report, [("die_area", "<=", middle), ("mfu", ">=", 0.3)])
    assert np.array_equal(twice.result.values, once.result.values) and len(once)


def test_all_faults_of_a_filter_are_told_at_once(report: SearchReport) -> None:
    with pytest.raises(ValueError) as error:
        filtered(report, [("speed", "<=", 1.0), ("mfu", "<", 1.0), ("mfu", ">=", float("nan"))], ["beauty"])
    for word in ("'speed'", "'<'", "nan", "'beauty'", "throughput"):
        assert word in str(error.value)
