"""The command's verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from dise_app.cli import (
    analyze,
    calibrate,
    catalog,
    decide,
    evaluate,
    generate,
    rank,
    revision,
    score,
    serve,
)
from dise_app.cli.grouped import GroupedCommand

app = typer.Typer(
    name="dise",
    help=(
        "How sure is a diffusion language model of a text? Generate with it, and score its "
        "answers or any text."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"dise {version('dise')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


app.command("generate", cls=GroupedCommand)(generate.generate)
app.command("score", cls=GroupedCommand)(score.score)
app.command("rank", cls=GroupedCommand)(rank.rank)
evaluate.app.command("revision", cls=GroupedCommand)(revision.revision)
app.command("calibrate", cls=GroupedCommand)(calibrate.calibrate)
app.command("decide", cls=GroupedCommand)(decide.decide)
app.add_typer(evaluate.app, name="eval")
app.add_typer(analyze.app, name="analyze")
app.command("serve", cls=GroupedCommand)(serve.serve)
app.command("plugins", cls=GroupedCommand)(catalog.plugins)
app.command("models", cls=GroupedCommand)(catalog.models)
