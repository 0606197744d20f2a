"""Which rules of a plan a design breaks, each as a yes or no."""

from __future__ import annotations

from typing import Any


def broken(design: Any) -> dict[str, bool]:
    """Rules by the product's names: True where the plan cannot be."""
    plan, workload = design.plan, design.workload
    blocks = {block.place: block for block in workload.network.blocks(workload.sequence)}
    lead = blocks["lead"].count if "lead" in blocks else 0
    layers = blocks["body"].count * max(len(getattr(blocks["body"], "cells", ())), 1) + lead
    ranks, chunks = plan.data * plan.context, plan.interleave > 1
    holders = ranks * (1 if plan.expert_tensor else plan.tensor)
    pieces = blocks["body"].expert_count if blocks["body"].parameters_expert else 1
    uneven = plan.expert > pieces if blocks["body"].sparse else pieces % plan.expert > 0
    groups = [ranks] if not blocks["body"].parameters_expert else [ranks, max(holders / plan.expert, 1)]
    asked = plan.zero_group if 0 < plan.zero_group < ranks else 0
    micro_batches = -(-workload.global_batch // (plan.data * plan.micro_batch))
    zero_bubble, one_f_one_b = plan.schedule == 2, plan.schedule == 1
    return {
        "tensor * pipeline * data * context == devices": plan.tensor * plan.pipeline * ranks != design.cluster.devices,
        "global_batch % (data * micro_batch)": workload.global_batch % (plan.data * plan.micro_batch) > 0,
        "pipeline <= layers": plan.pipeline > layers,
        "layers % (pipeline * interleave)":
            chunks and (layers + 2 * plan.split) % (plan.pipeline * plan.interleave) > 0,
        "micro_batches % pipeline (interleaved)": chunks and micro_batches % plan.pipeline > 0,
        "interleave needs 1f1b and pipeline > 1": chunks and not (one_f_one_b and plan.pipeline > 1),
        "sequence % (context * tensor with sequence parallel)":
            workload.sequence % (plan.context * (plan.tensor if plan.sequence_parallel else 1)) > 0,
        "experts % expert": uneven,
        "(data * context) % expert": holders % plan.expert > 0,
        "(data * context) % zero_group": bool(asked) and any(n % min(asked, n) > 0 for n in groups),
        "leading layers on the first stage": plan.pipeline > 1 and lead > layers // plan.pipeline,
        "zero_bubble needs pipeline > 1, interleave 1": zero_bubble and (plan.pipeline == 1 or chunks),
    }  # fmt: skip
