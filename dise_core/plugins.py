"""Plugin discovery: gathers the installed plugins into one Catalog, and names the broken ones."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from dise_core import hookspecs
from dise_core.backend import Backend
from dise_core.catalog import OWN_DISTRIBUTION, Catalog, Entry
from dise_core.errors import PluginError, error_line
from dise_core.interfaces import LengthController, Reviser, Scorer, Selector, UnmaskingPolicy
from dise_core.model import MaskPredictor
from dise_core.records import Fields

HOOKS: Mapping[str, type[object]] = {
    "dise_selectors": Selector,
    "dise_scorers": Scorer,
    "dise_length_controllers": LengthController,
    "dise_unmasking_policies": UnmaskingPolicy,
    "dise_revisers": Reviser,
    "dise_mask_predictors": MaskPredictor,
    "dise_engines": Backend,
}
"""The hooks, each with the base of the classes that it returns. Without its prefix "dise_" a hook's
name is a field of Catalog.
"""

Found = dict[str, dict[str, Entry[Any]]]
"""Entries by hook and name."""

log = logging.getLogger("dise")

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@cache
def installed_catalog() -> Catalog:
    """Return the catalog of the installed plugins. The log says of each broken one that it is, once
    per process.
    """
    catalog = installed_plugins()
    for problem in catalog.problems:
        log.warning("dise: %s (`dise plugins` lists what works)", problem)
    return catalog


@cache
def installed_plugins() -> Catalog:
    """Return the catalog of the installed plugins, and log nothing."""
    return discover(entry_points(group=hookspecs.PROJECT))


def discover(points: Iterable[EntryPoint]) -> Catalog:
    """Return the catalog of the plugins behind the entry points. One that cannot be imported, has
    no hook or misspells one, raises in a hook, or claims a name that is taken adds nothing but a
    problem.

    The built-in plugins are loaded first, then the others by name, so in a clash with a built-in
    name the other plugin is the broken one.
    """
    found: Found = {hook: {} for hook in HOOKS}
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
    fields = {
        hook.removeprefix("dise_"): dict(sorted(entries.items())) for hook, entries in found.items()
    }
    return Catalog(**fields, problems=tuple(problems))


def _distribution(point: EntryPoint) -> str | None:
    return point.dist.name if point.dist else None


def _loaded(point: EntryPoint, known: set[str]) -> Found:
    """Return the plugin's entries, and add its name to `known`, the names of those before it."""
    distribution = _distribution(point)
    origin = f"plugin {point.name!r}" + (
        f" (distribution {distribution!r})" if distribution else ""
    )
    if point.name in known:
        raise PluginError(
            f"two plugins are called {point.name!r}; rename or uninstall the {origin} at "
            f"{point.value!r}"
        )
    known.add(point.name)
    try:
        plugin = point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{origin} cannot be imported from {point.value!r}: {error_line(error)}"
        ) from error
    manager = _registered(plugin, point.name, origin)
    return {hook: _collect(manager, hook, point.name, distribution) for hook in HOOKS}


def _registered(plugin: object, name: str, origin: str) -> pluggy.PluginManager:
    """Return a manager of this plugin alone. Raises PluginError for a plugin that has no hook or
    misspells one.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    hooks = ", ".join(sorted(HOOKS))
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{origin}: {' '.join(str(error).split())}. Hooks: {hooks}") from error
    if not manager.get_hookcallers(plugin):
        raise PluginError(f"{origin} has no function marked with hookimpl. Hooks: {hooks}")
    return manager


def _collect(
    manager: pluggy.PluginManager, hook: str, plugin: str, distribution: str | None
) -> dict[str, Entry[Any]]:
    found: dict[str, Entry[Any]] = {}
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        for name, cls in _call(implementation, hook).items():
            _check(name, cls, HOOKS[hook], f"plugin {plugin!r}, {hook}()")
            found[name] = Entry(cls, plugin, distribution)
    return found


def _add(additions: Found, found: Found) -> None:
    """Add all of a plugin's entries to `found`, or none of them and raise PluginError if a name is
    taken; who looks that name up is told.
    """
    clashes = [
        (hook, name) for hook, entries in additions.items() for name in entries.keys() & found[hook]
    ]
    for hook, name in clashes:
        first, second = found[hook][name], additions[hook][name]
        clash = f"plugins {first.plugin!r} and {second.plugin!r} both claim {name!r} in {hook}()"
        found[hook][name] = replace(first, clash=clash)
    if clashes:
        hook, name = min(clashes)
        raise PluginError(found[hook][name].clash or "")
    for hook, entries in additions.items():
        found[hook] |= entries


def _call(implementation: pluggy.HookImpl, hook: str) -> Fields:
    plugin = implementation.plugin_name
    try:
        classes = implementation.function()
    except (Exception, SystemExit) as error:
        raise PluginError(f"plugin {plugin!r} fails in {hook}(): {error_line(error)}") from error
    if not isinstance(classes, Mapping):
        raise PluginError(
            f"plugin {plugin!r}, {hook}() must return {{name: class}}, not {classes!r:.80}"
        )
    return classes


def _check(name: object, cls: object, interface: type[object], origin: str) -> None:
    if (
        not isinstance(name, str)
        or not name
        or not set(name.removesuffix("-K")) <= _NAME_CHARACTERS
    ):
        raise PluginError(
            f"{origin}: the name {name!r} may hold lower-case letters, digits, '-' and '.' only"
        )
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        raise PluginError(
            f"{origin}: {name!r} is {cls!r:.80}, which is not a subclass of {interface.__name__}"
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(f"{origin}: {name!r} does not implement {missing}")
