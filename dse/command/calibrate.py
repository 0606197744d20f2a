"""What `dse calibrate` does: read the flags, fit, write the constants, print what was found."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from dse.base.errors import ConfigError, Problem

__all__ = ["run_calibrate"]


def run_calibrate(options: argparse.Namespace) -> int:
    """Constants from measured rows, or errors of pairs that were left out."""
    from dse.evidence.calibration.calibrate import calibrate, leave_one_out, write_constants
    from dse.present.text.calibration import calibration_text, left_out_text

    data = options.data or os.environ.get("DSE_DATA") or None
    _check(options, data)
    with _Progress(options.quiet) as say:
        if options.leave_one_out:
            left = leave_one_out(data, say=say)
        else:
            found = calibrate(data, device=options.device or "", stack_name=options.stack or "", say=say)
            if options.out:
                write_constants(options.out, found.constants)
    if options.leave_one_out:
        plain: object = {"left_out": [asdict(item) for item in left]}
        text = left_out_text(left)
    else:
        plain, text = found.to_plain(), calibration_text(found, options.out or "")
    print(json.dumps(plain, indent=1) if options.json else text)
    return 0


def _check(options: argparse.Namespace, data: str | None) -> None:
    problems = []
    if data is not None and not Path(data).is_dir():
        problems.append(Problem("no such folder", "a folder with measurements", field="--data", file=data))
    if options.out and not Path(options.out).absolute().parent.is_dir():
        problems.append(Problem("no such folder", "a file in a folder that exists", field="--out", file=options.out))
    if options.leave_one_out and (options.device or options.stack or options.out):
        problems.append(Problem("--device, --stack or --out", "none of them", field="--leave-one-out"))
    if problems:
        raise ConfigError(problems)


class _Progress:
    """A line on stderr: rewritten on a terminal, else one every few seconds."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.every, self.width = (0.1 if self.terminal else 5.0), 0
        self.next = 0.0 if self.terminal else time.monotonic() + self.every

    def __enter__(self) -> Callable[[str], None]:
        return self.say

    def __exit__(self, *error: object) -> None:
        if self.width:
            print(file=sys.stderr)

    def say(self, text: str) -> None:
        """Show a text, unless the last one is too recent."""
        now = time.monotonic()
        if self.quiet or now < self.next:
            return
        self.next = now + self.every
        if self.terminal:
            print("\r" + text.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = max(self.width, len(text))
        else:
            print(text, file=sys.stderr, flush=True)
