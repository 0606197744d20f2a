"""How well shares of cost (FLOP and bytes at one balance) stand for shares of time, where a pipeline cuts a network.

    python benchmarks/cut_check.py

For each network, device and number of stages: the slowest stage over the mean, by cost as the plan sees it, and by the
times of the layers as the evaluation prices them; and the best that any cut of these times could do.
"""

from __future__ import annotations

import numpy as np

from dse.evaluation.design import Design
from dse.insight.graph_schedule import priced_nodes
from dse.present.text.tables import table_text
from hw_models.cluster import Cluster, Tier
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.cells import cells
from workloads.cuts import balanced, cell_cost
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import default_sequence, network

NETWORKS = (
    "resnet50", "inception-v3", "vgg16", "efficientnet-b4", "densenet121", "unet-medical", "bert-large", "gnmt-4",
)  # fmt: skip
DEVICES = (("v100-sxm2", "fp32"), ("v100-sxm2", "fp16"), ("a100-sxm-80gb", "bf16"), ("h100-sxm", "bf16"))


def cell_times(name: str, device: str, precision: str, samples: int = 32) -> tuple[list[float], list[float]]:
    """Cost and seconds (forward and backward) of each cell of a network, in order."""
    built = network(name)
    training = Training(precision=precision, optimizer="sgd")  # type: ignore[arg-type]
    design = Design(
        chip(device), Cluster(1, (Tier(1),)), Plan(micro_batch=samples),
        Workload(built, default_sequence(name), samples), stack("compiled", device), training,
    )  # fmt: skip
    graph = built.graph(default_sequence(name))  # type: ignore[attr-defined]
    seconds, _ = priced_nodes(design, graph)
    names = cells(graph)
    body = built.blocks(default_sequence(name))[1]
    times = {cell.name: 0.0 for cell in body.cells}
    for (number, _, _), value in seconds.items():
        if names[number] in times:
            times[names[number]] += value
    return [cell_cost(cell) for cell in body.cells], list(times.values())


def slowest(values: list[float], starts: tuple[int, ...]) -> float:
    """The slowest stage over the mean."""
    ends = (*starts[1:], len(values))
    stages = [sum(values[a:b]) for a, b in zip(starts, ends, strict=True)]
    return max(stages) * len(stages) / sum(stages)


def main() -> None:
    """Print the table and the error of the slowest stage."""
    rows, errors, losses = [], [], []
    for name in NETWORKS:
        for device, precision in DEVICES:
            costs, times = cell_times(name, device, precision)
            row: dict[str, object] = {"network": name, "device": f"{device} {precision}"}
            for stages in (2, 4):
                cut = balanced(tuple(costs), stages)
                seen, real = slowest(costs, cut), slowest(times, cut)
                best = slowest(times, balanced(tuple(times), stages))
                row |= {f"p{stages} by cost": f"{seen:.2f}", f"p{stages} by time": f"{real:.2f}",
                        f"p{stages} best": f"{best:.2f}"}  # fmt: skip
                errors.append(seen / real - 1.0)
                losses.append(real / best - 1.0)
            rows.append(row)
    print(table_text(rows))
    print(
        f"slowest stage by cost against time: mean {100 * np.mean(np.abs(errors)):.1f}%, "
        f"worst {100 * np.max(np.abs(errors)):.1f}%; cut by cost against the best cut by time: "
        f"mean {100 * np.mean(losses):.1f}%, worst {100 * np.max(losses):.1f}%"
    )


if __name__ == "__main__":
    main()
