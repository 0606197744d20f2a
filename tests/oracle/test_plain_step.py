"""The product beside an oracle of plain loops, on random small designs: every quantity a test of its own.

Equal within 1e-9, relative.  Pipelines of several stages other than gpipe are closed forms; docs/models/schedule.md
states their error against an event simulation.  The oracle is one, so they are held to that error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite

import pytest
from plain_step import memory
from plain_step.compare import TIMES, Comparison, compare
from plain_step.designs import DEVICES, MICRO_BATCHES, any_designs, random_designs, together
from plain_step.rules import broken
from plain_step.traffic import AXES

import dse
from workloads.plan import OFFLOAD

DESIGNS = 1_000
QUANTITIES = (
    *(f"time_{name}" for name in (*TIMES, "straggler")), *(f"communication_{axis}" for axis in AXES),
    "memory", "violation of memory", *(f"memory_{kind}" for kind in memory.KINDS),
    "energy_compute", "energy_communication", "energy_static", "micro_batches",
)  # fmt: skip


def _tables(one: Comparison) -> bool:
    return bool(one.layout.body.sparse)


def _some_layers_repeat(one: Comparison) -> bool:
    return bool(one.design.plan.recompute_layers)


def _ends_in_passes(one: Comparison) -> bool:
    plan = one.design.plan
    return bool(plan.pipeline > 1 and (plan.zero_stage >= 2 or plan.offload == OFFLOAD.index("all")))


def _experts_on_host(one: Comparison) -> bool:
    return bool(one.layout.body.parameters_expert and one.design.plan.offload == OFFLOAD.index("all"))


def _several_stages(one: Comparison) -> bool:
    return bool(one.design.plan.pipeline > 1)


#: Differences that are known and open: what the product claims otherwise there, and where.
#: tables        the product keeps and reads their rows in fp32 with their own state; the loops keep them as weights
#: some layers   where only some layers of a stage recompute the product takes windows as if all did
#: ends          embedding and head under ZeRO-2 and 3, or on the host, are fetched on the first stage; the loops fetch
#:               them on their own
#: experts       experts' weights on the host are cut by the group of dense weights, by the loops by their own
#: stages        joules of gradients are the fullest stage's on every stage, the loops sum each stage's own
OPEN: dict[str, tuple[Callable[[Comparison], bool], ...]] = {
    **dict.fromkeys(
        ("time_forward", "time_backward", "time_recompute", "memory", "violation of memory", "memory_weights",
         "memory_optimizer", "energy_compute"), (_tables,),
    ),
    "time_expert": (_some_layers_repeat,),
    "time_shard": (_tables, _ends_in_passes, _some_layers_repeat, _experts_on_host),
    "time_data": (_tables, _some_layers_repeat),
    "time_host": (_tables, _some_layers_repeat, _ends_in_passes, _experts_on_host),
    "energy_communication": (_several_stages,),
}  # fmt: skip


@cache
def comparisons() -> tuple[Comparison, ...]:
    return tuple(one for designs in random_designs(DESIGNS) for one in compare(designs))


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_quantity_is_what_plain_loops_give(quantity: str) -> None:
    bad = [
        f"design {number}: loops {one.quantities[quantity][0]!r}, product {one.quantities[quantity][1]!r}, "
        f"{one.design.plan.named()}"
        for number, one in enumerate(comparisons())
        if quantity in one.differing() and not any(where(one) for where in OPEN.get(quantity, ()))
    ]
    assert not bad, f"{len(bad)} of {len(comparisons())} differ, e.g. " + "\n".join(bad[:3])


@pytest.mark.parametrize("quantity", OPEN)
def test_a_difference_that_is_called_open_is_there(quantity: str) -> None:
    """An entry of OPEN that is mended must go."""
    differing = [one for one in comparisons() if quantity in one.differing()]
    assert all(any(where(one) for one in differing) for where in OPEN[quantity])


def test_every_quantity_that_is_compared_has_a_test() -> None:
    assert set(comparisons()[0].quantities) == set(QUANTITIES)


def test_one_stage_and_gpipe_take_as_long_as_their_events() -> None:
    exact = [one for one in comparisons() if one.exact and _passes_agree(one)]
    assert len(exact) > DESIGNS // 8
    for one in exact:
        assert one.running[1] == pytest.approx(one.running[0], rel=1e-9), one.design.plan.named()


def test_other_pipelines_are_as_near_their_events_as_documented() -> None:
    errors = [
        abs(one.running[1] / one.running[0] - 1.0)
        for one in comparisons()
        if not one.exact and _passes_agree(one) and one.hop_share <= 0.1
    ]
    assert len(errors) > DESIGNS // 40
    assert sum(errors) / len(errors) < 0.01
    assert max(errors) < 0.06


def _passes_agree(one: Comparison) -> bool:
    """Whether both say the same of what runs in the pipeline: then what is left is the schedule."""
    once = {"time_data", "time_update", "time_straggler", "time_overhead"}
    return not any(name.startswith("time_") for name in set(one.differing()) - once) and isfinite(one.running[1])


def test_a_plan_breaks_the_rules_that_plain_counting_finds() -> None:
    kept, met = 0, set()
    for designs in any_designs(60):
        result = dse.evaluate(together(designs))
        for row, design in enumerate(designs):
            found = broken(design)
            assert {name: bool(result.violation(name)[row] > 0) for name in found} == found, design.plan.named()
            kept += not any(found.values())
            met |= {name for name, yes in found.items() if yes}
    assert kept > 5
    assert met == set(broken(designs[0]))


def test_the_designs_have_every_feature() -> None:
    """What a random draw must meet for the comparison to mean something."""
    designs = [one.design for one in comparisons()]
    layouts = [one.layout for one in comparisons()]
    plans = [design.plan for design in designs]
    assert all(design.cluster.devices <= DEVICES for design in designs)
    assert all(layout.micro_batches <= MICRO_BATCHES for layout in layouts)
    met = {
        "recompute": {plan.recompute for plan in plans} == {0, 1, 2, 3},
        "some layers recompute": any(plan.recompute and plan.recompute_layers for plan in plans),
        "ZeRO": {plan.zero_stage for plan in plans} == {0, 1, 2, 3},
        "groups": any(layout.group < layout.ranks for layout in layouts),
        "kept gathered": any(plan.zero_stage == 3 and not plan.reshard for plan in plans),
        "context": {plan.context_ring for plan in plans if plan.context > 1} == {0, 1},
        "experts": {plan.expert_tensor for plan in plans if plan.expert > 1} == {0, 1},
        "tokens": any(one.plan.expert > 1 and one.training.dispatch == "token" for one in designs),
        "sequence parallel": {plan.sequence_parallel for plan in plans if plan.tensor > 1} == {0, 1},
        "overlaps": all(any(getattr(plan, f"overlap_{a}") for plan in plans) for a in ("tensor", "expert", "data")),
        "uneven stages": any(len({len(stage.layers) for stage in one.stages}) > 1 for one in layouts),
        "balanced": any(plan.split for plan in plans),
        "interleaved": any(plan.interleave > 1 for plan in plans),
        "schedules": {plan.schedule for plan in plans if plan.pipeline > 1} == {0, 1, 2},
        "offload": {plan.offload for plan in plans} == {0, 1, 2},
        "tied": {bool(one.last.shared_parameters) for one in layouts} == {False, True},
        "tables": any(one.body.sparse for one in layouts),
        "formats": {one.training.precision for one in designs} == {"bf16", "fp16", "fp32", "fp8"},
        "dies": any(one.chip.dies > 1 for one in designs),
        "chips": {one.chip.compute for one in designs} == {"systolic", "tensor_core"},
        "dataflows": {int(one.chip.dataflow) for one in designs if one.chip.compute == "systolic"} == {0, 1, 2, 3},
        "networks on chip": {int(one.chip.noc) for one in designs} == {0, 1, 2, 3},
        "tiers": {len(one.cluster.tiers) for one in designs} >= {1, 2, 3},
        "wirings": len({tier.topology for one in designs for tier in one.cluster.tiers}) == 8,
        "orders": len({plan.order for plan in plans}) == 6,
    }
    assert all(met.values()), [name for name, found in met.items() if not found]
