"""`dse compare`: two designs or chips side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dse.api.chip import compare_chips, explain_chip
from dse.base.errors import ConfigError, Problem
from dse.command.designs import chips_alone, one_chip, side
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.pictures import picture_path, show
from dse.command.plain import UNITS, report_plain
from dse.insight.account import comparison
from dse.present.text.design import comparison_text

__all__ = ["run"]


def run(options: Options) -> int:
    """Two designs, or without a network two chips, side by side."""
    names = (options.first, options.second)
    picture = picture_path(options.out)
    if chips_alone(options, names):
        plans = _each(names, lambda name: explain_chip(*one_chip(name, options.set)))
        show(compare_chips(*plans), options, picture)
        return 0
    if picture is not None:
        raise ConfigError([Problem("a network", "two chips alone for a picture", field="--out")])
    found = comparison(*_each(names, lambda name: side(options, name)))
    if options.json:
        print_json(report_plain(found) | {"units": UNITS})
    else:
        print(comparison_text(found))
    return 0


def _each(names: Sequence[str], read: Callable[[str], Any]) -> list[Any]:
    """What every name stands for; what is wrong with any of them is said at once."""
    found, problems = [], []
    for name in names:
        try:
            found.append(read(name))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise ConfigError(problems)
    return found
