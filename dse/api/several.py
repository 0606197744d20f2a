"""Searches one chip for several networks beside one chip for each: `dse search` of a file with `workloads:`.

First each network is searched alone (out/networks/NAME, a search like any other); then the space is searched for one
chip for all, from the best chips of each on.  Both continue where they were interrupted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.base.errors import ConfigError, Problem
from dse.base.files import file_name, write_atomic
from dse.evaluation.design import Design
from dse.exploration.run import Progress, SearchResult, Settings
from dse.exploration.several import REGRET, SeveralProblem, regrets
from dse.inputs.spec import SearchSpec
from dse.present.text.words import hardware_words
from dse.record.columns import heading, human_unit

#: Chips of each network's own front from which the common search starts.
STARTS = 8


@dataclass(frozen=True, eq=False)
class SeveralReport:
    """One chip for several networks, and one each.

    alone    the search of each network by its name
    result   the front of common chips: means over the networks of each objective, and the worst regret
    """

    spec: SearchSpec
    problem: SeveralProblem
    alone: dict[str, Any]
    result: SearchResult

    def __len__(self) -> int:
        return len(self.result.rows)

    def designs(self, row: int) -> dict[str, Design]:
        """A common chip of the front with the plan of each network."""
        plans = self.problem.plans(self.result.plans[row])
        return {
            name: part.design(self.result.rows[row], plan)
            for name, part, plan in zip(self.problem.names, self.problem.parts, plans, strict=True)
        }

    def values(self, row: int) -> np.ndarray:
        """Objectives of each network on a common chip of the front (K, J)."""
        outcomes = [part.evaluate(self.result.rows[row : row + 1])[0] for part in self.problem.parts]
        return self.problem.values_of(outcomes)[0]

    def regret(self, row: int) -> np.ndarray:
        """How much worse than its own best chip each network does on a common chip (K,)."""
        first = self.problem.parts[0].objectives[0]
        return np.asarray(regrets(self.values(row)[:, 0], self.problem.best, first.sign))

    @property
    def best_mean(self) -> int:
        """The front's chip with the best mean of the first objective."""
        return int(np.argmin(self.result.values[:, 0] * self.problem.objectives[0].sign))

    @property
    def least_regret(self) -> int:
        """The front's chip whose worst network loses least."""
        return int(np.argmin(self.result.values[:, -1]))


def search_several(
    spec: SearchSpec, *, out: str | Path | None = None, jobs: int | None = None, storage: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> SeveralReport:  # fmt: skip
    """Each network alone, then one chip for all; every search has the budget and seed of the file.

    KeyboardInterrupt where a search was interrupted: nothing finished is lost, and the same call continues."""
    from dse.api.search import preset_rows, problem_of, run_with, search

    names = [workload.network.name for workload in spec.workloads]
    problems = []
    if len(set(names)) != len(names):
        problems.append(Problem(", ".join(names), "networks of different names", "workloads", spec.path))
    if spec.search.mode == "joint":
        problems.append(Problem("joint", "nested, exhaustive or auto with several workloads", "search.mode", spec.path))
    if problems:
        raise ConfigError(problems)
    folder = Path(out) if out is not None else None
    alone: dict[str, Any] = {}
    for workload in spec.workloads:
        name = workload.network.name
        one = replace(spec, name=f"{spec.name}-{name}", workloads=(workload,))
        own = folder / "networks" / file_name(name) if folder else None
        alone[name] = search(one, out=own, jobs=jobs, storage=storage, progress=progress)
        if alone[name].result.stopped == "interrupted":
            raise KeyboardInterrupt  # what is finished is recorded, and the same call goes on there
    lacking = [name for name, report in alone.items() if not len(report)]
    if lacking:
        found = Problem(", ".join(lacking), "networks that fit some chip of the space", "workloads", spec.path)
        raise ConfigError([found])
    best = [float(report.result.values[0, 0]) for report in alone.values()]
    parts = [problem_of(replace(spec, workloads=(workload,))) for workload in spec.workloads]
    inner = _inner(spec)
    problem = SeveralProblem(
        parts, [workload.weight for workload in spec.workloads], best, inner=inner, name=spec.name,  # type: ignore[arg-type]
    )  # fmt: skip
    starts = [report.result.rows[:STARTS] for report in alone.values()]
    named = preset_rows(spec, problem.space, joint=False)
    chosen = spec.search
    settings = Settings(
        mode="search" if chosen.mode == "nested" else chosen.mode, sampler=chosen.sampler, budget=chosen.budget,
        seed=chosen.seed, timeout=chosen.timeout,
        presets=np.unique(np.concatenate([*starts, *([named] if named is not None else [])]), axis=0), storage=storage,
    )  # fmt: skip
    common = folder / "common" if folder else None
    result = run_with(problem, settings, jobs=jobs, out=common, progress=progress)
    return SeveralReport(spec, problem, alone, result)


def _inner(spec: SearchSpec) -> int:
    return spec.objectives.index(spec.search.inner_objective) if spec.search.inner_objective else 0


# Outputs ----------------------------------------------------------------------------------------------------------


def network_rows(report: SeveralReport) -> list[dict[str, Any]]:
    """A row a network: its best value alone, on the chip of the best mean and on that of the least regret."""
    first = report.problem.objectives[0]
    size, unit = human_unit(first.name, first.unit)
    mean, least = report.best_mean, report.least_regret
    own = dict(zip(report.problem.names, report.problem.best, strict=True))
    by = {row: (report.values(row)[:, 0], report.regret(row)) for row in {mean, least}}
    label = heading(first.name, unit)
    return [
        {
            "network": name,
            "weight": float(report.problem.weights[i]),
            f"own chip {label}": own[name] / size,
            f"best mean {label}": float(by[mean][0][i]) / size,
            "regret of best mean [%]": 100.0 * float(by[mean][1][i]),
            f"least regret {label}": float(by[least][0][i]) / size,
            "regret of least regret [%]": 100.0 * float(by[least][1][i]),
        }
        for i, name in enumerate(report.problem.names)
    ]


def front_rows(report: SeveralReport) -> list[dict[str, Any]]:
    """A row a common chip of the front: means, worst regret, regret of each network, and the hardware."""
    units = {variable.name: variable.unit for variable in report.problem.space.variables}
    found = []
    for row in range(len(report)):
        cells: dict[str, Any] = {}
        for item, value in zip(report.problem.objectives, report.result.values[row], strict=True):
            size, unit = human_unit(item.name, item.unit) if item.name != REGRET else (0.01, "%")
            cells[heading(item.name, unit)] = float(value) / size
        for name, value in zip(report.problem.names, report.regret(row), strict=True):
            cells[f"regret {name} [%]"] = 100.0 * float(value)
        hardware = report.problem.space.values(report.result.rows[row])
        found.append(cells | {heading(name, units[name]): value for name, value in hardware.items()})
    return found


def write_several(report: SeveralReport, out: str | Path) -> dict[str, Path]:
    """`common.csv` (front of common chips), `networks.csv` (one chip each beside them), `common.json` (exact designs);
    and the usual files of every network's own search."""
    import pandas

    from dse.inputs.serialize import design_to_plain
    from dse.record.write import write_outputs

    folder = Path(out)
    paths = {}
    for name, rows in (("common", front_rows(report)), ("networks", network_rows(report))):
        text = io.StringIO()
        pandas.DataFrame(rows).to_csv(text, index=False)
        paths[f"{name}.csv"] = folder / f"{name}.csv"
        write_atomic(paths[f"{name}.csv"], text.getvalue())
    exact = [
        {
            "row": row,
            "objectives": dict(
                zip((o.name for o in report.problem.objectives), report.result.values[row].tolist(), strict=True)
            ),
            "designs": {name: design_to_plain(design) for name, design in report.designs(row).items()},
        }
        for row in range(len(report))
    ]
    paths["common.json"] = folder / "common.json"
    write_atomic(paths["common.json"], json.dumps({"search": report.spec.name, "common": exact}, indent=1) + "\n")
    for name, one in report.alone.items():
        write_outputs(one, folder / "networks" / file_name(name))
    return paths


def several_text(report: SeveralReport, paths: dict[str, Path] | None = None) -> str:
    """What a terminal shows: the two chips that matter, every network on them, and where the files are."""
    from dse.present.text.tables import table_text

    first = report.problem.objectives[0]
    if not len(report):
        return "No chip holds all networks within the limits."
    mean, least = report.best_mean, report.least_regret
    lines = [
        f"{report.spec.name}: one chip for {len(report.problem.names)} networks, beside one chip for each.",
        f"{len(report)} common chips on the front over the weighted geometric mean of "
        f"{', '.join(o.name for o in report.problem.objectives[:-1])} and the worst regret in {first.name}.",
        "",
        _chip_line(report, mean, f"Best mean {first.name}"),
        *([] if least == mean else [_chip_line(report, least, "Least worst regret")]),
        "",
        table_text([
            {key: f"{value:,.4g}" if isinstance(value, float) else value for key, value in row.items()}
            for row in network_rows(report)
        ]),
        "",
        "regret: how much less of it a network gets than on the best chip found for it alone (negative: the common",
        "search found a better one).",
    ]  # fmt: skip
    if paths:
        lines += ["", "Files", *(f"  {name}  {path}" for name, path in paths.items())]
    return "\n".join(lines)


def _chip_line(report: SeveralReport, row: int, title: str) -> str:
    chip = hardware_words(report.problem.space, report.result.rows[row])
    return f"{title} (worst regret {100.0 * float(report.result.values[row, -1]):.1f}%): {chip}"
