"""The command line: every command answers, every fault is one message and a status, nothing finished is lost."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.command import main as cli
from dse.command.flags import PLAN_FLAGS
from dse.command.flags import tokens as read_tokens
from dse.command.main import main
from dse.command.progress import Shown, progress_text
from dse.command.table import COMMANDS, LISTS
from dse.exploration.settings import Progress
from dse.inputs.yaml.flags import FLAGS
from dse.present.text.lists import TABLES
from workloads.plan import Plan
from workloads.published import names as network_names

ROOT = Path(__file__).resolve().parents[2]

TINY = """\
name: tiny
workload: {network: gpt2-small, sequence: 1024, global_batch: 32}
stack: compiled
chip:
  base: tpu-v4
  array_count: [4, 8]
  clock: [0.9 GHz, 1.1 GHz, 1.3 GHz]
cluster: {devices: 8, tiers: [{size: 8, topology: switch, bandwidth: chip links, latency: 1 us}]}
plan: {tensor: [1, 2], pipeline: 1, micro_batch: [1, 2], recompute: none, order: tensor-data-pipeline}
objectives: [throughput, die_area]
search: {mode: nested, sampler: random, budget: 6, seed: 0}
"""

HUGE = TINY.replace("gpt2-small, sequence: 1024", "llama3-405b, sequence: 1024")

DESIGN = """\
name: one
workload: {network: gpt2-small, sequence: 1024, global_batch: 32}
chip: tpu-v4
cluster: {base: tpu-v4-pod, devices: 8}
plan: {tensor: 2, micro_batch: 2}
"""

FLAGS_OF_A_DESIGN = "--network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512"


class Answer:
    """What a command said."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`dse TEXT` in an empty folder that holds tiny.yaml, huge.yaml and design.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSE_DATA", raising=False)
    for name, text in (("tiny", TINY), ("huge", HUGE), ("design", DESIGN)):
        Path(f"{name}.yaml").write_text(text)

    def answer(text: str) -> Answer:
        capsys.readouterr()
        status = main(shlex.split(text))
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Answer(status, said.out, said.err)

    return answer


def command(arguments: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """A new process, which a user's shell would start."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "dse", *arguments], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


# Help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples_that_it_accepts(name: str, run: Any) -> None:
    said = run(f"{name} --help")
    assert said.status == 0 and "example:" in said.out
    assert COMMANDS[name].examples
    for example in COMMANDS[name].examples:
        assert example in said.out
        program, *arguments = shlex.split(example)
        options = cli._parse(arguments)
        assert program == "dse" and options.command == name


def test_help_lists_every_command(run: Any) -> None:
    said = run("--help")
    assert said.status == 0
    for name in COMMANDS:
        assert f"\n    {name} " in said.out
    assert run("--version").out == f"dse {dse.__version__}\n"


def test_without_a_command_the_help_is_shown(run: Any) -> None:
    said = run("")
    assert said.status == 2 and "search" in said.err and not said.out


def test_every_field_of_a_plan_is_a_flag() -> None:
    assert tuple(PLAN_FLAGS) == Plan.names()
    _, commands = cli.parser()
    for name in FLAGS:
        assert f"--{name.replace('_', '-')}" in commands["evaluate"].flags()


# Bad input --------------------------------------------------------------------------------------------------------

BAD = {
    "serch": ("search, plan", "did you mean search?"),
    "nonsense": ("allowed: search, plan, evaluate",),
    "search": ("CONFIG",),
    "search nosuch": ("nosuch", "quickstart"),
    "search quikstart": ("did you mean quickstart?",),
    "search .": (".", "directory"),
    "search empty.yaml": ("the config is empty",),
    "search tab.yaml": ("tab.yaml:2", "tab"),
    "search list.yaml": ("a list at the top",),
    "search tiny.yaml --budget -1": ("--budget", "whole number >= 1"),
    "search tiny.yaml --budget 2.5": ("2.5", "whole number"),
    "search tiny.yaml --seed x": ("--seed", "whole number >= 0"),
    "search tiny.yaml --timeout 90": ("without a unit", "1.5 us"),
    "search tiny.yaml --timeout 3GB": ("3GB",),
    "search tiny.yaml --budgt 3": ("--budgt", "did you mean --budget?"),
    "search tiny.yaml extra": ("found extra",),
    "search tiny.yaml --out file/sub": ("file", "folder"),
    "search tiny.yaml --out file": ("file", "folder"),
    "search tiny.yaml --out /proc/nothing": ("/proc/nothing", "folder"),
    "plan --chip h100-sxm": ("--network", "--devices", "--global-batch"),
    "plan --network gpt3-13b --devices 8 --global-batch 8": ("--chip",),
    f"plan {FLAGS_OF_A_DESIGN} --set tensr=2": ("tensr", "tensor"),
    f"plan {FLAGS_OF_A_DESIGN} --set tensor": ("--set", "field=value"),
    f"plan {FLAGS_OF_A_DESIGN} --set tensor=0": ("tensor", "0"),
    f"plan {FLAGS_OF_A_DESIGN} --tokens many": ("many", "300B"),
    f"plan {FLAGS_OF_A_DESIGN} --top 0": ("--top", "whole number >= 1"),
    "evaluate": ("a design file, OUT:ROW", "--network"),
    "evaluate nosuch.yaml": ("nosuch.yaml", "no such file"),
    "evaluate desing.yaml": ("did you mean design.yaml?",),
    "evaluate .": ("a directory",),
    "evaluate bad.json": ("bad.json", "no valid JSON"),
    "evaluate list.json": ("list.json", "a list"),
    "evaluate empty.json": ("empty.json", "found no chip"),
    "evaluate design.yaml --tensor 2": ("several descriptions",),
    "evaluate --row 3": ("--from OUT --row N",),
    "evaluate design.yaml --row 3": ("--row alone",),
    "evaluate --from nosuch --row 1": ("nosuch",),
    f"evaluate {FLAGS_OF_A_DESIGN} --tensr 8": ("--tensr", "did you mean --tensor?"),
    f"evaluate {FLAGS_OF_A_DESIGN} --tensor 0": ("--tensor", "whole number >= 1"),
    f"evaluate {FLAGS_OF_A_DESIGN} --tensor 2.5": ("--tensor", "whole number"),
    f"evaluate {FLAGS_OF_A_DESIGN} --recompute ful": ("--recompute", "did you mean full?"),
    f"evaluate {FLAGS_OF_A_DESIGN} --precision fp64": ("--precision", "bf16"),
    f"evaluate {FLAGS_OF_A_DESIGN} --set clock=1GHz": ("section.field",),
    f"evaluate {FLAGS_OF_A_DESIGN} --set chip.clok=1GHz": ("chip.clok", "did you mean clock?"),
    f"evaluate {FLAGS_OF_A_DESIGN} --set chip.clock=1": ("chip.clock", "without a unit"),
    f"evaluate {FLAGS_OF_A_DESIGN} --set chip.clock=1GHz --set chip.clock=2GHz": ("chip.clock again",),
    "evaluate --network gpt3-13 --chip h100 --devices 0 --global-batch 8": ("gpt3-13b", "h100-sxm", "--devices"),
    "evaluate --network no_module:net --chip h100-sxm --devices 8 --global-batch 8": ("no_module", "--network"),
    "explain": ("a design file",),
    "compare design.yaml": ("Second",),
    "compare design.yaml desing.yaml": ("did you mean design.yaml?",),
    "compare h100-sxm a100-sxm-80gb --devices 8": ("--network", "--global-batch"),
    "compare h100-sxn a100-sxm-80g": ("did you mean h100-sxm?", "did you mean a100-sxm-80gb?"),
    "compare h100-sxm tpu-v4 --set cluster.devices=8": ("--set", "chip.field"),
    "compare h100-sxm tpu-v4 --set chip.clock=1": ("chip.clock", "without a unit"),
    "compare design.yaml design.yaml --out two.png": ("--out", "two chips alone"),
    "explain --chip h100-sx": ("--chip", "did you mean h100-sxm?"),
    "explain --chip nosuch.yaml": ("nosuch.yaml", "no such file"),
    "explain --chip empty.json": ("empty.json", "no chip"),
    "explain --chip h100-sxm --set chip.clok=1GHz": ("chip.clok", "did you mean clock?"),
    "explain --chip h100-sxm --set chip.process=6": ("chip.process",),
    "explain --chip h100-sxm --set plan.tensor=2": ("--set", "chip.field"),
    "explain --chip h100-sxm --tornado": ("--tornado", "--network"),
    "explain design.yaml --out x.png": ("--out", "--tornado"),
    "explain --chip h100-sxm --out die.gif": ("--out", ".png or .svg"),
    "explain --chip h100-sxm --out nosuch/die.png": ("--out", "folder"),
    "pareto nosuch": ("nosuch",),
    "list chps": ("did you mean chips?",),
    "schema everything": ("search, design",),
    "validate --data nosuch": ("--data", "no such folder"),
    "bench --jobs 0": ("--jobs", "whole number >= 1"),
}


def test_a_front_carries_its_uncertainty_where_it_is_asked_for(run: Any) -> None:
    said = run("search tiny.yaml --jobs 1 --out o --quiet --uncertainty --json")
    assert said.status == 0 and said.json["uncertainty"]["level"] == 0.8
    first = said.json["uncertainty"]["designs"][0]
    assert first["objectives"]["throughput"]["low"] < said.json["best"][0]["values"][0]
    table = list(csv.reader(Path("o/pareto.csv").open()))
    assert "throughput low 80% [token/s]" in table[0] and "probability on front" in table[0]
    plain = run("pareto o --out plain")
    assert plain.status == 0 and "80%" not in Path("plain/pareto.csv").read_text()
    sure = run("pareto o --uncertainty --csv sure.csv")
    assert sure.status == 0 and "(80% intervals" in sure.out and "on front" in sure.out
    assert len(next(csv.reader(Path("sure.csv").open()))) == len(table[0])
    assert run("pareto o --where 'die_area <= 1 mm2' --uncertainty").status == 3


def test_the_constants_that_decide_are_data_always_and_text_on_request(run: Any) -> None:
    flags = "--network gpt2-small --chip tpu-v4 --devices 8 --global-batch 32 --tensor 2 --data 4"
    found = run(f"explain {flags} --json").json["tornado"]
    assert found["ranked"]["step_time"] and found["units"]["tdp"] == "W"
    assert "Constants that decide" not in run(f"explain {flags}").out
    said = run(f"explain {flags} --tornado --out swings.png")
    assert said.status == 0 and "Constants that decide" in said.out and "wrote swings.png" in said.err
    assert Path("swings.png").read_bytes().startswith(b"\x89PNG")


CHIP_FILE = "name: mine\nchip: {base: tpu-v4, clock: 0.9 GHz, shared_sram: 64 MiB}\n"


def test_a_chip_alone_is_a_floor_plan_by_every_name_it_can_have(run: Any) -> None:
    Path("mine.yaml").write_text(CHIP_FILE)
    plain = run("explain --chip tpu-v4 --json").json
    assert sum(block["value"] for block in plain["area"]) == pytest.approx(
        next(fact["value"] for fact in plain["facts"] if fact["name"] == "die_area"), rel=1e-12
    )
    assert plain["units"]["area"] == "m2" and plain["published"]["source"]
    changed = "--set chip.clock=0.9GHz --set chip.shared_sram=64MiB"
    one = run(f"explain --chip tpu-v4 {changed} --json").json
    assert one["published"] is None and one["area"] != plain["area"]
    Path("chip.json").write_text(json.dumps(one))
    for name in ("mine.yaml", "chip.json"):
        assert run(f"explain --chip {name} --json").json["area"] == one["area"]
    assert run("explain --chip design.yaml --json").json == plain
    assert run(f"explain --chip design.yaml {changed} --json").json == one
    assert run("search tiny.yaml --jobs 1 --out o --quiet").status == 0
    stored = json.loads(Path("o/designs.json").read_text())["designs"][0]["design"]["chip"]
    assert run("explain --chip o:0 --json").json["chip"] == stored
    Path("own.py").write_text("import dse\nmine = dse.chips.tpu_v3\n")
    assert run("explain --chip own:mine --json").json["chip"]["name"] == "tpu-v3"
    said = run(f"explain --chip tpu-v4 {changed}")
    assert said.status == 0 and "clock 900 MHz instead of 1.05 GHz" in said.out


def test_pictures_of_chips_are_written_where_they_are_wanted(run: Any) -> None:
    assert run("explain --chip h100-sxm --out die.png").err.startswith("wrote die.png")
    assert run("compare tpu-v4 h100-sxm --out two.svg").status == 0
    assert Path("die.png").read_bytes().startswith(b"\x89PNG") and "<svg" in Path("two.svg").read_text()


def test_two_chips_are_compared_without_a_network_and_designs_as_before(run: Any) -> None:
    both = run("compare a100-sxm-80gb h100-sxm --json").json
    pairs = {(pair["table"], pair["name"]): pair for pair in both["pairs"]}
    area = pairs["facts", "die_area"]
    assert area["ratio"] == area["b"] / area["a"] and pairs["peaks", "fp8"]["a"] is None
    said = run("compare design.yaml h100-sxm")
    assert said.status == 0 and "tpu-v4" in said.out and "Area of the logic die" in said.out
    assert "Where the step's time goes" in run("compare design.yaml design.yaml").out


@pytest.mark.parametrize("text", BAD)
def test_bad_input_ends_with_one_message_that_helps(text: str, run: Any) -> None:
    contents = {"empty.yaml": "", "tab.yaml": "name: x\n\tchip: y\n", "list.yaml": "- a\n", "file": "x"}
    contents |= {"bad.json": "{", "list.json": "[]", "empty.json": "{}"}
    for name, content in contents.items():
        Path(name).write_text(content)
    said = run(text)
    assert said.status == 2, said.err
    assert not said.out
    for words in BAD[text]:
        assert words in said.err
    assert not list(Path().glob("out*")), "nothing is made for a bad command"


def test_all_bad_flags_are_named_at_once(run: Any) -> None:
    said = run("evaluate --network gpt3-13b --chip h100-sxm --devices x --global-batch 0 --tensor y --recompute z")
    assert said.status == 2
    named = sorted(line.split(":")[0] for line in said.err.splitlines())
    assert named == ["--devices", "--global-batch", "--recompute", "--tensor"]


def test_an_unforeseen_error_is_one_line_and_its_place_is_shown_on_request(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("the model is broken")

    monkeypatch.setitem(TABLES, "chips", broken)
    said = run("list chips")
    assert (said.status, said.out) == (1, "") and "RuntimeError: the model is broken" in said.err
    monkeypatch.setenv("DSE_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        run("list chips")


# Search -----------------------------------------------------------------------------------------------------------


def test_a_search_writes_its_outputs_and_shows_designs_and_paths(run: Any) -> None:
    said = run("search tiny.yaml --jobs 1 --quiet")
    assert (said.status, said.err) == (0, "")
    for name in ("pareto.csv", "designs.json", "trials.csv.gz", "manifest.json", "pareto.png", "summary.md"):
        assert Path("out/tiny", name).stat().st_size > 0
        assert name in said.out
    rows = list(csv.reader(Path("out/tiny/pareto.csv").open()))
    assert len(rows) > 1 and any("[mm2]" in heading for heading in rows[0])


def test_the_same_command_continues_and_another_search_is_refused(run: Any) -> None:
    first = run("search tiny.yaml --jobs 1 --out o --budget 3 --quiet --json")
    assert first.status == 0 and first.json["hardware_rows"] == 3
    second = run("search tiny.yaml --jobs 1 --out o --quiet --json")
    assert second.json["hardware_rows"] == 6
    Path("tiny.yaml").write_text(TINY.replace("[4, 8]", "[4, 16]"))
    third = run("search tiny.yaml --jobs 1 --out o --quiet")
    assert third.status == 2 and "16" in third.err and "another search" in third.err


def test_the_same_seed_gives_the_same_front(run: Any) -> None:
    for out in ("a", "b"):
        assert run(f"search tiny.yaml --jobs 1 --out {out} --quiet").status == 0
    for name in ("pareto.csv", "designs.json"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()


def test_nothing_fits_says_why_and_still_writes_a_table(run: Any) -> None:
    said = run("search huge.yaml --jobs 1 --out o --quiet")
    assert said.status == 3
    assert "memory" in said.out and "inf" not in said.out.replace("infeasible", "")
    rows = list(csv.reader(Path("o/pareto.csv").open()))
    assert len(rows) == 1 and rows[0]
    assert json.loads(Path("o/designs.json").read_text())["designs"] == []
    assert run("evaluate --from o").status == 2
    assert run("pareto o").status == 3


def test_progress_is_one_line_every_few_seconds_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown(quiet=False)
    for rows in range(1, 10):
        shown(Progress(rows, 10, 100 * rows, 10, 3, 0.5, None))
    assert capsys.readouterr().err == ""
    shown(Progress(10, 10, 1_000, 10, 3, 0.5, None))
    assert capsys.readouterr().err == progress_text(Progress(10, 10, 1_000, 10, 3, 0.5, None)) + "\n"
    shown = Shown(quiet=False)
    shown.terminal, shown.every, shown.next = True, 0.0, 0.0
    shown(Progress(1, 10, 5, 1, 1, 0.1, None))
    shown.close()
    assert capsys.readouterr().err.startswith("\r1 of 10 chips (10%), 5 designs")


def test_an_interrupted_search_ends_with_130_and_the_same_command_goes_on(tmp_path: Path) -> None:
    arguments = ["search", "enumerable", "--out", "o", "--jobs", "1", "--quiet"]
    process = command(arguments, tmp_path)
    limit = time.monotonic() + 60
    while not list((tmp_path / "o").glob("archive/chunk-*")) and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "continue with the same command" in err and "Traceback" not in err
    before = json.loads((tmp_path / "o/manifest.json").read_text())["hardware_rows"]
    assert before > 0 and (tmp_path / "o/pareto.csv").exists()
    again = command([*arguments, "--timeout", "0.5s", "--json"], tmp_path)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert json.loads(out)["hardware_rows"] >= before


def test_models_in_the_current_folder_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "my_models.py").write_text(
        "from hw_models.chip import Chip\n"
        "from workloads.transformer import DecoderTransformer\n"
        "network = DecoderTransformer('mine', layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000)\n"
        "def chip():\n    return Chip(name='mine', array_count=2)\n"
    )
    flags = "--network my_models:network --chip my_models:chip --devices 4 --sequence 128 --global-batch 8 --tensor 2"
    process = command(["evaluate", *flags.split(), "--json"], tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["design"]["chip"]["name"] == "mine"


def test_a_model_that_always_fails_is_reported_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "my_models.py").write_text(
        "class Broken:\n    name = 'broken'\n    def divisors(self): return {}\n"
        "    def blocks(self, sequence): raise RuntimeError('no blocks today')\n"
        "network = Broken()\n"
    )
    (tmp_path / "broken.yaml").write_text(TINY.replace("gpt2-small", '"my_models:network"'))
    process = command(["search", "broken.yaml", "--jobs", "1", "--quiet"], tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no blocks today" in err and "Traceback" not in err


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    process = command(["list", "networks"], tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert (process.wait(timeout=60), process.stderr.read()) == (0, "")
    process.stderr.close()


# One design -------------------------------------------------------------------------------------------------------


def test_a_design_of_a_front_evaluates_to_the_same_bits(run: Any) -> None:
    assert run("search tiny.yaml --jobs 1 --out o --quiet").status == 0
    stored = json.loads(Path("o/designs.json").read_text())["designs"]
    for row, design in enumerate(stored):
        said = run(f"evaluate --from o --row {row} --json")
        assert said.status == 0
        for name, value in design["objectives"].items():
            assert said.json["metrics"][name] == value
        Path("again.json").write_text(said.out)
        assert run("evaluate again.json --json").json == said.json
    assert run(f"evaluate o:{len(stored)}").status == 2
    assert run("explain o:0").status == 0
    assert run("compare o:0 design.yaml").status == 0


def test_flags_and_a_file_describe_the_same_design(run: Any) -> None:
    by_file = run("evaluate design.yaml --json").json
    flags = "--network gpt2-small --sequence 1024 --global-batch 32 --chip tpu-v4 --cluster tpu-v4-pod --devices 8"
    by_flags = run(f"evaluate {flags} --stack generic --tensor 2 --micro-batch 2 --json").json
    assert by_file["design"]["plan"] == by_flags["design"]["plan"]
    assert by_file["design"]["chip"] == by_flags["design"]["chip"]
    changed = run(f"evaluate {flags} --tensor 2 --micro-batch 2 --set chip.clock=2.1GHz --json").json
    assert changed["design"]["chip"]["clock"] == 2.1e9


def test_every_number_of_an_evaluation_has_its_unit_and_scope(run: Any) -> None:
    found = run("evaluate design.yaml --json").json
    assert found["feasible"] and found["violations"] == {}
    assert found["metrics"].keys() == found["units"].keys() == found["scopes"].keys()
    assert found["units"]["step_time"] == "s" and found["units"]["communication_tensor"] == "B"
    shown = run("evaluate design.yaml").out
    assert "one device" in shown and "whole cluster" in shown


@pytest.mark.parametrize("steps", [1, 10])
def test_totals_scale_with_the_steps_and_a_step_does_not(steps: int, run: Any) -> None:
    flags = f"{FLAGS_OF_A_DESIGN} --tensor 8"
    alone = run(f"evaluate {flags} --json").json
    found = run(f"evaluate {flags} --steps {steps} --json").json
    assert found["metrics"] == alone["metrics"] and "totals" not in alone
    totals, metrics = found["totals"], found["metrics"]
    assert totals["total_time"] == steps * metrics["step_time"]
    assert totals["total_energy"] == steps * metrics["energy_per_step"]
    assert totals["total_tokens"] == steps * 512 * 2048
    assert totals["total_cost"] == pytest.approx(64 * 4.25 * steps * metrics["step_time"] / 3600, rel=1e-12)
    assert totals.keys() == found["total_units"].keys()
    assert f"{steps} steps, the whole run" in run(f"evaluate {flags} --steps {steps}").out


def test_a_design_that_does_not_fit_says_so_and_has_no_time(run: Any) -> None:
    flags = "--network llama3-405b --chip a100-sxm-80gb --devices 2 --global-batch 16 --tensor 2"
    said = run(f"evaluate {flags}")
    assert said.status == 3
    assert "cannot run" in said.out and "step_time" not in said.out
    assert "memory: needs" in said.out and "available" in said.out
    found = run(f"evaluate {flags} --json")
    assert found.status == 3 and not found.json["feasible"] and found.json["violations"]["memory"] > 0
    assert "step_time" not in found.json["metrics"] and found.json["metrics"]["memory"] > 80e9
    assert run(f"explain {flags}").status == 3


def test_without_a_plan_the_fastest_that_fits_is_taken_and_named(run: Any) -> None:
    flags = "--network gpt2-small --chip tpu-v4 --devices 8 --global-batch 32"
    said = run(f"evaluate {flags} --json")
    best = run(f"plan {flags} --json").json["best"][0]
    assert said.status == 0 and "fastest that fits" in said.err
    assert said.json["metrics"]["step_time"] == best["metrics"]["step_time"] if "metrics" in best else True


# Other commands ---------------------------------------------------------------------------------------------------


def test_the_planner_answers_and_says_when_nothing_fits(run: Any) -> None:
    good = run("plan --network gpt2-small --chip h100-sxm --devices 8 --global-batch 64 --tokens 10B --set tensor=1,2")
    assert good.status == 0 and "MFU" in good.out
    bad = run("plan --network llama3-405b --chip a100-sxm-80gb --devices 2 --global-batch 64 --json")
    assert bad.status == 3 and bad.json["feasible"] == 0 and bad.json["failures"]["memory"] > 0


def test_accounts_and_comparisons_are_exact_and_carry_units(run: Any) -> None:
    account = run(f"explain {FLAGS_OF_A_DESIGN} --tensor 8 --json").json
    assert sum(part["value"] for part in account["time"]) == pytest.approx(
        account["evaluation"]["metrics"]["step_time"], rel=1e-9
    )
    assert account["units"]["time"] == "s"
    flags = "--network gpt3-13b --devices 64 --global-batch 512 --tensor 8"
    both = run(f"compare a100-sxm-80gb h100-sxm {flags} --json").json
    assert [both[side]["design"]["chip"]["name"] for side in "ab"] == ["a100-sxm-80gb", "h100-sxm"]
    assert both["same_work"] and all("unit" in pair for pair in both["metrics"])


def test_a_front_is_filtered_and_written_again(run: Any) -> None:
    assert run("search tiny.yaml --jobs 1 --out o --quiet").status == 0
    areas = [d["objectives"]["die_area"] for d in json.loads(Path("o/designs.json").read_text())["designs"]]
    limit = sorted(areas)[0] * 1e6 + 1
    said = run(f"pareto o --where 'die_area <= {limit} mm2' --csv small/small.csv --out two --json")
    assert said.status == 0
    assert 1 <= said.json["front"] <= len(areas)
    assert len(list(csv.reader(Path("small/small.csv").open()))) == said.json["front"] + 1
    assert Path("two/designs.json").exists()
    assert run("evaluate --from two --row 0").status == 0
    one = run("pareto o --objectives throughput --json")
    assert one.json["front"] >= 1 and [o["name"] for o in one.json["objectives"]] == ["throughput"]
    assert run("pareto o --where 'die_area <= 1 mm2'").status == 3
    for text, words in {
        "--where 'die_are <= 1 mm2'": "did you mean die_area?",
        "--where 'die_area <= 1 kg'": "mm2",
        "--where 'die_area'": "METRIC <= BOUND",
        "--objectives throughputt": "did you mean throughput?",
        "--csv o": "o",
    }.items():
        bad = run(f"pareto o {text}")
        assert bad.status in (1, 2) and words in bad.err


@pytest.mark.parametrize("what", LISTS)
def test_every_list_is_a_table_and_the_same_as_data(what: str, run: Any) -> None:
    shown, plain = run(f"list {what}"), run(f"list {what} --json")
    assert shown.status == plain.status == 0
    assert len(plain.json) >= 3 and len(shown.out.splitlines()) > len(plain.json)


def test_lists_hold_every_name(run: Any) -> None:
    assert [row["name"] for row in run("list networks --json").json] == list(network_names())
    assert {row["chip"] for row in run("list chips --json").json} == set(dse.chips)
    assert {row["cluster"] for row in run("list clusters --json").json} == set(dse.clusters)
    assert {row["stack"] for row in run("list stacks --json").json} == set(dse.stacks)


@pytest.mark.parametrize("kind", ["search", "design"])
def test_the_schema_is_json_for_editors(kind: str, run: Any) -> None:
    found = run(f"schema {kind}").json
    assert found["$schema"].startswith("https://json-schema.org") and "chip" in found["properties"]


def test_validation_runs_on_what_is_shipped(run: Any) -> None:
    said = run("validate --json")
    assert said.status == 0 and said.json["sets"]
    assert run("validate --rows").status == 0


def test_the_bench_prints_rates(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dse.command.bench.bench",
        lambda **given: {"sweep_designs_per_s": 1e6, **given, "cost_by_size": [{"designs": 1}]}
    )
    assert run("bench --json --jobs 1 --largest 10").json["sweep_designs_per_s"] == 1e6
    assert "sweep_designs_per_s" in run("bench").out


@pytest.mark.parametrize(
    ("text", "tokens"), [("300B", 3e11), ("1.5T", 1.5e12), ("3e11", 3e11), ("20k", 2e4), ("7", 7.0)]
)
def test_tokens_are_read_as_people_write_them(text: str, tokens: float) -> None:
    assert read_tokens(text) == tokens
