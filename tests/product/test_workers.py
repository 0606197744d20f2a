"""Processes that are killed lose no row and hold no folder; a fault of the machine is no fault of a design."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from toy_problem import Toy, assert_equal_results

from dse.exploration.archive import Archive, FolderInUse
from dse.exploration.run import result_of, run
from dse.exploration.settings import SearchResult, Settings
from dse.exploration.variables import Outcome
from dse.exploration.workers import Shared

TESTS = Path(__file__).parents[1]
SETTINGS = Settings(sampler="random", budget=60, seed=5, batch=20)
PROCESSES = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
EXHAUSTIVE = Settings(mode="exhaustive", seed=5)


@dataclass(frozen=True)
class Killed(Toy):
    """A toy whose evaluation kills its own process at rows that begin with `first`, `times` times in all."""

    marks: str = ""
    times: int = 0
    first: tuple[int, ...] = (3,)

    def one(self, row: np.ndarray) -> Outcome:
        if tuple(row[: len(self.first)].tolist()) == self.first and len(os.listdir(self.marks)) < self.times:
            (Path(self.marks) / f"{time.monotonic_ns()}-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().one(row)


def shared(problem: Toy, settings: Settings, out: Path | None = None) -> SearchResult:
    workers = Shared(problem, 2)
    try:
        return run(workers, settings, out=out)
    finally:
        workers.close()


@pytest.mark.parametrize("settings", [SETTINGS, Settings(sampler="nsga2", budget=60, seed=5, batch=20)])
def test_rows_of_a_killed_process_are_priced_again_to_the_same_result(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "marks").mkdir()
    found = shared(Killed(marks=str(tmp_path / "marks"), times=1), settings, tmp_path / "out")
    assert len(os.listdir(tmp_path / "marks")) == 1
    assert found.missing == () and found.failed_rows == 0
    assert_equal_results(found, run(Toy(), settings))


@pytest.mark.parametrize(("settings", "first", "times"), [(SETTINGS, (3,), 8), (EXHAUSTIVE, (3, 1, 1), 100)])
def test_a_row_that_kills_processes_is_missing_and_the_same_search_answers_it_later(
    tmp_path: Path, settings: Settings, first: tuple[int, ...], times: int
) -> None:
    (tmp_path / "marks").mkdir()
    killing = Killed(marks=str(tmp_path / "marks"), times=times, first=first)
    found = shared(killing, settings, tmp_path / "out")
    assert found.missing and all(one["variables"]["width"] == 8 for one in found.missing)
    assert all("SIGKILL" in one["cause"] for one in found.missing)
    assert found.failed_rows == 0 and not found.failures.keys() - {"area", "memory"}
    asked = 60 if settings is SETTINGS else Toy().space.size
    assert found.hardware_rows + len(found.missing) == asked
    assert any("tries them again" in note for note in found.notes)
    assert result_of(Archive.read(tmp_path / "out")).missing == found.missing
    again = shared(Killed(marks=str(tmp_path / "marks"), times=0), settings, tmp_path / "out")
    assert again.missing == () and again.hardware_rows == asked
    assert_equal_results(again, run(Toy(), settings))
    once_more = run(Toy(), settings, out=tmp_path / "out")
    assert_equal_results(once_more, again)


def test_a_search_whose_processes_are_always_killed_gives_up_and_records_no_failure(tmp_path: Path) -> None:
    class Always(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

    found = shared(Always(), SETTINGS, tmp_path)
    assert found.stopped == "failed" and found.hardware_rows == found.failed_rows == 0 and found.missing
    assert_equal_results(shared(Toy(), SETTINGS, tmp_path), run(Toy(), SETTINGS))


@pytest.mark.parametrize("fault", [MemoryError("no memory left"), OSError(24, "too many open files")])
def test_memory_or_files_that_run_out_are_no_failure_of_a_design(tmp_path: Path, fault: Exception) -> None:
    class Short(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            if row[0] == 3 and row[1] == 1:
                raise fault
            return super().one(row)

    found = run(Short(), SETTINGS, out=tmp_path)
    assert found.missing and found.failed_rows == 0 and str(fault) in found.missing[0]["cause"]
    assert_equal_results(run(Toy(), SETTINGS, out=tmp_path), run(Toy(), SETTINGS))


def test_a_row_that_raises_has_the_same_fault_in_every_number_of_processes() -> None:
    class Raises(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            if row[3] == 2:
                raise ZeroDivisionError("link has no bandwidth")
            if row[3] == 1 and row[0] == 2:
                raise SystemExit(0)
            return super().one(row)

    one, two = run(Raises(), SETTINGS), shared(Raises(), SETTINGS)
    assert_equal_results(one, two)
    assert one.faults == two.faults and {"error: ZeroDivisionError", "error: SystemExit"} <= one.failures.keys()


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_running(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@PROCESSES
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGABRT])
def test_processes_end_with_their_parent_and_hold_no_folder(tmp_path: Path, number: int) -> None:
    program = TESTS / "support" / "toy_problem.py"
    command = [sys.executable, str(program), str(tmp_path), "random", "200", "0.2", "2"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    process.stdout.readline()
    workers = children(process.pid)
    assert len(workers) == 2 and all(is_running(pid) for pid in workers)
    process.send_signal(number)
    process.wait(timeout=20)
    Archive.open(tmp_path, Archive.read(tmp_path).fingerprint).close()  # at once: the lock was the parent's alone
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in workers if is_running(pid)]
    resumed = run(Toy(), Settings(sampler="random", budget=40, seed=5, batch=20), out=tmp_path)
    assert resumed.hardware_rows >= 40


@PROCESSES
def test_a_forked_process_does_not_hold_the_folder_of_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys
from dse.exploration.archive import Archive
archive = Archive.open({str(tmp_path)!r}, {{"space": {{}}}})
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, env=environment)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    with pytest.raises(FolderInUse):
        Archive.open(tmp_path, {"space": {}})
    parent.kill()
    parent.wait(timeout=20)
    assert is_running(child)
    Archive.open(tmp_path, {"space": {}}).close()
    parent.communicate(timeout=20)  # its input ends, and with it the child


KILLED_NETWORK = """
import multiprocessing, os, signal
from dataclasses import dataclass
from pathlib import Path
from workloads.published import network

@dataclass(frozen=True)
class Net:
    name: str = "own"
    def blocks(self, sequence):
        if multiprocessing.parent_process() is not None and Path("kill").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return network("gpt3-13b").blocks(sequence)
    def divisors(self):
        return network("gpt3-13b").divisors()

net = Net()
"""
KILLED_SEARCH = """
name: killed
workload: {network: "killed_net:net", sequence: 512, global_batch: 64}
chip: {base: h100-sxm, clock: [1.2 GHz, 1.4 GHz, 1.6 GHz]}
cluster: {devices: 8, tiers: [{size: 8, bandwidth: 400 GB/s}]}
objectives: [step_time]
search: {budget: 3, mode: nested, sampler: random}
"""


def test_a_command_whose_rows_are_missing_fails_and_the_same_command_completes_it(tmp_path: Path) -> None:
    (tmp_path / "killed_net.py").write_text(KILLED_NETWORK)
    (tmp_path / "search.yaml").write_text(KILLED_SEARCH)
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}

    def search(out: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dse", "search", "search.yaml", "--out", out, "--jobs", "2", "--json"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    (tmp_path / "kill").touch()
    found = search("out")
    assert found.returncode == 1 and "3 hardware rows have no answer" in found.stderr and "SIGKILL" in found.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert len(manifest["missing"]) == 3 and manifest["failed_rows"] == manifest["hardware_rows"] == 0
    (tmp_path / "kill").unlink()
    assert search("out").returncode == search("whole").returncode == 0
    for name in ("pareto.csv", "designs.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
