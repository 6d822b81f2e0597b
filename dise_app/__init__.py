"""The programs that users run: the command and the server.

The names exported here are public, for authors of verbs, routes and ways to answer files;
docs/reference lists them.
"""

import os.path
import sys

if os.path.basename(sys.argv[0]) in ("dise", "dise.exe") or sys.orig_argv[1:3] == ["-m", "dise"]:
    from dise_app.terminal.interrupts import end_at_once

    end_at_once()  # Ctrl-C ends the command while all else is imported, too

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dise_app.cli.options import SCORED, SHARED, FieldOptions, Own, Parts, option, verb
    from dise_app.files.runner import FileRunner, Work
    from dise_app.server.app import RouteAdder, create_app
    from dise_app.server.conformance import check_routes
    from dise_app.server.limits import Limits
    from dise_app.server.schemas.bodies import Body
    from dise_app.server.service import Service
    from dise_app.terminal.render import show_answer, show_legend

HOMES = {
    "dise_app.cli.options": "SCORED SHARED FieldOptions Own Parts option verb",
    "dise_app.files.runner": "FileRunner Work",
    "dise_app.server.app": "RouteAdder create_app",
    "dise_app.server.conformance": "check_routes",
    "dise_app.server.limits": "Limits",
    "dise_app.server.schemas.bodies": "Body",
    "dise_app.server.service": "Service",
    "dise_app.terminal.render": "show_answer show_legend",
}


def __getattr__(name: str) -> object:
    """Return a public name. Until it is asked for nothing is imported, the core neither:
    the command can be interrupted from its first moment.
    """
    from dise_core.lazy import lazily

    return lazily(__name__, HOMES)(name)


__all__ = [
    "SCORED", "SHARED", "Body", "FieldOptions", "FileRunner", "Limits", "Own", "Parts",
    "RouteAdder", "Service", "Work", "check_routes", "create_app", "option", "show_answer",
    "show_legend", "verb",
]  # fmt: skip
