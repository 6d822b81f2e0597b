"""What is said of an option at its field, beside its type and its bounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import BaseModel


class Mark(Enum):
    """A fact about an option."""

    NOT_THE_JUDGES = auto()
    """It applies to the model but not to its judge."""
    CHANGES_ANSWERS = auto()
    """It changes what is computed, not only how fast."""


@dataclass(frozen=True, slots=True)
class Replaces:
    """Once this option is set to another value than its default, the defaults of these other
    options do not apply. always: whatever its value is.
    """

    names: tuple[str, ...]
    always: bool = False


@dataclass(frozen=True, slots=True)
class Opposite:
    """The name of a switch turned off, where --no-NAME would not be English."""

    name: str


def marked(params: type[BaseModel], mark: Mark) -> set[str]:
    """Return the names of the fields with that mark."""
    return {name for name, field in params.model_fields.items() if mark in field.metadata}


def replaced(params: type[BaseModel], name: str, is_changed: bool) -> Iterator[str]:
    """Yield the options whose defaults do not apply once the option of that name is set: its
    settings, and those that its marks name. is_changed: whether it differs from its default.
    """
    field = params.model_fields.get(name)
    if field is None:
        return
    if is_changed and f"{name}_settings" in params.model_fields:
        yield f"{name}_settings"
    for mark in field.metadata:
        if isinstance(mark, Replaces) and (is_changed or mark.always):
            yield from mark.names
