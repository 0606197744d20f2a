"""Who does what: layers on stages, samples in micro-batches, ranks on axes, copies of weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Any

RECOMPUTE = ("none", "selective", "full", "per_operator")
SCHEDULE = ("gpipe", "1f1b", "zero_bubble")
OFFLOAD = ("none", "optimizer", "all")
#: Orders of the axes, innermost first, by their stored number.
AXES = (
    ("tensor", "data", "pipeline"), ("tensor", "pipeline", "data"), ("data", "tensor", "pipeline"),
    ("data", "pipeline", "tensor"), ("pipeline", "tensor", "data"), ("pipeline", "data", "tensor"),
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer on a stage; `repeats` its forward pass, as the plan recomputes."""

    block: Any
    repeats: bool


@dataclass(frozen=True)
class Stage:
    """Layers of a stage, and the embedding and head it holds."""

    layers: tuple[Layer, ...]
    first: Any = None
    last: Any = None

    @cached_property
    def kinds(self) -> list[tuple[Layer, int]]:
        """Equal layers together, with how many there are."""
        counts: dict[tuple[int, bool], list[Layer]] = {}
        for layer in self.layers:
            counts.setdefault((id(layer.block), layer.repeats), []).append(layer)
        return [(equal[0], len(equal)) for equal in counts.values()]


@dataclass(frozen=True)
class Layout:
    """A design laid out.

    distance   ranks between neighbours of an axis
    ranks, group      with the same dense weights (data x context), and of them those that ZeRO splits over together
    expert_*          the same of a routed expert's weights; exchange_distance: between ranks that exchange rows
    """

    design: Any
    first: Any
    last: Any
    body: Any
    stages: tuple[Stage, ...]
    micro_batches: int
    distance: dict[str, float]
    ranks: float
    group: float
    expert_ranks: float
    expert_group: float
    expert_distance: float
    exchange_distance: float

    @property
    def layers(self) -> list[Layer]:
        return [layer for stage in self.stages for layer in stage.layers]

    @property
    def samples(self) -> float:
        """Samples' worth of tokens a device works on at once."""
        return self.design.plan.micro_batch / self.design.plan.context

    @property
    def activation(self) -> float:
        """Bytes of an activation between operators, and of a weight: fp8 recipes keep both in bf16."""
        return 4.0 if self.design.training.precision in ("fp32", "tf32") else 2.0

    @property
    def gradient(self) -> float:
        return float(self.design.training.gradient_bytes)

    @property
    def state(self) -> float:
        """Bytes of optimizer state a parameter: moments in fp32, and a master copy where weights are not fp32."""
        moments = {"adam": 8.0, "momentum": 4.0, "sgd": 0.0}[self.design.training.optimizer]
        return moments + (0.0 if self.activation == 4.0 else 4.0)

    @property
    def recompute(self) -> str:
        return RECOMPUTE[int(self.design.plan.recompute)]


def lay_out(design: Any) -> Layout:
    """Layers in the order of the chain on `pipeline` stages.

    uniform   L / p layers a stage, one more on the first L mod p;  balanced: embedding and head count as one layer each
    Of a stage, `recompute_layers` recompute (0: all).
    """
    plan, workload = design.plan, design.workload
    blocks = workload.network.blocks(workload.sequence)
    first = next(block for block in blocks if block.place == "first")
    last = next(block for block in blocks if block.place == "last")
    chain = [one for place in ("lead", "body") for one in blocks if one.place == place for _ in range(one.count)]
    p, balanced = plan.pipeline, int(plan.split)
    share, extra = divmod(len(chain) + 2 * balanced, p)
    stages, start = [], 0
    for number in range(p):
        count = share + (number < extra)
        if p > 1:
            count -= balanced * ((number == 0) + (number == p - 1))
        else:
            count = len(chain)
        held = chain[start : start + count]
        start += count
        most = 0 if plan.recompute == 0 else plan.recompute_layers or count
        stages.append(
            Stage(
                tuple(Layer(block, i < most) for i, block in enumerate(held)),
                first if number == 0 else None, last if number == p - 1 else None,
            )
        )  # fmt: skip
    assert start == len(chain)
    order = AXES[int(plan.order)]
    degrees = {"tensor": plan.tensor, "data": plan.data * plan.context, "pipeline": p}
    distance, inside = {}, 1.0
    for axis in order:
        distance[axis] = inside
        inside *= degrees[axis]
    ranks = float(plan.data * plan.context)
    asked = float(plan.zero_group) if 0 < plan.zero_group < ranks else inf
    whole = bool(plan.expert_tensor)
    expert_ranks = max((ranks if whole else ranks * plan.tensor) / plan.expert, 1.0)
    between = distance["data"] if whole or plan.tensor == 1 else distance["tensor"]
    return Layout(
        design, first, last, next(block for block in blocks if block.place == "body"), tuple(stages),
        ceil(workload.global_batch / (plan.data * plan.micro_batch)), distance, ranks, min(asked, ranks),
        expert_ranks, min(asked, expert_ranks), between * plan.expert, between,
    )  # fmt: skip


# Parameters of a block on one device ---------------------------------------------------------------------------------


def dense(block: Any, tensor: int) -> float:
    """Parameters outside routed experts: copied ones, split ones (whole pieces: ceil), groups of keys and values."""
    copied = block.parameters - block.parameters_split - block.parameters_grouped - block.parameters_expert
    pieces = getattr(block, "pieces", ())
    split = (block.parameters_split - sum(size for _, size in pieces)) / tensor
    split += sum(ceil(number / tensor) * (size / number) for number, size in pieces)
    grouped = 0.0
    if block.parameters_grouped:
        grouped = max(ceil(block.group_count / tensor), 1) * (block.parameters_grouped / block.group_count)
    return copied + split + grouped


def shared(block: Any, tensor: int) -> float:
    """Of them, those that another block of the same stage stores already (a tied head)."""
    pieces = getattr(block, "shared_pieces", 0)
    if pieces:
        return ceil(pieces / tensor) * (block.shared_parameters / pieces)
    return block.shared_parameters / tensor


def expert(block: Any, plan: Any) -> float:
    """Parameters of routed experts: whole experts, cut over the tensor axis with `expert_tensor`."""
    if not block.parameters_expert:
        return 0.0
    held = max(ceil(block.expert_count / plan.expert), 1)
    return held * (block.parameters_expert / block.expert_count) / (plan.tensor if plan.expert_tensor else 1)


def ends(layout: Layout, stage: Stage) -> float:
    """Parameters of the embedding and head that a stage holds; a tied head beside its embedding stores no copy."""
    tensor, held = layout.design.plan.tensor, 0.0
    if stage.first is not None:
        held += dense(stage.first, tensor)
    if stage.last is not None:
        held += dense(stage.last, tensor) - (shared(stage.last, tensor) if stage.first is not None else 0.0)
    return held


def stage_dense(layout: Layout, stage: Stage) -> float:
    """All dense parameters of a stage on one device."""
    return ends(layout, stage) + sum(n * dense(layer.block, layout.design.plan.tensor) for layer, n in stage.kinds)


def stage_expert(layout: Layout, stage: Stage) -> float:
    """All parameters of routed experts, or of sparse tables, of a stage on one device."""
    return sum(n * expert(layer.block, layout.design.plan) for layer, n in stage.kinds)
