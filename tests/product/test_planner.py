"""The planner's answer: the best plan by brute force, why the others lose, what nearly fits, and the bill."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import a100, small_network

from dse.api.evaluation import evaluate
from dse.evaluation.design import Design
from dse.exploration.plans import PlanSpace
from dse.inputs.catalogs import default_cluster
from dse.insight.planner import PlanReport, plan
from hw_models.chip import Chip
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan

DEVICES, BATCH, SEQUENCE = 8, 8, 64
NETWORK = small_network(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=512)


def tight() -> Chip:
    """A chip so small that most plans do not fit."""
    return replace(a100(), hbm_stacks=1, hbm_stack_capacity=3.16e8)


def small_plan(**changes: Any) -> PlanReport:
    settings: dict[str, Any] = {
        "devices": DEVICES, "global_batch": BATCH, "sequence": SEQUENCE, "cluster": "dgx-a100", "stack": "compiled",
    }
    return plan(NETWORK, changes.pop("chip", a100()), **{**settings, **changes})


def brute_force(device: Chip) -> dict[str, np.ndarray]:
    """Every combination of every value, canonical or not; only whole rules decide (independent of the enumeration)."""
    ways = range(1, DEVICES + 1)
    names = Plan.names()
    values: dict[str, Any] = {
        "tensor": ways, "pipeline": ways, "data": ways, "sequence_parallel": (0, 1), "micro_batch": ways,
        "interleave": (1, 2, 3, 4), "schedule": (0, 1), "zero_stage": (0, 1, 2, 3), "recompute": (0, 1, 2),
        "overlap_data": (0, 1), "overlap_pipeline": (0, 1), "split": (0, 1), "order": range(6),
    }  # fmt: skip
    # what the usual space leaves closed
    values = {name: (value,) for name, value in vars(Plan()).items()} | values
    shapes = [
        (t, p, d, b, v)
        for t, p, d, b, v in itertools.product(ways, ways, ways, ways, (1, 2, 3, 4))
        if t * p * d == DEVICES and BATCH % (d * b) == 0 and 4 % t == 0 and p <= 4
        and (v == 1 or 4 % (p * v) == 0 or 6 % (p * v) == 0)
    ]
    rest = [name for name in names if name not in ("tensor", "pipeline", "data", "micro_batch", "interleave")]
    choices = np.array(list(itertools.product(*(values[name] for name in rest))), dtype=float)
    outer = np.repeat(np.array(shapes, dtype=float), len(choices), axis=0)
    inner = np.tile(choices, (len(shapes), 1))
    columns = dict(zip(("tensor", "pipeline", "data", "micro_batch", "interleave"), outer.T, strict=True))
    columns |= dict(zip(rest, inner.T, strict=True))
    design = Design(
        device, cluster("dgx-a100", DEVICES), Plan(**columns), Workload(NETWORK, SEQUENCE, BATCH),
        stack("compiled", device.name),
    )  # fmt: skip
    result = evaluate(design)
    return {"time": result.column("step_time"), "feasible": result.feasible, "memory": result.violation("memory")}


@pytest.mark.parametrize("device", [a100(), tight()], ids=["roomy", "tight"])
def test_the_ten_best_are_those_of_brute_force(device: Chip) -> None:
    found = brute_force(device)
    assert found["feasible"].any()
    expected = np.unique(found["time"][found["feasible"]])[:10]
    times = [item.evaluation.value("step_time") for item in small_plan(chip=device).best]
    assert times == expected.tolist()


def test_some_plans_do_not_fit_the_tight_chip() -> None:
    report = small_plan(chip=tight())
    assert 0 < report.feasible < report.evaluated
    assert report.failures["memory"] == report.evaluated - report.feasible


def test_what_is_reported_evaluates_to_the_same_bits() -> None:
    report = small_plan(chip=tight())
    for item in (*report.best, *report.alternatives, *report.misses):
        again = evaluate(item.evaluation.design)
        assert all(again.value(name) == item.evaluation.value(name) for name in again.metrics)
        assert isinstance(item.plan.tensor, int)


def test_runners_up_lose_by_parts_that_add_up() -> None:
    best, *others = small_plan().best
    assert best.behind == ()
    for item in others:
        slower = item.evaluation.value("step_time") - best.evaluation.value("step_time")
        assert slower > 0
        assert math.fsum(part.difference for part in item.behind) == pytest.approx(slower, rel=1e-9)
        sizes = [abs(part.difference) for part in item.behind]
        assert sizes == sorted(sizes, reverse=True)


def test_alternatives_divide_the_devices_otherwise_and_each_once() -> None:
    report = small_plan()
    shapes = [(item.plan.tensor, item.plan.pipeline, item.plan.data) for item in report.alternatives]
    winner = report.best[0].plan
    assert len(shapes) == len(set(shapes)) and (winner.tensor, winner.pipeline, winner.data) not in shapes
    times = [item.evaluation.value("step_time") for item in report.alternatives]
    assert times == sorted(times)


def test_ties_are_counted_and_resolved_the_same_way_every_time() -> None:
    report = small_plan(plan_space=PlanSpace(tensor=(1,), pipeline=(1,)), stack="ideal")
    assert [item.plan for item in report.best] == [
        item.plan for item in small_plan(plan_space=PlanSpace(tensor=(1,), pipeline=(1,)), stack="ideal").best
    ]
    times = [item.evaluation.value("step_time") for item in report.best]
    assert len(times) == len(set(times))
    # selective recomputation of a fused attention core changes memory or time; the counts cover all that fit
    shown = sum(1 + item.ties for item in small_plan(top=10**6, plan_space=PlanSpace(tensor=(1, 2))).best)
    assert shown == small_plan(plan_space=PlanSpace(tensor=(1, 2))).feasible


def test_near_misses_are_faster_and_say_what_they_lack() -> None:
    report = plan("gpt3-6.7b", "h100-sxm", devices=16, global_batch=64)
    assert report.misses
    best = report.best[0].evaluation.value("step_time")
    lacks = [item.lacks[0] for item in report.misses]
    times = [item.evaluation.value("step_time") for item in report.misses]
    assert all(name == "memory" and found > limit == chip("h100-sxm").hbm_capacity for name, found, limit, _ in lacks)
    assert [found for _, found, _, _ in lacks] == sorted(found for _, found, _, _ in lacks)
    assert times == sorted(times, reverse=True) and times[0] < best
    assert report.misses[0].gain == pytest.approx(1 - times[0] / best)


def test_nothing_fits_is_an_answer() -> None:
    # 405e9 parameters on two devices
    report = plan("llama3-405b", "h100-sxm", devices=2, global_batch=16, tokens=10**12)
    assert not report.fits and report.best == () and report.alternatives == ()
    assert report.failures == {"memory": report.evaluated}
    assert report.power is None
    least = min(item.evaluation.value("memory") for item in report.misses)
    assert report.misses[0].evaluation.value("memory") == least > chip("h100-sxm").hbm_capacity
    assert report.misses[0].gain is None


def test_no_plan_at_all_is_an_answer() -> None:
    report = small_plan(plan_space=PlanSpace(tensor=(3,)))
    assert (report.evaluated, report.feasible, report.best, report.misses) == (0, 0, (), ())


def test_steps_are_rounded_up_once_and_exactly() -> None:
    # 1,200,000 steps of 1,152 samples, trained with batches of 1,008: ceil(1,382,400,000 / 1,008) steps
    samples = 1_200_000 * 1152
    report = small_plan(global_batch=1008, tokens=samples * SEQUENCE)
    assert report.best[0].run is not None
    assert report.best[0].run.steps == 1_371_429
    # beyond 2^53 the count stays exact
    huge = small_plan(global_batch=1, devices=1, sequence=64, tokens=64 * (2**60) + 1).best[0].run
    assert huge is not None and huge.steps == 2**60 + 1


def test_totals_scale_with_the_tokens_and_a_step_does_not() -> None:
    per_step = BATCH * SEQUENCE
    one, ten = (small_plan(tokens=per_step * n).best[0] for n in (7, 70))
    assert one.run is not None and ten.run is not None
    assert (one.run.steps, ten.run.steps) == (7, 70)
    assert ten.run.time == pytest.approx(10 * one.run.time)
    assert ten.run.energy == pytest.approx(10 * one.run.energy)
    assert ten.run.usd == pytest.approx(10 * (one.run.usd or 0.0))
    assert one.evaluation.value("step_time") == ten.evaluation.value("step_time")


def test_the_bill_is_devices_times_price_times_time() -> None:
    report = small_plan(tokens=10**9)
    run, price = report.best[0].run, cluster("dgx-a100", 8).usd_per_device_hour
    assert run is not None and report.price == 8 * price
    assert run.usd == pytest.approx(8 * price * run.time / 3600)
    best = report.best[0].evaluation
    assert report.power == pytest.approx(8 * best.value("average_power"))
    assert report.overhead == 8 * cluster("dgx-a100", 8).overhead_power
    assert run.total_energy == pytest.approx(run.energy + report.overhead * run.time)


def test_an_unknown_price_or_host_power_is_none_and_not_zero() -> None:
    report = small_plan(cluster="generic-8", tokens=10**9)
    assert report.best[0].run is not None
    assert report.price is None and report.best[0].run.usd is None
    assert report.overhead is None and report.best[0].run.total_energy is None
    assert small_plan().best[0].run is None


def test_names_and_objects_mean_the_same() -> None:
    named = plan("gpt2-small", "a100-sxm-80gb", devices=8, global_batch=64)
    from workloads.published import network

    wired = cluster("dgx-a100", 8)
    given = plan(network("gpt2-small"), a100(), devices=8, global_batch=64, sequence=1024, cluster=wired)
    assert named.best[0].evaluation.value("step_time") == given.best[0].evaluation.value("step_time")
    assert named.workload.sequence == 1024


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v100-sxm2", "dgx-v100"), ("a100-sxm-40gb", "dgx-a100"), ("h100-sxm", "dgx-h100"), ("tpu-v4", "tpu-v4-pod"),
        ("tpu-v4i", "generic-8"),
    ],
)  # fmt: skip
def test_a_chip_comes_with_its_cluster(name: str, expected: str) -> None:
    assert default_cluster(chip(name)) == expected


def test_bad_input_is_named_all_at_once() -> None:
    with pytest.raises(ValueError, match="devices: found 0.*top: found -1.*tokens: found 2.5"):
        small_plan(devices=0, top=-1, tokens=2.5)
    with pytest.raises(ValueError, match="found 8 and a cluster of 16"):
        small_plan(cluster=cluster("dgx-a100", 16))
    with pytest.raises(ValueError, match="sequence: found none"):
        small_plan(sequence=None)
    with pytest.raises(ValueError, match="no matrix rate for 'bf16'"):
        plan("gpt2-small", "v100-sxm2", devices=8, global_batch=64)
    with pytest.raises(ValueError, match="network: found 'gpt9'"):
        plan("gpt9", "h100-sxm", devices=8, global_batch=64)


def test_a_report_is_json() -> None:
    plain = json.loads(json.dumps(small_plan(tokens=10**9, chip=tight()).to_plain()))
    assert plain["best"][0]["plan"]["tensor"] >= 1 and plain["best"][0]["training"]["steps"] > 0
    assert plain["failures"]["memory"] > 0
    assert json.loads(json.dumps(plan("llama3-405b", "h100-sxm", devices=2, global_batch=2).to_plain()))["best"] == []
