"""Calculon's application and execution JSON as a network and a parallel plan.

application   hidden, feedforward, seq_size, attn_heads, attn_size, num_blocks
execution     num_procs, tensor_par, pipeline_par, data_par, batch_size, microbatch_size, activation_recompute, ...

Hardware (Calculon's system JSON) is in `dse.importers`.  What has no counterpart is said, not dropped.
Source: Isaev et al. 2023, Calculon (SC '23), and https://github.com/calculon-ai/calculon, models/, examples/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.importers.imported import Imported
from workloads.importers.reading import Keys, attempt, read_json, shown
from workloads.plan import Plan
from workloads.precision import Precision
from workloads.transformer import DecoderTransformer

APPLICATION = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
#: Words that Calculon counts for the embedding (its number of parameters; no time).
WORDS = 51200
RECOMPUTE = {"full": "full", "attn_only": "selective", "none": "none"}
#: Calculon's number formats by ours.
FORMATS: dict[str, Precision] = {"float8": "fp8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
EMBEDDING = (
    f"embedding and head of {WORDS} words are priced; Calculon counts their parameters and leaves out their time"
)


@dataclass(frozen=True)
class Execution:
    """What an execution says beside the network.

    plan, devices, global_batch, precision   as here
    training      False: inference alone, which this product does not price
    multiquery    keys and values have one head
    notes         keys without a counterpart
    """

    plan: Plan
    devices: int
    global_batch: int
    precision: Precision
    multiquery: bool = False
    notes: tuple[str, ...] = field(default=())


def is_application(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping looks like Calculon's application."""
    return "seq_size" in tree or ("attn_heads" in tree and "model_type" not in tree)


def load(path: str | Path) -> Imported:
    """The network of an application file."""
    file = Path(path)
    return application(read_json(file, "a Calculon application JSON"), file.stem, str(file))


def application(tree: Mapping[str, Any], name: str = "calculon", path: str = "", *, heads: int = 0) -> Imported:
    """The network of an application: a GPT with biases and learned positions.  heads: of keys and values (0: all)."""
    c = Keys(tree, path)
    sizes: dict[str, Any] = {
        "hidden": c.whole("hidden", None), "ffn": c.whole("feedforward", None), "heads": c.whole("attn_heads", None),
        "head_dim": c.whole("attn_size", None), "layers": c.whole("num_blocks", None, most=10_000),
        "max_sequence": c.whole("seq_size", None),
    }  # fmt: skip
    title = str(c.get("name", name))
    c.misspelled()
    notes = [EMBEDDING, *_unread(c)]
    network = attempt(
        c,
        lambda: DecoderTransformer(
            name=title, vocabulary=WORDS, kv_heads=heads, final_norm=False,
            source="; ".join(["Calculon application", *notes]), **sizes,
        ),
    )  # fmt: skip
    return Imported(network, sizes["max_sequence"], tuple(notes))


def _unread(c: Keys) -> list[str]:
    return [f"{c.where}{key} is not read" for key in c.data if key not in c.read]


def execution(tree: Mapping[str, Any], path: str = "") -> Execution:
    """The plan of an execution; FileError names every key that is wrong."""
    c = Keys(tree, path)
    notes: list[str] = []
    degrees = {name: c.whole(key, None) for name, key in (
        ("tensor", "tensor_par"), ("pipeline", "pipeline_par"), ("data", "data_par"))}  # fmt: skip
    product = degrees["tensor"] * degrees["pipeline"] * degrees["data"]
    devices = c.whole("num_procs", product)
    batch, micro = c.whole("batch_size", None), c.whole("microbatch_size", 1)
    if not c.faults and devices != product:
        c.wrong("num_procs", str(devices), f"tensor_par x pipeline_par x data_par = {product}")
    if not c.faults and batch % (degrees["data"] * micro):
        c.wrong("batch_size", str(batch), f"a multiple of data_par x microbatch_size = {degrees['data'] * micro}")
    c.must("training", True, why="only training is priced here")
    exchange = c.choice("tensor_par_comm_type", "ar", ("ar", "p2p_rs_ag", "rs_ag"))
    hidden = c.choice("tensor_par_overlap", "none", ("none", "ring", "pipe"))
    multiquery = c.choice("attention_type", "multihead", ("multihead", "multiquery")) == "multiquery"
    plan = {
        **degrees, "micro_batch": micro, "interleave": c.whole("pipeline_interleaving", 1),
        "recompute": RECOMPUTE[c.choice("activation_recompute", "none", RECOMPUTE)],
        "zero_stage": int(c.flag("optimizer_sharding", False)),
        "sequence_parallel": exchange == "rs_ag" and degrees["tensor"] > 1,
        "overlap_tensor": hidden != "none" and exchange == "rs_ag" and degrees["tensor"] > 1,
        "overlap_data": c.flag("data_par_overlap", False),
        "offload": _offload(c, notes),
    }  # fmt: skip
    precision = FORMATS[c.choice("datatype", "float16", FORMATS)]
    _say(c, notes, exchange=exchange, hidden=hidden)
    for net in ("tensor_par_net", "pipeline_par_net", "data_par_net"):
        if c.has(net):
            c.whole(net, 0, least=0, most=63)
    c.misspelled()
    notes += _unread(c)
    made = attempt(c, lambda: Plan(**plan))
    return Execution(made, devices, batch, precision, multiquery, tuple(notes))


def _offload(c: Keys, notes: list[str]) -> str:
    """The nearest of none, optimizer, all."""
    weights, activations, optimizer = (
        c.flag(key, False) for key in ("weight_offload", "activations_offload", "optimizer_offload")
    )
    if activations:
        notes.append("activations_offload: activations stay on the device here")
    if weights and not optimizer:
        notes.append("weight_offload alone: offloaded here with the optimizer state")
    return "all" if weights else "optimizer" if optimizer else "none"


def _say(c: Keys, notes: list[str], *, exchange: str, hidden: str) -> None:
    """Keys whose meaning here is another."""
    if c.flag("fused_activation", False):
        notes.append("fused_activation: the activation is one pass here, fused with its bias in either case")
    if c.flag("seq_par_ag_redo", False):
        notes.append("seq_par_ag_redo: gathered inputs are always gathered again here, never kept")
    if exchange == "p2p_rs_ag":
        notes.append(
            "tensor_par_comm_type p2p_rs_ag: tensor ranks exchange by all-reduce; whether each sends a part of a "
            "stage's boundary is a constant of the stack (split_boundary)"
        )
    if hidden != "none" and exchange != "rs_ag":
        notes.append(f"tensor_par_overlap {shown(hidden)}: needs sequence parallelism (rs_ag) here, and is left out")
