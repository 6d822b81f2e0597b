"""dise plugins, dise models: strategies, models and engines by name, and any broken plugins."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from dise_app.cli import options
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


@options.verb()
def plugins(as_json: options.Json = False) -> None:
    """List the strategies and adapters that are installed, with the plugin each came from.

    A broken plugin is named on standard error (with --json under "problems" too), and the exit code
    is 1.
    """
    from dise_core.plugins import installed_plugins

    catalog, problems = installed_plugins()
    rows = [
        {"kind": kind, "name": name, "plugin": entry.plugin, "about": _first_line(entry.cls)}
        for kind, field in KINDS.items()
        for name, entry in getattr(catalog, field).items()
    ]
    _show(rows, "plugins", as_json, _rows_of(problems))


@options.verb()
def models(as_json: options.Json = False) -> None:
    """List the models that go by a name, and the adapters for folders and hub ids.

    A broken plugin, and an adapter that fails when it is asked for its own name, are named as `dise
    plugins` does.
    """
    from dise_core.claims import claim
    from dise_core.plugins import installed_plugins

    catalog, broken = installed_plugins()
    rows, problems = [], _rows_of(broken)
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
                "about": _first_line(entry.cls),
            }
        )
    _show(rows, "models", as_json, problems)


def _first_line(cls: type[object]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _rows_of(problems: Sequence[Any]) -> Rows:
    return [{"plugin": problem.plugin, "problem": str(problem)} for problem in problems]


def _show(rows: Rows, subject: str, as_json: bool, problems: Rows) -> None:
    """Print the rows, and the problems on standard error. Raises typer.Exit(1) for any problem."""
    import json
    import sys

    import typer
    from rich.console import Console
    from rich.table import Table

    if as_json:
        print(json.dumps({subject: rows, "problems": problems}, ensure_ascii=False))
    elif rows:
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
