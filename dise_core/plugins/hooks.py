"""What a plugin's hooks declare, as entries, checked."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from dise_core.errors import PluginError, error_line
from dise_core.interrupts import is_leaving
from dise_core.models.backend import Backend
from dise_core.params.base import Params
from dise_core.params.engine import EngineConfig
from dise_core.params.requests import SamplingParams
from dise_core.plugins.entry import Entry
from dise_core.plugins.hookspecs import PROJECT
from dise_core.plugins.kinds import KINDS, LATE, SCORER, Kind

HOOKS: Mapping[str, Kind[Any]] = {kind.hook: kind for kind in KINDS}

MARK = f"{PROJECT}_impl"
"""The attribute by which hookimpl marks a function."""

PLACE = re.compile(r"[\w.]+:[\w.]+")
"""Where a value is, "module:name"."""

Additions = dict[str, dict[str, Entry[Any]]]
"""Entries by their kind's plural, and by name."""


def declared(plugin: object, name: str, distribution: str | None = None) -> Additions:
    """Return the entries that a module's or an object's hooks declare. Raises PluginError
    for one without a hook, and for what a hook may not declare.
    """
    home = f" (distribution {distribution!r})" if distribution else ""
    functions = inspect.getmembers(plugin, lambda member: hasattr(member, MARK))
    hooks = {hook: function for hook, function in functions if inspect.isroutine(function)}
    hook_names = ", ".join(sorted(HOOKS))
    if not hooks:
        raise PluginError(
            f"plugin {name!r}{home} has no function marked with hookimpl. Hooks: {hook_names}"
        )
    if unknown := sorted(hooks.keys() - HOOKS.keys()):
        raise PluginError(
            f"plugin {name!r}{home} has a hook {unknown[0]!r} that nobody asks. Hooks: {hook_names}"
        )
    kinds = ((HOOKS[hook], function) for hook, function in hooks.items())
    return {kind.plural: _collect(kind, function, name, distribution) for kind, function in kinds}


def _collect(
    kind: Kind[Any], function: Callable[[], object], plugin: str, distribution: str | None
) -> dict[str, Entry[Any]]:
    hook = kind.hook
    try:
        values = function()
    except BaseException as error:
        if is_leaving(error, function.__module__):
            raise
        raise PluginError(f"plugin {plugin!r} fails in {hook}(): {error_line(error)}") from error
    if not isinstance(values, Mapping):
        noun = "class" if kind.holds_classes else "value"
        raise PluginError(
            f"plugin {plugin!r}, {hook}() must return {{name: {noun}}}, not {values!r:.80}"
        )
    for name, value in values.items():
        _check_name(name, value, plugin, hook)
    entries = {n: Entry(value, plugin, distribution, n, kind) for n, value in values.items()}
    for entry in entries.values():
        _check(entry, kind)
    return entries


def _check_name(name: object, value: object, plugin: str, hook: str) -> None:
    allowed = r"[a-z0-9.+-]*" if hook == SCORER.hook else r"[a-z0-9.-]*(-K)?"
    if not (isinstance(name, str) and name and re.fullmatch(allowed, name)):
        raise PluginError(
            f"plugin {plugin!r}, {hook}(): the name {name!r} may hold lower-case letters, digits, "
            "'-' and '.' only, a scorer's '+' too"
        )
    if isinstance(value, str) and not PLACE.fullmatch(value):
        raise PluginError(
            f'plugin {plugin!r}, {hook}(): {name!r} is {value!r:.80}, which is no "module:name"'
        )


def _check(entry: Entry[Any], kind: Kind[Any]) -> None:
    """Check a class. One that is named is imported, and checked, when it is used, but for
    a third party's whose options are the command's.
    """
    is_used_late = entry.is_built_in or kind in LATE
    if not kind.holds_classes or (isinstance(entry.value, str) and is_used_late):
        return
    cls = entry.load()
    options = cls.options if issubclass(cls, Backend) else cls
    if issubclass(options, Params):
        _check_options(entry.name, options, entry.plugin, kind.hook)


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
