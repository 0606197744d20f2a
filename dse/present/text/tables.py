"""Aligned tables of text for a terminal: columns as wide as they must be, long texts wrapped, nothing cut.

Cells come as text; numbers are recognised by their look and stand on the right.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

__all__ = ["WIDTH", "columns_text", "markdown_table", "split_text", "table_text", "wrapped"]

#: Columns of a terminal that every text fits in.
WIDTH = 100
_GAP = "  "
_NARROWEST = 8
# private characters, which no text has and which are not white space
_TIE, _BREAK = "\ue000", "\ue001 "
#: A number that stands alone with the word behind it; names joined by + or /, which may be broken there.
_QUANTITY = re.compile(r"(?<![\w.,])([-+]?(?:\d[\d.,]*)?\d) (?=[a-zA-Z])")
_SUM = re.compile(r"(?<=\w)\+(?=[a-zA-Z])|(?<=\w{6})/(?=\w{6})")
_NUMBER = re.compile(r"(?:[-+]?[\d,.]+(?:e[-+]?\d+)?(?: ?[^\s\d][^\s]*)?(?: [a-zA-Z/2%]+)?|n/a|-)?")


def table_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a table; the keys are the headings."""
    if not rows:
        return "(none)"
    headings = list(dict.fromkeys(name for row in rows for name in row))
    return columns_text(headings, [[_cell(row.get(name)) for name in headings] for row in rows])


def _cell(value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def columns_text(headings: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0, width: int = WIDTH) -> str:
    """A table with a rule under the headings, at most `width` columns wide where its words allow."""
    table = [list(headings), *(list(row) for row in rows)]
    right = [all(_NUMBER.fullmatch(row[i]) for row in table[1:]) for i in range(len(headings))]
    room = width - indent - len(_GAP) * (len(headings) - 1)
    widths = _widths(table, room, fixed=right)
    lines = []
    for number, row in enumerate(table):
        cells = [_lines(text, size) for text, size in zip(row, widths, strict=True)]
        for line in range(max(len(cell) for cell in cells)):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            shown = [
                part.rjust(size) if on_right else part.ljust(size)
                for part, size, on_right in zip(parts, widths, right, strict=True)
            ]
            lines.append(" " * indent + _GAP.join(shown).rstrip())
        if number == 0 and any(headings):
            lines.append(" " * indent + _GAP.join("-" * size for size in widths))
    return "\n".join(lines)


def split_text(headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH) -> str:
    """A table; where it is wider than a terminal, several one below the other that repeat the first column."""
    tables: list[str] = []
    start = 1
    while start < len(headings):
        stop = len(headings)
        while True:
            which = [0, *range(start, stop)]
            text = columns_text([headings[i] for i in which], [[row[i] for i in which] for row in rows], width=width)
            if stop == start + 1 or max(map(len, text.splitlines())) <= width:
                break
            stop -= 1
        tables.append(text)
        start = stop
    return "\n\n".join(tables)


def _widths(table: Sequence[Sequence[str]], room: int, *, fixed: Sequence[bool]) -> list[int]:
    """Width of each column: as its longest cell, then the widest give way until all fit; `fixed` never break a word."""
    count = len(table[0])
    widths = [max(len(row[i]) for row in table) for i in range(count)]
    least = [min(widths[i], max(_NARROWEST, max(_longest_word(row[i]) for row in table))) for i in range(count)]
    while sum(widths) > room:
        givers = [i for i in range(count) if widths[i] > least[i]]
        if not givers:  # words longer than any terminal: they are broken, in the widest column
            givers = [i for i in range(count) if widths[i] > _NARROWEST + 4 and not fixed[i]]
        if not givers:
            break
        widest = max(givers, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _longest_word(text: str) -> int:
    return max((len(word) for word in _joined(text).split()), default=0)


def _lines(text: str, size: int) -> list[str]:
    if len(text) <= size:
        return [text]
    lines = textwrap.wrap(_joined(text), size, break_long_words=_longest_word(text) > size, break_on_hyphens=False)
    return [_plain(line) for line in lines] or [""]


def _joined(text: str) -> str:
    """The text with numbers tied to their units, so that no line ends between them, and breaks in joined names."""
    return _SUM.sub(r"\g<0>" + _BREAK, _QUANTITY.sub(r"\1" + _TIE, text))


def _plain(text: str) -> str:
    return text.replace(_TIE, " ").replace(_BREAK, "").replace(_BREAK.strip(" "), "")


def wrapped(text: str, *, indent: int = 0, first: str = "", width: int = WIDTH) -> str:
    """A paragraph of at most `width` columns; `first` starts its first line, the others are indented."""
    filled = textwrap.fill(
        _joined(text), width, initial_indent=first or " " * indent, subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return _plain(filled)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table for a Markdown file."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
