"""List schedules and slack: by hand, against every order of small graphs, and Graham's bounds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from dse.insight.list_schedule import Task, bounds, list_schedule, lower_bound


def random_tasks(draw: np.random.Generator, number: int, kinds: tuple[str, ...]) -> list[Task]:
    tasks = []
    for i in range(number):
        before = tuple(j for j in range(i) if draw.random() < 0.3)
        tasks.append(Task(f"t{i}", float(draw.integers(0, 9)), str(draw.choice(kinds)), before))
    return tasks


def shortest(tasks: list[Task], units: dict[str, int]) -> float:
    """The best of greedy schedules over every order of the tasks: an optimal schedule is among them."""
    best = float("inf")
    for order in permutations(range(len(tasks))):
        ends = [0.0] * len(tasks)
        done: set[int] = set()
        free = {kind: [0.0] * number for kind, number in units.items()}
        for number in order:
            if not set(tasks[number].after) <= done:
                break
            task = tasks[number]
            lanes = free[task.kind]
            at = min(range(len(lanes)), key=lambda lane: lanes[lane])
            begin = max([lanes[at], *(ends[before] for before in task.after)])
            lanes[at] = ends[number] = begin + task.seconds
            done.add(number)
        else:
            best = min(best, max(ends, default=0.0))
    return best


def test_a_diamond_by_hand() -> None:
    tasks = [
        Task("a", 2.0, "m"), Task("b", 3.0, "m", (0,)), Task("c", 1.0, "v", (0,)), Task("d", 1.0, "m", (1, 2)),
    ]  # fmt: skip
    found = bounds(tasks)
    assert found.earliest == (0.0, 2.0, 2.0, 5.0)
    assert found.latest == (0.0, 2.0, 4.0, 5.0)
    assert found.slack == (0.0, 0.0, 2.0, 0.0)
    assert found.length == 6.0 and found.critical == (0, 1, 3)
    assert list_schedule(tasks, {"m": 1, "v": 1}).makespan == 6.0


def test_independent_tasks_share_two_units_by_hand() -> None:
    tasks = [Task(str(seconds), float(seconds), "m") for seconds in (3, 3, 2, 2, 2)]
    assert list_schedule(tasks, {"m": 2}).makespan == 7.0  # the best is 6: 3 + 3 and 2 + 2 + 2
    assert list_schedule(tasks, {"m": 1}).makespan == 12.0
    assert list_schedule(tasks, {"m": 5}).makespan == 3.0


def test_schedules_of_small_graphs_keep_grahams_bound_of_the_shortest() -> None:
    draw = np.random.default_rng(5)
    for _ in range(40):
        tasks = random_tasks(draw, int(draw.integers(1, 7)), ("m",))
        units = int(draw.integers(1, 4))
        best = shortest(tasks, {"m": units})
        found = list_schedule(tasks, {"m": units}).makespan
        assert best <= found <= (2.0 - 1.0 / units) * best + 1e-9
        assert lower_bound(tasks, {"m": units}) <= best + 1e-9


def test_schedules_of_several_kinds_are_valid_and_bounded() -> None:
    draw = np.random.default_rng(6)
    for _ in range(200):
        kinds = ("m", "v", "n")
        tasks = random_tasks(draw, int(draw.integers(1, 40)), kinds)
        units = {kind: int(draw.integers(1, 4)) for kind in kinds}
        found = list_schedule(tasks, units)
        for number, task in enumerate(tasks):
            for before in task.after:
                assert found.start[number] >= found.start[before] + tasks[before].seconds - 1e-9
            assert 0 <= found.unit[number] < units[task.kind]
        for kind in kinds:
            for unit in range(units[kind]):
                mine = sorted(
                    (found.start[i], found.start[i] + task.seconds)
                    for i, task in enumerate(tasks)
                    if task.kind == kind and found.unit[i] == unit and task.seconds > 0
                )
                assert all(a[1] <= b[0] + 1e-9 for a, b in zip(mine, mine[1:], strict=False))
        work = sum(task.seconds / units[task.kind] for task in tasks)
        assert lower_bound(tasks, units) <= found.makespan + 1e-9
        assert found.makespan <= work + bounds(tasks).length + 1e-9


def test_slack_is_what_a_task_may_be_late() -> None:
    draw = np.random.default_rng(7)
    for _ in range(30):
        tasks = random_tasks(draw, 12, ("m",))
        found = bounds(tasks)
        late = int(draw.integers(0, 12))
        longer = [
            Task(task.name, task.seconds + (found.slack[i] if i == late else 0.0), task.kind, task.after)
            for i, task in enumerate(tasks)
        ]
        assert bounds(longer).length == pytest.approx(found.length)
        longer[late] = Task("late", longer[late].seconds + 1.0, "m", longer[late].after)
        assert bounds(longer).length == pytest.approx(found.length + 1.0)
        assert sum(tasks[i].seconds for i in found.critical) == pytest.approx(found.length)


def test_a_task_after_a_later_one_and_a_missing_unit_are_errors() -> None:
    with pytest.raises(ValueError, match="after: found 1, allowed: 0 to -1"):
        bounds([Task("a", 1.0, "m", (1,)), Task("b", 1.0, "m")])
    with pytest.raises(ValueError, match="none of kind v"):
        list_schedule([Task("a", 1.0, "v")], {"m": 1})
    assert list_schedule([], {"m": 1}).makespan == 0.0
