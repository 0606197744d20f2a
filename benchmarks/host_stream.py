"""How device and host pace a pass together: four forms, each with its constants fitted anew on measured steps.

`python benchmarks/host_stream.py --data DIR`; the choice is in docs/decisions/0006-two-streams-meet-smoothly.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import dse.evaluation.passes as passes
from dse.evidence.calibration.calibrate import calibrate
from dse.evidence.validation.cases import read_cases

STACK = "megatron-deepspeed"
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "maximum": np.maximum,
    "power 2": lambda busy, issue: np.sqrt(busy * busy + issue * issue),
    "power 3": lambda busy, issue: np.cbrt(busy * busy * busy + issue * issue * issue),
    "power 4": passes.paced,
}


def main() -> None:
    """Print mean errors on fitted and on other rows of the stack whose steps the host paces."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--data", default=os.environ.get("DSE_DATA"), required="DSE_DATA" not in os.environ)
    cases = [
        case for case in read_cases(reader.parse_args().data)[0]
        if case.design is not None and case.design.stack.name == STACK
    ]  # fmt: skip
    print("| form | rows | split | mean error [%] | bias [%] |\n|---|---|---|---|---|")
    for name, form in FORMS.items():
        passes.paced = form  # type: ignore[assignment]
        for error in calibrate(cases, say=lambda _: None).errors:
            print(f"| {name} | {error.n} | {error.split} | {error.mape:.1f} | {error.bias:+.1f} |", flush=True)


if __name__ == "__main__":
    main()
