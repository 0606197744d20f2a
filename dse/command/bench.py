"""`dse bench`: rates of this machine."""

from __future__ import annotations

from typing import Any

from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.evidence.benchmark import bench
from dse.present.text.tables import table_text

__all__ = ["run"]


def run(options: Options) -> int:
    """Rates of this machine."""
    found = bench(jobs=options.jobs, largest=options.largest)
    if options.json:
        print_json(found)
        return 0
    sizes = found.pop("cost_by_size")
    print(table_text([{"what": name, "value": _short(value)} for name, value in found.items()]))
    print()
    print(table_text([{name: _short(value) for name, value in row.items()} for row in sizes]))
    return 0


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
