"""dise plugins, dise models: strategies, models and engines by name, and any broken plugins."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dise_app.cli import options
from dise_app.cli.fitting_cards import show_memory
from dise_core.records import Record

KINDS = {
    "selector": "selectors",
    "scorer": "scorers",
    "length controller": "length_controllers",
    "unmasking policy": "unmasking_policies",
    "reviser": "revisers",
    "mask predictor": "mask_predictors",
    "engine": "engines",
}

Rows = list[Record]

HEADINGS = (
    ("Models by name, for --model, and the weights each was checked on", True),
    ("Models by folder, hub id or address: adapter, example, weights checked on", False),
)
"""Of the models that go by their own name, and of the adapters."""

Memory = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", help="Tell which cards hold a model: its name, folder or hub id."
    ),
]

Kind = Annotated[
    str | None, typer.Option(help=f"Only this kind, with every setting: {', '.join(KINDS)}.")
]


@options.verb()
def plugins(kind: Kind = None, as_json: options.Json = False) -> None:
    """List the strategies and adapters that are installed.

    Each with the plugin it came from; of one --kind with their settings. A broken plugin is named
    on standard error (with --json under "problems" too), and the exit code is 1.
    """
    from dise_app.cli.settings import show_settings
    from dise_app.settings import settings_or_problem
    from dise_core.plugins import installed_plugins

    catalog = installed_plugins()
    chosen = _kinds(kind)
    found = [
        (each, name, entry)
        for each in chosen
        for name, entry in getattr(catalog, KINDS[each]).items()
    ]
    rows = [
        {"kind": each, "name": name, "plugin": entry.plugin, "about": _first_line(entry.cls)}
        for each, name, entry in found
    ]
    if kind is None:
        _show(rows, "plugins", as_json, _rows_of(catalog.problems))
        return
    listed = [
        {"about": _paragraph(entry.cls), "settings": its, "problem": problem}
        for _, _, entry in found
        for its, problem in [settings_or_problem(entry.cls)]
    ]
    rows = [row | its for row, its in zip(rows, listed, strict=True)]
    if not as_json:
        show_settings(rows)
    _show(rows, "plugins", as_json, _rows_of(catalog.problems), is_shown=as_json)


@options.verb()
def models(memory: Memory = None, as_json: options.Json = False) -> None:
    """List what can be typed as a model.

    Names, then the adapters for folders and hub ids; or, with --memory, what one model takes. A
    broken plugin, and an adapter that fails when it is asked for its own name, are named as `dise
    plugins` does.
    """
    from dise_core.claims import claim
    from dise_core.plugins import installed_plugins

    if memory is not None:
        show_memory(memory, as_json)
        return
    catalog = installed_plugins()
    rows, problems = [], _rows_of(catalog.problems)
    for name, entry in catalog.mask_predictors.items():
        by_name, failure = claim(name, entry, name)
        if failure is not None:
            problems.append({"plugin": entry.plugin, "problem": failure})
        rows.append(
            {
                "name": name,
                "plugin": entry.plugin,
                "by_name": by_name,
                "checked_on_weights": entry.cls.checked_on,
                "example": name if by_name else entry.cls.example,
                "about": _first_line(entry.cls),
            }
        )
    if not as_json:
        _show_models(rows)
    _show(rows, "models", as_json, problems, is_shown=as_json)


def _show_models(rows: Rows) -> None:
    """Print what can be typed as a model, an entry of a line and a text each: names, then the
    adapters with an example of their folders, hub ids or addresses.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    console = Console(highlight=False)
    for heading, by_name in HEADINGS:
        console.print(f"[italic]{heading}[/italic]")
        for row in (row for row in rows if row["by_name"] == by_name):
            example = "" if by_name else row["example"]
            weights = (
                row["checked_on_weights"] and f"[dim]{row['checked_on_weights']} weights[/dim]"
            )
            facts = "  ".join(filter(None, (escape(example), weights)))
            console.print(f"[bold]{escape(row['name'])}[/bold]  {facts}".rstrip(), soft_wrap=True)
            console.print(Padding(escape(row["about"]), (0, 0, 0, 2), expand=False))


def _kinds(kind: str | None) -> list[str]:
    """Return the kinds to list: all, or the one named, in which - may stand for a space. Raises
    UnknownNameError for an unknown one.
    """
    from dise_core.errors import UnknownNameError

    if kind is None:
        return list(KINDS)
    named = kind.replace("-", " ").removesuffix("s")
    for each in KINDS:
        if named in (each, *each.split()):
            return [each]
    raise UnknownNameError("kind", kind, KINDS)


def _first_line(cls: type[object]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _paragraph(cls: type[object]) -> str:
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())


def _rows_of(problems: Sequence[Any]) -> Rows:
    return [{"plugin": problem.plugin, "problem": str(problem)} for problem in problems]


def _show(rows: Rows, subject: str, as_json: bool, problems: Rows, is_shown: bool = True) -> None:
    """Print the rows if they are to be shown, and the problems on standard error. Raises
    typer.Exit(1) for any problem.
    """
    import json
    import sys

    from rich.console import Console
    from rich.table import Table

    if as_json:
        print(json.dumps({subject: rows, "problems": problems}, ensure_ascii=False))
    elif rows and is_shown:
        table = Table(*(column.replace("_", " ") for column in rows[0]), box=None, pad_edge=False)
        for row in rows:
            table.add_row(
                *(
                    ("yes" if cell else "") if isinstance(cell, bool) else str(cell)
                    for cell in row.values()
                )
            )
        Console().print(table)
    for problem in problems:
        print(f"dise: {problem['problem']}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)
