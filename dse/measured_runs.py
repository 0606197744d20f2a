"""Turns a row of a measured-runs table into a design, or into the reason why the product cannot express it.

Rules that fill blank cells are stated at `run_case`.  Nothing here knows a measured time while it builds a design.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from dse.evaluation.design import Design
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

Row = Mapping[str, str]


class Skip(Exception):
    """Why a row is not predicted."""


@dataclass(frozen=True)
class Case:
    """One measured row.

    set, row_id   where it belongs and its name
    measured      the measured value in `unit`; None where the row has none
    predicted     the model's value; None where `design` gives it, or `skipped` says why there is none
    design        what to evaluate; its step time is the prediction
    skipped       why it is not predicted, or ""
    split         "calibration", "validation", "stretch", "context", or "" in a file without a split
    inputs        equal for rows that ran the same thing
    states_plan   the row says how its optimizer state was sharded; complete rows leave 0 blank, others just do not say
    traits        what a residual may depend on, by name
    """

    set: str
    row_id: str
    unit: str
    measured: float | None = None
    predicted: float | None = None
    design: Design | None = None
    skipped: str = ""
    split: str = ""
    inputs: Hashable = None
    states_plan: bool = True
    traits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """How a device of the tables is named in the product: chip, cluster, and memory capacity if it differs [B]."""

    chip: str
    cluster: str
    capacity: float = 0.0


DEVICES: dict[str, Device] = {
    "A100": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-80GB": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-SXM-80GB": Device("a100-sxm-80gb", "dgx-a100"),
    "A100-40GB": Device("a100-sxm-40gb", "dgx-a100"),
    "H100": Device("h100-sxm", "dgx-h100"),
    "H100-SXM-80GB": Device("h100-sxm", "dgx-h100"),
    "V100": Device("v100-sxm2", "dgx-v100"),
    "V100-SXM2-32GB": Device("v100-sxm2", "dgx-v100"),
    "V100-SXM2-16GB": Device("v100-sxm2", "dgx-v100", 16e9),
    "TPUv2": Device("tpu-v2", "tpu-v2-pod"),
    "TPUv3": Device("tpu-v3", "tpu-v3-pod"),
    "TPUv4": Device("tpu-v4", "tpu-v4-pod"),
}


@dataclass(frozen=True)
class StackRules:
    """What a measured software stack is in the product, and what its plans leave unsaid.

    overlaps    gradients are reduced, and stages exchange, behind computation.  Megatron-LM of 2021 and 2022 does
                neither (Korthikanti et al. 2022, section 6.3), and DeepSpeed leaves it off by default
    attention   kernel where the row names none: Megatron's own, before fused attention kernels
    padding     vocabulary rows a device of the tensor axis is padded to
    """

    name: str
    overlaps: bool = True
    attention: str = "fused"
    padding: int = 1


MEGATRON = StackRules("megatron-lm", overlaps=False, attention="materialized", padding=128)
STACKS: dict[str, StackRules] = {
    "Megatron-LM": MEGATRON,
    "Megatron-DeepSpeed": MEGATRON,
    "MaxText": StackRules("compiled"),
    "Levanter": StackRules("compiled"),
    "T5X/Pathways": StackRules("compiled"),
}
GENERIC = StackRules("generic")

#: Networks that differ from the GPT block, by a word of the model's name.
FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "llama|internlm|mistral|qwen",
        {
            "gated": True, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "none",
            "dropout": False,
        },
    ),
    ("glm", {"gated": True, "positions": "rotary"}),
    ("gemma", {"gated": True, "positions": "rotary", "norm": "rmsnorm", "biases": "none", "dropout": False}),
    ("mpt", {"dropout": False}),
    (
        # 256-wide heads whatever the hidden size: 52e9 parameters at hidden 12288 with 32 heads
        "maxtext",
        {"head_dim": 256, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "none", "dropout": False},
    ),
)
MIXTURES = re.compile(r"deepseek|mixtral|moe|gpt-oss|llama4|kimi|\d+x\d+b|-a\d+b|gemma4-26b", re.IGNORECASE)

RECOMPUTE: dict[str, tuple[str, bool]] = {
    "": ("none", False),
    "none": ("none", False),
    "baseline no recompute": ("none", False),
    "sequence parallel": ("none", True),
    "full": ("full", False),
    "full recompute": ("full", False),
    "selective": ("selective", False),
    "selective recompute": ("selective", False),
    "selective+sp": ("selective", True),
    "selective recompute + sp": ("selective", True),
    "full+sp": ("full", True),
}
PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "fp16/bf16 (see source)": "bf16", "fp32": "fp32", "fp8": "fp8"}
#: Without these a row does not say what ran.
NEEDED = ("layers", "hidden", "heads", "seq_len", "global_batch", "device", "num_devices")


def run_case(row: Row, stem: str, number: int) -> Case:
    """One measured training step: its design and measured time [s].

    Blank cells: ffn 4 x hidden, kv_heads = heads, vocabulary 50304, micro_batch 1, interleave 1, zero_stage 0,
    recompute none, tensor and pipeline 1, data the rest.  Attention as the stack's (`STACKS`).  Biases, norms,
    gates and positions follow the model's family (`FAMILIES`), GPT unless named.  The network of a node as the
    notes say, else that of the reference cluster of the device (`DEVICES`).
    """
    group = row.get("group") or "all"
    name = row.get("row_id") or f"{stem}:{number}"
    known: dict[str, Any] = {"set": f"{stem}/{group}", "row_id": name, "unit": "s", "split": row.get("split") or ""}
    try:
        design = design_of(row)
        measured = measured_time(row)
    except (Skip, ValueError) as problem:
        return Case(skipped=str(problem), measured=_or_none(row), traits=traits_of(row), **known)
    inputs = tuple(sorted((key, value) for key, value in row.items() if key in INPUTS))
    states_plan = bool(row.get("zero_stage")) or known["split"] not in ("stretch", "context")
    return Case(
        measured=measured, design=design, inputs=inputs, states_plan=states_plan, traits=traits_of(row), **known
    )


#: Columns that decide what ran; equal ones are runs of the same thing.
INPUTS = frozenset(
    "model layers hidden ffn heads kv_heads vocab seq_len global_batch micro_batch device num_devices tp pp dp cp ep "
    "interleave zero_stage recompute precision attention_impl framework stack".split()
)


def traits_of(row: Row) -> dict[str, Any]:
    """What a residual may depend on, as written in the row."""
    names = {
        "model": "model", "device": "device", "stack": "stack", "devices": "num_devices", "hidden": "hidden",
        "layers": "layers", "tensor": "tp", "pipeline": "pp", "data": "dp", "micro_batch": "micro_batch",
        "global_batch": "global_batch", "sequence": "seq_len", "recompute": "recompute",
    }  # fmt: skip
    return {name: row.get(column) or "" for name, column in names.items()}


def measured_time(row: Row) -> float:
    """Seconds of a step: as printed, or from tokens a second and device."""
    if row.get("measured_iter_time_s"):
        return float(row["measured_iter_time_s"])
    if not (row.get("tokens_per_s_per_device") and row.get("global_batch") and row.get("seq_len")):
        raise Skip("no measured step time")
    tokens = _whole(row, "global_batch") * _whole(row, "seq_len")
    return tokens / (float(row["tokens_per_s_per_device"]) * _whole(row, "num_devices"))


def _or_none(row: Row) -> float | None:
    try:
        return measured_time(row)
    except (Skip, ValueError):
        return None


def design_of(row: Row) -> Design:
    """The design of a row; `Skip` says what the row lacks or the product cannot express."""
    if MIXTURES.search(row.get("model") or ""):
        raise Skip("mixture of experts: no such network yet")
    if "lora" in (row.get("model") or "").lower():
        raise Skip("LoRA fine-tuning: most weights are frozen")
    missing = [name for name in NEEDED if not row.get(name)]
    if missing:
        raise Skip(f"incomplete: no {', '.join(missing)}")
    if row["device"] not in DEVICES:
        raise Skip(f"device {row['device']!r} is not in the table of chips")
    rules = STACKS.get(row.get("stack") or "", GENERIC)
    plan, devices = plan_of(row, rules), _whole(row, "num_devices")
    sequence = _whole(row, "seq_len")
    hardware = chip_of(row["device"])
    training = Training(precision=precision_of(row, hardware), attention=attention_of(row, rules))  # type: ignore[arg-type]
    return Design(
        hardware,
        cluster_of(row["device"], devices, node_bandwidth(row.get("notes") or "")),
        plan,
        Workload(network_of(row, padding=rules.padding * int(plan.tensor)), sequence, _whole(row, "global_batch")),
        stack(rules.name),
        training,
    )


def network_of(row: Row, *, padding: int = 1) -> DecoderTransformer:
    """The network of a row: its sizes, and the family of its name for the rest."""
    model, hidden = row.get("model") or "", _whole(row, "hidden")
    shape: dict[str, Any] = {}
    for words, found in FAMILIES:
        if re.search(words, model, re.IGNORECASE):
            shape = found
            break
    return DecoderTransformer(
        model,
        _whole(row, "layers"),
        hidden,
        _whole(row, "heads"),
        _whole(row, "ffn", 4 * hidden),
        _whole(row, "vocab", 50304),
        kv_heads=_whole(row, "kv_heads", 0),
        max_sequence=_whole(row, "seq_len"),
        vocabulary_multiple=padding,
        **shape,
    )


def plan_of(row: Row, rules: StackRules) -> Plan:
    """The parallel plan of a row."""
    for name in ("cp", "ep"):
        if _whole(row, name, 1) > 1:
            raise Skip({"cp": "context", "ep": "expert"}[name] + " parallelism: no such plan yet")
    written = (row.get("recompute") or "").strip().lower()
    if written not in RECOMPUTE:
        raise Skip(f"recompute {written!r}: no such plan yet")
    recompute, sequence_parallel = RECOMPUTE[written]
    devices = _whole(row, "num_devices")
    tensor, pipeline = _whole(row, "tp", 1), _whole(row, "pp", 1)
    data = _whole(row, "dp", max(devices // (tensor * pipeline), 1))
    if tensor * pipeline * data != devices:
        raise Skip("the degrees do not multiply to the devices")
    return Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        sequence_parallel=int(sequence_parallel),
        micro_batch=_whole(row, "micro_batch", 1),
        interleave=_whole(row, "interleave", 1),
        zero_stage=zero_stage(row.get("zero_stage") or "", data),
        recompute=recompute,
        overlap_data=int(rules.overlaps),
        overlap_pipeline=int(rules.overlaps),
    )


def zero_stage(text: str, data: int) -> int:
    """0 or 1; more is not a plan of the product yet."""
    if "FSDP" in text or text.strip()[:1] in ("2", "3"):
        raise Skip("ZeRO-2, ZeRO-3 and FSDP: no such plan yet")
    group = re.search(r"group of (\d+)", text)
    if group and data > int(group.group(1)):
        raise Skip("optimizer sharded in groups smaller than the data axis: no such plan yet")
    stage = text.strip()[:1] or "0"
    if stage not in "01":
        raise Skip(f"zero_stage {text!r} does not name a stage")
    return int(stage)


def precision_of(row: Row, hardware: Chip) -> str:
    """Number format of the products, one that the chip has."""
    written = row.get("precision") or "bf16"
    if written not in PRECISIONS:
        raise Skip(f"precision {written!r}: no such recipe yet")
    precision = PRECISIONS[written]
    if precision not in hardware.matmul_rates:
        raise Skip(f"precision {precision!r}: {hardware.name} has no matrix rate for it")
    return precision


def attention_of(row: Row, rules: StackRules) -> str:
    """Fused or materialized, as the row says, else as the stack did."""
    written = (row.get("attention_impl") or "").lower()
    if not written:
        return rules.attention
    return "materialized" if "unfused" in written else "fused"


@cache
def chip_of(device: str) -> Chip:
    """The chip of a device of the tables."""
    found = DEVICES[device]
    known = chip(found.chip)
    if not found.capacity:
        return known
    return replace(known, hbm_stack_capacity=found.capacity / known.hbm_stacks)


@cache
def cluster_of(device: str, devices: int, bandwidth: float = 0.0) -> Cluster:
    """The reference cluster of a device, with another bandwidth between nodes [B/s a device] if that is known."""
    found = cluster(DEVICES[device].cluster, devices)
    if not bandwidth or len(found.tiers) < 2:
        return found
    return replace(found, tiers=(found.tiers[0], replace(found.tiers[1], bandwidth=bandwidth), *found.tiers[2:]))


def node_bandwidth(notes: str, node: int = 8) -> float:
    """Bandwidth between nodes as notes state it [B/s a device, per direction]; 0 where they do not.

    "inter-node 800 Gb/s" and "4x100Gb OmniPath" are of a node, "400 Gb/s RDMA per GPU" of a device.
    """
    if found := re.search(r"(\d+)\s*Gb/s RDMA per GPU", notes):
        return float(found.group(1)) * 1e9 / 8
    if found := re.search(r"inter-node (\d+)\s*Gb/s", notes):
        return float(found.group(1)) * 1e9 / 8 / node
    if found := re.search(r"(\d+)x(\d+)\s*Gb ", notes):
        return float(found.group(1)) * float(found.group(2)) * 1e9 / 8 / node
    return 0.0


def _whole(row: Row, name: str, default: int | None = None) -> int:
    """A whole number of a cell, or the default of a blank one."""
    text = (row.get(name) or "").strip()
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Skip(f"{name} {text!r} is not a number") from None
    if value != int(value) or value < 0:
        raise Skip(f"{name} {text!r} is not a whole number")
    return int(value)
