"""One request's body, counted and timed as it arrives, and its response, marked with its id."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import Message, Receive, Send

from dise_app.server.errors import ServerError
from dise_app.server.limits import Limits

CLIENT_WENT_AWAY = 499
"""The status in the log and the metrics of a request that got no response."""


@dataclass(slots=True)
class Budget:
    """Bytes that requests may still hold, all together."""

    left: int


class Exchange:
    """Passes messages between a client and the application; `refusal` is set once the body is not
    to be taken.
    """

    def __init__(
        self, receive: Receive, send: Send, request_id: str, limits: Limits, budget: Budget
    ) -> None:
        self.refusal: ServerError | None = None
        self.status = CLIENT_WENT_AWAY
        self._receive, self._send = receive, send
        self._request_id = request_id
        self._limits = limits
        self._budget = budget
        self._num_bytes = 0
        self._is_whole = False
        self._deadline = asyncio.get_running_loop().time() + limits.body_timeout

    @property
    def is_answered(self) -> bool:
        """Whether a response has begun."""
        return self.status != CLIENT_WENT_AWAY

    def close(self) -> None:
        """Give back what the request held."""
        self._budget.left += self._num_bytes
        self._num_bytes = 0

    async def receive(self) -> Message:
        """Return the next message. Raises ServerError, and keeps it, for a body that is too large
        or late.
        """
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise self._refuse(late_body(self._limits.body_timeout)) from None
        self._is_whole = not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    def _count(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._budget.left -= num_bytes
        if self._num_bytes > self._limits.max_body_bytes:
            raise self._refuse(too_large(self._limits.max_body_bytes))
        if self._budget.left < 0:
            raise self._refuse(too_much(self._limits.max_bytes_in_flight))

    def _refuse(self, refusal: ServerError) -> ServerError:
        self.refusal = refusal
        self.close()
        return refusal

    async def send(self, message: Message) -> None:
        """Pass on the application's response, unless the body was refused: then the refusal
        replaces it.
        """
        if self.refusal is None:
            await self.send_marked(message)

    async def send_marked(self, message: Message) -> None:
        """Pass on a response, and note its status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", []),
                (b"x-request-id", self._request_id.encode()),
            ]
        await self._send(message)


def too_large(limit: int) -> ServerError:
    """Return the refusal of a body above the limit."""
    return ServerError(
        413, f"the request's body is larger than {limit} bytes", code="request_too_large"
    )


def too_much(limit: int) -> ServerError:
    """Return the refusal of a body that does not fit beside the others."""
    return ServerError(
        429,
        f"the requests under way hold {limit} bytes already; try again later",
        None,
        "overloaded",
    )


def late_body(seconds: float) -> ServerError:
    """Return the refusal of a body that has not arrived in time."""
    return ServerError(
        408, f"the request's body took longer than {seconds:g} s to arrive", code="timeout"
    )
