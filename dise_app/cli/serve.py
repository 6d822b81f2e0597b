"""dise serve: the model behind OpenAI's HTTP API, with a score in every answer."""

import logging
import sys
import time
from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.cli.grouped import RARE
from dise_app.server.limits import Limits, api_keys


@options.verb(
    "model", "host", "port", "judge", "served_model_name", "api_key_file", "default", "device",
    models=options.MODELS,
    engine=options.ENGINE,
    limits=options.FieldOptions(Limits, panel=RARE),
    routes=options.ROUTES,
)  # fmt: skip
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is for this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    *,
    parts: options.Parts,
) -> None:
    """Serve the model over HTTP, as OpenAI's clients know it.

    Completions, chat, responses, scoring, ranking, decisions, and a page at /. Set
    DISE_API_KEY, or name a file with --api-key-file, to ask every client for a key. While
    the model is loaded, /health and all requests get 503.
    """
    from dise_app.server.app import create_app
    from dise_app.server.guards.hosts import Hosts
    from dise_app.server.run import GracefulServer, Loading
    from dise_app.server.service import Service
    from dise_app.terminal.heap import kept
    from dise_app.terminal.progress import loading
    from dise_core import AsyncLLM, EngineConfig
    from dise_core.plugins.discovery import installed_catalog

    started, limits = time.monotonic(), Limits(**parts.limits)
    installed_catalog().check_engine(EngineConfig(**parts.engine))

    service = Service(limits, options=parts.routes)
    hosts = Hosts(host, limits.allowed_host)
    keys = api_keys(limits.api_key_file)
    app = create_app(service, api_key=keys, hosts=hosts)
    server = GracefulServer(app, service, host, port)
    server.catch_signals()
    listening = server.listen()
    logger, to_stderr = logging.getLogger("dise.server"), logging.StreamHandler(sys.stderr)
    logger.setLevel(logging.INFO)
    logger.addHandler(to_stderr)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}"
    loaded = parts.models["model"]
    print(f"dise: listening on {address}, with 503 until {loaded} is loaded", flush=True)

    def load() -> None:
        models = parts.models | {"max_waiting": limits.max_waiting, "budget": limits.budget}
        with kept():
            llm = AsyncLLM(**models, **parts.engine, shown=loading)
        service.begin(llm)
        needed = "with an API key" if keys else "without a key"
        seconds = time.monotonic() - started
        print(
            f"dise: {service.model} is ready after {seconds:.1f} s, {needed}, at {address}",
            flush=True,
        )

    loader = Loading(load, server)
    server.run(sockets=[listening])
    logger.removeHandler(to_stderr)
    loader.end()
    raise typer.Exit(server.exit_code)
