"""Writes docs/validation.md: how far predictions are from measurements, and what was not compared.

python benchmarks/validation_page.py [--data DIR] [--leave-one-out] [--out docs/validation.md]
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dse.base.files import write_atomic
from dse.evidence.calibration.calibrate import LeftOut, leave_one_out
from dse.evidence.validation.networks import ALL_NETWORKS, NETWORKS, scaling_error
from dse.evidence.validation.scores import Compared, Score, fitted, residuals
from dse.evidence.validation.validate import Fit, Validation, validate
from dse.present.html.validation import SUMMARY_WORDS, coverage
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
#: The same of networks other than measured runs of transformers.
NETWORK_CAUSES = (
    "- Depthwise convolutions with long filters (QuartzNet: 33 to 87 taps) take up to twice as long as the six",
    "  instructions a multiply-add that the model counts on vector lanes; EfficientNet on A100 is 10 to 20% too fast.",
    "- TensorFlow without compilation runs recurrent layers step by step and relative attention piece by piece: GNMT",
    "  and Transformer-XL are 20 to 50% too fast; the same networks under PyTorch are not.",
    "- SSD under TensorFlow is fed and its boxes are assigned on the host, which is not in the model.",
    "- One-dimensional convolutions of Jasper in fp32 run faster than their multiply-adds allow at the peak rate: the",
    "  library transforms them, which the model does for 3 x 3 only.",
    "- Rows with equal inputs under one framework agree within a percent or two; rows that share all that the table",
    "  says but not framework and variant differ by 12% in the median.",
)
NETWORK_TRAITS = ("framework", "device", "precision", "devices", "sequence", "system")
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
        "from the printed TFLOP/s by the paper's own formula; the second prints times. Beside them stand trainings of",
        "GoogLeNet: on 1 to 16 P100 (Xu and Dandapanthu 2016), whose stack is fitted to the rows of one and of eight",
        "devices, and on one K20 in 21 days (You et al. 2017, arXiv 1708.02983), taken as 90 epochs of 60 to 90.",
        "",
        *score_table(shipped, shipped.sets),
        "",
        *row_table([row for row in shipped.rows or () if not row.set.startswith(NETWORKS)]),
        "",
        *network_table([row for row in shipped.rows or () if row.set.startswith(NETWORKS)]),
    ]
    lines += network_lines(more) if more is not None else []
    lines += ["", "## Known causes", "", *CAUSES]
    if more is not None:
        tables = [score for score in more.sets if score.set not in SUMMARY_WORDS and not score.set.startswith(NETWORKS)]
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


def network_lines(found: Validation) -> list[str]:
    """Networks other than runs of transformers: errors, scaling, what is not identified, and why."""
    scores = [score for score in found.sets if score.set.startswith(NETWORKS) and score.n_scored]
    whole = [replace(score, set="all networks") for score in found.sets if score.set == ALL_NETWORKS]
    named = replace(found, complete=found.complete | {"all networks": found.complete.get(ALL_NETWORKS, 0)})
    lines = [
        "", "## Networks", "",
        "Throughputs of convolutional, recurrent and recommendation networks and of translators, by network and",
        "framework: rows of the split `validation` whose network, batch, image and sequence are identified",
        "(`dse/evidence/data/network_facts.csv` says from which source). Rows that share every input the table states",
        "differ by",
        "12% in the median: no model that knows the table alone can be expected to go below that.", "",
        *score_table(named, [*whole, *scores]), "",
        "Throughput of a device among several over that of one alone, of the same set, predicted less measured:", "",
        *scaling_table(found), "", "Not identified, and rows of another kind:", "", "| rows | reason |", "|---|---|",
    ]  # fmt: skip
    reasons = Counter(item.reason for item in found.skipped if item.set.startswith(NETWORKS))
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common() if "row: " not in reason]
    lines += ["", "Known causes of errors:", "", *NETWORK_CAUSES, ""]
    rows = [row for row in found.rows or () if row.set.startswith(NETWORKS)]
    for trait in NETWORK_TRAITS:
        lines += residual_table("networks", trait, rows)
    return lines


def network_table(rows: Sequence[Compared]) -> list[str]:
    """A row a training, in samples a second."""
    lines = ["| run | framework | device | devices | predicted [images/s] | measured [images/s] | error [%] |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in rows:
        samples = float(row.traits["batch"]) * float(row.traits["devices"])
        named = [str(row.traits[name]) for name in ("framework", "device", "devices")]
        rates = [f"{samples / seconds:.0f}" for seconds in (row.predicted, row.measured)]
        # the error of a rate, not of the time
        error = 100.0 * (row.measured / row.predicted - 1.0)
        lines.append(f"| {' | '.join([row.row_id, *named, *rates, f'{error:+.1f}'])} |")
    return lines


def scaling_table(found: Validation) -> list[str]:
    """Errors of scaling efficiency by number of devices [percentage points]."""
    lines = ["| devices | rows | predicted | measured | median error | mean error | bias |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for devices in (*sorted({item.devices for item in found.scaling}), 0):
        own = [item for item in found.scaling if devices in (0, item.devices)]
        errors = scaling_error(own)
        if errors is None:
            continue
        shares = [sum(getattr(item, name) for item in own) / len(own) for name in SHARES]
        cells = [*(f"{share:.1f}" for share in shares), f"{errors[0]:.1f}", f"{errors[1]:.1f}", f"{errors[2]:+.1f}"]
        lines.append(f"| {devices or 'all'} | {len(own)} | {' | '.join(cells)} |")
    return lines


SHARES = ("predicted_percent", "measured_percent")


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
