"""Texts for people: numbers with units, at most 100 columns, n/a for the unknown, no time for what cannot run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import a100

from dse.api.evaluation import evaluate
from dse.api.search import SearchReport, search
from dse.base.units import format_quantity
from dse.evaluation.design import Design
from dse.inputs.yaml.load import load_search
from dse.insight.account import account, comparison
from dse.insight.planner import PlanReport, plan
from dse.present.text.design import account_text, comparison_text
from dse.present.text.plan import plan_text
from dse.present.text.search import _kinds, nothing_fits_text, search_text, summary_markdown
from dse.present.text.tables import columns_text, table_text, wrapped
from dse.present.text.validation import validation_text
from dse.present.text.words import percent, short_plan
from hw_models.clusters import cluster
from hw_models.devices import chip
from hw_models.stacks import stack
from workloads.network import Workload
from workloads.plan import Plan
from workloads.precision import Training
from workloads.published import network

SEARCH = """
name: tiny
workload: {network: gpt2-small, sequence: 1024, global_batch: 64}
stack: compiled
chip:
  process: 7nm
  hbm: hbm2e
  array_count: [2, 4, 8]
  clock: [0.8 GHz, 1.2 GHz]
  vector_lanes: 4096
  hbm_stacks: 2
  hbm_stack_capacity: CAPACITY
  links: 4
cluster:
  devices: [8, 16]
  tiers:
    - {size: 8, topology: switch, bandwidth: chip links, latency: 2 us}
    - {size: all, topology: fat_tree, bandwidth: 25 GB/s, latency: 10 us}
plan: {micro_batch: [1, 2], order: tensor-data-pipeline}
constraints: {die_area: "<= AREA"}
objectives: [throughput, energy_per_token, die_area]
search: {mode: nested, sampler: random, budget: 12, seed: 0}
"""


def gpt3(**changes: Any) -> Design:
    named: dict[str, Any] = {
        "tensor": 8, "pipeline": 8, "data": 16, "interleave": 3, "recompute": "full", "sequence_parallel": 1,
        "zero_stage": 1,
    }
    return Design(
        a100(), cluster("dgx-a100", 1024), Plan(**{**named, **changes}), Workload(network("gpt3-175b"), 2048, 1536),
        stack("megatron-lm"), Training(attention="materialized"),
    )  # fmt: skip


def searched(folder: Path, *, area: str = "500 mm2", capacity: str = "8 GB") -> SearchReport:
    path = folder / "tiny.yaml"
    path.write_text(SEARCH.replace("AREA", area).replace("CAPACITY", capacity), encoding="utf-8")
    return search(load_search(path), jobs=1)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SearchReport:
    found = searched(tmp_path_factory.mktemp("search"))
    assert len(found) >= 3
    return found


@pytest.fixture(scope="module")
def planned() -> PlanReport:
    return plan("gpt3-6.7b", "h100-sxm", devices=16, global_batch=64, tokens=10**12)


def every_text(report: SearchReport, planned: PlanReport) -> dict[str, str]:
    stuck = gpt3(tensor=4, pipeline=4, data=64, recompute="none")
    return {
        "account": account_text(account(gpt3())),
        "account of one device": account_text(account(replace(gpt3(tensor=1, pipeline=1, data=1024, interleave=1)))),
        "account of what cannot run": account_text(account(stuck)),
        "comparison": comparison_text(comparison(gpt3(), stuck)),
        "plan": plan_text(planned),
        "plan that fits nowhere": plan_text(plan("llama3-405b", "h100-sxm", devices=2, global_batch=16)),
        "plan without a price": plan_text(plan("gpt2-small", "tpu-v4i", devices=4, global_batch=16, tokens=10**9)),
        "search": search_text(report, {"pareto": Path("out/pareto.csv")}),
        "nothing fits": nothing_fits_text(report),
    }


def test_no_text_is_wider_than_a_terminal(report: SearchReport, planned: PlanReport) -> None:
    for name, text in every_text(report, planned).items():
        wide = [line for line in text.splitlines() if len(line) > 100]
        assert not wide, (name, wide)


def test_no_text_has_trailing_blanks_or_code_words(report: SearchReport, planned: PlanReport) -> None:
    for name, text in every_text(report, planned).items():
        assert not re.search(r" $", text, re.MULTILINE), name
        assert not re.search(r"\b(None|nan|inf|np\.|dtype)\b", text), name
        assert "\n\n\n" not in text, name


def test_the_account_starts_with_the_verdict() -> None:
    text, found = account_text(account(gpt3())), evaluate(gpt3())
    head = text.split("\n\n")[1].replace("\n", " ")
    assert head.startswith(format_quantity(found.value("step_time"), "s") + " a step, ")
    assert format_quantity(found.value("throughput"), "token/s") in head
    assert f"MFU {found.value('mfu') * 100:.1f}%, HFU {found.value('hfu') * 100:.1f}%" in head
    assert "Bound by matrix arrays" in head


def test_the_account_shows_every_part_with_its_unit_and_scope() -> None:
    text, found = account_text(account(gpt3())), evaluate(gpt3())
    for name in ("time_forward", "time_backward", "time_recompute", "time_tensor", "time_bubble", "time_data"):
        assert format_quantity(found.value(name), "s") in text, name
    assert format_quantity(found.value("energy_per_step"), "J") in text
    assert f"{found.value('memory') / 1e9:.4g} GB" in text
    assert f"{format_quantity(found.value('die_area'), 'm2')}" in text
    for scope in ("one device, mean over pipeline stages", "whole cluster", "one device of the fullest stage"):
        assert scope in text


def test_shares_in_the_account_add_up_to_a_hundred_percent() -> None:
    block = account_text(account(gpt3())).split("Time of a step")[1].split("\n\n")[0]
    shares = [float(value) for value in re.findall(r"([\d.]+)%", block)]
    assert shares[-1] == 100.0
    assert sum(shares[:-1]) == pytest.approx(100.0, abs=0.05 * len(shares))


def test_a_design_that_cannot_run_gets_no_time() -> None:
    design = gpt3(tensor=4, pipeline=4, data=64, recompute="none")
    text = account_text(account(design, (("tdp", "<=", 100.0),)))
    needed = evaluate(design).value("memory")
    assert "This design cannot run:" in text
    assert f"memory: needs {needed / 1e9:.4g} GB of {a100().hbm_capacity / 1e9:.4g} GB" in text
    assert re.search(r"tdp: \d+.* W, must be <= 100 W", text)
    assert " a step," not in text and "Time of a step" not in text and "token/s" not in text
    rule = account_text(account(gpt3(data=24)))
    assert "tensor * pipeline * data * context == devices: 1536, must be 1024" in rule


def test_needed_and_available_memory_are_in_one_unit() -> None:
    # whole binary capacities are not printed in GiB beside a need in GB
    text = plan_text(plan("gpt3-13b", "tpu-v4", devices=16, global_batch=64))
    assert "34.36 GB" in text and "GiB" not in text


def test_a_comparison_says_who_wins_by_how_much_and_why() -> None:
    text = comparison_text(comparison(gpt3(), gpt3(interleave=1, recompute="selective")))
    first, second = (evaluate(d) for d in (gpt3(), gpt3(interleave=1, recompute="selective")))
    speed = second.value("throughput") / first.value("throughput")
    assert f"B trains {speed:.3g} times the tokens a second of A" in text.replace("\n", " ")
    assert re.search(r"plan\.recompute +full +selective", text)
    saved = first.value("time_recompute") - second.value("time_recompute")
    assert f"-{format_quantity(saved, 's', digits=3)}" in text
    assert re.search(r"total .* 100%", text)


def test_a_comparison_of_different_work_warns() -> None:
    other = replace(gpt3(), workload=Workload(network("gpt3-175b"), 2048, 768))
    assert "do not train the same work" in comparison_text(comparison(gpt3(), other)).replace("\n", " ")


def test_the_plan_text_answers_the_planner(planned: PlanReport) -> None:
    text, best = plan_text(planned), planned.best[0]
    assert best.run is not None and best.run.usd is not None
    flat = text.replace("\n", " ")
    assert f"Best of all: {short_plan(best.plan)}" in flat
    assert f"{planned.evaluated:,} plans were evaluated, {planned.feasible:,} fit" in flat
    assert f"{best.run.steps:,} steps of {64 * 2048:,}" in text
    assert format_quantity(best.run.time, "s") in text and "USD" in text and "kW" in text
    assert planned.misses and "Near misses" in text and "too much)" in text
    slower = planned.best[1]
    loss = slower.behind[0]
    assert f"{'+' if loss.difference > 0 else '-'}{format_quantity(abs(loss.difference), 's', digits=3)}" in flat


def test_what_is_not_known_is_not_available_and_never_zero() -> None:
    text = plan_text(plan("gpt2-small", "tpu-v4i", devices=4, global_batch=16, tokens=10**9))
    assert re.search(r"cost +n/a +the cluster gives no price", text)
    assert re.search(r"power of host and network +n/a", text)
    assert not re.search(r"\b0 USD|\b0 W\b", text)


def test_a_plan_that_fits_nowhere_says_what_is_needed() -> None:
    report = plan("llama3-405b", "h100-sxm", devices=2, global_batch=16)
    text = plan_text(report)
    least = report.misses[0].evaluation.value("memory")
    assert "No plan fits" in text and "memory: needs" in text
    assert f"{least / 1e12:.4g} TB of" in text and "100.0%" in text
    assert "token/s" not in text and "a step," not in text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "t1 p1 d1 b1"),
        (
            {"tensor": 8, "pipeline": 8, "data": 16, "interleave": 3, "sequence_parallel": 1, "zero_stage": 1,
             "recompute": "full"},
            "t8 p8 d16 b1 v3 sp zero1 full",
        ),
        ({"tensor": 2, "data": 4, "recompute": "selective", "overlap_data": 0}, "t2 p1 d4 b1 sel no-overlap-d"),
        (
            {"pipeline": 4, "data": 2, "schedule": "gpipe", "split": "balanced", "overlap_pipeline": 0},
            "t1 p4 d2 b1 gpipe no-overlap-p balanced",
        ),
        ({"tensor": 2, "pipeline": 2, "order": "data-tensor-pipeline"}, "t2 p2 d1 b1"),
        ({"tensor": 2, "pipeline": 2, "order": "pipeline-tensor-data"}, "t2 p2 d1 b1 order-pt"),
    ],
)  # fmt: skip
def test_a_plan_in_short(fields: dict[str, Any], text: str) -> None:
    assert short_plan(Plan(**fields)) == text


def test_a_search_shows_its_best_designs_with_units_and_files(report: SearchReport) -> None:
    text = search_text(report, {"pareto": Path("out/pareto.csv"), "manifest": Path("out/manifest.json")})
    rows = min(5, len(report))
    for row in range(rows):
        values, design = report.result.values[row], report.design(row)
        line = next(line for line in text.splitlines() if re.match(rf" *{row} ", line))
        assert format_quantity(values[0], "token/s") in line
        assert format_quantity(values[2], "m2") in line
        assert short_plan(design.plan).split()[0] in line
    assert "out/pareto.csv" in text and "out/manifest.json" in text
    assert f"{report.result.evaluations:,} designs evaluated" in text.replace("\n", " ")
    assert "die_area <= 500 mm2" in text and "best energy_per_token: row " in text
    assert re.search(r"the budget is used up|every hardware row was looked at", text.replace("\n", " "))


def test_many_objectives_take_several_tables(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    wanted = "[throughput, energy_per_token, die_area, tdp, mfu, throughput_per_area, average_power]"
    text = SEARCH.replace("AREA", "500 mm2").replace("CAPACITY", "8 GB")
    path.write_text(text.replace("[throughput, energy_per_token, die_area]", wanted), encoding="utf-8")
    found = search_text(search(load_search(path), jobs=1), {})
    assert max(map(len, found.splitlines())) <= 100
    assert len([line for line in found.splitlines() if line.startswith("row")]) >= 2
    assert all(found.count(name.replace("_", " ").split()[0]) for name in wanted.strip("[]").split(", "))


def test_rules_that_nobody_broke_are_not_listed(report: SearchReport) -> None:
    text = search_text(report, {})
    for name, count in report.result.failures.items():
        assert (re.search(rf"^  {re.escape(name)} ", text, re.MULTILINE) is not None) == (count > 0), name


@pytest.mark.parametrize(
    ("limits", "rule"), [({"area": "20 mm2"}, "die_area"), ({"capacity": "0.2 GB"}, "memory")], ids=["area", "memory"]
)
def test_nothing_fits_counts_the_reasons_and_shows_the_nearest_miss(
    tmp_path: Path, limits: dict[str, str], rule: str
) -> None:
    found = searched(tmp_path, **limits)
    assert len(found) == 0
    for text in (nothing_fits_text(found), search_text(found, {}), summary_markdown(found)):
        assert "No feasible configuration" in text and "Nearest miss" in text
        assert f"{found.result.failures[rule]:,}" in text
        assert re.search(r"Nearest miss:? plan t\d+ p\d+ d\d+", text)
        if rule == "die_area":
            assert re.search(r"die_area: [\d.]+ mm2, allowed <= 20 mm2 \([\d.]+% too much\)", text)
        else:
            assert re.search(r"memory: needs [\d.]+ [MG]B of 400 MB", text)
        assert "inf" not in text.split("infeasible")[0]


def test_the_summary_has_the_same_numbers_as_the_terminal(report: SearchReport) -> None:
    text = summary_markdown(report)
    assert text.startswith("# tiny\n")
    header = next(line for line in text.splitlines() if line.startswith("| row"))
    body = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(body) == min(5, len(report)) and all(line.count("|") == header.count("|") for line in body)
    assert format_quantity(report.result.values[0][0], "token/s") in body[0]


def test_tables_are_aligned_and_keep_every_word() -> None:
    rows = [
        {"name": "a", "size": "5", "source": "short"},
        {"name": "longer", "size": "1,024", "source": " ".join(["many words that go on"] * 8)},
        {"name": "c", "size": None, "source": "x" * 150},
    ]
    lines = table_text(rows).splitlines()
    assert lines[0].split() == ["name", "size", "source"] and set(lines[1]) == {"-", " "}
    start = lines[0].index("source")
    assert all(line[:start].strip() == "" or line[start - 1] == " " for line in lines)
    assert lines[2].index("5") == lines[3].index("1,024") + 4  # numbers stand on the right
    assert "n/a" in table_text(rows) and max(map(len, lines)) <= 100
    together = "".join(line[start:].strip() for line in lines[2:])
    assert together.count("x") == 151 - 1 + 0 and "many words" in " ".join(lines)
    assert table_text([]) == "(none)"


def test_a_number_is_never_torn_from_its_unit() -> None:
    text = "lost 12.5 ms here and 1,234 GB there, and so on and on " * 6
    lines = wrapped(text, width=40).splitlines() + columns_text(["a", "b"], [["x" * 30, text]], width=60).splitlines()
    assert not any(re.search(r"\d$", line) for line in lines)


def test_a_share_is_never_a_negative_zero() -> None:
    assert [percent(v, 0) for v in (-1e-9, 0.5, -0.101, None)] == ["0%", "50%", "-10%", "n/a"]
    assert percent(-1e-9) == "0.0%"


def score(name: str, **values: Any) -> SimpleNamespace:
    empty = dict.fromkeys(
        ("mape_percent", "median_percent", "p95_percent", "max_percent", "bias_percent", "floor_percent")
    )
    return SimpleNamespace(set=name, **{"n": 9, "n_scored": 0, "calibrated": False, **empty, **values})


def test_a_validation_shows_errors_and_what_was_not_compared() -> None:
    found = SimpleNamespace(
        sets=[
            score("runs/first", n_scored=7, mape_percent=8.31, median_percent=6.6, p95_percent=14.7, max_percent=15.9,
                  bias_percent=-7.0),
            score("runs/second", n=4), score("runs/third", n=5),
        ],
        skipped=[SimpleNamespace(row_id="x", reason="no such chip")] * 3,
    )  # fmt: skip
    text = validation_text(found)
    assert "7 of 18 measured rows compared" in text
    assert re.search(r"runs/first +7 of 9 +8\.3% +6\.6% +14\.7% +15\.9% +-7\.0% +n/a +no", text)
    assert "runs 2 sets of 9 rows" in text
    assert re.search(r"no such chip +3", text)
    assert "No set has a row" in validation_text(SimpleNamespace(sets=[], skipped=[]))


def test_other_chips_are_compared_with_their_names() -> None:
    text = comparison_text(comparison(gpt3(), replace(gpt3(), chip=chip("a100-sxm-40gb"))))
    assert "a100-sxm-80gb" in text and "a100-sxm-40gb" in text
    assert re.search(r"chip\.hbm_stack_bandwidth +[\d.]+ GB/s +[\d.]+ GB/s", text)


def test_rows_whose_columns_agree_are_told_apart_by_what_differs_in_their_chips() -> None:
    one = a100()
    assert _kinds([one, replace(one, shared_sram=1e6)]) == ["", ""]
    other = replace(one, process="5nm", noc="mesh", power_cap=300.0, dies=2)
    assert _kinds([one, other]) == ["7nm, no NoC, 1 die, no cap", "5nm, mesh NoC, 2 dies, cap 300 W"]
