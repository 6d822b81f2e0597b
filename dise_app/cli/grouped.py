"""The help of a verb: its options in groups, in two columns that cut no name."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from typer.core import TyperCommand

MOST_USED = "Most used"
"""The heading of a verb's first group."""

METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}
"""How the help calls the values of these types, whatever typer calls them."""


class GroupedCommand(TyperCommand):
    """A verb whose help lists its options under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        headings = getattr(self.callback, "headings", {})
        types = getattr(self.callback, "__annotations__", {})
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = headings.get(parameter.name) or "Options"
            parameter.metavar = parameter.metavar or metavar(types.get(parameter.name))
            names, about = parameter.get_help_record(ctx) or ("", "")
            if parameter.param_type_name == "argument":
                heading, names = "Arguments", parameter.metavar or names
            if names:
                groups.setdefault(heading, []).append((names, about))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


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
