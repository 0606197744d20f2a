"""What a chip is by itself, whatever it runs, and what owning and running it costs and emits for a token.

Every metric is computed when it is asked for. Prices and carbon: hw_models/physical/cost.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dse.evaluation.chip_facts import ChipFacts
from dse.evaluation.design import Rows
from hw_models.chip import Chip
from hw_models.physical.cost import (
    Market,
    area_per_die,
    chip_cost,
    device_hour_cost,
    die_yield,
    embodied_carbon,
    market_of,
    operational_carbon,
    reticle_excess,
    total,
)
from hw_models.technology import Technology

#: Metrics by name, each as a function without arguments.
Late = dict[str, Callable[[], Any]]
#: Metrics of the chip alone that need prices, and those of a token, which also need the energy of a step.
OF_THE_CHIP = ("chip_cost", "carbon_embodied", "die_yield", "reticle_excess")
OF_A_TOKEN = ("cost_per_token", "carbon_per_token")
SECONDS_AN_HOUR = 3600.0


def chip_metrics(facts: ChipFacts, *, market: Market | None = None) -> Late:
    """Area, power, cost, carbon and yield of one chip, by name; no plan can mend them.

    market   prices; None: those of the chip's node and memory"""
    chip, technology = facts.chip, facts.technology
    known = market or market_of(chip)
    found: Late = {
        "peak_power": lambda: facts.tdp, "die_area": lambda: facts.silicon, "tdp": lambda: facts.tdp,
        "hbm_excess": lambda: _hbm_excess(chip, technology),
    }  # fmt: skip
    if known is None:  # a node without prices, as the template of another tool
        return found | dict.fromkeys(OF_THE_CHIP, _unknown)
    prices: Market = known

    def good() -> Any:
        one = area_per_die(facts.area, dies=chip.dies, market=prices)
        return die_yield(one, prices.defect_density, clustering=prices.clustering)

    return found | {
        "chip_cost": lambda: total(chip_cost(chip, technology, market=prices, area=facts.area)),
        "carbon_embodied": lambda: total(embodied_carbon(chip, technology, market=prices, area=facts.area)),
        "die_yield": good,
        "reticle_excess": lambda: reticle_excess(facts.area, dies=chip.dies, market=prices),
    }


def _hbm_excess(chip: Chip, technology: Technology) -> Any:
    """How far an HBM stack is above its generation, relative: the larger of bandwidth and capacity; nan: not known."""
    fastest, largest = technology.stack_bandwidth, technology.stack_capacity
    if fastest is None or largest is None:
        return np.nan
    return np.maximum(chip.hbm_stack_bandwidth / fastest, chip.hbm_stack_capacity / largest) - 1.0


def token_metrics(r: Rows, *, step_time: Any, energy: Any, market: Market | None = None) -> Late:
    """Cost [USD] and carbon [kg] of a token, all devices of the cluster.

    c = devices t ($/s of device, server, electricity, building) / tokens            (`device_hour_cost`)
    k = (devices t embodied/lifetime + PUE grid (E + devices t overhead)) / tokens
    t step time, E energy of a step: chips and links; overhead: host and network power of a device.
    market: prices; None: those of the chip.  The cluster works all the time.
    Ignores the carbon of servers and building."""
    prices = market or market_of(r.rated_chip)
    if prices is None:
        return dict.fromkeys(OF_A_TOKEN, _unknown)
    known: Market = prices
    devices, tokens, beside = r.cluster.devices, float(r.workload.tokens), r.cluster.overhead_power
    chip = chip_metrics(r.facts, market=known)

    def cost() -> Any:
        power = energy / step_time / devices + beside
        hour = device_hour_cost(chip["chip_cost"](), power, design_power=r.facts.tdp + beside, market=known)
        return devices * step_time * (total(hour) / SECONDS_AN_HOUR) / tokens

    def carbon() -> Any:
        made = devices * step_time * (chip["carbon_embodied"]() / known.lifetime)
        return (made + operational_carbon(energy + devices * step_time * beside, market=known)) / tokens

    return {"cost_per_token": cost, "carbon_per_token": carbon}


def _unknown() -> Any:
    return np.nan
