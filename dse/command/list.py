"""`dse list`: a table of what can be named."""

from __future__ import annotations

from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.present.text.lists import TABLES
from dse.present.text.tables import table_text

__all__ = ["run"]


def run(options: Options) -> int:
    """A table of what can be named."""
    plain, shown = TABLES[options.what]()
    if options.json:
        print_json(plain)
    else:
        print(table_text(shown))
    return 0
