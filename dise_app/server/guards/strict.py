"""Requests whose JSON is strict: its type, UTF-8, finite numbers, 200 levels."""

import re
from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from dise_app.server.errors import ServerError

JSON = re.compile(r"\s*application/([^/;]+\+)?json\s*(;.*)?", re.IGNORECASE)
"""The Content-Types that no page of another site can send without asking first."""


class StrictRequest(Request):
    """A request that refuses what could not be sent back."""

    async def json(self) -> object:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            torn = "; half of a surrogate pair?" if "hex escape" in str(error) else ""
            raise JSONDecodeError(f"{error}{torn}", "", 0) from error


class StrictRoute(APIRoute):
    """A route that reads StrictRequests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            media_type = request.headers.get("content-type")
            if self.body_field is not None and not JSON.fullmatch(media_type or ""):
                raise ServerError(
                    415,
                    f"the Content-Type is {_named(media_type)}; "
                    "send JSON with Content-Type: application/json",
                    code="unsupported_media_type",
                )
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _named(media_type: str | None) -> str:
    return "missing" if media_type is None else f"{media_type!r:.80}"
