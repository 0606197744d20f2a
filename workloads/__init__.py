"""What is computed, stored and sent: networks, their operators, the training step and the parallel plan.

It knows no hardware. Published networks by name are in `workloads.published`. Theory: docs/models/workloads.md.
"""

from workloads.network import Network, Workload
from workloads.operators import Block, Matmul, Saved, Vector
from workloads.plan import Plan
from workloads.precision import Training
from workloads.training import (
    embedding_parameters,
    forward_flops,
    hardware_flops,
    model_flops,
    parameters,
    phase_dimensions,
)
from workloads.transformer import DecoderTransformer

__all__ = [
    "Block",
    "DecoderTransformer",
    "Matmul",
    "Network",
    "Plan",
    "Saved",
    "Training",
    "Vector",
    "Workload",
    "embedding_parameters",
    "forward_flops",
    "hardware_flops",
    "model_flops",
    "parameters",
    "phase_dimensions",
]
