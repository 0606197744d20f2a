"""The template of Phaze and WHAM: its published areas, its space, its place among the technologies, its search."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import itertools
from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
import pytest

from dse.api.search import search
from dse.evidence.validation.validate import validate
from dse.inputs.yaml.load import load_search
from dse.inputs.yaml.tree import shipped_searches
from dse.problem.build import problem_of
from dse.record.write import write_outputs
from hw_models.chip import Chip
from hw_models.physical.area import BLOCKS, area_by_block, die_area
from hw_models.physical.phaze import TEMPLATE, is_valid, largest_area, memory_areas, phaze_area, phaze_space
from hw_models.physical.power import static_power, tdp_by_block
from hw_models.technology import Technology, constants, nodes, technology

MIB = 2**20
SPACE = phaze_space()
AREAS = phaze_area(**SPACE)


def area(n: object, w: object, d: object, v: object, b: object, x: object | None = None) -> object:
    return phaze_area(n, w, d, vector_cores=v, vector_width=w if x is None else x, buffer_bytes=b)


def template_chip(**changed: object) -> Chip:
    return dataclasses.replace(
        Chip(
            process=TEMPLATE, hbm="hbm2", array_count=8, array_rows=128, array_columns=128, vector_lanes=256,
            shared_sram=128 * MIB,
        ),
        **changed,
    )


# Numbers ----------------------------------------------------------------------------------------------------------


def test_the_smallest_die_is_the_sum_of_five_terms_by_hand() -> None:
    # one 2 x 2 tensor core, one vector core of 2 lanes, two core buffers of 1 KiB, 2 MiB; um2
    by_hand = 760.041397 * 4 + 759.821330 * 2 + 6134 + 6134 + 3_338_220
    assert area(1, 2, 2, 1, 2 * MIB) * 1e12 == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("design", "published"),
    [
        ((8, 128, 128, 2, 128 * MIB), 278_826_676.31),
        ((1, 128, 128, 1, 128 * MIB), 188_427_588.95),
        ((4096, 16, 2, 4096, 32 * MIB), 246_416_424.736),
    ],
)
def test_published_areas_are_met_within_one_in_a_hundred_million(
    design: tuple[int, ...], published: float
) -> None:
    assert area(*design) * 1e12 == pytest.approx(published, rel=1e-8)


def test_the_buffers_of_256_by_256_arrays_are_one_mebibyte_each() -> None:
    one, two = area(1, 256, 256, 1, 2 * MIB), area(2, 256, 256, 1, 2 * MIB)
    assert (two - one) * 1e12 == pytest.approx(760.041397 * 65_536 + 1_634_130, rel=1e-9)


def test_exactly_29360_of_75712_designs_are_valid() -> None:
    assert AREAS.shape == (75_712,) and np.all(np.isfinite(AREAS))
    assert int(np.sum(is_valid(AREAS, SPACE["tensor_cores"], SPACE["vector_cores"]))) == 29_360
    assert float(np.max(AREAS[is_valid(AREAS, SPACE["tensor_cores"], SPACE["vector_cores"])])) == largest_area()


def test_the_published_template_is_validated_where_it_is_asked_for() -> None:
    found = validate(sets=("phaze/*",), rows=True)
    assert found.rows is not None and len(found.rows) == 5
    for row in found.rows:
        assert row.predicted == pytest.approx(row.measured, rel=1e-8), row.row_id
    assert {row.measured for row in found.rows} >= {29_360.0, 75_712.0}
    assert not any(score.set.startswith("phaze") for score in validate().sets)


def test_the_global_buffer_is_63_percent_of_the_largest_valid_die() -> None:
    assert area_by_block(template_chip(), technology(TEMPLATE))["shared_sram"] / largest_area() == pytest.approx(
        0.63, abs=0.005
    )


# Oracle: the published formula with dictionaries, one design after another ------------------------------------------

CORE_KIB = dict(
    zip(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        (6134, 8248, 12611, 22140, 38583, 63339, 115579, 204764, 446565, 897890, 1634130),
        strict=True,
    )
)
GLOBAL_MIB = dict(
    zip((2, 4, 8, 16, 32, 64, 128), (3338220, 6078640, 11952400, 23745200, 46750900, 88605700, 175423000), strict=True)
)


def test_every_design_of_the_space_agrees_with_one_by_one_look_ups() -> None:
    found = dict(zip(zip(*(SPACE[name].tolist() for name in SPACE), strict=True), AREAS.tolist(), strict=True))
    powers = [2**i for i in range(13)]
    count = valid = 0
    budget = 278_826_676.2480640
    for n, w, d, v, b in itertools.product(powers, powers[1:9], powers[1:9], powers, GLOBAL_MIB):
        um2 = 760.041397 * n * w * d + 759.821330 * v * w
        um2 += CORE_KIB[max(1, w * d // 64)] * n + CORE_KIB[max(1, w // 64)] * v + GLOBAL_MIB[b]
        assert found[n, w, d, v, w, b * MIB] == pytest.approx(um2 * 1e-12, rel=1e-12)
        count += 1
        valid += um2 <= budget * (1 + 1e-12) and (n == 1 or v == 1 or um2 >= 0.3 * budget)
    assert (count, valid) == (75_712, 29_360)


# Laws ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensor_cores", "width", "depth", "vector_cores", "vector_width", "buffer_bytes"])
def test_twice_of_anything_takes_more_area(name: str) -> None:
    doubled = phaze_area(**{**SPACE, name: SPACE[name] * 2})
    exists = np.isfinite(doubled)
    assert exists.sum() > 60_000 and np.all(doubled[exists] > AREAS[exists])


def test_a_design_alone_has_the_bits_it_has_in_a_batch() -> None:
    for i in np.random.default_rng(5).integers(0, len(AREAS), 211):
        assert float(phaze_area(**{name: float(column[i]) for name, column in SPACE.items()})) == AREAS[i]


def test_hardware_rows_meet_a_row_of_buffers() -> None:
    buffers = memory_areas("global")[0]
    grid = area(np.array([[1.0], [3.0], [4096.0]]), 16, 2, 7, buffers)
    assert grid.shape == (3, 7)
    assert float(grid[1, 4]) == area(3, 16, 2, 7, 32 * MIB)


# What does not exist --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"buffer_bytes": 24 * MIB}, "buffer_bytes: found 24 MiB, allowed: 2, 4, 8, 16, 32, 64, 128 MiB"),
        ({"width": 100}, r"width x depth / 64 .*: found 200 KiB, allowed: 1, 2, 4, .*1024 KiB"),
        ({"vector_width": 200}, r"vector_width / 64 .*: found 3.125 KiB, allowed: 1, 2, 4"),
        ({"tensor_cores": 4097}, "tensor_cores: found 4097, allowed: a whole number from 1 to 4096"),
        ({"vector_cores": 0.5}, "vector_cores: found 0.5, allowed: a whole number from 1 to 4096"),
        ({"depth": 1}, "depth: found 1, allowed: a whole number from 2 to 256"),
        ({"width": float("nan")}, "width: found nan"),
        ({"depth": 512, "buffer_bytes": 0}, r"depth: found 512.*; buffer_bytes: found 0 MiB"),
    ],
)
def test_a_size_that_does_not_exist_is_named_with_those_that_do(changed: Mapping[str, float], message: str) -> None:
    design = {
        "tensor_cores": 8, "width": 128, "depth": 128, "vector_cores": 2, "vector_width": 128,
        "buffer_bytes": 128 * MIB,
    }
    with pytest.raises(ValueError, match=message):
        phaze_area(**(design | changed))
    # in a column it is no error but a die that nothing holds, and its neighbours keep their bits
    column = phaze_area(**(design | {name: np.array([design[name], value]) for name, value in changed.items()}))
    assert column[0] == largest_area() and column[1] == np.inf


# A technology ---------------------------------------------------------------------------------------------------------


def test_a_chip_of_the_template_has_the_published_area_whatever_memory_links_and_network_it_has() -> None:
    free = template_chip(
        hbm_stacks=8, links=18, shared_sram_bandwidth=1e14, local_sram=2**24, arrays_per_core=2, clock=2e9,
        dataflow="os",
    )
    for chip in (template_chip(), free):
        assert float(die_area(chip, technology(TEMPLATE, "hbm2"))) == largest_area()


def test_an_array_is_as_wide_as_its_columns_and_as_deep_as_its_rows() -> None:
    chip = template_chip(array_count=4096, array_rows=2, array_columns=16, vector_lanes=65_536, shared_sram=32 * MIB)
    blocks = area_by_block(chip, technology(TEMPLATE))
    assert float(die_area(chip, technology(TEMPLATE))) * 1e12 == pytest.approx(246_416_424.736, rel=1e-8)
    assert tuple(blocks) == BLOCKS
    assert blocks["local_sram"] * 1e12 == pytest.approx(2 * 4096 * 6134)
    assert {name for name in BLOCKS if blocks[name] > 0} == {"arrays", "vector", "local_sram", "shared_sram"}


def test_lanes_that_fill_no_whole_vector_core_are_out_of_the_template() -> None:
    lanes = np.array([128.0, 64.0, 192.0, 4096 * 128.0, 8192 * 128.0])
    found = die_area(template_chip(vector_lanes=lanes), technology(TEMPLATE))
    assert np.isfinite(found).tolist() == [True, False, False, True, False]
    with pytest.raises(ValueError, match=r"vector_cores: found 0\.5"):
        die_area(template_chip(vector_lanes=64), technology(TEMPLATE))


def test_only_systolic_chips_are_of_the_template() -> None:
    with pytest.raises(ValueError, match="compute: found 'tensor_core' with process phaze22nm, allowed: systolic"):
        die_area(template_chip(compute="tensor_core"), technology(TEMPLATE))


def test_the_template_is_known_by_its_rows_and_no_other_technology_changes() -> None:
    assert TEMPLATE in nodes()
    renamed = dataclasses.replace(technology(TEMPLATE), name="mine")
    with pytest.raises(ValueError, match="'mine' does not give"):
        die_area(template_chip(), renamed)
    assert float(die_area(template_chip(), technology("7nm", "hbm2"))) != largest_area()


def test_a_constant_of_the_template_may_be_a_column() -> None:
    t = technology(TEMPLATE)
    doubled = dataclasses.replace(t, mac_area=t.mac_area * np.array([1.0, 2.0]))
    found = die_area(template_chip(), doubled)
    assert found[0] == largest_area()
    assert (found[1] - found[0]) * 1e12 == pytest.approx(760.041397 * 8 * 128 * 128)


@pytest.mark.parametrize("hbm", ["hbm2", "hbm3e"])
def test_the_rows_of_the_template_have_units_ranges_and_sources_and_leave_free_what_the_source_leaves_free(
    hbm: str,
) -> None:
    units = {item.name: item.metadata["unit"] for item in dataclasses.fields(Technology) if item.name != "name"}
    rows = [row for row in constants(TEMPLATE, hbm) if row["node"] == TEMPLATE]
    assert {row["constant"] for row in rows} <= set(units)
    for row in rows:
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"]), row
        assert row["unit"] == units[row["constant"]] and row["source"] and row["where"] and row["confidence"], row
    free = {"core_area", "noc_area_per_bandwidth", "hbm_controller_area", "link_area_per_bandwidth", "other_area"}
    assert not free & {row["constant"] for row in rows}


def test_its_power_is_that_of_older_silicon() -> None:
    chip, old = template_chip(), technology(TEMPLATE, "hbm2")
    power, newer = tdp_by_block(chip, old), tdp_by_block(dataclasses.replace(chip, process="16nm"), technology("16nm"))
    assert all(power[name] > newer[name] for name in ("arrays", "vector", "local_sram", "shared_sram"))
    assert float(static_power(chip, old)) == pytest.approx(old.leakage * largest_area() + old.idle_power)


# A search -----------------------------------------------------------------------------------------------------------


def test_the_shipped_search_spans_the_published_space_and_nothing_else() -> None:
    assert "wham_single_device" in shipped_searches()
    spec = load_search("wham_single_device")
    names = ("array_count", "array_columns", "array_rows", "vector_lanes", "shared_sram")
    assert {name for name, values in spec.chip.items() if len(values) > 1} == set(names)
    axes = np.meshgrid(*(np.array(spec.chip[name], dtype=float) for name in names), indexing="ij")
    columns = dict(zip(names, (axis.reshape(-1) for axis in axes), strict=True))
    found = die_area(dataclasses.replace(template_chip(), **columns), technology(TEMPLATE, "hbm2"))
    exists = np.isfinite(found)
    vector_cores = columns["vector_lanes"] / columns["array_columns"]
    assert len(found) == prod(len(spec.chip[name]) for name in names) == 116_480
    assert int(exists.sum()) == 75_712
    assert int(is_valid(found, columns["array_count"], vector_cores)[exists].sum()) == 29_360
    (limit,) = spec.constraints
    assert np.array_equal(found <= limit.bound, found <= largest_area())


def test_the_search_answers_a_chip_of_the_template_and_refuses_one_that_does_not_exist() -> None:
    problem = problem_of(load_search("wham_single_device"))
    wanted = (
        {"array_count": 8, "array_rows": 128, "array_columns": 128, "vector_lanes": 256, "shared_sram": 128 * MIB},
        {"array_count": 8, "array_rows": 128, "array_columns": 128, "vector_lanes": 64, "shared_sram": 128 * MIB},
    )
    rows = np.array(
        [[v.values.index(chip[v.name.removeprefix("chip.")]) for v in problem.space.variables] for chip in wanted]
    )
    exists, missing = problem.evaluate(rows)
    at = [item.name for item in problem.objectives].index("die_area")
    assert exists.feasible > 0 and np.all(exists.front[:, at] == largest_area())
    assert missing.feasible == 0 and missing.failures["die_area"] == missing.evaluated


def test_a_chip_that_does_not_exist_is_never_on_a_front_without_a_limit_either() -> None:
    spec = dataclasses.replace(load_search("wham_single_device"), constraints=())
    problem = problem_of(spec)
    choice = {"chip.array_columns": 7, "chip.vector_lanes": 0}
    row = [choice.get(variable.name, 3) for variable in problem.space.variables]
    (outcome,) = problem.evaluate(np.array([row]))
    assert outcome.feasible == 0 and len(outcome.front) == 0
    assert outcome.failures["not a number"] + outcome.failures["memory"] == outcome.evaluated


def test_a_search_of_the_template_writes_the_rows_that_do_not_exist_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dse.record.write.plots.front_png", lambda data: b"")
    report = search("wham_single_device", jobs=1, budget=60, seed=1)
    write_outputs(report, tmp_path)
    lines = list(csv.DictReader(io.StringIO(gzip.decompress((tmp_path / "trials.csv.gz").read_bytes()).decode())))
    missing = [line for line in lines if int(line["chip vector lanes"]) % int(line["chip array columns"])]
    assert missing and all(line["state"] == "failed" and line["plan micro batch"] == "" for line in missing)
    found = [float(line["die area [mm2]"]) for line in lines if line["state"] == "feasible"]
    assert len(report.result.rows) > 0 and 0 < max(found) <= largest_area() * 1e6 + 1e-6
