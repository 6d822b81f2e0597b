"""The help of a verb: its options in groups, in two columns that cut no name and no text."""

import inspect
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from dise_core.struck import STRUCK, struck

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""Base of click's errors of usage, of the click that typer brings along."""

MOST_USED = "Most used"
"""The heading of a verb's first group."""

RARE = "What few need"
"""The heading of its last."""

METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""How the help calls the values of these types, whatever typer calls them."""

MAX_NAME = 30
"""Characters of a name that stands beside its text, and not above it."""


def write_rows(formatter: Any, rows: Sequence[tuple[str, str]]) -> None:
    """Write names and texts in two columns; no word is broken, and at no hyphen."""
    indent = " " * formatter.current_indent
    column = min(max(len(name) for name, _ in rows), MAX_NAME) + 2
    width = max(formatter.width - len(indent) - column, 10)
    for name, text in rows:
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        above = [""] * (len(name) > MAX_NAME)
        for beside, line in zip_longest([name], above + lines, fillvalue=""):
            formatter.write(f"{indent}{beside:{column}}{line}".rstrip() + "\n")


def first_paragraph(text: object) -> str:
    """Return the first paragraph of a help on one line."""
    return " ".join(str(text or "").partition("\n\n")[0].split())


class Group(TyperGroup):
    """Verbs below a verb, whose help lists each with its first paragraph."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        verbs = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            write_rows(
                formatter,
                [(name, first_paragraph(its and its.help)) for name, its in verbs.items()],
            )


class GroupedCommand(TyperCommand):
    """A verb whose help lists its options under their headings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the arguments. What pydantic says of a value becomes our words."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            message = error.message.removeprefix("Value error, ").partition(", unable to parse")[0]
            error.message = message.replace("Input should be", "it must be")
            value, is_of_others, _ = message.partition(" is not one of ")
            name = getattr(error.param, "name", None) or ""
            if is_of_others and (sentence := struck(name, value.strip("'"))):
                raise UsageError(sentence, ctx) from None
            raise
        except UsageError as error:
            option = str(getattr(error, "option_name", ""))
            kinds, name = ("command option", "option"), option.lstrip("-").replace("-", "_")
            instead = next((STRUCK[kind, name] for kind in kinds if (kind, name) in STRUCK), None)
            if instead is not None:
                raise UsageError(f"{option} was taken out: {instead}", ctx) from None
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        assert self.callback is not None
        headings = getattr(getattr(self.callback, "__wrapped__", None), "headings", {})
        types = inspect.signature(self.callback, eval_str=True).parameters
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = headings.get(parameter.name) or "Options"
            if parameter.metavar is None and parameter.name in types:
                parameter.metavar = metavar(types[parameter.name].annotation)
            names, about = parameter.get_help_record(ctx) or ("", "")
            if parameter.param_type_name == "argument":
                heading, names = "Arguments", parameter.metavar or names
            if names:
                groups.setdefault(heading, []).append((names, about))
        for heading in sorted(groups, key=RARE.__eq__):  # all others stay as they come
            rows = groups[heading]
            with formatter.section(heading):
                write_rows(formatter, rows)


def metavar(annotation: Any) -> str | None:
    """Return what the help calls an option's values; None for a switch."""
    plain = without_none(annotation)
    if get_origin(plain) is list:
        plain = get_args(plain)[0]
    if get_origin(plain) is Literal:
        return "|".join(get_args(plain))
    return METAVARS.get(plain)


def without_none(annotation: Any) -> Any:
    """Return T for T | None, Annotated or not, and any other type as it is."""
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) is Annotated or (
        get_origin(annotation) in (UnionType, Union) and len(parts) == 1
    ):
        return without_none(parts[0])
    return annotation
