"""Names resolve to a built-in, module:attribute or a plug-in; everything else is one clear error."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dse.base.errors import ConfigError
from dse.inputs import registry
from dse.inputs.registry import GROUP, plugin_names, resolve

BUILTIN = {"gpt3-175b": 175, "gpt3-13b": 13, "llama3-70b": 70}


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("network.prime", "math:pi", GROUP),
        EntryPoint("network.gpt3-13b", "math:e", GROUP),
        EntryPoint("chip.broken", "no_such_module_here:x", GROUP),
    )
    monkeypatch.setattr(registry, "_entry_points", lambda: points)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    return tmp_path


def message(kind: str, name: str) -> str:
    with pytest.raises(ConfigError) as error:
        resolve(kind, name, BUILTIN)
    assert len(error.value.problems) == 1
    return str(error.value)


def test_a_built_in_name_is_its_object() -> None:
    assert resolve("network", "gpt3-175b", BUILTIN) == 175


def test_module_attribute_is_imported() -> None:
    assert resolve("network", "fractions:Fraction.from_float", {})(0.5) == 0.5


def test_a_plug_in_is_found_by_kind_and_name(plugins: None) -> None:
    import math

    assert resolve("network", "prime", BUILTIN) == math.pi
    assert plugin_names("network") == ("prime", "gpt3-13b")
    assert plugin_names("cluster") == ()


def test_a_built_in_wins_over_a_plug_in_of_the_same_name(plugins: None) -> None:
    assert resolve("network", "gpt3-13b", BUILTIN) == 13


def test_a_plug_in_of_another_kind_is_not_found(plugins: None) -> None:
    assert "allowed: a chip" in message("chip", "prime")


def test_an_unknown_name_shows_the_nearest_one_and_the_list() -> None:
    said = message("network", "gpt3-176b")
    assert 'found "gpt3-176b"' in said and "did you mean gpt3-175b?" in said
    assert "gpt3-175b, gpt3-13b, llama3-70b" in said and "module:attribute" in said


def test_a_part_of_a_name_is_near_enough() -> None:
    assert "did you mean llama3-70b?" in message("network", "70b")


def test_names_differ_from_near_ones_only_by_hyphen_and_case() -> None:
    assert "did you mean gpt3-13b?" in message("network", "GPT3_13B")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_here:x", ["ModuleNotFoundError", "no_such_module_here"]),
        ("fractions:Fractoin", ["fractions has no Fractoin", "did you mean fractions:Fraction?"]),
        ("fractions:Fraction.from_flaot", ["fractions.Fraction has no", "did you mean fractions:Fraction.from_float?"]),
        ("fractions:", ["my_models:my_network"]),
        (":x", ["my_models:my_network"]),
        ("a b:c", ["my_models:my_network"]),
        ("..:x", ["my_models:my_network"]),
    ],
)
def test_what_cannot_be_imported_is_an_error_and_not_a_traceback(name: str, words: list[str]) -> None:
    said = message("network", name)
    assert f'found "{name}"' in said
    for word in words:
        assert word in said


def test_a_module_that_raises_while_it_is_imported_is_an_error_with_its_own_words(folder: Path) -> None:
    (folder / "raises_on_import_17.py").write_text("raise RuntimeError('no licence')\n")
    (folder / "bad_syntax_17.py").write_text("def f(:\n")
    assert "RuntimeError: no licence" in message("network", "raises_on_import_17:x")
    assert "SyntaxError" in message("network", "bad_syntax_17:x")


def test_a_broken_plug_in_is_an_error_that_names_it(plugins: None) -> None:
    said = message("chip", "broken")
    assert "chip.broken" in said and "ModuleNotFoundError" in said


def test_modules_beside_the_user_are_found(folder: Path) -> None:
    (folder / "my_models_17.py").write_text("class Mesh:\n    width = 17\n")
    assert resolve("link", "my_models_17:Mesh", {}).width == 17
    assert sys.path[-1] == str(folder), "at the end, so that it shadows nothing"


def test_a_missing_module_inside_the_user_s_own_is_said(folder: Path) -> None:
    (folder / "needs_more_17.py").write_text("import not_installed_17\n")
    assert "not_installed_17" in message("network", "needs_more_17:x")
