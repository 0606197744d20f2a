"""Random small designs: at most 64 ranks and 32 micro-batches, every choice of a plan, several kinds of chip.

A plan that breaks a rule of divisibility is not drawn again but mended: degrees are drawn from divisors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import dse
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import ORDER, Plan
from workloads.precision import Training
from workloads.published import network
from workloads.transformer import DecoderTransformer

DEVICES, MICRO_BATCHES, PLANS = 64, 32, 8


def _decoder(**changes: Any) -> DecoderTransformer:
    sizes: dict[str, Any] = {
        "layers": 8, "hidden": 512, "heads": 8, "ffn": 2048, "vocabulary": 4096, "positions": "rotary",
    }  # fmt: skip
    return DecoderTransformer("drawn", **{**sizes, **changes})


#: Dense decoders: tied and not, all heads and groups, parallel, with latent attention; experts; wide vocabularies.
DENSE = (
    _decoder(),
    _decoder(layers=10, tied=False, gated=True, biases="none", norm="rmsnorm", kv_heads=2, dropout=False),
    _decoder(layers=6, parallel_block=True, vocabulary=32768, positions="learned", hidden=1024),
    _decoder(layers=12, kv_heads=4, qk_norm=True, causal=False, dropout=False, biases="none"),
    _decoder(layers=8, biases="none", key_value_rank=128, rotary_dim=32, value_dim=64, head_dim=64, dropout=False),
)
EXPERTS = (
    _decoder(experts=8, experts_per_token=2, expert_ffn=1024, gated=True, biases="none", tied=False),
    _decoder(layers=9, experts=16, experts_per_token=4, expert_ffn=512, shared_ffn=512, lead_layers=1, biases="none"),
)
TABLES = ("dlrm-small",)
SYSTOLIC = Chip(array_count=16, array_rows=64, array_columns=128, arrays_per_core=2, local_sram=2**20)


def chips(rng: random.Random, precision: str) -> Chip:
    """Tensor cores and systolic arrays, of several dies, networks on chip, banks and dataflows."""
    name = rng.choice(("a100-sxm-80gb", "h100-sxm", "b200-sxm", "tpu-v4", "tpu-v5p", "v100-sxm2", "custom", "custom"))
    if name != "custom":
        found = chip(name)
        if precision in found.matmul_rates:
            return found
    return replace(
        SYSTOLIC, dataflow=rng.randrange(4), double_buffered=rng.randrange(2), noc=rng.randrange(4),
        sram_banks=rng.choice((0, 64)), dies=rng.choice((1, 1, 2, 4)), array_count=rng.choice((4, 16, 64)),
        links=rng.choice((4, 6)), shared_sram=rng.choice((2**22, 2**26)),
    )  # fmt: skip


def clusters(rng: random.Random) -> Cluster:
    """One to three tiers of any wiring."""
    inner = rng.choice(("switch", "full", "ring", "torus2d", "torus3d", "reducing_switch", "cube_mesh"))
    size = 8 if inner == "cube_mesh" else rng.choice((4, 6, 8, 16))
    tiers = [Tier(size=size, topology=inner, latency=rng.choice((5e-7, 2e-6)))]
    if rng.random() < 0.4:
        tiers.append(Tier(size=size * 4, topology=rng.choice(("switch", "ring")), bandwidth=5e10, latency=3e-6))
    if rng.random() < 0.9 or len(tiers) > 1:
        last = Tier(size=4096, topology=rng.choice(("switch", "fat_tree")), bandwidth=rng.choice((1e9, 2.5e10)),
                    latency=5e-6, oversubscription=rng.choice((1.0, 2.0)))  # fmt: skip
        tiers.append(last)
    else:
        tiers[0] = replace(tiers[0], size=8 if inner == "cube_mesh" else 64)
    return Cluster(devices=DEVICES, tiers=tuple(tiers))


def stacks(rng: random.Random) -> Any:
    """A named stack with other constants where a rule depends on them."""
    found = stack(rng.choice(("generic", "ideal", "megatron-lm", "compiled")))
    changes: dict[str, Any] = {}
    for name, values in {
        "overlap_efficiency": (0.7, 1.0), "gradient_bucket": (0.0, 2e6), "split_boundary": (0.0, 1.0),
        "jitter": (0.0, 0.02), "eager": (0.0, 0.5), "rails": (1.0, 2.0, 1024.0),
        "algorithms": (("ring",), ("ring", "tree"), ("halving_doubling",),
                       ("ring", "tree", "halving_doubling", "hierarchical", "in_network"), ("hierarchical", "ring")),
    }.items():  # fmt: skip
        if rng.random() < 0.5:
            changes[name] = rng.choice(values)
    if not found.low_latency_message:  # halving there is a test of its own
        changes.pop("algorithms", None)
    return replace(found, **changes)


def trainings(rng: random.Random) -> Training:
    return Training(
        precision=rng.choice(("bf16", "bf16", "fp16", "fp32", "fp8")), gradient_bytes=rng.choice((2, 4)),
        optimizer=rng.choice(("adam", "momentum", "sgd")),
        attention=rng.choice(("fused", "pipelined", "materialized")),
        cross_entropy=rng.choice(("fused", "materialized")), scaling=rng.choice(("tensor", "row")),
        weight_casts=rng.choice(("pass", "once")), dispatch=rng.choice(("copy", "token")),
    )  # fmt: skip


def drawn_plan(rng: random.Random, net: Any, kind: str, batch: int) -> Plan:
    """Degrees that divide what they must, every switch by chance."""
    tables, experts = kind == "tables", kind == "experts"
    blocks = {block.place: block for block in net.blocks(256)}
    layers = blocks["body"].count + (blocks["lead"].count if "lead" in blocks else 0)
    tensor = 1 if tables else min(rng.choice((1, 2, 4)), blocks["body"].group_count)
    pipeline = 1 if tables else rng.choice([one for one in (1, 1, 2, 3, 4) if one <= layers])
    context = 1 if tables else rng.choice((1, 1, 2, 4))
    most = DEVICES // (tensor * pipeline * context)
    data, micro_batch = rng.choice([
        (data, each) for data in (1, 2, 3, 4, 6, 8, 16) for each in (1, 2, 3, 4, 8)
        if data <= most and batch % (data * each) == 0 and batch // (data * each) <= MICRO_BATCHES
    ])  # fmt: skip
    micro_batches = batch // (data * micro_batch)
    ranks = data * context
    whole = rng.randrange(2)
    expert = 1
    if experts:
        holders = ranks if whole else ranks * tensor
        expert = rng.choice([one for one in (1, 2, 4, 8) if holders % one == 0])
    if tables:
        expert = rng.choice([one for one in range(1, ranks + 1) if ranks % one == 0])
    schedule, interleave, split = rng.randrange(3), 1, rng.randrange(2)
    if pipeline == 1 and schedule == 2:
        schedule = 1
    if pipeline == 1 or layers + 2 * split < 2 * pipeline:
        split = 0
    if pipeline > 1 and schedule == 1 and rng.random() < 0.5:
        chunks = [v for v in (2, 3) if (layers + 2 * split) % (pipeline * v) == 0 and micro_batches % pipeline == 0]
        interleave = rng.choice(chunks) if chunks else 1
    holders = max((ranks if whole or tables else ranks * tensor) // expert, 1) if experts or tables else ranks
    groups = [0] + [g for g in range(1, ranks) if ranks % g == 0 and (g >= holders or holders % g == 0)]
    return Plan(
        tensor=tensor, pipeline=pipeline, data=data, context=context, expert=expert, expert_tensor=whole,
        sequence_parallel=rng.randrange(2), micro_batch=micro_batch, interleave=interleave, schedule=schedule,
        zero_stage=rng.randrange(4), zero_group=rng.choice(groups), reshard=rng.randrange(2),
        offload=rng.choice((0, 0, 0, 1, 2)), recompute=rng.randrange(4),
        recompute_layers=0 if "lead" in blocks or tables or interleave > 1 else rng.choice((0, 0, 1, 2)),
        overlap_data=rng.randrange(2), overlap_pipeline=rng.randrange(2), overlap_tensor=rng.randrange(2),
        overlap_expert=rng.randrange(2), context_ring=rng.randrange(2), split=split, order=rng.randrange(len(ORDER)),
    )  # fmt: skip


def random_designs(count: int, seed: int = 20261) -> Iterator[list[Any]]:
    """`count` designs in lists that share all but plan and devices: the same ones for a seed."""
    rng = random.Random(seed)
    for number in range(-(-count // PLANS)):
        kind = ("dense", "dense", "experts", "dense", "experts", "tables")[number % 6]
        net = network(rng.choice(TABLES)) if kind == "tables" else rng.choice(DENSE if kind == "dense" else EXPERTS)
        training, batch = trainings(rng), rng.choice((24, 48, 96))
        workload = Workload(net, 1 if kind == "tables" else rng.choice((256, 512, 1024)), batch)
        found, software, wired = chips(rng, training.precision), stacks(rng), clusters(rng)
        yield [
            dse.Design(
                found, replace(wired, devices=plan.tensor * plan.pipeline * plan.data * plan.context), plan, workload,
                stack=software, training=training,
            )
            for plan in (drawn_plan(rng, net, kind, batch) for _ in range(PLANS))
        ]  # fmt: skip


def together(designs: list[Any]) -> Any:
    """Designs that differ in plan and devices as one design of columns."""
    plans = [design.plan for design in designs]
    return replace(
        designs[0],
        plan=Plan(**{name: np.array([getattr(plan, name) for plan in plans]) for name in Plan.names()}),
        cluster=replace(designs[0].cluster, devices=np.array([design.cluster.devices for design in designs])),
    )


def any_designs(count: int, seed: int = 7) -> Iterator[list[Any]]:
    """Lists of designs whose plans are drawn field by field, so that most break some rule."""
    rng = random.Random(seed)
    values = {
        "tensor": (1, 2, 3), "pipeline": (1, 2, 3, 5, 12), "data": (1, 2, 3, 4), "context": (1, 2),
        "expert": (1, 2, 3, 8),
        "micro_batch": (1, 2, 5), "interleave": (1, 1, 2, 3), "zero_group": (0, 1, 2, 3, 4),
    }  # fmt: skip
    for net in DENSE + EXPERTS:
        workload = Workload(net, rng.choice((256, 258)), rng.choice((12, 20, 40)))
        found = []
        for _ in range(count):
            plan = Plan(
                **{name: rng.choice(among) for name, among in values.items()}, schedule=rng.randrange(3),
                expert_tensor=rng.randrange(2), sequence_parallel=rng.randrange(2), split=rng.randrange(2),
            )  # fmt: skip
            cluster = Cluster(devices=rng.choice((plan.tensor * plan.pipeline * plan.data * plan.context, 8)))
            found.append(dse.Design(chip("a100-sxm-80gb"), cluster, plan, workload))
        yield found
