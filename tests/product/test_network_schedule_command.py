"""`dse network show X --chip C`: critical path and schedule of a graph, as text and data."""

from __future__ import annotations

import json

import pytest

from dse.command.main import main


def test_the_schedule_of_a_graph_is_printed_and_given_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["network", "show", "googlenet", "--chip", "a100-sxm-80gb", "--micro-batch", "4"]
    assert main([*arguments, "--matrix-units", "2", "--vector-units", "2"]) == 0
    text = capsys.readouterr().out
    for words in ("critical path", "list schedule", "units could be kept busy", "Longest kernels"):
        assert words in text
    assert main([*arguments, "--matrix-units", "2", "--vector-units", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["schedule"]
    assert found["critical_path_s"] <= found["list_schedule_s"] <= found["makespan_s"] <= found["serial_s"] * 1.01
    path = [task for task in found["tasks"] if task["critical"]]
    assert sum(task["time_s"] for task in path) == pytest.approx(found["critical_path_s"])
    assert all(task["slack_s"] <= 1e-12 for task in path)
    assert found["parallelism"] > 1.3  # four branches a module


def test_without_a_chip_there_is_no_schedule_and_a_transformer_of_blocks_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["network", "show", "googlenet", "--json"]) == 0
    assert "schedule" not in json.loads(capsys.readouterr().out)
    assert main(["network", "show", "gpt2-small", "--chip", "a100-sxm-80gb"]) == 2
    assert "allowed: a graph" in capsys.readouterr().err
    assert main(["network", "show", "googlenet", "--chip", "a101"]) == 2
    assert "a101" in capsys.readouterr().err
