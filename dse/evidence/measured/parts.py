"""Rows of published memory of transformer blocks.

Each row is one `Case`, predicted by the product's own functions or skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluation.memory import in_flight, saved_bytes
from dse.evaluation.stages import blocks_by_place, stages
from dse.evidence.measured.runs import Case, Row
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

#: The four networks of Korthikanti et al. 2022 (arXiv 2205.05198), table 3 and section 6: layers, hidden, heads,
#: pipeline, interleave, micro-batch, global batch; tensor degree 8, sequence 2048.
FORMULA_RUNS = {
    "megatron-22B": (48, 6144, 64, 1, 1, 4, 4),
    "gpt3-175B": (96, 12288, 96, 8, 3, 1, 64),
    "turing-530B": (105, 20480, 128, 35, 3, 1, 280),
    "megatron-1T": (128, 25600, 160, 64, 1, 1, 512),
}
FORMULA_MODES = {
    "none": ("none", 0), "seq": ("none", 1), "sel": ("selective", 0), "seqsel": ("selective", 1), "full": ("full", 0),
}  # fmt: skip


def memory_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Bytes of the transformer blocks of the first stage, by the cited formula: a formula check, not a measurement."""
    for number, row in enumerate(table, start=1):
        case = Case(
            f"{stem}/{row['quantity']}", row.get("row_id") or f"{stem}:{number}", "B", split=row.get("split") or "",
            inputs=(row["quantity"], row["model"], row["mode"]),
            traits={"model": row["model"], "mode": row["mode"]},
        )  # fmt: skip
        if row["unit"] != "GiB":
            yield replace(case, skipped="a share of another row, not bytes")
        elif row["model"] not in FORMULA_RUNS or row["mode"] not in FORMULA_MODES:
            yield replace(case, skipped="not one of the four networks of the cited paper")
        else:
            predicted = formula_bytes(row["model"], row["quantity"], row["mode"])
            yield replace(case, measured=float(row["value"]) * 2.0**30, predicted=predicted)


def formula_bytes(model: str, quantity: str, mode: str) -> float:
    """Bytes of the block part: 18 B a matrix parameter, or what the blocks of the first stage keep."""
    layers, hidden, heads, pipeline, interleave, micro_batch, batch = FORMULA_RUNS[model]
    recompute, sequence_parallel = FORMULA_MODES[mode]
    network = DecoderTransformer(model, layers, hidden, heads, 4 * hidden, 51200)
    workload = Workload(network, 2048, batch)
    plan = Plan(
        tensor=8, pipeline=pipeline, micro_batch=micro_batch, interleave=interleave,
        sequence_parallel=sequence_parallel, recompute=recompute,
    )  # fmt: skip
    columns = replace(plan, **{name: np.array([float(getattr(plan, name))]) for name in Plan.names()})
    training = Training(precision="fp16", attention="materialized")
    body = blocks_by_place(workload)["body"]
    if quantity == "activations":
        kept = saved_bytes(body, columns, training, recompute=columns.recompute)
        flying = in_flight(columns, stages(columns, workload, layers))[0]
        return _one(kept * flying) * layers / pipeline
    matrices = sum(item.k * (item.n + item.n_groups * item.n_group_width) for item in body.matmuls if item.weight)
    per_parameter = training.weight_bytes + training.gradient_bytes + training.state_bytes
    return matrices * layers * per_parameter / (8 * pipeline)


def _one(column: Any) -> float:
    return float(np.asarray(column).reshape(-1)[0])
