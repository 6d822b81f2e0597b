"""Requests whose JSON is read strictly: named as such, UTF-8 without lone surrogates, finite
numbers, and at most 200 levels deep.
"""

from __future__ import annotations

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
        """Return the body. Raises JSONDecodeError."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            torn = "; half of a surrogate pair?" if "hex escape" in str(error) else ""
            raise JSONDecodeError(f"{error}{torn}", "", 0) from error


class StrictRoute(APIRoute):
    """A route that reads StrictRequests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, for a StrictRequest, which raises ServerError 415 for a body
        that is not said to be JSON.
        """
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type")
            if self.body_field is not None and not JSON.fullmatch(kind or ""):
                found = "missing" if kind is None else f"{kind!r:.80}"
                told = f"the Content-Type is {found}; send JSON with Content-Type: application/json"
                raise ServerError(415, told, code="unsupported_media_type")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
