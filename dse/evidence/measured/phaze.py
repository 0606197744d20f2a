"""The published template of Phaze and WHAM beside the model's: areas of its designs, how many there are and are valid.

Its few numbers ship with the product (data/phaze_template.csv). Theory: docs/models/phaze.md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files

import numpy as np

from dse.evidence.measured.runs import Case, Row
from hw_models.physical.phaze import is_valid, phaze_area, phaze_space

MEBIBYTE = 2.0**20


def template_cases() -> Iterator[Case]:
    """Areas [m2] of published designs of the template, and sizes of its space, each a set of its own."""
    text = files("dse.evidence").joinpath("data/phaze_template.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        yield Case(
            f"phaze/{row['quantity']}", row["row_id"], row["unit"], measured=float(row["value"]),
            predicted=_predicted(row), inputs=row["row_id"],
        )  # fmt: skip


def _predicted(row: Row) -> float:
    """What the model says of a row."""
    if row["quantity"] == "area":
        cores, width, depth = (float(row[name]) for name in ("tensor_cores", "width", "depth"))
        found = phaze_area(
            cores, width, depth, vector_cores=float(row["vector_cores"]), vector_width=float(row["vector_width"]),
            buffer_bytes=float(row["buffer_MiB"]) * MEBIBYTE,
        )  # fmt: skip
        return float(found)
    space = phaze_space()
    valid = is_valid(phaze_area(**space), space["tensor_cores"], space["vector_cores"])
    return float(np.sum(valid)) if row["quantity"] == "valid" else float(np.size(valid))
