"""Plugin discovery: gathers the installed plugins into one Catalog, and names the broken ones."""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dise_core.errors import PluginError, error_line
from dise_core.models.backend import Backend
from dise_core.params.base import Params
from dise_core.params.engine import EngineConfig
from dise_core.params.requests import SamplingParams
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.entry import LEAVING, OWN_DISTRIBUTION, Entry
from dise_core.plugins.hookspecs import PROJECT
from dise_core.plugins.kinds import KINDS, Kind

HOOKS: Mapping[str, Kind[Any]] = {kind.hook: kind for kind in KINDS}

MARK = f"{PROJECT}_impl"
"""The attribute by which hookimpl marks a function."""

Additions = dict[str, dict[str, Entry[Any]]]
"""Entries by hook and name."""

log = logging.getLogger("dise")


@cache
def installed_catalog() -> Catalog:
    """Return the catalog of the installed plugins. The log names broken ones, once."""
    catalog = installed_plugins()
    for problem in catalog.problems:
        log.warning("dise: %s (`dise plugins` lists what works)", problem)
    return catalog


@cache
def installed_plugins() -> Catalog:
    """Return the catalog of the installed plugins, and log nothing."""
    return discover(entry_points(group=PROJECT))


def discover(points: Iterable[EntryPoint]) -> Catalog:
    """Return the catalog of the plugins behind the entry points. A plugin that cannot be imported,
    has no hook, misspells one, raises in one or claims a taken name adds only a problem. Built-in
    plugins come first, so in a clash the other one is broken.
    """
    found: Additions = {hook: {} for hook in HOOKS}
    known: set[str] = set()
    problems: list[PluginError] = []
    for point in sorted(
        points,
        key=lambda point: (_distribution(point) != OWN_DISTRIBUTION, point.name, point.value),
    ):
        try:
            _add(_loaded(point, known), found)
        except PluginError as problem:
            problem.plugin = point.name
            problems.append(problem)
    entries = {
        kind.plural: dict(sorted(found[hook].items())) if kind.holds_classes else found[hook]
        for hook, kind in HOOKS.items()
    }
    return Catalog(entries, tuple(problems))


def _distribution(point: EntryPoint) -> str | None:
    return point.dist.name if point.dist else None


def _loaded(point: EntryPoint, known: set[str]) -> Additions:
    """Return the plugin's entries, and add its name to `known`, the names of those before it."""
    distribution = _distribution(point)
    home = f" (distribution {distribution!r})" if distribution else ""
    origin = f"plugin {point.name!r}{home}"
    if point.name in known:
        problem = f"two plugins are called {point.name!r}"
        raise PluginError(f"{problem}; rename or uninstall the {origin} at {point.value!r}")
    known.add(point.name)
    try:
        plugin = point.load()
    except LEAVING:
        raise
    except BaseException as error:
        problem = f"{origin} cannot be imported from {point.value!r}: {error_line(error)}"
        raise PluginError(problem) from error
    functions = inspect.getmembers(plugin, lambda member: hasattr(member, MARK))
    hooks = {name: function for name, function in functions if inspect.isroutine(function)}
    problem = "" if hooks else "has no function marked with hookimpl"
    if unknown := sorted(hooks.keys() - HOOKS.keys()):
        problem = f"has a hook {unknown[0]!r} that nobody asks"
    if problem:
        raise PluginError(f"{origin} {problem}. Hooks: {', '.join(sorted(HOOKS))}")
    return {
        hook: _collect(hook, function, point.name, distribution) for hook, function in hooks.items()
    }


def _collect(
    hook: str, function: Callable[[], object], plugin: str, distribution: str | None
) -> dict[str, Entry[Any]]:
    try:
        values = function()
    except LEAVING:
        raise
    except BaseException as error:
        raise PluginError(f"plugin {plugin!r} fails in {hook}(): {error_line(error)}") from error
    origin = f"plugin {plugin!r}, {hook}()"
    if not isinstance(values, Mapping):
        wanted = "class" if HOOKS[hook].holds_classes else "value"
        raise PluginError(f"{origin} must return {{name: {wanted}}}, not {values!r:.80}")
    for name, value in values.items():
        _check_name(name, value, origin)
    entries = {name: Entry(value, plugin, distribution) for name, value in values.items()}
    for name, entry in entries.items():
        _check(name, entry, HOOKS[hook], origin)
    return entries


def _add(additions: Additions, known: Additions) -> None:
    """Add all of a plugin's entries, or none and raise PluginError if a name is taken."""
    clashes = [
        (hook, name) for hook, entries in additions.items() for name in entries.keys() & known[hook]
    ]
    for hook, name in clashes:
        first, second = known[hook][name], additions[hook][name]
        clash = f"plugins {first.plugin!r} and {second.plugin!r} both claim {name!r} in {hook}()"
        known[hook][name] = replace(first, clash=clash)
    if clashes:
        hook, name = min(clashes)
        raise PluginError(known[hook][name].clash or "")
    for hook, entries in additions.items():
        known[hook] |= entries


def _check_name(name: object, value: object, origin: str) -> None:
    if not (isinstance(name, str) and name and re.fullmatch(r"[a-z0-9.-]*(-K)?", name)):
        allowed = "lower-case letters, digits, '-' and '.' only"
        raise PluginError(f"{origin}: the name {name!r} may hold {allowed}")
    if isinstance(value, str) and not re.fullmatch(r"[\w.]+:[\w.]+", value):
        raise PluginError(f'{origin}: {name!r} is {value!r:.80}, which is no "module:name"')


def _check(name: str, entry: Entry[Any], kind: Kind[Any], origin: str) -> None:
    """Check a class; the built-in ones that are named are imported when they are used."""
    if not kind.holds_classes or (entry.is_built_in and isinstance(entry.value, str)):
        return
    cls = entry.load()
    if not (isinstance(cls, type) and issubclass(cls, kind.base)):
        problem = f"{origin}: {name!r} is {cls!r:.80}"
        raise PluginError(f"{problem}, which is not a subclass of {kind.base.__name__}")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(f"{origin}: {name!r} does not implement {missing}")
    options = cls.options if issubclass(cls, Backend) else cls
    if issubclass(options, Params):
        _check_options(name, options, origin)


def _check_options(name: str, options: type[Params], origin: str) -> None:
    taken = {*EngineConfig.model_fields, *SamplingParams.model_fields}
    for option, field in options.model_fields.items():
        if option in taken:
            raise PluginError(f"{origin}: {name!r} has an option {option!r}, which is taken")
        if field.is_required():
            raise PluginError(f"{origin}: {name!r} has an option {option!r} without a default")
