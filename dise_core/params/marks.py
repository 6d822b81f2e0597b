"""What an option's field declares, beside its type and its bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from pydantic import BaseModel

from dise_core.records import Fields, Record


class Mark(Enum):
    """A fact about an option."""

    NOT_THE_JUDGES = auto()
    """It applies to the model but not to its judge."""
    CHANGES_ANSWERS = auto()
    """It changes what is computed, not only how fast."""
    NOT_OF_LOADING = auto()
    """It is about a judge or about requests, not about how the model itself is loaded."""
    NOT_OF_THE_COMMAND = auto()
    """Python and HTTP have it, the command does not."""
    MODEL_ARG = auto()
    """The command takes it as a key of --model-args."""
    RARE = auto()
    """The command's help lists it at the end, under what few need."""


@dataclass(frozen=True, slots=True)
class Replaces:
    """Once this option is set to another value than its default, the defaults of these
    other options do not apply. always: whatever its value is.
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


def remaining(
    params: type[BaseModel], defaults: Fields, values: Fields, usual: Callable[[str], object]
) -> Record:
    """Return the defaults of the options that are not given, without those that do not
    apply beside them: the settings of an option whose value is not its `usual` one, and
    what its marks name.
    """
    dropped = {*values}
    for name in values.keys() & params.model_fields:
        is_changed = values[name] != usual(name)
        if is_changed:
            dropped.add(f"{name}_settings")
        for mark in params.model_fields[name].metadata:
            if isinstance(mark, Replaces) and (is_changed or mark.always):
                dropped.update(mark.names)
    return {name: value for name, value in defaults.items() if name not in dropped}
