"""Rows of measured or published parts of the model: systolic arrays, chips, memory.

Each reader yields one `Case` a row, predicted by the product's own functions or skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluation.memory import in_flight, saved_bytes
from dse.evaluation.stages import blocks_by_place, stages
from dse.measured_runs import Case, Row
from hw_models.compute.systolic import array_cycles
from hw_models.devices import comparisons
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

DATAFLOWS = {"os": 0, "ws": 1, "is": 2}


def systolic_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Cycles of one array for one product, operands on chip, against a cycle-level simulator."""
    group = stem.removeprefix("scalesim_")
    for number, row in enumerate(table, start=1):
        case = Case(
            f"systolic/{group}", row.get("row_id") or f"{stem}:{number}", "cycle", split=row.get("split") or "",
            inputs=tuple(row[key] for key in ("dataflow", "rows", "cols", "M", "N", "K")),
            traits={key: row[key] for key in ("dataflow", "rows", "cols", "M", "N", "K")},
        )  # fmt: skip
        if not row.get("cycles_true"):
            yield replace(case, skipped="stalls behind a narrow channel are not in the model")
            continue
        m, n, k, height, width = (float(row[key]) for key in ("M", "N", "K", "rows", "cols"))
        cycles = array_cycles(m, n, k, dataflow=DATAFLOWS[row["dataflow"]], rows=height, columns=width)
        yield replace(case, measured=float(row["cycles_true"]), predicted=float(np.asarray(cycles).reshape(-1)[0]))


#: Chips of the published table by their name in the product.
CHIPS = {
    "TPUv2": "tpu-v2", "TPUv3": "tpu-v3", "TPUv4i": "tpu-v4i", "TPUv4": "tpu-v4", "V100-SXM2": "v100-sxm2",
    "A100-SXM-40GB": "a100-sxm-40gb", "A100-SXM-80GB": "a100-sxm-80gb", "H100-SXM5": "h100-sxm",
}  # fmt: skip
#: Dies published only as an upper bound: 625, 700, 600 and 400 mm2.
BOUNDS = ("TPUv2", "TPUv3", "TPUv4", "TPUv4i")


def chip_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Die area [m2] and TDP [W] of chips, where the published value was read in a source."""
    for row in table:
        known = {}
        if row["chip"] in CHIPS:
            known = {item.quantity: item for item in comparisons(CHIPS[row["chip"]])[:2]}
        for quantity, column, word, unit, scale in (
            ("die area", "die_area_mm2", "die", "m2", 1e-6),
            ("TDP", "tdp_W", "tdp", "W", 1.0),
        ):
            name = "area" if quantity == "die area" else "tdp"
            case = Case(
                f"{stem}/{name}", f"{row.get('row_id') or row['chip']}: {name}", unit, split=row.get("split") or "",
                inputs=row["chip"], traits={"chip": row["chip"], "process": row["process_node_nm"]},
            )  # fmt: skip
            reason = _chip_obstacle(row, column, word)
            if reason:
                yield replace(case, skipped=reason)
            else:
                measured, predicted = float(row[column]) * scale, float(known[quantity].model)
                yield replace(case, measured=measured, predicted=predicted)


def _chip_obstacle(row: Row, column: str, word: str) -> str:
    if not row[column]:
        return f"{column} is not published"
    verified = row["fields_verified"]
    if not verified.startswith("all") and word not in verified:
        return f"{column} was not read in a source"
    if word == "die" and row["chip"] in BOUNDS:
        return f"{column} is an upper bound"
    return "" if row["chip"] in CHIPS else "the chip is not in the table of chips"


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
