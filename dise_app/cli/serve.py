"""dise serve: the model behind OpenAI's HTTP API, with a score in every answer."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.server.limits import Limits

KEY_VARIABLE = "DISE_API_KEY"


@options.verb(models=options.MODELS, engine=options.ENGINE, limits=options.Fields(Limits))
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is for this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    *,
    parts: options.Parts,
) -> None:
    """Serve the model over HTTP: completions and chat as OpenAI's clients know them, scoring,
    ranking, and a page at /.

    Set DISE_API_KEY to ask every client for that key.
    """
    from dise_app.cli.memory import settled
    from dise_core import AsyncLLM, InputError

    try:
        from dise_app.server.app import create_app
        from dise_app.server.hosts import Hosts
        from dise_app.server.run import GracefulServer
    except ImportError as error:
        raise InputError(
            f"{error.name} is missing: install the server with pip install 'dise[serve]'"
        ) from error

    limits = Limits(**parts.limits)
    llm = settled(
        AsyncLLM(
            **parts.models, max_waiting=limits.max_waiting, budget=limits.budget, **parts.engine
        )
    )
    key = os.environ.get(KEY_VARIABLE, "").strip() or None
    app = create_app(llm, limits, key, Hosts(host, limits.allowed_host))
    _log_to_stderr()
    server = GracefulServer(app, llm, host, port, limits)
    server.catch_signals()
    listening = server.listen()
    print(
        f"dise: {llm.predictor.info.name} at http://{host}:{listening.getsockname()[1]}", flush=True
    )
    server.run(sockets=[listening])
    raise typer.Exit(server.exit_code)


def _log_to_stderr() -> None:
    """Write the server's log, one JSON object per request, to standard error."""
    import logging
    import sys

    logger = logging.getLogger("dise.server")
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
