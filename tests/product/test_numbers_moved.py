"""The script that says which numbers a change moves: same code, same numbers; another number is seen and placed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import numbers_moved as script  # noqa: E402


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    place = tmp_path / "before.jsonl"
    script.write(place, 5, seed=3)
    return place


def changed(place: Path, change: object) -> Path:
    """The file with its third design changed by a function of the line."""
    lines = place.read_text().splitlines()
    line = json.loads(lines[3])
    change(line)  # type: ignore[operator]
    lines[3] = json.dumps(line)
    place.write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.parametrize("old_constants", [False, True])
def test_the_same_code_moves_nothing(stored: Path, old_constants: bool) -> None:
    found = script.compare(stored, old_constants=old_constants)
    assert len(found) == 5
    assert all(not (item.changes or item.gained or item.lost or item.error) for item in found)


def test_a_number_that_moved_is_in_the_table_with_its_change(stored: Path) -> None:
    def halve(line: dict[str, dict[str, float]]) -> None:
        line["metrics"]["step_time"] /= 2.0

    found = script.compare(changed(stored, halve), old_constants=False)
    assert [item.number for item in found if item.changes] == [2]
    assert script.table(found)[2:] == ["| step_time | 1 (20.0%) | +100.00% | +100.00% |  |"]
    assert [names for names, _ in script.groups(found)] == [("step_time",)]


def test_new_and_gone_names_are_told_apart_from_moved_ones(stored: Path) -> None:
    def rename(line: dict[str, dict[str, float]]) -> None:
        line["violations"]["an old rule"] = line["violations"].pop("memory")

    item = script.compare(changed(stored, rename), old_constants=False)[2]
    assert (item.changes, item.gained, item.lost) == ({}, ("violation: memory",), ("violation: an old rule",))


def test_a_design_that_no_longer_builds_is_said_with_its_reason(stored: Path) -> None:
    def forget(line: dict[str, dict[str, float]]) -> None:
        line["design"]["plan"]["tensor"] = 0

    item = script.compare(changed(stored, forget), old_constants=False)[2]
    assert item.error.startswith("ValueError") and "tensor" in item.error


def test_stored_constants_replace_those_of_the_tables(stored: Path) -> None:
    lines = stored.read_text().splitlines()
    head = json.loads(lines[0])
    for values in head["constants"]["stack"].values():
        values["step_overhead"] += 1.0
    stored.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    moved = script.compare(stored, old_constants=True)
    assert all(item.changes["step_time"][1] > item.changes["step_time"][0] + 0.99 for item in moved)
    assert not any(item.changes for item in script.compare(stored, old_constants=False))


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [(1.0, 1.0 + 1e-13, False), (1.0, 1.0 + 1e-11, True), (0.0, 0.0, False), (0.0, 1e-30, True),
     (float("nan"), float("nan"), False), (float("inf"), float("inf"), False), (float("inf"), 1.0, True)],
)  # fmt: skip
def test_a_number_moved_when_it_differs_by_more_than_one_in_a_million_million(
    before: float, after: float, moved: bool
) -> None:
    assert script.differs(before, after) is moved
