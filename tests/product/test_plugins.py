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
from dse.inputs import registry
from dse.record.write import read_designs
from dse.testing import check_searcher

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
    from dse.exploration.archive import Archive

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
