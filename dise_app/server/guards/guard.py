"""Middleware for every request: its host, its id, its size, its key, its log line."""

import hashlib
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import nullcontext

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dise_app.server.errors import ServerError, answer
from dise_app.server.guards.bodies import Bodies
from dise_app.server.guards.hosts import Hosts
from dise_app.server.schemas.bodies import ID_PATTERN
from dise_app.server.service import Service
from dise_core.engine.caller import CALLER_SALT

log = logging.getLogger("dise.server")

OPEN_PATHS = {"/", "/health", "/load", "/ping"}
"""Paths that need no key; the page's own files need none either."""

READY_PATHS = {"/metrics", "/version"}
"""Paths that are answered while the model is being loaded, beside the open ones."""

REQUEST_ID = re.compile(ID_PATTERN)

Headers = Mapping[bytes, bytes]


class Guard:
    """ASGI middleware."""

    def __init__(
        self, app: ASGIApp, service: Service, api_keys: Collection[str], hosts: Hosts | None
    ) -> None:
        """api_keys: clients must send one of them. hosts: None takes any Host."""
        self._app, self._service, self._hosts = app, service, hosts
        self._api_keys = [_digest(key.encode("utf-8", "surrogateescape")) for key in api_keys]
        self._bodies = Bodies(service.limits)
        self._salts_by_key = service.limits.cache_salt_by_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"").decode("latin-1")
        if REQUEST_ID.fullmatch(sent_id):
            scope["dise.id"] = sent_id
        drawn_id = uuid.uuid4().hex  # unless a body names its request
        started, status = time.perf_counter(), 499  # unless a response begins

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                mark = (b"x-request-id", scope.get("dise.id", drawn_id).encode())
                message["headers"] = [*message.get("headers", []), mark]
            await send(message)

        try:
            self._check(scope, headers)
            if self._salts_by_key:
                # Salts of one length: no two of them run together.
                CALLER_SALT.set(_key_digest(headers).hex())
            # A request without a key must not use up the bytes of those with one.
            is_unread = _is_open(_path(scope)) or scope["method"] in {"GET", "HEAD"}
            body = nullcontext(receive) if is_unread else self._bodies.whole(receive)
            async with body as received:
                await self._app(scope, received, send_marked)
        except ServerError as refusal:
            await answer(refusal)(scope, receive, send_marked)
        finally:
            request_id = scope.get("dise.id", drawn_id)
            self._note(scope, request_id, status, time.perf_counter() - started)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise ServerError for a request that is refused before its body is read."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and host and not self._hosts.allows(host):
            raise ServerError(
                403,
                f"this server does not answer to the host {host!r:.80}; "
                "allow it with --allowed-host NAME",
                code="host_not_allowed",
            )
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise ServerError(
                400, "Content-Length and Transfer-Encoding exclude each other", code="bad_framing"
            )
        path = _path(scope)
        if _is_open(path):
            return
        if self._api_keys:
            scope["dise.key"] = digest = _key_digest(headers)
            if not self._is_valid(digest):
                raise ServerError(
                    401,
                    "a valid key is needed: send the header 'Authorization: Bearer KEY'",
                    code="invalid_api_key",
                )
        if path not in READY_PATHS:
            _ = self._service.llm  # raises while it is being loaded

    def _is_valid(self, digest: bytes) -> bool:
        """Compare a digest with every valid one, so that the time reveals none."""
        return sum(hmac.compare_digest(digest, key) for key in self._api_keys) > 0

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        path: str = getattr(scope.get("route"), "path", "other")
        metrics = self._service.metrics
        metrics.requests.labels(path, str(status)).inc()
        metrics.latency.labels(path).observe(seconds)
        # A route's template counts for all its paths; the log tells which one was asked for.
        record = {"id": request_id, "method": scope["method"], "path": scope["path"]}
        facts = {**record, "status": status}
        log.info(json.dumps({**facts, "seconds": round(seconds, 4)}))


def _path(scope: Scope) -> str:
    """Return the path below where the server is mounted, by which routes are found."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/page/")


def _key_digest(headers: Headers) -> bytes:
    """Return the digest of the request's key, which may be empty."""
    authorization = headers.get(b"authorization", b"")
    scheme, _, key = authorization.partition(b" ")
    return _digest(key if scheme.lower() == b"bearer" else authorization)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
