"""What a user plugs into a search, by name or as the object itself: searchers, strategies, metrics.

A name is a built-in, `module:attribute` or an installed plug-in (dse.inputs.registry); `optuna:NAME` is a sampler of
Optuna by its class.  ConfigError says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dse.base.errors import ConfigError, Problem, nearest
from dse.evaluation.metrics import Metric, check_metric
from dse.evaluation.result import METRICS
from dse.exploration.plans import Strategy
from dse.exploration.searchers import Plugged
from dse.exploration.settings import SAMPLERS
from dse.inputs.registry import resolve

__all__ = ["metric", "sampler", "strategy"]

#: How a sampler of Optuna is named: this and its class.
_OPTUNA = "optuna:"


def sampler(given: Any, *, data: bool = False) -> str | Plugged:
    """A searcher: a built-in name, or a plug-in with the name it was given by.

    given   a name, or a class or function `make(space)` that makes an object with `ask` and `tell`
    data    the name stands in data: `module:attribute` only as it was registered"""
    if isinstance(given, Plugged):
        return given
    if not isinstance(given, str):
        return _checked(given, _reference(given))
    if given in SAMPLERS:
        return given
    if given.startswith(_OPTUNA):
        return Plugged(given, _of_optuna(given.removeprefix(_OPTUNA)))
    return _checked(resolve("sampler", given, dict.fromkeys(SAMPLERS), data=data), given)


def metric(given: Any, known: Iterable[str] = METRICS, *, data: bool = False) -> str | Metric:
    """A metric that can be wanted or limited: a name of results, or a plug-in that keeps the contract.

    given   a name, or a `Metric`; data: as for `sampler`"""
    if isinstance(given, str) and given in known:
        return given
    found = resolve("metric", given, dict.fromkeys(known), data=data) if isinstance(given, str) else given
    try:
        check_metric(found)
    except ValueError as error:
        raise ConfigError([Problem(f'"{given}" ({error})', "a dse.Metric that keeps its contract")]) from None
    made: Metric = found
    return made


def strategy(given: Any, *, data: bool = False) -> Strategy:
    """A rule for the plans that are looked at: a name of a plug-in, or a function of plans as columns.

    data   as for `sampler`"""
    if isinstance(given, Strategy):
        return given
    found = resolve("strategy", given, {}, data=data) if isinstance(given, str) else given
    name = given if isinstance(given, str) else _reference(given)
    if not callable(found) or isinstance(found, type):
        allowed = "a function of plans as columns that says which are looked at"
        raise ConfigError([Problem(f'"{name}", a {type(found).__name__}', allowed)])
    return Strategy(name, found)


def _reference(item: Any) -> str:
    return f"{getattr(item, '__module__', '')}:{getattr(item, '__qualname__', item)}"


def _checked(found: Any, name: str) -> Plugged:
    if not callable(found) or (hasattr(found, "ask") and not isinstance(found, type)):
        allowed = "a class or function make(space) that makes a searcher (ask and tell), or a sampler class of Optuna"
        raise ConfigError([Problem(f'"{name}", a {type(found).__name__}', allowed)])
    return Plugged(name, found)


def _of_optuna(name: str) -> Any:
    from dse.exploration.optuna_searcher import sampler_classes  # start-up: importing Optuna takes most of a second

    known = sampler_classes()
    if name not in known:
        near = nearest(name, known)
        allowed = f"{_OPTUNA} and one of {', '.join(known)}"
        raise ConfigError([Problem(f'"{_OPTUNA}{name}"', allowed, nearest=near and f"{_OPTUNA}{near}")])
    return known[name]
