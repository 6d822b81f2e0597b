"""The verbs of the command itself, registered with the same hook as any plugin's."""

from __future__ import annotations

from dise_core import hookimpl


@hookimpl
def dise_commands() -> dict[str, str]:
    """Return the verbs that every installation has."""
    return {
        "generate": "dise_app.cli.generate:generate",
        "score": "dise_app.cli.score:score",
        "rank": "dise_app.cli.rank:rank",
        "serve": "dise_app.cli.serve:serve",
        "plugins": "dise_app.cli.catalog:plugins",
        "models": "dise_app.cli.catalog:models",
    }
