"""Writes the tables of docs/importers_onnx.md: which operators are read, which are not, and the models of the tests.

    python benchmarks/onnx_page.py

Needs the onnx package for the list of standard operators; nothing else here does.
"""

from __future__ import annotations

import csv
from pathlib import Path

from dse.base.files import write_atomic
from workloads.importers.onnx import coverage
from workloads.importers.onnx_operators import supported

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "importers_onnx.md"


def not_read() -> str:
    """Standard operators of the newest set that a model may not have."""
    import onnx

    schemas = onnx.defs.get_all_schemas()
    names = {schema.name for schema in schemas if not schema.domain and not schema.deprecated} - supported()
    return f"Not read ({len(names)} of onnx {onnx.__version__}): {', '.join(sorted(names))}."


def models() -> str:
    """The models of tests/data/onnx."""
    with (ROOT / "tests" / "data" / "onnx" / "counts.csv").open(encoding="utf-8") as file:
        rows = [
            f"| {row['model']} | {int(row['parameters']):,} | {int(row['macs']):,} | {row['exporter']} "
            f"| {row['opset']} | {row['source']} |"
            for row in csv.DictReader(file)
        ]
    heading = "| model | parameters | MACs a sample | exporter | opset | made from |"
    return "\n".join([heading, "|---|---|---|---|---|---|", *rows])


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("operators", coverage()), ("not read", not_read()), ("models", models())):
        before, rest = text.split(f"<!-- {name} -->\n", 1)
        _, after = rest.split("\n<!-- end -->", 1)
        text = f"{before}<!-- {name} -->\n{table}\n<!-- end -->{after}"
    write_atomic(PAGE, text)


if __name__ == "__main__":
    main()
