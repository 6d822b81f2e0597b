"""The settings of strategies: names, defaults and ranges, from their fields."""

from __future__ import annotations

from types import NoneType
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from dise_core.records import Record

SIGNS = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}
"""How a bound is written, and where it stands."""


def settings_of(cls: type[object]) -> list[Record]:
    """Return the settings of a strategy, each with its name, type, default (None if it must be
    given), range and description; none for a class without fields.
    """
    if not issubclass(cls, BaseModel):
        return []
    return [_setting(name, field) for name, field in cls.model_fields.items()]


def _setting(name: str, field: FieldInfo) -> Record:
    is_union = NoneType in get_args(field.annotation)
    types = get_args(field.annotation) if is_union else (field.annotation,)
    kinds = [part for part in types if part is not NoneType]
    return {
        "name": name,
        "type": " or ".join(_type_name(kind) for kind in kinds),
        "default": None if field.is_required() else field.get_default(call_default_factory=True),
        "is_required": field.is_required(),
        "range": ", ".join(_bounds(field, kinds)),
        "description": field.description or "",
    }


def _type_name(kind: object) -> str:
    if get_origin(kind) is Literal:
        return "text"
    names = {int: "integer", float: "number", bool: "true or false", str: "text"}
    for plain in (get_args(kind) or (kind,))[:1]:
        if plain in names:
            return names[plain]
    return getattr(kind, "__name__", str(kind))


def _bounds(field: FieldInfo, kinds: list[object]) -> list[str]:
    """Return the bounds of a number, or the values that are allowed, as text."""
    notes = [*field.metadata, *(note for kind in kinds for note in get_args(kind)[1:])]
    for kind in kinds:
        if get_origin(kind) is Literal:
            return [" | ".join(map(str, get_args(kind)))]
    found = []
    for note in notes:
        for part in getattr(note, "metadata", None) or [note]:
            if type(part) in SIGNS:
                sign, name = SIGNS[type(part)]
                found.append(f"{sign} {getattr(part, name)}")
    return found


def show_settings(rows: list[Record]) -> None:
    """Print strategies, each with its settings below it."""
    console = Console(highlight=False)
    for row in rows:
        console.print(f"[bold]{escape(row['name'])}[/bold]  [dim]{escape(row['plugin'])}[/dim]")
        console.print(Padding(escape(row["about"]), (0, 0, 0, 2)))
        if not row["settings"]:
            continue
        table = Table("setting", "type", "default", "range", "", box=None, pad_edge=False)
        for its in row["settings"]:
            default = "must be given" if its["is_required"] else str(its["default"])
            cells = (its["name"], its["type"], default, its["range"], its["description"])
            table.add_row(*map(escape, cells))
        console.print(Padding(table, (0, 0, 0, 4)))
