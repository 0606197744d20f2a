"""One design, or two side by side, as text: what `dse explain` and `dse compare` print.

Texts only: the numbers come from dse.insight.account.  A design that cannot run gets no times,
because there is no such step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dse.base.units import format_quantity
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import (
    WORDS,
    in_bytes,
    in_words_of,
    input_text,
    join,
    limit_text,
    metric_text,
    percent,
    scene_text,
    section,
    short_plan,
    signed,
    utilisation_text,
)
from hw_models.cluster import Cluster

if TYPE_CHECKING:
    from dse.evaluation.result import Result
    from dse.insight.account import Account, Comparison, Constraint, Operator, Part, PartDifference
    from dse.insight.elasticity import Elasticity
    from dse.insight.tornado import Swing, Tornado
    from dse.insight.uncertainty import Interval, UncertainPair

__all__ = ["account_text", "comparison_text", "constant_text", "tornado_text"]

#: Rows of the longest tables.
OPERATORS, ELASTICITIES = 10, 12


def account_text(account: Account) -> str:
    """The account of a design as an architect would write it: verdict first, then where it comes from."""
    design = account.design
    head = [wrapped(scene_text(design)), f"plan {short_plan(design.plan)}", "", _verdict(account)]
    if not account.feasible:
        return join([*head, _memory_section(account), _stage_section(account), _limit_section(account)])
    return join(
        [
            *head,
            section(
                "Time of a step (one device, mean over pipeline stages)",
                _shares(account.time, "s", skip_zero=True, total=account.value("step_time")),
            ),
            section("What the step waits for", _shares(account.resources, "s", skip_zero=True)),
            _energy_section(account),
            _memory_section(account),
            _stage_section(account),
            _limit_section(account),
            _operator_section(account),
            _collective_section(account),
            _elasticity_section(account),
        ]
    )


def _verdict(account: Account) -> str:
    if not account.feasible:
        broken = [item for item in account.constraints if not item.satisfied]
        return "\n".join(["This design cannot run:", *(f"  {_broken(item)}" for item in broken)])
    first = account.resources[0]
    rest = account.resources[1] if len(account.resources) > 1 else None
    then = f", then {WORDS[rest.name]} ({percent(rest.share, 0)})" if rest else ""
    rate = in_words_of(account.design.workload, metric_text("throughput", account.value("throughput")))
    return wrapped(
        f"{metric_text('step_time', account.value('step_time'))} a step, {rate}, "
        f"{utilisation_text(account.value)}. "
        f"Bound by {WORDS[first.name]} ({percent(first.share, 0)} of the step){then}."
    )


def _broken(item: Constraint) -> str:
    return limit_text(item.name, item.found, item.limit or 0.0, item.unit, item.relation)


def _shares(parts: Sequence[Part], unit: str, *, skip_zero: bool = False, total: float | None = None) -> str:
    """Parts with their share, as bars."""
    rows = []
    for part in parts:
        if skip_zero and part.value == 0:
            continue
        shown = in_bytes(part.value) if unit == "B" else format_quantity(part.value, unit)
        rows.append([WORDS[part.name], shown, percent(part.share), "#" * round(40 * max(part.share, 0.0))])
    if total is not None:
        rows.append(["total", in_bytes(total) if unit == "B" else format_quantity(total, unit), "100.0%", ""])
    return columns_text(["part", "value", "share", ""], rows, indent=2)


def _energy_section(account: Account) -> str:
    design, power = account.design, account.value("average_power")
    overhead = float(design.cluster.overhead_power)
    devices = int(design.cluster.devices)
    text = (
        f"{in_words_of(design.workload, metric_text('energy_per_token', account.value('energy_per_token')))}; "
        f"a device draws "
        f"{format_quantity(power, 'W')} on average, {percent(power / account.value('tdp'), 0)} of its TDP of "
        f"{format_quantity(account.value('tdp'), 'W')}; host and network add "
        f"{format_quantity(overhead, 'W') + ' a device' if overhead else 'n/a'}; the cluster draws "
        f"{format_quantity(devices * (power + overhead), 'W')}{'' if overhead else ' without host and network'}."
        f"{_throttled(account)}"
    )
    return section(
        "Energy of a step (whole cluster, chips and links, PUE 1)",
        _shares(account.energy, "J", total=account.value("energy_per_step")),
        wrapped(text, indent=2),
    )


def _throttled(account: Account) -> str:
    """The clock of a step that a power cap holds below that of the chip."""
    chip = account.design.chip
    if account.clock >= float(chip.clock):
        return ""
    return (
        f" The power cap of {format_quantity(float(chip.power_cap), 'W')} holds the clock at "
        f"{format_quantity(account.clock, 'Hz')} of {format_quantity(float(chip.clock), 'Hz')}."
    )


def _memory_section(account: Account) -> str:
    limit = next(item for item in account.constraints if item.name == "memory")
    assert limit.limit is not None
    free = limit.limit - limit.found
    room = f"{in_bytes(free)} free" if free >= 0 else f"{in_bytes(-free)} too much"
    return section(
        "Memory (one device of the fullest stage)",
        _shares(account.memory, "B", skip_zero=True, total=limit.found),
        f"  {in_bytes(limit.found)} of {in_bytes(limit.limit)}: {room}",
    )


def _stage_section(account: Account) -> str | None:
    if len(account.stages) < 2:
        return None
    rows = [
        [
            stage.name, str(stage.stages), str(stage.layers), f"{stage.in_flight:.4g}", in_bytes(stage.memory),
            *([format_quantity(stage.forward, "s"), format_quantity(stage.backward, "s")] if account.feasible else []),
        ]
        for stage in account.stages
    ]  # fmt: skip
    headings = ["stage", "stages", "layers", "in flight", "memory"]
    headings += ["forward", "backward"] if account.feasible else []
    return section(
        "Pipeline stages (one device of each; times of a micro-batch; memory without reserve)",
        columns_text(headings, rows, indent=2),
    )


def _limit_section(account: Account) -> str:
    """Every limit with its distance, and the rules of whole numbers."""
    limits = [item for item in account.constraints if item.unit or item.margin is not None or item.limit is None]
    rules = [item for item in account.constraints if item not in limits]
    broken = [item for item in rules if not item.satisfied]
    rows = [[item.name, _shown(item, item.found), _bound(item), _room(item)] for item in limits]
    kept = f"  {len(rules) - len(broken)} of {len(rules)} rules of divisibility and order hold"
    wrong = [f"  broken: {_broken(item)}" for item in broken]
    table = columns_text(["limit", "found", "allowed", "room"], rows, indent=2)
    return section("Limits (one device)", table, kept, *wrong)


def _shown(item: Constraint, value: float) -> str:
    return in_bytes(value) if item.unit == "B" else format_quantity(value, item.unit)


def _bound(item: Constraint) -> str:
    return "not limited" if item.limit is None else f"{item.relation} {_shown(item, item.limit)}"


def _room(item: Constraint) -> str:
    if item.margin is None:
        return "-"
    word = "left" if item.margin >= 0 else "too much" if item.relation == "<=" else "too little"
    return f"{percent(abs(item.margin))} {word}"


def _operator_section(account: Account) -> str:
    """The longest operators, their phases side by side."""
    groups: dict[tuple[str, str], list[Operator]] = {}
    for item in account.operators:
        groups.setdefault((item.block, item.operator), []).append(item)
    ordered = sorted(groups.items(), key=lambda pair: -math.fsum(item.device_time for item in pair[1]))
    again = any(item.phase == "recompute" for item in account.operators)
    rows = [_operator_row(block, name, items, again) for (block, name), items in ordered[:OPERATORS]]
    rest = math.fsum(item.device_time for _, items in ordered[OPERATORS:] for item in items)
    total = math.fsum(item.device_time for item in account.operators)
    hidden = len(ordered) - OPERATORS
    more = f"  {hidden} more: {percent(rest / total)} of operator time" if hidden > 0 else None
    phases = ["forward", "backward", "again"][: 3 if again else 2]
    headings = ["block", "operator", *phases, "share", "bound by", "arrays"]
    return section(
        "Operators (one device; seconds of one block and micro-batch; share of operator time a step)",
        columns_text(headings, rows, indent=2),
        more,
        f"  {'again: recomputation; ' if again else ''}arrays: share of the arrays' peak while it runs",
    )


def _operator_row(block: str, name: str, items: Sequence[Operator], again: bool) -> list[str]:
    times = {"forward": 0.0, "backward": 0.0, "again": 0.0}
    bound: dict[str, float] = {}
    for item in items:
        phase = {"forward": "forward", "recompute": "again"}.get(item.phase, "backward")
        times[phase] += item.time
        bound[item.binding] = bound.get(item.binding, 0.0) + item.time
    worked = [item for item in items if item.utilisation is not None]
    busy = math.fsum(item.time for item in worked)
    used = math.fsum((item.utilisation or 0.0) * item.time for item in worked) / busy if busy else None
    shown = [time for phase, time in times.items() if again or phase != "again"]
    return [
        block, name, *(format_quantity(time, "s", digits=3) if time else "-" for time in shown),
        percent(math.fsum(item.share for item in items)), WORDS[max(bound, key=lambda key: bound[key])],
        percent(used, 0) if used is not None else "-",
    ]  # fmt: skip


def _collective_section(account: Account) -> str | None:
    if not account.collectives:
        return None
    cluster = account.design.cluster
    rows = [
        [
            f"{item.name} ({item.axis})", item.kind, item.algorithm, f"{item.ranks:,}", _tier(cluster, item.tier),
            in_bytes(math.fsum(item.bytes_by_tier)), f"{item.calls:,.4g}", format_quantity(item.time, "s", digits=3),
            "in bubble" if item.exposed is None else format_quantity(item.exposed, "s", digits=3),
        ]
        for item in account.collectives
    ]  # fmt: skip
    headings = ["what (axis)", "collective", "algorithm", "ranks", "over", "sent", "calls", "a call", "waited"]
    return section(
        "Communication (one device; bytes sent in a call, calls a step, seconds a step it waits)",
        columns_text(headings, rows, indent=2),
    )


def _elasticity_section(account: Account) -> str:
    before = account.value("step_time")
    rows = [_elasticity_row(item, before) for item in account.elasticities[:ELASTICITIES]]
    hidden = [f"{item.parameter} {item.elasticity:+.2g}" for item in account.elasticities[ELASTICITIES:]]
    notes = [f"Smaller: {', '.join(hidden)}."] if hidden else []
    notes += [f"No effect on this plan: {', '.join(account.unmoved)}."] if account.unmoved else []
    notes += [f"0 now, no percent of it: {', '.join(account.unstepped)}."] if account.unstepped else []
    return section(
        "What would help: percent of step time for a percent of each parameter, the plan unchanged",
        columns_text(["parameter", "now", "tried", "step time", "change", "% per %"], rows, indent=2),
        *(wrapped(note, indent=2) for note in notes),
    )


def _elasticity_row(item: Elasticity, before: float) -> list[str]:
    return [
        item.parameter, format_quantity(item.value, item.unit), format_quantity(item.stepped, item.unit),
        format_quantity(item.step_time, "s", digits=5), f"{(item.step_time / before - 1) * 100:+.3f}%",
        f"{item.elasticity:+.3f}",
    ]  # fmt: skip


# Constants that decide ---------------------------------------------------------------------------------------------


def tornado_text(found: Tornado, most: int = 10) -> str:
    """The constants that move each metric most, with a bar from its value at low to its value at high."""
    title = "Constants that decide: each at its low and at its high, all others and the plan as they are"
    if not found.swings:
        return section(title, "  none: no constant of this design has a range")
    parts = [section(title, *(_swing_table(found, metric, most) for metric in found.values))]
    note = (
        "Ranges as stated; of a fitted constant its 90% interval. Constants changed by hand and whole numbers are "
        f"certain. No effect on any: {', '.join(name.partition('.')[2] for name in found.unmoved) or 'none'}."
    )
    return join([*parts, wrapped(note, indent=2)])


def _swing_table(found: Tornado, metric: str, most: int) -> str:
    ranked = found.ranked(metric)
    base = found.values[metric]
    heading = f"\n  {metric.replace('_', ' ')} {metric_text(metric, base)}"
    if not ranked:
        return f"{heading}: no constant moves it"
    reach = max(abs(end - base) for item in ranked for end in item.effects[metric])
    rows = [_swing_row(item, metric, base, reach=reach) for item in ranked[:most]]
    rest = len(ranked) - most
    more = f"\n  {rest} more move it less" if rest > 0 else ""
    headings = ["constant", "low", "now", "high", "at low", "at high", ""]
    return f"{heading}\n{columns_text(headings, rows, indent=2)}{more}"


def constant_text(value: float, unit: str) -> str:
    """A constant in the unit that engineers state it in."""
    if unit == "m2 s/B":
        return f"{value * 1e18:.3g} mm2 s/TB"
    if unit == "m2" and value >= 1e-8:
        return f"{value * 1e6:.3g} mm2"
    if unit in ("USD/B", "kg/B"):
        return f"{value * 1e9:.3g} {unit.replace('B', 'GB')}"
    if unit == "1/m2":
        return f"{value * 1e-4:.3g} 1/cm2"
    return format_quantity(value, unit, digits=3)


#: Characters of half a bar.
_HALF = 8


def _swing_row(item: Swing, metric: str, base: float, *, reach: float) -> list[str]:
    ends = item.effects[metric]
    cells = [constant_text(value, item.unit) for value in (item.low, item.value, item.high)]
    changes = [f"{(end / base - 1) * 100:+.1f}%" if base else "n/a" for end in ends]
    bar = _bar(min(*ends, base) - base, max(*ends, base) - base, reach)
    return [item.constant.partition(".")[2], *cells, *changes, bar]


def _bar(down: float, up: float, reach: float) -> str:
    left, right = (round(_HALF * abs(side) / reach) for side in (down, up))
    return f"{' ' * (_HALF - left)}{'#' * left}|{'#' * right}"


def comparison_text(comparison: Comparison) -> str:
    """Two designs side by side: what differs, by how much, and which parts explain it."""
    sides = (comparison.a, comparison.b)
    names = [f"{scene_text(side.design)}; plan {short_plan(side.design.plan)}" for side in sides]
    inputs = [
        [item.name, input_text(item.a, item.unit), input_text(item.b, item.unit)]
        for item in comparison.inputs
        if item.name not in ("chip.name", "cluster.name", "stack.name")
    ]
    metrics = [
        [pair.name, metric_text(pair.name, pair.a), metric_text(pair.name, pair.b),
         f"{pair.ratio:.4g}" if pair.ratio else "n/a", _scope(pair.name)]
        for pair in comparison.metrics
        if not pair.name.startswith(("time_", "energy_c", "energy_s", "peak_")) and not (pair.a == 0 and pair.b == 0)
    ]  # fmt: skip
    return join(
        [
            *(wrapped(text, indent=3, first=f"{name}: ") for name, text in zip("AB", names, strict=True)),
            "",
            _comparison_verdict(comparison),
            section("What differs", columns_text(["input", "A", "B"], inputs, indent=2) if inputs else "  nothing"),
            _difference_section("Where the step's time goes (one device, mean over stages)", comparison.time, "s"),
            _difference_section("Where the step's energy goes (whole cluster)", comparison.energy, "J"),
            section("Results", columns_text(["metric", "A", "B", "B/A", "of"], metrics, indent=2)),
            _uncertainty_section(comparison.uncertainty),
        ]
    )


def _uncertainty_section(pairs: Sequence[UncertainPair]) -> str:
    """Intervals of both designs, how likely A is better, and what that rests on."""

    def shown(found: Interval) -> str:
        return f"{metric_text(found.metric, found.low)} to {metric_text(found.metric, found.high)}"

    rows = [[pair.metric, shown(pair.a), shown(pair.b), percent(pair.probability_a, 0)] for pair in pairs]
    sides = [
        f"{name} {found.source}, {percent(found.residual, 0)} model error" for name, found in
        (("A", pairs[0].a), ("B", pairs[0].b))
    ]  # fmt: skip
    return section(
        f"How sure ({percent(pairs[0].a.level, 0)} intervals, same draws of constants for both)",
        columns_text(["metric", "A", "B", "A is better"], rows, indent=2)
        + "\n" + wrapped(f"Rests on: {'; '.join(sides)}.", indent=2, first="  "),
    )  # fmt: skip


def _scope(name: str) -> str:
    """What a metric describes: the cluster, or one device."""
    if name.startswith("memory"):
        return "fullest device"
    return "cluster" if name in _OF_CLUSTER else "one device"


_OF_CLUSTER = (
    "step_time", "throughput", "samples_per_second", "mfu", "hfu", "energy_per_step", "energy_per_token",
    "throughput_per_tdp", "throughput_per_area",
)


def _comparison_verdict(comparison: Comparison) -> str:
    a, b = comparison.a, comparison.b
    lines = []
    for name, side in zip("AB", (a, b), strict=True):
        broken = side.violated()
        if broken:
            rules = ", ".join(_lack(side, rule, value) for rule, value in broken.items())
            lines.append(wrapped(f"{name} cannot run ({rules}); its times are what it would take if it could."))
    first, second = a.value("step_time"), b.value("step_time")
    speed = b.value("throughput") / a.value("throughput")
    better = f"{max(speed, 1 / speed):.3g} times the tokens a second of {'A' if speed >= 1 else 'B'}"
    text = f"{'B' if speed >= 1 else 'A'} trains {better}" if speed != 1 else "Both train as many tokens a second"
    rates = [metric_text("throughput", side.value("throughput")) for side in (a, b)]
    text += f": {rates[0]} and {rates[1]}; "
    text += f"a step takes {format_quantity(first, 's')} and {format_quantity(second, 's')}."
    if not comparison.same_work:
        text += " They do not train the same work a step: compare tokens a second and energy a token, not step times."
    return "\n".join([*lines, wrapped(text)])


def _lack(side: Result, rule: str, excess: float) -> str:
    if rule == "memory":
        return f"needs {in_bytes(side.value('memory'))} of {in_bytes(float(side.design.chip.hbm_capacity))}"
    return f"{rule}: {excess:g}"


def _difference_section(title: str, parts: Sequence[PartDifference], unit: str) -> str:
    rows = [
        [WORDS[part.name], format_quantity(part.a, unit), format_quantity(part.b, unit), signed(part.difference, unit),
         percent(part.share, 0)]
        for part in parts
        if part.a or part.b
    ]  # fmt: skip
    totals = [math.fsum(getattr(part, side) for part in parts) for side in ("a", "b")]
    rows.append(
        ["total", *(format_quantity(total, unit) for total in totals), signed(totals[1] - totals[0], unit), "100%"]
    )
    return section(title, columns_text(["part", "A", "B", "B - A", "share"], rows, indent=2))


def _tier(cluster: Cluster, number: int) -> str:
    """A tier in words, e.g. `switch of 8`."""
    tier = cluster.tiers[number]
    last = number == len(cluster.tiers) - 1
    return f"{tier.topology.replace('_', ' ')} of {'all' if last else int(tier.size)}"
