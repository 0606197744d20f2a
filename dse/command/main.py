"""The command `dse`: finds the command that is meant, runs it, and says how an error ends.

Which commands there are, with which flags, is in `dse.command.table`; each has a module that runs it.
Exit status: 0 done, 1 failed, 2 bad input, 3 nothing fits, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dse.base.errors import ConfigError, nearest
from dse.base.version import __version__
from dse.command.exit_status import BAD_INPUT, FAILED, INTERRUPTED
from dse.command.parser import Parser
from dse.command.table import COMMANDS

__all__ = ["main", "parser"]

#: Environment variable that lets an unforeseen error through, for whoever looks for its cause.
TRACEBACK = "DSE_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parse(arguments)
    except SystemExit as end:  # help, version, or flags that are wrong
        return int(end.code or 0)
    try:
        _register(options)
        status: int = COMMANDS[options.command].load().run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough, for example `dse list networks | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing complains at exit
        return 0
    except KeyboardInterrupt:
        print("dse: interrupted", file=sys.stderr)
        return INTERRUPTED
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
    except (Exception, SystemExit) as error:  # a model that was plugged in, or a fault of ours: a user gets one message
        if os.environ.get(TRACEBACK):
            raise
        print(f"dse: failed with {type(error).__name__}: {error}; {TRACEBACK}=1 shows where", file=sys.stderr)
        return FAILED


def _register(options: argparse.Namespace) -> None:
    """Import what --plugin names, so that data may name it."""
    if getattr(options, "plugin", None):
        from dse.inputs.registry import register  # start-up: few commands name plug-ins

        for name in options.plugin:
            register(name)


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


def parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and that of each command."""
    top = Parser(
        prog="dse",
        description="Which accelerator, in which cluster, running which parallel plan, trains a network best?",
        epilog="example:\n  dse search quickstart --out out/first\n\ndse COMMAND --help has more examples.",
    )
    top.add_argument("-V", "--version", action="version", version=f"dse {__version__}")
    group = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands: dict[str, Parser] = {}
    for name, command in COMMANDS.items():
        lines = "\n".join(f"  {line}" for line in command.examples)
        commands[name] = group.add_parser(
            name, help=command.purpose, description=f"{command.purpose[0].upper()}{command.purpose[1:]}.",
            epilog=f"example:\n{lines}",
        )
        command.add(commands[name])
    return top, commands
