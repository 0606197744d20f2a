"""Data runs nothing: what designs, results and manifests name is built in, installed, or given by the user."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.base.errors import ConfigError
from dse.base.files import file_name
from dse.command.main import BAD_INPUT, FAILED, main
from dse.inputs import registry
from dse.inputs.serialize import design_from_plain, design_to_plain
from dse.record.write import read_designs
from workloads.published import network

OWN = """
from dataclasses import dataclass
from pathlib import Path
from dataclasses import replace
from workloads.published import network

@dataclass(frozen=True)
class Net:
    name: str = "own"
    layers: int = 4
    def _net(self):
        return replace(network("gpt3-13b"), layers=self.layers)
    def blocks(self, sequence):
        return self._net().blocks(sequence)
    def divisors(self):
        return self._net().divisors()

net = Net()

def trap(**fields):
    Path("ran").touch()
    return net

def leave():
    raise SystemExit(0)
"""
SEARCH = """
name: first
workload: {network: "own_net:net", sequence: 512, global_batch: 64}
chip: {base: h100-sxm, clock: [1.2 GHz, 1.6 GHz]}
cluster: {devices: 8, tiers: [{size: 8, bandwidth: 400 GB/s}]}
objectives: [step_time]
search: {budget: 2, mode: exhaustive}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a user's module, forgotten again afterwards."""
    (tmp_path / "own_net.py").write_text(OWN)
    (tmp_path / "search.yaml").write_text(SEARCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_GIVEN", {})
    sys.modules.pop("own_net", None)
    yield tmp_path
    sys.modules.pop("own_net", None)


def design() -> dict[str, Any]:
    made = dse.Design(
        dse.chips.h100_sxm(), dse.clusters.dgx_h100(8), dse.Plan(data=8), dse.Workload(network("gpt3-13b"), 512, 64)
    )
    return design_to_plain(made)


def result_of_others(named: Any) -> None:
    """A design file and an output folder whose design names that network."""
    tree = design()
    tree["workload"]["network"] = named
    Path("design.json").write_text(json.dumps({"design": tree}))
    Path("out").mkdir(exist_ok=True)
    Path("out/designs.json").write_text(json.dumps({"format": 1, "designs": [{"row": 0, "design": tree}]}))


READERS = (
    ("evaluate", "design.json"),
    ("evaluate", "--from", "out"),
    ("evaluate", "out:0"),
    ("explain", "out:0"),
    ("explain", "design.json"),
    ("compare", "out:0", "design.json"),
    ("trace", "design.json"),
    ("trace", "out:0"),
)
HOSTILE = (
    {"import": "os:system", "fields": {"command": "touch ran"}},
    {"import": "own_net:trap", "fields": {}},
    {"import": "subprocess:Popen", "fields": {"args": ["touch", "ran"]}},
    {"import": "pathlib:Path.touch", "fields": {"self": "ran"}},
)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.parametrize("named", HOSTILE, ids=lambda named: named["import"])
def test_a_reader_of_designs_runs_nothing_that_they_name(
    folder: Path, command: tuple[str, ...], named: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    result_of_others(named)
    assert main(command) == BAD_INPUT
    said = capsys.readouterr().err
    assert f"--plugin {named['import']}" in said and "json" in said and "Traceback" not in said
    assert len(set(said.splitlines())) <= len([part for part in command if "out" in part or "json" in part])
    assert not Path("ran").exists() and "own_net" not in sys.modules


@pytest.mark.parametrize(
    "named",
    [{"import": 7}, {"import": "os:system", "fields": ["touch ran"]}, {"import": ""}, {}, [], "os:system", None],
    ids=str,
)
def test_a_network_that_is_malformed_is_one_message(
    folder: Path, named: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result_of_others(named)
    assert main(["evaluate", "design.json"]) == BAD_INPUT
    assert main(["explain", "out:0"]) == BAD_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 2 and not Path("ran").exists()


@pytest.mark.parametrize(
    ("place", "hostile"),
    [
        ("own_net:net", "own_net:trap"),
        ("[step_time]", '["own_net:trap"]'),
        ("budget: 2", 'budget: 2, sampler: "own_net:trap"'),
        ("base: h100-sxm", 'base: "own_net:trap"'),
    ],
)
def test_the_configuration_in_a_manifest_is_data(
    folder: Path, place: str, hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "search.yaml", "--out", "out", "--quiet", "--jobs", "1"]) == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    text = SEARCH.replace(place, hostile).replace("own_net:net", "gpt3-13b")
    manifest["configuration"]["text"] = text
    Path("out/manifest.json").write_text(json.dumps(manifest))
    sys.modules.pop("own_net", None)
    capsys.readouterr()
    assert main(["pareto", "out"]) == BAD_INPUT
    said = capsys.readouterr().err
    assert "--plugin own_net:trap" in said and "manifest" not in sys.modules and len(said.splitlines()) == 1
    assert not Path("ran").exists() and "own_net" not in sys.modules


def test_a_result_with_the_users_own_code_reads_back_to_the_same_bits_once_it_is_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "search.yaml", "--out", "out", "--quiet", "--jobs", "1"]) == 0
    recorded = read_designs("out")[0]
    capsys.readouterr()
    assert main(["evaluate", "--from", "out", "--json"]) == BAD_INPUT
    assert "--plugin own_net:Net" in capsys.readouterr().err
    for given in ("own_net:Net", "own_net:net"):
        registry._GIVEN.clear()
        assert main(["evaluate", "--from", "out", "--json", "--plugin", given]) == 0
        assert json.loads(capsys.readouterr().out)["metrics"]["step_time"] == recorded["objectives"]["step_time"]
    for command in (["explain", "out:0"], ["trace", "out:0"], ["compare", "out:0", "out:0"], ["pareto", "out"]):
        registry._GIVEN.clear()
        assert main([*command, "--plugin", "own_net:net"]) == 0
    with pytest.raises(ConfigError):
        registry._GIVEN.clear()
        design_from_plain(recorded["design"])
    dse.register(sys.modules["own_net"].Net)
    found = dse.evaluate(design_from_plain(recorded["design"]))
    assert found.value("step_time") == recorded["objectives"]["step_time"]


def test_only_a_class_that_makes_a_network_is_called_with_fields_of_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result_of_others({"import": "own_net:trap", "fields": {}})
    assert main(["evaluate", "design.json", "--plugin", "own_net:trap"]) == BAD_INPUT
    assert "a class of a network" in capsys.readouterr().err and not Path("ran").exists()


@pytest.mark.parametrize("name", ["sys:exit", "own_net:leave"])
def test_a_module_that_ends_the_program_is_a_fault_of_that_name(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--chip", "h100-sxm", "--devices", "8", "--global-batch", "64", "--sequence", "512"]
    assert main(["evaluate", "--network", name, *flags]) == BAD_INPUT
    assert name in capsys.readouterr().err
    (folder / "leaves.py").write_text("raise SystemExit(0)\n")
    assert main(["network", "show", "leaves:net"]) == BAD_INPUT
    assert "importing leaves raised SystemExit" in capsys.readouterr().err


def test_an_end_of_the_program_inside_a_model_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(options: Any) -> int:
        raise SystemExit(0)

    monkeypatch.setattr("dse.command.bench.run", leave)
    assert main(["bench"]) == FAILED


@pytest.mark.parametrize("name", ["../../escape", "/etc/passwd", "..", "a\\b", "a\0b", "", " ", "C:x", "x" * 500])
def test_a_name_never_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    made = tmp_path / file_name(name)
    assert made.parent == tmp_path and made.resolve().parent == tmp_path.resolve()
    made.mkdir()
    assert file_name(name) != file_name(name + "y")


@pytest.mark.parametrize("name", ["quickstart", "my net-2.yaml", "größe", "llama3-70b"])
def test_a_plain_name_stays_as_it_is(name: str) -> None:
    assert file_name(name) == name


def test_a_search_whose_name_is_a_path_writes_below_the_folder_of_outputs(folder: Path) -> None:
    inner = folder / "deep" / "er"
    inner.mkdir(parents=True)
    text = SEARCH.replace("name: first", 'name: "../../escape"').replace("own_net:net", "gpt3-13b")
    (folder / "search.yaml").write_text(text)
    shutil.copy("search.yaml", inner)
    os.chdir(inner)
    assert main(["search", "search.yaml", "--quiet", "--jobs", "1"]) in (0, 3)
    assert [path.parent.name for path in inner.rglob("manifest.json")] == [file_name("../../escape")]
    assert not (folder / "escape").exists()
