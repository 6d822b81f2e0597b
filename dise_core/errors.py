"""Everything that can go wrong, as one tree.

    DiseError
    ├── InputError                 what the caller gave cannot be used; `parameter` names it
    │   ├── UnknownNameError       no strategy or model of that name; lists the known ones
    │   └── TooLongError           more tokens than the model or the batch limit takes
    ├── PluginError                a plugin clashes, is misspelt or cannot be imported
    ├── ModelError                 a model cannot be found, loaded or run
    │   ├── CheckpointError        its files are incomplete or of a kind that is not covered
    │   └── ModelOutputError       it answered with NaN
    ├── PlanError                  a plan breaks the protocol of reading.py
    ├── OverloadedError            too many requests wait; try again later
    └── ClosedError                the engine is shutting down

An InputError is the caller's to mend (exit code 2 on the command line), all others are failures
(exit code 1).
"""

import difflib
from collections.abc import Iterable


class DiseError(Exception):
    """Base of all errors that this library raises on purpose. Its text is one line."""


class InputError(DiseError, ValueError):
    """What the caller gave cannot be used; `parameter` names it where one parameter is to blame."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownNameError(InputError):
    """No strategy or model of that name; the text suggests the nearest, lists the known ones and
    ends with `detail`.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], detail: str = "") -> None:
        names = sorted(known)
        nearest = difflib.get_close_matches(name.replace("_", "-"), names, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        told = f". {detail}" if detail else ""
        super().__init__(
            f"unknown {kind} {name!r}.{hint} Known: {', '.join(names) or 'none'}{told}", kind
        )


class TooLongError(InputError):
    """More tokens than the model or the batch limit takes."""


class PluginError(DiseError):
    """A plugin clashes with another, is misspelt or cannot be imported; the text names it, and so
    does `plugin`.
    """

    def __init__(self, message: str, plugin: str | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin


class ModelError(DiseError):
    """A model cannot be found, loaded or run."""


class CheckpointError(ModelError):
    """The files of a checkpoint are incomplete or of a kind that is not covered."""


class ModelOutputError(ModelError):
    """The model answered with NaN."""


class PlanError(DiseError):
    """A plan breaks the protocol of reading.py."""


class OverloadedError(DiseError):
    """Too many requests wait already; try again later."""


class ClosedError(DiseError):
    """The engine is shutting down, or was."""
