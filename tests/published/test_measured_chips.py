"""The area and power model against published chips, each predicted by a fit that has not seen it."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from dse.evidence.measured.chips import (
    BOUNDS,
    DESIGN_POWER,
    EXCLUDED,
    QUANTITIES,
    Fit,
    Held,
    area_of,
    chip_cases,
    dies,
    leave_one_out,
    obstacle,
    photo_blocks,
    refit,
    upper_bounds,
)
from hw_models.technology import technology

#: Blocks of two die photos [mm2] (LLMCompass, Zhang et al., ISCA 2024); PHY and control of links are one block.
PHOTOS = {
    "GA100": {
        "SMs / CUs": 476.25, "on-chip interconnect": 76.44, "L2/global buffer": 119.31, "memory PHY": 58.0,
        "memory control": 31.77, "off-chip interconnect": 20.95, "other": 40.0,
    },
    "Aldebaran": {
        "SMs / CUs": 446.22, "on-chip interconnect": 33.0, "L2/global buffer": 25.2, "memory PHY": 83.26,
        "memory control": 40.83, "off-chip interconnect": 45.52 + 42.0, "other": 4.0,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("needs DSE_DATA: a folder with chips.csv")
    with (Path(folder) / "chips.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def held(rows: list[dict[str, str]]) -> tuple[Held, ...]:
    return leave_one_out(rows)


@pytest.mark.parametrize("name", PHOTOS)
def test_every_block_of_a_die_photo_is_within_3_percent_of_the_die(name: str) -> None:
    blocks, area = photo_blocks(name), sum(PHOTOS[name].values())
    assert blocks.keys() == PHOTOS[name].keys()
    off = {block: round(blocks[block] * 1e6 - value, 1) for block, value in PHOTOS[name].items()}
    assert max(map(abs, off.values())) <= 0.03 * area, off


def test_dies_published_as_an_upper_bound_stay_under_it_and_above_half_of_it() -> None:
    for name, model, bound in upper_bounds():
        assert 0.5 * bound < model <= bound, name


def test_the_shipped_constants_are_the_fitted_ones() -> None:
    found = refit()
    assert found.density == pytest.approx(1.0, abs=0.005) and found.core_area == 1.0
    assert found.design_margin == pytest.approx(technology("7nm", "hbm2").design_margin, rel=0.005)


def test_a_fit_without_a_die_does_not_know_it() -> None:
    # the same die under any of its names; the prediction moves when the die leaves the fit
    assert refit("A100-SXM-40GB") == refit("A100-SXM-80GB") == refit("GA100")
    assert refit("K20X") != refit() != refit("V100-SXM2")


def test_the_fit_is_the_least_squares_of_its_one_constant() -> None:
    # oracle: a scan of densities
    used = [die for die in dies() if die.name != "Aldebaran"]
    scan = np.linspace(0.8, 1.2, 401)
    squares = [sum(np.log(area_of(die, Fit(density)) / die.area) ** 2 for die in used) for density in scan]
    assert refit().density == pytest.approx(scan[int(np.argmin(squares))], abs=1.5e-3)


def test_fewer_constants_are_fitted_than_half_of_the_chips(held: tuple[Held, ...]) -> None:
    areas = {item.chip for item in held if item.quantity == "area"}
    powers = {item.chip for item in held if item.quantity == "tdp"}
    assert 2 < len(areas) / 2 and 1 < len(powers) / 2 and len(DESIGN_POWER) == 4


def test_areas_predicted_without_the_chip(held: tuple[Held, ...]) -> None:
    errors = [abs(item.left_out) for item in held if item.quantity == "area"]
    by_die = [
        max(abs(item.left_out) for item in held if item.quantity == "area" and item.chip in die.rows) for die in dies()
    ]
    assert np.median(errors) <= 0.10 and np.median(by_die) <= 0.10
    assert max(errors) <= 0.25


def test_design_powers_predicted_without_the_chip(held: tuple[Held, ...]) -> None:
    errors = [abs(item.left_out) for item in held if item.quantity == "tdp"]
    assert len(errors) >= 14
    assert np.median(errors) <= 0.15 and max(errors) <= 0.40


def test_what_is_no_target_says_why(rows: list[dict[str, str]]) -> None:
    cases = {(case.traits["chip"], case.set): case for case in chip_cases(rows, "chips")}
    assert len(cases) == 2 * len(rows)
    for name, reason in EXCLUDED.items():
        assert reason in {cases[name, f"chips/{kind}"].skipped for kind in ("area", "tdp")}, name
    for name in BOUNDS:
        assert "one-sided" in cases[name, "chips/area"].skipped
    scored = [case for case in cases.values() if not case.skipped]
    assert all(case.predicted and case.measured for case in scored)


def test_a_recalled_field_is_no_target() -> None:
    row = {"chip": "B200-SXM", "die_area_mm2": "1600", "tdp_W": "1000", "fields_verified": "dies,tdp"}
    (area, *_, ), (power, *_) = QUANTITIES
    assert obstacle(row, area, "die_area_mm2", "die") == "die_area_mm2 was not read in a source"
    assert obstacle(row, power, "tdp_W", "tdp") == ""
