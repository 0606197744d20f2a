"""What can be named on the command line and in a configuration, as tables: exact for programs, short for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dse.base.units import format_quantity
from dse.inputs.registry import plugin_names
from dse.problem import objectives
from hw_models import clusters, devices, stacks

__all__ = ["SEARCHERS", "TABLES"]


def _network_rows() -> tuple[Any, Any]:
    from workloads import published  # start-up: a hundred networks, for this list alone

    rows = published.table()
    shown = [
        {
            "network": row["name"],
            "parameters": _millions(row["parameters"]),
            "published": _millions(row["published_parameters"]) if row["published_parameters"] else "n/a",
            "forward FLOP a sample": format_quantity(float(row["forward_flops_per_sample"]), "FLOP"),
            "a sample": row["sample"],
            "source": str(row["source"]).split(";")[0],
        }
        for row in rows
    ]
    return rows, shown


def _millions(number: int) -> str:
    """A number of parameters, in billions from one billion on."""
    return f"{number / 1e9:,.3f} B" if number >= 1e9 else f"{number / 1e6:,.2f} M"


def _chip_rows() -> tuple[Any, Any]:
    plain = [
        {
            "chip": item.chip, "quantity": item.quantity, "unit": item.unit, "model": item.model,
            "published": item.published, "error": item.error, "kind": item.kind,
        }
        for name in devices.names()
        for item in devices.comparisons(name)
    ]  # fmt: skip
    return plain, devices.table_rows()


def _cluster_rows() -> tuple[Any, Any]:
    plain = [dict(row) for name in clusters.names() for row in clusters.rows(name)]
    shown = [
        {
            "cluster": row["cluster"],
            "tier": row["tier"],
            "size": row["size"] or "all",
            "topology": row["topology"],
            "bandwidth": "chip links" if float(row["bandwidth [B/s]"]) == 0
            else format_quantity(float(row["bandwidth [B/s]"]), "B/s"),
            "latency": format_quantity(float(row["latency [s]"]), "s"),
            "most devices": row["max_devices"] or "any",
            "price of a device": f"{row['usd_per_device_hour [USD/h]']} USD/h"
            if row["usd_per_device_hour [USD/h]"] else "n/a",
        }
        for row in plain
    ]  # fmt: skip
    return plain, shown


def _stack_rows() -> tuple[Any, Any]:
    plain = [dict(row) for name in stacks.names() for row in stacks.constants(name)]
    shown = [
        {
            "stack": row["stack"], "constant": row["field"], "value": f"{row['value']} {row['unit']}".strip(),
            "range": f"{row['low']} .. {row['high']}" if row["low"] or row["high"] else "", "source": row["source"],
        }
        for row in plain
    ]  # fmt: skip
    return plain, shown


def _objective_rows() -> tuple[Any, Any]:
    rows = objectives.table()
    return rows, rows


#: What each searcher is good for.
SEARCHERS = {
    "nsga2": "Optuna NSGA-II: generations of 50; the default",
    "tpe": "Optuna TPE, multivariate: few evaluations of expensive spaces",
    "qmc": "Optuna quasi-Monte Carlo: even coverage",
    "random": "uniform without repetition",
    "quasirandom": "scrambled Sobol points, without Optuna",
}


def _searcher_rows() -> tuple[Any, Any]:
    from dse.exploration.settings import SAMPLERS  # start-up: the searchers, for this list alone

    rows = [
        {"searcher": name, "rows a batch": str(size), "what it does": SEARCHERS.get(name, "")}
        for name, size in SAMPLERS.items()
    ]
    rows += [{"searcher": name, "rows a batch": "", "what it does": "plug-in"} for name in plugin_names("sampler")]
    return rows, rows


def _search_rows() -> tuple[Any, Any]:
    from dse.inputs.yaml import load, tree  # start-up: pydantic and yaml, for this list alone

    rows = []
    for name in tree.shipped_searches():
        spec = load.load_search(name)
        workload = spec.workloads[0]
        rows.append(
            {
                "search": name,
                "network": workload.network.name,
                "devices": ", ".join(str(n) for n in spec.cluster.values["devices"]),
                "objectives": ", ".join(spec.objectives),
                "mode": spec.search.mode,
                "budget": str(spec.search.budget),
            }
        )
    return rows, rows


TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "networks": _network_rows,
    "chips": _chip_rows,
    "clusters": _cluster_rows,
    "stacks": _stack_rows,
    "objectives": _objective_rows,
    "searchers": _searcher_rows,
    "searches": _search_rows,
}
