"""How sure a prediction is: intervals, and the probability that one design beats another.

A constant is drawn from its stated or fitted range, draws are hardware rows (K, 1) of one ordinary evaluation, and
what measured steps leave unexplained is a log-normal residual.  Theory and assumptions: docs/models/uncertainty.md.
Fronts: `dse.insight.front_uncertainty`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dse.base.columns import unchecked
from dse.evaluation.design import Design, rows
from dse.evaluation.evaluate import evaluate
from dse.evaluation.ownership import OF_A_TOKEN, OF_THE_CHIP, chip_metrics, token_metrics
from dse.evaluation.result import METRICS, Result
from dse.problem.objectives import objective
from hw_models import stacks, technology
from hw_models.chip import Chip
from hw_models.physical import cost
from hw_models.physical.cost import Market, market, market_of
from hw_models.stack import Stack
from hw_models.tables import Row
from hw_models.technology import Technology

__all__ = [
    "COMPARED", "COUNT", "LEVEL", "PAIR", "PRICED", "RESIDUAL", "ZERO_SHOT", "Interval", "UncertainPair",
    "constants_drawn", "draws", "interval", "market_drawn", "priced", "probability_better", "range_of", "residual_of",
    "residual_row", "time_power", "uncertain_constants", "uncertain_pairs", "uniform",
]  # fmt: skip

Floats = NDArray[np.float64]

#: Scope and field of a residual in a table of fitted constants; its name is "<stack>+<device>".
PAIR, RESIDUAL = "pair", "residual"
#: Standard deviation of ln(measured / predicted) where no step of the pair was fitted: zero-shot analytical models of
#: training steps are 10 to 20% off (mean absolute error) once their kernels and links are right.
ZERO_SHOT = 0.15
#: Rows that a residual needs to be worth more than `ZERO_SHOT`.
FEWEST = 3
#: Share of a residual's variance that all designs of a pair have in common.
SHARED = 0.5
COUNT, LEVEL = 256, 0.9
#: Metrics that prices and process facts move.
PRICED = (*OF_THE_CHIP, *OF_A_TOKEN)
#: What two designs are compared by.
COMPARED = ("step_time", "throughput", "energy_per_step")
#: Standard deviations from the middle of a normal distribution to the ends of its 90% interval.
DEVIATIONS = 1.645
#: A range wider than this ratio is a matter of orders of magnitude: it is drawn in the logarithm.
DECADE = 10.0

CALIBRATED, STACK_ONLY, ALONE, LIMIT = (
    "calibrated (stack, device)", "stack calibrated, device not", "constants alone", "a limit, not a prediction",
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """Where a metric lies with probability `level`, in the metric's unit.

    residual   standard deviation of ln(measured / predicted) of the step time
    source     "calibrated (stack, device)", "stack calibrated, device not", or "constants alone": no measured step
               of that chip or stack backs it; "a limit, not a prediction" for the ideal stack
    """

    metric: str
    low: float
    median: float
    high: float
    level: float
    residual: float
    source: str


@dataclass(frozen=True)
class UncertainPair:
    """A metric of two designs with 90% intervals, and the probability that a is better."""

    metric: str
    a: Interval
    b: Interval
    probability_a: float


# Draws ------------------------------------------------------------------------------------------------------------


def draws(stack_name: str, device: str = "", *, count: int = COUNT, seed: int = 0) -> Stack:
    """The stack of that name on a device with every uncertain constant as a column (count, 1)."""
    base = stacks.stack(stack_name, device)
    return unchecked(base, _drawn(base, _stack_rows(base, device), count, seed))


def constants_drawn(design: Design, *, count: int = COUNT, seed: int = 0) -> tuple[Stack, Technology]:
    """Stack and technology of a design with columns (count, 1); a constant that is no table's value stays as it is."""
    known, chip = design.constants, design.chip
    listed = {row["constant"]: row for row in _technology_rows(chip.process, chip.hbm)}
    drawn = unchecked(known, _drawn(known, [listed], count, seed))
    return unchecked(design.stack, _drawn(design.stack, _stack_rows(design.stack, chip.name), count, seed)), drawn


def market_drawn(design: Design, *, count: int = COUNT, seed: int = 0) -> Market | None:
    """Prices and process facts of a design's chip with columns (count, 1); None where its process has none."""
    known = market_of(design.chip)
    return known and unchecked(known, _drawn(known, [_price_rows(design.chip)], count, seed))


def _price_rows(chip: Chip) -> dict[str, Row]:
    return {row["constant"]: row for row in cost.constants(chip.process, chip.hbm)}


def priced(design: Design, result: Result, prices: Market | None) -> Result:
    """A result whose costs, carbon and yield are those of other prices, which may be columns."""
    if prices is None:
        return result
    r, of = rows(design), result.metrics
    late = chip_metrics(r.facts, market=prices)
    late |= token_metrics(r, step_time=of["step_time"], energy=of["energy_per_step"], market=prices)
    found = {name: np.asarray(late[name](), dtype=float) for name in PRICED if name in of}
    shape = np.broadcast_shapes(result.shape, *(values.shape for values in found.values()))
    return Result(of | found, result.violations, shape, result.design)


def _technology_rows(process: str, hbm: str) -> tuple[Row, ...]:
    try:
        return technology.constants(process, hbm)
    except ValueError:
        return ()


def _stack_rows(stack: Stack, device: str) -> list[dict[str, Row]]:
    """Rows that a stack's constants may come from: fitted on the device, of any device, as stated."""
    if stack.name not in stacks.names():
        return []
    named = stack.name
    found = stacks.constants(named, device), stacks.constants(named), stacks.constants(named, calibrated=False)
    return [{row["field"]: row for row in rows} for rows in found]


def _drawn(model: Any, tables: Sequence[Mapping[str, Row]], count: int, seed: int) -> dict[str, Any]:
    """Columns (count, 1) of the fields of a model whose value is that of a row with a range."""
    found: dict[str, Any] = {}
    for name, row in _rows_of(model, tables).items():
        column = _column(row, name, count, seed)
        if column is not None:
            found[name] = column[:, None]
    return found


def _rows_of(model: Any, tables: Sequence[Mapping[str, Row]]) -> dict[str, Row]:
    """Fields of a model that hold the value of a row of a table, with that row; whole numbers are certain."""
    found: dict[str, Row] = {}
    for item in fields(model):
        value, meta = getattr(model, item.name), item.metadata
        if "unit" not in meta or meta.get("whole") or value is None or np.size(value) != 1:
            continue
        number = float(np.asarray(value).reshape(-1)[0])
        rows = [table[item.name] for table in tables if item.name in table]
        row = next((row for row in rows if float(row["value"]) == number), None)
        if row is not None:
            found[item.name] = row
    return found


def uncertain_constants(design: Design) -> dict[str, dict[str, Row]]:
    """Rows of every constant of a design that a table has: stack, technology, market -> field -> row."""
    known, chip = design.constants, design.chip
    listed = {row["constant"]: row for row in _technology_rows(chip.process, chip.hbm)}
    prices = market_of(chip)
    return {
        "stack": _rows_of(design.stack, _stack_rows(design.stack, chip.name)),
        "technology": _rows_of(known, [listed]),
        "market": _rows_of(prices, [_price_rows(chip)]) if prices else {},
    }


def range_of(row: Row) -> tuple[float, float]:
    """Ends of a constant's range: as stated; of a fitted one its 90% interval, within what is possible."""
    value, low, high = float(row["value"]), float(row["low"] or row["value"]), float(row["high"] or row["value"])
    error = float(row.get("standard_error") or 0.0)
    low, high = min(low, value), max(high, value)
    if not error:
        return low, high
    return max(low, value - DEVIATIONS * error), min(high, value + DEVIATIONS * error)


def _column(row: Row, name: str, count: int, seed: int) -> Floats | None:
    """One constant's draws (count,); None where the row has no range.

    fitted       normal(value, standard error), cut to [low, high]
    stated       two triangles that meet at the value, its median; of the logarithm where high > 10 low > 0
    """
    value, low, high = float(row["value"]), float(row["low"] or row["value"]), float(row["high"] or row["value"])
    error = float(row.get("standard_error") or 0.0)
    low, high = min(low, value), max(high, value)
    if low == high:
        return None
    owner = row.get("stack") or row.get("node") or f"{row.get('scope')} {row.get('name')}"
    u = uniform(f"{owner} {name}", count, seed)
    if error:
        from scipy.special import ndtr, ndtri

        ends = ndtr((np.array([low, high]) - value) / error)
        return np.asarray(np.clip(value + error * ndtri(ends[0] + u * (ends[1] - ends[0])), low, high))
    if low > 0.0 and high > DECADE * low:
        return np.asarray(np.clip(np.exp(_two_triangles(u, math.log(low), math.log(value), math.log(high))), low, high))
    return np.clip(_two_triangles(u, low, value, high), low, high)


def _two_triangles(u: Floats, low: float, value: float, high: float) -> Floats:
    """Inverse of the cumulative probability u of two right triangles that meet at the value, one half each.

    The value is the median, so constants with skewed ranges do not move the prediction; density 0 at low and high.
    """
    below = value - (value - low) * (1.0 - np.sqrt(2.0 * np.minimum(u, 0.5)))
    above = value + (high - value) * (1.0 - np.sqrt(2.0 * np.minimum(1.0 - u, 0.5)))
    return np.where(u < 0.5, below, above)


def uniform(key: str, count: int, seed: int) -> Floats:
    """Latin hypercube draws of one unknown (count,): one in each of `count` equal slices of (0, 1), in random order.

    The numbers depend on the unknown's name and the seed alone: whoever shares a constant shares its draws.
    """
    if count < 1:
        raise ValueError(f"count: found {count}, allowed: a whole number >= 1")
    random = np.random.default_rng([seed, crc32(key.encode())])
    return np.asarray((random.permutation(count) + random.uniform(1e-9, 1.0 - 1e-9, count)) / count)


# Residuals --------------------------------------------------------------------------------------------------------


def residual_of(stack_name: str, device: str, rows: Iterable[Row] | None = None) -> tuple[float, str]:
    """Standard deviation of ln(measured / predicted) of a pair's step times, and what it rests on.

    rows   fitted rows; None: those that ship
    """
    if stack_name == "ideal":
        return 0.0, LIMIT
    known = list(stacks.shipped().rows if rows is None else rows)
    for row in known:
        if (row["scope"], row["name"], row["field"]) == (PAIR, f"{stack_name}+{device}", RESIDUAL):
            return float(row["value"]), CALIBRATED
    of_stack = stack_name != stacks.GENERIC and any(
        (row["scope"] == "stack" and row["name"] == stack_name)
        or (row["scope"] == PAIR and row["name"].partition("+")[0] == stack_name)
        for row in known
    )
    return ZERO_SHOT, STACK_ONLY if of_stack else ALONE


def residual_row(stack_name: str, device: str, ratios: Sequence[float]) -> dict[str, str] | None:
    """The row of a pair's residual for a table of fitted constants; None for fewer than three steps.

    s = sqrt(mean(ln(predicted / measured)^2)): about 0, as predictions are not shifted by their mean error.
    """
    if len(ratios) < FEWEST:
        return None
    value = math.sqrt(math.fsum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios))
    error = value / math.sqrt(2 * len(ratios))
    return {
        "scope": PAIR, "name": f"{stack_name}+{device}", "field": RESIDUAL, "unit": "",
        "value": repr(float(f"{value:.3g}")), "low": "0.0", "high": "", "standard_error": repr(float(f"{error:.2g}")),
        "source": "dse calibrate", "where": f"root mean square of ln(predicted / measured), {len(ratios)} rows",
        "confidence": "fitted",
    }  # fmt: skip


def time_power(result: Result, metric: str) -> Floats:
    """d ln(metric) / d ln(step time) of each row: how a residual of the step time reaches a metric."""
    ones = np.ones(len(result))
    if metric == "step_time":
        return ones
    if metric in (
        "throughput", "samples_per_second", "mfu", "hfu", "model_flops_rate", "throughput_per_tdp",
        "throughput_per_area",
    ):
        return -ones
    static = result.column("energy_static") / result.column("energy_per_step")
    if metric in ("energy_per_step", "energy_per_token", "energy_static"):
        return ones if metric == "energy_static" else static
    if metric in OF_A_TOKEN:
        # all but the energy that does not depend on time is paid by the hour; prices of energy are those of any node
        prices = market()
        rate = prices.pue * (prices.electricity_price if metric == "cost_per_token" else prices.grid_carbon)
        return np.asarray(ones - (1.0 - static) * result.column("energy_per_token") * rate / result.column(metric))
    return static - 1.0 if metric == "average_power" else 0.0 * ones


# Answers ----------------------------------------------------------------------------------------------------------


def _evaluated(design: Design, count: int, seed: int) -> Result:
    """A design of scalars under K draws: one evaluation of K hardware rows, flat columns (K,)."""
    stack, constants = constants_drawn(design, count=count, seed=seed)
    drawn = replace(design, stack=stack, technology=constants)
    found = priced(drawn, evaluate(drawn), market_drawn(design, count=count, seed=seed))
    if len(found) not in (1, count):
        raise ValueError(f"design: found {len(found) // count} designs, allowed: one")
    return found


def _known(metric: str) -> None:
    if metric not in METRICS:
        raise ValueError(f"metric: found {metric!r}, allowed: {', '.join(METRICS)}")


def interval(
    design: Design, *, metric: str = "step_time", count: int = COUNT, seed: int = 0, level: float = LEVEL,
    residual: float | None = None,
) -> Interval:  # fmt: skip
    """Where a metric of a design lies: quantiles of K draws of its constants, times its residual.

    level      probability between low and high, as much below as above
    residual   standard deviation of ln(step time); None: the pair's own, else `ZERO_SHOT`
    """
    _known(metric)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: found {level!r}, allowed: a number between 0 and 1")
    return _interval(design, _evaluated(design, count, seed), metric, count, seed, level=level, residual=residual)


def _interval(
    design: Design, result: Result, metric: str, count: int, seed: int, *, level: float = LEVEL,
    residual: float | None = None,
) -> Interval:  # fmt: skip
    known, source = residual_of(design.stack.name, design.chip.name)
    spread = known if residual is None else residual
    pair = f"{design.stack.name}+{design.chip.name}"
    low, median, high = quantiles(result, metric, spread, pair=pair, count=count, seed=seed, level=level)
    return Interval(metric, low, median, high, level, spread, source)


def quantiles(
    result: Result, metric: str, spread: float, *, pair: str, count: int, seed: int, level: float
) -> tuple[float, float, float]:
    from scipy.special import ndtri

    values = np.broadcast_to(result.column(metric), (count,))
    factor = np.exp(spread * ndtri(uniform(f"residual {pair}", count, seed)) * time_power(result, metric))
    low, median, high = np.quantile(values * factor, [0.5 - level / 2.0, 0.5, 0.5 + level / 2.0])
    return float(low), float(median), float(high)


def probability_better(
    a: Design, b: Design, metric: str = "step_time", *, count: int = COUNT, seed: int = 0
) -> float:
    """Probability that design a is better than b, both under the same draws; a tie is one half.

    P = mean over draws of Phi(ln(b / a) / s)       (-ln where more is better)
    s^2   variance of the difference of the two residuals: half of a pair's variance is common to its designs and
          cancels, residuals of different (stack, device) pairs are independent
    """
    return uncertain_pairs(a, b, (metric,), count=count, seed=seed)[0].probability_a


def uncertain_pairs(
    a: Design, b: Design, metrics: Sequence[str] = COMPARED, *, count: int = COUNT, seed: int = 0
) -> tuple[UncertainPair, ...]:
    """Some metrics of two designs with their intervals, and the probability that a is better, by the same draws."""
    for metric in metrics:
        _known(metric)
    pairs = [(side.stack.name, side.chip.name) for side in (a, b)]
    spreads, same = [residual_of(*pair)[0] for pair in pairs], pairs[0] == pairs[1]
    one, other = (_evaluated(side, count, seed) for side in (a, b))
    return tuple(
        UncertainPair(
            metric, _interval(a, one, metric, count, seed), _interval(b, other, metric, count, seed),
            share_better(one, other, metric, spreads=spreads, same=same),
        )
        for metric in metrics
    )  # fmt: skip


def share_better(one: Result, other: Result, metric: str, *, spreads: Sequence[float], same: bool) -> float:
    from scipy.special import ndtr

    gap = objective(metric).sign * np.log(other.column(metric) / one.column(metric))
    ours, theirs = spreads[0] * time_power(one, metric), spreads[1] * time_power(other, metric)
    shared = SHARED if same else 0.0
    deviation = np.sqrt((1.0 - shared) * (ours * ours + theirs * theirs) + shared * (ours - theirs) ** 2)
    sure = np.where(gap > 0.0, 1.0, np.where(gap < 0.0, 0.0, 0.5))
    return float(np.mean(np.where(deviation > 0.0, ndtr(gap / np.where(deviation > 0.0, deviation, 1.0)), sure)))
