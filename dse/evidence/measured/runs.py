"""Turns a row of a measured-runs table into a design, or into the reason why the product cannot express it.

Rules that fill blank cells are stated at `run_case`.  Nothing here knows a measured time while it builds a design.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dse.evaluation.design import Design
from dse.evidence.measured.devices import DEVICES, chip_of, cluster_of, node_bandwidth, slices_of
from dse.evidence.measured.stack_rules import GENERIC, STACKS, StackRules
from hw_models.chip import Chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import NONE, Plan
from workloads.plan import RECOMPUTE as RECOMPUTATIONS
from workloads.precision import Training
from workloads.published import network as published_network
from workloads.training import hardware_flops, model_flops
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


#: Networks that differ from the GPT block, by a word of the model's name.
FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "qwen3",
        {
            "gated": True, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "none",
            "dropout": False, "qk_norm": True,
        },
    ),
    (
        # attention has biases, the MLP has none
        "internlm",
        {
            "gated": True, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "qkv",
            "dropout": False,
        },
    ),
    (
        "llama|mistral|qwen",
        {
            "gated": True, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "none",
            "dropout": False,
        },
    ),
    ("glm", {"gated": True, "positions": "rotary"}),
    ("gemma", {"gated": True, "positions": "rotary", "norm": "rmsnorm", "biases": "none", "dropout": False}),
    (
        # a table of positions and biases everywhere: its rows are counted so, 64.862e9 parameters at hidden 8192
        "mpt",
        {"dropout": False},
    ),
    (
        # one norm a layer, attention and MLP side by side, 48 heads of 256
        "palm",
        {
            "head_dim": 256, "gated": True, "positions": "rotary", "norm": "rmsnorm", "biases": "none",
            "parallel_block": True, "dropout": False,
        },
    ),
    (
        # 256-wide heads whatever the hidden size: 52e9 parameters at hidden 12288 with 32 heads
        "maxtext",
        {"head_dim": 256, "positions": "rotary", "tied": False, "norm": "rmsnorm", "biases": "none", "dropout": False},
    ),
)
MIXTURES = re.compile(
    r"deepseek|mixtral|moe|gpt[- _]oss|llama4|kimi|\d+x\d+b|[-_]a\d+b|gemma4-26b|nemotron_3", re.IGNORECASE
)
#: Mixtures of experts whose sizes were published, by a word of the model's name: rows name the rest of their sizes.
PUBLISHED: tuple[tuple[str, str], ...] = (
    ("deepseek-?v?3", "deepseek-v3"),
    ("qwen3_30b", "qwen3-30b-a3b"),
    ("qwen3_235b", "qwen3-235b-a22b"),
    ("gpt[- _]oss[- _]120b", "gpt-oss-120b"),
    ("gpt[- _]oss[- _]20b", "gpt-oss-20b"),
    ("mixtral[- _]?8x7b", "mixtral-8x7b"),
    ("mixtral[- _]?8x22b", "mixtral-8x22b"),
    ("llama4.*scout", "llama4-scout"),
    ("kimi[- _]?k2", "kimi-k2"),
)

RECOMPUTE: dict[str, tuple[str, bool]] = {
    "": ("none", False),
    "none": ("none", False),
    "baseline no recompute": ("none", False),
    "sequence parallel": ("none", True),
    "full": ("full", False),
    "full recompute": ("full", False),
    "selective": ("selective", False),
    "selective(per-op)": ("per_operator", False),
    "selective recompute": ("selective", False),
    "selective+sp": ("selective", True),
    "selective recompute + sp": ("selective", True),
    "full+sp": ("full", True),
}
#: By how a recipe's name begins: scales of blocks, rows or tensors, and whether products wait for the tensor axis'
#: messages, are the same products.
PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp8": "fp8", "mxfp8": "fp8"}
#: Without these a row does not say what ran.
NEEDED = ("layers", "hidden", "heads", "seq_len", "global_batch", "device", "num_devices")


def run_case(row: Row, stem: str, number: int) -> Case:
    """One measured training step: its design and measured time [s].

    Blank cells: ffn 4 x hidden, kv_heads = heads, vocabulary 50304, micro_batch 1, interleave 1, tensor, context,
    expert and pipeline 1, data the rest.  Attention, precision of gradients, blank zero_stage and recompute as the
    stack's (`STACKS`).  Biases, norms, gates and positions follow the model's family (`FAMILIES`), GPT unless
    named; mixtures of experts are published ones (`PUBLISHED`).  The network of a node as the notes say, else that
    of the reference cluster of the device (`DEVICES`).
    """
    group = row.get("group") or "all"
    name = row.get("row_id") or f"{stem}:{number}"
    known: dict[str, Any] = {"set": f"{stem}/{group}", "row_id": name, "unit": "s", "split": row.get("split") or ""}
    try:
        design = design_of(row)
        measured = measured_time(row, design)
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


def measured_time(row: Row, design: Design | None = None) -> float:
    """Seconds of a step: as printed; or from tokens a second and device; or, for a known design, from its FLOP/s.

    t = F / (u P n): F FLOP of the step, u P the share of peak or the FLOP/s of a device, n devices.
    MFU and FLOP/s of kind "model" count the products forward and backward with full attention squares, no
    recomputation (PaLM, appendix B); of kind "hardware" they count what the plan recomputes too.
    """
    if row.get("measured_iter_time_s"):
        return float(row["measured_iter_time_s"])
    if row.get("tokens_per_s_per_device") and row.get("global_batch") and row.get("seq_len"):
        tokens = _whole(row, "global_batch") * _whole(row, "seq_len")
        return tokens / (float(row["tokens_per_s_per_device"]) * _whole(row, "num_devices"))
    if design is None or not (found := counted_time(row, design)):
        raise Skip("no measured step time")
    return found


def counted_time(row: Row, design: Design) -> float:
    """Seconds of a step from its MFU or FLOP/s (see `measured_time`); 0 where the row has neither."""
    kind, devices = row.get("tflops_kind") or "", _whole(row, "num_devices")
    if row.get("mfu_pct"):
        stated = float(row["peak_tflops_used"]) * 1e12 if row.get("peak_tflops_used") else 0.0
        peak = stated or float(design.chip.peak_flops(design.training.precision))
        return model_flops(design.workload) / (float(row["mfu_pct"]) / 100 * peak * devices)
    if not row.get("measured_tflops_per_device") or not kind.startswith(("model", "hardware")):
        return 0.0
    repeated = NONE if kind.startswith("model") else int(design.plan.recompute)
    flops = hardware_flops(design.workload, RECOMPUTATIONS[repeated])
    return flops / (float(row["measured_tflops_per_device"]) * 1e12 * devices)


def _or_none(row: Row) -> float | None:
    try:
        return measured_time(row)
    except (Skip, ValueError):
        return None


def design_of(row: Row) -> Design:
    """The design of a row; `Skip` says what the row lacks or the product cannot express."""
    if "lora" in (row.get("model") or "").lower():
        raise Skip("LoRA fine-tuning: most weights are frozen")
    missing = [name for name in NEEDED if not row.get(name)]
    if missing:
        raise Skip(f"incomplete: no {', '.join(missing)}")
    device, notes, devices = row["device"], row.get("notes") or "", _whole(row, "num_devices")
    if device not in DEVICES:
        raise Skip(f"device {device!r} is not in the table of chips")
    rules = STACKS.get(row.get("stack") or "", GENERIC)
    hardware = chip_of(device)
    plan = plan_of(row, rules)
    network = network_of(row, padding=rules.padding * int(plan.tensor))
    training = Training(
        precision=precision_of(row, hardware),  # type: ignore[arg-type]
        gradient_bytes=rules.gradient_bytes,
        attention=attention_of(row, rules),  # type: ignore[arg-type]
        cross_entropy="materialized" if rules.attention == "materialized" else "fused",
        scaling="row" if "rowwise" in (row.get("precision") or "") else "tensor",
        weight_casts=rules.weight_casts,  # type: ignore[arg-type]
        dispatch=rules.dispatch,  # type: ignore[arg-type]
    )
    return Design(
        hardware,
        cluster_of(device, devices, node_bandwidth(notes), slices=slices_of(notes)),
        plan,
        Workload(network, _whole(row, "seq_len"), _whole(row, "global_batch")),
        stack(rules.name, hardware.name),
        training,
    )


def network_of(row: Row, *, padding: int = 1) -> DecoderTransformer:
    """The network of a row: its sizes, and the family of its name for the rest."""
    model, hidden = row.get("model") or "", _whole(row, "hidden")
    if MIXTURES.search(model):
        return mixture_of(row, padding)
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


def mixture_of(row: Row, padding: int) -> DecoderTransformer:
    """The published mixture of experts that a row names, which must have the row's layers and hidden size."""
    model = row.get("model") or ""
    found = next((name for words, name in PUBLISHED if re.search(words, model, re.IGNORECASE)), "")
    if not found:
        raise Skip(f"mixture of experts: no published sizes of {model!r} in the table of networks")
    network = published_network(found)
    if (network.layers, network.hidden) != (_whole(row, "layers"), _whole(row, "hidden")):
        raise Skip(f"mixture of experts: {found} has other layers or another hidden size than the row")
    found_sizes: DecoderTransformer = replace(network, vocabulary_multiple=padding)
    return found_sizes


def plan_of(row: Row, rules: StackRules) -> Plan:
    """The parallel plan of a row."""
    written = (row.get("recompute") or rules.recompute).strip().lower()
    if written not in RECOMPUTE:
        raise Skip(f"recompute {written!r}: no such plan yet")
    recompute, sequence_parallel = RECOMPUTE[written]
    devices = _whole(row, "num_devices")
    tensor, pipeline, context = (_whole(row, name, 1) for name in ("tp", "pp", "cp"))
    data = _whole(row, "dp", max(devices // (tensor * pipeline * context), 1))
    if tensor * pipeline * context * data != devices:
        raise Skip("the degrees do not multiply to the devices")
    stage, group = sharding(row.get("zero_stage") or rules.zero_stage, data * context)
    micro_batch = 1
    if rules.keeps_stages and pipeline > 1:
        stage, micro_batch = min(stage, 1), max(_whole(row, "global_batch") // (data * pipeline), 1)
    elif rules.whole_batch:
        micro_batch = max(_whole(row, "global_batch") // (data * pipeline), 1)
    splits_norms = bool(sequence_parallel or (rules.sequence_parallel and tensor > 1))
    slices = slices_of(row.get("notes") or "")
    interleave, layers = _whole(row, "interleave", 1), _whole(row, "layers")
    return Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=context,
        expert=_whole(row, "ep", 1),
        expert_tensor=int(rules.expert_tensor),
        context_ring=int(rules.context_ring),
        sequence_parallel=int(splits_norms),
        micro_batch=_whole(row, "micro_batch", micro_batch),
        interleave=interleave,
        split=_split(layers, pipeline * interleave) if interleave > 1 else "uniform",
        zero_stage=stage,
        # weights are split inside a pod; pods are copies of each other
        zero_group=data * context // slices if slices > 1 and stage else group,
        recompute=recompute,
        overlap_data=int(rules.overlaps),
        overlap_pipeline=int(rules.overlaps),
        overlap_expert=int(rules.overlaps_expert),
        overlap_tensor=int("async TP" in (row.get("precision") or "") or (rules.overlaps_tensor and splits_norms)),
    )


def _split(layers: int, chunks: int) -> str:
    """"balanced" where only layers, embedding and head together divide into the chunks of an interleaved schedule."""
    return "balanced" if layers % chunks and (layers + 2) % chunks == 0 else "uniform"


def sharding(text: str, ranks: int) -> tuple[int, int]:
    """ZeRO stage and ranks of its group (0: all) as written: "3", "3(FSDP)", "FSDP 64", "1 (group of 8)".

    Fully sharded data parallelism is stage 3.
    """
    stage = "3" if "FSDP" in text else text.strip()[:1] or "0"
    if stage not in "0123":
        raise Skip(f"zero_stage {text!r} does not name a stage")
    found = re.search(r"(?:group of|FSDP) (\d+)", text)
    group = int(found.group(1)) if found else 0
    return int(stage), group if ranks > group else 0


def precision_of(row: Row, hardware: Chip) -> str:
    """Number format of the products, one that the chip has."""
    written = row.get("precision") or "bf16"
    recipe = re.match(r"[a-z]*\d+", written)
    if not recipe or recipe.group() not in PRECISIONS:
        raise Skip(f"precision {written!r}: no such recipe yet")
    precision = "bf16" if "/bf16" in written else PRECISIONS[recipe.group()]
    if precision not in hardware.matmul_rates:
        raise Skip(f"precision {precision!r}: {hardware.name} has no matrix rate for it")
    return precision


def attention_of(row: Row, rules: StackRules) -> str:
    """Fused or materialized, as the row says, else as the stack did."""
    written = (row.get("attention_impl") or "").lower()
    if not written:
        return rules.attention
    if "unfused" in written:
        return "materialized"
    return "fused" if rules.attention == "materialized" else rules.attention


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
