"""Chips, stacks and clusters by name: peaks, published figures, sources, messages."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from hw_models import clusters, devices, stacks
from hw_models.devices import HEADINGS, chip, comparisons, names, published, table_rows
from hw_models.physical.area import die_area
from hw_models.physical.cost import market, reticle_excess
from hw_models.stack import Stack
from hw_models.tables import table
from hw_models.technology import technology


@pytest.mark.parametrize(
    ("name", "precision", "by_hand"),
    [
        ("tpu-v2", "bf16", 2 * 128 * 128 * 2 * 0.7e9),
        ("tpu-v3", "bf16", 4 * 128 * 128 * 2 * 0.94e9),
        ("tpu-v4", "bf16", 275e12),
        ("tpu-v4i", "bf16", 138e12),
        ("v100-sxm2", "fp16", 125.3e12),
        ("v100-sxm2", "fp32", 15.7e12),
        ("a100-sxm-40gb", "bf16", 432 * 256 * 2 * 1.41e9),
        ("a100-sxm-80gb", "fp16", 312e12),
        ("a100-sxm-80gb", "tf32", 156e12),
        ("a100-sxm-80gb", "fp32", 19.5e12),
        ("h100-sxm", "bf16", 989.4e12),
        ("h100-sxm", "tf32", 494.7e12),
        ("h100-sxm", "fp8", 1978.9e12),
        ("h200-sxm", "bf16", 989e12),
        ("b200-sxm", "bf16", 148 * 4 * 1024 * 2 * 1.856e9),
        ("b200-sxm", "fp8", 4500e12),
        ("gb200", "bf16", 2500e12),
        ("gb300", "fp8", 5000e12),
        ("tpu-v5e", "bf16", 4 * 128 * 128 * 2 * 1.5e9),
        ("tpu-v5p", "bf16", 459e12),
        ("tpu-v6e", "bf16", 918e12),
        ("tpu-v7x", "fp8", 4614e12),
        ("gaudi2", "bf16", 2 * 256 * 256 * 2 * 1.65e9),
        ("mi300x", "bf16", 1307e12),
        ("p100-sxm2", "fp32", 3584 * 2 * 1.48e9),
    ],
)
def test_a_preset_reproduces_its_published_dense_peak_within_one_percent(
    name: str, precision: str, by_hand: float
) -> None:
    assert chip(name).peak_flops(precision) == pytest.approx(by_hand, rel=0.01)
    assert published(name).peaks[precision] == pytest.approx(by_hand, rel=0.01)


@pytest.mark.parametrize(
    ("name", "bandwidth", "capacity"),
    [
        ("tpu-v2", 700e9, 16 * 2**30),
        ("tpu-v3", 900e9, 32 * 2**30),
        ("tpu-v4", 1200e9, 32 * 2**30),
        ("v100-sxm2", 900e9, 32 * 2**30),
        ("a100-sxm-40gb", 1555e9, 40 * 2**30),
        ("a100-sxm-80gb", 2039e9, 80 * 2**30),
        ("h100-sxm", 3350e9, 80 * 2**30),
        ("h100-96gb-hbm2e", 2400e9, 96e9),
        ("h200-sxm", 4800e9, 141e9),
        ("b200-sxm", 8000e9, 180e9),
        ("gb300", 8000e9, 288e9),
        ("tpu-v5e", 819e9, 16 * 2**30),
        ("tpu-v6e", 1638e9, 32 * 2**30),
        ("tpu-v7x", 7380e9, 192 * 2**30),
        ("gaudi2", 2460e9, 96e9),
    ],
)
def test_a_preset_has_its_published_memory(name: str, bandwidth: float, capacity: float) -> None:
    assert chip(name).hbm_bandwidth == pytest.approx(bandwidth, rel=0.005)
    assert chip(name).hbm_capacity == capacity


@pytest.mark.parametrize(
    ("name", "one_way"),
    [
        ("v100-sxm2", 150e9), ("a100-sxm-80gb", 300e9), ("h100-sxm", 450e9), ("tpu-v2", 248e9), ("tpu-v4", 300e9),
        ("h800-sxm", 200e9), ("gb200", 900e9), ("tpu-v5e", 200e9), ("tpu-v5p", 600e9), ("tpu-v6e", 400e9),
        ("gaudi2", 300e9),
    ],  # fmt: skip
)
def test_links_add_up_to_the_published_bandwidth_of_one_direction(name: str, one_way: float) -> None:
    assert chip(name).scale_up_bandwidth == one_way


def test_peaks_are_dense_and_follow_the_precision() -> None:
    hopper = chip("h100-sxm")
    assert 420e12 / hopper.peak_flops("bf16") == pytest.approx(0.4245, abs=5e-4)
    assert hopper.peak_flops("fp8") == 2 * hopper.peak_flops("bf16") == 4 * hopper.peak_flops("tf32")
    assert chip("a100-sxm-80gb").vector_flops == pytest.approx(19.5e12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "precision"),
    [("v100-sxm2", "bf16"), ("v100-sxm2", "tf32"), ("a100-sxm-80gb", "fp8"), ("tpu-v3", "fp8")],
)
def test_a_precision_without_a_peak_is_an_error_that_names_device_and_precision(name: str, precision: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.*'{precision}'"):
        chip(name).peak_flops(precision)


#: Chips whose die was published, and whose power was published or measured; the others have no such target.
WITH_AREA = [name for name in names() if published(name).die_area is not None]
WITH_POWER = [name for name in names() if published(name).tdp is not None]


def test_what_is_no_target_says_why() -> None:
    assert len(WITH_AREA) >= 12 and len(WITH_POWER) >= 11
    for name in names():
        known = published(name)
        reasons = {"undisclosed", "not a target"}
        assert (known.die_area is None) == (known.die_area_kind in reasons)
        assert (known.tdp is None) == (known.tdp_kind in reasons)
        assert "not a target" not in (known.die_area_kind, known.tdp_kind) or "target" in known.assumptions


@pytest.mark.parametrize("name", WITH_AREA)
def test_the_die_is_near_the_published_one_or_under_its_bound(name: str) -> None:
    area = next(item for item in comparisons(name) if item.quantity == "die area")
    assert area.published is not None and area.error is not None
    if area.kind == "upper bound":
        assert 0.5 * area.published < area.model <= area.published
    else:
        assert abs(area.error) < 0.25


@pytest.mark.parametrize("name", WITH_POWER)
def test_tdp_is_within_a_quarter_of_what_was_published_or_measured(name: str) -> None:
    # TPUv3 has both: 450 W designed for, 262 W measured at most, compared with design and sustained power
    powers = [item for item in comparisons(name) if item.quantity == "TDP"]
    assert powers and all(item.error is not None and abs(item.error) < 0.25 for item in powers)


def test_what_was_not_published_reads_not_available_and_never_zero() -> None:
    rows = table_rows()
    assert all(tuple(row) == HEADINGS for row in rows)
    unknown = [row for row in rows if row["published"] == "n/a"]
    assert unknown and all(row["error [%]"] == "n/a" for row in unknown)
    assert all(float(row["model"].replace(",", "")) > 0 for row in rows)


@pytest.mark.parametrize("name", names())
def test_every_chip_says_its_source_and_its_assumptions(name: str) -> None:
    assert published(name).source and published(name).assumptions


def test_an_unknown_chip_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'h100-sxm'"):
        chip("H100-SXM5")


#: Parts that the collected data sheets lack: variants of one of the others, and one that is recalled.
WITHOUT_SHEET = {"h800-sxm", "h100-96gb-hbm2e", "gb300", "k20", "k80-gk210", "gaudi", "p100-pcie"}


@pytest.mark.parametrize("name", sorted(set(names()) - WITHOUT_SHEET))
def test_presets_agree_with_the_collected_data_sheets(name: str) -> None:
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("needs DSE_DATA: a folder with chips.csv")
    aliases = {
        "tpu-v2": "TPUv2", "tpu-v3": "TPUv3", "tpu-v4": "TPUv4", "tpu-v4i": "TPUv4i", "h100-sxm": "H100-SXM5",
        "gb200": "GB200 (per GPU)", "tpu-v5e": "TPUv5e", "tpu-v5p": "TPUv5p", "tpu-v6e": "TPUv6e (Trillium)",
        "tpu-v7x": "TPUv7x (Ironwood)", "v100-sxm2-16gb": "V100-SXM2",
    }  # fmt: skip
    wanted = aliases.get(name, name)
    with (Path(folder) / "chips.csv").open(encoding="utf-8") as stream:
        row = next(row for row in csv.DictReader(stream) if row["chip"].upper() == wanted.upper())
    assert published(name).tdp in (None, float(row["tdp_W"] or "nan"))
    peak = row["peak_bf16_TFLOPS"] or row["peak_fp16_TFLOPS"]
    precision = "bf16" if row["peak_bf16_TFLOPS"] else "fp16"
    assert chip(name).peak_flops(precision) == pytest.approx(float(peak) * 1e12, rel=0.01)
    assert chip(name).hbm_bandwidth == pytest.approx(float(row["mem_bw_GBps"]) * 1e9, rel=0.005)
    if row["process_node_nm"]:
        # TSMC's 4N and 4NP are derivatives of its 5 nm process
        assert chip(name).process == {"4": "5nm"}.get(row["process_node_nm"], row["process_node_nm"] + "nm") or (
            name.startswith("v100") and chip(name).process == "12nm"
        )


def test_products_of_several_dies_can_be_made_and_have_all_their_silicon_in_the_list() -> None:
    # Blackwell has two dies; 2 x 10% of links come to the area that `die_area` alone lacks
    parts = {name: chip(name).dies for name in names() if chip(name).dies > 1}
    assert parts == {"b200-sxm": 2, "gb200": 2, "b300-sxm": 2, "gb300": 2, "mi300x": 12}
    for name in parts:
        device, t = chip(name), technology(chip(name).process, chip(name).hbm)
        listed = next(item.model for item in comparisons(name) if item.quantity == "die area")
        assert listed == pytest.approx(1.1 * float(die_area(device, t)))
        assert reticle_excess(die_area(device, t), dies=device.dies, market=market(device.process, device.hbm)) < 0


@pytest.mark.parametrize("row", table("stacks"), ids=lambda row: f"{row['stack']}-{row['field']}")
def test_every_stack_constant_has_range_and_source(row: dict[str, str]) -> None:
    assert row["source"] and row["where"] and row["confidence"]
    if row["field"] != "algorithms":
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])


@pytest.mark.parametrize("name", stacks.names())
def test_a_stack_is_complete_and_its_efficiencies_are_shares(name: str) -> None:
    found = stacks.stack(name)
    given = {row["field"] for row in stacks.constants(name)}
    assert given == set(Stack.__dataclass_fields__) - {"name", "source"}
    assert all(0 < getattr(found, field) <= 1 for field in given if field.endswith("_efficiency"))


def test_the_ideal_stack_costs_nothing_and_no_stack_beats_it() -> None:
    ideal = stacks.stack("ideal")
    costs = ("kernel_launch", "host_time_per_operator", "step_overhead", "memory_reserve", "fragmentation")
    shares = ("matmul_efficiency", "memory_efficiency", "network_efficiency")
    assert all(getattr(ideal, name) == 0 for name in costs) and all(getattr(ideal, name) == 1 for name in shares)
    for other in map(stacks.stack, stacks.names()):
        assert all(getattr(other, name) >= 0 for name in costs)
        assert set(other.algorithms) <= set(ideal.algorithms)


def test_an_unknown_stack_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'megatron-lm'"):
        stacks.stack("megatron")


def test_nodes_of_eight_sit_in_a_network_that_holds_every_device() -> None:
    found = clusters.cluster("dgx-a100", 1024)
    assert [tier.size for tier in found.tiers] == [8, 1024]
    assert found.tiers[0].bandwidth == 0 and found.tiers[1].bandwidth == 25e9
    assert clusters.cluster("dgx-h100", 4).tiers[1].size == 8


def test_a_rack_of_72_is_one_switch_and_a_gaudi_node_keeps_three_ports_for_the_network() -> None:
    assert [tier.size for tier in clusters.cluster("nvl72", 576).tiers] == [72, 576]
    inner, outer = clusters.cluster("gaudi2-node", 16).tiers
    assert (inner.topology, inner.bandwidth, outer.bandwidth) == ("full", 21 * 12.5e9, 3 * 12.5e9)


def test_devices_may_be_a_column() -> None:
    found = clusters.cluster("generic-8", np.array([2, 8, 1024]))
    assert found.tiers[1].size.tolist() == [8, 8, 1024]


@pytest.mark.parametrize("name", clusters.names())
def test_a_cluster_says_its_source_and_its_last_tier_holds_all(name: str) -> None:
    # 144: two racks of 72 devices; a pod may hold no more than 256
    found = clusters.cluster(name, 144)
    assert found.source and found.tiers[-1].size == found.devices == 144


def test_a_pod_has_a_largest_size() -> None:
    assert clusters.cluster("tpu-v4-pod", 4096).tiers[0].topology == "torus3d"
    with pytest.raises(ValueError, match="at most 4096 in 'tpu-v4-pod'"):
        clusters.cluster("tpu-v4-pod", 8192)


def test_an_unknown_cluster_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'dgx-a100'"):
        clusters.cluster("dgx_a100", 8)


def test_every_name_of_the_package_is_listed() -> None:
    import hw_models

    assert all(hasattr(hw_models, name) for name in hw_models.__all__)
    assert devices.names() == names()
