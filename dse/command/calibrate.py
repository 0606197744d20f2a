"""`dse calibrate`: fit constants to measured steps, write them, print what was found."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from dse.base.errors import ConfigError, Problem
from dse.command.parser import Options
from dse.command.progress import Line
from dse.evidence.calibration.calibrate import calibrate, leave_one_out
from dse.evidence.calibration.constants import write_constants
from dse.present.text.calibration import calibration_text, left_out_text

__all__ = ["run"]


def run(options: Options) -> int:
    """Constants from measured rows, or errors of pairs that were left out."""
    data = options.data or os.environ.get("DSE_DATA") or None
    _check(options, data)
    line = Line(options.quiet)
    try:
        if options.leave_one_out:
            left = leave_one_out(data, say=line.say)
        else:
            found = calibrate(data, device=options.device or "", stack_name=options.stack or "", say=line.say)
    finally:
        line.close()
    if options.out:
        write_constants(options.out, found.constants)
    if options.leave_one_out:
        plain: object = {"left_out": [asdict(item) for item in left]}
        text = left_out_text(left)
    else:
        plain, text = found.to_plain(), calibration_text(found, options.out or "")
    print(json.dumps(plain, indent=1) if options.json else text)
    return 0


def _check(options: Options, data: str | None) -> None:
    problems = []
    if data is not None and not Path(data).is_dir():
        problems.append(Problem("no such folder", "a folder with measurements", field="--data", file=data))
    if options.out and not Path(options.out).absolute().parent.is_dir():
        problems.append(Problem("no such folder", "a file in a folder that exists", field="--out", file=options.out))
    if options.leave_one_out and (options.device or options.stack or options.out):
        problems.append(Problem("--device, --stack or --out", "none of them", field="--leave-one-out"))
    if problems:
        raise ConfigError(problems)
