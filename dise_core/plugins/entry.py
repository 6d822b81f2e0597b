"""What a plugin registered under a name."""

from dataclasses import dataclass
from pkgutil import resolve_name
from threading import RLock
from typing import Generic, Self, TypeVar, cast

from dise_core.errors import PluginError, error_line

V = TypeVar("V")

OWN_DISTRIBUTION = "dise"
"""The distribution whose plugins are built in."""

LEAVING = (KeyboardInterrupt, GeneratorExit)
"""What passes through a plugin. All else is its failure, a BaseException of its own too,
such as a panic of a module in Rust, and a SystemExit, which would end the command for one
broken plugin.
"""

ONE_AT_A_TIME = RLock()
"""For imports: pydantic parses the source of a class, and where two threads do that at
once, CPython 3.11 fails with "AST constructor recursion depth mismatch".
"""


@dataclass(frozen=True, slots=True)
class Entry(Generic[V]):
    """A registered value, or its "module:name". clash: what to say of another plugin that
    claims its name too.
    """

    value: V | str
    plugin: str
    distribution: str | None = None
    clash: str | None = None

    @property
    def is_built_in(self) -> bool:
        return self.distribution == OWN_DISTRIBUTION

    def of_its_name(self) -> Self:
        """Return itself. Raises PluginError if another plugin claims the name too."""
        if self.clash is not None:
            raise PluginError(self.clash, self.plugin)
        return self

    def load(self) -> V:
        """Return the value, imported if it is a "module:name". Raises PluginError if that fails."""
        if not isinstance(self.value, str):
            return self.value
        try:
            with ONE_AT_A_TIME:
                return cast("V", resolve_name(self.value))
        except LEAVING:
            raise
        except BaseException as error:
            if self.is_built_in:
                raise
            raise self.failure(f"{self.value!r} cannot be imported", error) from error

    def failure(self, problem: str, error: BaseException) -> PluginError:
        """Return the error that names the plugin for one that was raised in its code."""
        return PluginError(f"plugin {self.plugin!r}: {problem}: {error_line(error)}", self.plugin)
