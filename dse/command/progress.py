"""The progress of a long command on stderr: a line that is rewritten on a terminal, else one every few seconds."""

from __future__ import annotations

import sys
import time

from dse.exploration.settings import Progress

__all__ = ["Line", "Shown", "progress_text"]


class Line:
    """A line on stderr, shown anew at most every 0.1 s on a terminal and every 5 s elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.every, self.next, self.width = (0.1, 0.0, 0) if self.terminal else (5.0, time.monotonic() + 5.0, 0)

    def due(self) -> bool:
        """Whether the last text is old enough."""
        return not self.quiet and time.monotonic() >= self.next

    def show(self, text: str) -> None:
        """Show a text in place of the last."""
        if self.quiet:
            return
        self.next = time.monotonic() + self.every
        if self.terminal:
            print("\r" + text.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Show a text, unless the last one is too recent."""
        if self.due():
            self.show(text)

    def close(self) -> None:
        """End the line that was rewritten."""
        if self.width:
            print(file=sys.stderr)
            self.width = 0


class Shown(Line):
    """The progress of a search; its end is always shown."""

    def __call__(self, progress: Progress) -> None:
        if self.due() or progress.rows >= progress.limit:
            self.show(progress_text(progress))


def progress_text(progress: Progress) -> str:
    """One line: how far, how many designs, what was found."""
    share = progress.rows / progress.limit if progress.limit else 1.0
    return (
        f"{progress.rows:,} of {progress.limit:,} chips ({share:.0%}), {progress.evaluations:,} designs, "
        f"{progress.feasible:,} fit, front {progress.front:,}, {progress.elapsed:.0f} s"
    )
