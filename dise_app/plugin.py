"""The verbs of the command itself, registered with the same hook as any plugin's."""

from dise_core import hookimpl


@hookimpl
def dise_commands() -> dict[str, str]:
    """Return the verbs that every installation has."""
    return {
        "generate": "dise_app.cli.generate:generate",
        "fill": "dise_app.cli.fill:fill",
        "score": "dise_app.cli.score:score",
        "rank": "dise_app.cli.rank:rank",
        "serve": "dise_app.cli.serve:serve",
        "plugins": "dise_app.cli.catalog:plugins",
        "models": "dise_app.cli.catalog:models",
    }
