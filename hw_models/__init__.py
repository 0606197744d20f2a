"""What a workload runs on: compute, memory, network, physical; chips, stacks and clusters by name."""

from hw_models import clusters, devices, stacks
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import Stack
from hw_models.technology import Technology

__all__ = ["Chip", "Cluster", "Stack", "Technology", "Tier", "clusters", "devices", "stacks"]
