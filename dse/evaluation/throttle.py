"""Steps whose clock firmware lowers so that their mean power stays within a cap, design by design.

Every design is priced at two clocks, the nominal one and the one at which any work is within the cap; time is read
between them.  Not here: fixed clocks (dse.evaluation.design.rows), power swings within a step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dse.evaluation.combine import Step, energies
from dse.evaluation.design import POWER_RULE, Rows
from dse.evaluation.layout import Layout
from dse.evaluation.passes import BlockPasses
from dse.evaluation.traffic import Traffic
from hw_models.physical.dvfs import CappedPoint, capped_step_clock, voltage_ratio
from hw_models.physical.power import static_power


@dataclass(frozen=True)
class Priced:
    """Rows, the passes of every block on them and the step they make, at one clock."""

    rows: Rows
    blocks: dict[str, BlockPasses]
    step: Step


@dataclass(frozen=True)
class Throttle:
    """The clock of every design between the nominal one and the slowest.

    slow         the step at the slowest clock
    time_share   weight of the slow step in a time: a time is linear in the length of a cycle
    energy_share weight of the slow step in a dynamic energy, which is linear in the voltage squared
    point        clock and voltage over nominal; its excess is the mean power at the slowest clock over the cap, less 1
    """

    slow: Priced
    time_share: Any
    energy_share: Any
    point: CappedPoint

    def time(self, fast: Any, slow: Any) -> Any:
        """A time between those of the nominal and the slowest clock."""
        return fast + (slow - fast) * self.time_share

    def energy(self, fast: Any, slow: Any) -> Any:
        """A dynamic energy between those of the nominal and the slowest clock."""
        return fast + (slow - fast) * self.energy_share

    def step(self, fast: Step) -> Step:
        """The step at the clock of every design."""
        slow = self.slow.step
        return Step(*(self.time(getattr(fast, item.name), getattr(slow, item.name)) for item in fields(Step)))

    @property
    def violations(self) -> dict[str, Any]:
        """The cap, where the slowest clock draws more."""
        return {POWER_RULE: self.point.excess}


def throttle(layout: Layout, traffic: Traffic, *, fast: Priced, slow: Priced) -> Throttle:
    """The clock at which firmware runs each design: the largest at which the mean power of its step fits the cap.

    t(x) = t_1 + (t_s - t_1) (1/x - 1)/(1/x_s - 1),   E(x) = E_other + E_core v^2 + (P_idle + P_leakage v^2) t
    x_s the slowest clock.  Time is convex in 1/x, so the line between the two is never below it: exact for a step
    that fits at its nominal clock and at x_s, less than 2% long between (docs/models/power.md).
    Mean of the cluster: stages of a pipeline that work more are not told apart.
    """
    r, point = fast.rows, fast.rows.slowest
    assert point is not None
    devices = r.cluster.devices
    energy = [dynamic_energy(one, layout, traffic) for one in (fast, slow)]
    longer = 1.0 / point.clock - 1.0
    lower = 1.0 - point.voltage * point.voltage
    clocked = (slow.step.time - fast.step.time) / np.where(longer > 0.0, longer, 1.0)
    core = (energy[0] - energy[1]) / np.where(lower > 0.0, lower, 1.0) / devices
    idle = r.technology.idle_power
    leakage = static_power(r.rated_chip, r.technology, area=r.facts.silicon) - idle
    floor, slope = r.technology.voltage_floor, r.technology.voltage_slope
    cap = np.where(np.greater(r.rated_chip.power_cap, 0.0), r.rated_chip.power_cap, np.inf)
    clock = capped_step_clock(
        cap, clocked, fast.step.time - clocked, static=idle, leakage=leakage, core_energy=core,
        other_energy=energy[0] / devices - core, floor=floor, slope=slope, lowest=point.clock,
    )  # fmt: skip
    voltage = voltage_ratio(clock, floor=floor, slope=slope)
    least = idle + leakage * (point.voltage * point.voltage) + energy[1] / devices / slow.step.time
    return Throttle(
        slow=slow,
        time_share=(1.0 / clock - 1.0) / np.where(longer > 0.0, longer, 1.0),
        energy_share=(1.0 - voltage * voltage) / np.where(lower > 0.0, lower, 1.0),
        point=CappedPoint(clock, voltage, least / cap - 1.0),
    )  # fmt: skip


def dynamic_energy(priced: Priced, layout: Layout, traffic: Traffic) -> Any:
    """Joules of a step that do not depend on its time, whole cluster."""
    compute, communication = energies(priced.rows, layout, priced.blocks, traffic)
    return compute + communication
