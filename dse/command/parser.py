"""The parser of `dse` and of its commands: an error is one message, with the nearest flag."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from dse.command.exit_status import BAD_INPUT

__all__ = ["Options", "Parser"]

Options = argparse.Namespace


class Parser(argparse.ArgumentParser):
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
