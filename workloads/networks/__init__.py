"""Published networks as graphs, by name; each file holds a family and exports `NETWORKS`."""

from __future__ import annotations

import workloads.networks.classic as _classic
import workloads.networks.detection as _detection
import workloads.networks.efficient as _efficient
import workloads.networks.language as _language
import workloads.networks.long_context as _long_context
import workloads.networks.patches as _patches
import workloads.networks.recommendation as _recommendation
import workloads.networks.resnets as _resnets
import workloads.networks.segmentation as _segmentation
import workloads.networks.sparse as _sparse
import workloads.networks.speech as _speech
from workloads.graph_network import GraphNetwork

__all__ = ["GRAPHS"]

_FAMILIES = (
    _resnets, _classic, _efficient, _detection, _segmentation, _patches, _language, _long_context, _speech,
    _recommendation, _sparse,
)  # fmt: skip

#: Every network that is a graph, by name, in the order of the families.
GRAPHS: dict[str, GraphNetwork] = {network.name: network for family in _FAMILIES for network in family.NETWORKS}
