"""Pictures that a command writes: their paths are checked before anything is computed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem
from dse.command.json_output import print_json
from dse.command.parser import Options

__all__ = ["picture_path", "save_picture", "show"]

#: Endings of a picture's file.
PICTURES = (".png", ".svg")


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


def show(found: Any, options: Options, picture: Path | None) -> None:
    """A floor plan, or two, as text or data; and as a picture where one is wanted."""
    if options.json:
        print_json(found.to_plain())
    else:
        print(found.text())
    save_picture(found, picture)


def save_picture(found: Any, picture: Path | None) -> None:
    """Write the picture, where one is wanted, and say where it is."""
    if picture is not None:
        print(f"wrote {found.save(picture)}", file=sys.stderr)
