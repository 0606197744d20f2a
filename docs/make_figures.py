"""Rebuilds the figures of the documents: runs the shipped search and copies its plot."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from dse.api.search import search
from dse.record.write import write_outputs

FIGURES = Path(__file__).parent / "figures"


def main() -> None:
    """Search GPT-3 175B with 300 chips and keep the plot of the front."""
    with tempfile.TemporaryDirectory() as folder:
        report = search("gpt3_175b", out=folder, budget=300)
        shutil.copy(write_outputs(report, folder)["pareto.png"], FIGURES / "gpt3_front.png")


if __name__ == "__main__":
    main()
