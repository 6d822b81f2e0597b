"""Plugin discovery: gathers the installed plugins into one Catalog, and names the broken ones."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dise_core.errors import InputError, PluginError, did_you_mean, error_line
from dise_core.interrupts import is_leaving
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.entry import OWN_DISTRIBUTION, Entry
from dise_core.plugins.hooks import PLACE, Additions, declared
from dise_core.plugins.hookspecs import PROJECT
from dise_core.plugins.kinds import BY_PLURAL, ENGINE, LATE, Kind

ALLOWED = "DISE_PLUGINS"
"""The variable that names the third parties' plugins that are wanted; unset, all are."""

LOCAL: dict[str, dict[str, Entry[Any]]] = {}
"""What the user of the command named by its place: by kinds' plurals and places."""

CLASSES: tuple[Kind[Any], ...] = (*LATE, ENGINE)
"""Kinds of which a class is a plugin of its own."""

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
    catalog = discover(entry_points(group=PROJECT), os.environ.get(ALLOWED))
    return catalog.having(
        **{plural: {**catalog.entries[plural], **local} for plural, local in LOCAL.items()}
    )


def discover(points: Iterable[EntryPoint], allowed: str | None = None) -> Catalog:
    """Return the catalog of the plugins behind the entry points. A plugin that cannot be
    imported, has no hook, misspells one or raises in one adds only a problem. Built-in
    plugins come first: a name that is taken becomes PLUGIN:NAME, which a problem tells.
    allowed: the names of third parties' plugins that are loaded, with commas between
    them; None: all.
    """
    points, problems = list(points), list[PluginError]()
    if allowed is not None:
        points, problems = _allowed(points, allowed)
    registry: Additions = {plural: {} for plural in BY_PLURAL}
    names: set[str] = set()
    for point in sorted(
        points, key=lambda point: (not _is_built_in(point), point.name, point.value)
    ):
        try:
            problems += _add(_load(point, names), registry, point.name)
        except PluginError as problem:
            problem.plugin = point.name
            problems.append(problem)
    return _catalog(registry, problems)


def with_plugins(catalog: Catalog, plugins: Iterable[object]) -> Catalog:
    """Return the catalog with more plugins: modules or objects with hooks, and classes of
    strategies, adapters and engines, whose names are CLASS and MODULE:CLASS. A name that
    is taken becomes PLUGIN:NAME. Raises PluginError for anything else.
    """
    registry: Additions = {plural: dict(catalog.entries.get(plural, {})) for plural in BY_PLURAL}
    problems = [*catalog.problems]
    for plugin in plugins:
        if isinstance(plugin, type):
            problems += _add(_of_class(plugin), registry, plugin.__module__)
        else:
            name = str(getattr(plugin, "__name__", type(plugin).__name__))
            problems += _add(declared(plugin, name), registry, name)
    return _catalog(registry, problems)


def use_class(kind: Kind[Any], place: str) -> None:
    """Add the class "module:name" of that kind to what is installed, in this process. For
    the user of the command alone: it imports the module, from the working directory too.
    Does nothing for other texts, and for PLUGIN:NAME. Raises InputError if it cannot be.
    """
    if not PLACE.fullmatch(place) or installed_plugins().has(kind, place):
        return
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    entry: Entry[Any] = Entry(place, place.partition(":")[0], None, place, kind)
    try:
        entry.load()
    except PluginError as error:
        raise InputError(
            f"{kind.title} {place!r} is neither an installed plugin's, as PLUGIN:NAME, "
            f"nor a class, as MODULE:CLASS: {error}",
            kind.option,
        ) from error
    LOCAL.setdefault(kind.plural, {})[place] = entry
    installed_plugins.cache_clear()
    installed_catalog.cache_clear()


def _allowed(
    points: Iterable[EntryPoint], allowed: str
) -> tuple[list[EntryPoint], list[PluginError]]:
    """Return the allowed entry points, and what to say of names that none has."""
    names = {name.strip() for name in allowed.split(",")} - {""}
    installed = sorted({point.name for point in points})
    problems = [
        PluginError(
            f"{ALLOWED} names the plugin {name!r}, which is not installed"
            f"{did_you_mean(name, installed) or '.'} Installed: {', '.join(installed)}",
            name,
        )
        for name in sorted(names - {*installed})
    ]
    return [p for p in points if _is_built_in(p) or p.name in names], problems


def _of_class(cls: type) -> Additions:
    for kind in CLASSES:
        if issubclass(cls, kind.base):
            entry: Entry[Any] = Entry(cls, cls.__module__, None, cls.__name__, kind)
            entry.load()
            return {kind.plural: {cls.__name__: entry}}
    bases = ", ".join(kind.base.__name__ for kind in CLASSES)
    raise PluginError(
        f"{cls!r:.80} is no plugin: give a subclass of {bases}, or a module or an object "
        "with functions marked with hookimpl",
        cls.__module__,
    )


def _catalog(registry: Additions, problems: Iterable[PluginError]) -> Catalog:
    entries = {
        plural: dict(sorted(items.items())) if BY_PLURAL[plural].holds_classes else items
        for plural, items in registry.items()
    }
    return Catalog(entries, tuple(problems))


def _is_built_in(point: EntryPoint) -> bool:
    return _distribution(point) == OWN_DISTRIBUTION


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
    except BaseException as error:
        if is_leaving(error, point.module):
            raise
        raise PluginError(
            f"plugin {point.name!r}{home} cannot be imported from {point.value!r}: "
            f"{error_line(error)}"
        ) from error
    return declared(plugin, point.name, distribution)


def _add(additions: Additions, registry: Additions, plugin: str) -> Iterator[PluginError]:
    """Add a plugin's entries. Yield what to say of those whose names others have, which
    are added as PLUGIN:NAME.
    """
    clashes = list[tuple[str, str]]()
    for plural, entries in additions.items():
        for name, entry in entries.items():
            key = name
            if name in registry[plural]:
                key = f"{plugin}:{name}"
                clashes.append((f"{BY_PLURAL[plural].title} {name!r}", repr(key)))
            registry[plural][key] = entry
    if clashes:
        names, others = (" and ".join(texts) for texts in zip(*clashes, strict=True))
        yield PluginError(
            f"plugin {plugin!r} registers {names}, which another plugin has: write "
            f"{others} for its own; its other names are as it says",
            plugin,
        )
