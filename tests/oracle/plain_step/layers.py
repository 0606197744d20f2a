"""What one layer computes for one micro-batch on one device: its kernels, forward and backward.

A product (m, n, k) has input gradient (m, k, n) and, of a weight, weight gradient (k, n, m); where the right operand is
an activation both are input gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from . import kernels
from .kernels import Device, Work
from .plan import Layout


@dataclass(frozen=True)
class LayerWork:
    """Sums of the kernels of a block.

    core, vectors, products   of the forward pass: attention core, element-wise passes, products outside the core
    weights                   of the backward pass: weight gradients
    """

    forward: Work
    backward: Work
    core: Work
    vectors: Work
    products: Work
    weights: Work

    def repeated(self, recompute: str) -> Work:
        """What recomputation repeats before the backward pass of a layer."""
        return {
            "none": Work(), "selective": self.core, "full": self.forward,
            "per_operator": self.vectors + 0.5 * self.products,
        }[recompute]  # fmt: skip


def layer_work(layout: Layout, block: Any) -> LayerWork:
    """Every kernel of the block, one after another."""
    design = layout.design
    training, plan = design.training, design.plan
    device = Device(design.chip, design.stack, training)
    fused = training.attention != "materialized" and block.attention is not None
    sums = dict.fromkeys(("forward", "backward", "core", "vectors", "products", "weights"), Work())

    def add(work: Work, *names: str) -> None:
        for name in names:
            sums[name] = sums[name] + work

    for one in block.matmuls:
        if one.core and fused:
            continue
        assert not one.convolution and one.window == 1, "convolutions are not in this oracle"
        m, n, k, groups = _share(one, plan)
        wide = training.precision == "fp8" and (one.core or not one.weight or block.place == "last")
        precision = "bf16" if wide else training.precision
        rows = max(m / one.steps, 1.0) if one.steps > 1 else m
        parts = float(one.steps * one.repeats)

        def product(a: float, b: float, c: float, result: float) -> Work:
            return kernels.matmul(device, a, b, c, groups, precision=precision, result=result, launches=1.0)  # noqa: B023

        add(parts * product(rows, n, k, layout.activation), "forward", "core" if one.core else "products")
        if one.input_gradient:
            add(parts * product(rows, k, n, layout.activation), "backward")
        # a weight gradient is added to what is there: read and written
        late = 2.0 * layout.gradient if one.weight else layout.activation
        add(float(one.repeats) * product(k, n, m, late), "backward", *(("weights",) if one.weight else ()))

    for one in block.vectors:
        if (one.core and fused) or (one.loss and training.cross_entropy == "fused"):
            continue
        cut = plan.tensor if one.split == "tensor" or (one.split == "sequence" and plan.sequence_parallel) else 1
        elements = one.elements * layout.samples / cut
        words, work = one.reads + one.writes, one.operations
        passes = [(words, work, ("forward", "core" if one.core else "vectors"))]
        if one.gradient:
            passes.append((one.backward_reads + one.backward_writes, one.backward_operations, ("backward",)))
        for moved, operations, names in passes:
            done = kernels.vector(
                device, elements, moved=moved * layout.activation, operations=operations, pieces=one.pieces,
                launches=float(one.steps) if moved > 0 else 0.0,
            )  # fmt: skip
            add(float(one.repeats) * done, *names)

    if training.precision == "fp8":
        _casts(device, block, plan, add)

    sizes = block.attention if isinstance(block.attention, tuple) else (block.attention,)
    for one in sizes if fused else ():
        heads = ceil(one.heads / plan.tensor) * plan.micro_batch
        for backward in (False, True):
            done = kernels.attention(
                device, one, heads=heads, queries=ceil(one.queries / plan.context), keys=one.keys, backward=backward
            )
            add(float(one.repeats) * done, *(("backward",) if backward else ("forward", "core")))
    gap = design.stack.kernel_launch
    return LayerWork(**{name: work + Work(work.launches * gap) for name, work in sums.items()})


def _share(one: Any, plan: Any) -> tuple[float, float, float, float]:
    """(m, n, k, groups) of a product on one device: whole columns, heads and rows; an expert's rows spread evenly.

    A device with E / e experts works for the rows of its e peers; where experts are whole (not cut over the tensor
    axis), each tensor rank brings its own part of the tokens.
    """
    tensor, samples, context = plan.tensor, plan.micro_batch, plan.context
    brought = 1
    if one.experts and not plan.expert_tensor:
        tensor, brought = 1, plan.tensor
    n = ceil(one.n / tensor) if one.split == "n" else one.n
    if one.n_groups:
        n += max(ceil(one.n_groups / tensor), 1) * one.n_group_width
    k = ceil(one.k / tensor) if one.split == "k" else one.k
    groups = ceil(one.groups / tensor) if one.split == "groups" else one.groups
    if one.experts:
        local = max(ceil(one.experts / plan.expert), 1)
        return ceil(one.m * samples / (context * brought) / local), n, k, local
    if one.weight:
        return ceil(one.m * samples / context), n, k, groups
    return ceil(one.m / context), n, k, groups * samples


def _casts(device: Device, block: Any, plan: Any, add: Any) -> None:
    """Linear layers' inputs (and weights) become fp8 forward, gradients of their results backward.

    A scale a tensor: read, written as it is and transposed (2 + 2 x 1 B).  A scale a row: for each use read for the
    largest of the row, read again, written (2 (2 x 2 + 1) B).
    """
    moved = 4.0 if device.training.scaling == "tensor" else 10.0
    forward = backward = 0.0
    for one in block.matmuls:
        if one.weight and not one.core and block.place != "last":
            m, n, k, groups = _share(one, plan)
            cast = m * k + (k * n if device.training.weight_casts == "pass" else 0.0)
            forward += groups * cast * one.repeats
            backward += groups * m * n * one.repeats
    if forward:
        for elements, names in ((forward, ("forward", "vectors")), (backward, ("backward",))):
            add(kernels.vector(device, elements, moved=moved, operations=2.0, pieces=1.0, launches=1.0), *names)
