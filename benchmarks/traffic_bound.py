"""Prints how far the traffic of the tiling model is above the least that any order of work moves.

python benchmarks/traffic_bound.py [--products 10000] [--seed 1]
"""

from __future__ import annotations

import argparse

import numpy as np

from hw_models.memory.tiling import traffic, traffic_lower_bound

#: Bytes of an operand, of a result as it leaves, of an accumulator.
KINDS = {
    "bf16, accumulators of 4 B": (2.0, 2.0, 4.0),
    "fp8, results of 2 B": (1.0, 2.0, 4.0),
    "equal words": (1.0, 1.0, 1.0),
}


def main() -> None:
    """Prints a table: all products, and those whose bound is above compulsory traffic."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=int, default=10_000, help="random products (sizes 1 to 30,000)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    random = np.random.default_rng(chosen.seed)
    m, n, k = np.floor(np.exp(random.uniform(0, np.log(30_000), (3, chosen.products))))
    groups = np.floor(np.exp(random.uniform(0, np.log(100), chosen.products)))
    capacity = np.floor(np.exp(random.uniform(np.log(1e3), np.log(1e9), chosen.products)))
    print("| bytes | products | median | 99% | worst |\n|---|---|---|---|---|")
    for name, (operand, output, accumulator) in KINDS.items():
        kinds = {"operand_bytes": operand, "output_bytes": output, "accumulator_bytes": accumulator}
        bound = traffic_lower_bound(m, n, k, groups, capacity=capacity, **kinds)
        ratio = traffic(m, n, k, groups, capacity=capacity, **kinds) / bound
        once = traffic_lower_bound(m, n, k, groups, capacity=1e30, **kinds)
        for which, rows in (("all", slice(None)), ("bound above compulsory", bound > once)):
            found = ratio[rows]
            middle, high = np.percentile(found, (50, 99))
            print(f"| {name} | {which}: {found.size} | {middle:.3f} | {high:.2f} | {found.max():.2f} |")


if __name__ == "__main__":
    main()
