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

app = typer.Typer(
    name="dise",
    help=(
        "How sure is a diffusion language model of a text? Generate with it, and score its "
        "answers or any text."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _show_version(is_asked: bool) -> None:
    """Print the version and end, if it is asked for."""
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


app.command("generate")(generate.generate)
app.command("score")(score.score)
app.command("rank")(rank.rank)
evaluate.app.command("revision")(revision.revision)
app.command("calibrate")(calibrate.calibrate)
app.command("decide")(decide.decide)
app.add_typer(evaluate.app, name="eval")
app.add_typer(analyze.app, name="analyze")
app.command("serve")(serve.serve)
app.command("plugins")(catalog.plugins)
app.command("models")(catalog.models)
