"""`dse schema`: the JSON Schema of a configuration."""

from __future__ import annotations

import json

from dse.command.parser import Options
from dse.inputs.yaml.schema import json_schema

__all__ = ["run"]


def run(options: Options) -> int:
    """JSON Schema on standard output."""
    print(json.dumps(json_schema(options.kind), indent=2))
    return 0
