"""Middleware for every request: its host, its id, its size, its key, its log line."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from dise_app.server.bodies import Budget, Exchange, too_large
from dise_app.server.errors import ServerError, answer
from dise_app.server.hosts import Hosts
from dise_app.server.limits import Limits
from dise_app.server.metrics import Metrics
from dise_app.server.service import loading
from dise_core.records import Record

log = logging.getLogger("dise.server")

OPEN_PATHS = {"/", "/health"}
"""Paths that need no key; the page's own files need none either."""

READY_PATHS = {"/metrics", "/version"}
"""Paths that are answered while the model is being loaded, beside the open ones."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Headers = Mapping[bytes, bytes]


class Guard:
    """ASGI middleware. Bodies are counted as they arrive, so a wrong or missing Content-Length does
    not get around the limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        api_keys: Collection[str],
        limits: Limits,
        hosts: Hosts | None,
        is_loaded: Callable[[], bool],
    ) -> None:
        """hosts: None where the server's address is not known, and any Host is taken. api_keys: of
        which a request must send one; none are needed if there are none. is_loaded: whether there
        is a model to answer.
        """
        self._app = app
        self._metrics = metrics
        self._api_keys = [_digest(key.encode("utf-8", "surrogateescape")) for key in api_keys]
        self._is_loaded = is_loaded
        self._limits = limits
        self._budget = Budget(limits.max_bytes_in_flight)
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        started = time.perf_counter()
        exchange = Exchange(receive, send, request_id, self._limits, self._budget)
        try:
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self._app(scope, exchange.receive, exchange.send)
            if (refusal := refusal or exchange.refusal) and not exchange.is_answered:
                await answer(refusal)(scope, receive, exchange.send_marked)
        finally:
            exchange.close()
            self._note(scope, request_id, exchange.status, time.perf_counter() - started)

    def _refusal(self, scope: Scope, headers: Headers) -> ServerError | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and host and not self._hosts.allows(host):
            return ServerError(
                403,
                f"this server does not answer to the host {host!r:.80}; allow it with "
                "--allowed-host NAME",
                code="host_not_allowed",
            )
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return ServerError(
                400, "Content-Length and Transfer-Encoding exclude each other", code="bad_framing"
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limits.max_body_bytes:
            return too_large(self._limits.max_body_bytes)
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith("/page/"):
            return None
        refusal = self._refused_key(headers) if self._api_keys else None
        is_ready = path in READY_PATHS or self._is_loaded()
        return refusal or (None if is_ready else loading())

    def _refused_key(self, headers: Headers) -> ServerError | None:
        """Compare with every key, by digests, so that the time tells neither a key's letters, nor
        its length, nor which of them it is.
        """
        given = headers.get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        key = key if scheme.lower() == b"bearer" else given
        if sum(hmac.compare_digest(_digest(key), each) for each in self._api_keys):
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


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
