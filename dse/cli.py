"""The command `dse`: which commands and flags there are, and how an error ends.

What the commands do is in `dse.commands`, which is imported when one runs, so that `dse --help` answers at once.
Exit status: 0 done, 1 failed, 2 bad input, 3 nothing fits, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import dse
from dse.errors import ConfigError, nearest

__all__ = ["COMMANDS", "BAD_INPUT", "FAILED", "INTERRUPTED", "NOTHING_FITS", "main", "parser"]

#: Environment variable that lets an unforeseen error through, for whoever looks for its cause.
TRACEBACK = "DSE_TRACEBACK"

FAILED, BAD_INPUT, NOTHING_FITS, INTERRUPTED = 1, 2, 3, 130

#: Command -> what it does, as `dse --help` says.
COMMANDS = {
    "search": "search chips and parallel plans together",
    "plan": "the chip is fixed: the best plans, and why the others lose",
    "evaluate": "price one design: time, energy, memory, what it violates",
    "explain": "where time, energy and memory of a design go and what would help, or a chip's floor plan",
    "trace": "simulate one step event by event and write its timeline for Perfetto",
    "compare": "two designs or chips side by side, and where the difference comes from",
    "pareto": "filter the record of a search and write its front again",
    "network": "what a network computes, moves and trains, layer by layer, and its picture",
    "import": "a network of another tool's file as YAML; Calculon's three files as a design",
    "list": "networks, chips, clusters, stacks, objectives, searchers, searches",
    "schema": "JSON Schema of a configuration file, for editors",
    "validate": "compare predictions with published measurements",
    "calibrate": "fit constants of devices and software stacks to measured steps",
    "bench": "how fast this machine evaluates designs",
}

EXAMPLES = {
    "search": (
        "dse search quickstart --out out/first",
        "dse search my_search.yaml --budget 500 --timeout 90s --seed 1",
    ),
    "plan": (
        "dse plan --network llama3-70b --chip h100-sxm --devices 512 --global-batch 1024",
        "dse plan --network gpt3-175b --chip a100-sxm-80gb --devices 1024 --global-batch 1536 --set tensor=4,8 "
        "--tokens 300B",
    ),
    "evaluate": (
        "dse evaluate --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --tensor 8 --json",
        "dse evaluate design.yaml",
        "dse evaluate --from out/first --row 3",
    ),
    "explain": (
        "dse explain --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --tensor 8",
        "dse explain out/first:3 --tornado --out constants.png",
        "dse explain --chip h100-sxm --set chip.clock=1.2GHz --out h100.png",
    ),
    "trace": (
        "dse trace --network gpt3-13b --chip h100-sxm --devices 64 --global-batch 512 --pipeline 4 --out step.json",
        "dse trace out/first:3",
    ),
    "compare": (
        "dse compare a100-sxm-80gb h100-sxm --network gpt3-13b --devices 64 --global-batch 512 --tensor 8",
        "dse compare out/first:1 design.yaml",
        "dse compare a100-sxm-80gb h100-sxm --out two.png",
    ),
    "pareto": (
        "dse pareto out/first --where 'die_area <= 600 mm2' --csv small.csv",
        "dse pareto out/first --objectives throughput,die_area --out out/two",
        "dse pareto out/first --uncertainty --out out/bars",
    ),
    "network": ("dse network show resnet50", "dse network show gpt3-175b --micro-batch 8 --out gpt3.png"),
    "import": (
        "dse import config.json --out llama.yaml",
        "dse import models/gpt3_175B.json systems/a100_80g.json execution.json --out design.json",
    ),
    "list": ("dse list chips", "dse list networks --json"),
    "schema": ("dse schema search",),
    "validate": ("dse validate --data measurements --rows", "dse validate --set 'megatron*' --json"),
    "calibrate": (
        "dse calibrate --data measurements --out constants.csv",
        "dse calibrate --data measurements --leave-one-out",
    ),
    "bench": ("dse bench --json",),
}

LISTS = ("networks", "chips", "clusters", "stacks", "objectives", "searchers", "searches")

#: Plan flags with what they mean; the names are the fields of `dse.Plan`.
PLAN_FLAGS = {
    "tensor": "tensor-parallel degree",
    "pipeline": "pipeline stages",
    "data": "data-parallel degree (default: the devices that are left)",
    "sequence_parallel": "norms and dropout split over the tensor axis: true or false",
    "micro_batch": "samples a device works on at once",
    "interleave": "model chunks a stage",
    "schedule": "gpipe, 1f1b or zero_bubble",
    "zero_stage": "split over the data axis: 1 optimizer state, 2 and gradients, 3 and weights (FSDP)",
    "recompute": "none, selective, full or per_operator",
    "overlap_data": "gradient reduction during the last backward pass: true or false",
    "overlap_pipeline": "transfers between stages during computation: true or false",
    "split": "uniform or balanced layers over the stages",
    "order": "parallel axes from neighbouring ranks outwards, for example tensor-data-pipeline",
    "context": "devices that split the tokens of a sample",
    "expert": "devices that split the routed experts of a layer",
    "expert_tensor": "each expert split over the tensor axis too: true or false",
    "zero_group": "ranks that share what ZeRO splits; 0: all of the data and context axes",
    "reshard": "ZeRO-3 frees weights after the forward pass: true or false",
    "offload": "to the host's memory: none, optimizer or all",
    "recompute_layers": "layers of a stage that recompute; 0: all",
    "context_ring": "keys and values travel a ring behind attention: true or false",
    "overlap_tensor": "tensor exchanges behind the products beside them: true or false",
    "overlap_expert": "rows go to experts while another micro-batch computes: true or false",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one message, with the nearest flag."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n{self.prog} --help shows what is allowed\n")

    def flags(self) -> list[str]:
        """Every long flag."""
        return [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parse(arguments)
        from dse import commands

        status: int = getattr(commands, f"run_{options.command}")(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough, for example `dse list networks | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing complains at exit
        return 0
    except KeyboardInterrupt:
        print("dse: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        return int(end.code or 0)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except ValueError as error:  # a model that refuses its input, another search's folder, ...
        print(f"dse: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"dse: {where}{error.strerror or error}", file=sys.stderr)
        return FAILED
    except Exception as error:  # a model that was plugged in, or a fault of ours: a user gets one message
        if os.environ.get(TRACEBACK):
            raise
        print(f"dse: failed with {type(error).__name__}: {error}; {TRACEBACK}=1 shows where", file=sys.stderr)
        return FAILED


def _parse(arguments: list[str]) -> argparse.Namespace:
    top, commands = parser()
    first = next((text for text in arguments if not text.startswith("-")), None)
    if first is not None and first not in COMMANDS:
        near = nearest(first, COMMANDS)
        hint = f"; did you mean {near}?" if near else ""
        top.exit(BAD_INPUT, f'dse: found the command "{first}"; allowed: {", ".join(COMMANDS)}{hint}\n')
    options, extra = top.parse_known_args(arguments)
    if options.command is None:
        top.print_help(sys.stderr)
        top.exit(BAD_INPUT)
    if extra:
        command = commands[options.command]
        named = [text for text in extra if text.startswith("--")] or extra
        near = nearest(named[0].partition("=")[0], command.flags())
        command.error(f"found {named[0]}, which it does not take" + (f"; did you mean {near}?" if near else ""))
    return options


def parser() -> tuple[argparse.ArgumentParser, dict[str, _Parser]]:
    """The parser, and that of each command."""
    top = _Parser(
        prog="dse",
        description="Which accelerator, in which cluster, running which parallel plan, trains a network best?",
        epilog="example:\n  dse search quickstart --out out/first\n\ndse COMMAND --help has more examples.",
    )
    top.add_argument("-V", "--version", action="version", version=f"dse {dse.__version__}")
    group = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands: dict[str, _Parser] = {}
    for name, purpose in COMMANDS.items():
        lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
        commands[name] = group.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", epilog=f"example:\n{lines}"
        )
        globals()[f"_add_{name}"](commands[name])
    return top, commands


# Flags of each command --------------------------------------------------------------------------------------------


def _add_search(command: _Parser) -> None:
    command.add_argument("config", metavar="CONFIG", help="a YAML file, or the name of a shipped search")
    command.add_argument("--out", metavar="DIR", help="folder of record and results (default: out/NAME)")
    command.add_argument("--budget", type=_whole(1), metavar="N", help="hardware rows to look at")
    command.add_argument("--timeout", type=_duration, metavar="TIME", help="stop after this time, for example 90s, 2h")
    command.add_argument("--jobs", type=_whole(1), metavar="N", help="processes (default: one a processor)")
    command.add_argument("--seed", type=_whole(0), metavar="N", help="of the sampler; the same seed, the same front")
    command.add_argument(
        "--storage", metavar="URL", default="auto", help="Optuna study: a URL, none, or auto (a journal in DIR)"
    )
    command.add_argument("--quiet", action="store_true", help="no progress")
    _add_uncertainty(command)
    _add_json(command)


def _add_plan(command: _Parser) -> None:
    _add_workload(command)
    command.add_argument("--chip", required=True, help="a name of `dse list chips`, or module:attribute")
    command.add_argument("--tokens", type=_tokens, metavar="N", help="length of the training, for example 300B")
    command.add_argument("--top", type=_whole(1), default=10, metavar="N", help="plans to show (default: 10)")
    command.add_argument(
        "--set", action="append", default=[], metavar="FIELD=A,B", help="values a plan field may take (repeatable)"
    )
    _add_json(command)


def _add_evaluate(command: _Parser) -> None:
    _add_design(command)
    command.add_argument("--steps", type=_whole(1), metavar="N", help="also the totals of so many optimizer steps")


def _add_explain(command: _Parser) -> None:
    _add_design(command, chip=f"{_CHIP}; without a network, its floor plan")
    command.add_argument("--tornado", action="store_true", help="also the constants that decide the design")
    command.add_argument("--out", metavar="FILE", help="a picture of the floor plan or the tornado, PNG or SVG")


def _add_trace(command: _Parser) -> None:
    _add_design(command)
    command.add_argument("--out", metavar="FILE", help="where the timeline goes (default: trace.json)")


def _add_compare(command: _Parser) -> None:
    for side in ("first", "second"):
        meaning = f"{_INPUT}, or a chip (without flags: two floor plans)"
        command.add_argument(side, metavar=side[0].upper() + side[1:], help=meaning)
    _add_design_flags(command, chip="")
    command.add_argument("--out", metavar="FILE", help="a picture of two floor plans, PNG or SVG")
    _add_json(command)


def _add_pareto(command: _Parser) -> None:
    command.add_argument("out", metavar="OUT", help="the output folder of a search")
    command.add_argument(
        "--where", action="append", default=[], metavar="RULE",
        help="limit on a metric, for example 'die_area <= 600 mm2' (repeatable)",
    )  # fmt: skip
    command.add_argument("--objectives", metavar="A,B", help="front over these metrics instead")
    command.add_argument("--csv", metavar="FILE", help="write the table there")
    command.add_argument("--out", dest="to", metavar="DIR", help="write pareto.csv, designs.json, ... there")
    _add_uncertainty(command)
    _add_json(command)


def _add_list(command: _Parser) -> None:
    command.add_argument("what", metavar="WHAT", type=_one_of(LISTS), help=", ".join(LISTS))
    _add_json(command)


def _add_network(command: _Parser) -> None:
    command.add_argument("action", metavar="ACTION", type=_one_of(("show",)), help="show")
    command.add_argument("name", metavar="NETWORK", help="a name of `dse list networks`, a file, or module:attribute")
    command.add_argument("--sequence", type=_whole(1), metavar="N", help="tokens a sample (default: as published)")
    command.add_argument("--micro-batch", type=_whole(1), default=1, metavar="N", help="samples at once (default: 1)")
    command.add_argument("--operators", action="store_true", help="also a line an operator")
    command.add_argument("--chip", metavar="NAME", help="also critical path and schedule of a graph on this chip")
    for unit, part in (("matrix", "arrays"), ("vector", "lanes")):
        meaning = f"its {part} as N units (default: 1)"
        command.add_argument(f"--{unit}-units", type=_whole(1), default=1, metavar="N", help=meaning)
    command.add_argument("--out", metavar="FILE", help="a picture of its layers, PNG or SVG")
    _add_json(command)


def _add_import(command: _Parser) -> None:
    meaning = "a network (file, name or module:attribute), or Calculon's application, system and execution"
    command.add_argument("files", metavar="FILE", nargs="+", help=meaning)
    command.add_argument("--sequence", type=_whole(1), metavar="N", help="tokens a sample (default: as published)")
    command.add_argument("--out", metavar="FILE", help="write it there (default: standard output)")


def _add_schema(command: _Parser) -> None:
    command.add_argument(
        "kind", metavar="KIND", nargs="?", default="search", type=_one_of(("search", "design")),
        help="search (default) or design",
    )  # fmt: skip


def _add_validate(command: _Parser) -> None:
    command.add_argument(
        "--data", metavar="DIR", help="folder with more measurements (default: the variable DSE_DATA, or none)"
    )
    command.add_argument("--set", action="append", default=[], metavar="GLOB", help="sets to compare (repeatable)")
    command.add_argument("--rows", action="store_true", help="every measurement, not only the errors of each set")
    command.add_argument("--constants", metavar="FILE", help="of `dse calibrate` (default: those that ship)")
    command.add_argument("--report", metavar="OUT", help="write a page with tables and figures into this folder")
    _add_json(command)


def _add_calibrate(command: _Parser) -> None:
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
    _add_json(command)


def _add_bench(command: _Parser) -> None:
    command.add_argument("--jobs", type=_whole(1), metavar="N", help="processes (default: one a processor)")
    command.add_argument(
        "--largest", type=_whole(1), default=10_000_000, metavar="N", help="largest batch of the cost table"
    )
    _add_json(command)


_INPUT = "a design file, or OUT:ROW of a search"
_CHIP = "a name of `dse list chips`, or module:attribute"


def _add_uncertainty(command: _Parser) -> None:
    command.add_argument(
        "--uncertainty", action="store_true",
        help="80%% interval of each objective, and how often each design stays on the front",
    )  # fmt: skip


def _add_json(command: _Parser) -> None:
    command.add_argument("--json", action="store_true", help="exact base SI with units, for programs")


def _add_design(command: _Parser, *, chip: str = _CHIP) -> None:
    command.add_argument("design", metavar="DESIGN", nargs="?", help=f"{_INPUT}; or use the flags below")
    command.add_argument("--from", dest="origin", metavar="OUT", help="the output folder of a search")
    command.add_argument("--row", type=_whole(0), metavar="N", help="row of its front, 0 is the first (with --from)")
    _add_design_flags(command, chip=chip)
    _add_json(command)


def _add_workload(command: Any) -> None:
    command.add_argument("--network", metavar="NAME", help="a name of `dse list networks`, a file, or module:attribute")
    command.add_argument("--global-batch", metavar="N", help="samples an optimizer step")
    command.add_argument("--sequence", metavar="N", help="tokens a sample (default: as published)")
    command.add_argument("--devices", metavar="N", help="chips that train")
    command.add_argument("--cluster", metavar="NAME", help="a name of `dse list clusters` (default: by the chip)")
    command.add_argument("--stack", metavar="NAME", help="a name of `dse list stacks` (default: generic)")
    command.add_argument("--precision", metavar="NAME", help="bf16 (default), fp16, fp8, tf32, fp32")
    command.add_argument("--gradient-bytes", metavar="N", help="4 (default) or 2")
    command.add_argument("--optimizer", metavar="NAME", help="adam (default), momentum, sgd")
    command.add_argument("--attention", metavar="NAME", help="fused (default), pipelined or materialized")
    command.add_argument("--scaling", metavar="NAME", help="of fp8 operands: tensor (default) or row")
    command.add_argument("--cross-entropy", metavar="NAME", help="the loss: fused (default) or materialized")
    command.add_argument(
        "--table-optimizer", metavar="NAME",
        help="of embedding tables: same (default, as --optimizer), adam, momentum, rowwise_adagrad or sgd",
    )


def _add_design_flags(command: _Parser, *, chip: str) -> None:
    flags = command.add_argument_group("a design by flags")
    if chip:
        flags.add_argument("--chip", metavar="NAME", help=chip)
    _add_workload(flags)
    flags.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE",
        help="change a field, for example chip.clock=1.2GHz (repeatable)",
    )  # fmt: skip
    plan = command.add_argument_group("its plan (none given: the fastest that fits)")
    for name, meaning in PLAN_FLAGS.items():
        plan.add_argument(f"--{name.replace('_', '-')}", metavar="X", help=meaning)


# Values -----------------------------------------------------------------------------------------------------------


def _whole(low: int) -> Any:
    """A reader of whole numbers >= low, which may be written 1e6."""

    def read(text: str) -> int:
        from dse.units import read_number

        number = read_number(text)
        if number is None or number.denominator != 1 or number < low:
            raise argparse.ArgumentTypeError(f'found "{text}", allowed: a whole number >= {low}')
        return int(number)

    return read


def _duration(text: str) -> float:
    from dse.units import UnitError, parse

    try:
        seconds = parse(text, "s")
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: a time > 0, for example 90s')
    return seconds


#: What follows a number of tokens, as people write it.
TOKEN_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def _tokens(text: str) -> float:
    from dse.units import read_number

    digits = text.strip().rstrip("kKMBT")
    suffix = text.strip()[len(digits) :].upper()
    number = read_number(digits.strip())
    if number is None or suffix not in TOKEN_SUFFIXES or number <= 0:
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: tokens > 0, for example 300B or 3e11')
    return float(number * TOKEN_SUFFIXES[suffix])


def _one_of(names: Sequence[str]) -> Any:
    def read(text: str) -> str:
        if text in names:
            return text
        near = nearest(text, names)
        hint = f"; did you mean {near}?" if near else ""
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: {", ".join(names)}{hint}')

    return read
