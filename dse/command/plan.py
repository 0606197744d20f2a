"""`dse plan`: the chip is fixed; the best plans, and why the others lose."""

from __future__ import annotations

from typing import Any

from dse.base.units import read_number
from dse.command.designs import flags_of
from dse.command.exit_status import NOTHING_FITS
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.exploration.plans import PlanSpace
from dse.inputs.yaml.flags import TRUTHS, assignments, design_of
from dse.insight.planner import plan
from dse.present.text.plan import plan_text

__all__ = ["run"]


def run(options: Options) -> int:
    """The best plans of a network on given chips."""
    changes = [text for text in options.set if "." in text.partition("=")[0]]
    space = {
        name: [_plan_value(item) for item in text.split(",")]
        for name, text in assignments([text for text in options.set if text not in changes]).items()
    }
    spec = design_of(flags_of(options), changes)
    workload = spec.workloads[0]
    report = plan(
        workload.network, spec.chip, devices=int(spec.cluster.devices), global_batch=workload.global_batch,
        sequence=workload.sequence, cluster=spec.cluster, stack=spec.stack, training=spec.training,
        tokens=options.tokens, top=options.top, plan_space=PlanSpace.of(space),
    )  # fmt: skip
    if options.json:
        print_json(report.to_plain())
    else:
        print(plan_text(report))
    return 0 if report.fits else NOTHING_FITS


def _plan_value(text: str) -> Any:
    number = read_number(text.strip())
    if number is not None and number.denominator == 1:
        return int(number)
    if text.strip().lower() in TRUTHS:
        return text.strip().lower() in ("true", "on", "yes")
    return text.strip()
