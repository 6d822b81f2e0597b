"""dise serve: the model behind OpenAI's HTTP API, with a score in every answer."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dise_app.cli import options

KEY_VARIABLE = "DISE_API_KEY"


@options.verb(models=options.MODELS, engine=options.ENGINE)
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is for this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Requests that may wait to start; one more gets 429.")
    ] = 1024,
    max_tokens_limit: Annotated[
        int, typer.Option(min=1, help="The most tokens that an answer may ask for.")
    ] = 4096,
    max_body_bytes: Annotated[int, typer.Option(min=1, help="The largest request in bytes.")] = 2
    * 2**20,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds after which a request fails.")
    ] = 600.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that requests under way have to end at SIGTERM.")
    ] = 30.0,
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
        from dise_app.server.app import Limits, create_app
        from dise_app.server.run import GracefulServer
    except ImportError as error:
        raise InputError(
            f"{error.name} is missing: install the server with pip install 'dise[serve]'"
        ) from error

    llm = settled(AsyncLLM(**parts.models, max_waiting=max_waiting, **parts.engine))
    app = create_app(
        llm, Limits(max_tokens_limit, max_body_bytes, timeout), os.environ.get(KEY_VARIABLE) or None
    )
    _log_to_stderr()
    server = GracefulServer(app, llm, host, port, grace)
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
