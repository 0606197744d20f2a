"""Searchers and the search loop: presets, repeats, exhaustion, seeds, failures, time-out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from toy_problem import Toy, assert_equal_results, brute_force_front, designs_of, toy_space

from dse.exploration.optuna_searcher import OptunaSearcher
from dse.exploration.pareto import hypervolume
from dse.exploration.run import run
from dse.exploration.searchers import (
    ExhaustiveSearcher,
    QuasiRandomSearcher,
    RandomSearcher,
    Searcher,
    neighbours,
    unvisited,
)
from dse.exploration.settings import SAMPLERS, Settings
from dse.exploration.variables import Objective, Outcome, Problem, Space, Variable


def small_space() -> Space:
    return Space([Variable("tensor", (1, 2, 4)), Variable("pipeline", (1, 2))])


def evaluated_rows(problem: Toy) -> list[tuple[int, ...]]:
    return [tuple(row) for call in problem.calls for row in call.tolist()]


# Space


def test_the_last_variable_runs_fastest() -> None:
    assert small_space().index_to_row([0, 1, 2, 5]).tolist() == [[0, 0], [0, 1], [1, 0], [2, 1]]


def test_numbers_and_rows_are_inverse_and_exact_beyond_64_bits() -> None:
    space = Space([Variable(f"x{i}", tuple(range(11))) for i in range(23)])
    assert space.size == 11**23
    numbers = [0, 1, 2**63, 11**23 - 1, 11**22 + 7]
    assert space.row_to_index(space.index_to_row(numbers)).tolist() == numbers
    small = toy_space()
    assert small.row_to_index(small.index_to_row(np.arange(small.size))).tolist() == list(range(1029))


def test_decode_gives_one_column_per_variable() -> None:
    space = Space([Variable("a", (1, 2)), Variable("kind", ("os", "ws")), Variable("mixed", ("none", 4))])
    columns = space.decode([[0, 1, 0], [1, 0, 1]])
    assert columns["a"].tolist() == [1, 2] and columns["a"].dtype.kind == "i"
    assert columns["kind"].tolist() == ["ws", "os"] and columns["mixed"].tolist() == ["none", 4]


def test_a_preset_goes_to_the_nearest_choice_by_ratio() -> None:
    space = Space([Variable("size", (1, 16, 100)), Variable("level", (-2.0, 0.0, 3.0)), Variable("kind", ("os", "ws"))])
    # 41 / 16 = 2.56 but 100 / 41 = 2.44, though 16 is nearer by difference
    assert space.nearest({"size": 41, "level": -0.9, "kind": "ws"}).tolist() == [2, 1, 1]


def test_every_fault_of_a_preset_is_named_at_once() -> None:
    with pytest.raises(ValueError) as fault:
        small = Space([Variable("size", (1, 2)), Variable("kind", ("ring", "mesh"))])
        small.nearest({"kind": "rinng", "colour": 1})
    for word in ("size", "nearest: ring", "colour"):
        assert word in str(fault.value)


@pytest.mark.parametrize("values", [(), (1, 1), (1.0, float("nan")), (True, 1)])
def test_a_bad_choice_list_is_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="size"):
        Variable("size", values)


def test_bad_spaces_and_objectives_are_refused() -> None:
    with pytest.raises(ValueError, match="x"):
        Space([Variable("x", (1,)), Variable("x", (2,))])
    with pytest.raises(ValueError, match="minimize, maximize"):
        Objective("speed", "up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="below"):
        small_space().decode([[3, 0]])


# Searchers


def searchers(space: Space, seed: int = 3) -> list[Searcher]:
    return [
        RandomSearcher(space, seed),
        QuasiRandomSearcher(space, seed),
        ExhaustiveSearcher(space),
        *(OptunaSearcher(space, 2, ("fits",), sampler=s, seed=seed) for s in ("nsga2", "tpe", "qmc", "random")),
    ]


@pytest.mark.parametrize("which", range(7))
def test_a_small_space_is_proposed_completely_and_never_twice(which: int) -> None:
    space = small_space()
    searcher = searchers(space)[which]
    seen: list[tuple[int, ...]] = []
    for _ in range(10):
        rows = searcher.ask(4)
        values = np.stack([rows.sum(axis=1), -rows[:, 0]], axis=1).astype(float)
        searcher.tell(rows, values, np.full((len(rows), 1), -1.0))
        seen += [tuple(r) for r in rows.tolist()]
    assert len(seen) == 6 and len(set(seen)) == 6


@pytest.mark.parametrize("which", range(7))
def test_equal_seeds_propose_equal_rows_and_values_steer_only_samplers(which: int) -> None:
    space = toy_space()
    proposals = []
    for _ in range(2):
        searcher = searchers(space)[which]
        found = []
        for _ in range(3):
            rows = searcher.ask(13)
            searcher.tell(rows, np.stack([rows.sum(axis=1), -rows[:, 1]], axis=1).astype(float), rows[:, :1] - 3.0)
            found.append(rows)
        proposals.append(np.concatenate(found))
    assert np.array_equal(*proposals)


def test_another_seed_proposes_other_rows() -> None:
    for one, other in zip(searchers(toy_space(), 1), searchers(toy_space(), 2), strict=True):
        same = np.array_equal(one.ask(20), other.ask(20))
        assert same == isinstance(one, ExhaustiveSearcher)


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_presets_come_first(sampler: str) -> None:
    problem = Toy()
    presets = problem.space.index_to_row([1000, 7, 1000, 512])
    run(problem, Settings(sampler=sampler, budget=10, presets=presets, batch=5))
    assert evaluated_rows(problem)[:3] == [tuple(presets[i].tolist()) for i in (0, 1, 3)]


def test_a_repeated_proposal_is_told_its_known_value() -> None:
    space = Space([Variable("x", (1, 2)), Variable("y", (1, 2))])
    searcher = OptunaSearcher(space, 1, (), sampler="random", seed=0, repeats=50, local=0.0)
    for _ in range(2):
        rows = searcher.ask(2)
        searcher.tell(rows, rows.sum(axis=1, keepdims=True).astype(float), np.empty((2, 0)))
    trials = searcher.trials()
    assert len(trials) > 4 and all(t.value == t.params["x"] + t.params["y"] for t in trials)


def test_unordered_choices_are_categories_and_single_choices_are_left_out() -> None:
    space = Space([Variable("kind", ("a", "b")), Variable("only", (5,)), Variable("size", (8, 4, 2))])
    searcher = OptunaSearcher(space, 1, (), sampler="random", seed=0)
    rows = searcher.ask(3)
    kinds = {n: type(d).__name__ for n, d in searcher.trials()[0].distributions.items()}
    assert kinds == {"kind": "CategoricalDistribution", "size": "IntDistribution"}
    assert (rows[:, 1] == 0).all()


def test_unvisited_rows_avoid_the_visited_ones_until_none_is_left() -> None:
    space, rng = toy_space(), np.random.default_rng(0)
    visited = set(range(0, 1029, 2)) | {1}
    rows = unvisited(space, visited, 2000, rng)
    assert sorted(space.row_to_index(rows).tolist()) == [n for n in range(1029) if n not in visited]


def test_neighbours_differ_in_one_variable_by_one_step() -> None:
    space = Space([Variable("x", (1, 2, 3)), Variable("kind", ("a", "b", "c"))])
    rows = neighbours(space, [[0, 0]], {int(space.row_to_index([0, 2])[0])}, 9, np.random.default_rng(0))
    assert sorted(map(tuple, rows.tolist())) == [(0, 1), (1, 0)]


# The loop


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_six_points_and_a_budget_of_forty_take_six_evaluations(sampler: str) -> None:
    problem = Toy(space=Space([Variable("width", (8, 16, 32)), Variable("clock", (1.0, 2.0)), Variable("memory", (12,)),
                               Variable("link", ("mesh",))]))  # fmt: skip
    result = run(problem, Settings(sampler=sampler, budget=40, batch=4))
    assert sorted(evaluated_rows(problem)) == sorted(map(tuple, problem.space.index_to_row(np.arange(6)).tolist()))
    assert result.stopped == "exhausted" and any("exhausted" in n for n in result.notes)
    assert len(designs_of(result)) == len(result.rows)
    assert designs_of(result) == brute_force_front(problem)


def test_exhaustive_equals_brute_force_and_random_that_sees_everything() -> None:
    exhaustive = run(Toy(), Settings(mode="exhaustive"))
    assert designs_of(exhaustive) == brute_force_front(Toy())
    assert exhaustive.evaluations == 6 * 1029 and exhaustive.hardware_rows == 1029
    sampled = run(Toy(), Settings(sampler="random", budget=5000))
    assert_equal_results(exhaustive, sampled)


def test_a_thin_exhaustive_record_gives_the_same_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    full = run(Toy(), Settings(mode="exhaustive"))
    monkeypatch.setattr("dse.exploration.run._FULL_RECORD", 0)
    monkeypatch.setattr("dse.exploration.run._EXHAUSTIVE_BATCH", 100)
    calls: list[int] = []
    stopped = run(
        Toy(), Settings(mode="exhaustive"), out=tmp_path, stop=lambda: bool(calls.append(1)) or len(calls) > 20
    )
    assert stopped.stopped == "stopped" and 0 < stopped.hardware_rows < 1029
    thin = run(Toy(), Settings(mode="exhaustive"), out=tmp_path)
    assert_equal_results(full, thin)
    assert sum(len(c) for c in thin.archive.chunks) < 1029


def test_auto_is_decided_by_the_number_of_designs() -> None:
    problem = Toy()
    assert run(problem, Settings(mode="auto", budget=5)).mode == "exhaustive"
    assert run(problem, Settings(mode="auto", budget=5, exhaustive_limit=1028)).mode == "search"

    class Large(Toy):
        designs = 10**9

    assert isinstance(problem, Problem)
    assert run(Large(), Settings(mode="auto", budget=5, sampler="random")).mode == "search"


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_one_seed_gives_one_result_to_the_bit(sampler: str) -> None:
    settings = Settings(sampler=sampler, budget=30, seed=2, batch=10)
    one, other, third = (
        run(Toy(), s) for s in (settings, settings, Settings(sampler=sampler, budget=30, seed=3, batch=10))
    )
    assert_equal_results(one, other)
    assert [c.rows.tobytes() for c in one.archive.chunks] == [c.rows.tobytes() for c in other.archive.chunks]
    assert one.archive.chunks[0].rows.tobytes() != third.archive.chunks[0].rows.tobytes()


def test_no_row_is_evaluated_twice_and_the_best_is_the_best_of_all() -> None:
    problem = Toy()
    result = run(problem, Settings(sampler="nsga2", budget=200, batch=20))
    rows = evaluated_rows(problem)
    assert len(rows) == len(set(rows)) == result.hardware_rows == 200
    fronts = np.concatenate([problem.one(np.array(r)).front for r in rows])
    assert result.values[0, 0] == fronts[:, 0].max()
    assert result.values[:, 1].min() == fronts[:, 1].min()
    assert (np.diff(result.values[:, 0]) <= 0).all()


def test_nsga2_beats_random_on_a_smooth_space() -> None:
    steps = tuple(np.linspace(0.0, 1.0, 33).tolist())
    space = Space([Variable(f"x{i}", steps) for i in range(6)])

    class Smooth(Toy):
        """Three objectives that pull x0, x1 apart while the other four should be 0.5."""

        def table(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            x = row / 32.0
            rest = float(((x[2:] - 0.5) ** 2).sum())
            values = np.array(
                [[1.0 - (x[0] ** 2 + rest), (x[0] - 1.0) ** 2 + x[1] ** 2 + rest, (x[1] - 1) ** 2 + rest]]
            )
            return np.zeros((1, 2), dtype=np.int64), values, np.full((1, 2), -1.0)

        def one(self, row: np.ndarray) -> Outcome:
            plans, values, _ = self.table(row)
            return Outcome(1, 1, {}, values, plans, {})

    def volume(sampler: str, seed: int, local: float = 0.5) -> float:
        settings = Settings(sampler=sampler, budget=400, seed=seed, local=local)
        result = run(Smooth(space=space), settings)
        return hypervolume(result.values * np.array([-1.0, 1.0, 1.0]), [1.0, 3.0, 2.0])

    random = max(volume("random", seed) for seed in range(3))
    assert min(volume("nsga2", seed) for seed in range(2)) > random
    assert volume("nsga2", 0, 0.0) > random


@pytest.mark.parametrize("sampler", ["nsga2", "random"])
def test_a_row_that_is_not_a_number_fails_alone_and_is_named(sampler: str) -> None:
    class Broken(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            outcome = super().one(row)
            if row[0] == 5 and len(outcome.front):
                outcome.front[0, 1] = np.nan
            return outcome

    result = run(Broken(), Settings(sampler=sampler, budget=150, batch=50))
    assert 0 < result.failed_rows < 150
    assert result.failures["not a finite number: energy"] == result.failed_rows
    assert result.faults[0]["variables"]["width"] == 32 and "energy" in result.faults[0]["cause"]
    assert np.isfinite(result.values).all() and (result.rows[:, 0] != 5).all() and len(result.rows)


def test_a_row_that_raises_fails_alone_and_is_named() -> None:
    class Raises(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            if row[3] == 2:
                raise ZeroDivisionError("link has no bandwidth")
            return super().one(row)

    result = run(Raises(), Settings(sampler="random", budget=100))
    assert 0 < result.failed_rows < 100 and result.hardware_rows == 100
    assert result.failures["error: ZeroDivisionError"] == result.failed_rows
    assert result.faults[0]["cause"] == "ZeroDivisionError: link has no bandwidth"


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "random"])
def test_when_every_row_fails_the_search_stops_after_a_batch_and_says_so(sampler: str) -> None:
    class AllRaise(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            raise ValueError("device unknown")

    result = run(AllRaise(), Settings(sampler=sampler, budget=100, batch=10))
    assert result.stopped == "failed" and result.failed_rows == result.hardware_rows == 10
    assert "device unknown" in result.faults[0]["cause"] and any("10 hardware rows failed" in n for n in result.notes)


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "qmc", "random"])
def test_when_nothing_fits_the_front_is_empty_and_the_nearest_miss_is_shown(sampler: str) -> None:
    problem = Toy(memory_needed=1e4)
    result = run(problem, Settings(sampler=sampler, budget=40, batch=20))
    assert result.rows.shape == (0, 4) and result.plans.shape == (0, 2) and result.values.shape == (0, 3)
    assert (
        result.stopped == "budget" and result.feasible == 0 and result.failures["memory"] == result.evaluations == 240
    )
    shortfalls = []
    for row in evaluated_rows(problem):
        violations = np.maximum(problem.table(np.array(row))[2], 0.0)
        shortfalls.append(min(float(a + b) for a, b in violations))
    assert sum(max(v, 0.0) for v in result.miss.values()) == pytest.approx(min(shortfalls), rel=1e-12)
    assert result.miss_row is not None and result.miss_plan is not None


def test_the_sampler_learns_the_best_plan_by_the_chosen_objective() -> None:
    told: list[np.ndarray] = []

    class Listens(RandomSearcher):
        def tell(self, rows: np.ndarray, values: np.ndarray, violations: np.ndarray) -> None:
            told.append(np.concatenate([rows, values, violations], axis=1))

    for name, column in (("speed", 0), ("energy", 1), (None, 0)):
        problem = Toy()
        told.clear()
        run(problem, Settings(sampler=Listens(problem.space, 0), budget=50, inner_objective=name))
        feasible = 0
        for line in np.concatenate(told):
            outcome = problem.one(line[:4].astype(int))
            if len(outcome.front):
                feasible += 1
                signed = outcome.front * np.array([-1.0, 1.0, 1.0])
                assert line[4 + column] == signed[:, column].min()
                assert (line[7:] <= 0).all()
            else:
                assert line[7:].tolist() == list(outcome.miss.values())
        assert 0 < feasible < 50


def test_a_problem_without_constraints_runs_with_every_sampler() -> None:
    class Free(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            plans, values, _ = self.table(row)
            return Outcome(6, 6, {}, values, plans, {})

    for sampler in SAMPLERS:
        result = run(Free(constraints=()), Settings(sampler=sampler, budget=12, batch=6))
        assert result.failures == {} and result.miss == {} and result.miss_row is None


def test_a_time_out_is_honoured_within_a_batch() -> None:
    start = time.monotonic()
    result = run(Toy(delay=0.02), Settings(sampler="random", budget=1000, timeout=0.3))
    assert result.stopped == "timeout" and time.monotonic() - start < 5.0
    assert 0 < result.hardware_rows < 100


def test_a_plan_that_is_listed_twice_is_one_design() -> None:
    class Twice(Toy):
        def one(self, row: np.ndarray) -> Outcome:
            plans, values, _ = self.table(np.array([3, 3, 3, 1]))
            return Outcome(2, 2, {}, values[[0, 0]], plans[[0, 0]], {})

    result = run(Twice(), Settings(sampler="random", budget=50))
    assert len(result.rows) == 50 == len(designs_of(result))  # distinct rows with equal values are all kept


def test_progress_counts_up_and_shows_the_best_so_far() -> None:
    seen: list[Any] = []
    result = run(Toy(), Settings(sampler="random", budget=60, batch=20), progress=seen.append)
    assert [p.rows for p in seen] == [20, 40, 60] and seen[-1].limit == 60
    assert seen[-1].best[0] == result.values[0, 0] and seen[-1].front == len(result.rows)


def test_bad_settings_are_named_all_at_once() -> None:
    with pytest.raises(ValueError) as fault:
        Settings(mode="quick", sampler="annealing", budget=-1, timeout=0.0, batch=0)
    for word in ("mode", "nsga2", "budget", "timeout", "batch"):
        assert word in str(fault.value)
    with pytest.raises(ValueError, match="speed, energy, area"):
        run(Toy(), Settings(inner_objective="cost"))
