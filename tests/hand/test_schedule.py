"""Pipeline times: textbook cases by hand, laws, and an event simulation of every pass of every stage."""

from __future__ import annotations

import numpy as np
import pytest
from pipeline_cases import SCHEDULES, Case, closed_form, errors, random_cases, simulated
from pipeline_simulator import Pipeline, most_held, run

from dse.evaluation.schedule import StageTimes, pipeline_time
from dse.evaluation.stages import Stages

#: Random plans of each kind; `benchmarks/schedule_check.py` takes 2,000.
PLANS = 150


def even(
    stages: int,
    micro_batches: int,
    *,
    chunks: int = 1,
    forward: float = 1.0,
    backward: float = 2.0,
    transfer: float = 0.0,
    gpipe: bool = False,
    overlaps: bool = True,
    weights: float | None = None,
) -> float:
    """Closed form for equal stages."""
    one = np.ones(1)
    layout = Stages(
        first=one,
        high=2 * one,
        low=one,
        last=one * (stages > 1),
        high_count=0 * one,
        low_count=np.maximum(stages - 2.0, 0.0) * one,
        is_single=one * (stages == 1),
        has_last=one * (stages > 1),
        micro_batches=micro_batches * one,
    )
    pair = (forward * one, backward * one)
    last = (pair[0] * layout.has_last, pair[1] * layout.has_last)
    return float(
        pipeline_time(
            StageTimes(
                first=pair, high=(2 * pair[0], 2 * pair[1]), low=pair, last=last,
                weights=None if weights is None else (weights * one, 2 * weights * one, weights * one, weights * one),
            ),
            layout,
            pipeline=stages * one,
            interleave=chunks * one,
            is_gpipe=np.array([gpipe]),
            transfer=transfer * one,
            overlaps=one * overlaps,
            is_zero_bubble=weights is not None,
        )[0]
    )


@pytest.mark.parametrize("gpipe", [True, False])
def test_equal_stages_take_m_plus_p_minus_one_micro_batches(gpipe: bool) -> None:
    # 4 stages, 8 micro-batches of 1 s + 2 s: 11 x 3 s; the bubble is 3/8 of the ideal time
    assert even(4, 8, gpipe=gpipe) == pytest.approx(33.0, rel=1e-12)
    assert even(4, 8, gpipe=gpipe) / 24.0 - 1.0 == pytest.approx(3 / 8, rel=1e-12)


def test_two_chunks_a_stage_halve_the_bubble() -> None:
    # (m + (p-1)/v) x = (8 + 1.5) 3 s; 3/16 of the ideal time
    assert even(4, 8, chunks=2) == pytest.approx(28.5, rel=1e-12)


def test_moved_weight_gradients_fill_all_of_the_bubble_but_f_plus_b_minus_w() -> None:
    # m x + (p - 1)(f + b - w) = 24 + 3 (1 + 1.25 - 0.75)
    assert even(4, 8, weights=0.75) == pytest.approx(28.5, rel=1e-12)
    # with f = b = w = 1 a third of 1f1b's bubble is left
    assert even(4, 8, weights=1.0) / 24.0 - 1.0 == pytest.approx(1 / 8, rel=1e-12)


def test_bubble_shares_that_are_often_stated_wrongly() -> None:
    # of the whole step: (p - 1)/(m + p - 1) = 3/11, with two chunks 3/19; 5 stages and 8 micro-batches: 4/12
    assert 1.0 - 24.0 / even(4, 8) == pytest.approx(3 / 11, rel=1e-12)
    assert 1.0 - 24.0 / even(4, 8, chunks=2) == pytest.approx(3 / 19, rel=1e-12)
    assert 1.0 - 24.0 / even(5, 8) == pytest.approx(4 / 12, rel=1e-12)
    assert 1.0 - 3.0 / even(8, 1) == pytest.approx(0.875, rel=1e-12)


def test_one_micro_batch_passes_every_stage_once() -> None:
    # 8 stages of 3 s: 24 s for 3 s of work a stage, a bubble of 7
    assert even(8, 1) == pytest.approx(24.0, rel=1e-12)


def test_fewer_micro_batches_than_stages_are_all_in_flight() -> None:
    # 12 stages, 3 micro-batches: (3 + 11) x 3 s; nobody waits for room
    assert even(12, 3) == pytest.approx(42.0, rel=1e-12)


@pytest.mark.parametrize("gpipe", [True, False])
def test_one_stage_has_no_bubble_and_sends_nothing(gpipe: bool) -> None:
    assert even(1, 7, gpipe=gpipe) == pytest.approx(21.0, rel=1e-12)


def test_filling_the_pipeline_costs_a_transfer_per_boundary_and_direction() -> None:
    # one micro-batch over 5 stages: 5 x 3 s and 2 x 4 transfers of 0.25 s
    assert even(5, 1, transfer=0.25) == pytest.approx(17.0, rel=1e-12)


#: Largest mean and 99th percentile of the error against the simulation, with transfers of up to a tenth of a chunk.
BOUNDS = {"gpipe": (0.005, 0.03), "1f1b": (0.005, 0.03), "interleaved": (0.015, 0.06), "zero_bubble": (0.01, 0.05)}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("blocking", [False, True])
def test_closed_form_agrees_with_the_event_simulation(schedule: str, blocking: bool) -> None:
    error, _ = errors(schedule, PLANS, blocking=blocking)
    mean, most = np.abs(error).mean(), np.quantile(np.abs(error), 0.99)
    assert mean <= BOUNDS[schedule][0] and most <= BOUNDS[schedule][1], f"mean {mean:.2%}, p99 {most:.2%}"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
def test_30_layers_on_4_stages_are_paced_by_the_stages_of_8(schedule: str) -> None:
    # 8, 8, 7, 7: an efficiency of 30/32 before the bubble
    case = Case(4, 10**7, 1, 7, 2, 0, (1.0, 2.0), (0.0, 0.0), (0.0, 0.0), 0.0, weights=0.5)
    assert case.layers == [8, 8, 7, 7]
    ideal = 10**7 * 3.0 * 30 / 4
    assert ideal / closed_form([case], schedule, blocking=False)[0] == pytest.approx(30 / 32, rel=1e-5)


def test_the_closed_form_needs_its_transfers_to_agree_with_the_simulation() -> None:
    # without transfers the closed form must miss the simulation by more than its bound: the comparison can fail
    cases = random_cases("1f1b", 101)
    truth = np.array([simulated(case, "1f1b", blocking=False) for case in cases])
    silent = [Case(**{**vars(case), "transfer": 0.0}) for case in cases]
    assert np.abs(closed_form(silent, "1f1b", blocking=False) / truth - 1.0).mean() > 0.03


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_is_never_faster_than_its_slowest_stage_or_one_round_trip(schedule: str) -> None:
    cases = random_cases(schedule, PLANS)
    found = closed_form(cases, schedule, blocking=False)
    for case, time in zip(cases, found, strict=True):
        work = [sum(case.body) * layers for layers in case.layers]
        work[0] += sum(case.embedding)
        work[-1] += sum(case.head)
        assert time >= case.micro_batches * max(work) * (1 - 1e-12)
        # weight gradients that are moved are not on the way back
        late = sum(case.body[1] * layers for layers in case.layers) + case.embedding[1] + case.head[1]
        assert time >= sum(work) / case.chunks - case.weights * late


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_longer_stages_transfers_and_more_micro_batches_are_never_faster(schedule: str) -> None:
    cases = random_cases(schedule, PLANS)
    for blocking in (False, True):
        base = closed_form(cases, schedule, blocking=blocking) * (1 - 1e-12)
        for change in ("transfer", "body", "embedding", "head", "micro_batches"):
            longer = []
            for case in cases:
                value = getattr(case, change)
                if change == "micro_batches":
                    value = value + (case.stages if schedule == "interleaved" else 1)
                else:
                    value = tuple(1.1 * v for v in value) if isinstance(value, tuple) else 1.1 * value
                longer.append(Case(**{**vars(case), change: value}))
            assert np.all(closed_form(longer, schedule, blocking=blocking) >= base), change


def test_transfers_that_overlap_are_never_slower() -> None:
    for schedule in SCHEDULES:
        cases = random_cases(schedule, PLANS)
        hidden = closed_form(cases, schedule, blocking=False)
        assert np.all(hidden <= closed_form(cases, schedule, blocking=True) * 1.04)


def test_the_simulated_schedules_hold_what_their_papers_say() -> None:
    pipeline = Pipeline([[1.0]] * 4, [[2.0]] * 4, micro_batches=8)
    assert most_held(pipeline, "gpipe") == [8, 8, 8, 8]
    assert most_held(pipeline, "1f1b") == [4, 3, 2, 1]
    chunked = Pipeline([[0.5, 0.5]] * 4, [[1.0, 1.0]] * 4, micro_batches=8)
    # every stage holds what the first one of 1f1b holds
    assert most_held(pipeline, "zero_bubble") == [4, 4, 4, 4]
    # 2 (p - 1 - s) + (v - 1) p + 1 chunks
    assert most_held(chunked, "interleaved") == [11, 9, 7, 5]


def test_the_simulation_reproduces_textbook_times() -> None:
    pipeline = Pipeline([[1.0]] * 4, [[2.0]] * 4, micro_batches=8)
    assert run(pipeline, "gpipe") == run(pipeline, "1f1b") == 33.0
    assert run(Pipeline([[0.5, 0.5]] * 4, [[1.0, 1.0]] * 4, 8), "interleaved") == 28.5
