"""A verb's options in groups, each with its heading in the help: made from the fields of params.py,
or the command's own.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from copy import copy
from enum import Enum
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.models import ParameterInfo

from dise_app.cli.completion import completion_of
from dise_app.cli.grouped import MOST_USED
from dise_app.texts import settings
from dise_core.params import (
    DecisionParams,
    EngineConfig,
    Params,
    SamplingParams,
    ScoringParams,
    Settings,
)
from dise_core.records import Record

Option = tuple[Any, Any]
"""The type of an option, annotated for typer, and its default; inspect.Parameter.empty makes it
required.
"""

Verb = Callable[..., None]

PANELS: Mapping[type[Params], str] = {
    ScoringParams: "How the answer is scored",
    SamplingParams: "How the answer is written",
    DecisionParams: "How the questions are asked",
    EngineConfig: "How the model is loaded and run",
}
"""The headings in the help for the fields of these classes; the first with a field has it."""


class Parts(SimpleNamespace):
    """The verb's name as `command`, and what each of its tables has read, by the table's name."""


REQUIRED = inspect.Parameter.empty

METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""How the help calls the values of these types, whatever typer calls them."""


class Table(ABC):
    """A group of a verb's options, by the names of their parameters."""

    options: Mapping[str, Option]

    panel: str | None = None
    """The heading that the options stand under in the verb's help."""

    def panel_of(self, name: str) -> str | None:  # noqa: ARG002
        """Return the heading of one of the options, by the name of its parameter."""
        return self.panel

    @abstractmethod
    def read(self, values: Record, given: Collection[str]) -> Record:
        """Return what the verb gets. values: of all its options; given: those the user named."""


class Own(Table):
    """Options that only the command has."""

    def __init__(self, panel: str | None = None, /, **options: Option) -> None:
        self.panel, self.options = panel, options

    def read(self, values: Record, given: Collection[str]) -> Record:  # noqa: ARG002
        return {name: values[name] for name in self.options}


class Fields(Table):
    """The fields of a class of params.py as options, with the fields' names, types, defaults and
    descriptions.

    The verb gets the fields that the user named, as arguments for the class; `defaults` replace the
    class's own defaults. Fields in `without` are not options here.
    """

    def __init__(
        self, params: type[Params], without: Collection[str] = (), **defaults: Any
    ) -> None:
        self._defaults = defaults
        self._fields = {
            name: field for name, field in params.model_fields.items() if name not in without
        }
        self.options = {
            _flag(name): self._option(name, field) for name, field in self._fields.items()
        }

    def panel_of(self, name: str) -> str | None:
        """Return the heading of what the most general class with that field is about."""
        fields = {_flag(field): field for field in self._fields}
        owners = [panel for params, panel in PANELS.items() if fields[name] in params.model_fields]
        return owners[0] if owners else None

    def read(self, values: Record, given: Collection[str]) -> Record:
        """Return the fields that the user named, and this table's own defaults for the others."""
        named = {
            name: settings(values[_flag(name)] or [])
            if field.annotation == Settings
            else values[_flag(name)]
            for name, field in self._fields.items()
            if _flag(name) in given
        }
        return self._defaults | named

    def _default(self, name: str, field: FieldInfo) -> Any:
        default = self._defaults.get(name, field.get_default(call_default_factory=True))
        return list(default) if isinstance(default, tuple | dict) else default

    def _option(self, name: str, field: FieldInfo) -> Option:
        default, kind = self._default(name, field), _without_none(field.annotation)
        flag, about = (
            "--" + _flag(name).replace("_", "-"),
            " ".join((field.description or "").split()),
        )
        more: Record = {"autocompletion": completion_of(name)}
        if isinstance(default, list):
            items = _plain(get_args(kind)[0]) if get_origin(kind) is tuple else str
            kind = list[items]  # type: ignore[valid-type]
            if field.annotation == Settings:
                more["metavar"] = "KEY=VALUE"
            default, about = None, about.rstrip(".") + "; may be repeated."
        elif field.default is not None and kind is not field.annotation:
            more |= {"parser": _number_or_none, "metavar": "INTEGER|none"}
        elif kind is bool:
            flag = flag if default is False else f"{flag}/--no-{flag[2:]}"
        option = typer.Option(flag, help=about, show_default=default is not None, **more)
        return Annotated[kind | None if default is None else kind, option], default


def _shown(kind: Any, panel: str | None = None) -> Any:
    """Return the annotated type of an option with that heading, and with its values' name."""
    if get_origin(kind) is not Annotated:
        return kind
    plain, *notes = get_args(kind)
    for index, note in enumerate(notes):
        if isinstance(note, ParameterInfo):
            notes[index] = copy(note)
            notes[index].rich_help_panel = panel or note.rich_help_panel
            notes[index].metavar = note.metavar or _metavar(plain)
    return Annotated[plain, *notes]


def _metavar(kind: Any) -> str | None:
    """Return what the help calls the values of a type, its choices if it has some; None for a
    switch.
    """
    plain = _without_none(kind)
    if get_origin(plain) is list:
        plain = get_args(plain)[0]
    if get_origin(plain) is Literal:
        return "|".join(get_args(plain))
    if isinstance(plain, type) and issubclass(plain, Enum):
        return "|".join(plain)
    return METAVARS.get(plain)


def _flag(name: str) -> str:
    """Return a field's parameter: singular for settings, which are given one at a time."""
    return name.removesuffix("s") if name.endswith("_settings") else name


def _plain(kind: object) -> Any:
    """Return T of Annotated[T, ...], whose bounds pydantic checks, and any other type unchanged."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _without_none(kind: Any) -> Any:
    """Return T for T | None, and any other type as it is."""
    if get_origin(kind) not in (UnionType, Union):
        return kind
    [found] = [part for part in get_args(kind) if part is not NoneType]
    return _plain(found)


def _number_or_none(given: str | int) -> int | None:
    try:
        return None if given == "none" else int(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is neither a number nor none") from None


def verb(*most_used: str, **tables: Table) -> Callable[[Verb], Verb]:
    """Return a decorator that gives a verb the tables' options after its own, which it gets as its
    argument `parts`, and --debug, which main reads. most_used: the options of its first group.
    """
    panels = dict.fromkeys(most_used, MOST_USED)
    shared = [
        (name, (_shown(kind, panels.get(name) or table.panel_of(name)), default))
        for table in tables.values()
        for name, (kind, default) in table.options.items()
    ]
    shared.sort(key=lambda pair: [*most_used, pair[0]].index(pair[0]))
    debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
    context_parameter = inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in [*shared, ("debug", (debug, False))]
    ]

    def decorate(function: Verb) -> Verb:
        signature = inspect.signature(function, eval_str=True)
        own = [
            p.replace(kind=p.KEYWORD_ONLY, annotation=_shown(p.annotation))
            for p in signature.parameters.values()
            if p.name != "parts"
        ]

        @functools.wraps(function)
        def command(context: typer.Context, **values: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in values}
            given = {
                name for name, source in sources.items() if source and source.name != "DEFAULT"
            }
            parts = Parts(
                command=function.__name__,
                **{part: table.read(values, given) for part, table in tables.items()},
            )
            function(
                **{p.name: values[p.name] for p in own}, **({"parts": parts} if tables else {})
            )

        all_parameters = [context_parameter, *own, *parameters]
        command.__signature__ = inspect.Signature(all_parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in all_parameters}
        return command

    return decorate
