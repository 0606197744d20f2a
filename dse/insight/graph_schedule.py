"""One micro-batch of a graph on a chip with several matrix and vector units: critical path, slack, list schedule.

The evaluation runs the kernels of a device one after the other (one stream); this says what running independent
branches side by side could save.  Theory: docs/models/graph_schedule.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.evaluation.design import Design, rows
from dse.evaluation.price import OperatorPrices, price_attention, price_matmuls, price_vectors
from dse.evaluation.work import work
from dse.insight.list_schedule import Bounds, Scheduled, Task, bounds, list_schedule
from hw_models.chip import Chip
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.lowering import node_blocks

#: Units of a chip by what they run.
MATRIX, VECTOR = "matrix", "vector"
#: Passes of a step, in the order they are made.
FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"


@dataclass(frozen=True)
class GraphSchedule:
    """A training pass (forward and backward) of one micro-batch.

    tasks        a node's kernels of one pass and kind, with what they wait for
    bounds       earliest and latest starts, slack and critical path
    scheduled    the list schedule on the chip's units
    serial       all kernels one after the other [s]
    memory_time  all bytes of device memory over its bandwidth [s]: units share it, so that no schedule is shorter
    """

    tasks: tuple[Task, ...]
    bounds: Bounds
    scheduled: Scheduled
    serial: float
    memory_time: float

    @property
    def makespan(self) -> float:
        """Seconds of the pass on the units: the list schedule, or memory where that takes longer."""
        return max(self.scheduled.makespan, self.memory_time)

    @property
    def parallelism(self) -> float:
        """How many units the graph could keep busy: serial time over its critical path."""
        return self.serial / self.bounds.length if self.bounds.length else 1.0

    def to_plain(self) -> dict[str, Any]:
        """Seconds of the whole, and of every task with its start, its slack and whether it is critical."""
        critical = set(self.bounds.critical)
        tasks = [
            {
                "name": task.name, "unit": task.kind, "time_s": task.seconds, "start_s": self.scheduled.start[i],
                "slack_s": self.bounds.slack[i], "critical": i in critical, "after": list(task.after),
            }
            for i, task in enumerate(self.tasks)
        ]
        return {
            "serial_s": self.serial, "critical_path_s": self.bounds.length,
            "list_schedule_s": self.scheduled.makespan, "memory_s": self.memory_time, "makespan_s": self.makespan,
            "parallelism": self.parallelism, "tasks": tasks,
        }


def schedule_graph(design: Design, *, matrix_units: int = 1, vector_units: int = 1) -> GraphSchedule:
    """Critical path and list schedule of one micro-batch of a scalar design whose network is a graph.

    The arrays of the chip form `matrix_units` equal units and its lanes `vector_units`; each kernel runs on one unit.
    A backward pass of a node waits for those of the nodes that read it; weight gradients wait for nothing else.
    Ignores exchanges, the host, the update, and the pipeline: it is one device of the tensor axis.
    """
    network = design.workload.network
    if not isinstance(network, GraphNetwork):
        raise ValueError(f"network: found {network.name!r}, allowed: a graph (its layers have branches)")
    for name, number in (("matrix_units", matrix_units), ("vector_units", vector_units)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}: found {number!r}, allowed: a whole number >= 1")
    graph = network.graph(design.workload.sequence)
    shared = replace(design, chip=unit_of(design.chip, matrix_units, vector_units))
    seconds, memory_time = priced_nodes(shared, graph)
    tasks = _tasks(graph, seconds)
    units: Mapping[str, int] = {MATRIX: matrix_units, VECTOR: vector_units}
    return GraphSchedule(
        tasks, bounds(tasks), list_schedule(tasks, units), sum(task.seconds for task in tasks), memory_time
    )


def unit_of(chip: Chip, matrix_units: int, vector_units: int) -> Chip:
    """The chip that a kernel sees: its share of arrays and lanes, at least one of each, and all of the memory."""
    return replace(
        chip,
        array_count=max(int(chip.array_count) // matrix_units, int(chip.arrays_per_core)),
        vector_lanes=max(int(chip.vector_lanes) // vector_units, 1),
    )


def priced_nodes(design: Design, graph: Graph) -> tuple[dict[tuple[int, str, str], float], float]:
    """Seconds by node, pass and unit; and the seconds in which device memory moves everything."""
    r = rows(design)
    columns = ("tensor", "micro_batch", "sequence_parallel", "context", "expert", "expert_tensor")
    fields = {name: getattr(r.plan, name) for name in columns}
    todo = work(node_blocks(graph), r.training, fields, paired=r.paired)
    tables: dict[str, OperatorPrices] = {"product": price_matmuls(r, todo), "pass": price_vectors(r, todo)}
    if todo.fused is not None:
        tables["attention"] = price_attention(r, todo.fused)
    found: dict[tuple[int, str, str], float] = {}
    memory = 0.0
    for task in todo.tasks:
        table = tables[task.kind]
        once = _number(table.time[task.row]) + task.launches * _number(r.stack.kernel_launch)
        when = {FORWARD: FORWARD, "weight_gradient": WEIGHTS}.get(task.phase, BACKWARD)
        key = int(task.place), when, VECTOR if task.kind == "pass" else MATRIX
        found[key] = found.get(key, 0.0) + task.times * once
        memory += task.times * _number(np.broadcast_to(table.streams["hbm"], table.time.shape)[task.row])
    return found, memory


def _number(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _tasks(graph: Graph, seconds: dict[tuple[int, str, str], float]) -> tuple[Task, ...]:
    """Tasks of all nodes: forward in order, then backward from the last node to the first."""
    tasks: list[Task] = []
    ends: dict[tuple[int, str], tuple[int, ...]] = {}

    def add(number: int, when: str, kinds: tuple[str, ...], after: tuple[int, ...]) -> tuple[int, ...]:
        for kind in kinds:
            if (number, when, kind) in seconds:
                name = f"{graph.nodes[number].name} {when}"
                tasks.append(Task(name, seconds[number, when, kind], kind, tuple(dict.fromkeys(after))))
                after = (len(tasks) - 1,)
        return after

    for number, node in enumerate(graph.nodes):
        before = tuple(end for source in node.inputs for end in ends.get((source, FORWARD), ()))
        ends[number, FORWARD] = add(number, FORWARD, (MATRIX, VECTOR), before)
    consumers = graph.consumers()
    for number in reversed(range(len(graph.nodes))):
        readers = tuple(end for user in consumers[number] for end in ends.get((user, BACKWARD), ()))
        # the gradient of the last result is there when the forward pass is
        before = readers or ends[number, FORWARD]
        through = add(number, BACKWARD, (VECTOR, MATRIX), before)
        ends[number, BACKWARD] = through
        # a bias or norm gradient comes with the pass; the product waits for the incoming gradient only
        add(number, WEIGHTS, (MATRIX, VECTOR), before)
    return tuple(tasks)
