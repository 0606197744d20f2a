"""The step derived from the forward pass: which products the gradients need, and exact FLOP counts.

A forward product (M, N, K) has input gradient (M, K, N) and, where the right operand is a weight,
weight gradient (K, N, M); where it is an activation both gradients are input gradients. Each is 2 M N K.
"""

from __future__ import annotations

from typing import Any, Literal

from workloads.network import Network, Workload
from workloads.operators import Matmul

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


def phase_resident(matmul: Matmul, phase: str) -> str:
    """The operand of the product of `phase` that is the on-chip tensor of the forward product, or "".

    The result's gradient is the left operand of the input-gradient product and the right operand of the
    weight-gradient product; the left operand is the former's result and stays the latter's left operand.
    """
    moved = {"input_gradient": {"c": "a", "a": "c", "b": "b"}, "weight_gradient": {"c": "b", "a": "a", "b": "c"}}
    return moved.get(phase, {}).get(matmul.resident, matmul.resident)


def gradient_phase(matmul: Matmul) -> str:
    """The phase that the (K, N, M) product of `matmul` belongs to."""
    return "weight_gradient" if matmul.weight else "input_gradient"


def parameters(network: Network, sequence: int) -> int:
    """Parameters of the network, each shared tensor once, exact."""
    return sum(block.count * (block.parameters - block.shared_parameters) for block in network.blocks(sequence))


def embedding_parameters(network: Network, sequence: int) -> int:
    """Parameters outside the body, exact: token and position tables, head, first and last norm, a tied tensor once."""
    return sum(
        block.count * (block.parameters - block.shared_parameters)
        for block in network.blocks(sequence)
        if block.place != "body"
    )


def forward_flops(workload: Workload) -> int:
    """FLOP of the forward matrix products of one step, exact at any size."""
    per_sample = sum(block.count * block.flops for block in workload.network.blocks(workload.sequence))
    return per_sample * workload.global_batch


def model_flops(workload: Workload) -> int:
    """FLOP of forward and backward without recomputation: 3 x forward, exact.  MFU counts these."""
    return 3 * forward_flops(workload)


def hardware_flops(workload: Workload, recompute: Literal["none", "selective", "full"]) -> int:
    """`model_flops` plus what recomputation repeats, exact.  HFU counts these.

    full repeats the forward pass of every block that is recomputed (never the head);
    selective repeats the attention core.
    """
    blocks = workload.network.blocks(workload.sequence)
    if recompute == "full":
        repeated = sum(block.count * block.flops for block in blocks if block.recomputed)
    elif recompute == "selective":
        repeated = sum(block.count * block.core_flops for block in blocks if block.recomputed)
    elif recompute == "none":
        repeated = 0
    else:
        raise ValueError(f"recompute: found {recompute!r}, allowed: none, selective, full")
    return model_flops(workload) + repeated * workload.global_batch
