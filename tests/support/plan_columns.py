"""Plans as columns: some fields as given, all others of a plain plan."""

from __future__ import annotations

import numpy as np

from dse.exploration.plans import plan_of
from workloads.plan import Plan


def columns(**fields: object) -> Plan:
    """A plan of columns (N,), N the longest field given."""
    count, usual = max(np.size(value) for value in fields.values()), vars(Plan())
    values = {name: np.broadcast_to(value, (count,)) for name, value in usual.items()}
    return plan_of({**values, **{name: np.broadcast_to(value, (count,)) for name, value in fields.items()}})
