"""The step derived from the forward pass: which products the gradients need, and exact FLOP counts.

A forward product (M, N, K) has input gradient (M, K, N) and, where the right operand is a weight,
weight gradient (K, N, M); where it is an activation both gradients are input gradients. Each is 2 M N K.
"""

from __future__ import annotations

from typing import Any, Literal

from workloads.network import Network, Workload
from workloads.operators import Matmul
from workloads.plan import RECOMPUTE
from workloads.precision import Training

#: Places of a network's layers; embedding and head are the others.
LAYERS = ("lead", "body")
PHASES = ("forward", "input_gradient", "weight_gradient")


def phase_dimensions(m: Any, n: Any, k: Any, phase: str) -> tuple[Any, Any, Any]:
    """(M, N, K) of the product that `phase` computes for a forward product (m, n, k)."""
    if phase == "forward":
        return m, n, k
    if phase == "input_gradient":
        return m, k, n
    if phase == "weight_gradient":
        return k, n, m
    raise ValueError(f"phase: found {phase!r}, allowed: {', '.join(PHASES)}")


def gradient_phase(matmul: Matmul) -> str:
    """The phase that the (K, N, M) product of `matmul` belongs to."""
    return "weight_gradient" if matmul.weight else "input_gradient"


def parameters(network: Network, sequence: int) -> int:
    """Parameters of the network, each shared tensor once, exact."""
    return sum(block.count * (block.parameters - block.shared_parameters) for block in network.blocks(sequence))


def active_parameters(network: Network, sequence: int) -> int:
    """Parameters that one token meets: all but the routed experts it is not sent to, exact."""
    idle = sum(
        block.count * block.parameters_expert * (block.expert_count - block.experts_per_token) // block.expert_count
        for block in network.blocks(sequence)
    )
    return parameters(network, sequence) - idle


def embedding_parameters(network: Network, sequence: int) -> int:
    """Parameters outside the layers, exact: token and position tables, head, first and last norm, tied ones once."""
    return sum(
        block.count * (block.parameters - block.shared_parameters)
        for block in network.blocks(sequence)
        if block.place not in LAYERS
    )


def forward_flops(workload: Workload) -> int:
    """FLOP of the forward matrix products of one step, exact at any size."""
    per_sample = sum(block.count * block.flops for block in workload.network.blocks(workload.sequence))
    return per_sample * workload.global_batch


def model_flops(workload: Workload) -> int:
    """FLOP of forward and backward without recomputation, exact: 3 x forward, less the input gradient of layers whose
    input is data.

    Attention counts its full square though a causal mask hides half of it, and convolutions their direct products:
    whatever the kernels leave out.  Published MFU and FLOP/s count these.
                                        [Chowdhery et al. 2022, appendix B; Narayanan et al. 2021, eq. 3]"""
    per_sample = sum(block.count * block.training_flops for block in workload.network.blocks(workload.sequence))
    return per_sample * workload.global_batch


def hardware_flops(workload: Workload, recompute: Literal["none", "selective", "full", "per_operator"]) -> int:
    """`model_flops` plus what recomputation repeats, exact.  Published HFU counts these.

    full repeats the forward pass of every block that is recomputed (never the head);
    selective repeats the attention core; per_operator every second product outside the core, taken as half of them.
    """
    _need_recompute(recompute)
    blocks = [block for block in workload.network.blocks(workload.sequence) if block.recomputed]
    repeated: int = sum(block.count * _repeated(recompute, block.flops, block.core_flops) for block in blocks)
    return model_flops(workload) + repeated * workload.global_batch


def executed_flops(
    workload: Workload, training: Training, recompute: Literal["none", "selective", "full", "per_operator"] = "none"
) -> float:
    """FLOP that the kernels of a step do.  MFU counts them without recomputation, HFU with what `recompute` repeats.

    Fused attention skips the masked half of causal attention, materialized attention computes the full square; Winograd
    convolutions in fp32 multiply less than direct ones.  No step takes less time than these at the peak: neither is
    above 1.
    """
    _need_recompute(recompute)
    skips = training.attention != "materialized"
    total = 0.0
    for block in workload.network.blocks(workload.sequence):
        skipped = block.masked_flops if skips else 0
        gains = [(matmul, _winograd(matmul, training)) for matmul in block.matmuls]
        total += block.count * (sum(matmul.training_flops / gain for matmul, gain in gains) - 3 * skipped)
        if block.recomputed:
            forward = sum(matmul.flops / gain for matmul, gain in gains) - skipped
            total += block.count * _repeated(recompute, forward, block.core_flops - skipped)
    return total * workload.global_batch


def _winograd(matmul: Matmul, training: Training) -> float:
    """Multiplications of a product over those that are done (see `Matmul.winograd`)."""
    return matmul.winograd if training.convolution == "winograd" and training.precision == "fp32" else 1.0


def _repeated(recompute: str, flops: Any, core: Any) -> Any:
    """FLOP repeated of a block whose forward pass has so many, `core` of them in its attention core."""
    return {"none": 0, "selective": core, "full": flops, "per_operator": (flops - core) // 2}[recompute]


def _need_recompute(recompute: str) -> None:
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute: found {recompute!r}, allowed: {', '.join(RECOMPUTE)}")
