"""The settings of strategies on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from dise_core.records import Record

SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
TYPES = {"boolean": "true or false", "string": "text", "json": "JSON"}
"""What a type is called here, where it is not called the same."""


def show_settings(rows: list[Record]) -> None:
    """Print strategies, each with its settings below it."""
    console = Console(highlight=False)
    for row in rows:
        console.print(f"[bold]{escape(row['name'])}[/bold]  [dim]{escape(row['plugin'])}[/dim]")
        console.print(Padding(escape(row["about"]), (0, 0, 0, 2)))
        if row["problem"]:
            console.print(Padding(escape(row["problem"]), (0, 0, 0, 4)))
        if not row["settings"]:
            continue
        table = Table("setting", "type", "default", "range", "", box=None, pad_edge=False)
        for its in row["settings"]:
            default = "must be given" if its["required"] else str(its["default"])
            kind = TYPES.get(its["type"], its["type"])
            cells = (its["name"], kind, default, ", ".join(_range(its)), its["description"])
            table.add_row(*map(escape, cells))
        console.print(Padding(table, (0, 0, 0, 4)))


def _range(setting: Record) -> Iterator[str]:
    """Yield the bounds of a number, the length of a text, or the values that are allowed."""
    if "enum" in setting:
        yield " | ".join(map(str, setting["enum"]))
    for name, sign in SIGNS.items():
        if name in setting:
            yield f"{sign} {setting[name]:.15g}"
    if "maxLength" in setting:
        yield f"at most {setting['maxLength']} characters"
