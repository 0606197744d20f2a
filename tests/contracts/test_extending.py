"""Every section of docs/extending.md runs: its module, its search from YAML to a front, its contract."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dse.api.evaluation import evaluate
from dse.command.main import main
from dse.inputs.serialize import design_from_plain
from dse.record.write import read_designs

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
#: Heading -> the files that its code blocks name on their first line, by name.
SECTIONS = {
    part.partition("\n")[0].strip(): dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", part, re.DOTALL))
    for part in PAGE.split("\n## ")[1:]
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; the module `mine` is forgotten again afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


def fronts(folder: Path, section: str) -> list[dict[str, Any]]:
    """The front that the search of a section finds, after its contract was checked."""
    for name, text in SECTIONS[section].items():
        (folder / name).write_text(text, encoding="utf-8")
    exec(compile(SECTIONS[section]["check.py"], "check.py", "exec"), {})
    assert main(["search", "search.yaml", "--out", "out", "--quiet", "--jobs", "1"]) == 0
    return read_designs("out")


def test_every_section_has_a_module_a_search_and_a_contract() -> None:
    assert {"An objective", "A searcher", "A strategy", "A network"} <= SECTIONS.keys()
    for section in ("An objective", "A searcher", "A strategy", "A network"):
        assert SECTIONS[section].keys() == {"mine.py", "search.yaml", "check.py"}


def test_the_objective_of_the_page_orders_the_front(folder: Path) -> None:
    rows = fronts(folder, "An objective")
    values = [row["objectives"]["energy_delay"] for row in rows]
    assert values == sorted(values) and values[-1] <= 1e6
    found = evaluate(design_from_plain(rows[0]["design"]))
    assert values[0] == found.value("energy_per_step") * found.value("step_time")


def test_the_searcher_of_the_page_finds_the_fastest_chip(folder: Path) -> None:
    rows = fronts(folder, "A searcher")
    assert rows[0]["design"]["chip"]["clock"] == 1.6e9
    assert json.loads((folder / "out" / "manifest.json").read_text())["sampler"] == "mine:Climber"


def test_the_strategy_of_the_page_keeps_its_plans(folder: Path) -> None:
    plans = [row["design"]["plan"] for row in fronts(folder, "A strategy")]
    assert plans and all(plan["tensor"] <= 8 and plan["pipeline"] <= 4 for plan in plans)


def test_the_network_of_the_page_is_searched(folder: Path) -> None:
    rows = fronts(folder, "A network")
    assert design_from_plain(rows[0]["design"]).workload.network.name == "small-images"
