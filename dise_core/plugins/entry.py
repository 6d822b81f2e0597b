"""What a plugin registered under a name."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from threading import RLock
from typing import Any, Generic, TypeVar, cast

from dise_core.errors import PluginError, error_line
from dise_core.interrupts import is_leaving
from dise_core.plugins.kinds import Kind

V = TypeVar("V")

OWN_DISTRIBUTION = "dise"
"""The distribution whose plugins are built in."""

ONE_AT_A_TIME = RLock()
"""For imports: pydantic parses the source of a class, and where two threads do that at
once, CPython 3.11 fails with "AST constructor recursion depth mismatch".
"""


@dataclass(frozen=True, slots=True)
class Entry(Generic[V]):
    """A registered value, or its "module:name". name, kind: as what it was registered; a
    third party's class is checked to be of that kind when it is loaded.
    """

    value: V | str
    plugin: str
    distribution: str | None = None
    name: str = ""
    kind: Kind[Any] | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether it is no third party's."""
        return self.distribution == OWN_DISTRIBUTION

    def load(self) -> V:
        """Return the value, imported if it is a "module:name". Raises PluginError if that
        fails, and for a class of another kind.
        """
        value = self._imported(self.value) if isinstance(self.value, str) else self.value
        if self.kind is not None and self.kind.holds_classes and not self.is_built_in:
            self._check(value, self.kind)
        return value

    def _imported(self, place: str) -> V:
        try:
            with ONE_AT_A_TIME:
                return cast("V", resolve_name(place))
        except BaseException as error:
            if self.is_built_in or is_leaving(error, place.partition(":")[0]):
                raise
            raise self.failure(f"{place!r} cannot be imported", error) from error

    def _check(self, cls: object, kind: Kind[Any]) -> None:
        if not (isinstance(cls, type) and issubclass(cls, kind.base)):
            raise PluginError(
                f"plugin {self.plugin!r}, {kind.hook}(): {self.name!r} is {cls!r:.80}, "
                f"which is not a subclass of {kind.base.__name__}",
                self.plugin,
            )
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise PluginError(
                f"plugin {self.plugin!r}, {kind.hook}(): {self.name!r} does not "
                f"implement {missing}",
                self.plugin,
            )

    def failure(self, problem: str, error: BaseException) -> PluginError:
        """Return the error that names the plugin for one that was raised in its code."""
        return PluginError(f"plugin {self.plugin!r}: {problem}: {error_line(error)}", self.plugin)


def named(entries: Mapping[str, Entry[V]], name: str) -> Entry[V] | None:
    """Return the entry of that name, or a third party's of PLUGIN:NAME, if any."""
    if name in entries:
        return entries[name]
    plugin, _, short = name.rpartition(":")
    entry = entries.get(short)
    is_theirs = entry is not None and not entry.is_built_in and entry.plugin == plugin
    return entry if is_theirs else None
