"""dise eval: the experiments, a command each, the common ones first. A killed run goes on."""

from __future__ import annotations

from typing import Any

import typer

from dise_app.cli.grouped import Group, GroupedCommand
from dise_eval.cli import compare, evaluate, probing


class ExperimentGroup(Group):
    """The experiments by name; options that begin with --recipe are the verb recipe's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {word.partition("=")[0] for word in args}
        is_recipe = "--recipe" in names and args[0].startswith("-")
        return super().parse_args(ctx, ["recipe", *args] if is_recipe else args)


app = typer.Typer(
    cls=ExperimentGroup,
    no_args_is_help=True,
    help="Rerun the paper's experiments; each goes on where it stopped.",
    rich_markup_mode=None,
)

EXPERIMENTS = {
    **evaluate.VERBS,
    "compare": compare.compare,
    "recipe": compare.recipe,
    **probing.VERBS,
}
for name, function in EXPERIMENTS.items():
    app.command(name, cls=GroupedCommand)(function)
