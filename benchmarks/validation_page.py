"""Writes docs/validation.md: how far predictions are from measurements, and what was not compared.

    python benchmarks/validation_page.py [--data DIR] [--out docs/validation.md]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dse.validation import Compared, Fit, Score, Validation, residuals, validate

#: What is known of the errors; each was seen by comparing sums of parts with measured ones.
CAUSES = (
    "- Runs of small networks are too fast in the model. Their measured time is the host's: about 3 ms a layer and",
    "  micro-batch with full recomputation, however little the device has to do. The stack's host time a kernel is",
    "  an uncalibrated constant, several times too small for it; the error vanishes as micro-batch and width grow.",
    "- Deep pipelines without sequence parallelism are too slow in the model. Megatron-LM sends each device's share",
    "  of a boundary and gathers it on the other side (Narayanan et al. 2021, section 4.1); the model sends it whole.",
    "- Large runs with few stages are 6 to 8 percent too fast: what a device sustains in long matrix products and",
    "  element-wise passes is not calibrated yet.",
    "- Measured times of single kernels include their launch by the host, about 30 us, which the model does not add.",
    "- All-reduces of a few MB are too fast in the model: bandwidth that grows with message size is not in it yet.",
)
TRAITS = ("tensor", "micro_batch", "hidden", "pipeline")


def main() -> None:
    """Compares and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("DSE_DATA"), help="folder of measured tables")
    parser.add_argument("--out", default="docs/validation.md", help="page to write")
    chosen = parser.parse_args()
    shipped = validate(rows=True)
    more = validate(chosen.data, rows=True) if chosen.data else None
    Path(chosen.out).write_text("\n".join(page(shipped, more)) + "\n", encoding="utf-8")


def page(shipped: Validation, more: Validation | None) -> list[str]:
    """The lines of the page."""
    lines = [
        "# Validation",
        "",
        "This page is written by `python benchmarks/validation_page.py`, with `--data DIR` for the second half.",
        "Constants are uncalibrated: data sheets, and the ranges stated in `hw_models/data/stacks.csv`. Errors are",
        "predicted/measured - 1 in percent; *floor* is the spread of rows whose inputs are equal, below which no model",
        "can be expected to go.",
        "",
        "## The table the product ships",
        "",
        "`dse validate` compares 18 runs of Megatron-LM on A100-80GB: Narayanan et al. 2021 (arXiv 2104.04473,",
        "table 1) and Korthikanti et al. 2022 (arXiv 2205.05198, table 5). The times of the first are computed back",
        "from the printed TFLOP/s by the paper's own formula; the second prints times.",
        "",
        *score_table(shipped.sets),
        "",
        *row_table(shipped.rows),
    ]
    lines += ["", "## Known causes", "", *CAUSES]
    if more is not None:
        lines += ["", "## Measured tables", "", *score_table([score for score in more.sets if score.n_scored])]
        empty = [score for score in more.sets if not score.n_scored]
        lines += ["", f"{len(empty)} sets of {sum(score.n for score in empty)} rows have no scored row."]
        lines += ["", "### Rows that were not scored", "", "| rows | reason |", "|---|---|"]
        lines += [f"| {count} | {reason} |" for reason, count in more.reasons().items()]
        lines += ["", "### Memory of measured runs", "", *fit_lines(more.fit)]
        lines += ["", "### What the residuals depend on", ""]
        for name in [score.set for score in more.sets if score.n_scored >= 50 and "runs" in score.set]:
            for trait in TRAITS:
                lines += [*residual_table(name, trait, [row for row in more.rows if row.set == name]), ""]
    return lines


def score_table(scores: list[Score] | tuple[Score, ...]) -> list[str]:
    """A row a set."""
    lines = ["| set | rows | scored | mean | median | p95 | max | bias | floor |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for s in scores:
        numbers = (s.mape_percent, s.median_percent, s.p95_percent, s.max_percent)
        cells = [shown(value) for value in numbers] + [shown(s.bias_percent, sign=True), shown(s.floor_percent)]
        lines.append(f"| {s.set} | {s.n} | {s.n_scored} | {' | '.join(cells)} |")
    return lines


def shown(value: float | None, *, sign: bool = False) -> str:
    """A percentage of one decimal, n/a where there is none."""
    if value is None:
        return "n/a"
    return f"{value:+.1f}" if sign else f"{value:.1f}"


def row_table(rows: tuple[Compared, ...]) -> list[str]:
    """A row a run."""
    lines = ["| run | model | devices | tensor | pipeline | recompute | predicted [s] | measured [s] | error [%] |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        named = [str(row.traits[name]) for name in ("model", "devices", "tensor", "pipeline", "recompute")]
        cells = [row.row_id, *named, f"{row.predicted:.2f}", f"{row.measured:.2f}", f"{row.error_percent:+.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def fit_lines(fit: Fit) -> list[str]:
    """The share of runs predicted to fit, misses, and what is left out."""
    lines = [f"{fit.n_fit} of {fit.n} complete runs ({100 * (fit.share or 0):.1f}%) are predicted to fit. Misses:", ""]
    lines += [f"- {name} ({where}): {share:.3f} of the memory" for name, where, share in fit.misses] or ["- none"]
    lines += ["", "Runs that do not say how their optimizer was sharded; read as not sharded, they do not fit:", ""]
    lines += [f"- {name} ({where}): {share:.2f} of the memory" for name, where, share in fit.unstated] or ["- none"]
    lines += ["", "Dense runs with a measured time whose plan is not in the product yet:", ""]
    return lines + [f"- {count}: {reason}" for reason, count in fit.without_plan.items()]


def residual_table(name: str, trait: str, rows: list[Compared]) -> list[str]:
    """Mean error and spread by the value of a trait."""
    lines = [f"`{name}` by {trait.replace('_', ' ')}:", "", "| value | rows | bias | spread |", "|---|---|---|---|"]
    for item in residuals(rows, trait):
        bias, spread = shown(item["bias_percent"], sign=True), shown(item["spread_percent"])
        lines.append(f"| {item['value']} | {item['n']} | {bias} | {spread} |")
    return lines


if __name__ == "__main__":
    main()
