"""Bodies of requests: read whole before the application begins, counted, timed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Message, Receive

from dise_app.server.errors import ServerError
from dise_app.server.limits import Limits


class Bodies:
    """Reads bodies, whose bytes count as held until their requests are answered."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._num_left = limits, limits.max_bytes_in_flight

    @asynccontextmanager
    async def whole(self, receive: Receive) -> AsyncIterator[Receive]:
        """Yield the application's `receive`. Raises ServerError for late or large bodies."""
        body, num_bytes, is_whole = bytearray(), 0, False
        seconds = self._limits.body_timeout
        try:
            try:
                async with asyncio.timeout(seconds):
                    while not is_whole:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            raise ServerError(499, "the client went away")
                        piece: bytes = message.get("body", b"")
                        num_bytes += len(piece)
                        self._num_left -= len(piece)
                        self._check(num_bytes)
                        body += piece
                        is_whole = not message.get("more_body", False)
            except TimeoutError:
                raise ServerError(
                    408,
                    f"the request's body took longer than {seconds:g} s to arrive",
                    code="timeout",
                ) from None
            messages: list[Message] = [{"type": "http.request", "body": bytes(body)}]
            body.clear()

            async def replayed() -> Message:
                return messages.pop() if messages else await receive()

            yield replayed
        finally:
            self._num_left += num_bytes

    def _check(self, num_bytes: int) -> None:
        limits = self._limits
        if num_bytes > limits.max_body_bytes:
            raise ServerError(
                413,
                f"the request's body is larger than {limits.max_body_bytes} bytes",
                code="request_too_large",
            )
        if self._num_left < 0:
            raise ServerError(
                429,
                f"the requests under way hold {limits.max_bytes_in_flight} bytes already; "
                "try again later",
                code="overloaded",
            )
