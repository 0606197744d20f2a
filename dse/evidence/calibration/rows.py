"""Measured rows that constants are fitted to: which are used, what is one situation, and how much each counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dse.evidence.measured.runs import Case
from dse.evidence.validation.networks import is_network
from dse.evidence.validation.scores import is_run
from dse.evidence.validation.validate import predicted_cases, with_constants
from hw_models.stacks import Constants

__all__ = ["FITTED_SPLITS", "PREDICTED_SPLIT", "STEPS", "Pair", "pair_of", "situations", "usable_cases", "weights"]

#: Splits that are fitted ("": a table without splits), and that which is only predicted.
FITTED_SPLITS, PREDICTED_SPLIT = ("calibration", ""), "validation"
#: Kinds of tables that hold training steps.
STEPS = ("runs", "throughputs")

Pair = tuple[str, str]


def pair_of(case: Case) -> Pair:
    """Stack and device of a row, by their names in the product."""
    assert case.design is not None
    return case.design.stack.name, case.design.chip.name


def usable_cases(cases: Iterable[Case]) -> tuple[list[Case], dict[str, int]]:
    """Training steps of splits that are fitted or predicted, as predicted with stated constants; others by reason."""
    wanted = (*FITTED_SPLITS, PREDICTED_SPLIT)
    steps = [case for case in cases if case.unit == "s" and case.split in wanted and (is_run(case) or is_network(case))]
    known = [case for case in steps if case.design is not None and _positive(case.measured)]
    done, _ = predicted_cases([with_constants(case, Constants()) for case in known])
    usable = [found for found in done if not found.skipped]
    lost = [case for case in steps if case.design is None or not _positive(case.measured)]
    reasons = Counter(case.skipped or "no measured time" for case in lost)
    reasons.update(found.skipped for found in done if found.skipped)
    return usable, dict(reasons.most_common())


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0.0


def situations(cases: Sequence[Case]) -> list[tuple[Any, ...]]:
    """What repeats: the work of one layer and micro-batch on one device of a stack, and how many nodes take part.

    Rows that differ in layers, global batch, or in how one node is divided by pipeline and data, repeat it.
    """
    names = ("hidden", "sequence", "micro_batch", "tensor", "recompute", "network", "batch")
    found = []
    for case in cases:
        design = case.design
        assert design is not None
        node = np.asarray(design.cluster.tiers[0].size, dtype=float) if len(design.cluster.tiers) > 1 else math.inf
        nodes = math.ceil(float(design.cluster.devices) / float(node)) if node < math.inf else 1
        work = tuple(str(case.traits.get(name, "")) for name in names)
        found.append((*pair_of(case), nodes, str(design.training), *work))
    return found


def weights(cases: Sequence[Case]) -> list[float]:
    """Weight of each row in the fit.

    1 / (rows of its situation), so that a situation counts once however often it was repeated, times
    min(1, sqrt(mean / situations of its pair)), mean over pairs, so that no pair drowns the others.
    """
    groups = situations(cases)
    repeats = Counter(groups)
    sizes = Counter(group[:2] for group in repeats)
    mean = len(repeats) / len(sizes)
    return [min(1.0, math.sqrt(mean / sizes[group[:2]])) / repeats[group] for group in groups]
