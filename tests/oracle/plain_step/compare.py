"""What the oracle says of a design beside what the product says, quantity by quantity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dse

from . import energy, memory, traffic
from .designs import together
from .plan import Layout, lay_out
from .step import Step, step, work_of

TIMES = (
    "forward", "backward", "recompute", "tensor", "context", "expert", "shard", "host", "data", "update", "overhead",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """quantities by name: (the oracle's, the product's); running: seconds of the pipeline, the same way."""

    design: Any
    layout: Layout
    step: Step
    quantities: dict[str, tuple[float, float]]
    running: tuple[float, float]

    @property
    def exact(self) -> bool:
        """Whether the closed form of the pipeline is exact: one stage, or gpipe."""
        plan = self.design.plan
        return bool(plan.pipeline == 1 or plan.schedule == 0)

    @property
    def hop_share(self) -> float:
        """A transfer over the mean pass of a chunk, both ways: closed forms are stated up to a tenth."""
        line = self.step.line
        chunks = [f + b for f, b in zip(sum(line.forward, []), sum(line.backward, []), strict=True)]
        return line.transfer / (sum(chunks) / len(chunks))

    def differing(self, tolerance: float = 1e-9) -> list[str]:
        """Quantities that are not the same within a relative tolerance (not a number never is); times also within
        1e-12 of the pipeline."""

        def same(name: str, ours: float, theirs: float) -> bool:
            floor = 1e-12 * self.running[0] if name.startswith("time_") else 0.0
            return abs(ours - theirs) <= max(tolerance * max(abs(ours), abs(theirs)), floor)

        return [name for name, pair in self.quantities.items() if not same(name, *pair)]


def compare(designs: list[Any]) -> list[Comparison]:
    """Evaluate designs that share all but plan and devices with the product, as columns; and each by loops.

    A design that breaks a rule of its plan has no claim behind it and is left out.
    """
    result = dse.evaluate(together(designs))
    broken = [name for name in result.violations if name != "memory"]
    return [
        _compare(
            design, {name: float(result.column(name)[row]) for name in result.metrics},
            float(result.violation("memory")[row]),
        )
        for row, design in enumerate(designs)
        if all(result.violation(name)[row] <= 0 for name in broken)
    ]  # fmt: skip


def _compare(design: Any, said: dict[str, float], overfull: float) -> Comparison:
    layout = lay_out(design)
    works = work_of(layout)
    found = step(layout, works)
    running = said["step_time"] - sum(said[f"time_{name}"] for name in ("straggler", "data", "update", "overhead"))
    pairs = {f"time_{name}": (found.parts[name], said[f"time_{name}"]) for name in TIMES}
    straggler = found.parts["straggler"] / found.running * running
    pairs["time_straggler"] = straggler, said["time_straggler"]
    for axis, size in traffic.bytes_by_axis(layout).items():
        pairs[f"communication_{axis}"] = size, said[f"communication_{axis}"]
    pairs["memory"] = memory.with_reserve(layout), said["memory"]
    capacity = design.chip.hbm_stacks * design.chip.hbm_stack_capacity
    pairs["violation of memory"] = pairs["memory"][0] / capacity, overfull + 1.0
    held = memory.stages(layout)
    for kind in memory.KINDS:  # stages that are as full may be told apart either way
        full = max(sum(one.values()) for one in held)
        near = [one[kind] for one in held if sum(one.values()) >= full * (1.0 - 1e-9)]
        value = said[f"memory_{kind}"]
        pairs[f"memory_{kind}"] = min(near, key=lambda one: abs(one - value)), value
    pairs["energy_compute"] = energy.compute(layout, works), said["energy_compute"]
    pairs["energy_communication"] = energy.communication(layout), said["energy_communication"]
    static = energy.static(layout, said["step_time"], silicon=said["die_area"])
    pairs["energy_static"] = static, said["energy_static"]
    pairs["micro_batches"] = float(layout.micro_batches), said["micro_batches"]
    return Comparison(design, layout, found, pairs, (found.running, running))
