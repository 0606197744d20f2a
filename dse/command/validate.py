"""`dse validate`: predictions beside measurements."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from dse.base.errors import ConfigError, Problem
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.evidence.calibration.constants import read_constants
from dse.evidence.validation.validate import validate
from dse.present.text.validation import validation_text
from dse.record.validation import write_report

__all__ = ["run"]


def run(options: Options) -> int:
    """Predictions beside measurements."""
    data = options.data or os.environ.get("DSE_DATA") or None
    if data is not None and not Path(data).is_dir():
        raise ConfigError([Problem("no such folder", "a folder with measurements", field="--data", file=str(data))])
    known = read_constants(options.constants) if options.constants else None
    found = validate(data, tuple(options.set), options.rows or bool(options.report), constants=known)
    page = write_report(found, options.report) if options.report else None
    if not options.rows:
        found = replace(found, rows=None)
    if options.json:
        print_json(found.to_plain())
    else:
        print(validation_text(found))
        print(f"\nReport: {page}" if page else "", end="\n" if page else "")
    return 0
