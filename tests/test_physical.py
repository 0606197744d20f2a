"""Area, TDP and energy of a chip, and the constants they stand on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hw_models.chip import Chip
from hw_models.devices import chip, names
from hw_models.physical.area import BLOCKS, area_by_block, die_area
from hw_models.physical.energy import communication_energy, local_bytes_per_mac, work_energy
from hw_models.physical.power import BLOCKS as POWER_BLOCKS
from hw_models.physical.power import dynamic_power_by_block, static_power, tdp, tdp_by_block
from hw_models.technology import Technology, constants, memories, nodes, technology

ROWS = 97
COUNTS = {
    "array_count": (1, 64),
    "array_rows": (1, 256),
    "array_columns": (1, 256),
    "clock": (5e8, 2e9),
    "vector_lanes": (1, 2e4),
    "local_sram": (2**14, 2**24),
    "shared_sram": (2**20, 2**28),
    "shared_sram_bandwidth": (1e11, 1e13),
    "hbm_stacks": (1, 8),
    "hbm_stack_bandwidth": (1e11, 1e12),
    "links": (0, 18),
    "link_bandwidth": (1e10, 1e11),
}
WHOLE = ("array_count", "array_rows", "array_columns", "vector_lanes", "hbm_stacks", "links")
#: What each count must pay for: area, power.
PAYS = {name: (name not in ("clock", "hbm_stack_bandwidth"), name != "shared_sram") for name in COUNTS}


def _columns(seed: int, **fixed: object) -> Chip:
    rng = np.random.default_rng(seed)
    drawn = {name: rng.uniform(low, high, ROWS) for name, (low, high) in COUNTS.items()}
    drawn.update({name: np.ceil(drawn[name]) for name in WHOLE})
    return Chip(**{**drawn, "dataflow": rng.integers(0, 3, ROWS), **fixed})


def test_the_arrays_of_an_a100_take_81_square_millimetres_by_hand() -> None:
    # 432 x 16 x 16 multiply-adds x 671 um2 x 1.09 for the cores that are not enabled
    arrays = area_by_block(chip("a100-sxm-40gb"), technology("7nm", "hbm2"))["arrays"]
    assert arrays == pytest.approx(110_592 * 671e-12 * 1.09)


def test_a_teraflop_of_bf16_costs_295_millijoules_in_the_multipliers_by_hand() -> None:
    # 0.5e12 multiply-adds x 0.59 pJ, and 2/128 + 8/128 B of local SRAM each at 7.5 pJ for 8 B
    energy = work_energy(
        chip("tpu-v4"), technology("7nm", "hbm2"),
        precision="bf16", operand_bytes=2.0, macs=0.5e12, vector_operations=0.0, sram_bytes=0.0, hbm_bytes=0.0,
    )
    assert energy == pytest.approx(0.295 + 0.5e12 * 10 / 128 * 7.5e-12 / 8)


def test_work_energy_adds_lanes_and_every_byte_at_its_cost() -> None:
    t = technology("7nm", "hbm2e")
    energy = work_energy(
        Chip(), t, precision="bf16", operand_bytes=2.0, macs=0.0, vector_operations=3.0, sram_bytes=5.0, hbm_bytes=7.0
    )
    assert energy == pytest.approx(3 * t.vector_energy + 5 * t.shared_sram_energy + 7 * t.hbm_energy)
    assert communication_energy(11.0, 13.0, t) == pytest.approx(11 * t.link_energy + 13 * t.network_energy)


@pytest.mark.parametrize("name", names())
def test_blocks_sum_to_the_die_and_to_the_tdp(name: str) -> None:
    device = chip(name)
    t = technology(device.process, device.hbm)
    blocks, power = area_by_block(device, t), tdp_by_block(device, t)
    assert tuple(blocks) == BLOCKS and tuple(power) == POWER_BLOCKS
    assert sum(float(v) for v in blocks.values()) == pytest.approx(float(die_area(device, t)))
    assert sum(float(v) for v in power.values()) == pytest.approx(float(tdp(device, t)))
    assert all(float(v) > 0 for v in (*blocks.values(), *power.values()))
    assert float(static_power(device, t)) == pytest.approx(float(power["leakage"]) + float(power["idle"]))


@pytest.mark.parametrize("compute", ["systolic", "tensor_core"])
@pytest.mark.parametrize("name", COUNTS)
def test_more_of_anything_is_paid_for_in_area_and_power(name: str, compute: str) -> None:
    before = _columns(1, compute=compute)
    after = dataclasses.replace(before, **{name: getattr(before, name) * 2 + (name == "links")})
    t = technology("7nm", "hbm2e")
    grown = (die_area(after, t) - die_area(before, t), tdp(after, t) - tdp(before, t))
    for change, pays in zip(grown, PAYS[name], strict=True):
        assert np.all(change >= 0)
        assert not pays or np.all(change > 0)


def test_more_arrays_per_core_share_their_local_sram() -> None:
    alone, shared = Chip(array_count=8, arrays_per_core=1), Chip(array_count=8, arrays_per_core=4)
    t = technology("7nm", "hbm2e")
    ratio = area_by_block(alone, t)["local_sram"] / area_by_block(shared, t)["local_sram"]
    assert ratio == pytest.approx(4)


def test_a_design_alone_has_the_bits_it_has_in_a_batch() -> None:
    batch, t = _columns(2), technology("5nm", "hbm3")
    area, power = die_area(batch, t), tdp(batch, t)
    for i in range(ROWS):
        one = dataclasses.replace(
            batch, **{name: float(getattr(batch, name)[i]) for name in COUNTS}, dataflow=float(batch.dataflow[i])
        )
        assert float(die_area(one, t)) == area[i] and float(tdp(one, t)) == power[i]


def test_constants_may_be_columns_too() -> None:
    t = technology("7nm", "hbm2e")
    doubled = dataclasses.replace(t, hbm_energy=t.hbm_energy * np.array([1.0, 2.0]))
    power = tdp_by_block(Chip(), doubled)["hbm"]
    assert power[1] == 2 * power[0]


def test_work_at_peak_rate_for_a_second_is_the_peak_dynamic_power() -> None:
    device = _columns(3, dataflow=1)
    t = technology("7nm", "hbm2e")
    blocks = dynamic_power_by_block(device, t, precision="bf16")
    energy = work_energy(
        device, t, precision="bf16", operand_bytes=2.0,
        macs=device.peak_flops("bf16") / 2, vector_operations=device.vector_lanes * device.clock * t.vector_activity,
        sram_bytes=device.shared_sram_bandwidth, hbm_bytes=device.hbm_bandwidth,
    )
    expected = blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["shared_sram"] + blocks["hbm"]
    np.testing.assert_allclose(energy, expected, rtol=1e-12)


def test_a_larger_array_moves_fewer_local_bytes_for_each_multiply_add() -> None:
    sizes = np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0])
    moved = local_bytes_per_mac(Chip(array_rows=sizes, array_columns=sizes))
    assert np.all(np.diff(moved) < 0)
    assert moved[0] == 2 / 8 + 8 / 8


def test_local_bytes_follow_a_cycle_by_cycle_count_of_an_array() -> None:
    # oracle: count what crosses the edge of an R x C array while it does T columns of a fold
    rows, columns, steps, operand, accumulator = 5, 3, 4001, 2, 4
    held = steps * rows * operand + steps * columns * 2 * accumulator
    streamed = steps * (rows + columns) * operand
    for dataflow, moved in (("ws", held), ("is", held), ("os", streamed)):
        array = Chip(array_rows=rows, array_columns=columns, dataflow=dataflow)
        assert local_bytes_per_mac(array) == pytest.approx(moved / (steps * rows * columns))


def test_the_hottest_supported_precision_sets_the_tdp_unless_one_is_named() -> None:
    device = chip("a100-sxm-80gb")
    t = technology(device.process, device.hbm)
    each = {name: float(tdp(device, t, precision=name)) for name in device.matmul_rates}
    assert float(tdp(device, t)) == max(each.values()) == each["fp16"]


def test_dynamic_energy_does_not_depend_on_the_clock_and_dynamic_power_is_proportional_to_it() -> None:
    slow, fast = Chip(clock=7e8), Chip(clock=1.4e9)
    t = technology("7nm", "hbm2e")
    assert dynamic_power_by_block(fast, t)["arrays"] == pytest.approx(2 * dynamic_power_by_block(slow, t)["arrays"])
    counts = dict(operand_bytes=2.0, macs=1e9, vector_operations=1e6, sram_bytes=1e6, hbm_bytes=1e6)
    assert work_energy(fast, t, precision="bf16", **counts) == work_energy(slow, t, precision="bf16", **counts)


def test_the_cores_of_ga100_agree_with_the_die_photo() -> None:
    # die-photo measurement: 128 cores take 476.25 mm2 (LLMCompass). Double-precision units are not modelled.
    device = dataclasses.replace(chip("a100-sxm-40gb"), array_count=512, vector_lanes=8192)
    t = dataclasses.replace(technology("7nm", "hbm2"), spare_cores=0.0)
    blocks = area_by_block(device, t)
    cores = blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["cores"]
    assert float(cores) == pytest.approx(476.25e-6, rel=0.25)


@pytest.mark.parametrize("node", nodes())
@pytest.mark.parametrize("hbm", memories())
def test_every_constant_has_unit_range_source_and_place(node: str, hbm: str) -> None:
    units = {item.name: item.metadata["unit"] for item in dataclasses.fields(Technology) if item.name != "name"}
    rows = constants(node, hbm)
    assert sorted(row["constant"] for row in rows) == sorted(units)
    for row in rows:
        low, value, high = (float(row[key]) for key in ("low", "value", "high"))
        assert low <= value <= high, row
        assert row["unit"] == units[row["constant"]], row
        assert row["source"].strip() and row["where"].strip() and row["confidence"].strip(), row


def test_newer_nodes_are_denser_and_cheaper_in_energy() -> None:
    old_to_new = [technology(node, "hbm2") for node in ("16nm", "12nm", "7nm", "5nm")]
    for name in ("mac_area", "vector_lane_area", "local_sram_area", "shared_sram_area", "cache_area", "mac_energy"):
        values = [getattr(t, name) for t in old_to_new]
        assert values == sorted(values, reverse=True), name


@pytest.mark.parametrize(
    ("node", "hbm", "message"),
    [("7 nm", "hbm2", "did you mean '7nm'"), ("7nm", "HBM2E", "did you mean 'hbm2e'"), ("3nm", "hbm2", "allowed: ")],
)
def test_an_unknown_node_or_memory_names_what_is_allowed(node: str, hbm: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        technology(node, hbm)


def test_a_constant_that_is_not_given_is_named_and_never_free() -> None:
    full = technology("7nm", "hbm2e")
    with pytest.raises(ValueError, match="hbm_energy"):
        tdp(Chip(), dataclasses.replace(full, hbm_energy=None))
    with pytest.raises(ValueError, match="mac_area.*link_area_per_bandwidth"):
        die_area(Chip(), Technology(name="mine"))
    with pytest.raises(ValueError, match="network_energy"):
        communication_energy(1.0, 1.0, dataclasses.replace(full, network_energy=None))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), "4 pJ"])
def test_a_bad_constant_is_refused_with_its_unit(bad: object) -> None:
    with pytest.raises(ValueError, match="hbm_energy: found .* J/B"):
        Technology(hbm_energy=bad)


def test_an_unknown_precision_has_no_energy() -> None:
    with pytest.raises(ValueError, match="precision: found 'bf61'.*did you mean 'bf16'"):
        technology("7nm", "hbm2e").mac_energy_of("bf61")
