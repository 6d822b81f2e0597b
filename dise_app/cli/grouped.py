"""The help of a verb: its options in groups, in two columns that cut no name."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

MOST_USED = "Most used"
"""The heading of a verb's first group."""


class GroupedCommand(TyperCommand):
    """A verb whose help lists its options under their headings, in the order of their first
    options.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            named, told = record
            heading = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":
                heading, named = "Arguments", parameter.metavar or named
            groups.setdefault(heading, []).append((named, told))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
