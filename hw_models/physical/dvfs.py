"""Voltage and clock of a chip under a power cap: the largest clock whose power fits.

Not here: temperature, boost above the nominal clock, the time a firmware takes to settle.
Constants: data/technology.csv (voltage_floor, voltage_slope). Theory and the check on V100: docs/models/power.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.physical.power import dynamic_power_by_block, tdp_by_block
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


def power_capped_clock(
    chip: Chip, technology: Technology, cap: Any, *, precision: str | None = None, lowest: Any = 1.0 / 16.0
) -> Any:
    """Largest clock [Hz], at most the chip's own, at which the design power is within `cap` [W]; 0: none is.

    The chip's clock is taken as that of nominal voltage. Of the blocks of `tdp_by_block`, memory, links and idle power
    stay; arrays, lanes and SRAM follow clock and voltage; leakage follows voltage.  lowest: as in `capped_point`."""
    constant, leakage, core = _parts(chip, technology, precision)
    floor, slope = technology.voltage_floor, technology.voltage_slope
    clock = capped_clock_ratio(cap, constant, leakage, core=core, floor=floor, slope=slope)
    return chip.clock * np.where(clock < lowest, 0.0, clock)


def _parts(
    chip: Chip, technology: Technology, precision: str | None, *, everything: bool = False
) -> tuple[Any, Any, Any]:
    """Power [W] at the nominal clock that stays, that is leakage of logic, that follows the clock.

    Of the design power, or of `everything` that moves at its full rate, all lanes included."""
    technology.need("power cap", "voltage_floor", "voltage_slope")
    blocks = tdp_by_block(chip, technology, precision=precision)
    if everything:
        lanes = {"vector": chip.vector_lanes * chip.clock * technology.vector_energy}
        blocks = blocks | dynamic_power_by_block(chip, technology, precision=precision) | lanes
    constant = blocks["hbm"] + blocks["links"] + blocks["idle"]
    core = blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["shared_sram"]
    return constant, blocks["leakage"], core


@dataclass(frozen=True)
class CappedPoint:
    """Where a chip works under its power cap: clock and voltage over nominal, and what is left over the cap.

    excess   power at the lowest clock over the cap, less 1: the cap can be met at <= 0; -1 without a cap
    """

    clock: Any
    voltage: Any
    excess: Any


def capped_point(
    chip: Chip, technology: Technology, *, precision: str | None = None, lowest: Any = 1.0 / 16.0
) -> CappedPoint:
    """The largest clock at which no work can draw more than the chip's own `power_cap`.

    Systolic, whose clock is fixed: the design power fits.  Tensor cores, whose firmware follows the work: everything
    that moves at its full rate fits, so that the clock of any work lies between this one and the nominal.
    lowest   smallest clock over nominal. Assumption: V100 goes from 1,530 to 135 MHz, an eleventh (recalled)
    A chip without a cap (0) works at exactly its nominal clock and voltage. Shape: broadcast."""
    constant, leakage, core = _parts(chip, technology, precision, everything=chip.compute == "tensor_core")
    floor, slope = technology.voltage_floor, technology.voltage_slope
    cap = np.where(np.greater(chip.power_cap, 0.0), chip.power_cap, np.inf)
    clock = np.maximum(capped_clock_ratio(cap, constant, leakage, core=core, floor=floor, slope=slope), lowest)
    least = power_at(
        lowest, voltage_ratio(lowest, floor=floor, slope=slope), constant=constant, leakage=leakage, core=core
    )
    return CappedPoint(clock, voltage_ratio(clock, floor=floor, slope=slope), least / cap - 1.0)


def capped_step_clock(
    cap: Any, clocked_time: Any, other_time: Any, *, static: Any, leakage: Any, core_energy: Any, other_energy: Any,
    floor: Any = 0.67, slope: Any = 1.0, lowest: Any = 1.0 / 16.0, steps: int = 40,
) -> Any:
    """Clock over nominal at which firmware runs a step: the largest in [lowest, 1] with E(x)/t(x) <= cap [W].

    t(x) = t_clocked/x + t_other;   E(x) = (P_static + P_leakage v^2) t + E_core v^2 + E_other
    clocked_time   part that follows the core clock; other_time: memory, host, network, which do not
    static, leakage   power of what does not switch [W]; core_energy, other_energy: of what does, at nominal voltage
    By halving, the same steps for every design; `lowest` where none fits.
    A step that draws less than the cap keeps its clock."""
    shape = np.broadcast(cap, clocked_time, other_time, static, leakage, core_energy, other_energy, lowest).shape

    def fits(x: Any) -> Any:
        v = voltage_ratio(x, floor=floor, slope=slope)
        switching = v * v
        time = clocked_time / x + other_time
        return (static + leakage * switching) * time + core_energy * switching + other_energy <= cap * time

    high: Any = np.ones(shape)
    low = np.where(fits(high), 1.0, lowest)
    for _ in range(steps):
        middle = 0.5 * (low + high)
        good = fits(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low
