"""Words and numbers for people: units everywhere, n/a for the unknown, plans in short.

What whole reports say is in the modules `search` and `design` beside it; how tables are set is in `tables`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.evaluation.result import METRICS
from dse.exploration.variables import Space
from hw_models.chip import Chip
from workloads.graph_network import GraphNetwork
from workloads.network import Workload
from workloads.plan import CHOICES, Plan

__all__ = [
    "COUNTED", "PLAN_KEY", "WORDS", "in_bytes", "in_words_of", "input_text", "join", "length_text", "limit_text",
    "metric_text", "money", "percent", "plan_words", "sample_word", "scene_text", "section", "short_plan", "signed",
    "utilisation_text",
]  # fmt: skip

#: Words for parts of a step and for what it waits for.
WORDS = {
    "time_forward": "forward",
    "time_backward": "backward",
    "time_recompute": "recomputation",
    "time_tensor": "tensor communication",
    "time_context": "context communication",
    "time_expert": "expert communication",
    "time_shard": "ZeRO gathers and reductions",
    "time_host": "waiting for the host",
    "time_bubble": "pipeline bubble",
    "time_data": "data communication",
    "time_update": "optimizer update",
    "time_overhead": "step overhead",
    "energy_compute": "arrays, lanes, SRAM, HBM",
    "energy_communication": "links and network",
    "energy_static": "leakage and idle power",
    "memory_weights": "weights",
    "memory_gradients": "gradients",
    "memory_optimizer": "optimizer state",
    "memory_activations": "activations",
    "memory_logits": "logits",
    "memory_reserve": "reserve and fragmentation",
    "memory_buffers": "gathered weights and gradients at work",
    "array": "matrix arrays",
    "vector": "vector lanes",
    "hbm": "HBM bandwidth",
    "sram": "shared SRAM bandwidth",
    "launch": "kernel launches",
}


def short_plan(plan: Plan) -> str:
    """A scalar plan in short, e.g. `t8 p8 d16 b1 v3 sp zero1 full`.

    tN tensor, pN pipeline, dN data, bN micro-batch, vN interleaved chunks, sp sequence parallel, cN context, eN expert,
    zeroN what ZeRO shards, sel, full or per-op recomputation; then what differs from 1f1b, overlap, uniform split and
    the usual order.
    """
    named = plan.named()
    words = [f"t{named['tensor']}", f"p{named['pipeline']}", f"d{named['data']}", f"b{named['micro_batch']}"]
    words += [f"v{named['interleave']}"] if named["interleave"] > 1 else []
    words += ["sp" + ("-overlap" if named["overlap_tensor"] else "")] if named["sequence_parallel"] else []
    words += [f"c{named['context']}" + ("" if named["context_ring"] else " gather-kv")] if named["context"] > 1 else []
    whole = "" if named["expert_tensor"] else " whole-experts"
    whole += " hidden-experts" if named["overlap_expert"] else ""
    words += [f"e{named['expert']}{whole}"] if named["expert"] > 1 else []
    words += [f"zero{named['zero_stage']}"] if named["zero_stage"] else []
    words += [f"group{named['zero_group']}"] if named["zero_group"] else []
    words += ["no-reshard"] if named["zero_stage"] == 3 and not named["reshard"] else []
    words += {"none": [], "selective": ["sel"], "full": ["full"], "per_operator": ["per-op"]}[named["recompute"]]
    words += [f"of{named['recompute_layers']}"] if named["recompute_layers"] else []
    words += [f"offload-{named['offload']}"] if named["offload"] != "none" else []
    if named["pipeline"] > 1:
        words += {"gpipe": ["gpipe"], "zero_bubble": ["zb"]}.get(named["schedule"], [])
        words += [] if named["overlap_pipeline"] else ["no-overlap-p"]
        words += ["balanced"] if named["split"] == "balanced" else []
    if named["data"] * named["context"] > 1 and not named["overlap_data"]:
        words.append("no-overlap-d")
    return " ".join(words + _order(named))


def _order(named: Mapping[str, Any]) -> list[str]:
    """The order of the axes above 1, innermost first, where it is not the usual one."""
    degrees = dict(named) | {"data": named["data"] * named["context"]}
    usual, chosen = (
        [axis for axis in order.split("-") if degrees[axis] > 1] for order in (CHOICES["order"][0], named["order"])
    )
    return [] if usual == chosen else ["order-" + "".join(axis[0] for axis in chosen)]


PLAN_KEY = (
    "Plans: tN tensor, pN pipeline stages, dN data, bN micro-batch, vN interleaved chunks a stage, sp sequence "
    "parallel, cN context, eN expert, zero1/2/3 sharded optimizer state/and gradients/and weights (groupN: in groups), "
    "sel/full/per-op recomputation (none unless shown; ofN layers a stage), zb zero bubble, no-overlap-d/-p gradients/"
    "transfers not overlapped, balanced ends, order-tpd ranks from neighbours outwards (tdp unless shown)."
)


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent; n/a where there is none, and never a negative zero."""
    if share is None or math.isnan(share):
        return "n/a"
    text = f"{share * 100:.{digits}f}%"
    return text.removeprefix("-") if not text.strip("-0.%") else text


def signed(value: float, unit: str) -> str:
    """A difference with its sign, three digits."""
    text = format_quantity(abs(value), unit, digits=3)
    return text if value == 0 else f"{'+' if value > 0 else '-'}{text}"


#: What MFU and HFU count.
COUNTED = "FLOP that kernels compute: fused causal attention skips what is masked"


def in_bytes(value: float) -> str:
    """Decimal bytes, so that what is needed and what there is are in one unit."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:g} B"


def metric_text(name: str, value: float | None, unit: str = "") -> str:
    """A metric with its unit (of one that results have: its own) as people read it."""
    unit = METRICS[name][0] if name in METRICS else unit
    if name in ("mfu", "hfu"):
        return percent(value)
    if name == "energy_per_token":
        return format_quantity(value, "J/token")
    if value is not None and unit == "B":
        return in_bytes(value)
    if value is not None and unit == "token/s/m2":
        return format_quantity(value / 1e6, "token/s/mm2")
    return format_quantity(value, unit)


def utilisation_text(value: Callable[[str], float]) -> str:
    """MFU and HFU with what they count, and the rate that publications state; `value` gives a metric by its name."""
    return (
        f"MFU {percent(value('mfu'))}, HFU {percent(value('hfu'))} ({COUNTED}; with full attention squares, "
        f"as publications count, {metric_text('model_flops_rate', value('model_flops_rate'))} a device)"
    )


def limit_text(name: str, found: float, limit: float, unit: str, relation: str = "==") -> str:
    """What is needed and what is allowed, in words."""
    if name == "memory":
        return f"memory: needs {in_bytes(found)} of {in_bytes(limit)} ({percent(found / limit - 1)} too much)"
    allowed = f"{relation} {format_quantity(limit, unit)}".removeprefix("== ")
    return f"{name}: {format_quantity(found, unit)}, must be {allowed}"


def sample_word(workload: Workload) -> str:
    """What one of `workload.tokens` is: a token, or a sample that has no length (an image, an impression)."""
    network = workload.network
    return network.sample if isinstance(network, GraphNetwork) and not network.has_length else "token"


def in_words_of(workload: Workload, text: str) -> str:
    """A text about tokens as one about what the workload trains; names of metrics stay."""
    word = sample_word(workload)
    return text if word == "token" else re.sub(r"(?<![_A-Za-z])([kMGT]?)token(?=s?\b)", rf"\1{word}", text)


def length_text(workload: Workload) -> str:
    """`sequence 2,048, ` where samples have a length."""
    return f"sequence {workload.sequence:,}, " if sample_word(workload) == "token" else ""


def scene_text(design: Design) -> str:
    """What is trained, on what, how."""
    workload, training = design.workload, design.training
    tokens = in_words_of(workload, f"{workload.tokens:,} tokens a step")
    return (
        f"{workload.network.name} on {int(design.cluster.devices):,} {design.chip.name} ({design.cluster.name}, "
        f"stack {design.stack.name}): {length_text(workload)}global batch {workload.global_batch:,} "
        f"({tokens}), {training.precision}, {training.optimizer}, "
        f"{training.attention} attention"
    )


def join(parts: Iterable[str | None]) -> str:
    """Lines and sections; None is nothing, "" an empty line."""
    return "\n".join(part for part in parts if part is not None)


def section(title: str, *body: str | None) -> str:
    """An empty line, a title, and what is below it."""
    return "\n".join(["", title, *(text for text in body if text)])


def money(value: float | None) -> str:
    """US dollars."""
    if value is None or value < 100:
        return format_quantity(value, "USD")
    return f"{value:,.0f} USD" if value < 1e6 else f"{value / 1e6:,.4g} million USD"


def hardware_words(space: Space, row: Any) -> str:
    """The choices of a hardware row with their units, named choices by their names: chip.clock 1.2 GHz, ..."""
    units = {variable.name: variable.unit for variable in space.variables}
    names = {f"chip.{item.name}": item.metadata.get("names") or () for item in fields(Chip)}
    return ", ".join(
        f"{name} {names[name][int(value)] if names.get(name, ()) else input_text(value, units[name])}"
        for name, value in space.values(row).items()
    )


def input_text(value: Any, unit: str) -> str:
    """An input of a design: a quantity, a name, or several of them."""
    if value is None:
        return "n/a"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return format_quantity(float(value), unit)
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def plan_words(plan_: Plan) -> str:
    """A plan on one line: what differs from a plain plan."""
    plain, named = Plan().named(), plan_.named()
    always = ("tensor", "pipeline", "data", "micro_batch")
    return ", ".join(f"{name} {value}" for name, value in named.items() if name in always or value != plain[name])
