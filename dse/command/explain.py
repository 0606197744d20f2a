"""`dse explain`: where time, energy and memory of a design go; without a network, a chip's floor plan."""

from __future__ import annotations

from dse.api.account import constants_that_decide
from dse.api.chip import explain_chip
from dse.base.errors import ConfigError, Problem
from dse.command.designs import chip_alone, one_chip, one_design
from dse.command.exit_status import NOTHING_FITS
from dse.command.json_output import print_json
from dse.command.parser import Options
from dse.command.pictures import picture_path, save_picture, show
from dse.command.plain import UNITS, report_plain
from dse.insight.account import account
from dse.present.text.design import account_text

__all__ = ["run"]


def run(options: Options) -> int:
    """The account of one design; of a chip without a network, its floor plan."""
    if chip_alone(options):
        return _explain_chip(options)
    picture = picture_path(options.out)
    if picture is not None and not options.tornado:
        raise ConfigError([Problem("--out with a design", "--tornado beside it, or --chip alone", field="--out")])
    found = account(one_design(options))
    decide = constants_that_decide(found.design) if options.tornado or options.json else None
    if options.json and decide is not None:
        print_json(report_plain(found) | {"tornado": decide.to_plain(), "units": UNITS})
    else:
        print(account_text(found) + (f"\n{decide.text()}" if decide is not None else ""))
    save_picture(decide, picture)
    return 0 if found.feasible else NOTHING_FITS


def _explain_chip(options: Options) -> int:
    """The floor plan of a chip, and its picture."""
    if options.tornado:
        raise ConfigError([Problem("--tornado with a chip alone", "a network beside it: --network", field="--tornado")])
    picture = picture_path(options.out)
    show(explain_chip(*one_chip(options.chip, options.set)), options, picture)
    return 0
