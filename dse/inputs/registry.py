"""Finds what a name stands for: a built-in, `module:attribute`, or an entry point of group `dse.plugins`.

An entry point is named `kind.name`, for example `network.my-net = my_package:my_net`; a built-in of the same name wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dse.base.errors import ConfigError, Problem, listed, nearest, shorten

__all__ = ["GROUP", "plugin_names", "resolve"]

GROUP = "dse.plugins"


def resolve(kind: str, name: str, builtin: Mapping[str, Any]) -> Any:
    """The object that `name` stands for; `kind` is what it should be (network, chip, cluster, sampler, ...).

    A name that is nothing, or that cannot be imported, is a ConfigError with the nearest valid name."""
    if name in builtin:
        return builtin[name]
    if ":" in name:
        return _attribute(kind, name)
    plugins = _plugins(kind)
    if name in plugins:
        return _load(kind, plugins[name])
    known = [*builtin, *plugins]
    allowed = f"a {kind} of the list {listed(known)}" if known else f"a {kind}"
    raise _fault(name, f"{allowed}, or module:attribute", nearest(name, known))


def plugin_names(kind: str) -> tuple[str, ...]:
    """Names of the installed plug-ins of a kind, without importing them."""
    return tuple(_plugins(kind))


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _plugins(kind: str) -> dict[str, EntryPoint]:
    head = f"{kind}."
    return {point.name[len(head) :]: point for point in _entry_points() if point.name.startswith(head)}


def _load(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # a plug-in runs foreign code: whatever it raises is about the plug-in
        allowed = f"a {kind} that can be imported"
        raise _fault(point.name, allowed, hint=f"plug-in {point.value} raised {_said(error)}") from error


def _attribute(kind: str, name: str) -> Any:
    module_name, _, path = name.partition(":")
    allowed = f"a {kind} as module:attribute, for example my_models:my_{kind}"
    if not path or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise _fault(name, allowed)
    try:
        found = _import(module_name)
    except Exception as error:  # importing runs foreign code: whatever it raises is about that module
        raise _fault(name, allowed, hint=f"importing {module_name} raised {_said(error)}") from error
    parts = path.split(".")
    for i, part in enumerate(parts):
        if not hasattr(found, part):
            near = nearest(part, [known for known in dir(found) if not known.startswith("_")])
            full = f"{module_name}:{'.'.join([*parts[:i], near])}" if near else ""
            raise _fault(name, allowed, full, f"{'.'.join([module_name, *parts[:i]])} has no {part}")
        found = getattr(found, part)
    return found


def _import(module_name: str) -> Any:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        here = os.getcwd()
        if error.name != module_name.split(".")[0] or here in sys.path or "" in sys.path:
            raise
        # The installed command does not look into the user's folder. At the end, so that it shadows nothing, and
        # for good, so that later imports of that module and worker processes find their neighbours too.
        sys.path.append(here)
        return import_module(module_name)


def _fault(name: str, allowed: str, near: str = "", hint: str = "") -> ConfigError:
    return ConfigError([Problem(found=f'"{shorten(name)}"', allowed=allowed, nearest=near, hint=hint)])


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
