"""One request's body, read whole before the application begins: counted and timed as it arrives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import Message, Receive

from dise_app.server.errors import ServerError
from dise_app.server.limits import Limits


@dataclass(slots=True)
class Budget:
    """Bytes that requests may still hold, all together."""

    left: int


class Body:
    """The bytes of one request, taken from the budget until it is closed."""

    def __init__(self, limits: Limits, budget: Budget) -> None:
        self._limits, self._budget = limits, budget
        self._num_bytes = 0

    def close(self) -> None:
        """Give back what the request held."""
        self._budget.left += self._num_bytes

    async def whole(self, receive: Receive) -> Receive:
        """Return what the application receives: the whole body, then what comes after it. Raises
        ServerError for a body that is too large, late, torn, or too much beside the others.
        """
        body, is_whole, seconds = bytearray(), False, self._limits.body_timeout
        try:
            async with asyncio.timeout(seconds):
                while not is_whole:
                    message = await receive()
                    body += self._counted(message)
                    is_whole = not message.get("more_body", False)
        except TimeoutError:
            late = f"the request's body took longer than {seconds:g} s to arrive"
            raise ServerError(408, late, code="timeout") from None
        messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return messages.pop() if messages else await receive()

        return replayed

    def _counted(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise ServerError(499, "the client went away")
        piece: bytes = message.get("body", b"")
        self._num_bytes += len(piece)
        self._budget.left -= len(piece)
        limits = self._limits
        if self._num_bytes > limits.max_body_bytes:
            large = f"the request's body is larger than {limits.max_body_bytes} bytes"
            raise ServerError(413, large, code="request_too_large")
        if self._budget.left < 0:
            full = f"the requests under way hold {limits.max_bytes_in_flight} bytes already"
            raise ServerError(429, f"{full}; try again later", code="overloaded")
        return piece
