"""How fast designs are evaluated and how much memory that takes: sweeps, random batches, and cost by batch size.

Times are wall-clock of this machine; `numpy_multiply_per_s` of the same run is the yardstick to compare machines.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from dse.base.columns import as_column, changed, unchecked
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.evaluation.result import METRICS
from dse.exploration.plans import PlanTable, enumerate_plans, plan_of
from dse.exploration.sweep import Goals, sweep
from dse.exploration.workers import processors
from dse.problem.objectives import objective
from hw_models.chip import Chip
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.published import network

DEVICES = 512
CHUNK = 8192
SIZES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def scene() -> tuple[Workload, PlanTable]:
    """GPT-3 175B with a batch of 1,536 on 512 devices, and all its canonical plans."""
    workload = Workload(network("gpt3-175b"), 2048, 1536)
    return workload, enumerate_plans(workload, DEVICES)


def random_chips(count: int, seed: int) -> Chip:
    """`count` systolic chips with continuous clocks and bandwidths, so that no two are equal; columns (N,)."""
    rng = np.random.default_rng(seed)
    base = chip("tpu-v4")
    return unchecked(
        base,
        {
            "clock": rng.uniform(0.6e9, 2.0e9, count),
            "array_count": rng.integers(1, 65, count).astype(float),
            "array_rows": 16.0 * rng.integers(1, 17, count),
            "array_columns": 16.0 * rng.integers(1, 17, count),
            "dataflow": rng.integers(0, 3, count).astype(float),
            "vector_lanes": 1024.0 * rng.integers(1, 33, count),
            "shared_sram": rng.uniform(8e6, 256e6, count),
            "hbm_stacks": rng.integers(2, 9, count).astype(float),
            "hbm_stack_bandwidth": rng.uniform(3e11, 8e11, count),
            "link_bandwidth": rng.uniform(1e10, 5e10, count),
        },
    )


def _design(hardware: Chip, plan: Any, workload: Workload) -> Design:
    return Design(hardware, cluster("generic-8", DEVICES), plan, workload, stack("compiled"))


def sweep_chips(task: tuple[int, int]) -> int:
    """Sweep every plan on `count` random chips; designs evaluated."""
    count, seed = task
    workload, plans = scene()
    goals = Goals((objective("throughput"), objective("energy_per_token"), objective("die_area")))
    chips = as_column(random_chips(count, seed))
    outcomes = sweep(
        lambda part, plan: _design(_slice(chips, part), plan, workload), count, plans, goals
    )
    return sum(outcome.evaluated for outcome in outcomes)


def _slice(model: Chip, part: np.ndarray) -> Chip:
    """The rows `part` of a chip whose columns are (N, 1)."""
    return changed(model, lambda _, value: value[part] if getattr(value, "ndim", 0) == 2 else value)


def batch(task: tuple[int, int]) -> int:
    """Evaluate `count` random (chip, plan) pairs in chunks; every chip differs, so every pair does."""
    count, seed = task
    workload, plans = scene()
    rng = np.random.default_rng(seed)
    done = 0
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        at = rng.integers(0, len(plans), size)
        plan = plan_of({name: column[at] for name, column in plans.columns.items()})
        result = evaluate(_design(random_chips(size, seed + start + 1), plan, workload))
        done += len(result)
    return done


def _rate(pool: ProcessPoolExecutor | None, work: Callable[[tuple[int, int]], int], count: int, jobs: int) -> float:
    tasks = [(count, 7919 * job) for job in range(jobs)]
    started = time.perf_counter()
    done = sum(pool.map(work, tasks)) if pool else sum(work(task) for task in tasks)
    return done / (time.perf_counter() - started)


def _yardstick() -> float:
    """Elements a second of one numpy multiplication of cached columns, one process."""
    values = np.random.default_rng(0).random(16384)
    out = np.empty_like(values)
    started = time.process_time()
    for _ in range(2000):
        np.multiply(values, values, out=out)
    return 2000 * values.size / (time.process_time() - started)


def cost_by_size(largest: int, *, seconds: float = 2.0) -> list[dict[str, float]]:
    """CPU seconds a design of random batches of growing size, one process; batches above a chunk are streamed."""
    found = []
    for size in SIZES:
        if size > largest:
            break
        repeats, spent = 0, 0.0
        while repeats == 0 or (spent < seconds / 10 and repeats < 50):
            started = time.process_time()
            batch((size, 1))
            spent += time.process_time() - started
            repeats += 1
        setup = _setup_time()
        each = max(spent / repeats - setup, 0.0) / size
        found.append({"designs": size, "cpu_s_per_design": each, "numpy_elements_per_design": each * _yardstick()})
    return found


def _setup_time() -> float:
    started = time.process_time()
    scene()
    return time.process_time() - started


def peak_rss_bytes() -> int:
    """Largest resident memory of this process and of any of its children [B]."""
    scale = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return scale * (own + children)


def bench(
    *, jobs: int | None = None, chips: int = 64, designs: int = 400_000, largest: int = 10_000_000
) -> dict[str, Any]:
    """Rates with `jobs` processes, memory, and cost by batch size.

    sweep_designs_per_s   every canonical plan on `chips` random chips a process, reduced to fronts
    batch_designs_per_s   `designs` random (chip, plan) pairs a process
    Every evaluation fills all columns of a result.
    """
    workers = processors() if jobs is None else jobs
    workload, plans = scene()
    pool = None
    if workers > 1:
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method))
        list(pool.map(batch, [(CHUNK, 0)] * (2 * workers)))
    try:
        sweep_rate = _rate(pool, sweep_chips, chips, workers)
        batch_rate = _rate(pool, batch, designs, workers)
    finally:
        if pool:
            pool.shutdown()
    return {
        "network": workload.network.name,
        "devices": DEVICES,
        "canonical_plans": len(plans),
        "result_columns": len(METRICS),
        "processes": workers,
        "sweep_designs_per_s": sweep_rate,
        "batch_designs_per_s": batch_rate,
        "numpy_multiply_per_s": _yardstick(),
        "cost_by_size": cost_by_size(largest),
        "peak_rss_bytes": peak_rss_bytes(),
    }
