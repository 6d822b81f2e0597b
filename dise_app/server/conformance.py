"""The conformance check of plugins' routes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
from fastapi.routing import APIRoute
from pydantic import ValidationError

from dise_app.server.app import RouteAdder, add_routes, own_app
from dise_app.server.limits import Limits
from dise_app.server.schemas.bodies import Body
from dise_app.server.service import Service
from dise_core import AsyncLLM
from dise_core.records import Fields
from dise_core.testing import ToyPredictor
from dise_core.testing.promises import expect

HUGE = "a" * 1_000_000

STRANGE: tuple[object, ...] = (None, [], {}, "", -1, 0.5, True, "\0")
"""What any field may be given; it may be right."""

Ask = Callable[[object], Awaitable[int]]


def check_routes(
    add: RouteAdder, bodies: Mapping[str, Fields], options: Fields | None = None
) -> None:
    """Check that routes are added before the model, a ToyPredictor, is loaded, at paths
    that the server lacks; that GET asks nothing of it; that a right body, by its path, is
    a Body, answered with JSON; that no other makes the server fail; and that an unknown
    field, a huge text and an unbounded number are refused with a sentence.

    options: what the operator set.
    """
    asyncio.run(_check(add, bodies, Service(Limits(), options=options)))


async def _check(add: RouteAdder, bodies: Mapping[str, Fields], service: Service) -> None:
    app, toy = own_app(service), ToyPredictor()
    try:
        router = add_routes(app, service, add, "under test")
    except Exception as error:
        raise AssertionError(
            f"routes must be added before the model is loaded, at new paths: {error}"
        ) from error
    served = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=served, base_url="http://127.0.0.1")
    async with AsyncLLM(toy) as llm, client:
        service.begin(llm)
        for route in (route for route in router.routes if isinstance(route, APIRoute)):
            for method in route.methods or ():
                request = f"{method} {route.path}"
                ask = partial(_ask, client, method, route.path)
                if route.body_field is None:
                    await ask(None)
                else:
                    expect(route.path in bodies, f"a right body of {request} must be given")
                    model = route.body_field.field_info.annotation
                    await _check_body(request, ask, model, bodies[route.path])
                is_free = method != "GET" or not toy.batches
                expect(is_free, f"{request} must ask nothing of the model")
                toy.batches.clear()


async def _check_body(request: str, ask: Ask, model: Any, body: Fields) -> None:
    is_body = isinstance(model, type) and issubclass(model, Body)
    expect(is_body, f"{request} must take a Body of dise_app, not {model!r:.80}")
    expect(await ask(body) < 400, f"{request} must answer the right body")
    unknown = {**body, "no such field": 1}
    expect(await ask(unknown) >= 400, f"{request} must refuse an unknown field")
    for name, value in body.items():
        await ask({key: other for key, other in body.items() if key != name})
        for strange in STRANGE:
            await ask({**body, name: strange})
        if isinstance(value, str):
            is_bound = await ask({**body, name: HUGE}) >= 400
            expect(is_bound, f"{request} must refuse a million characters in {name!r}")
        elif type(value) in (int, float):
            with suppress(ValidationError):  # not sent: it might never be answered
                model.model_validate({**body, name: 2**70})
                raise AssertionError(f"{request} must bound the number {name!r}, by Field")


async def _ask(client: httpx.AsyncClient, method: str, path: str, body: object) -> int:
    """Return the answer's status: it must be JSON, and say why if it refuses."""
    request = f"{method} {path} with the body {body!r:.200}"
    answer = await client.request(method, path, json=body)
    status, kind = answer.status_code, answer.headers.get("content-type")
    expect(status < 500, f"{request} must not fail with status {status}")
    expect(kind == "application/json", f"{request} must be answered with JSON, not {kind}")
    is_told = status < 400 or '"error":' in answer.text
    promise = f"{request} must be refused with error.message, not {answer.text!r:.80}"
    expect(is_told, promise)
    return status
