"""Finds what a name stands for: a built-in, `module:attribute`, or an entry point of group `dse.plugins`.

An entry point is named `kind.name`, for example `network.my-net = my_package:my_net`; a built-in of the same name wins.

Trust: importing a module runs it, so `module:attribute` is imported only where the user wrote it: on the command
line, in a configuration, in Python.  A name in data (designs, results, manifests) stands for a built-in, an entry point
of an installed package, or what the user gave with `register` or `--plugin`; it never makes anything be imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dse.base.errors import ConfigError, Problem, listed, nearest, shorten

__all__ = ["GROUP", "attempt", "plugin_names", "register", "resolve", "stored_class"]

GROUP = "dse.plugins"
#: What the user gave for reading data: reference -> object; an object also by its class.
_GIVEN: dict[str, Any] = {}


def resolve(kind: str, name: str, builtin: Mapping[str, Any], *, data: bool = False) -> Any:
    """The object that `name` stands for; `kind` is what it should be (network, chip, cluster, sampler, ...).

    data   the name stands in data: `module:attribute` is only what `register` was given, and nothing is imported
    A name that is nothing, or that cannot be imported, is a ConfigError with the nearest valid name."""
    if name in builtin:
        return builtin[name]
    if ":" in name:
        return _registered(kind, name) if data else _attribute(kind, name)
    plugins = _plugins(kind)
    if name in plugins:
        return _load(kind, plugins[name])
    known = [*builtin, *plugins]
    allowed = f"a {kind} of the list {listed(known)}" if known else f"a {kind}"
    raise _fault(name, f"{allowed}, or module:attribute", nearest(name, known))


def register(plugin: Any) -> None:
    """Let data name a plug-in: `"module:attribute"`, which is imported, or an object that was imported already.

    The data may name it, its class, or the class of what it is an instance of, as `module:class`."""
    found = _attribute("plug-in", plugin) if isinstance(plugin, str) else plugin
    if isinstance(plugin, str):
        _GIVEN[plugin] = found
    owner = found if isinstance(found, type) or hasattr(found, "__qualname__") else type(found)
    _GIVEN[_reference(owner)] = owner


def stored_class(kind: str, reference: str) -> type:
    """The class that data names as `module:class`: registered, or of an installed plug-in of that kind."""
    top = reference.partition(":")[0].partition(".")[0]
    if reference not in _GIVEN:
        for point in _plugins(kind).values() if _is_installed(kind, top) else ():
            found = _load(kind, point)
            owner = found if isinstance(found, type) else type(found)
            if _reference(owner) == reference:
                return owner
    found = _registered(kind, reference)
    if not isinstance(found, type):
        raise _fault(reference, f"a class of a {kind}")
    return found


def attempt(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call of a plug-in returns and "", or None and what it raised; an end of the program counts as raised."""
    try:
        return call(), ""
    except (Exception, SystemExit) as error:  # foreign code: whatever it raises is about the plug-in
        return None, _said(error)


def _is_installed(kind: str, top: str) -> bool:
    return any(point.value.partition(":")[0].partition(".")[0] == top for point in _plugins(kind).values())


def _registered(kind: str, name: str) -> Any:
    if name in _GIVEN:
        return _GIVEN[name]
    allowed = f"a {kind} of this product, of an installed plug-in, or given by the user"
    hint = f"data runs no code of its own; if you trust {shorten(name)}, add --plugin {shorten(name)} (dse.register)"
    raise _fault(name, allowed, hint=hint)


def _reference(item: Any) -> str:
    return f"{item.__module__}:{item.__qualname__}"


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
    found, raised = attempt(point.load)
    if raised:
        hint = f"plug-in {point.value} raised {raised}"
        raise _fault(point.name, f"a {kind} that can be imported", hint=hint)
    return found


def _attribute(kind: str, name: str) -> Any:
    module_name, _, path = name.partition(":")
    allowed = f"a {kind} as module:attribute, for example my_models:my_{kind}"
    if not path or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise _fault(name, allowed)
    found, raised = attempt(lambda: _import(module_name))
    if raised:
        raise _fault(name, allowed, hint=f"importing {module_name} raised {raised}")
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


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
