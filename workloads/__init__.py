"""What is computed, stored and sent: networks, their operators, the training step and the parallel plan.

It knows no hardware. Published networks by name are in `workloads.published`. Theory: docs/models/workloads.md.
"""

from workloads.network import Network, Workload
from workloads.operators import Attention, Block, Matmul, Saved, Vector
from workloads.plan import Plan
from workloads.precision import Training
from workloads.training import (
    active_parameters,
    embedding_parameters,
    executed_flops,
    forward_flops,
    hardware_flops,
    model_flops,
    parameters,
    phase_dimensions,
)
from workloads.transformer import DecoderTransformer

__all__ = [
    "Attention",
    "Block",
    "DecoderTransformer",
    "Matmul",
    "Network",
    "Plan",
    "Saved",
    "Training",
    "Vector",
    "Workload",
    "active_parameters",
    "embedding_parameters",
    "executed_flops",
    "forward_flops",
    "hardware_flops",
    "model_flops",
    "parameters",
    "phase_dimensions",
]
