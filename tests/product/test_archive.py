"""The record of a search: bit-exact round trip, torn and altered chunks, other searches, locks, Optuna's journal."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from studies import study_of
from toy_problem import Toy, assert_equal_results, toy_space

from dse.base.files import write_atomic
from dse.exploration.archive import Archive, DifferentSearch, FolderInUse, differences, pack
from dse.exploration.run import result_of, run
from dse.exploration.settings import SAMPLERS, Settings
from dse.exploration.variables import Objective, Outcome, Space, Variable

SETTINGS = Settings(sampler="nsga2", budget=60, seed=1, batch=20)
PLAIN = replace(SETTINGS, sampler="random")
SHORT = replace(SETTINGS, budget=20)


def chunk_files(out: Path) -> list[Path]:
    return sorted((out / "archive").glob("chunk-*.npz"))


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    write_atomic(path, "ö".encode())
    assert path.read_text(encoding="utf-8") == "ö" and list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def fails(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_every_answer_comes_back_from_the_disk_to_the_bit(tmp_path: Path) -> None:
    problem = Toy()
    rows = problem.space.index_to_row([0, 400, 1028, 77, 500])
    odd = Outcome(3, 0, {"area": 2, "heads": 1}, np.empty((0, 3)), np.empty((0, 2), dtype=np.int64), {})
    outcomes = [problem.one(r) for r in rows[:4]] + [odd]
    chunk = pack({"batch": 0}, rows, outcomes, constraints=problem.constraints, objectives=3, plan_fields=2)
    with Archive.open(tmp_path, {"x": 1}) as archive:
        archive.append(chunk)
        archive.append(pack({}, rows[:0], [], constraints=(), objectives=3, plan_fields=2))
    stored = Archive.read(tmp_path).chunks
    assert len(stored[1]) == 0 and np.array_equal(stored[0].rows, rows)
    for before, after in zip(outcomes, stored[0].outcomes(), strict=True):
        assert before.front.tobytes() == after.front.tobytes() and before.plans.tobytes() == after.plans.tobytes()
        assert dict(before.miss) == after.miss and (before.evaluated, before.feasible) == (
            after.evaluated,
            after.feasible,
        )
        assert {k: v for k, v in before.failures.items() if v} == after.failures
        for name in ("miss_plan", "miss_objectives"):
            one, other = getattr(before, name), getattr(after, name)
            assert (one is None) == (other is None) and (one is None or one.tobytes() == other.tobytes())


@pytest.mark.parametrize("sampler", [*SAMPLERS, "exhaustive"])
def test_a_recorded_search_is_read_back_and_running_it_again_adds_nothing(tmp_path: Path, sampler: str) -> None:
    named = {"mode": "exhaustive"} if sampler == "exhaustive" else {"sampler": sampler}
    settings = Settings(**{"budget": 30, "batch": 10, **named})
    first = run(Toy(), settings, out=tmp_path)
    files = {p.name: p.read_bytes() for p in chunk_files(tmp_path)}
    problem = Toy()
    again = run(problem, settings, out=tmp_path)
    assert problem.calls == [] and {p.name: p.read_bytes() for p in chunk_files(tmp_path)} == files
    assert_equal_results(first, again)
    read = result_of(Archive.read(tmp_path))
    assert read.values.tobytes() == first.values.tobytes() and read.failures == first.failures
    assert_equal_results(first, run(Toy(), settings))


@pytest.mark.parametrize("damage", ["torn", "altered", "missing", "swapped", "empty"])
def test_a_damaged_record_is_searched_again_from_there(tmp_path: Path, damage: str) -> None:
    whole = run(Toy(), PLAIN, out=tmp_path / "whole")
    out = tmp_path / "damaged"
    run(Toy(), PLAIN, out=out)
    files = chunk_files(out)
    assert len(files) >= 3
    content = files[1].read_bytes()
    if damage == "torn":
        files[1].write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        middle = content.index(b"rows.npy") + 200
        files[1].write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "missing":
        files[1].unlink()
    elif damage == "empty":
        files[1].write_bytes(b"")
    else:
        files[1].write_bytes(files[2].read_bytes())
        files[2].write_bytes(content)
    assert len(Archive.read(out).chunks) == 1
    problem = Toy()
    result = run(problem, PLAIN, out=out)
    assert any("dropped" in note for note in result.notes)
    assert sum(len(c) for c in problem.calls) == 40
    assert_equal_results(whole, result)


def test_files_left_by_a_killed_writer_are_cleared(tmp_path: Path) -> None:
    run(Toy(), SETTINGS, out=tmp_path)
    left = tmp_path / "archive" / ".chunk-000004.npz.99.tmp"
    left.write_bytes(b"half")
    run(Toy(), SETTINGS, out=tmp_path)
    assert not left.exists()


def changed(**fields: Any) -> Toy:
    return replace(Toy(), **fields)


LONGER = [
    v if v.name != "link" else Variable("link", ("ring", "mesh", "switch", "torus")) for v in toy_space().variables
]


@pytest.mark.parametrize(
    ("problem", "settings", "words"),
    [
        (changed(space=Space(LONGER)), SHORT, ['["ring", "mesh", "switch"]', '"torus"', "space.link.values"]),
        (changed(objectives=(Objective("speed", "minimize", "1/s"), *Toy().objectives[1:])), SHORT,
         ["objectives[0].direction", '"maximize"', '"minimize"']),
        (changed(objectives=Toy().objectives[:2]), SHORT, ["objectives", "speed", "area"]),
        (changed(area_limit=50.0), SHORT, ["problem.limits", "60.0", "50.0"]),
        (Toy(), replace(SHORT, seed=2), ["search.seed", "was 1", "now 2"]),
        (Toy(), replace(SHORT, sampler="random"), ["search.sampler", "nsga2", "random"]),
        (Toy(), replace(SHORT, mode="exhaustive"), ["search.mode", "exhaustive"]),
        (Toy(), replace(SHORT, presets=[[0, 0, 0, 0]]), ["search.presets", "[0, 0, 0, 0]"]),
    ],
)  # fmt: skip
def test_another_search_in_the_same_folder_is_refused_with_the_difference(
    tmp_path: Path, problem: Toy, settings: Settings, words: list[str]
) -> None:
    run(Toy(), SHORT, out=tmp_path)
    before = {p: p.read_bytes() for p in chunk_files(tmp_path)}
    with pytest.raises(DifferentSearch) as fault:
        run(problem, settings, out=tmp_path)
    for word in words:
        assert word in str(fault.value)
    assert problem.calls == [] and {p: p.read_bytes() for p in chunk_files(tmp_path)} == before


def test_a_larger_budget_continues_the_same_search(tmp_path: Path) -> None:
    run(Toy(), SETTINGS, out=tmp_path)
    problem = Toy()
    longer = replace(SETTINGS, budget=100)
    result = run(problem, longer, out=tmp_path)
    assert sum(len(c) for c in problem.calls) == 40
    assert_equal_results(result, run(Toy(), longer))


def test_differences_name_the_path_the_old_and_the_new() -> None:
    old = {"a": {"b": [1, 2]}, "c": [{"x": 1}, {"x": 2}], "gone": True, "t": 1}
    new = {"a": {"b": [1, 3]}, "c": [{"x": 1}, {"x": 5}], "t": True}
    assert differences(old, new) == [
        ("a.b", [1, 2], [1, 3]),
        ("c[1].x", 2, 5),
        ("gone", True, "(absent)"),
        ("t", 1, True),
    ]
    assert differences(old, json.loads(json.dumps(old))) == []


def test_a_second_process_on_the_same_folder_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    hold = "import sys, time; from dse.exploration.archive import Archive\n"
    hold += f"Archive.open({str(tmp_path)!r}, {{}}); print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUse, match=str(process.pid)):
            Archive.open(tmp_path, {})
        assert Archive.read(tmp_path).chunks == []
    finally:
        process.kill()
        process.wait()
    Archive.open(tmp_path, {}).close()
    Archive.open(tmp_path, {}).close()


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    problem = Toy()
    with pytest.raises(ValueError, match="cannot be written"):
        run(problem, SETTINGS, out=tmp_path / "file" / "out")
    assert problem.calls == []
    run(problem, SETTINGS, out=tmp_path / "missing" / "parents")
    with pytest.raises(ValueError, match="no search record"):
        Archive.read(tmp_path)


# Optuna's study


def test_the_study_holds_each_row_once_with_natural_values_and_no_running_trial(tmp_path: Path) -> None:
    problem = Toy()
    result = run(problem, SETTINGS, out=tmp_path)
    trials = study_of(tmp_path).get_trials()
    assert len(trials) == 60 and {t.state for t in trials} == {TrialState.COMPLETE}
    rows = np.concatenate([c.rows for c in result.archive.chunks])
    for row, trial in zip(rows, trials, strict=True):
        assert trial.user_attrs["values"] == problem.space.values(row)
        outcome = problem.one(row)
        if len(outcome.front):
            assert trial.values[0] == outcome.front[:, 0].max()
        else:
            assert trial.constraints == dict(outcome.miss)


def test_a_running_trial_of_another_tool_and_a_torn_line_are_mended_on_resume(tmp_path: Path) -> None:
    run(Toy(), replace(SETTINGS, budget=40), out=tmp_path)
    study_of(tmp_path).ask()
    journal = tmp_path / "optuna-journal.log"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "half')
    (tmp_path / "optuna-journal.log.lock").symlink_to(journal)
    result = run(Toy(), SETTINGS, out=tmp_path)
    states = [t.state for t in study_of(tmp_path).get_trials()]
    assert (states.count(TrialState.COMPLETE), states.count(TrialState.FAIL), len(states)) == (60, 1, 61)
    assert result.hardware_rows == 60


def test_a_study_that_lost_trials_is_filled_up_from_the_archive(tmp_path: Path) -> None:
    run(Toy(), SETTINGS, out=tmp_path)
    journal = tmp_path / "optuna-journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-7]))
    run(Toy(), SETTINGS, out=tmp_path)
    assert [t.user_attrs["row"] for t in study_of(tmp_path).get_trials()] == list(range(60))
    journal.unlink()
    run(Toy(), SETTINGS, out=tmp_path)
    assert len(study_of(tmp_path).get_trials()) == 60


def test_a_shared_study_of_another_search_is_refused_with_the_difference(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    small = replace(SETTINGS, budget=20, storage=url)
    run(Toy(), small, out=tmp_path / "a")
    problem = changed(objectives=(Objective("speed", "minimize", "1/s"), *Toy().objectives[1:]))
    with pytest.raises(DifferentSearch, match="direction: was .*maximize.*now .*minimize"):
        run(problem, small, out=tmp_path / "b")
    assert problem.calls == []
    other = replace(small, study_name="foreign")
    optuna.create_study(study_name="foreign", storage=url, directions=["minimize"] * 3).ask()
    with pytest.raises(DifferentSearch, match="foreign"):
        run(Toy(), other, out=tmp_path / "c")


def test_a_row_that_failed_is_a_failed_trial(tmp_path: Path) -> None:
    class Broken(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            outcome = super().one(row)
            return replace(outcome, front=outcome.front * np.nan) if row[3] == 0 else outcome

    result = run(Broken(), SETTINGS, out=tmp_path)
    states = [t.state for t in study_of(tmp_path).get_trials()]
    assert states.count(TrialState.FAIL) == result.failed_rows > 0
    assert result_of(Archive.read(tmp_path)).failed_rows == result.failed_rows
    assert_equal_results(result, run(Broken(), SETTINGS, out=tmp_path))
