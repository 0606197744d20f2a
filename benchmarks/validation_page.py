"""Writes docs/validation.md: how far predictions are from measurements, and what was not compared.

python benchmarks/validation_page.py [--data DIR] [--leave-one-out] [--out docs/validation.md]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

from dse.atomic import write_atomic
from dse.calibration import LeftOut, leave_one_out
from dse.validation import Compared, Fit, Score, Validation, fitted, residuals, validate
from dse.validation_report import SUMMARY_WORDS, coverage
from hw_models.stacks import names

#: What is known of the errors; each was seen by comparing sums of parts with measured ones.
CAUSES = (
    "- Single-node steps of Megatron-DeepSpeed: a layer takes 2.8 to 5 ms wherever its device work is small,",
    "  without order in width or micro-batch, and the error is between these situations (+29% at width 2048, tensor",
    "  degree 4, micro-batch 2; -15% at degree 8, micro-batch 1). The fitted rows hold one width and one depth",
    "  only.",
    "- Multi-node steps of Megatron-DeepSpeed: half of the rows are within 5.5%. The mean comes from a few: one",
    "  takes twice the time of its neighbour with half the micro-batch (the same work), and those with tensor",
    "  degree 2 are 16 to 37% slower than any plan beside them, one faster with larger micro-batches than with",
    "  smaller ones.",
    "- torchtitan: equal columns with and without compilation differ by 15%; products with a scale a row are slower",
    "  than the doubled casts that the model counts; attention of context ranks takes about 1.4 times its share.",
    "- MPT-13b on A100-40GB is 10% too fast with small micro-batches: memory is nearly full there, and what the",
    "  allocator then costs is not in the model. Its larger micro-batches on A100-80GB are 5 to 10% too slow.",
    "- DeepSpeed ZeRO-3 on 1,536 and more devices is 7 to 10% too fast: two steps are all there is to fit.",
    "- Attention kernels of libraries before FlashAttention-2 depend on the width of a head in ways one constant",
    "  cannot tell.",
)
TRAITS = ("tensor", "micro_batch", "hidden", "pipeline", "devices", "zero_stage", "device", "stack", "recompute")
#: Rows from which a set's residuals are worth a table, and most values of a trait in one.
MANY, VALUES = 20, 12


def main() -> None:
    """Compares and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("DSE_DATA"), help="folder of measured tables")
    parser.add_argument("--leave-one-out", action="store_true", help="fit once more without each pair (minutes)")
    parser.add_argument("--out", default="docs/validation.md", help="page to write")
    chosen = parser.parse_args()
    shipped = validate(rows=True)
    more = validate(chosen.data, rows=True) if chosen.data else None
    left = leave_one_out(chosen.data, say=print) if chosen.data and chosen.leave_one_out else ()
    write_atomic(chosen.out, "\n".join(page(shipped, more, left)) + "\n")


def page(shipped: Validation, more: Validation | None, left: Sequence[LeftOut] = ()) -> list[str]:
    """The lines of the page."""
    pairs = ", ".join(f"{name} on {device}" for name, device in sorted(fitted()) if name in names()) or "none"
    lines = [
        "# Validation",
        "",
        "This page is written by `python benchmarks/validation_page.py`, with `--data DIR` for the measured tables and",
        "`--leave-one-out` for pairs that were kept out of the fit. Errors are predicted/measured - 1 in percent;",
        "*floor* is the spread of rows whose inputs are equal, below which no model can be expected to go; *coverage*",
        "is the scored share of rows with every input. Rows that constants were fitted to are not scored.",
        "",
        "Constants are *calibrated* for these pairs of software and device, from data sheets and the ranges of",
        f"`hw_models/data/stacks.csv` (*zero-shot*) elsewhere: {pairs}.",
        "",
    ]
    if more is not None:
        lines += ["## All measured training runs", "", *summary_table(more), ""]
        lines += left_out_lines(left)
    lines += [
        "## The table the product ships",
        "",
        "`dse validate` compares 18 runs of Megatron-LM on A100-80GB: Narayanan et al. 2021 (arXiv 2104.04473,",
        "table 1) and Korthikanti et al. 2022 (arXiv 2205.05198, table 5). The times of the first are computed back",
        "from the printed TFLOP/s by the paper's own formula; the second prints times.",
        "",
        *score_table(shipped, shipped.sets),
        "",
        *row_table(shipped.rows or ()),
    ]
    lines += ["", "## Known causes", "", *CAUSES]
    if more is not None:
        tables = [score for score in more.sets if score.set not in SUMMARY_WORDS]
        lines += ["", "## Measured tables", "", *score_table(more, [score for score in tables if score.n_scored])]
        empty = [score for score in tables if not score.n_scored]
        lines += ["", f"{len(empty)} sets of {sum(score.n for score in empty)} rows have no scored row."]
        lines += ["", "### Rows that were not scored", "", "| rows | reason |", "|---|---|"]
        lines += [f"| {count} | {reason} |" for reason, count in more.reasons().items()]
        lines += ["", "### Memory of measured runs", "", *fit_lines(more.fit)]
        lines += ["", "### What the residuals depend on", ""]
        for name in [score.set for score in tables if score.n_scored >= MANY and "runs" in score.set]:
            for trait in TRAITS:
                lines += residual_table(name, trait, [row for row in more.rows or () if row.set == name])
    return lines


def summary_table(found: Validation) -> list[str]:
    """The sets over all training runs, in words."""
    named = [
        replace(score, set=SUMMARY_WORDS[score.set]) for score in found.sets if score.set in SUMMARY_WORDS and score.n
    ]
    complete = {SUMMARY_WORDS[name]: count for name, count in found.complete.items() if name in SUMMARY_WORDS}
    return score_table(replace(found, complete=complete), named)


def left_out_lines(left: Sequence[LeftOut]) -> list[str]:
    """Each pair of software and device predicted without its rows in the fit."""
    if not left:
        return []
    lines = [
        "### Pairs that were left out of the fit",
        "",
        "Each pair of software and device in turn was left out of the calibration, and its rows were predicted:",
        "constants of the device come from other software on it, constants of the software from other devices, else",
        "from generic ones. *In the fit*: with its calibration rows; *as stated*: nothing fitted anywhere.",
        "",
        "| software | device | rows | mean, left out | bias | mean, in the fit | mean, as stated |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in left:
        numbers = [shown(item.mape), shown(item.bias, sign=True), shown(item.fitted_mape), shown(item.stated_mape)]
        lines.append(f"| {item.stack} | {item.device} | {item.n} | {' | '.join(numbers)} |")
    rows = sum(item.n for item in left)
    by_row, by_pair = sum(item.n * item.mape for item in left) / rows, sum(item.mape for item in left) / len(left)
    return [*lines, "", f"Mean over the {rows} rows {by_row:.1f}%, over the {len(left)} pairs {by_pair:.1f}%.", ""]


def score_table(found: Validation, scores: Sequence[Score]) -> list[str]:
    """A row a set."""
    lines = ["| set | rows | scored | coverage | mean | median | p95 | max | bias | floor | constants |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|"]
    for s in scores:
        numbers = (s.mape_percent, s.median_percent, s.p95_percent, s.max_percent)
        cells = [shown(value) for value in numbers] + [shown(s.bias_percent, sign=True), shown(s.floor_percent)]
        share = coverage(found, s)
        known = "calibrated" if s.calibrated else "zero-shot" if s.n_scored else ""
        head = f"| {s.set} | {s.n} | {s.n_scored} | {'n/a' if share is None else f'{share:.0f}%'}"
        lines.append(f"{head} | {' | '.join(cells)} | {known} |")
    return lines


def shown(value: float | None, *, sign: bool = False) -> str:
    """A percentage of one decimal, n/a where there is none."""
    if value is None:
        return "n/a"
    return f"{value:+.1f}" if sign else f"{value:.1f}"


def row_table(rows: Sequence[Compared]) -> list[str]:
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
    lines += [
        "",
        "Of the rows of other splits, many of which do not say how their optimizer was sharded and are read as not",
    ]
    lines += ["sharded, these do not fit:", ""]
    lines += [f"- {name} ({where}): {share:.2f} of the memory" for name, where, share in fit.unstated] or ["- none"]
    lines += ["", "Dense runs with a measured time whose plan is not in the product yet:", ""]
    return lines + [f"- {count}: {reason}" for reason, count in fit.without_plan.items()]


def residual_table(name: str, trait: str, rows: Sequence[Compared]) -> list[str]:
    """Mean error and spread by the value of a trait; nothing where it has one value, or very many."""
    found = residuals(rows, trait)
    if not 1 < len(found) <= VALUES:
        return []
    lines = [f"`{name}` by {trait.replace('_', ' ')}:", "", "| value | rows | bias | spread |", "|---|---|---|---|"]
    for item in found:
        bias, spread = shown(item["bias_percent"], sign=True), shown(item["spread_percent"])
        lines.append(f"| {item['value'] or 'not said'} | {item['n']} | {bias} | {spread} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
