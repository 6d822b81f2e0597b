"""Connections that are given up once their client is late: with a request's head or body,
or in taking its answer. uvicorn itself only ends those that are idle after an answer, and
its limit_concurrency refuses requests, not connections that send none.
"""

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dise_app.server.limits import Limits

LATE_AFTER_ALL = 1.0
"""Seconds for requests to arrive and answers to be taken during a shutdown."""


class BoundedConnection(H11Protocol):
    """One connection, which a server checks every now and then."""

    limits: ClassVar[Limits]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait: tuple[str, object] | None = None
        self._since = 0.0
        if len(self.connections) > self.limits.max_connections:
            transport.write(_refusal("503 Service Unavailable", "too many connections"))
            transport.close()

    def check(self, now: float, is_shutdown: bool) -> None:
        wait = self._waits_for()
        if wait != self._wait:
            self._wait, self._since = wait, now
        if wait is None or now - self._since <= self._patience(wait[0], is_shutdown):
            return
        if wait[0] == "reading":
            self.transport.abort()
            return
        if wait[0] == "head" and self.conn.trailing_data[0]:
            self.transport.write(_refusal("408 Request Timeout", "the request took too long"))
        self.transport.close()

    def _waits_for(self) -> tuple[str, object] | None:
        """Return what the client owes, and what has come so far: once that changes, the
        wait is a new one. None while it waits for us, or idles after an answer, which
        uvicorn bounds.
        """
        if (unsent := self.transport.get_write_buffer_size()) or self.transport.is_closing():
            return "reading", unsent
        state = self.conn.their_state
        if state is h11.IDLE and self.timeout_keep_alive_task is None:
            return "head", self.cycle
        return ("body", self.cycle) if state is h11.SEND_BODY else None

    def _patience(self, debt: str, is_shutdown: bool) -> float:
        if is_shutdown:
            return LATE_AFTER_ALL
        limits = self.limits
        # Bodies answers a late body at its time; this is for what comes after an early
        # answer.
        late_body = limits.body_timeout + LATE_AFTER_ALL
        return {"head": limits.header_timeout, "body": late_body}.get(debt, limits.idle_timeout)


def protocol_of(limits: Limits) -> type[BoundedConnection]:
    """Return the class of a server's connections."""
    return type("Connection", (BoundedConnection,), {"limits": limits})


def _refusal(status: str, message: str) -> bytes:
    body = f'{{"error": {{"message": "{message}", "type": "server_error"}}}}'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{body}".encode()
