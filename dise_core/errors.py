"""The library's exceptions, as one tree.

    DiseError
    ├── InputError                 what the caller gave cannot be used; `parameter` names it
    │   ├── UnknownNameError       no strategy or model of that name; lists the known ones
    │   └── TooLongError           more tokens than the model or the batch limit allows
    ├── PluginError                a plugin clashes, is misspelt or cannot be imported
    ├── ModelError                 a model cannot be found, loaded or run
    │   ├── CheckpointError        its files are incomplete or of an unsupported kind
    │   ├── ModelOutputError       it answered with NaN
    │   └── UnreachableError       its server does not answer, whatever it is asked
    ├── PlanError                  a plan breaks the protocol of reading.py
    ├── OverloadedError            too many requests wait; try again later
    └── ClosedError                the model is closed, or shutting down

An InputError is for the caller to fix (exit code 2 on the command line); all others are
failures (exit code 1).
"""

import difflib
from collections.abc import Iterable
from typing import Self


class DiseError(Exception):
    """Base of all errors that this library raises on purpose. Its message is one line."""


class InputError(DiseError, ValueError):
    """What the caller gave cannot be used. `parameter` names what is at fault."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter

    def at(self, place: str) -> Self:
        """Return the same error, whose message begins with the place of the fault."""
        error = type(self).__new__(type(self), f"{place}: {self}")
        error.__dict__.update(self.__dict__)
        return error


class UnknownNameError(InputError):
    """No strategy or model has that name. The message lists all, and suggests one, of
    `near` if that is given. parameter: where it is not called as the kind is.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        choices: Iterable[str],
        detail: str = "",
        near: Iterable[str] | None = None,
        parameter: str | None = None,
    ) -> None:
        names = sorted(choices)
        hint = did_you_mean(name, names if near is None else near)
        listed = ", ".join(names) or "none"
        end = f". {detail}" if detail else ""
        super().__init__(
            f"unknown {kind} {name!r}{hint or '.'} Known: {listed}{end}", parameter or kind
        )


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ". Did you mean 'NAME'?" with the nearest known name, "" where none is near."""
    others = [other for other in choices if other != name]
    nearest = difflib.get_close_matches(name[:100], others, n=1)
    return f". Did you mean {nearest[0]!r}?" if nearest else ""


class TooLongError(InputError):
    """A text has more tokens than the model or the batch limit allows."""


class PluginError(DiseError):
    """A plugin clashes, is misspelt or cannot be imported. `plugin` names it."""

    def __init__(self, message: str, plugin: str | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin


class ModelError(DiseError):
    """A model cannot be found, loaded or run."""


class CheckpointError(ModelError):
    """The files of a checkpoint are incomplete or of an unsupported kind."""


class ModelOutputError(ModelError):
    """The model answered with NaN."""


class UnreachableError(ModelError):
    """The model's server does not answer. No text of a batch is at fault."""


class PlanError(DiseError):
    """A plan breaks the protocol of reading.py, or fails with a foreign error. `plugin`
    names that of a third party's strategy.
    """

    def __init__(self, message: str, plugin: str | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin


class OverloadedError(DiseError):
    """Too many requests wait already; try again later."""


class ClosedError(DiseError):
    """The model is closed, or shutting down."""


def shown(value: object, width: int = 80) -> str:
    """Return a value on one line for an error, cut after `width` characters."""
    return " ".join(repr(value).split())[:width]


def error_line(error: BaseException) -> str:
    """Return an error's type and, if there is one, its text, on one line."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # a plugin's own __str__
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
