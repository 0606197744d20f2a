"""What is wrong with the user's input: one record a fault, one message for all faults of a file.

Models raise ValueError; ConfigError is for the edge (configuration, command line), which prints it and exits with 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = ["ConfigError", "Problem", "listed", "nearest", "shorten"]

#: Longest piece of the user's text that a message repeats.
SHOWN_LENGTH = 60
#: Most names that a message lists.
SHOWN_NAMES = 16


@dataclass(frozen=True)
class Problem:
    """One fault: where it is, what was found, what is allowed, and the nearest valid value.

    file, line, column   position, lines and columns from 1; 0 where there is none
    field                path of the field, for example `chip.array_rows[2]`
    hint                 how to repair it, when that is not obvious
    """

    found: str
    allowed: str
    field: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    nearest: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = ":".join([self.file] + [str(n) for n in (self.line, self.column) if n]) if self.file else ""
        parts = [f"found {self.found}"]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.nearest:
            parts.append(f"did you mean {self.nearest}?")
        if self.hint:
            parts.append(self.hint)
        head = ": ".join(part for part in (place, self.field) if part)
        return f"{head}: {'; '.join(parts)}" if head else "; ".join(parts)


class ConfigError(ValueError):
    """Bad input: every fault that was found, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[Problem]]]:
        return type(self), (self.problems,)


def nearest(name: str, names: Iterable[str]) -> str:
    """The valid name that `name` most likely stands for, or "" when none is near."""
    plain = {_plain(candidate): candidate for candidate in reversed(list(names))}
    wanted = _plain(name)
    match = get_close_matches(wanted, list(plain), n=1, cutoff=0.6)
    if not match and len(wanted) > 2:
        match = [candidate for candidate in reversed(plain) if wanted in candidate]
    return plain[match[0]] if match else ""


def listed(names: Iterable[str]) -> str:
    """The names for a message; of a long list the first ones and the number of the others."""
    known = list(names)
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return ", ".join(known[:SHOWN_NAMES]) + more


def shorten(text: str) -> str:
    """`text` on one line, cut to the length that a message can bear."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 3] + "..."


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
