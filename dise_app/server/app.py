"""The server as an ASGI application, and its routes about itself."""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from dise_app.server import errors
from dise_app.server.choices import CONFIDENCE_HEADERS, JsonObject
from dise_app.server.guards.guard import Guard
from dise_app.server.guards.hosts import Hosts
from dise_app.server.guards.strict import StrictRoute
from dise_app.server.limits import Limits
from dise_app.server.routes.completions import add_completions
from dise_app.server.routes.responses import add_responses
from dise_app.server.routes.scores import add_scores
from dise_app.server.routes.strategies import add_strategies
from dise_app.server.routes.tokens import add_tokens
from dise_app.server.service import Service
from dise_core import AsyncLLM, InputError, PluginError
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.entry import Entry

PAGE = Path(__file__).parent / "page"

SELF_ALONE = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
POLICY = f"{SELF_ALONE}form-action 'self'"
"""The page's content security policy: it may load its own files only."""

RouteAdder = Callable[[APIRouter, Service], object]
"""Adds a plugin's routes to a router."""

log = logging.getLogger("dise.server")


def create_app(
    model: AsyncLLM | Service,
    limits: Limits | None = None,
    api_key: str | Collection[str] | None = None,
    hosts: Hosts | None = None,
) -> FastAPI:
    """Return the server as an ASGI application, which closes the model when it shuts
    down.

    model: a loaded one, or a Service that begins once it is; it has its limits. api_key:
    the keys of which clients must send one.
    """
    service = model if isinstance(model, Service) else Service(limits or Limits(), model)
    api_keys = [api_key] if isinstance(api_key, str) else api_key or ()
    app = own_app(service, api_keys, hosts)
    for name, entry in installed_catalog().routes.items():
        _add_guest(app, service, name, entry)
    return app


def own_app(
    service: Service, api_keys: Collection[str] = (), hosts: Hosts | None = None
) -> FastAPI:
    """Return the server without plugins' routes."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(title="DiSE", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.router.route_class = StrictRoute
    if service.limits.cache_salt_by_key and not api_keys:
        raise InputError(
            "--cache-salt-by-key needs API keys: set DISE_API_KEY or give --api-key-file FILE",
            "cache_salt_by_key",
        )
    app.add_middleware(Guard, service=service, api_keys=api_keys, hosts=hosts)
    if service.limits.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.limits.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-ID", "Retry-After", *CONFIDENCE_HEADERS],
        )
    _add_errors(app)
    _add_facts(app, service, is_open=not api_keys)
    for add in (add_completions, add_responses, add_scores, add_tokens, add_strategies):
        add(app, service)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    return app


def add_routes(app: FastAPI, service: Service, add: RouteAdder, plugin: str) -> APIRouter:
    """Add a plugin's routes, and return them. Raises PluginError for a double."""
    router = APIRouter(route_class=StrictRoute)
    add(router, service)
    if doubles := sorted(_paths(router.routes) & _paths(app.routes)):
        raise PluginError(f"plugin {plugin!r}: {doubles[0]} is a route already")
    app.include_router(router)
    return router


def _add_guest(app: FastAPI, service: Service, name: str, entry: Entry[Any]) -> None:
    """Add a plugin's routes. Log those that are broken or exist already."""
    try:
        add_routes(app, service, entry.load(), entry.plugin)
    except Exception as error:
        if entry.is_built_in:
            raise
        failure = entry.failure(f"the routes {name!r} cannot be added", error)
        log.warning("dise: %s", error if isinstance(error, PluginError) else failure)


def _paths(routes: Iterable[BaseRoute]) -> set[str]:
    return {
        f"{method} {route.path}"
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }


def _add_errors(app: FastAPI) -> None:
    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.detail == HTTPStatus.NOT_FOUND.phrase:
            error = errors.no_path(request.scope["path"])
        if not isinstance(error, errors.KNOWN):
            log.error("a request failed", exc_info=error)
        return errors.answer(error)

    for error_class in (*errors.KNOWN, Exception):
        app.add_exception_handler(error_class, handle)


def _add_facts(app: FastAPI, service: Service, is_open: bool) -> None:
    @app.get("/", include_in_schema=False)
    @app.head("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"Content-Security-Policy": POLICY})

    @app.get("/docs", include_in_schema=False)
    @app.get("/redoc", include_in_schema=False)
    async def where_docs_are() -> PlainTextResponse:
        return PlainTextResponse("The schema of all routes is at /openapi.json.\n")

    @app.get("/health")
    @app.head("/health", include_in_schema=False)
    async def health() -> Response:
        return _health(service, is_open)

    @app.get("/ping")
    @app.post("/ping", include_in_schema=False)
    async def ping() -> Response:
        """Answer as /health does, without a body: what SageMaker asks."""
        return Response(status_code=_health(service, is_open).status_code)

    @app.get("/load")
    async def load() -> JsonObject:
        """Return the requests under way, as vLLM counts them."""
        engine = service.llm.engine
        return {"server_load": engine.num_running + engine.num_waiting}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(service.metrics.text(), media_type=media_type)

    @app.get("/version")
    async def its_version() -> JsonObject:
        return {"version": version("dise")}

    @app.get("/v1/models")
    async def models() -> JsonObject:
        return {"object": "list", "data": [_model(service, name) for name in service.names]}

    @app.get("/v1/models/{name:path}")
    async def one_model(name: str) -> JsonObject:
        service.check_model(name)
        return _model(service, name)


def _health(service: Service, is_open: bool) -> Response:
    if not service.is_loaded:
        return JSONResponse({"status": "loading"}, 503, headers={"Retry-After": "1"})
    engine, planner = service.llm.engine, service.llm.planner
    death = f"dead: {engine.death}" if is_open else "dead"
    facts = {
        "status": "ok" if engine.death is None else death,
        **({"model": service.model} if is_open else {}),
        "block_length": planner.predictor.info.block_length,
        "calibrated_selector": planner.calibration and planner.calibration.selector,
        "running": engine.num_running,
        "waiting": engine.num_waiting,
    }
    return JSONResponse(facts, 200 if engine.death is None else 503)


def _model(service: Service, name: str) -> JsonObject:
    return {
        "id": name,
        "object": "model",
        "owned_by": "dise",
        "created": service.started,
        "root": service.llm.predictor.info.name,
        "parent": None,
        "max_model_len": service.llm.predictor.info.max_length,
        "permission": [],
    }
