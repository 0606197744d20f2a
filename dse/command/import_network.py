"""`dse import`: a network of any file or name as this product's own YAML; a Calculon set-up as a design."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dse.base.errors import ConfigError, Problem
from dse.base.files import write_atomic
from dse.command.parser import Options
from dse.inputs.importers import calculon
from dse.inputs.networks import named_network, notes_of
from dse.inputs.serialize import design_to_plain
from workloads.importers.network_text import yaml_text

__all__ = ["run"]


#: Calculon's files: application, system, execution.
CALCULON = 3


def run(options: Options) -> int:
    """The text of a network file, or of a design file; what could not be carried over on standard error."""
    out = Path(options.out) if options.out else None
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError([Problem("no such folder", "a file in a folder that exists", field="--out", file=str(out))])
    if len(options.files) not in (1, CALCULON):
        raise ConfigError([Problem(f"{len(options.files)} files", "one network, or Calculon's three files")])
    text, notes = _network(options) if len(options.files) == 1 else _setup(options)
    for note in notes:
        print(f"{options.files[0]}: {note}", file=sys.stderr)
    if out is None:
        print(text, end="")
        return 0
    write_atomic(out, text)
    print(f"wrote {out}", file=sys.stderr)
    return 0


def _network(options: Options) -> tuple[str, tuple[str, ...]]:
    """A network as YAML, and what its file says that is counted otherwise."""
    network, length = named_network(options.files[0])
    try:
        return yaml_text(network, options.sequence or length or None), notes_of(network)
    except ValueError as error:
        fault = Problem(f"a network that cannot be written ({error})", "a decoder or a graph", field=options.files[0])
        raise ConfigError([fault]) from None


def _setup(options: Options) -> tuple[str, tuple[str, ...]]:
    """Calculon's files as a design that `dse evaluate` reads."""
    found = calculon(*options.files)
    return json.dumps({"design": design_to_plain(found.design)}, indent=1) + "\n", found.notes
