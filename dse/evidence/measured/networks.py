"""Turns a row of a table of training throughputs into a design, or into the reason why the product cannot express it.

Rows name a model and a framework; which network, image, batch and optimizer that is stands in data/network_facts.csv
with its source.  Rules that fill blank cells are stated at `network_case`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from dse.evaluation.design import Design
from dse.evidence.measured.devices import chip_of, cluster_in, is_known
from dse.evidence.measured.runs import Case, Skip
from hw_models.chip import Chip
from hw_models.stacks import stack
from workloads.graph_network import GraphNetwork
from workloads.network import Workload
from workloads.networks import GRAPHS
from workloads.plan import Plan
from workloads.precision import Training

__all__ = ["FRAMEWORKS", "Framework", "facts_of", "network_case", "network_cases"]

Row = Mapping[str, str]

#: The task of rows that count.
TRAIN = "train"

#: Columns of the facts that say which rows a line is about, and the column of a row that each looks at: patterns, "|"
#: between alternatives, blank: all.
CHOOSES: Mapping[str, str] = {
    "model": "model", "framework": "framework", "section": "section", "device": "device", "precision": "precision",
    "devices": "num_devices", "seq_len": "seq_len",
}  # fmt: skip


@dataclass(frozen=True)
class Framework:
    """What a measured framework is in the product.

    stack            its row of the table of stacks
    gradient_bytes   bytes of a gradient as it is reduced where products are in half precision
    """

    stack: str
    gradient_bytes: int = 4
    attention: str = "materialized"


#: By how a framework is written; "+XLA" behind the precision is the compiled one.
FRAMEWORKS: dict[str, Framework] = {
    "MxNet": Framework("mxnet", 2),
    "PyTorch": Framework("pytorch"),
    "PaddlePaddle": Framework("paddle"),
    "TensorFlow": Framework("tensorflow"),
    "TensorFlow2": Framework("tensorflow-xla"),
    "TensorFlow 1.x": Framework("tensorflow-2017"),
    "TensorFlow 1.14": Framework("compiled"),
    "TensorFlow 2.5": Framework("synapse"),
    "MXNet 2016": Framework("mxnet-2016"),
    "NV-Caffe": Framework("nv-caffe"),
    "Caffe": Framework("caffe"),
}
COMPILED = {"tensorflow": "tensorflow-xla"}
#: Stacks older than the Winograd kernels of cuDNN 5 (2016).
WITHOUT_WINOGRAD = ("caffe",)

#: By how a recipe's name begins; mixed precision keeps fp32 weights beside.
PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "tf32": "tf32", "fp32": "fp32"}


def network_cases(rows: Iterable[Row], stem: str) -> Iterator[Case]:
    """A case of each row of a table of throughputs."""
    return (network_case(row, stem, number) for number, row in enumerate(rows, start=1))


def network_case(row: Row, stem: str, number: int) -> Case:
    """One measured training throughput as the seconds of its optimizer step.

    t = B u / (r n): B samples of a step, u counted units a sample, r units a second and device, n devices.
    Blank cells: batch, image, sequence and optimizer as the facts of the model, framework, device and precision;
    accumulation 1; every device holds the whole model.
    """
    name = row.get("row_id") or f"{stem}:{number}"
    known: dict[str, Any] = {
        "set": f"networks/{row.get('model') or '?'}/{row.get('framework') or '?'}", "row_id": name, "unit": "s",
        "split": row.get("split") or "", "traits": traits_of(row), "states_plan": False,
    }  # fmt: skip
    try:
        facts = facts_of(row)
        design = design_of(row, facts)
        measured = _measured(row, design, facts)
    except (Skip, ValueError) as problem:
        return Case(skipped=str(problem), **known)
    known["traits"] |= {"network": design.workload.network.name, "batch": str(int(design.plan.micro_batch))}
    devices, at_once = int(design.cluster.devices), int(design.plan.micro_batch)
    inputs = (
        design.chip.name, design.cluster.name, devices, design.workload, at_once, design.training, design.stack.name,
    )  # fmt: skip
    return Case(measured=measured, design=design, inputs=inputs, **known)


def traits_of(row: Row) -> dict[str, Any]:
    """What a residual may depend on, as written in the row."""
    names = {
        "model": "model", "framework": "framework", "device": "device", "precision": "precision", "system": "system",
        "devices": "num_devices", "batch": "batch_per_device", "sequence": "seq_len", "task": "task",
    }  # fmt: skip
    return {name: row.get(column) or "" for name, column in names.items()}


# Facts ------------------------------------------------------------------------------------------------------------


@cache
def _facts() -> tuple[Row, ...]:
    text = files("dse.evidence").joinpath("data", "network_facts.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def facts_of(row: Row) -> dict[str, str]:
    """What is known of the run beside its row: cells of all lines that match it, later lines first."""
    found: dict[str, str] = {}
    for line in _facts():
        if all(_fits(row.get(column) or "", line[name]) for name, column in CHOOSES.items()):
            found |= {name: text for name, text in line.items() if text and name not in CHOOSES}
    return found


def _fits(text: str, pattern: str) -> bool:
    return not pattern or any(fnmatchcase(text, one) for one in pattern.split("|"))


# Design -----------------------------------------------------------------------------------------------------------


def design_of(row: Row, facts: Mapping[str, str]) -> Design:
    """The design of a row; `Skip` says what the row lacks or the product cannot express."""
    if row.get("task") != TRAIN:
        raise Skip(f"{row.get('task') or 'no task'}: listed; only training from the start is predicted")
    if facts.get("reason"):
        raise Skip(facts["reason"])
    if not facts.get("network"):
        raise Skip(f"not identified: no facts of model {row.get('model')!r} under {row.get('framework')!r}")
    device, devices = row.get("device") or "", _whole(row.get("num_devices") or "", "num_devices")
    if not is_known(device):
        raise Skip(f"device {device!r} is not in the table of chips")
    rules = FRAMEWORKS.get(row.get("framework") or "")
    if rules is None:
        raise Skip(f"framework {row.get('framework')!r} has no stack in the product")
    chip = chip_of(device)
    precision = precision_of(facts.get("as_precision") or row.get("precision") or "", chip)
    batch, micro_batch, global_batch = batches(row, facts, devices, precision)
    half = precision in ("fp16", "bf16")
    sequence = _whole(row.get("seq_len") or facts.get("sequence") or "1", "sequence")
    name = facts.get("stack") or rules.stack
    name = COMPILED.get(name, name) if "+XLA" in (row.get("precision") or "") else name
    lanes = precision == "fp32" and chip.compute == "tensor_core" and name not in WITHOUT_WINOGRAD
    training = Training(
        precision=precision,  # type: ignore[arg-type]
        gradient_bytes=rules.gradient_bytes if half else 4,
        optimizer=facts.get("optimizer") or "momentum",  # type: ignore[arg-type]
        attention=rules.attention,  # type: ignore[arg-type]
        cross_entropy="materialized",
        convolution="winograd" if lanes else "direct",
        layout=facts.get("layout") or ("channels_last" if half else "channels_first"),  # type: ignore[arg-type]
    )
    return Design(
        chip,
        cluster_in(device, row.get("system") or "", devices),
        Plan(data=devices, micro_batch=micro_batch),
        Workload(network_of(facts), sequence, global_batch),
        stack(name, chip.name),
        training,
    )


def network_of(facts: Mapping[str, str]) -> GraphNetwork:
    """The network of the facts, at their image size."""
    name = facts["network"]
    if name not in GRAPHS:
        raise Skip(f"network {name!r}: no builder for it yet")
    network, image = GRAPHS[name], _numbers(facts.get("image", ""))
    build: Any = network.build
    for field in ("image", "size"):
        if image and hasattr(build, field):
            size = image[0] if len(image) == 1 else tuple(image)
            return replace(network, build=replace(build, **{field: size})) if getattr(build, field) != size else network
    return network


def precision_of(written: str, chip: Chip) -> str:
    """Number format of the products, one that the chip has."""
    found = re.match(r"[a-z]+\d+", written.lower())
    if not found or found.group() not in PRECISIONS:
        raise Skip(f"precision {written!r}: no such recipe yet")
    precision = PRECISIONS[found.group()]
    if precision not in chip.matmul_rates:
        raise Skip(f"precision {precision!r}: {chip.name} has no matrix rate for it")
    return precision


def batches(row: Row, facts: Mapping[str, str], devices: int, precision: str) -> tuple[int, int, int]:
    """Samples a device and step, at once on it, and of a step of all devices.

    Two numbers in a cell are those of half and of single precision; of two global batches, that which the devices
    share evenly.
    """
    half = precision in ("fp16", "bf16")
    text = row.get("batch_per_device") or facts.get("batch") or ""
    if not text:
        raise Skip("incomplete: no batch_per_device")
    batch = _choose(_numbers(text), half) // _whole(facts.get("batch_tokens") or "1", "batch_tokens")
    at_once = _whole(facts.get("micro_batch") or str(batch), "micro_batch")
    sizes = _numbers(row.get("global_batch") or "")
    fitting = [size for size in sizes if size % (at_once * devices) == 0]
    if sizes and fitting and not facts.get("accumulate"):
        size = _choose(fitting, half)
        return size // devices, at_once, size
    times = _whole(row.get("accum_batch_per_device") or "", "accum_batch_per_device", batch) // batch or 1
    if facts.get("accumulate"):
        times = _whole(facts["accumulate"], "accumulate")
    if batch * times % at_once:
        raise Skip(f"batch {batch * times} is no multiple of the {at_once} at once")
    return batch * times, at_once, batch * times * devices


def _choose(numbers: list[int], half: bool) -> int:
    return numbers[0] if half else numbers[-1]


def _numbers(text: str) -> list[int]:
    """The whole numbers of a text before words in brackets; "8k" is 8 x 1024."""
    return [int(found) * (1024 if kilo else 1) for found, kilo in re.findall(r"(\d+)(k?)", text.split("(")[0])]


def _whole(text: str, name: str, default: int | None = None) -> int:
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Skip(f"incomplete: {name} {text!r} is not a number") from None
    if value != int(value) or value < 1:
        raise Skip(f"{name} {text!r} is not a whole number above 0")
    return int(value)


def _measured(row: Row, design: Design, facts: Mapping[str, str]) -> float:
    """Seconds of a step."""
    total, each = row.get("throughput_total_per_s"), row.get("throughput_per_device_per_s")
    if not total and not each:
        raise Skip("no measured throughput")
    rate = float(total) if total else float(each or 0.0) * float(design.cluster.devices)
    units = float(facts.get("tokens") or 1.0)
    return design.workload.global_batch * units / rate
