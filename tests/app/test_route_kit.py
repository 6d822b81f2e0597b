"""The kit of routes passes right ones, and names the promise that a wrong one breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from dise_app import Body, Service, check_routes
from dise_app.server.app import RouteAdder
from dise_core import InputError, Params

PATH = "/v1/longest"


class Options(Params):
    most: int = Field(default=3, ge=1, le=8)


class Texts(Body):
    texts: list[str] = Field(max_length=8)
    prompt: str = ""
    k: int = Field(default=1, ge=1, le=8)


class Open(BaseModel):
    texts: list[str]
    prompt: str = ""
    k: int = Field(default=1, ge=1, le=8)


class Unbounded(Texts):
    k: int = 1


class Loose(Texts, extra="allow"):
    pass


async def scores(service: Service, body: Any) -> dict[str, object]:
    texts = body.texts[: service.options(Options).most]
    answers = await service.llm.score([body.prompt] * len(texts), texts)
    return {"scores": [answer.outputs[0].score.value for answer in answers]}


def route(
    answer: Callable[[Service, Any], Awaitable[object]], body_class: type = Texts, path: str = PATH
) -> RouteAdder:
    """Return what adds a route that answers a body of this class."""

    def add(router: APIRouter, service: Service) -> None:
        async def asked(body: Any) -> object:
            return await answer(service, body)

        asked.__annotations__ = {"body": body_class}
        router.post(path)(asked)

    return add


def right(router: APIRouter, service: Service) -> None:
    route(scores)(router, service)

    @router.get(PATH)
    async def told() -> dict[str, object]:
        return {"model": service.model}


def early(router: APIRouter, service: Service) -> None:
    name = service.llm.predictor.info.name

    @router.get(PATH)
    async def told() -> str:
        return name


def asking(router: APIRouter, service: Service) -> None:
    @router.get(PATH)
    async def told() -> dict[str, object]:
        return await scores(service, Texts(texts=["b"], prompt="a"))


async def refusing(_: Service, body: Any) -> object:
    raise InputError("No text is long enough.")


async def by_hand(_: Service, request: Any) -> int:
    return len(await request.json())


async def unread(_: Service, body: Any) -> int:
    return len(body.prompt)


async def failing(_: Service, body: Any) -> str:
    if len(body.prompt) > 40:
        raise InputError("The prompt is too long.")
    return str(max(body.texts))


async def plain(_: Service, body: Any) -> object:
    return PlainTextResponse("a")


async def speechless(_: Service, body: Any) -> object:
    is_long = len(body.prompt) > 40
    return JSONResponse({"detail": "no"} if is_long else {}, 400 if is_long else 200)


def test_routes_that_keep_their_promises_conform() -> None:
    body = {"texts": ["ab", "c"], "prompt": "d", "k": 2}
    check_routes(right, {PATH: body}, {"most": 2})


@pytest.mark.parametrize(
    ("add", "promise"),
    [
        (early, "routes must be added before the model is loaded"),
        (route(scores, path="/v1/score"), "at new paths: .*POST /v1/score is a route already"),
        (asking, f"GET {PATH} must ask nothing of the model"),
        (route(scores, Open), f"POST {PATH} must take a Body of dise_app"),
        (route(scores, Loose), f"POST {PATH} must refuse an unknown field"),
        (route(refusing), f"POST {PATH} must answer the right body"),
        (route(scores, Unbounded), f"POST {PATH} must bound the number 'k'"),
        (route(by_hand, Request), "must not fail with status 500"),
        (route(unread), "must refuse a million characters in 'prompt'"),
        (route(failing), r"'texts': \[\].* must not fail with status 500"),
        (route(plain), "must be answered with JSON"),
        (route(speechless), "must be refused with error.message"),
    ],
)
def test_wrong_routes_are_told_the_broken_promise(add: RouteAdder, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_routes(add, {PATH: {"texts": ["ab"], "prompt": "d", "k": 2}})


def test_a_right_body_of_each_path_is_needed() -> None:
    with pytest.raises(AssertionError, match=f"body of POST {PATH} must be given"):
        check_routes(right, {})
