"""Flags that several commands share: a design, its workload and plan, and how values are written."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from dse.base.errors import nearest
from dse.base.units import UnitError, parse, read_number
from dse.command.parser import Parser

__all__ = [
    "CHIP", "INPUT", "PLAN_FLAGS", "add_design", "add_design_flags", "add_json", "add_uncertainty", "add_workload",
    "duration", "one_of", "tokens", "whole",
]  # fmt: skip

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

INPUT = "a design file, or OUT:ROW of a search"
CHIP = "a name of `dse list chips`, or module:attribute"


def add_uncertainty(command: Parser) -> None:
    command.add_argument(
        "--uncertainty", action="store_true",
        help="80%% interval of each objective, and how often each design stays on the front",
    )  # fmt: skip


def add_plugin(command: Parser) -> None:
    command.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE:NAME",
        help="your code that a result names; results run no code that is not given here (repeatable)",
    )  # fmt: skip


def add_json(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="exact base SI with units, for programs")


def add_design(command: Parser, *, chip: str = CHIP) -> None:
    command.add_argument("design", metavar="DESIGN", nargs="?", help=f"{INPUT}; or use the flags below")
    command.add_argument("--from", dest="origin", metavar="OUT", help="the output folder of a search")
    command.add_argument("--row", type=whole(0), metavar="N", help="row of its front, 0 is the first (with --from)")
    add_design_flags(command, chip=chip)
    add_plugin(command)
    add_json(command)


def add_workload(command: Any) -> None:
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
    )  # fmt: skip


def add_design_flags(command: Parser, *, chip: str) -> None:
    flags = command.add_argument_group("a design by flags")
    if chip:
        flags.add_argument("--chip", metavar="NAME", help=chip)
    add_workload(flags)
    flags.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE",
        help="change a field, for example chip.clock=1.2GHz (repeatable)",
    )  # fmt: skip
    plan = command.add_argument_group("its plan (none given: the fastest that fits)")
    for name, meaning in PLAN_FLAGS.items():
        plan.add_argument(f"--{name.replace('_', '-')}", metavar="X", help=meaning)


def whole(low: int) -> Any:
    """A reader of whole numbers >= low, which may be written 1e6."""

    def read(text: str) -> int:
        number = read_number(text)
        if number is None or number.denominator != 1 or number < low:
            raise argparse.ArgumentTypeError(f'found "{text}", allowed: a whole number >= {low}')
        return int(number)

    return read


def duration(text: str) -> float:
    try:
        seconds = parse(text, "s")
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: a time > 0, for example 90s')
    return seconds


def one_of(names: Sequence[str]) -> Any:
    def read(text: str) -> str:
        if text in names:
            return text
        near = nearest(text, names)
        hint = f"; did you mean {near}?" if near else ""
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: {", ".join(names)}{hint}')

    return read


#: What follows a number of tokens, as people write it.
TOKEN_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def tokens(text: str) -> float:
    """A number of tokens, as people write it."""
    digits = text.strip().rstrip("kKMBT")
    suffix = text.strip()[len(digits) :].upper()
    number = read_number(digits.strip())
    if number is None or suffix not in TOKEN_SUFFIXES or number <= 0:
        raise argparse.ArgumentTypeError(f'found "{text}", allowed: tokens > 0, for example 300B or 3e11')
    return float(number * TOKEN_SUFFIXES[suffix])
