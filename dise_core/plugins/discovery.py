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
    """Return the catalog of the plugins behind the entry points. A plugin that cannot be
    imported, has no hook, misspells one, raises in one or claims a taken name adds only a
    problem. Built-in plugins come first, so in a clash the other one is broken.
    """
    additions: Additions = {hook: {} for hook in HOOKS}
    names: set[str] = set()
    problems: list[PluginError] = []
    for point in sorted(
        points,
        key=lambda point: (_distribution(point) != OWN_DISTRIBUTION, point.name, point.value),
    ):
        try:
            _add(_load(point, names), additions)
        except PluginError as problem:
            problem.plugin = point.name
            problems.append(problem)
    entries = {
        kind.plural: dict(sorted(items.items())) if kind.holds_classes else items
        for kind, items in zip(KINDS, additions.values(), strict=True)
    }
    return Catalog(entries, tuple(problems))


def _distribution(point: EntryPoint) -> str | None:
    return point.dist.name if point.dist else None


def _load(point: EntryPoint, names: set[str]) -> Additions:
    """Return the plugin's entries, and add its name to those of the plugins before it."""
    distribution = _distribution(point)
    home = f" (distribution {distribution!r})" if distribution else ""
    if point.name in names:
        raise PluginError(
            f"two plugins are called {point.name!r}; rename or uninstall the plugin "
            f"{point.name!r}{home} at {point.value!r}"
        )
    names.add(point.name)
    try:
        plugin = point.load()
    except LEAVING:
        raise
    except BaseException as error:
        raise PluginError(
            f"plugin {point.name!r}{home} cannot be imported from {point.value!r}: "
            f"{error_line(error)}"
        ) from error
    functions = inspect.getmembers(plugin, lambda member: hasattr(member, MARK))
    hooks = {name: function for name, function in functions if inspect.isroutine(function)}
    hook_names = ", ".join(sorted(HOOKS))
    if not hooks:
        raise PluginError(
            f"plugin {point.name!r}{home} has no function marked with hookimpl. Hooks: {hook_names}"
        )
    if unknown := sorted(hooks.keys() - HOOKS.keys()):
        raise PluginError(
            f"plugin {point.name!r}{home} has a hook {unknown[0]!r} that nobody asks. "
            f"Hooks: {hook_names}"
        )
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
    if not isinstance(values, Mapping):
        noun = "class" if HOOKS[hook].holds_classes else "value"
        raise PluginError(
            f"plugin {plugin!r}, {hook}() must return {{name: {noun}}}, not {values!r:.80}"
        )
    for name, value in values.items():
        _check_name(name, value, plugin, hook)
    entries = {name: Entry(value, plugin, distribution) for name, value in values.items()}
    for name, entry in entries.items():
        _check(name, entry, HOOKS[hook])
    return entries


def _add(additions: Additions, registry: Additions) -> None:
    """Add all of a plugin's entries, or none and raise PluginError if a name is taken."""
    clashes = [
        (hook, name)
        for hook, entries in additions.items()
        for name in entries.keys() & registry[hook]
    ]
    for hook, name in clashes:
        first, second = registry[hook][name], additions[hook][name]
        clash = f"plugins {first.plugin!r} and {second.plugin!r} both claim {name!r} in {hook}()"
        registry[hook][name] = replace(first, clash=clash)
    if clashes:
        hook, name = min(clashes)
        raise PluginError(registry[hook][name].clash or "")
    for hook, entries in additions.items():
        registry[hook] |= entries


def _check_name(name: object, value: object, plugin: str, hook: str) -> None:
    if not (isinstance(name, str) and name and re.fullmatch(r"[a-z0-9.-]*(-K)?", name)):
        raise PluginError(
            f"plugin {plugin!r}, {hook}(): the name {name!r} may hold lower-case letters, digits, "
            "'-' and '.' only"
        )
    if isinstance(value, str) and not re.fullmatch(r"[\w.]+:[\w.]+", value):
        raise PluginError(
            f'plugin {plugin!r}, {hook}(): {name!r} is {value!r:.80}, which is no "module:name"'
        )


def _check(name: str, entry: Entry[Any], kind: Kind[Any]) -> None:
    """Check a class; the built-in ones that are named are imported when they are used."""
    if not kind.holds_classes or (entry.is_built_in and isinstance(entry.value, str)):
        return
    cls = entry.load()
    if not (isinstance(cls, type) and issubclass(cls, kind.base)):
        raise PluginError(
            f"plugin {entry.plugin!r}, {kind.hook}(): {name!r} is {cls!r:.80}, which is not a "
            f"subclass of {kind.base.__name__}"
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(
            f"plugin {entry.plugin!r}, {kind.hook}(): {name!r} does not implement {missing}"
        )
    options = cls.options if issubclass(cls, Backend) else cls
    if issubclass(options, Params):
        _check_options(name, options, entry.plugin, kind.hook)


def _check_options(name: str, options: type[Params], plugin: str, hook: str) -> None:
    for option, field in options.model_fields.items():
        if option in EngineConfig.model_fields or option in SamplingParams.model_fields:
            raise PluginError(
                f"plugin {plugin!r}, {hook}(): {name!r} has an option {option!r}, which is taken"
            )
        if field.is_required():
            raise PluginError(
                f"plugin {plugin!r}, {hook}(): {name!r} has an option {option!r} without a default"
            )
