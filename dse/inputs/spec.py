"""What a configuration file says, as plain frozen values in base SI: a search, a design, and the names they may use.

No YAML, no validation library and no unit prefix gets past this point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dse.evaluation.metrics import Metric, check_metric
from dse.evaluation.result import METRICS
from dse.exploration.plans import Strategy
from dse.exploration.searchers import Plugged
from hw_models.chip import Chip
from hw_models.cluster import Cluster
from hw_models.stack import Stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training

__all__ = [
    "ALL_DEVICES",
    "CHIP_LINKS",
    "Catalog",
    "Choices",
    "ClusterSpace",
    "Constraint",
    "DesignSpec",
    "SearchSettings",
    "SearchSpec",
]

#: Size of a tier that holds every device of the cluster, however many a design has (`size: all`).
ALL_DEVICES = 0
#: Bandwidth of a tier that is wired with the chip's own links (`bandwidth: chip links`).
CHIP_LINKS = 0.0

Choices = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Catalog:
    """The built-in names a file may use.

    networks, chips, clusters, stacks  name -> object, or a function without arguments that makes it
    processes, memories                rows of the technology table; empty: not checked
    metric_units                       name -> base unit of everything that can be constrained or optimised
    constants                          fitted constants of stacks and devices; None: those that ship
    folder                             where names of files in a file begin; "": the current folder
    data                               the text is data of others: `module:attribute` only as `register` was given
    """

    networks: Mapping[str, Any] = field(default_factory=dict)
    chips: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, Any] = field(default_factory=dict)
    stacks: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    metric_units: Mapping[str, str] = field(default_factory=dict)
    constants: Any = None
    folder: str = ""
    data: bool = False


@dataclass(frozen=True)
class Constraint:
    """A metric (its name, or one of the user's own) that must stay on one side of a bound, in its base unit."""

    metric: Any
    relation: Literal["<=", ">="]
    bound: float

    @property
    def sign(self) -> float:
        """sign x (metric - bound) is feasible at <= 0."""
        return 1.0 if self.relation == "<=" else -1.0


@dataclass(frozen=True)
class ClusterSpace:
    """The clusters of a search: field -> values, for the cluster and for each tier, innermost first.

    A tier size of ALL_DEVICES follows `devices`; a tier bandwidth of CHIP_LINKS is the chip's own links."""

    name: str
    values: Choices
    tiers: tuple[Choices, ...]
    source: str = ""


@dataclass(frozen=True)
class SearchSettings:
    """How the space is searched; `timeout` [s] is None where there is none; `sampler` is a name, or the user's own."""

    mode: Literal["auto", "nested", "joint", "exhaustive"] = "nested"
    sampler: str | Plugged = "nsga2"
    budget: int = 200
    seed: int = 0
    inner_objective: Any = ""
    timeout: float | None = None


@dataclass(frozen=True)
class SearchSpec:
    """A search: what is trained, the hardware and plans to choose from, what is wanted.

    chip        every numeric and named field of Chip -> its values; one value: fixed
    chip_base   the chip with the first value of each field: name and matrix rates come from it
    plan        fields of Plan -> stored numbers; a field that is missing takes every value
    strategy    a rule of the user's own for the plans that are looked at
    objectives  metrics, less or more of which is wanted: names, or metrics of the user's own
    metrics     the user's own among objectives and constraints, which name them from then on
    presets     chips to project into the space and to start from
    """

    name: str
    workloads: tuple[Workload, ...]
    chip: Choices
    chip_base: Chip
    cluster: ClusterSpace
    objectives: tuple[Any, ...]
    plan: Choices = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    training: Training = field(default_factory=Training)
    stack: Stack = field(default_factory=Stack)
    presets: tuple[Chip, ...] = ()
    search: SearchSettings = field(default_factory=SearchSettings)
    metrics: tuple[Metric, ...] = ()
    strategy: Strategy | None = None
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        given = [*self.metrics, *self.objectives, *(limit.metric for limit in self.constraints)]
        own = tuple(dict.fromkeys(item for item in given if isinstance(item, Metric)))
        for metric in own:
            check_metric(metric)
        called = [metric.name for metric in own]
        twice = sorted({name for name in called if called.count(name) > 1})
        if twice:
            raise ValueError(f"metrics: found two named {', '.join(twice)}, allowed: a name of its own each")
        limits = tuple(replace(limit, metric=_name(limit.metric)) for limit in self.constraints)
        search = replace(self.search, inner_objective=_name(self.search.inner_objective))
        names = tuple(map(_name, self.objectives))
        made = {"metrics": own, "objectives": names, "constraints": limits, "search": search}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def unit_of(self, metric: str) -> str:
        """The base unit of a metric, of results or of the user's own."""
        own = {item.name: item.unit for item in self.metrics}
        return own[metric] if metric in own else METRICS[metric][0]


def _name(metric: Any) -> str:
    return metric.name if isinstance(metric, Metric) else str(metric)


@dataclass(frozen=True)
class DesignSpec:
    """One design; `plan` is None where the file leaves it open."""

    name: str
    workloads: tuple[Workload, ...]
    chip: Chip
    cluster: Cluster
    plan: Plan | None = None
    training: Training = field(default_factory=Training)
    stack: Stack = field(default_factory=Stack)
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)
