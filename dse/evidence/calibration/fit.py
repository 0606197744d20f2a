"""Robust least squares of constants of devices and software stacks on step times: the numbers, no files.

Which rows are fitted, and what is made of the result, is in `dse.evidence.calibration.calibrate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import least_squares

from dse.evaluation.design import Design, Rows, rows
from dse.evaluation.evaluate import evaluate_rows
from dse.evaluation.layout import Layout, lay_out
from dse.evidence.calibration.priors import STACK_FIELDS, Fitted, Floats, Key, Observed, Prior
from hw_models.stack import DEVICE_FIELDS
from hw_models.stacks import GENERIC, Constants, stack
from workloads.plan import Plan

__all__ = ["fit"]

#: What a fit asks of an evaluation.
STEP_TIME = frozenset({"step_time"})
#: Error of a good prediction [log]: smaller residuals count by their square, larger ones by their size.
GOOD_ERROR = 0.05
#: Finite difference of the Jacobian, of a constant's whole range.
DIFFERENCE = 1e-4
MOST_EVALUATIONS, MOST_ROUNDS = 60, 4
#: Constants that hide behind the device until they are longer, where they start in their ranges beside the stated
#: value, and how well starts are followed before one is chosen.
HOST_FIELDS, HOST_START, COARSE = ("host_time_per_operator",), 0.5, 1e-3
#: Change of a held constant, of its width, that calls for another fit.
SETTLED = 0.05


class Constraint:
    """Free constants as a vector in units of their ranges, and values at which others are held."""

    def __init__(self, known: Mapping[Key, Prior], free: Iterable[Key], held: Mapping[Key, float] | None = None):
        self.known, self.held = known, held or {}
        self.free = [key for key in known if key in set(free)]
        self.at = {key: number for number, key in enumerate(self.free)}
        of = [known[key] for key in self.free]
        self.low = np.array([prior.low for prior in of])
        self.range = np.array([prior.high - prior.low for prior in of])
        self.start = np.array([prior.value for prior in of])
        self.parent = [self.at.get(prior.parent, -1) if prior.parent else -1 for prior in of]

    def values(self, scaled: Floats) -> Floats:
        """Constants in their units."""
        found: Floats = self.low + scaled * self.range
        return found

    def scaled(self, values: Floats) -> Floats:
        """Constants in units of their ranges, from 0 to 1."""
        found: Floats = (values - self.low) / self.range
        return found

    def prior_residuals(self, scaled: Floats) -> Floats:
        """Distance of each free constant from its parent, or from what is stated, in widths."""
        centre = [scaled[p] if p >= 0 else c for p, c in zip(self.parent, self.scaled(self.start), strict=True)]
        found: Floats = 2.0 * (scaled - np.array(centre))
        return found

    def prior_jacobian(self) -> Floats:
        """Derivatives of `prior_residuals`."""
        found = 2.0 * np.eye(len(self.free))
        for row, parent in enumerate(self.parent):
            if parent >= 0:
                found[row, parent] -= 2.0
        return found


@dataclass(frozen=True)
class Batch:
    """Plans of one workload on one cluster, laid out once: only the constants of their stack change."""

    rows: Rows
    layout: Layout
    design: Design
    numbers: list[int]

    def times(self, changes: Mapping[str, Any]) -> Floats:
        """Step times [s], (C, P), with constants of the stack changed to columns (C, 1)."""
        found = evaluate_rows(replace(self.rows, stack=replace(self.rows.stack, **changes)), self.layout, STEP_TIME)
        count = max((column.shape[0] for column in changes.values()), default=1)
        return np.broadcast_to(found.metrics["step_time"], (count, len(self.numbers)))


def batches_of(observed: Sequence[Observed], known: bool | Constants) -> list[Batch]:
    """Rows that share everything but their plan, each group laid out once."""
    groups: dict[Any, list[int]] = {}
    for number, item in enumerate(observed):
        d = item.design
        key = (id(d.chip), d.cluster, d.workload, d.stack.name, d.training, id(d.technology))
        groups.setdefault(key, []).append(number)
    found = []
    for numbers in groups.values():
        first = observed[numbers[0]].design
        names = Plan.names()
        plan = Plan(**{n: np.array([float(getattr(observed[i].design.plan, n)) for i in numbers]) for n in names})
        design = replace(first, plan=plan, stack=stack(first.stack.name, first.chip.name, calibrated=known))
        laid = rows(design)
        layout = lay_out(laid.plan, laid.workload, laid.training, paired=laid.paired)
        found.append(Batch(laid, layout, design, numbers))
    return found


class Problem:
    """Residuals of measured steps as a function of free constants."""

    def __init__(self, observed: Sequence[Observed], known: bool | Constants = False, by_stack: bool = False) -> None:
        self.batches = batches_of(observed, known)
        self.measured = np.array([item.measured for item in observed])
        self.weights = np.array([item.weight for item in observed])
        stacks = [item.design.stack.name for item in observed]
        self.groups = np.array([sorted(set(stacks)).index(name) if by_stack else 0 for name in stacks], dtype=int)

    def of_stack(self, name: str) -> Problem:
        """The rows of one stack alone."""
        batches = [batch for batch in self.batches if batch.design.stack.name == name]
        kept = np.array([number for batch in batches for number in batch.numbers])
        found = Problem([])
        found.measured, found.weights = self.measured[kept], self.weights[kept]
        ends = np.cumsum([0] + [len(batch.numbers) for batch in batches])
        places = [list(range(low, high)) for low, high in zip(ends[:-1], ends[1:], strict=True)]
        found.batches = [replace(batch, numbers=own) for batch, own in zip(batches, places, strict=True)]
        return found

    def around(self, unknown: Constraint, scaled: Floats) -> tuple[Floats, Floats]:
        """log(predicted / measured) in units of `GOOD_ERROR`, (rows,), and its derivatives, (rows, constants).

        Forward differences (backward at the upper end): one call a batch evaluates the point and all moved constants.
        """
        times, slopes = np.empty(self.measured.size), np.zeros((self.measured.size, scaled.size))
        step = np.where(scaled + DIFFERENCE <= 1.0, DIFFERENCE, -DIFFERENCE)
        for batch in self.batches:
            sources = sources_of(batch, unknown)
            used = sorted(set(sources.values()))
            moved = np.repeat(scaled[None, :], len(used) + 1, axis=0)
            moved[np.arange(len(used)) + 1, used] += step[used]
            values = unknown.values(moved)
            changes = held_of(batch, unknown) | {field: values[:, [number]] for field, number in sources.items()}
            found = np.broadcast_to(np.log(batch.times(changes)), (len(moved), len(batch.numbers)))
            times[batch.numbers] = found[0]
            slopes[np.ix_(batch.numbers, used)] = ((found[1:] - found[0]) / step[used][:, None]).T
        return (times - np.log(self.measured)) / GOOD_ERROR, slopes / GOOD_ERROR


def keys_of(batch: Batch) -> list[Key]:
    """The constants that a batch depends on."""
    device, name = batch.design.chip.name, batch.design.stack.name
    return [("device", device, field) for field in DEVICE_FIELDS] + [("stack", name, field) for field in STACK_FIELDS]


def sources_of(batch: Batch, unknown: Constraint) -> dict[str, int]:
    """Fields of a batch's stack that free constants give, with the number of the constant."""
    return {key[2]: unknown.at[key] for key in keys_of(batch) if key in unknown.at}


def held_of(batch: Batch, unknown: Constraint) -> dict[str, Floats]:
    """Fields of a batch's stack that are held, with their values as columns (1, 1)."""
    return {key[2]: np.array([[unknown.held[key]]]) for key in keys_of(batch) if key in unknown.held}


def robust(weights: Floats, count: int) -> Callable[[Floats], Floats]:
    """scipy's loss: weighted soft_l1 of the rows, 2 w (sqrt(1 + z) - 1), and the plain square of `count` priors."""

    def loss(squares: Floats) -> Floats:
        z = squares[: weights.size]
        root = np.sqrt(1.0 + z)
        ones = np.ones(count)
        return np.array(
            [
                np.concatenate([2.0 * weights * (root - 1.0), squares[weights.size :]]),
                np.concatenate([weights / root, ones]),
                np.concatenate([-0.5 * weights / root**3, 0.0 * ones]),
            ]
        )

    return loss


def solve(
    problem: Residuals, unknown: Constraint, start: Floats, say: Callable[[str], None], *, tolerance: float = 1e-6
) -> tuple[Floats, float]:
    """The free constants, in units of their ranges, that explain the rows best and stay near their priors; the cost."""
    calls, last = 0, (np.empty(0), np.empty(0))

    def residuals(scaled: Floats) -> Floats:
        nonlocal calls, last
        calls += 1
        found, slopes = problem.around(unknown, scaled)
        last = (scaled.copy(), slopes)
        size = float(np.average(np.abs(found), weights=problem.weights)) * GOOD_ERROR
        say(f"{len(unknown.free)} constants, evaluation {calls}: mean error {100.0 * size:.2f} %")
        return np.concatenate([found, unknown.prior_residuals(scaled)])

    def jacobian(scaled: Floats) -> Floats:
        known = last[0].shape == scaled.shape and bool(np.all(last[0] == scaled))
        slopes = last[1] if known else problem.around(unknown, scaled)[1]
        return np.concatenate([slopes, unknown.prior_jacobian()])

    found = least_squares(
        residuals, np.clip(start, 0.0, 1.0), jac=jacobian, bounds=(0.0, 1.0), max_nfev=MOST_EVALUATIONS,
        loss=robust(problem.weights, len(unknown.free)), ftol=tolerance, xtol=tolerance, gtol=tolerance,
    )  # fmt: skip
    return np.asarray(found.x, dtype=float), float(found.cost)


def first_solution(
    problem: Problem, unknown: Constraint, say: Callable[[str], None], *,
    cache: dict[Any, dict[Key, float]] | None = None,
) -> Floats:  # fmt: skip
    """Where the joint fit starts: every stack fitted alone, from the better of two starts; devices the mean of those.

    The starts are the stated constants, and host times in the middle of their ranges.  A host that is faster than its
    device has no derivative, and one that is slower hides the device: on the wrong side of that knee a fit stays.

    cache   solutions by stack and the times of its rows: weights are another matter, this is only a start
    """
    cache = {} if cache is None else cache
    sums, counts = np.zeros(len(unknown.free)), np.zeros(len(unknown.free))
    for name in sorted({batch.design.stack.name for batch in problem.batches}):
        part = problem.of_stack(name)
        used = sorted({number for batch in part.batches for number in sources_of(batch, unknown).values()})
        if not used:
            continue
        keys = [unknown.free[number] for number in used]
        ran = (name, tuple(keys), tuple(part.measured))
        if ran not in cache:
            alone = Constraint(unknown.known, keys)
            cache[ran] = dict(zip(alone.free, _alone(part, alone, say), strict=True))
        sums[used] += [cache[ran][key] for key in keys]
        counts[used] += 1.0
    stated = unknown.scaled(unknown.start)
    return np.where(counts > 0, sums / np.maximum(counts, 1.0), stated)


def _alone(part: Problem, alone: Constraint, say: Callable[[str], None]) -> Floats:
    """One stack's constants, from the better of the two starts."""
    stated = alone.scaled(alone.start)
    is_host = np.array([key[2] in HOST_FIELDS for key in alone.free])
    starts = [stated, np.where(is_host, HOST_START, stated)]
    found = [solve(part, alone, start, say, tolerance=COARSE) for start in starts]
    return min(found, key=lambda item: item[1])[0]


@dataclass
class Information:
    """What rows and priors say of free constants, linear around a solution; constants can be taken out of it.

    slopes   derivatives of the residuals, scaled so that their squares add up to information, (rows, constants)
    prior    derivatives of the prior residuals, (constants, constants)
    keys     the constants of the columns
    """

    slopes: Floats
    prior: Floats
    keys: list[Key]

    def errors(self) -> Floats:
        """Standard errors in units of the ranges, (slopes' slopes + prior' prior)^-1/2."""
        information = self.slopes.T @ self.slopes + self.prior.T @ self.prior
        return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))), dtype=float)

    def take_out(self, number: int) -> None:
        """One constant is no longer free, and says nothing of its parent."""
        self.slopes = np.delete(self.slopes, number, axis=1)
        self.prior = np.delete(np.delete(self.prior, number, axis=0), number, axis=1)
        del self.keys[number]


def information(problem: Residuals, unknown: Constraint, scaled: Floats) -> Information:
    """Rows count as the robust loss weighs them, and as noisy as the residuals of their group are (s^2 >= 1, weighted
    mean)."""
    residual, slopes = problem.around(unknown, scaled)
    counted = problem.weights / np.sqrt(1.0 + residual**2)
    groups = getattr(problem, "groups", np.zeros(residual.size, dtype=int))
    noise = np.ones(residual.size)
    for group in range(int(groups.max(initial=0)) + 1):
        own = groups == group
        noise[own] = max(1.0, float((counted[own] * residual[own] ** 2).sum() / counted[own].sum()))
    return Information(np.sqrt(counted / noise)[:, None] * slopes, unknown.prior_jacobian(), list(unknown.free))


def told(found: Information, unknown: Constraint, named: set[Key]) -> dict[Key, tuple[float, bool]]:
    """Standard error of each free constant, in units of its range, and whether the rows say more than the prior.

    The constant that the rows say least about is taken out, until each that is left has a standard error below
    width / sqrt 2: there, rows and prior say as much.  A generic constant stays while one that is near it does.
    """
    limit = 0.5 / np.sqrt(2.0)
    out: dict[Key, tuple[float, bool]] = {}
    while found.keys:
        errors = found.errors()
        centred = {unknown.known[key].parent for key in found.keys if key in named}
        loose = [n for n, key in enumerate(found.keys) if errors[n] >= limit and key not in centred]
        if not loose:
            return out | {key: (float(error), True) for key, error in zip(found.keys, errors, strict=True)}
        worst = max(loose, key=lambda n: (errors[n], -n))
        key = found.keys[worst]
        out[key] = (float(errors[worst]), False)
        found.take_out(worst)
    return out


class Residuals(Protocol):
    """Measurements as residuals of free constants."""

    weights: Floats

    def around(self, unknown: Constraint, scaled: Floats) -> tuple[Floats, Floats]:
        """log(predicted / measured) in units of `GOOD_ERROR`, (rows,), and its derivatives, (rows, constants)."""


def fit(
    observed: Sequence[Observed], wanted: Mapping[Key, Prior], known: bool | Constants = False,
    *, start: Mapping[Key, float] | None = None, cache: dict[Any, dict[Key, float]] | None = None,
    by_stack: bool = False, say: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:  # fmt: skip
    """Fit the wanted constants to measured steps; others stay as `known` (see `hw_models.stacks.stack`) has them.

    start   see `fit_residuals`
    cache   first solutions of stacks, kept from one fit to the next (see `first_solution`)
    by_stack   the rows of each stack are as noisy as their own residuals are; else all alike
    """
    problem = Problem(observed, known, by_stack)
    named = {key for key in wanted if key[1] != GENERIC} | _run_themselves(problem, wanted)

    def first(unknown: Constraint) -> Floats:
        return first_solution(problem, unknown, say, cache=cache)

    return fit_residuals(problem, wanted, named, start=start, first=first, say=say)


def fit_residuals(
    problem: Residuals, wanted: Mapping[Key, Prior], named: set[Key], *, start: Mapping[Key, float] | None = None,
    first: Callable[[Constraint], Floats] | None = None, say: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:  # fmt: skip
    """Fit the named constants and their parents to measurements.

    A constant that is not identified (see `told`) is held at its parent's or its stated value, and the others are
    fitted again.  Rows say nothing of generic constants but through those that they identify: a stack that the model
    misses does not spoil the others.

    start   an earlier result: its constants are free and start there, others are held, so that it is found again
            where it is a result of these rows; None: all are free
    first   where all free constants start; None: as stated
    """
    parents = {parent for key in named if (parent := wanted[key].parent) is not None and parent in wanted}
    made: list[Fitted] = []
    if start is None:
        dropped: dict[Key, Fitted] = {}
        unknown = Constraint(wanted, named | parents)
        scaled = first(unknown) if first and unknown.free else unknown.scaled(unknown.start)
    else:
        dropped = {key: Fitted(key, wanted[key], wanted[key].value, 0.0, False) for key in named if key not in start}
        held = {key: start[at] for key in dropped if (at := wanted[key].parent) is not None and at in start}
        unknown = Constraint(wanted, [key for key in (*named, *parents) if key in start], held)
        scaled = unknown.scaled(np.array([start[key] for key in unknown.free]))
    for _ in range(MOST_ROUNDS):
        if not unknown.free:
            break
        scaled, _ = solve(problem, unknown, scaled, say)
        found = told(information(problem, unknown, scaled), unknown, named)
        values = dict(zip(unknown.free, unknown.values(scaled), strict=True))
        every = [
            Fitted(key, wanted[key], float(values[key]), error * 2.0 * wanted[key].width, good)
            for key, (error, good) in sorted(found.items())
        ]
        made = [item for item in every if item.identified]
        dropped |= {item.key: item for item in every if item.key in named and not item.identified}
        centres = {item.key: item.value for item in made}
        held = {key: centres[parent] for key in dropped if (parent := wanted[key].parent) in centres}
        still = len(made) == len(every) and all(
            abs(value - unknown.held.get(key, wanted[key].value)) < SETTLED * wanted[key].width
            for key, value in held.items()
        )
        if still:
            break
        unknown = Constraint(wanted, centres, held)
        scaled = unknown.scaled(np.array([values[key] for key in unknown.free]))
    return sorted(made + list(dropped.values()), key=lambda item: item.key)


def _run_themselves(problem: Problem, wanted: Mapping[Key, Prior]) -> set[Key]:
    """Constants of the stack `generic`, where rows name no other stack."""
    ran = {batch.design.stack.name for batch in problem.batches}
    return {key for key in wanted if key[0] == "stack" and key[1] == GENERIC and GENERIC in ran}
