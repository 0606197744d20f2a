"""One chip for several networks as text: the two chips that matter, and every network on them."""

from __future__ import annotations

from pathlib import Path

from dse.present.text.tables import table_text
from dse.present.text.words import hardware_words
from dse.problem.several import SeveralReport, network_rows

__all__ = ["several_text"]


def several_text(report: SeveralReport, paths: dict[str, Path] | None = None) -> str:
    """What a terminal shows: the two chips that matter, every network on them, and where the files are."""
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
