"""Writes docs/networks.md: every published network with its counts and what others count.

python benchmarks/networks_page.py [--out docs/networks.md]
"""

from __future__ import annotations

import argparse
from typing import Any

from dse.base.files import write_atomic
from dse.present.text.tables import markdown_table
from workloads.networks import GRAPHS
from workloads.published import graph_counts, table

INTRO = """# Networks

Written by `python benchmarks/networks_page.py`. `dse list networks` prints the same names, `dse network show NAME`
their layers. Multiply-adds are those of matrix products and convolutions in one forward pass of a sample (FLOP are
twice as many). "Counted by" says who counted the same: parameters and multiply-adds equal theirs exactly unless a
reason is given. `benchmarks/framework_counts.py` and `framework_counts_sequences.py` make these counts.

"-plain" leaves out auxiliary heads that exist while a network trains; "-v1" has the stride of a bottleneck on its first
1 x 1 as in the paper, others on the 3 x 3.

## Graphs
"""
DECODERS = """
## Decoder transformers

Sizes are rows of `workloads/data/networks.csv`. Multiply-adds count attention as a full square.
"""


def page() -> str:
    """The whole page."""
    rows = {row["name"]: row for row in table()}
    graphs = [_graph(row) for name, row in rows.items() if name in GRAPHS]
    others = [_decoder(row) for name, row in rows.items() if name not in GRAPHS]
    first = markdown_table(["network", "parameters", "multiply-adds", "a sample", "source", "counted by"], graphs)
    second = markdown_table(["network", "parameters", "published", "multiply-adds", "a sample", "source"], others)
    return f"{INTRO}\n{first}\n{DECODERS}\n{second}\n"


def _graph(row: dict[str, Any]) -> list[str]:
    return [
        row["name"], f"{row['parameters']:,}", _work(row), row["sample"], row["source"], _counted_by(row["name"]),
    ]  # fmt: skip


def _counted_by(name: str) -> str:
    count = graph_counts().get(name)
    if count is None:
        return "nobody"
    reason = f" (within {count.tolerance:.2g}: {count.reason})" if count.tolerance else ""
    parts = "" if count.macs is not None else ", parameters alone"
    return f"{count.source} ({count.made_by}){parts}{reason}"


def _decoder(row: dict[str, Any]) -> list[str]:
    published = f"{row['published_parameters']:,}" + ("" if row["published_exact"] else " (rounded)")
    return [row["name"], f"{row['parameters']:,}", published, _work(row), row["sample"], row["source"]]


def _work(row: dict[str, Any]) -> str:
    """Multiply-adds, exact below a million million."""
    number = row["forward_flops_per_sample"] // 2
    return f"{number:,}" if number < 10**13 else f"{number:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="docs/networks.md")
    write_atomic(parser.parse_args().out, page())


if __name__ == "__main__":
    main()
