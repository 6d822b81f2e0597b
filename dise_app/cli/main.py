"""The command's verbs, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
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


def main() -> None:
    """Run the command. Raises SystemExit, or with `--debug` the error itself. Exit code 0: done; 2:
    bad usage or input; 1: failure.
    """
    from pydantic import ValidationError

    from dise_app.cli.memory import keep_freed_memory
    from dise_app.cli.startup import WithoutScikitLearn
    from dise_app.extras import missing
    from dise_core.errors import DiseError, InputError
    from dise_core.params import input_error
    from dise_core.threads import choose_threads

    choose_threads()
    keep_freed_memory()
    WithoutScikitLearn.install()
    try:
        _run()
    except (DiseError, ValidationError) as error:
        if "--debug" in sys.argv:
            raise
        problem = input_error(error) if isinstance(error, ValidationError) else error
        print(f"dise: {problem}", file=sys.stderr)
        _give_up_output()
        sys.exit(2 if isinstance(problem, InputError) else 1)
    except BrokenPipeError:
        _give_up_output()
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        if isinstance(error, ImportError) and (wanted := missing(error, _verb())):
            print(f"dise: {wanted}", file=sys.stderr)
            _give_up_output()
            sys.exit(2)
        print(f"dise: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        _give_up_output()
        sys.exit(1)


def _run() -> None:
    """Run the verb. Raises SystemExit once all is written, OSError if it cannot be."""
    try:
        app(prog_name="dise")
    except SystemExit:
        sys.stdout.flush()
        raise


def _verb() -> str:
    """Return the verb that was asked for, as an error names it."""
    return " ".join(["dise", *(word for word in sys.argv[1:2] if not word.startswith("-"))])


def _give_up_output() -> None:
    """Drop what standard output did not take; the interpreter would try, and fail, once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
