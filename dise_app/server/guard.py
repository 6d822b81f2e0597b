"""Middleware for every request: its id, its size, its key, its log line."""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import MutableMapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dise_app.server.errors import ServerError, answer
from dise_app.server.metrics import Metrics
from dise_core.records import Record

log = logging.getLogger("dise.server")

OPEN_PATHS = {"/", "/health"}
"""Paths that need no key; the page's own files need none either."""

CLIENT_WENT_AWAY = 499
"""The status in the log and the metrics of a request that got no response."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Guard:
    """ASGI middleware. Bodies are counted as they arrive, so a wrong or missing Content-Length does
    not get around the limit.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, api_key: str | None, max_body_bytes: int
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._api_key = api_key
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        started = time.perf_counter()
        exchange = _Exchange(receive, send, request_id, self._max_body_bytes)
        try:
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self._app(scope, exchange.receive, exchange.send)
            if exchange.is_too_large:
                refusal = _too_large(self._max_body_bytes)
            if refusal is not None:
                await answer(refusal)(scope, receive, exchange.send_refusal)
        finally:
            self._note(scope, request_id, exchange.status, time.perf_counter() - started)

    def _refusal(self, scope: Scope, headers: MutableMapping[str, str]) -> ServerError | None:
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return _too_large(self._max_body_bytes)
        if (
            self._api_key is None
            or scope["path"] in OPEN_PATHS
            or scope["path"].startswith("/page/")
        ):
            return None
        key = headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(key.encode(), self._api_key.encode()):
            return None
        return ServerError(
            401,
            "a valid key is needed: send the header 'Authorization: Bearer KEY'",
            code="invalid_api_key",
        )

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = scope.get("route")
        path: str = getattr(route, "path", "other")
        self._metrics.requests.labels(path, str(status)).inc()
        self._metrics.latency.labels(path).observe(seconds)
        record: Record = {
            "id": request_id,
            "method": scope["method"],
            "path": path,
            "status": status,
            "seconds": round(seconds, 4),
        }
        log.info(json.dumps(record))


class _Exchange:
    """One request: its body, counted as it arrives, and its response, marked with its id."""

    def __init__(self, receive: Receive, send: Send, request_id: str, max_body_bytes: int) -> None:
        self.is_too_large = False
        self.status = CLIENT_WENT_AWAY
        self._receive, self._send = receive, send
        self._request_id = request_id
        self._bytes_left = max_body_bytes

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes_left -= len(message.get("body", b""))
        if self._bytes_left < 0:
            self.is_too_large = True
            raise _too_large(0)
        return message

    async def send(self, message: Message) -> None:
        """Pass on the application's response, unless the body was too large: then the refusal
        replaces it.
        """
        if not self.is_too_large:
            await self.send_refusal(message)

    async def send_refusal(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", []),
                (b"x-request-id", self._request_id.encode()),
            ]
        await self._send(message)


def _too_large(limit: int) -> ServerError:
    return ServerError(
        413, f"the request's body is larger than {limit} bytes", code="request_too_large"
    )
