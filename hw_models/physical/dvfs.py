"""Voltage and clock of a chip under a power cap: the largest clock whose power fits.

Not here: temperature, boost above the nominal clock, the time a firmware takes to settle.
Constants: data/technology.csv (voltage_floor, voltage_slope). Theory and the check on V100: docs/models/power.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.physical.power import tdp_by_block
from hw_models.technology import Technology


def voltage_ratio(clock_ratio: Any, *, floor: Any = 0.67, slope: Any = 1.0) -> Any:
    """Supply voltage over that of the nominal clock: v = max(floor, 1 - slope (1 - x)), x clock over nominal, x <= 1.

    Voltage follows the clock down to a floor, below which only the clock falls. The default curve is V100's: 1.06 V
    at 1.53 GHz, 0.83 V at 1.2 GHz, 0.712 V at 1 GHz and below (recalled)."""
    return np.maximum(floor, 1.0 - slope * (1.0 - clock_ratio))


def power_at(clock_ratio: Any, voltage: Any, *, constant: Any, leakage: Any, core: Any) -> Any:
    """Power [W] at a clock and voltage, both over nominal: P = P_constant + (P_leakage + P_core x) v^2.

    constant  does not follow the core clock or voltage: memory, links, idle [W at nominal]
    leakage   leakage of logic: current grows about with voltage (drain-induced barrier lowering), so power with v^2
    core      switching of logic and SRAM: k f V^2
    Ignores the voltage of memories and of SRAM macros that have a rail of their own."""
    return constant + (leakage + core * clock_ratio) * (voltage * voltage)


def capped_clock_ratio(
    cap: Any, constant: Any, leakage: Any, *, core: Any, floor: Any = 0.67, slope: Any = 1.0, steps: int = 12
) -> Any:
    """Largest clock over nominal, at most 1, whose power is within `cap` [W]; 0: no clock fits. Shape: broadcast.

    Newton from x = 1 on P(x) - cap: P is convex and grows with x, so the steps fall onto the root from above and a
    fixed number of them gives every design the same bits in any batch. The last bits may leave P above the cap by a
    few units in the last place."""
    x: Any = np.ones(np.broadcast(cap, constant, leakage, core, floor, slope).shape)
    for _ in range(steps):
        v = voltage_ratio(x, floor=floor, slope=slope)
        over = power_at(x, v, constant=constant, leakage=leakage, core=core) - cap
        rising = np.where(v > floor, slope, 0.0)
        incline = core * (v * v) + 2.0 * (leakage + core * x) * v * rising
        x = np.maximum(x - np.maximum(over, 0.0) / np.maximum(incline, np.finfo(float).tiny), 0.0)
    return x


def power_capped_clock(chip: Chip, technology: Technology, cap: Any, *, precision: str | None = None) -> Any:
    """Largest clock [Hz], at most the chip's own, at which the design power is within `cap` [W]; 0: none is.

    The chip's clock is taken as that of nominal voltage. Of the blocks of `tdp_by_block`, memory, links and idle power
    stay; arrays, lanes and SRAM follow clock and voltage; leakage follows voltage."""
    technology.need("power cap", "voltage_floor", "voltage_slope")
    blocks = tdp_by_block(chip, technology, precision=precision)
    ratio = capped_clock_ratio(
        cap, blocks["hbm"] + blocks["links"] + blocks["idle"], blocks["leakage"],
        core=blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["shared_sram"],
        floor=technology.voltage_floor, slope=technology.voltage_slope,
    )  # fmt: skip
    return chip.clock * ratio


def capped_step(
    cap: Any, clocked_time: Any, other_time: Any, *, static: Any, leakage: Any, core_energy: Any, other_energy: Any,
    floor: Any = 0.67, slope: Any = 1.0, steps: int = 40,
) -> tuple[Any, Any]:
    """(time [s], energy [J]) of a step when the mean power of the step is held within `cap` [W].

    t(x) = t_clocked/x + t_other;   E(x) = (P_static + P_leakage v^2) t + E_core v^2 + E_other
    clocked_time   part that follows the core clock; other_time: memory, host, network, which do not
    static, leakage   power of what does not switch [W]; core_energy, other_energy: of what does, at nominal voltage
    x largest clock ratio in [1/16, 1] with E/t <= cap, by halving, the same steps for every design.
    A step that draws less than the cap keeps its clock."""
    shape = np.broadcast(cap, clocked_time, other_time, static, leakage, core_energy, other_energy).shape

    def at(x: Any) -> tuple[Any, Any]:
        v = voltage_ratio(x, floor=floor, slope=slope)
        time = clocked_time / x + other_time
        return time, (static + leakage * (v * v)) * time + core_energy * (v * v) + other_energy

    low, high = np.full(shape, 1.0 / 16.0), np.ones(shape)
    time, energy = at(high)
    low = np.where(energy <= cap * time, high, low)
    for _ in range(steps):
        middle = 0.5 * (low + high)
        time, energy = at(middle)
        fits = energy <= cap * time
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return at(low)
