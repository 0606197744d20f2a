"""What a user plugs in takes part in a search, from a YAML file to its front."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import dse
from dse.base.errors import ConfigError
from dse.command.main import BAD_INPUT, main
from dse.exploration.archive import Archive
from dse.inputs import registry
from dse.inputs.serialize import design_from_plain
from dse.record.write import read_designs
from dse.testing import check_metric, check_searcher, check_strategy

SEARCH = """
name: mine
workload: {network: gpt3-13b, sequence: 512, global_batch: 64}
chip: {base: h100-sxm, clock: [0.8 GHz, 1.2 GHz, 1.4 GHz, 1.6 GHz], links: [9, 18]}
cluster: {devices: 8, tiers: [{size: 8, bandwidth: 400 GB/s}]}
objectives: [step_time]
search: {mode: nested, budget: 3, sampler: SAMPLER}
"""
MINE = """
import numpy as np

class Backwards:
    \"\"\"Rows from the last to the first.\"\"\"
    def __init__(self, space, seed=0):
        self.space, self.left = space, space.size
    def ask(self, n):
        first = max(self.left - n, 0)
        rows = self.space.index_to_row(np.arange(first, self.left))[::-1]
        self.left = first
        return rows
    def tell(self, rows, values, violations):
        pass

class Outside(Backwards):
    def ask(self, n):
        return super().ask(n) + 7

number = 7

from dse import Metric

def delay(metrics):
    return metrics["energy_per_step"] * metrics["step_time"]

energy_delay = Metric(
    "energy_delay", "J s", "energy of a step times its time", "lower", ("energy_per_step", "step_time"), delay
)
speed = Metric("speed", "1/s", "steps a second", "higher", ("step_time",), lambda m: 1.0 / m["step_time"])
sums = Metric("sums", "s", "mixes designs", "lower", ("step_time",), lambda m: m["step_time"] + m["step_time"].sum())
def one_pipeline(plans):
    return (plans["pipeline"] == 4) & (plans["tensor"] <= 2)

def half(plans):
    keep = one_pipeline(plans)
    keep[::2] = False
    return keep

def numbers(plans):
    return plans["pipeline"]

unknown = Metric("unknown", "s", "needs what is not there", "lower", ("step_tim",), lambda m: 0.0)
taken = Metric("step_time", "s", "has the name of another", "lower", ("step_time",), lambda m: m["step_time"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a user's module `mine`, forgotten again afterwards."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(registry, "_GIVEN", {})
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


def search(folder: Path, text: str, out: str = "out", *flags: str) -> int:
    (folder / "search.yaml").write_text(text)
    return main(["search", "search.yaml", "--out", out, "--quiet", "--jobs", "1", *flags])


def trials(folder: Path, out: str = "out") -> list[list[int]]:
    return [row for chunk in Archive.read(folder / out).chunks for row in chunk.rows.tolist()]


def test_a_searcher_of_a_users_module_proposes_the_hardware(folder: Path) -> None:
    assert search(folder, SEARCH.replace("SAMPLER", '"mine:Backwards"')) == 0
    assert trials(folder) == [[3, 1], [3, 0], [2, 1]]
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert manifest["sampler"] == "mine:Backwards"
    assert read_designs("out")[0]["design"]["chip"]["clock"] == 1.6e9
    check_searcher(sys.modules["mine"].Backwards)


def test_a_search_by_a_users_searcher_continues_where_it_was(folder: Path) -> None:
    text = SEARCH.replace("SAMPLER", '"mine:Backwards"')
    assert search(folder, text) == 0 and search(folder, text, "out", "--budget", "5") == 0
    assert trials(folder) == [[3, 1], [3, 0], [2, 1], [2, 0], [1, 1]]


def test_a_searcher_of_an_installed_package_goes_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("sampler.backwards", "mine:Backwards", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: (point,))
    assert search(folder, SEARCH.replace("SAMPLER", "backwards")) == 0
    assert trials(folder)[0] == [3, 1]


@pytest.mark.parametrize("name", ["optuna:QMCSampler", "optuna:RandomSampler", "optuna:TPESampler", "quasirandom"])
def test_a_sampler_of_optuna_goes_by_its_class(folder: Path, name: str) -> None:
    text = SEARCH.replace("SAMPLER", name if ":" not in name else f'"{name}"')
    assert search(folder, text) == 0
    rows = trials(folder)
    assert len({tuple(row) for row in rows}) == 3
    assert search(folder, text, "again") == 0 and trials(folder, "again") == rows
    assert main(["pareto", "out"]) == 0


def test_a_searcher_is_given_in_python(folder: Path) -> None:
    (folder / "search.yaml").write_text(SEARCH.replace("SAMPLER", "random"))
    import mine

    found = dse.search("search.yaml", sampler=mine.Backwards, jobs=1)
    assert np.array_equal(found.result.archive.chunks[0].rows, [[3, 1], [3, 0], [2, 1]])
    with pytest.raises(ConfigError, match="a class or function"):
        dse.search("search.yaml", sampler=7, jobs=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("optuna:QMCSamplr", "did you mean optuna:QMCSampler?"),
        ("optuna:BaseSampler", "one of"),
        ("mine:number", "a class or function make(space)"),
        ("mine:Outside", "choice"),
        ("mine:nothing", "has no nothing"),
    ],
)
def test_what_is_no_searcher_is_one_message(
    folder: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(folder, SEARCH.replace("SAMPLER", f'"{name}"')) == BAD_INPUT
    assert said in capsys.readouterr().err


# Metrics ----------------------------------------------------------------------------------------------------------

WANTED = SEARCH.replace("SAMPLER", "random").replace("budget: 3", "budget: 8")


def front(out: str = "out") -> list[dict[str, float]]:
    return [row["objectives"] for row in read_designs(out)]


@pytest.mark.parametrize("mode", ["nested", "joint", "exhaustive"])
def test_a_users_metric_is_an_objective(folder: Path, mode: str) -> None:
    text = WANTED.replace("[step_time]", '["mine:energy_delay", step_time]').replace("nested", mode)
    assert search(folder, text.replace("budget: 8", "budget: 60")) == 0
    rows = read_designs("out")
    for row in rows:
        found = dse.evaluate(design_from_plain(row["design"]))
        assert row["objectives"]["energy_delay"] == found.value("energy_per_step") * found.value("step_time")
    values = np.array([list(row.values()) for row in front()])
    assert np.all(np.diff(values[:, 0]) >= 0)
    heading = (folder / "out" / "pareto.csv").read_text().splitlines()[0]
    assert "energy delay [J s]" in heading


def test_the_best_by_a_users_metric_is_the_best_of_all_designs(folder: Path) -> None:
    assert search(folder, WANTED.replace("[step_time]", '["mine:energy_delay"]')) == 0
    alone = front()[0]["energy_delay"]
    assert search(folder, WANTED.replace("[step_time]", "[step_time, energy_per_step]"), "both") == 0
    assert alone == min(row["step_time"] * row["energy_per_step"] for row in front("both"))


def test_more_of_a_users_metric_is_better_where_it_says_so(folder: Path) -> None:
    assert search(folder, WANTED.replace("[step_time]", '["mine:speed"]')) == 0
    assert search(folder, WANTED, "time") == 0
    assert front()[0]["speed"] == 1.0 / front("time")[0]["step_time"]


def energy_delays(out: str) -> list[float]:
    found = [dse.evaluate(design_from_plain(row["design"])) for row in read_designs(out)]
    return [one.value("energy_per_step") * one.value("step_time") for one in found]


def test_a_users_metric_is_a_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = WANTED.replace("[step_time]", "[step_time, tdp]")
    assert search(folder, text) == 0
    products = sorted(energy_delays("out"))
    bound = (products[0] + products[-1]) / 2
    limited = text + f'constraints: {{"mine:energy_delay": "<= {bound!r} J s"}}\n'
    assert search(folder, limited, "limited") == 0
    kept = energy_delays("limited")
    assert kept and max(kept) <= bound < products[-1]
    manifest = json.loads((folder / "limited" / "manifest.json").read_text())
    assert manifest["constraints"] == [f"energy_delay <= {bound!r} J s"]
    capsys.readouterr()
    nothing = text + f'constraints: {{"mine:energy_delay": "<= {bound / 1e6!r} J s"}}\n'
    assert search(folder, nothing, "nothing") == 3
    assert "energy_delay" in capsys.readouterr().out


def test_a_record_with_a_users_metric_is_filtered_once_it_is_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(folder, WANTED.replace("[step_time]", '["mine:energy_delay", step_time]')) == 0
    least = front()[0]["energy_delay"]
    capsys.readouterr()
    assert main(["pareto", "out"]) == BAD_INPUT
    assert "--plugin mine:energy_delay" in capsys.readouterr().err
    given = ["--plugin", "mine:energy_delay", "--where", f"energy_delay <= {least!r} J s", "--json"]
    assert main(["pareto", "out", *given]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert {row["values"][0] for row in best} == {least}


def test_a_metric_of_an_installed_package_goes_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("metric.edp", "mine:energy_delay", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: (point,))
    text = WANTED.replace("[step_time]", "[edp]") + 'constraints: {edp: "<= 1e12 J s"}\n'
    assert search(folder, text) == 0
    assert list(front()[0]) == ["energy_delay"]
    assert main(["pareto", "out"]) == 0


def test_processes_price_a_users_metric_to_the_same_bits(folder: Path) -> None:
    text = WANTED.replace("[step_time]", '["mine:energy_delay", "mine:speed"]')
    assert search(folder, text) == 0
    assert main(["search", "search.yaml", "--out", "two", "--quiet", "--jobs", "2"]) == 0
    assert (folder / "out" / "designs.json").read_bytes() == (folder / "two" / "designs.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:sums", "alone"),
        ("mine:unknown", "step_tim"),
        ("mine:taken", "no metric yet"),
        ("mine:number", "a dse.Metric"),
        ("mine:nothing", "has no nothing"),
    ],
)
@pytest.mark.parametrize("place", ["objective", "limit"])
def test_what_is_no_metric_is_one_message(
    folder: Path, name: str, said: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = WANTED.replace("[step_time]", f'["{name}"]') if place == "objective" else WANTED
    text += f'constraints: {{"{name}": "<= 1 s"}}\n' if place == "limit" else ""
    assert search(folder, text) == BAD_INPUT
    found = capsys.readouterr().err
    assert said in found and "search.yaml" in found and len(found.splitlines()) == 1


def test_good_metrics_keep_their_contract(folder: Path) -> None:
    import mine

    check_metric(mine.energy_delay)
    check_metric(mine.speed)


# Strategies -------------------------------------------------------------------------------------------------------


def test_a_users_strategy_says_which_plans_are_looked_at(folder: Path) -> None:
    assert search(folder, WANTED) == 0
    everything = read_designs("out")[0]["design"]["plan"]
    assert everything["pipeline"] != 4
    text = WANTED + 'plan: {strategy: "mine:one_pipeline"}\n'
    assert search(folder, text, "mine") == 0
    plans = [row["design"]["plan"] for row in read_designs("mine")]
    assert plans and all(plan["pipeline"] == 4 and plan["tensor"] <= 2 for plan in plans)
    by_values = WANTED + "plan: {pipeline: 4, tensor: [1, 2]}\n"
    assert search(folder, by_values, "values") == 0
    assert (folder / "mine" / "designs.json").read_bytes() == (folder / "values" / "designs.json").read_bytes()
    assert json.loads((folder / "mine" / "manifest.json").read_text())["strategy"] == "mine:one_pipeline"


def test_a_strategy_of_an_installed_package_and_a_record_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(folder, WANTED + 'plan: {strategy: "mine:one_pipeline"}\n', "mine") == 0
    assert main(["pareto", "mine"]) == BAD_INPUT
    assert "--plugin mine:one_pipeline" in capsys.readouterr().err
    assert main(["pareto", "mine", "--plugin", "mine:one_pipeline"]) == 0
    point = EntryPoint("strategy.pipelined", "mine:one_pipeline", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: (point,))
    assert search(folder, WANTED + "plan: {strategy: pipelined}\n") == 0
    assert main(["pareto", "out"]) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("mine:numbers", "a mask"), ("mine:number", "a function of plans"), ("nothing", "a strategy")],
)
def test_what_is_no_strategy_is_one_message(
    folder: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(folder, WANTED + f'plan: {{strategy: "{name}"}}\n') == BAD_INPUT
    found = capsys.readouterr().err
    assert said in found and len(found.splitlines()) == 1
    assert search(folder, WANTED.replace("nested", "joint") + 'plan: {strategy: "mine:one_pipeline"}\n') == BAD_INPUT


def test_a_strategy_keeps_its_contract_where_it_looks_at_each_plan_alone(folder: Path) -> None:
    import mine

    workload = dse.networks.gpt3_13b()
    check_strategy(mine.one_pipeline, workload=workload, devices=8)
    with pytest.raises(AssertionError, match="alone"):
        check_strategy(mine.half, workload=workload, devices=8)
