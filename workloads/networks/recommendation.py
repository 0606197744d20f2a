"""Recommendation models as graphs: a sample is one impression, with dense features and indices of categories."""

from __future__ import annotations

from functools import partial
from typing import Literal

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.dense import Linear
from workloads.layers.embedding import Cross, EmbeddingBags, Interaction
from workloads.layers.losses import Loss
from workloads.layers.pointwise import Activation, Concat, Flatten

__all__ = ["NETWORKS"]

#: Rows of the 26 tables of Criteo Terabyte where words that occur less than 15 times share a row.
CRITEO_15 = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209, 10667, 104, 4, 968, 15,
    8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip
#: The same where the limit is 3.
CRITEO_3 = (
    45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10, 2209, 11267, 128, 4, 974, 14,
    48937457, 11316796, 40094537, 452104, 12606, 104, 35,
)  # fmt: skip
#: The tables where rows are hashed to 40 million at most: the tables of the first MLPerf benchmark.
CRITEO_40M = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
    39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
#: Tables of the second MLPerf benchmark, and indices a sample of each.
CRITEO_MULTI = (
    40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14,
    40000000, 40000000, 40000000, 590152, 12973, 108, 36,
)  # fmt: skip
HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


def _mlp(graph: Graph, x: Value, sizes: tuple[int, ...], *, last: bool = True) -> Value:
    """Linear layers with ReLU between them, after the `last` one too."""
    for at, size in enumerate(sizes):
        x = graph.add(Linear(size), x)
        x = graph.add(Activation("relu"), x) if last or at < len(sizes) - 1 else x
    return x


def dlrm(
    _: int, *, rows: tuple[int, ...], width: int = 128, lookups: int | tuple[int, ...] = 1, dense: int = 13,
    bottom: tuple[int, ...] = (512, 256, 128), top: tuple[int, ...] = (1024, 1024, 512, 256, 1), multiple: int = 8,
    cross_layers: int = 0, rank: int = 512, spread: Literal["table", "row"] = "table",
) -> Graph:  # fmt: skip
    """DLRM: tables beside a bottom MLP, dot interaction (or cross layers, DCN v2), top MLP.

    multiple   columns of the interaction are padded to it
    spread     how devices share the tables: whole ones, or rows of each
    """
    graph = Graph("dlrm")
    tables = EmbeddingBags(rows, width, lookups, spread=spread)
    with graph.cell("embedding"):
        table = graph.add(tables, graph.input((tables.indices,), "categories"), name="tables")
    with graph.cell("bottom"):
        x = _mlp(graph, graph.input((dense,), "features"), bottom)
    with graph.cell("interaction"):
        if cross_layers:
            x = graph.add(Concat(), x, graph.add(Flatten(), table))
            first = x
            for _layer in range(cross_layers):
                x = graph.add(Cross(rank), first, x)
        else:
            x = graph.add(Interaction(multiple), x, table)
    with graph.cell("top"):
        graph.add(Loss("sigmoid"), _mlp(graph, x, top, last=False))
    return graph


def ads(_: int, *, features: int, nonzeros: int, width: int, inner: int, slots: int = 40) -> Graph:
    """A click model with one huge table: `nonzeros` rows a sample, summed by slot, then a small MLP.

    features, width   rows of the table and columns of a row;  inner: of the MLP's first layer, halved twice after it
    Rows are spread over devices by hash.
    """
    graph = Graph("ads")
    bags = EmbeddingBags((-(-features // slots),) * slots, width, -(-nonzeros // slots), spread="row")
    with graph.cell("embedding"):
        x = graph.add(Flatten(), graph.add(bags, graph.input((bags.indices,), "features"), name="table"))
    with graph.cell("mlp"):
        graph.add(Loss("sigmoid"), _mlp(graph, x, (inner, inner // 2, inner // 4, 1), last=False))
    return graph


NVIDIA = "NVIDIA/DeepLearningExamples, PyTorch/Recommendation/DLRM, after Naumov et al. 2019, arXiv 1906.00091"
MLPERF = "mlcommons/training, recommendation_v2/torchrec_dlrm (DCN v2, multi-hot Criteo Terabyte)"
ADS = (
    "Zhao et al. 2020, arXiv 2003.05622, table 3: rows, non-zeros and sizes (recalled); columns: size / (4 B x rows); "
    "40 slots assumed; widths of the MLP make the number of dense parameters (recalled)"
)
#: Rows, non-zeros a sample, columns, columns of the first layer.
ADS_MODELS = {
    "a": (8 * 10**9, 100, 9, 800), "b": (2 * 10**10, 100, 8, 56), "c": (6 * 10**10, 500, 8, 1560),
    "d": (10**11, 500, 15, 2096), "e": (2 * 10**11, 500, 12, 2984),
}  # fmt: skip


def _network(name: str, source: str, **sizes: object) -> GraphNetwork:
    return GraphNetwork(name, partial(dlrm, **sizes), 1, "impression", source)  # type: ignore[arg-type]


#: Recommendation models, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    _network("dlrm-small", f"{NVIDIA}; small: rows of words that occur 15 times (15 GB in fp32)", rows=CRITEO_15),
    _network(
        "dlrm-large",
        f"{NVIDIA}; large: words that occur 3 times, tables of torchrec's example (91 GB in fp32, printed as 82 GB)",
        rows=CRITEO_3,
    ),
    _network(
        "dlrm-criteo-40m",
        "Naumov et al. 2019, arXiv 1906.00091; tables of facebookresearch/dlrm at 40 million rows (first MLPerf)",
        rows=CRITEO_40M,
        multiple=1,
    ),
    # five tables of 40 million rows of 26: they are spread by rows
    _network("dlrm-dcnv2", MLPERF, rows=CRITEO_MULTI, lookups=HOT, cross_layers=3, spread="row"),
    *(
        GraphNetwork(
            f"ads-{name}",
            partial(ads, features=rows, nonzeros=nonzeros, width=width, inner=inner),
            1,
            "impression",
            ADS,
        )
        for name, (rows, nonzeros, width, inner) in ADS_MODELS.items()
    ),
)
