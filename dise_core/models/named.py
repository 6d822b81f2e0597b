"""What a model is called, and what was found under that name."""

from collections.abc import Callable, Hashable
from typing import Any, Self, TypeVar

from dise_core.errors import DiseError, InputError

T = TypeVar("T")


class ModelName(str):
    """A model's name, folder or hub id with what adapters found under it, which is looked
    up once: whoever loads a model hands it from one adapter to the next, and then drops
    it.
    """

    def __init__(self, _: str) -> None:
        self._found: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (str(self),)  # other processes look for themselves

    @classmethod
    def of(cls, name: str) -> "ModelName":
        """Return the name itself where it already is one."""
        return name if isinstance(name, cls) else cls(name)

    def once(self, look: Callable[..., T], *arguments: Hashable) -> T:
        """Return what `look` returns of the name and these arguments, or raise its
        DiseError. Only the first caller waits for it.
        """
        key = (look, *arguments)
        if key not in self._found:
            try:
                self._found[key] = look(str(self), *arguments)
            except DiseError as error:
                self._found[key] = error
        outcome = self._found[key]
        if isinstance(outcome, DiseError):
            raise outcome.with_traceback(None)  # not that of those who asked before
        result: T = outcome
        return result


def refuse_server(model: object, file: str, role: str = "model", option: str = "") -> None:
    """Raise InputError if a file, which may be a stranger's, names a server as its model, or
    in another role: texts go there, and a key, so that only who runs dise may name one.
    option: that names it on the command line.
    """
    if isinstance(model, str) and "://" in model:
        raise InputError(
            f"{file} names a server as its {role}, {model!r:.80}, and a file may name a hub id, a "
            "folder or an embedded model alone, as your texts and your key go to a server. If you "
            f"trust it, name it yourself, with {option or f'--{role} URL'}.",
            role,
        )
