"""The notebooks run from top to bottom, in a fresh interpreter, as a reader would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["bring_your_own_model.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, tmp_path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    source = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = tmp_path / "notebook.py"
    script.write_text(source, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for words in ("parameters", "allowed", "images/s", "critical path", "on the front"):
        assert words in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_not_kept(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
