"""Discovery: the plugins that are installed, gathered into one Catalog, with every clash refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import pluggy

from dise_core import hookspecs
from dise_core.catalog import Catalog, Entry
from dise_core.errors import PluginError
from dise_core.interfaces import LengthController, MaskPredictor, Scorer, Selector, UnmaskingPolicy

C = TypeVar("C")

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@cache
def installed_catalog() -> Catalog:
    """Return the catalog of all installed plugins; made once per process. Raises PluginError."""
    return discover(entry_points(group=hookspecs.PROJECT))


def discover(points: Iterable[EntryPoint]) -> Catalog:
    """Return the catalog of the plugins behind the entry points.

    Raises PluginError, naming the plugin, for one that cannot be imported, has a misspelt or no hook, raises in a hook, or
    claims a name that another one has.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for point in points:
        _register(manager, point)
    _refuse_unknown_hooks(manager)
    return Catalog(
        selectors=_collect(manager, "dise_selectors", Selector),
        scorers=_collect(manager, "dise_scorers", Scorer),
        length_controllers=_collect(manager, "dise_length_controllers", LengthController),
        unmasking_policies=_collect(manager, "dise_unmasking_policies", UnmaskingPolicy),
        mask_predictors=_collect(manager, "dise_mask_predictors", MaskPredictor),
    )


def _register(manager: pluggy.PluginManager, point: EntryPoint) -> None:
    origin = f" (distribution {point.dist.name!r})" if point.dist else ""
    if manager.has_plugin(point.name):
        raise PluginError(f"two plugins are called {point.name!r}, the second at {point.value!r}{origin}; uninstall one")
    try:
        plugin = point.load()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise PluginError(f"plugin {point.name!r}{origin} cannot be imported from {point.value!r}: {problem}") from error
    try:
        manager.register(plugin, name=point.name)
    except pluggy.PluginValidationError as error:
        raise PluginError(f"plugin {point.name!r}{origin}: {' '.join(str(error).split())}") from error
    if not manager.get_hookcallers(plugin):
        hooks = ", ".join(_hook_names())
        raise PluginError(f"plugin {point.name!r}{origin} has no function marked with hookimpl. Hooks: {hooks}")


def _refuse_unknown_hooks(manager: pluggy.PluginManager) -> None:
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        name = manager.get_name(error.plugin)
        hooks = ", ".join(_hook_names())
        raise PluginError(f"plugin {name!r}: {' '.join(str(error).split())}. Hooks: {hooks}") from error


def _collect(manager: pluggy.PluginManager, hook: str, interface: type[C]) -> dict[str, Entry[C]]:
    found: dict[str, Entry[C]] = {}
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        plugin = implementation.plugin_name
        for name, cls in _call(implementation, hook).items():
            _check(name, cls, interface, f"plugin {plugin!r}, {hook}()")
            if name in found:
                raise PluginError(f"plugins {found[name].plugin!r} and {plugin!r} both claim {name!r} in {hook}()")
            found[name] = Entry(cls, plugin)
    return dict(sorted(found.items()))


def _call(implementation: pluggy.HookImpl, hook: str) -> Mapping[str, Any]:
    plugin = implementation.plugin_name
    try:
        classes = implementation.function()
    except Exception as error:
        raise PluginError(f"plugin {plugin!r} fails in {hook}(): {type(error).__name__}: {error}") from error
    if not isinstance(classes, Mapping):
        raise PluginError(f"plugin {plugin!r}, {hook}() must return {{name: class}}, not {classes!r:.80}")
    return classes


def _check(name: object, cls: object, interface: type[object], origin: str) -> None:
    if not isinstance(name, str) or not name or not set(name.removesuffix("-K")) <= _NAME_CHARACTERS:
        raise PluginError(f"{origin}: the name {name!r} may hold lower-case letters, digits, '-' and '.' only")
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        raise PluginError(f"{origin}: {name!r} is {cls!r:.80}, which is no subclass of {interface.__name__}")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise PluginError(f"{origin}: {name!r} does not implement {missing}")


def _hook_names() -> list[str]:
    return sorted(name for name in vars(hookspecs) if name.startswith("dise_"))
