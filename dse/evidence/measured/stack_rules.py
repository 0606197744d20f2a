"""What published training stacks do where a row does not say it."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["GENERIC", "STACKS", "StackRules"]


@dataclass(frozen=True)
class StackRules:
    """What a measured software stack is in the product, and what its plans leave unsaid.

    overlaps       gradients are reduced, and stages exchange, behind computation.  Megatron-LM of 2021 and 2022 does
                   neither (Korthikanti et al. 2022, section 6.3), and DeepSpeed leaves it off before ZeRO-3
    attention      kernel where the row names none, and kernel of the loss: Megatron's own of 2021 are not fused
    padding        vocabulary rows a device of the tensor axis is padded to
    gradient_bytes bytes of a gradient as it is accumulated and reduced.  Megatron adds them up in fp32, as does
                   PyTorch's FSDP where it is told so (torchtitan); others keep the format of the products
    sequence_parallel   the tensor axis splits norms and dropout too, in every plan with one
    context_ring   keys and values go round a ring; torchtitan gathers them
    expert_tensor  each expert is split over the tensor axis; Megatron Bridge gives tensor ranks experts of their own
    zero_stage, recompute   of plans that leave them blank: 0 and none; recipes of Megatron Core split optimizer state
                   (their distributed optimizer is on), and MaxText splits weights and keeps only inputs of blocks
    overlaps_tensor   exchanges of the tensor axis run in pieces behind products where a plan splits norms too; recipes
                   of NeMo and Megatron Bridge turn it on
    weight_casts   fp8 weights are cast in every "pass", or "once" a step (Transformer Engine)
    dispatch       a token crosses once to each place that wants it: recipes of Megatron Bridge use DeepEP and HybridEP,
                   as DeepSeek's own framework does
    overlaps_expert   rows go to experts while another micro-batch computes
    whole_batch    a blank micro_batch is all samples of a device: MaxText takes gradients of its whole batch at once
    keeps_stages   in a pipeline, weights are gathered and gradients reduced once a step (as ZeRO-1 does), and a
                   blank micro_batch makes as many micro-batches as stages: torchtitan's default
    """

    name: str
    overlaps: bool = True
    attention: str = "fused"
    padding: int = 1
    gradient_bytes: int = 4
    sequence_parallel: bool = False
    context_ring: bool = True
    expert_tensor: bool = True
    zero_stage: str = "0"
    recompute: str = ""
    overlaps_tensor: bool = False
    weight_casts: str = "pass"
    dispatch: str = "copy"
    overlaps_expert: bool = False
    whole_batch: bool = False
    keeps_stages: bool = False


MEGATRON = StackRules("megatron-lm", overlaps=False, attention="materialized", padding=128)
MEGATRON_DEEPSPEED = replace(MEGATRON, name="megatron-deepspeed", gradient_bytes=2)
NEMO = StackRules(
    "nemo", attention="pipelined", padding=128, gradient_bytes=2, sequence_parallel=True, zero_stage="1",
    overlaps_tensor=True, weight_casts="once",
)  # fmt: skip
STACKS: dict[str, StackRules] = {
    "Megatron-LM": MEGATRON,
    "Megatron-DeepSpeed": MEGATRON_DEEPSPEED,
    "Megatron/SAT DeepSpeed": MEGATRON_DEEPSPEED,
    "DeepSpeed-ZeRO3": replace(MEGATRON_DEEPSPEED, name="deepspeed-zero3", overlaps=True),
    "llm-foundry": StackRules("llm-foundry", gradient_bytes=2),
    "torchtitan": StackRules("torchtitan", sequence_parallel=True, context_ring=False, keeps_stages=True),
    "InternEvo": StackRules("internevo", gradient_bytes=2),
    "MaxText": StackRules("maxtext", gradient_bytes=2, zero_stage="3", recompute="full", whole_batch=True),
    "NeMo": NEMO,
    "Megatron-Bridge": replace(NEMO, name="megatron-bridge", expert_tensor=False, dispatch="token"),
    # DualPipe runs the exchanges of one micro-batch beside the computation of another (arXiv 2412.19437, section 3.2)
    "HAI-LLM (DualPipe)": StackRules(
        "generic", attention="pipelined", zero_stage="1", weight_casts="once", dispatch="token", overlaps_expert=True
    ),
    "Levanter": StackRules("compiled"),
    "T5X/Pathways": StackRules("compiled"),
}
GENERIC = StackRules("generic")
