"""JSON on standard output: exact numbers, null for whatever is no number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["finite", "print_json"]


def finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None


def print_json(value: Any) -> None:
    """Print plain values, mappings, lists and columns as JSON."""
    print(json.dumps(_json(value), indent=2, allow_nan=False))


def _json(value: Any) -> Any:
    """Plain Python values; whatever is no number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(inner) for inner in value]
    if hasattr(value, "tolist"):
        return _json(value.tolist())
    return finite(value) if isinstance(value, float) else value
