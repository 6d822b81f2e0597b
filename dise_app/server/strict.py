"""Requests whose JSON is read strictly: UTF-8 without lone surrogates, finite numbers, and at most
200 levels deep.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json


class StrictRequest(Request):
    """A request that refuses what could not be sent back."""

    async def json(self) -> Any:
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
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
