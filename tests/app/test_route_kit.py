"""The kit of routes passes right ones, and names the promise that a wrong one breaks."""

from __future__ import annotations

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


class Unbounded(Body):
    texts: list[str]
    prompt: str = ""
    k: int = 1


class Loose(Texts, extra="allow"):
    pass


async def surest(service: Service, body: Any) -> dict[str, object]:
    texts = body.texts[: service.options(Options).most]
    answers = await service.llm.score([body.prompt] * len(texts), texts)
    return {"scores": [answer.outputs[0].score.value for answer in answers]}


def right(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> dict[str, object]:
        return await surest(service, body)

    @router.get(PATH)
    async def about() -> dict[str, object]:
        return {"model": service.model}


def early(router: APIRouter, service: Service) -> None:
    llm = service.llm

    @router.get(PATH)
    async def about() -> str:
        return llm.predictor.info.name


def doubled(router: APIRouter, service: Service) -> None:
    @router.post("/v1/score")
    async def score(body: Texts) -> dict[str, object]:
        return await surest(service, body)


def asking(router: APIRouter, service: Service) -> None:
    @router.get(PATH)
    async def about() -> dict[str, object]:
        [answer] = await service.llm.score("a", "b")
        return {"score": answer.outputs[0].score.value}


def open_body(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Open) -> dict[str, object]:
        return await surest(service, body)


def loose(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Loose) -> dict[str, object]:
        return await surest(service, body)


def refusing(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> dict[str, object]:
        raise InputError("No text is long enough.")


def unbounded(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Unbounded) -> dict[str, object]:
        return await surest(service, body)


def by_hand(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(request: Request) -> int:
        return len(await request.json())


def unread(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> int:
        return len(body.prompt)


def failing(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> str:
        if len(body.prompt) > 40:
            raise InputError("The prompt is too long.")
        return max(body.texts)


def plain(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> PlainTextResponse:
        return PlainTextResponse("a")


def speechless(router: APIRouter, service: Service) -> None:
    @router.post(PATH)
    async def longest(body: Texts) -> JSONResponse:
        is_long = len(body.prompt) > 40
        return JSONResponse({"detail": "no"} if is_long else {}, 400 if is_long else 200)


def test_routes_that_keep_their_promises_conform() -> None:
    body = {"texts": ["ab", "c"], "prompt": "d", "k": 2}
    check_routes(right, {PATH: body}, {"most": 2})


@pytest.mark.parametrize(
    ("add", "promise"),
    [
        (early, "routes must be added before the model is loaded"),
        (doubled, "at new paths: .*POST /v1/score is a route already"),
        (asking, f"GET {PATH} must ask nothing of the model"),
        (open_body, f"POST {PATH} must take a Body of dise_app"),
        (loose, f"POST {PATH} must refuse an unknown field"),
        (refusing, f"POST {PATH} must answer the right body"),
        (unbounded, f"POST {PATH} must bound the number 'k'"),
        (by_hand, "must not fail with status 500"),
        (unread, "must refuse a million characters in 'prompt'"),
        (failing, r"'texts': \[\].* must not fail with status 500"),
        (plain, "must be answered with JSON"),
        (speechless, "must be refused with error.message"),
    ],
)
def test_wrong_routes_are_told_the_broken_promise(add: RouteAdder, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_routes(add, {PATH: {"texts": ["ab"], "prompt": "d", "k": 2}})


def test_a_right_body_of_each_path_is_needed() -> None:
    with pytest.raises(AssertionError, match=f"body of POST {PATH} must be given"):
        check_routes(right, {})
