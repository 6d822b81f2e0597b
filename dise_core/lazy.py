"""Names of a package that are imported when they are first asked for, or that have changed."""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

NOTHING: Mapping[str, tuple[str, str]] = MappingProxyType({})


def lazily(
    package: str, homes: Mapping[str, str], renamed: Mapping[str, tuple[str, str]] = NOTHING
) -> Callable[[str], object]:
    """Return the __getattr__ of a package. homes: modules, and the names of each.
    renamed: old names, each with its new one and the version in which it goes.
    """
    places = {name: module for module, names in homes.items() for name in names.split()}

    def look_up(name: str) -> object:
        if name in renamed:
            new, version = renamed[name]
            warnings.warn(
                f"{package}.{name} is now {package}.{new}: write the new name, as the old one "
                f"goes in DiSE {version}.",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(sys.modules[package], new)
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
