"""Joules of a step of the whole cluster: what computes, what is sent, what leaks."""

from __future__ import annotations

from math import sqrt
from typing import Any

from . import plan as laid
from . import traffic
from .kernels import Work
from .layers import LayerWork
from .plan import Layout
from .step import update_bytes


def compute(layout: Layout, works: dict[int, LayerWork]) -> float:
    """Kernels of every device and micro-batch, and the update's HBM traffic of every copy that is updated.

    E = macs e_mac + local bytes e_local + operations e_lane + SRAM bytes e_shared + HBM bytes e_hbm
    """
    design = layout.design
    plan, technology = design.plan, design.constants
    done = Work()
    for layer, number in (each for stage in layout.stages for each in stage.kinds):
        work = works[id(layer.block)]
        once = work.forward + work.backward + work.repeated(layout.recompute if layer.repeats else "none")
        done += float(number) * once
    for block in (layout.first, layout.last):
        done += works[id(block)].forward + works[id(block)].backward
    precision = design.training.precision
    ratio = 1.0 if precision == "bf16" else getattr(technology, f"mac_energy_ratio_{precision}")
    joules = (
        done.macs * technology.mac_energy * ratio + done.local * technology.local_sram_energy
        + done.operations * technology.vector_energy + done.sram * shared_byte(design)
        + done.hbm * technology.hbm_energy
    )  # fmt: skip
    joules *= plan.tensor * plan.data * plan.context * layout.micro_batches
    splits = plan.zero_stage >= 1
    updated = 0.0
    for stage in layout.stages:
        updated += laid.stage_dense(layout, stage) / (layout.group if splits else 1.0)
        updated += traffic.stage_routed(layout, stage) / (layout.expert_group if splits else 1.0)
    moved = layout.gradient + layout.activation if plan.offload else update_bytes(layout)
    return joules + updated * plan.tensor * layout.ranks * moved * technology.hbm_energy


def communication(layout: Layout) -> float:
    """Everything every device sends: in the passes of all micro-batches, between stages, once a step of each stage."""
    plan = layout.design.plan
    replicas = plan.tensor * plan.data * plan.context
    passes = sum(traffic.in_passes(layout, block, False).joules for block in (layout.first, layout.last))
    late = traffic.rows(layout).joules + 2.0 * traffic.tied(layout).joules
    for stage in layout.stages:
        passes += sum(n * traffic.in_passes(layout, layer.block, layer.repeats).joules for layer, n in stage.kinds)
        passes += sum(one.joules for one in traffic.of_ends(layout, stage))
        late += sum(one.joules for one in traffic.once(layout, laid.stage_dense(layout, stage)))
        late += sum(one.joules for one in traffic.once(layout, traffic.stage_routed(layout, stage), experts=True))
    hops = 2.0 * (plan.pipeline * plan.interleave - 1.0) * traffic.transfer(layout).joules
    return replicas * (layout.micro_batches * (passes + hops) + late)


def static(layout: Layout, seconds: float, *, silicon: float) -> float:
    """(leakage x area + idle power) x devices x seconds; the area [m2] is another model's number."""
    technology = layout.design.constants
    return (technology.leakage * silicon + technology.idle_power) * layout.design.cluster.devices * seconds


def shared_byte(design: Any) -> float:
    """Joules of a byte between shared SRAM and a core: a fixed way, or bank, wires and routers of a network, and the
    way between dies for the share (1 - 1/d) that crosses."""
    chip, technology = design.chip, design.constants
    joules = technology.shared_sram_energy
    if chip.noc:
        cores = chip.array_count / chip.arrays_per_core
        side = sqrt(cores)
        links = {1: 0.0, 2: cores / 4.0, 3: 2.0 / 3.0 * (side - 1.0 / side)}[chip.noc]
        hops = 1.0 if chip.noc == 1 else max(links, 1.0)
        length = max(links, side / 2.0) * sqrt(_core_area(chip, technology, cores))
        joules = technology.bank_energy + length * technology.wire_energy + hops * technology.router_energy
    if chip.dies > 1:
        joules += (1.0 - 1.0 / chip.dies) * technology.die_to_die_energy
    return float(joules)


def _core_area(chip: Any, technology: Any, cores: float) -> float:
    """Area of a core with its spare and its share of shared SRAM [m2]."""
    macs = chip.array_count * chip.array_rows * chip.array_columns
    spare = macs * technology.mac_area + chip.vector_lanes * technology.vector_lane_area
    spare += cores * (chip.local_sram * technology.local_sram_area + technology.core_area)
    cell = technology.cache_area if chip.compute == "tensor_core" else technology.shared_sram_area
    sram = chip.shared_sram * cell + (chip.sram_banks * technology.bank_area if chip.sram_banks else 0.0)
    return (spare * (1.0 + technology.spare_cores) + sram) / cores
