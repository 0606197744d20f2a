"""`dse trace`: simulate one step of a design, write its timeline, say how long it is."""

from __future__ import annotations

import json

from dse.api.evaluation import evaluate
from dse.base.errors import ConfigError, Problem
from dse.base.files import write_atomic
from dse.base.units import format_quantity
from dse.command.designs import one_design
from dse.command.parser import Options
from dse.simulation.step import simulate

__all__ = ["run"]


#: Where the timeline goes if nothing is said.
TIMELINE = "trace.json"


def run(options: Options) -> int:
    """The timeline of a step as trace events, and its length beside the closed form's."""
    from pathlib import Path

    out = Path(options.out or TIMELINE)
    if not out.absolute().parent.is_dir():
        raise ConfigError([Problem("no such folder", "a file in a folder that exists", field="--out", file=str(out))])
    design = one_design(options)
    timeline = simulate(design)
    closed = evaluate(design).value("step_time")
    write_atomic(out, timeline.to_trace_json())
    if options.json:
        found = {
            "step_time_simulated": timeline.total, "step_time": closed, "events": len(timeline.events),
            "micro_batches": timeline.micro_batches, "micro_batches_drawn": timeline.drawn, "file": str(out),
            "units": {"step_time_simulated": "s", "step_time": "s"},
        }  # fmt: skip
        print(json.dumps(found, indent=2))
        return 0
    some = "" if timeline.drawn == timeline.micro_batches else f" ({timeline.drawn} drawn)"
    print(f"step {format_quantity(timeline.total, 's')} simulated, {format_quantity(closed, 's')} by closed form "
          f"({closed / timeline.total - 1.0:+.2%}), {timeline.micro_batches} micro-batches{some}")  # fmt: skip
    print(f"wrote {out}: {len(timeline.events):,} events; open it in https://ui.perfetto.dev or chrome://tracing")
    return 0
