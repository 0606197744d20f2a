"""Networks whose work follows data: temporal graph networks, generalised linear models, adaptive subdivision.

A sample is an event, an example or a picture.  Sizes of data sets that come from memory are so marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.layers.attention import Gather
from workloads.layers.dense import Linear
from workloads.layers.losses import Loss
from workloads.layers.pointwise import Activation, Add
from workloads.layers.sparse import AdaptiveSubdivision, CoordinateDescent, NeighbourAttention, NodeMemory, SparseLinear

__all__ = ["GLM_DATA", "NETWORKS", "TEMPORAL_DATA", "GlmData", "TemporalData"]


@dataclass(frozen=True)
class TemporalData:
    """A stream of interactions: nodes, events, features of an event."""

    nodes: int
    events: int
    edge: int


@dataclass(frozen=True)
class GlmData:
    """A sparse matrix of examples: rows, columns, non-zeros a row."""

    examples: int
    features: int
    nonzeros: int


#: Data sets of temporal graphs (features recalled; GDELT's sizes recalled).
TEMPORAL_DATA = {
    "wikipedia": TemporalData(9227, 157474, 172), "reddit": TemporalData(10984, 672447, 172),
    "mooc": TemporalData(7144, 411749, 0), "flights": TemporalData(13169, 1927145, 0),
    "gdelt": TemporalData(16682, 191290882, 186),
}  # fmt: skip
#: Data sets of linear models (LIBSVM's sizes, recalled; non-zeros a row are means).
GLM_DATA = {
    "covtype": GlmData(581012, 54, 54), "w8a": GlmData(64700, 300, 12), "real-sim": GlmData(72309, 20958, 51),
    "rcv1": GlmData(677399, 47236, 73), "news20": GlmData(19996, 1355191, 455),
    "webspam": GlmData(350000, 16609143, 3728), "criteo": GlmData(200_000_000, 75_000_000, 39),
}  # fmt: skip


def temporal(_: int, *, edge: int, width: int = 100, fanout: int = 10, time: int = 100) -> Graph:
    """A temporal graph network with node memory: an event has a source, a target and a false target.

    Mail holds both ends' memory, the event's features and its time."""
    graph = Graph("temporal")
    roots = 3
    with graph.cell("memory"):
        nodes = graph.input((roots * (1 + fanout),), "nodes")
        x = graph.add(NodeMemory(width, 2 * width + edge, time), nodes)
    with graph.cell("attention"):
        x = graph.add(Activation("relu"), graph.add(NeighbourAttention(roots, fanout, 2, edge, time), x))
    with graph.cell("predictor"):
        source = graph.add(Linear(width), graph.add(Gather(2), x, name="sources"))
        target = graph.add(Linear(width), graph.add(Gather(2), x, name="targets"))
        y = graph.add(Activation("relu"), graph.add(Add(), source, target))
        graph.add(Loss("sigmoid"), graph.add(Linear(1), y))
    return graph


def linear_model(_: int, *, data: GlmData) -> Graph:
    """Logistic regression by gradient descent: a sample is a row."""
    graph = Graph("linear model")
    with graph.cell("row"):
        y = graph.add(SparseLinear(data.features), graph.input((data.nonzeros,), "row"))
        graph.add(Loss("sigmoid"), y)
    return graph


def coordinate_descent(_: int, *, data: GlmData, partition: str) -> Graph:
    """One epoch of stochastic coordinate descent takes as many samples as the data has examples."""
    graph = Graph("coordinate descent")
    with graph.cell("coordinate"):
        step = CoordinateDescent(data.examples, data.features, partition)  # type: ignore[arg-type]
        graph.add(step, graph.input((data.nonzeros,), "row"))
    return graph


def mandelbrot(side: int, *, density: float = 0.5) -> Graph:
    """The Mandelbrot set by adaptive subdivision, 512 operations an element."""
    graph = Graph("mandelbrot")
    with graph.cell("picture"):
        graph.add(AdaptiveSubdivision(512.0, density), graph.input((side, side), "picture"))
    return graph


ZHOU = (
    "Zhou et al. 2023, arXiv 2307.07649 (DistTGL), after Rossi et al. 2020, arXiv 2006.10637; 10 neighbours, width 100"
)
MA = "Ma et al. 2018, arXiv 1802.08800; data: LIBSVM"
PARNELL = "Parnell et al. 2017, arXiv 1702.07005"

#: Temporal graph networks, linear models and subdivision, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    *(
        GraphNetwork(f"tgn-{name}", partial(temporal, edge=data.edge), 1, "event", ZHOU)
        for name, data in TEMPORAL_DATA.items()
    ),
    *(
        GraphNetwork(f"glm-{name}", partial(linear_model, data=data), 1, "example", MA)
        for name, data in GLM_DATA.items()
        if name not in ("webspam", "criteo")
    ),
    *(
        GraphNetwork(
            f"scd-{name}-by-{partition}", partial(coordinate_descent, data=GLM_DATA[name], partition=partition), 1,
            "example", PARNELL,
        )
        for name in ("webspam", "criteo")
        for partition in ("example", "feature")
    ),
    GraphNetwork("mandelbrot", partial(mandelbrot), 65536, "picture", "Quezada et al. 2022, arXiv 2206.02255"),
)  # fmt: skip
