"""The wheel holds what the product needs and nothing else, and works from an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import dse

ROOT = Path(__file__).resolve().parents[2]
TOP = ("dse", "hw_models", "workloads", "searches")
#: What a package index that cannot be reached makes pip say.
NO_INDEX = ("No matching distribution", "Could not find a version", "Temporary failure", "Network is unreachable")


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout: the one that DSE_WHEEL names, or built now from a copy."""
    given = os.environ.get("DSE_WHEEL")
    if given:
        return zipfile.ZipFile(given)
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in TOP:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    shutil.copytree(ROOT / "tests", source / "tests", ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    if built.returncode and any(words in built.stderr for words in NO_INDEX):
        pytest.skip("building the wheel needs a package index, which cannot be reached")
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(next(folder.glob("dse-*.whl")))


def test_the_wheel_holds_every_module_and_every_table(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for top in TOP
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert held == wanted


def test_the_wheel_states_its_name_version_and_command(wheel: zipfile.ZipFile) -> None:
    info = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(info["METADATA"]).decode()
    assert f"\nVersion: {dse.__version__}\n" in metadata and "\nRequires-Python: >=3.11\n" in metadata
    assert "dse = dse.command.main:main" in wheel.read(info["entry_points.txt"]).decode()
    assert set(wheel.read(info["top_level.txt"]).decode().split()) == set(TOP)


def test_the_wheel_works_from_an_empty_folder(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    wheel.extractall(site)
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "dse", "search", "quickstart", "--budget", "3", "--jobs", "1", "--quiet"],
        cwd=empty, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (empty / "out" / "quickstart" / "pareto.csv").exists()
    where = subprocess.run(
        [sys.executable, "-c", "import dse, hw_models, workloads; print(dse.__file__)"],
        cwd=empty, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert where.stdout.startswith(str(site))


def test_every_file_of_the_packages_is_code_or_declared_as_data(project: dict) -> None:  # type: ignore[type-arg]
    declared = project["tool"]["setuptools"]["package-data"]
    lost = [
        path.relative_to(ROOT).as_posix()
        for top in TOP
        for path in (ROOT / top).rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".pyc")
        and not any(fnmatchcase(path.relative_to(ROOT / top).as_posix(), glob) for glob in declared[top])
    ]
    assert not lost, f"not in the wheel: {lost}"


def test_only_the_listed_packages_can_enter_the_wheel(project: dict) -> None:  # type: ignore[type-arg]
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.split(".")[0] for pattern in included} == set(TOP)
    assert not any(fnmatchcase("tests", pattern) or fnmatchcase("benchmarks", pattern) for pattern in included)


def test_every_dependency_has_a_lower_bound(project: dict) -> None:  # type: ignore[type-arg]
    names = [re.split(r"[<>=]", item)[0] for item in project["project"]["dependencies"]]
    assert names == ["numpy", "scipy", "optuna", "pandas", "pyyaml", "pydantic", "matplotlib"]
    assert all(">=" in item for item in project["project"]["dependencies"])
    assert "optuna>=5,<6" in project["project"]["dependencies"]


def test_typing_marks_are_there() -> None:
    assert all((ROOT / top / "py.typed").exists() for top in TOP if top != "searches")


def test_every_target_of_the_makefile_is_explained() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    for target in phony[1].split():
        assert re.search(rf"^{target}:", text, re.MULTILINE)
        assert target == "help" or f"make {target} " in text
    for target in ("demo", "test", "lint", "typecheck", "figures", "bench", "validate", "clean"):
        assert target in phony[1].split()


def test_the_check_script_runs_the_command_of_the_makefile_and_is_executable() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    command = "python -m pytest -q"
    assert command in script.read_text(encoding="utf-8") and command in (ROOT / "Makefile").read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)
