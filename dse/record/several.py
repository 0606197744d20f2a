"""Files of a search over several networks: the common chips, and each network's own search."""

from __future__ import annotations

import io
import json
from pathlib import Path

from dse.base.files import file_name, write_atomic
from dse.inputs.serialize import design_to_plain
from dse.problem.several import SeveralReport, front_rows, network_rows
from dse.record.write import write_outputs

__all__ = ["write_several"]


def write_several(report: SeveralReport, out: str | Path) -> dict[str, Path]:
    """`common.csv` (front of common chips), `networks.csv` (one chip each beside them), `common.json` (exact designs);
    and the usual files of every network's own search."""
    import pandas

    folder = Path(out)
    paths = {}
    for name, rows in (("common", front_rows(report)), ("networks", network_rows(report))):
        text = io.StringIO()
        pandas.DataFrame(rows).to_csv(text, index=False)
        paths[f"{name}.csv"] = folder / f"{name}.csv"
        write_atomic(paths[f"{name}.csv"], text.getvalue())
    exact = [
        {
            "row": row,
            "objectives": dict(
                zip((o.name for o in report.problem.objectives), report.result.values[row].tolist(), strict=True)
            ),
            "designs": {name: design_to_plain(design) for name, design in report.designs(row).items()},
        }
        for row in range(len(report))
    ]
    paths["common.json"] = folder / "common.json"
    write_atomic(paths["common.json"], json.dumps({"search": report.spec.name, "common": exact}, indent=1) + "\n")
    for name, one in report.alone.items():
        write_outputs(one, folder / "networks" / file_name(name))
    return paths
