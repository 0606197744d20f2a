"""One chip for several networks: means and regrets by hand, and the joint answer is that of its parts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dse.api.several import search_several
from dse.base.errors import ConfigError
from dse.exploration.several import SeveralProblem, regrets, weighted_mean
from dse.inputs.yaml.load import load_search
from dse.present.text.several import several_text
from dse.problem.several import SeveralReport
from dse.record.several import write_several

TEXT = """
name: two
workloads:
  - {network: resnet18, sequence: 1, global_batch: 32}
  - {network: gpt2-small, sequence: 128, global_batch: 8, weight: 2}
training: {precision: bf16, optimizer: sgd}
stack: compiled
chip:
  compute: systolic
  process: 7nm
  hbm: hbm2e
  array_count: [1, 4, 16]
  array_rows: [32, 128]
  array_columns: [32, 128]
  clock: 1 GHz
  dataflow: os
  double_buffered: true
  vector_lanes: [1024, 4096]
  local_sram: 512 KiB
  shared_sram: 32 MiB
  shared_sram_bandwidth: 4 TB/s
  hbm_stacks: [1, 4]
  hbm_stack_capacity: 16 GiB
  hbm_stack_bandwidth: 400 GB/s
  links: 1
  link_bandwidth: 25 GB/s
cluster:
  devices: 1
  tiers: [{size: all, topology: switch, bandwidth: chip links, latency: 2 us}]
plan: {recompute: none, sequence_parallel: false}
objectives: [samples_per_second, die_area]
search: {mode: exhaustive, seed: 0}
"""


def test_weighted_geometric_means_by_hand() -> None:
    values, weights = np.array([[2.0, 5.0], [16.0, 5.0]]), np.array([1.0, 2.0])
    assert weighted_mean(values, weights) == pytest.approx([8.0, 5.0])
    # equal values are left exactly as they are: the area of one chip
    assert weighted_mean(np.array([[0.1], [0.1], [0.1]]), np.array([1.0, 3.0, 0.7]))[0] == 0.1


def test_regrets_by_hand() -> None:
    values, best = np.array([50.0, 8.0]), np.array([100.0, 8.0])
    assert regrets(values, best, -1.0) == pytest.approx([1.0, 0.0])  # half of a throughput: twice the time
    assert regrets(values, best, 1.0) == pytest.approx([-0.5, 0.0])  # half of a cost


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SeveralReport:
    folder = tmp_path_factory.mktemp("several")
    (folder / "two.yaml").write_text(TEXT)
    return search_several(load_search(folder / "two.yaml"), jobs=1)


def test_the_joint_answer_of_a_chip_is_that_of_its_parts(report: SeveralReport) -> None:
    problem: SeveralProblem = report.problem
    rows = report.result.rows
    for row in range(len(report)):
        outcomes = [part.evaluate(rows[row : row + 1])[0] for part in problem.parts]
        fastest = np.array([outcome.front[:, 0].max() for outcome in outcomes])
        mean = float(np.exp((np.log(fastest) * problem.weights).sum() / problem.weights.sum()))
        assert report.result.values[row, 0] == pytest.approx(mean, rel=1e-12)
        assert report.result.values[row, 1] == outcomes[0].front[0, 1]  # the area is the chip's
        assert report.result.values[row, -1] == pytest.approx(max(problem.best / fastest - 1.0))
        for name, design in report.designs(row).items():
            assert design.workload.network.name == name


def test_no_common_chip_beats_a_networks_own_when_all_were_tried(report: SeveralReport) -> None:
    assert np.all(report.result.values[:, -1] >= 0.0)
    for row in range(len(report)):
        assert np.all(report.regret(row) >= -1e-12)
    # every chip of the space was tried: the least worst regret of the front is that of the space
    rows = np.stack([report.problem.space.index_to_row(i)[0] for i in range(report.problem.space.size)])
    everything = [outcome.front[0, -1] for outcome in report.problem.evaluate(rows) if len(outcome.front)]
    assert report.result.values[report.least_regret, -1] == min(everything)


def test_files_and_text_name_every_network(report: SeveralReport, tmp_path: Path) -> None:
    paths = write_several(report, _made(tmp_path))
    exact = json.loads(paths["common.json"].read_text())["common"]
    assert len(exact) == len(report)
    assert set(exact[0]["designs"]) == {"resnet18", "gpt2-small"}
    text = several_text(report, paths)
    for word in ("resnet18", "gpt2-small", "worst regret", "common.csv"):
        assert word in text
    assert "regret resnet18 [%]" in paths["common.csv"].read_text().splitlines()[0]


def _made(folder: Path) -> Path:
    for name in ("resnet18", "gpt2-small"):
        (folder / "networks" / name).mkdir(parents=True)
    return folder


def test_a_stopped_search_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TEXT)
    spec = load_search(tmp_path / "two.yaml")
    first = search_several(spec, out=tmp_path / "out", jobs=1)
    again = search_several(spec, out=tmp_path / "out", jobs=1)
    assert np.array_equal(first.result.values, again.result.values)
    assert (tmp_path / "out" / "networks" / "resnet18").is_dir()


def test_two_workloads_of_one_network_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TEXT.replace("gpt2-small, sequence: 128", "resnet18, sequence: 1"))
    with pytest.raises(ConfigError, match="different names"):
        search_several(load_search(tmp_path / "two.yaml"), jobs=1)


def test_the_command_searches_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dse.command.main import main

    small = TEXT.replace("array_count: [1, 4, 16]", "array_count: 4").replace("[1024, 4096]", "4096")
    (tmp_path / "two.yaml").write_text(small)
    assert main(["search", str(tmp_path / "two.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1", "--quiet"]) == 0
    assert "one chip for 2 networks" in capsys.readouterr().out
    assert (tmp_path / "out" / "common.csv").exists() and (tmp_path / "out" / "networks.csv").exists()
    assert (tmp_path / "out" / "networks" / "resnet18" / "pareto.csv").exists()


def test_an_interrupted_search_of_one_network_ends_the_whole_and_the_same_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from dse.api import search as api

    (tmp_path / "two.yaml").write_text(TEXT)
    spec = load_search(tmp_path / "two.yaml")
    run = api.run
    names: list[str] = []

    def interrupted(problem: object, *arguments: object, **options: object) -> object:
        names.append(problem.name)  # type: ignore[attr-defined]
        found = run(problem, *arguments, **options)  # type: ignore[arg-type]
        return replace(found, stopped="interrupted") if len(names) == 1 else found

    monkeypatch.setattr(api, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search_several(spec, out=tmp_path / "out", jobs=1)
    assert names == ["two-resnet18"]
    report = search_several(spec, out=tmp_path / "out", jobs=1)
    assert len(report) and names == ["two-resnet18", "two-resnet18", "two-gpt2-small", "two"]
