"""The event simulation of a step: by hand, against a second simulator, and beside the closed forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import a100, small_network
from pipeline_cases import SCHEDULES, random_cases, simulated
from pipeline_simulator import ORDERS, Pipeline

from dse.command.main import main
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.simulation.engine import Engine
from dse.simulation.orders import BACKWARD, FORWARD, WEIGHTS, passes_of
from dse.simulation.prices import Chunk, Pieces
from dse.simulation.step import re_score, simulate, simulate_pieces, simulated_step_time
from hw_models.clusters import cluster
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan

# Engine -----------------------------------------------------------------------------------------------------------


def test_tasks_of_a_stream_run_in_their_order_and_wait_for_what_they_need() -> None:
    engine = Engine()
    engine.add("a", "one", 2.0)
    engine.add("b", "two", 1.0, needs=("a",))
    engine.add("c", "one", 3.0, needs=("b",))
    engine.add("d", "one", 1.0)  # ready at once, but after c on its stream
    spans = engine.run()
    assert [spans[name] for name in "abcd"] == [(0, 2), (2, 3), (3, 6), (6, 7)]


def test_a_stream_with_priorities_serves_what_is_ready_the_lowest_first() -> None:
    engine = Engine()
    engine.add("late", "work", 2.0)
    for name, priority, needs in (("x", 3.0, ()), ("y", 2.0, ("late",)), ("z", 1.0, ("late",))):
        engine.add(name, "link", 4.0, needs=needs, priority=priority)
    spans = engine.run()
    # x is alone at 0; y and z wait for it, and z goes first
    assert [spans[name].start for name in "xzy"] == [0, 4, 8]


def test_a_duration_may_depend_on_what_has_run() -> None:
    engine = Engine()
    engine.add("a", "one", 2.0)
    engine.add("b", "one", lambda spans: 10.0 * spans["a"].end)
    assert engine.run()["b"].end == 22.0


def test_tasks_that_wait_for_each_other_are_named() -> None:
    engine = Engine()
    engine.add("a", "one", 1.0, needs=("b",))
    engine.add("b", "two", 1.0, needs=("a",))
    engine.add("free", "three", 1.0)
    with pytest.raises(ValueError, match=r"^tasks wait for each other: a, b$"):
        engine.run()


def test_labels_are_unique_and_needs_exist() -> None:
    twice, unknown = Engine(), Engine()
    for engine in (twice, twice):
        engine.add("a", "one", 1.0)
    unknown.add("a", "one", 1.0, needs=("nobody",))
    with pytest.raises(ValueError, match="found a twice"):
        twice.run()
    with pytest.raises(ValueError, match="no task: nobody"):
        unknown.run()


# Schedules --------------------------------------------------------------------------------------------------------


def pieces_of(pipeline: Pipeline, schedule: str, **changes: object) -> Pieces:
    """Pieces without anything but passes and transfers."""
    weights = pipeline.weights or [[0.0] * pipeline.chunks] * pipeline.stages
    chunks = tuple(
        tuple(Chunk(f, b + w, w, 1.0) for f, b, w in zip(*stage, strict=True))
        for stage in zip(pipeline.forward, pipeline.backward, weights, strict=True)
    )
    step = Pieces(
        schedule="1f1b" if schedule == "interleaved" else schedule,
        micro_batches=pipeline.micro_batches, chunks=chunks, transfer=pipeline.transfer,
        overlaps_transfer=not pipeline.blocking, reduction=0.0, buckets=1, overlaps_reduction=True,
        overlap_efficiency=1.0, gather=0.0, tied=0.0, update=0.0, overhead=0.0,
    )  # fmt: skip
    return replace(step, **changes)


def even(p: int, m: int, chunks: int = 1, **changes: object) -> Pieces:
    """Stages of 1 s forward and 2 s backward, half of it weight gradients."""
    parts = [[1.0 / chunks] * chunks] * p
    schedule = str(changes.pop("schedule", "1f1b"))
    return pieces_of(Pipeline(parts, parts, m, weights=parts), schedule, **changes)


@pytest.mark.parametrize(
    ("schedule", "chunks", "seconds"),
    # (m + p - 1) 3; the bubble halves with two chunks; ZB-H1: m 3 + (p - 1)(1 + 1 - 1)
    [("gpipe", 1, 33.0), ("1f1b", 1, 33.0), ("1f1b", 2, 28.5), ("zero_bubble", 1, 27.0)],
)
def test_textbook_pipelines_of_4_stages_and_8_micro_batches(schedule: str, chunks: int, seconds: float) -> None:
    assert simulate_pieces(even(4, 8, chunks, schedule=schedule)).total == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("blocking", [False, True])
def test_the_engine_agrees_with_a_simulator_that_shares_no_code(schedule: str, blocking: bool) -> None:
    for case in random_cases(schedule, 12):
        seen: list[Pipeline] = []
        truth = simulated(case, schedule, blocking=blocking, keep=seen)
        assert simulate_pieces(pieces_of(seen[0], schedule)).total == pytest.approx(truth, rel=1e-9), case


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_orders_agree_with_those_written_down_a_second_time(schedule: str) -> None:
    names = {"f": FORWARD, "b": BACKWARD, "w": WEIGHTS}
    v = 2 if schedule == "interleaved" else 1
    for p, m in ((1, 3), (4, 8), (5, 5), (4, 2) if v == 1 else (3, 3)):
        if p * v == v and v > 1:
            continue
        pipeline = Pipeline([[1.0] * v] * p, [[1.0] * v] * p, m)
        for stage in range(p):
            told = [(names[kind], chunk, i) for kind, chunk, i in ORDERS[schedule](stage, pipeline)]
            assert passes_of("1f1b" if v > 1 else schedule, stage, p, m, v) == told


# What follows the passes ------------------------------------------------------------------------------------------


def test_gradients_hide_behind_the_last_backward_pass_up_to_the_last_bucket() -> None:
    # one stage: 3 micro-batches of 3 s; 4 buckets of 0.25 s, of which 3 run behind the last 2 s
    one = even(1, 3, reduction=1.0, buckets=4)
    assert simulate_pieces(one).total == pytest.approx(9.25)
    # nothing overlaps: all of it follows
    assert simulate_pieces(replace(one, overlaps_reduction=False)).total == pytest.approx(10.0)
    # an efficiency of 0.6 leaves 0.4 of what was hidden, 0.75 s
    assert simulate_pieces(replace(one, overlap_efficiency=0.6)).total == pytest.approx(9.25 + 0.3)


def test_a_reduction_longer_than_the_backward_pass_goes_on_after_it() -> None:
    # 4 buckets of 2 s, the first ready 0.5 s into the last backward pass of 2 s: 7.5 + 8
    assert simulate_pieces(even(1, 3, reduction=8.0, buckets=4)).total == pytest.approx(15.5)


def test_update_gather_tied_embedding_and_overhead_add_up_at_the_end() -> None:
    plain = simulate_pieces(even(4, 8)).total
    more = simulate_pieces(even(4, 8, update=0.5, gather=0.25, tied=0.125, overhead=0.0625)).total
    assert more == pytest.approx(plain + 0.9375, rel=1e-12)


# Designs ----------------------------------------------------------------------------------------------------------


def design(**plan: object) -> Design:
    network = small_network(layers=8, hidden=512, heads=8, ffn=2048, vocabulary=1024)
    devices = int(np.prod([int(str(plan.get(name, 1))) for name in ("tensor", "pipeline", "data")]))
    return Design(a100(), cluster("dgx-a100", devices), Plan(**plan), Workload(network, 512, 64))


PLANS = [
    {"data": 2},
    {"pipeline": 4, "data": 2},
    {"pipeline": 4, "data": 2, "schedule": "gpipe"},
    {"pipeline": 4, "interleave": 2},
    {"pipeline": 4, "data": 2, "schedule": "zero_bubble"},
    {"pipeline": 3, "recompute": "full", "recompute_layers": 2},
    {"pipeline": 4, "tensor": 2, "split": "balanced", "overlap_pipeline": False, "overlap_data": False},
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_simulated_step_is_as_long_as_the_closed_form_says(plan: dict[str, object]) -> None:
    found = simulate(design(**plan)).total
    closed = float(evaluate(design(**plan)).column("step_time")[0])
    assert closed == pytest.approx(found, rel=0.06), plan
    assert simulated_step_time(design(**plan)) == found


@pytest.mark.parametrize("plan", PLANS[1:5])
def test_few_micro_batches_give_the_time_of_many(plan: dict[str, object]) -> None:
    one = design(**plan)
    assert simulated_step_time(one, limit=10) == pytest.approx(simulate(one).total, rel=2e-3)
    drawn = simulate(one, limit=10)
    assert drawn.drawn < drawn.micro_batches and drawn.total == pytest.approx(simulate(one).total, rel=2e-3)


def test_a_front_is_scored_design_by_design() -> None:
    designs = [design(**plan) for plan in PLANS[:3]]
    assert re_score(designs) == [simulate(one).total for one in designs]


def test_columns_of_designs_are_refused() -> None:
    with pytest.raises(ValueError, match="found 2 designs in columns"):
        simulate(design(data=1, micro_batch=np.array([1, 2])))  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", PLANS)
def test_a_stream_does_one_thing_at_a_time_and_every_pass_is_there(plan: dict[str, object]) -> None:
    found = simulate(design(**plan))
    free: dict[tuple[int, str], float] = {}
    for event in found.events:
        assert event.start >= free.get((event.stage, event.stream), 0.0) - 1e-15
        free[event.stage, event.stream] = event.end
    forwards = [event for event in found.events if event.name == FORWARD]
    stages, chunks = int(str(plan.get("pipeline", 1))), int(str(plan.get("interleave", 1)))
    assert len(forwards) == found.micro_batches * stages * chunks
    assert max(event.end for event in found.events) == pytest.approx(found.total)


def test_the_timeline_is_valid_trace_events_in_microseconds() -> None:
    found = simulate(design(pipeline=4, data=2))
    data = json.loads(found.to_trace_json())
    events = data["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(found.events)
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(event) for event in drawn)
    assert max(event["ts"] + event["dur"] for event in drawn) == pytest.approx(found.total * 1e6)
    assert {event["pid"] for event in drawn} == {0, 1, 2, 3}
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {f"stage {stage}" for stage in range(4)}
    threads = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in drawn} <= threads


def test_the_command_writes_a_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "step.json"
    flags = "--network gpt2-small --chip a100-sxm-80gb --devices 8 --global-batch 64 --pipeline 4 --data 2"
    assert main(["trace", *flags.split(), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    drawn = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(drawn) == told["events"] > 0
    assert told["step_time_simulated"] == pytest.approx(told["step_time"], rel=0.06)
    assert main(["trace", *flags.split(), "--out", str(tmp_path / "no" / "step.json")]) == 2


def test_two_simulations_of_a_design_are_equal() -> None:
    assert simulate(design(pipeline=4, data=2)) == simulate(design(pipeline=4, data=2))


def test_a_stack_without_buckets_reduces_gradients_as_they_come() -> None:
    design = Design(a100(), cluster("dgx-a100", 8), Plan(data=8), Workload(small_network(), 64, 16), stack("ideal"))
    assert simulated_step_time(design) == pytest.approx(evaluate(design).value("step_time"), rel=0.02)
