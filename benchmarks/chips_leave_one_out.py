"""Published chips predicted by a fit without them: `python benchmarks/chips_leave_one_out.py --data DIR`.

Fitted: density of the old processes (area), design margin of chips of fixed clock (power). What is no target is listed.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Print the table, the medians, the one-sided tests and what is excluded."""
    from dse.evidence.measured.chips import chip_cases, dies, leave_one_out, upper_bounds

    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--data", default=os.environ.get("DSE_DATA", "."), help="folder with chips.csv")
    table = Path(reader.parse_args().data) / "chips.csv"
    if not table.is_file():
        reader.error(f"--data: no chips.csv in {str(table.parent)!r}")
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = leave_one_out(rows)
    print("| chip | quantity | published | model | error | without the chip |\n|---|---|---|---|---|---|")
    for item in found:
        scale, unit = (1e6, "mm2") if item.unit == "m2" else (1.0, item.unit)
        print(
            f"| {item.chip} | {item.quantity} [{unit}] | {item.published * scale:.0f} | {item.model * scale:.0f} "
            f"| {item.error:+.1%} | {item.left_out:+.1%} |"
        )
    for quantity in ("area", "tdp"):
        size = np.array([abs(item.left_out) for item in found if item.quantity == quantity])
        print(f"{quantity}: {size.size} rows, median {np.median(size):.1%}, worst {size.max():.1%} without the chip")
    areas = {item.chip: abs(item.left_out) for item in found if item.quantity == "area"}
    each = [areas[die.rows[0]] for die in dies()]
    print(f"area: {len(each)} dies, median {np.median(each):.1%}, worst {max(each):.1%} without the die")
    for name, model, bound in upper_bounds():
        verdict = "holds" if model <= bound else "fails"
        print(f"{name}: {model * 1e6:.0f} mm2, published as < {bound * 1e6:.0f}: {verdict}")
    for case in chip_cases(rows, "chips"):
        if case.skipped and "not published" not in case.skipped:
            print(f"excluded: {case.row_id}: {case.skipped}")


if __name__ == "__main__":
    main()
