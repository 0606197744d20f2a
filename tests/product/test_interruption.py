"""Ctrl-C, termination and kill lose nothing that is finished; a resumed search ends like an uninterrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_problem import Toy, assert_equal_results

from dse.exploration.archive import Archive
from dse.exploration.run import result_of, run
from dse.exploration.settings import SAMPLERS, Settings

TESTS = Path(__file__).parents[1]


def start(out: Path, sampler: str, budget: int, delay: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(TESTS / "support" / "toy_problem.py"), str(out), sampler, str(budget), str(delay)]
    # Another hash seed in every process: the result must not depend on the order of a set or a dictionary.
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "PYTHONHASHSEED": str(os.getpid() % 1000 + budget)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def settings_of(sampler: str, budget: int) -> Settings:
    mode = "exhaustive" if sampler == "exhaustive" else "search"
    return Settings(mode=mode, sampler=sampler if mode == "search" else "random", budget=budget, seed=5, batch=20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_search_cleanly_and_the_same_command_continues(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, "random", 200, 0.01)
    assert process.stdout is not None
    for _ in range(2):
        process.stdout.readline()
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors == b""
    reason, rows, _ = output.splitlines()[-1].split()
    assert reason == b"interrupted" and 0 < int(rows) < 200
    assert result_of(Archive.read(tmp_path)).hardware_rows == int(rows)
    resumed = run(Toy(), settings_of("random", 200), out=tmp_path)
    assert_equal_results(resumed, run(Toy(), settings_of("random", 200)))


@pytest.mark.parametrize("sampler", ["nsga2", "exhaustive"])
def test_killed_at_random_moments_and_resumed_equals_uninterrupted(tmp_path: Path, sampler: str) -> None:
    budget, kills = 160, 0
    rng = np.random.default_rng(11)
    for _ in range(10):
        process = start(tmp_path, sampler, budget, 0.003 if sampler == "nsga2" else 0.001)
        assert process.stdout is not None
        if kills < 2:
            process.stdout.readline()
            time.sleep(float(rng.random()) * 0.25)
            process.kill()
        output, errors = process.communicate(timeout=30)
        kills += process.returncode == -signal.SIGKILL
        if process.returncode == 0:
            break
        assert errors == b"", errors.decode()
    assert kills >= 1
    whole = run(Toy(), settings_of(sampler, budget))
    assert_equal_results(run(Toy(), settings_of(sampler, budget), out=tmp_path), whole)
    if sampler == "nsga2":
        from studies import study_of

        assert [t.user_attrs["row"] for t in study_of(tmp_path).get_trials()] == list(range(budget))


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_every_cut_of_a_search_resumes_to_the_same_result(tmp_path: Path, sampler: str) -> None:
    settings = Settings(sampler=sampler, budget=24, seed=4, batch=8, presets=[[1, 2, 3, 0], [6, 6, 6, 2]])
    whole = run(Toy(), settings)
    calls: list[int] = []
    for _ in range(30):  # each run is stopped after a few slices of rows, also in the middle of a batch
        calls.clear()

        def stop() -> bool:
            calls.append(1)
            return len(calls) > 3

        problem = Toy()
        result = run(problem, settings, out=tmp_path, stop=stop)
        if result.stopped != "stopped":
            break
    assert result.stopped == "budget"
    assert_equal_results(result, whole)
    rows = np.concatenate([c.rows for c in result.archive.chunks])
    assert np.array_equal(rows, np.concatenate([c.rows for c in whole.archive.chunks]))


def test_rows_are_committed_within_a_long_batch(tmp_path: Path) -> None:
    calls: list[int] = []

    class Slow(Toy):
        def evaluate(self, rows: np.ndarray) -> list[Any]:
            calls.append(len(result_of(Archive.read(tmp_path)).archive.chunks))
            time.sleep(0.12)
            return super().evaluate(rows)

    run(Slow(), Settings(sampler="random", budget=12, batch=12), out=tmp_path)
    assert max(calls) >= 1


def test_a_second_interrupt_ends_at_once_and_keeps_what_is_committed(tmp_path: Path) -> None:
    class Interrupts(Toy):
        def evaluate(self, rows: np.ndarray) -> list[Any]:
            if len(self.calls) >= 6:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return super().evaluate(rows)

    # a job started in the background ignores SIGINT, so what was there before is compared, not what it does
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        run(Interrupts(), Settings(sampler="random", budget=200, batch=10), out=tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert 0 < result_of(Archive.read(tmp_path)).hardware_rows < 200
    settings = Settings(sampler="random", budget=200, batch=10)
    assert_equal_results(run(Toy(), settings, out=tmp_path), run(Toy(), settings))


def test_a_search_in_another_thread_leaves_the_signals_alone(tmp_path: Path) -> None:
    found: list[Any] = []
    settings = Settings(sampler="random", budget=20)
    thread = threading.Thread(target=lambda: found.append(run(Toy(), settings, out=tmp_path)))
    thread.start()
    thread.join()
    assert_equal_results(found[0], run(Toy(), settings))


def test_a_searcher_that_proposes_other_rows_than_the_record_is_refused(tmp_path: Path) -> None:
    class Forgetful:
        def __init__(self, first: int) -> None:
            self.next = first

        def ask(self, n: int) -> np.ndarray:
            rows = Toy().space.index_to_row(np.arange(self.next, self.next + n))
            self.next += n
            return rows

        def tell(self, rows: Any, values: Any, violations: Any) -> None:
            pass

    settings = Settings(sampler=Forgetful(0), budget=20, batch=10)
    run(Toy(), settings, out=tmp_path)
    again = run(Toy(), replace(settings, sampler=Forgetful(0), budget=30), out=tmp_path)
    assert again.hardware_rows == 30
    with pytest.raises(ValueError, match="other proposals"):
        run(Toy(), replace(settings, sampler=Forgetful(5), budget=40), out=tmp_path)
