"""Rows of measured collectives: what they mean, how they are predicted, why some are not; then the measured tables."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from dse.evidence.measured.collectives import KINDS, collective_cases, measurement, predicted_time
from dse.evidence.measured.runs import Case, Skip
from hw_models.network.collective_time import KINDS as PRICED
from hw_models.stack import Stack
from hw_models.stacks import stack

BARE = Stack(algorithms=("ring", "in_network"))


def row(**cells: str) -> dict[str, str]:
    blank = dict.fromkeys(
        "row_id device topology num_devices payload_bytes time_us algbw_GBps busbw_GBps algorithm split".split(), ""
    )
    return blank | {"kind": "measured", "collective": "all_reduce", "device": "A100", "num_devices": "8"} | cells


def only(**cells: str) -> Case:
    (case,) = collective_cases([row(**cells)], "collectives")
    return case


# ---- what a row says


def test_a_bus_bandwidth_becomes_the_time_its_definition_gives() -> None:
    for collective, moved in (("all_reduce", 1.75e9), ("all_gather", 0.875e9), ("reduce_scatter", 0.875e9)):
        found = measurement(row(collective=collective, payload_bytes="1e9", busbw_GBps="100"))
        assert found.time == pytest.approx(moved / 100e9)
    assert measurement(row(collective="p2p copy", payload_bytes="1e9", busbw_GBps="100")).time == pytest.approx(0.01)


def test_a_stated_time_counts_before_a_bandwidth() -> None:
    assert measurement(row(payload_bytes="1e9", time_us="5000", busbw_GBps="1")).time == pytest.approx(5e-3)


def test_every_kind_of_row_is_a_kind_that_is_priced() -> None:
    assert {kind for kind, _ in KINDS.values()} == set(PRICED)


def test_devices_wired_to_each_other_share_their_links_among_as_many() -> None:
    found = measurement(
        row(num_devices="4", topology="4x A100 NVLink3 fully connected", payload_bytes="1e9", time_us="1")
    )
    assert (found.cluster.tiers[0].topology, found.cluster.tiers[0].size) == ("full", 4)
    perfect = predicted_time(replace(found, cluster=_instant(found)), BARE)
    assert perfect == pytest.approx(2 * 3 / 4 * 1e9 / 300e9)


def _instant(found):  # type: ignore[no-untyped-def]
    """The cluster of a measurement with links that only bandwidth limits."""
    return replace(found.cluster, tiers=tuple(replace(tier, latency=0.0) for tier in found.cluster.tiers))


@pytest.mark.parametrize(
    ("device", "ranks", "seconds"),
    [
        ("V100", "8", 2 * 7 / 8 / 150),
        ("V100", "4", 2 * 3 / 4 / 100),  # a quad: two rings, both ways
        ("V100", "2", 1 / 25),  # one link
        ("A100", "5", 2 * 4 / 5 / 300),
        ("H200", "8", 9 / 8 / 450),
        ("B200", "8", 9 / 8 / 900),
        ("MI300X", "2", 1 / 64),
        ("MI300X", "8", 2 * 7 / 8 / 448),
    ],
)
def test_a_gigabyte_takes_what_the_links_of_the_device_allow(device: str, ranks: str, seconds: float) -> None:
    found = measurement(row(device=device, num_devices=ranks, payload_bytes="1e9", time_us="1"))
    assert predicted_time(replace(found, cluster=_instant(found)), BARE) == pytest.approx(seconds)


def test_a_row_that_ran_a_ring_is_not_given_the_switch() -> None:
    cells = {"device": "H200", "payload_bytes": "1e9", "time_us": "1"}
    ring = measurement(row(**cells, algorithm="Ring (NVLS off)"))
    assert predicted_time(replace(ring, cluster=_instant(ring)), BARE) == pytest.approx(2 * 7 / 8 * 1e9 / 450e9)
    assert predicted_time(ring, Stack(algorithms=("in_network",))) == predicted_time(ring, Stack(algorithms=("ring",)))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"collective": "barrier", "payload_bytes": "8", "time_us": "9"}, "collective 'barrier' is not one of"),
        ({"payload_bytes": "", "time_us": "9"}, "incomplete: no payload_bytes"),
        ({"num_devices": "", "device": "", "time_us": "9"}, "incomplete: no device, num_devices, payload_bytes"),
        ({"device": "K80", "payload_bytes": "8", "time_us": "9"}, "device 'K80' is not in the table of chips"),
        ({"payload_bytes": "8"}, "no measured time"),
        ({"collective": "all_to_all combine low-latency", "time_us": "77"}, "kernels that post all messages at once"),
    ],
)
def test_a_row_that_cannot_be_scored_says_why(cells: dict[str, str], reason: str) -> None:
    case = only(**cells)
    assert case.skipped.startswith(reason) and case.predicted is None
    with pytest.raises(Skip, match=reason.split("'")[0]):
        measurement(row(**cells))


def test_constants_of_links_are_no_measurements() -> None:
    assert not list(collective_cases([row(kind="constant")], "collectives"))


def test_a_case_is_named_after_its_collective_and_predicted_with_the_generic_stack() -> None:
    case = only(payload_bytes="1048576", time_us="93", split="validation", row_id="N7")
    assert (case.set, case.row_id, case.split, case.unit) == ("collectives/all_reduce", "N7", "validation", "s")
    found = measurement(row(payload_bytes="1048576", time_us="93"))
    assert case.predicted == predicted_time(found, stack("generic", "a100-sxm-80gb"))
    assert case.measured == pytest.approx(93e-6)


# ---- measured


def measured_rows() -> list[dict[str, str]]:
    path = Path(os.environ.get("DSE_DATA") or "no folder") / "collectives.csv"
    if not path.exists():
        pytest.skip("needs DSE_DATA with collectives.csv")
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_all_reduces_are_within_a_tenth_in_the_median_before_anything_is_fitted() -> None:
    errors = []
    for cells in measured_rows():
        if cells["kind"] == "measured" and cells["split"] == "validation" and cells["collective"] == "all_reduce":
            try:
                found = measurement(cells)
            except Skip:
                continue
            errors.append(abs(predicted_time(found, stack("generic", calibrated=False)) / found.time - 1))
    assert len(errors) > 100
    assert median(errors) < 0.11  # 0.099 with constants of data sheets and published latencies
    assert sum(error < 0.5 for error in errors) > 0.97 * len(errors)


def test_all_reduces_are_closer_with_the_constants_that_ship() -> None:
    known = {True: [], False: []}  # type: dict[bool, list[float]]
    for cells in measured_rows():
        if cells["kind"] == "measured" and cells["split"] == "validation" and cells["collective"] == "all_reduce":
            try:
                found = measurement(cells)
            except Skip:
                continue
            for fitted, errors in known.items():
                constants = stack("generic", found.device, calibrated=fitted)
                errors.append(abs(predicted_time(found, constants) / found.time - 1))
    assert median(known[True]) < min(0.06, 0.6 * median(known[False]))


def test_every_measured_row_is_predicted_or_has_a_reason() -> None:
    cases = list(collective_cases(measured_rows(), "collectives"))
    assert all((case.predicted is None) == bool(case.skipped) for case in cases)
    assert sum(not case.skipped for case in cases) >= 200
    assert {case.set for case in cases if not case.skipped} >= {
        "collectives/all_reduce", "collectives/all_gather", "collectives/reduce_scatter",
    }  # fmt: skip


def test_a_switch_that_adds_up_keeps_its_law_in_the_number_of_ranks() -> None:
    """(n+1)/n S over the measured time is one bandwidth for all n, which a ring's bus bandwidth is not."""
    for device, spread in (("H200", 0.03), ("B200", 0.015)):
        rates = []
        for cells in measured_rows():
            if cells["device"] == device and cells["algorithm"] == "NVLS" and cells["payload_bytes"] == "8589934592":
                found = measurement(cells)
                rates.append((found.size + 1) / found.size * found.message / found.time)
        assert len(rates) >= 3 and max(rates) / min(rates) < 1 + spread
