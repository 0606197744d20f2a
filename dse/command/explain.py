"""What `dse explain` and `dse compare` do: designs with their network, and chips alone.

Everything that costs time to import is imported where it is used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem
from dse.command.json_output import print_json
from dse.command.main import NOTHING_FITS

__all__ = ["picture_path", "run_compare", "run_explain"]

Options = argparse.Namespace

#: Units of the tables of an account and a comparison, by the name of the table or field.
_UNITS = {
    "time": "s", "device_time": "s", "exposed": "s", "step_time": "s", "forward": "s", "backward": "s", "streams": "s",
    "resources": "s", "energy": "J", "memory": "B", "message": "B", "share": "",
}  # fmt: skip

#: Endings of a picture's file.
PICTURES = (".png", ".svg")


def run_explain(options: Options) -> int:
    """The account of one design; of a chip without a network, its floor plan."""
    from dse.command.designs import chip_alone, one_design
    from dse.insight.account import account
    from dse.insight.tornado import tornado
    from dse.present.text.design import account_text

    if chip_alone(options):
        return _explain_chip(options)
    picture = picture_path(options.out)
    if picture is not None and not options.tornado:
        raise ConfigError([Problem("--out with a design", "--tornado beside it, or --chip alone", field="--out")])
    found = account(one_design(options))
    decide = tornado(found.design) if options.tornado or options.json else None
    if options.json and decide is not None:
        print_json(_plain(found) | {"tornado": decide.to_plain(), "units": _UNITS})
    else:
        print(account_text(found) + (f"\n{decide.text()}" if decide is not None else ""))
    _save(decide, picture)
    return 0 if found.feasible else NOTHING_FITS


def _explain_chip(options: Options) -> int:
    """The floor plan of a chip, and its picture."""
    from dse.command.designs import one_chip
    from dse.insight.floor_plan import floor_plan

    if options.tornado:
        raise ConfigError([Problem("--tornado with a chip alone", "a network beside it: --network", field="--tornado")])
    picture = picture_path(options.out)
    _show(floor_plan(*one_chip(options.chip, options.set)), options, picture)
    return 0


def picture_path(out: str | None) -> Path | None:
    """The path of a picture, checked before anything is computed."""
    if out is None:
        return None
    path = Path(out)
    if path.suffix not in PICTURES:
        raise ConfigError([Problem(f'"{out}"', f"a file that ends with {' or '.join(PICTURES)}", field="--out")])
    if not path.absolute().parent.is_dir():
        raise ConfigError([Problem("no such folder", "a file in a folder that exists", field="--out", file=out)])
    return path


def _show(found: Any, options: Options, picture: Path | None) -> None:
    """A floor plan, or two, as text or data; and as a picture where one is wanted."""
    if options.json:
        print_json(found.to_plain())
    else:
        print(found.text())
    _save(found, picture)


def _save(found: Any, picture: Path | None) -> None:
    if picture is not None:
        print(f"wrote {found.save(picture)}", file=sys.stderr)


def run_compare(options: Options) -> int:
    """Two designs, or without a network two chips, side by side."""
    from dse.command.designs import chips_alone, one_chip, side
    from dse.insight.account import comparison
    from dse.insight.floor_plan import chip_comparison, floor_plan
    from dse.present.text.design import comparison_text

    names = (options.first, options.second)
    picture = picture_path(options.out)
    if chips_alone(options, names):
        plans = _each(names, lambda name: floor_plan(*one_chip(name, options.set)))
        _show(chip_comparison(*plans), options, picture)
        return 0
    if picture is not None:
        raise ConfigError([Problem("a network", "two chips alone for a picture", field="--out")])
    found = comparison(*_each(names, lambda name: side(options, name)))
    if options.json:
        print_json(_plain(found) | {"units": _UNITS})
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


def _plain(value: Any) -> Any:
    """What a report holds as JSON-able data; evaluations and designs in their own exact form."""
    from dse.api.evaluation import Evaluation
    from dse.command.commands import evaluation_plain
    from dse.evaluation.design import Design
    from dse.inputs.serialize import design_to_plain

    if isinstance(value, Evaluation):
        return evaluation_plain(value, value.design, None)
    if isinstance(value, Design):
        return design_to_plain(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
