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
        """Return FastAPI's handler, with a StrictRequest in place of its own."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is not None:
                _check_type(request.headers.get("content-type"))
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _check_type(given: str | None) -> None:
    """Raise ServerError 415 unless a body's Content-Type is that of JSON, which no page of another
    site can send without asking first.
    """
    kind = (given or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not re.fullmatch(r"application/[^/]+\+json", kind):
        found = "missing" if given is None else f"{given!r:.80}"
        raise ServerError(
            415,
            f"the Content-Type is {found}; send JSON with Content-Type: application/json",
            code="unsupported_media_type",
        )
