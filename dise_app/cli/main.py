"""The command, and the one place where errors become a line and an exit code. What takes long to
import is imported once Ctrl-C is looked after.
"""

from __future__ import annotations

import os
import sys

from dise_app.cli import interrupts


def main() -> None:
    """Run the command. Raises SystemExit, or with `--debug` the error itself. Exit code 0: done; 2:
    bad usage or input; 1: failure; 130: Ctrl-C.
    """
    with interrupts.handled():
        _main()


def _main() -> None:
    from pydantic import ValidationError

    from dise_app.cli.memory import keep_freed_memory
    from dise_app.extras import missing
    from dise_core.errors import DiseError, InputError
    from dise_core.params import input_error
    from dise_core.threads import choose_threads

    choose_threads()
    keep_freed_memory()
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
    from dise_app.cli.verbs import app

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
