"""Closed forms of pipelines against the event simulation of random plans: `python benchmarks/schedule_check.py`.

Plans: 2 to 12 stages, 1 to 40 micro-batches, uneven layers, an embedding of up to a layer, a head of up to 1.5
layers, transfers of 0 to 10% of a stage (of a chunk where interleaved), overlapping or occupying both stages.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]


def main() -> None:
    """Print a row for every schedule and kind of transfer."""
    from pipeline_cases import SCHEDULES, errors

    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--plans", type=int, default=2_000, help="random plans of each kind")
    reader.add_argument("--worst", type=int, default=0, help="plans with the largest errors to show")
    options = reader.parse_args()
    print("| schedule | transfers | mean | bias | p99 | worst |\n|---|---|---|---|---|---|")
    for schedule in SCHEDULES:
        for blocking in (False, True):
            error, cases = errors(schedule, options.plans, blocking=blocking)
            size = np.abs(error)
            print(
                f"| {schedule} | {'occupy both stages' if blocking else 'overlap'} | {size.mean():.2%} "
                f"| {error.mean():+.2%} | {np.quantile(size, 0.99):.2%} | {size.max():.2%} |", flush=True,
            )  # fmt: skip
            for i in np.argsort(-size)[: options.worst]:
                print(f"    {error[i]:+.2%} {cases[i]}")


if __name__ == "__main__":
    main()
