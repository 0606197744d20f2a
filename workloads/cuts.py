"""Where a pipeline cuts a chain of layers of several kinds: the slowest stage as fast as any cut allows.

Costs hold no chip: FLOP, and bytes moved at a balance of FLOP a byte, so that a cut is part of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workloads.operators import Block, Cell

#: FLOP that an accelerator does in the time it moves a byte of its memory: P100 14 (fp32), V100 139, A100 153 to 201,
#: H100 295 (fp16 and bf16, data sheets): the middle of what trains.
BALANCE = 150.0


def balanced(costs: tuple[float, ...], stages: int) -> tuple[int, ...]:
    """First layer of each stage, for the least largest sum of costs of a stage; stages hold at least one layer.

    T(j, s) = min over i < j of max(T(i, s - 1), c_i + .. + c_(j-1)): optimal, by dynamic programming, O(n^2 s).
    Of equal cuts the one whose last stages are shortest.
    """
    n = len(costs)
    if not 1 <= stages <= n:
        raise ValueError(f"stages: found {stages}, allowed: 1 to {n} (layers)")
    if any(cost < 0 for cost in costs):
        raise ValueError("costs: found a negative one, allowed: >= 0")
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    best = np.full((stages + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((stages + 1, n + 1), dtype=int)
    for stage in range(1, stages + 1):
        for end in range(stage, n + 1):
            slowest = np.maximum(best[stage - 1, :end], sums[end] - sums[:end])
            cut[stage, end] = end - 1 - int(np.argmin(slowest[::-1]))
            best[stage, end] = slowest[cut[stage, end]]
    starts = []
    end = n
    for stage in range(stages, 0, -1):
        end = int(cut[stage, end])
        starts.append(end)
    return tuple(reversed(starts))


def even(layers: int, stages: int) -> tuple[int, ...]:
    """First layer of each stage when all hold as many layers, the first ones one more."""
    base, extra = divmod(layers, stages)
    return tuple(stage * base + min(stage, extra) for stage in range(stages))


@dataclass(frozen=True)
class Cut:
    """What the stages of a pipeline hold, as shares of the whole network.

    cost, parameters, kept, input   a share a stage; the four sums are 1
    boundary                        most elements a sample that cross between two stages
    """

    cost: tuple[float, ...]
    parameters: tuple[float, ...]
    kept: tuple[float, ...]
    input: tuple[float, ...]
    boundary: float


def cell_cost(layer: Cell | Block, *, balance: float = BALANCE) -> float:
    """FLOP of a layer, and of what could be done while its bytes move: F + b 2 E, E elements of 2 bytes."""
    return layer.flops + balance * 2.0 * layer.moved


def cut_chain(
    body: tuple[Block, ...], chain: tuple[tuple[int, int], ...], stages: int, *, by_cost: bool
) -> tuple[int, ...]:
    """First layer of each stage of a chain of classes, ((class, layers), ...): balanced by cost, or equal numbers."""
    costs = [cell_cost(block) for block in body]
    layers = tuple(costs[number] for number, run in chain for _ in range(run))
    stages = min(stages, len(layers))
    return balanced(layers, stages) if by_cost else even(len(layers), stages)


@lru_cache(maxsize=4096)
def cut_cells(cells: tuple[Cell, ...], stages: int, by_cost: bool) -> Cut:
    """Shares of each of `stages` stages, at most one a layer: balanced by cost, or equal numbers of layers."""
    stages = min(stages, len(cells))
    costs = tuple(cell_cost(cell) for cell in cells)
    starts = balanced(costs, stages) if by_cost else even(len(cells), stages)
    ends = (*starts[1:], len(cells))

    def shares(values: tuple[float, ...]) -> tuple[float, ...]:
        total = sum(values)
        if not total:
            return (1.0 / stages,) * stages
        return tuple(sum(values[start:end]) / total for start, end in zip(starts, ends, strict=True))

    return Cut(
        shares(costs),
        shares(tuple(float(cell.parameters) for cell in cells)),
        shares(tuple(float(cell.kept) for cell in cells)),
        shares(tuple(float(cell.input) for cell in cells)),
        max((float(cells[end - 1].boundary) for end in ends[:-1]), default=0.0),
    )
