"""Design-space exploration of machine-learning training hardware: chip, cluster and parallel plan together.

    >>> import dse
    >>> design = dse.Design(
    ...     dse.chips.h100_sxm(), dse.clusters.dgx_h100(64), dse.Plan(tensor=8, data=8), dse.networks.gpt3_13b()
    ... )
    >>> result = dse.evaluate(design)
    >>> result.value("mfu") > 0.2
    True

Names are imported when they are first used, so that `import dse` and `dse --help` cost nothing.
A function never shares its name with a module: the account of a design is `result.explain()`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dse.base.version import __version__

if TYPE_CHECKING:
    from dse.api.chip import explain_chip
    from dse.api.evaluation import evaluate
    from dse.api.graph import schedule_graph
    from dse.api.plan import compare, plan
    from dse.api.search import replace, search
    from dse.api.several import search_several
    from dse.base import units
    from dse.evaluation.design import Design
    from dse.evaluation.metrics import Metric
    from dse.evidence.benchmark import bench
    from dse.evidence.calibration import constants as calibration
    from dse.evidence.validation.validate import validate
    from dse.exploration.plans import PlanSpace
    from dse.inputs import importers
    from dse.inputs.catalogs import chips, clusters, networks, stacks
    from dse.inputs.networks import load_network
    from dse.inputs.registry import register
    from hw_models.chip import Chip
    from hw_models.cluster import Cluster, Tier
    from hw_models.stack import Stack
    from hw_models.technology import Technology
    from workloads import layers
    from workloads.graph import Graph
    from workloads.graph_network import GraphNetwork
    from workloads.importers.network_text import yaml_text as network_yaml
    from workloads.network import Workload
    from workloads.plan import Plan
    from workloads.precision import Training
    from workloads.transformer import DecoderTransformer

#: Public name -> the module and attribute that define it; no attribute: the module itself.
_HOMES = {
    "Chip": "hw_models.chip:Chip",
    "Cluster": "hw_models.cluster:Cluster",
    "DecoderTransformer": "workloads.transformer:DecoderTransformer",
    "Design": "dse.evaluation.design:Design",
    "Graph": "workloads.graph:Graph",
    "GraphNetwork": "workloads.graph_network:GraphNetwork",
    "Metric": "dse.evaluation.metrics:Metric",
    "Plan": "workloads.plan:Plan",
    "PlanSpace": "dse.exploration.plans:PlanSpace",
    "Stack": "hw_models.stack:Stack",
    "Technology": "hw_models.technology:Technology",
    "Tier": "hw_models.cluster:Tier",
    "Training": "workloads.precision:Training",
    "Workload": "workloads.network:Workload",
    "bench": "dse.evidence.benchmark:bench",
    "calibration": "dse.evidence.calibration.constants:",
    "chips": "dse.inputs.catalogs:chips",
    "clusters": "dse.inputs.catalogs:clusters",
    "compare": "dse.api.plan:compare",
    "evaluate": "dse.api.evaluation:evaluate",
    "explain_chip": "dse.api.chip:explain_chip",
    "importers": "dse.inputs.importers:",
    "layers": "workloads.layers:",
    "load_network": "dse.inputs.networks:load_network",
    "network_yaml": "workloads.importers.network_text:yaml_text",
    "networks": "dse.inputs.catalogs:networks",
    "plan": "dse.api.plan:plan",
    "register": "dse.inputs.registry:register",
    "replace": "dse.api.search:replace",
    "schedule_graph": "dse.api.graph:schedule_graph",
    "search": "dse.api.search:search",
    "search_several": "dse.api.several:search_several",
    "stacks": "dse.inputs.catalogs:stacks",
    "units": "dse.base.units:",
    "validate": "dse.evidence.validation.validate:validate",
}

__all__ = [
    "Chip",
    "Cluster",
    "DecoderTransformer",
    "Design",
    "Graph",
    "GraphNetwork",
    "Metric",
    "Plan",
    "PlanSpace",
    "Stack",
    "Technology",
    "Tier",
    "Training",
    "Workload",
    "__version__",
    "bench",
    "calibration",
    "chips",
    "clusters",
    "compare",
    "evaluate",
    "explain_chip",
    "importers",
    "layers",
    "load_network",
    "network_yaml",
    "networks",
    "plan",
    "register",
    "replace",
    "schedule_graph",
    "search",
    "search_several",
    "stacks",
    "units",
    "validate",
]


def __getattr__(name: str) -> Any:
    """The public object of that name, imported now and kept."""
    if name not in _HOMES:
        # Only built when something is wrong; `from dse import api` (a package) passes through here first.
        raise AttributeError(_unknown(name), name=name)
    module, _, attribute = _HOMES[name].partition(":")
    found = getattr(import_module(module), attribute) if attribute else import_module(module)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(__all__)}"
    return f"module 'dse' has no attribute {name!r}{hint}"
