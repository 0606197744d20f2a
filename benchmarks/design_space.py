"""Rebuilds the design-space page: searches three networks under 800 mm2 and 700 W beside known chips, and one chip for
the eleven networks of WHAM beside one chip for each.

    python benchmarks/design_space.py [--budget N] [--only NAME] [--out docs/design_space.md]

Tables between the markers of docs/design_space.md and docs/figures/design_space_*.png are made anew; the words around
them are not touched.  About a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.api.search import SearchReport, search
from dse.api.several import search_several
from dse.base.files import write_atomic
from dse.evaluation.design import Design
from dse.evaluation.evaluate import evaluate
from dse.inputs.spec import Constraint
from dse.inputs.yaml.load import load_search
from dse.present.figures.data import reference_points
from dse.present.text.tables import markdown_table
from dse.problem.several import network_rows
from dse.record.write import write_outputs

DOCS = Path(__file__).parent.parent / "docs"
SEARCHES = ("gpt3_175b", "llama3_70b", "resnet50_one_chip")
#: One chip for several networks beside one for each.
COMMON = "wham_eleven"
#: Known chips that every figure shows, evaluated by the same model with their best plans.
REFERENCES = ("tpu-v4", "a100-sxm-80gb", "h100-sxm")
LIMITS = (Constraint("die_area", "<=", 800e-6), Constraint("tdp", "<=", 700.0))
SHOWN = (
    ("samples/s", "samples_per_second", 1.0), ("J a sample", "energy_per_sample", 1.0), ("MFU [%]", "mfu", 0.01),
    ("die [mm2]", "die_area", 1e-6), ("TDP [W]", "tdp", 1.0), ("chip cost [USD]", "chip_cost", 1.0),
)  # fmt: skip


def searched(name: str, budget: int | None, folder: Path) -> SearchReport:
    """The search of that name within the page's limits, its plot copied to the figures."""
    from hw_models.devices import chip

    spec = load_search(name)
    spec = replace(spec, constraints=LIMITS, presets=tuple(chip(item) for item in REFERENCES))
    report = search(spec, out=folder / name, budget=budget)
    shutil.copy(write_outputs(report, folder / name)["pareto.png"], DOCS / "figures" / f"design_space_{name}.png")
    return report


def chosen(report: SearchReport) -> dict[str, Design]:
    """The fastest design of the front, the one of least energy, the smallest, and the best throughput per area."""
    values = report.result.values
    signs = np.array([objective.sign for objective in report.problem.objectives])
    best = (values * signs).argmin(axis=0)
    per_area = int(np.argmax(values[:, 0] / values[:, 2]))
    rows = {"fastest": int(best[0]), "least energy": int(best[1]), "most per area": per_area, "smallest": int(best[2])}
    return {title: report.design(row) for title, row in rows.items()}


def described(title: str, design: Design) -> dict[str, str]:
    """A row of the table: what a design does and what it is."""
    result = evaluate(design)
    batch = float(design.workload.global_batch)
    metrics = {name: result.value(name) for _, name, _ in SHOWN if name in result.metrics}
    metrics["energy_per_sample"] = result.value("energy_per_step") / batch
    found = {"design": title} | {label: f"{metrics[name] / size:,.4g}" for label, name, size in SHOWN}
    return found | _chip_cells(design) | {"plan": _plan_words(design)}


def _chip_cells(design: Design) -> dict[str, str]:
    chip = design.chip
    return {
        "arrays": f"{chip.array_count:.0f} x {chip.array_rows:.0f} x {chip.array_columns:.0f}",
        "clock [GHz]": f"{chip.clock / 1e9:.2f}",
        "lanes": f"{chip.vector_lanes:,.0f}",
        "SRAM [MiB]": f"{chip.shared_sram / 2**20:.0f}",
        "HBM [TB/s]": f"{chip.hbm_bandwidth / 1e12:.2f}",
        "HBM [GiB]": f"{chip.hbm_capacity / 2**30:.0f}",
        "links [GB/s]": f"{chip.scale_up_bandwidth / 1e9:.0f}",
    }


def _plan_words(design: Design) -> str:
    plan = design.plan
    words = [f"t{plan.tensor:.0f} p{plan.pipeline:.0f} d{plan.data:.0f} b{plan.micro_batch:.0f}"]
    words += [f"c{plan.context:.0f}"] if plan.context > 1 else []
    words += [f"zero{plan.zero_stage:.0f}"] if plan.zero_stage else []
    named = plan.named()
    words += [str(named["recompute"])] if named["recompute"] != "none" else []
    return " ".join(words)


def section(report: SearchReport) -> str:
    """The tables of one search."""
    rows: list[dict[str, Any]] = [described(title, design) for title, design in chosen(report).items()]
    rows += [described(f"{name} (known chip)", design) for name, design in reference_points(report).items()]
    headings = list(rows[0])
    result = report.result
    counted = (
        f"{result.hardware_rows:,} chips, {result.evaluations:,} designs evaluated, {result.feasible:,} feasible; "
        f"{len(report):,} on the front."
    )
    return "\n\n".join([counted, markdown_table(headings, [[str(row[name]) for name in headings] for row in rows])])


def common_section(budget: int | None, folder: Path) -> str:
    """One chip for several networks: the two that matter, and every network on them."""
    spec = load_search(COMMON)
    spec = replace(spec, search=replace(spec.search, budget=budget or spec.search.budget))
    report = search_several(spec, out=folder / COMMON)
    rows = [
        {key: f"{value:,.4g}" if isinstance(value, float) else str(value) for key, value in row.items()}
        for row in network_rows(report)
    ]
    evaluated = report.result.evaluations + sum(one.result.evaluations for one in report.alone.values())
    chips = {"best mean": report.best_mean, "least regret": report.least_regret}
    hardware = []
    for title, row in chips.items():
        design = next(iter(report.designs(row).values()))
        worst = 100.0 * float(report.result.values[row, -1])
        hardware.append({"chip": title, "worst regret [%]": f"{worst:.1f}"} | _chip_cells(design))
    tables = [markdown_table(list(table[0]), [list(row.values()) for row in table]) for table in (hardware, rows)]
    return "\n\n".join([f"{evaluated:,} designs evaluated; {len(report):,} common chips on the front.", *tables])


def main() -> None:
    """Search, and put figures and tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=None, help="chips a search (default: as in its file)")
    names = (*SEARCHES, COMMON)
    parser.add_argument("--only", choices=names, action="append", help="searches to rebuild (default: all)")
    parser.add_argument("--out", type=Path, default=DOCS / "design_space.md")
    options = parser.parse_args()
    page = options.out.read_text(encoding="utf-8")
    for name in options.only or names:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            text = common_section(options.budget, place) if name == COMMON else section(
                searched(name, options.budget, place)
            )
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{text}\n{end}{after}"
        write_atomic(options.out, page)
        print(name, "done", flush=True)


if __name__ == "__main__":
    main()
