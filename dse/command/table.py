"""The commands of `dse`: what each is for, its flags, examples that run, and the module that runs it.

Help and errors of the command line need this table alone; a command's module is imported when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dse.command.flags import (
    CHIP,
    INPUT,
    add_design,
    add_design_flags,
    add_json,
    add_plugin,
    add_uncertainty,
    add_workload,
    duration,
    one_of,
    tokens,
    whole,
)
from dse.command.parser import Parser

__all__ = ["COMMANDS", "LISTS", "Command"]

LISTS = ("networks", "chips", "clusters", "stacks", "objectives", "searchers", "searches")


@dataclass(frozen=True)
class Command:
    """A command: its purpose in a line, examples that run, what adds its flags to a parser, and its module.

    The module, of `dse.command`, has `run(options)`, which returns the exit status.
    """

    purpose: str
    examples: tuple[str, ...]
    add: Callable[[Parser], None]
    module: str

    def load(self) -> Any:
        """The module, imported now.  Start-up: help answers in 0.1 s, the libraries of a command take up to 1.5 s."""
        return import_module(f"dse.command.{self.module}")


def _search(command: Parser) -> None:
    command.add_argument("config", metavar="CONFIG", help="a YAML file, or the name of a shipped search")
    command.add_argument("--out", metavar="DIR", help="folder of record and results (default: out/NAME)")
    command.add_argument("--budget", type=whole(1), metavar="N", help="hardware rows to look at")
    command.add_argument("--timeout", type=duration, metavar="TIME", help="stop after this time, for example 90s, 2h")
    command.add_argument("--jobs", type=whole(1), metavar="N", help="processes (default: one a processor)")
    command.add_argument("--seed", type=whole(0), metavar="N", help="of the sampler; the same seed, the same front")
    command.add_argument(
        "--storage", metavar="URL", default="auto", help="Optuna study: a URL, none, or auto (a journal in DIR)"
    )
    command.add_argument("--quiet", action="store_true", help="no progress")
    add_uncertainty(command)
    add_json(command)


def _plan(command: Parser) -> None:
    add_workload(command)
    command.add_argument("--chip", required=True, help="a name of `dse list chips`, or module:attribute")
    command.add_argument("--tokens", type=tokens, metavar="N", help="length of the training, for example 300B")
    command.add_argument("--top", type=whole(1), default=10, metavar="N", help="plans to show (default: 10)")
    command.add_argument(
        "--set", action="append", default=[], metavar="FIELD=A,B", help="values a plan field may take (repeatable)"
    )
    add_json(command)


def _evaluate(command: Parser) -> None:
    add_design(command)
    command.add_argument("--steps", type=whole(1), metavar="N", help="also the totals of so many optimizer steps")


def _explain(command: Parser) -> None:
    add_design(command, chip=f"{CHIP}; without a network, its floor plan")
    command.add_argument("--tornado", action="store_true", help="also the constants that decide the design")
    command.add_argument("--out", metavar="FILE", help="a picture of the floor plan or the tornado, PNG or SVG")


def _trace(command: Parser) -> None:
    add_design(command)
    command.add_argument("--out", metavar="FILE", help="where the timeline goes (default: trace.json)")


def _compare(command: Parser) -> None:
    for name in ("first", "second"):
        meaning = f"{INPUT}, or a chip (without flags: two floor plans)"
        command.add_argument(name, metavar=name[0].upper() + name[1:], help=meaning)
    add_design_flags(command, chip="")
    command.add_argument("--out", metavar="FILE", help="a picture of two floor plans, PNG or SVG")
    add_plugin(command)
    add_json(command)


def _pareto(command: Parser) -> None:
    command.add_argument("out", metavar="OUT", help="the output folder of a search")
    command.add_argument(
        "--where", action="append", default=[], metavar="RULE",
        help="limit on a metric, for example 'die_area <= 600 mm2' (repeatable)",
    )  # fmt: skip
    command.add_argument("--objectives", metavar="A,B", help="front over these metrics instead")
    command.add_argument("--csv", metavar="FILE", help="write the table there")
    command.add_argument("--out", dest="to", metavar="DIR", help="write pareto.csv, designs.json, ... there")
    add_plugin(command)
    add_uncertainty(command)
    add_json(command)


def _network(command: Parser) -> None:
    command.add_argument("action", metavar="ACTION", type=one_of(("show",)), help="show")
    command.add_argument("name", metavar="NETWORK", help="a name of `dse list networks`, a file, or module:attribute")
    command.add_argument("--sequence", type=whole(1), metavar="N", help="tokens a sample (default: as published)")
    command.add_argument("--micro-batch", type=whole(1), default=1, metavar="N", help="samples at once (default: 1)")
    command.add_argument("--operators", action="store_true", help="also a line an operator")
    command.add_argument("--chip", metavar="NAME", help="also critical path and schedule of a graph on this chip")
    for unit, part in (("matrix", "arrays"), ("vector", "lanes")):
        meaning = f"its {part} as N units (default: 1)"
        command.add_argument(f"--{unit}-units", type=whole(1), default=1, metavar="N", help=meaning)
    command.add_argument("--out", metavar="FILE", help="a picture of its layers, PNG or SVG")
    add_json(command)


def _import(command: Parser) -> None:
    meaning = "a network (file, name or module:attribute), or Calculon's application, system and execution"
    command.add_argument("files", metavar="FILE", nargs="+", help=meaning)
    command.add_argument("--sequence", type=whole(1), metavar="N", help="tokens a sample (default: as published)")
    command.add_argument("--out", metavar="FILE", help="write it there (default: standard output)")


def _list(command: Parser) -> None:
    command.add_argument("what", metavar="WHAT", type=one_of(LISTS), help=", ".join(LISTS))
    add_json(command)


def _schema(command: Parser) -> None:
    command.add_argument(
        "kind", metavar="KIND", nargs="?", default="search", type=one_of(("search", "design")),
        help="search (default) or design",
    )  # fmt: skip


def _validate(command: Parser) -> None:
    command.add_argument(
        "--data", metavar="DIR", help="folder with more measurements (default: the variable DSE_DATA, or none)"
    )
    command.add_argument("--set", action="append", default=[], metavar="GLOB", help="sets to compare (repeatable)")
    command.add_argument("--rows", action="store_true", help="every measurement, not only the errors of each set")
    command.add_argument("--constants", metavar="FILE", help="of `dse calibrate` (default: those that ship)")
    command.add_argument("--report", metavar="OUT", help="write a page with tables and figures into this folder")
    add_json(command)


def _calibrate(command: Parser) -> None:
    command.add_argument(
        "--data", metavar="DIR", help="folder with measurements (default: the variable DSE_DATA, or the shipped table)"
    )
    command.add_argument("--device", metavar="CHIP", help="fit this device alone; others stay as shipped")
    command.add_argument("--stack", metavar="NAME", help="fit this stack alone; others stay as shipped")
    command.add_argument("--out", metavar="FILE", help="write the constants there, for --constants")
    command.add_argument(
        "--leave-one-out", action="store_true", help="predict each stack on each device without its own rows"
    )
    command.add_argument("--quiet", action="store_true", help="no progress")
    add_json(command)


def _bench(command: Parser) -> None:
    command.add_argument("--jobs", type=whole(1), metavar="N", help="processes (default: one a processor)")
    command.add_argument(
        "--largest", type=whole(1), default=10_000_000, metavar="N", help="largest batch of the cost table"
    )
    add_json(command)


COMMANDS: Mapping[str, Command] = {
    "search": Command(
        "search chips and parallel plans together",
        (
            "dse search quickstart --out out/first",
            "dse search my_search.yaml --budget 500 --timeout 90s --seed 1",
        ),
        _search,
        "search",
    ),
    "plan": Command(
        "the chip is fixed: the best plans, and why the others lose",
        (
            "dse plan --network llama3-70b --chip h100-sxm --devices 512 --global-batch 1024",
            "dse plan --network gpt3-175b --chip a100-sxm-80gb --devices 1024 --global-batch 1536 --set "
            "tensor=4,8 --tokens 300B",
        ),
        _plan,
        "plan",
    ),
    "evaluate": Command(
        "price one design: time, energy, memory, what it violates",
        (
            "dse evaluate --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --tensor 8 --json",
            "dse evaluate design.yaml",
            "dse evaluate --from out/first --row 3",
        ),
        _evaluate,
        "evaluate",
    ),
    "explain": Command(
        "where time, energy and memory of a design go and what would help, or a chip's floor plan",
        (
            "dse explain --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --tensor 8",
            "dse explain out/first:3 --tornado --out constants.png",
            "dse explain --chip h100-sxm --set chip.clock=1.2GHz --out h100.png",
        ),
        _explain,
        "explain",
    ),
    "trace": Command(
        "simulate one step event by event and write its timeline for Perfetto",
        (
            "dse trace --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --pipeline 4 --out step.json",
            "dse trace out/first:3",
        ),
        _trace,
        "trace",
    ),
    "compare": Command(
        "two designs or chips side by side, and where the difference comes from",
        (
            "dse compare a100-sxm-80gb h100-sxm --network gpt3-13b --devices 64 --global-batch 512 --tensor 8",
            "dse compare out/first:1 design.yaml",
            "dse compare a100-sxm-80gb h100-sxm --out two.png",
        ),
        _compare,
        "compare",
    ),
    "pareto": Command(
        "filter the record of a search and write its front again",
        (
            "dse pareto out/first --where 'die_area <= 600 mm2' --csv small.csv",
            "dse pareto out/first --objectives throughput,die_area --out out/two",
            "dse pareto out/first --uncertainty --out out/bars",
        ),
        _pareto,
        "pareto",
    ),
    "network": Command(
        "what a network computes, moves and trains, layer by layer, and its picture",
        (
            "dse network show resnet50",
            "dse network show gpt3-175b --micro-batch 8 --out gpt3.png",
        ),
        _network,
        "network",
    ),
    "import": Command(
        "a network of another tool's file as YAML; Calculon's three files as a design",
        (
            "dse import config.json --out llama.yaml",
            "dse import models/gpt3_175B.json systems/a100_80g.json execution.json --out design.json",
        ),
        _import,
        "import_network",
    ),
    "list": Command(
        "networks, chips, clusters, stacks, objectives, searchers, searches",
        (
            "dse list chips",
            "dse list networks --json",
        ),
        _list,
        "list",
    ),
    "schema": Command(
        "JSON Schema of a configuration file, for editors",
        ("dse schema search",),
        _schema,
        "schema",
    ),
    "validate": Command(
        "compare predictions with published measurements",
        (
            "dse validate --data measurements --rows",
            "dse validate --set 'megatron*' --json",
        ),
        _validate,
        "validate",
    ),
    "calibrate": Command(
        "fit constants of devices and software stacks to measured steps",
        (
            "dse calibrate --data measurements --out constants.csv",
            "dse calibrate --data measurements --leave-one-out",
        ),
        _calibrate,
        "calibrate",
    ),
    "bench": Command(
        "how fast this machine evaluates designs",
        ("dse bench --json",),
        _bench,
        "bench",
    ),
}
