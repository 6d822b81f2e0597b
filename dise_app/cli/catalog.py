"""dise plugins, dise models: what can be called by name."""

from __future__ import annotations

import inspect

from dise_app.cli import options

KINDS = {
    "selector": "selectors",
    "scorer": "scorers",
    "length controller": "length_controllers",
    "unmasking policy": "unmasking_policies",
    "mask predictor": "mask_predictors",
}


def plugins(as_json: options.Json = False, debug: options.Debug = False) -> None:  # noqa: ARG001
    """List the strategies and adapters that are installed, with the plugin each came from."""
    from dise_core.plugins import installed_catalog

    catalog = installed_catalog()
    rows = [
        {"kind": kind, "name": name, "plugin": entry.plugin, "about": _first_line(entry.cls)}
        for kind, field in KINDS.items()
        for name, entry in getattr(catalog, field).items()
    ]
    _show(rows, "plugins", as_json)


def models(as_json: options.Json = False, debug: options.Debug = False) -> None:  # noqa: ARG001
    """List the models that go by a name, and the adapters for folders and hub ids."""
    from dise_core.plugins import installed_catalog

    rows = [
        {
            "name": name,
            "plugin": entry.plugin,
            "by_name": entry.cls.claims(name),
            "about": _first_line(entry.cls),
        }
        for name, entry in installed_catalog().mask_predictors.items()
    ]
    _show(rows, "models", as_json)


def _first_line(cls: type[object]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _show(rows: list[dict[str, object]], subject: str, as_json: bool) -> None:
    import json

    from rich.console import Console
    from rich.table import Table

    if as_json:
        print(json.dumps({subject: rows}, ensure_ascii=False))
        return
    table = Table(*(column.replace("_", " ") for column in rows[0]), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(("yes" if cell else "") if isinstance(cell, bool) else str(cell) for cell in row.values()))
    Console().print(table)
