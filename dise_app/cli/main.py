"""The command: errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dise_app.terminal import ending, interrupts

if TYPE_CHECKING:
    from dise_core import DiseError


def main() -> None:
    """Be the command: the process ends with it."""
    # Python has no stream where the shell has closed one.
    with Path(os.devnull).open("w") as nowhere, ending.prompt():
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
        run()


@interrupts.handled()
def run() -> None:
    """Run the command. Exit codes: 0 done, 1 failure, 2 bad input, 130 Ctrl-C."""
    from dise_app.terminal.heap import keep_freed_memory, kept
    from dise_app.terminal.lines import tell

    with kept():
        from dise_core import InputError
        from dise_core.threads import choose_threads

    choose_threads()
    keep_freed_memory()
    try:
        with kept():
            from dise_app.cli.verbs import app

        try:
            app(prog_name="dise")
        except SystemExit:  # all is written, or an OSError says that it cannot be
            sys.stdout.flush()
            raise
    except BrokenPipeError:
        _give_up_output()
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if "--debug" in sys.argv or interrupts.is_ending():
            raise
        problem = _problem(error)
        with suppress(OSError):
            tell(str(problem))
        _give_up_output()
        code = 2 if isinstance(problem, InputError) else 1
        # That of bad usage, where standard error took no word of it.
        sys.exit(getattr(error.__context__, "exit_code", code))


def _problem(error: Exception) -> DiseError:
    from pydantic import ValidationError

    from dise_app.extras import missing
    from dise_core import DiseError
    from dise_core.params.base import input_error

    if isinstance(error, ValidationError):
        return input_error(error)
    if isinstance(error, DiseError):
        return error
    verb = " ".join(["dise", *(word for word in sys.argv[1:2] if not word.startswith("-"))])
    extra = missing(error, verb) if isinstance(error, ImportError) else None
    return extra or DiseError(f"{type(error).__name__}: {error} (--debug shows where)")


def _give_up_output() -> None:
    """Drop what standard output did not take: the interpreter would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
