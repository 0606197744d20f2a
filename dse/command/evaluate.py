"""`dse evaluate`: metrics of one design, or why it cannot run."""

from __future__ import annotations

from dse.api.evaluation import evaluate
from dse.command.designs import one_design
from dse.command.exit_status import NOTHING_FITS
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.plain import evaluation_plain
from dse.present.text.evaluation import evaluation_text

__all__ = ["run"]


def run(options: Options) -> int:
    """Metrics of one design, or why it cannot run."""
    design = one_design(options)
    result = evaluate(design)
    if options.json:
        print_json(evaluation_plain(result, design, options.steps))
    else:
        print(evaluation_text(result, design, options.steps))
    return 0 if bool(result.feasible[0]) else NOTHING_FITS
