"""Rows of measured or published parts of the model: kernels, collectives, systolic arrays, chips, memory.

Each reader yields one `Case` a row, predicted by the product's own functions or skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.evaluation.design import Design, rows
from dse.evaluation.memory import in_flight, saved_bytes
from dse.evaluation.price import price_matmuls
from dse.evaluation.stages import blocks_by_place, stages
from dse.evaluation.work import work
from dse.measured_runs import DEVICES, Case, Row, chip_of, cluster_of
from hw_models.cluster import Cluster, Tier
from hw_models.compute.systolic import array_cycles
from hw_models.devices import comparisons
from hw_models.network.collective_time import collective_time
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.operators import Block, Matmul, Saved
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

KERNEL_STACK = "generic"
DATAFLOWS = {"os": 0, "ws": 1, "is": 2}


def kernel_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Matrix products alone: time of the forward product, launch included [s]."""
    for number, row in enumerate(table, start=1):
        kernel = row["kernel"]
        name = "GEMM" if kernel.startswith("GEMM") else kernel.split(":")[0]
        case = Case(
            f"{stem}/{name}", row.get("row_id") or f"{stem}:{number}", "s", split=row.get("split") or "",
            measured=_kernel_seconds(row),
            inputs=tuple(row[key] for key in ("kernel", "impl", "device", "dtype", "M", "N", "K")),
            traits={key: row[key] for key in ("device", "dtype", "M", "N", "K")},
        )  # fmt: skip
        reason = _kernel_obstacle(row, case.measured)
        yield replace(case, skipped=reason) if reason else replace(case, predicted=gemm_seconds(row))


def _kernel_seconds(row: Row) -> float | None:
    if row["time_us"]:
        return float(row["time_us"]) * 1e-6
    if row["tflops_per_s"] and row["M"] and row["N"] and row["K"]:
        return 2.0 * float(row["M"]) * float(row["N"]) * float(row["K"]) / (float(row["tflops_per_s"]) * 1e12)
    return None


def _kernel_obstacle(row: Row, measured: float | None) -> str:
    if row["kernel"].startswith("GEMM (max"):
        return "a device's best shape: a constant, not a measurement to predict"
    if row["kernel"] != "GEMM":
        return f"kernel {row['kernel'].split(':')[0]!r} is not priced alone yet"
    if row["device"] not in DEVICES:
        return f"device {row['device']!r} is not in the table of chips"
    if row["dtype"] not in chip_of(row["device"]).matmul_rates:
        return f"precision {row['dtype']!r}: {row['device']} has no matrix rate for it"
    return "" if measured else "no measured time"


@dataclass(frozen=True)
class OneProduct:
    """A network whose body is one matrix product, to price it by the path every design takes."""

    product: Matmul
    name: str = "one product"

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        """The product as the only operator of the body."""
        nothing = Saved(0, 0, 0, 0, 0)
        return tuple(
            Block(place, 1, place, products, (), 1, 0, 0, 0, nothing, 1)  # type: ignore[arg-type]
            for place, products in (("first", ()), ("body", (self.product,)), ("last", ()))
        )

    def divisors(self) -> dict[str, int]:
        """Nothing is split."""
        return {}


def gemm_seconds(row: Row) -> float:
    """Time of one product (M x K)(K x N) on a chip [s], as an operator of a step is priced."""
    m, n, k = (int(float(row[key])) for key in ("M", "N", "K"))
    network = OneProduct(Matmul("product", m, n, k))
    design = Design(
        chip_of(row["device"]), Cluster(1, (Tier(1),)), Plan(), Workload(network, 1, 1), stack(KERNEL_STACK),
        Training(precision=row["dtype"], gradient_bytes=2),  # type: ignore[arg-type]
    )  # fmt: skip
    body = {"body": network.blocks(1)[1]}
    once = {name: np.ones(1) for name in ("tensor", "micro_batch", "sequence_parallel")}
    priced = price_matmuls(rows(design), work(body, design.training, once, paired=True))
    return float(priced.time[0].reshape(-1)[0])


def collective_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """All-reduces of groups inside a node or across nodes [s]."""
    for number, row in enumerate(table, start=1):
        if row["kind"] != "measured":
            continue
        case = Case(
            f"{stem}/{row['collective'].split(' ')[0]}", row.get("row_id") or f"{stem}:{number}", "s",
            split=row.get("split") or "",
            inputs=tuple(row[key] for key in ("collective", "device", "topology", "num_devices", "payload_bytes")),
            traits={key: row[key] for key in ("device", "topology", "num_devices", "payload_bytes")},
        )  # fmt: skip
        reason = _collective_obstacle(row)
        if reason:
            yield replace(case, skipped=reason)
            continue
        size, payload = float(row["num_devices"]), float(row["payload_bytes"])
        busbw = row["busbw_GBps"]
        seconds = (
            float(row["time_us"]) * 1e-6 if row["time_us"]
            else 2.0 * (size - 1.0) / size * payload / (float(busbw) * 1e9)
        )  # fmt: skip
        cost = collective_time(
            _cluster_of_group(row), chip_of(row["device"]), stack(KERNEL_STACK), "all_reduce",
            size=size, stride=1.0, message=payload,
        )  # fmt: skip
        yield replace(case, measured=seconds, predicted=float(np.asarray(cost.time).reshape(-1)[0]))


def _collective_obstacle(row: Row) -> str:
    if row["collective"] != "all_reduce":
        return f"collective {row['collective']!r} is not compared yet"
    missing = [name for name in ("device", "num_devices", "payload_bytes") if not row[name]]
    if missing:
        return f"incomplete: no {', '.join(missing)}"
    if row["device"] not in DEVICES:
        return f"device {row['device']!r} is not in the table of chips"
    return "" if row["time_us"] or row["busbw_GBps"] else "no measured time"


def _cluster_of_group(row: Row) -> Cluster:
    """The reference cluster of the device; four devices wired to each other are a tier of their own."""
    devices = int(float(row["num_devices"]))
    known = cluster_of(row["device"], max(devices, 8))
    if "fully connected" in row["topology"]:
        return Cluster(devices, (replace(known.tiers[0], size=devices, topology="full"),), known.name)
    return known


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
