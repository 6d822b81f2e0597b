"""A connection to a vLLM server, which is taken for a stranger: its answers are bounded in time and
size while they arrive, and checked against a schema before anything else sees them.

Redirects are not followed, to no host: name the server's own address. Nothing is decompressed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from dise_adapters.vllm.schemas import Models, Served
from dise_core.errors import InputError, ModelError, ModelOutputError, UnreachableError
from dise_core.records import Record

ATTEMPTS = 5
SECONDS = 600.0
"""Until an answer has arrived whole, with all attempts."""
CONNECT_SECONDS = 5.0
SPARE_BYTES = 2**18
"""How much larger than what was asked for an answer may be."""
MESSAGE_BYTES = 2**14
"""What is read of a refusal."""
KEY_VARIABLE = "VLLM_API_KEY"
GONE = (502, 503, 504)
"""The statuses that say nothing of the request: there is no server behind them, or not now."""

T = TypeVar("T", bound=BaseModel)


class StatusError(Exception):
    """Another status than 200, and what the server says of it."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.content = content


class Connection:
    """A connection to a server. Lost connections and 5xx are retried, refusals (4xx) never."""

    def __init__(self, address: str) -> None:
        """address: may hold a user and a password, which are sent and never shown.

        Raises InputError if it is no address.
        """
        self.address, auth = split_address(address)
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not key.isprintable():
            raise InputError(f"{KEY_VARIABLE} holds characters that cannot be printed")
        headers = {b"Accept-Encoding": b"identity"}
        if key:
            headers[b"Authorization"] = f"Bearer {key}".encode()
        timeout = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS)
        try:
            self._client = httpx.AsyncClient(
                base_url=self.address, timeout=timeout, headers=headers, auth=auth
            )
        except (httpx.InvalidURL, ValueError):
            raise _no_address() from None
        weakref.finalize(self, _close, self._client)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.2, max=10),
            reraise=True,
        )

    def model(self) -> Served:
        """Return the server's entry for the first model that it serves."""
        models = self._ask("GET", "/v1/models", None, Models, 0).data
        if not models:
            raise ModelError(f"{self.address} serves no model")
        return models[0]

    def post(self, path: str, body: Record, answer: type[T], num_bytes: int) -> T:
        """Return the answer to a request as its schema; num_bytes: about its size, if it is long.

        Raises InputError for a request that the server cannot take (400, 413, 422),
        UnreachableError where it gives no answer, ModelError for any other failure,
        ModelOutputError for an answer of another shape.
        """
        return self._ask("POST", path, body, answer, num_bytes)

    def _ask(
        self, method: str, path: str, body: Record | None, answer: type[T], num_bytes: int
    ) -> T:
        where = f"{self.address}{path}"
        future = asyncio.run_coroutine_threadsafe(
            self._within_time(method, path, body, num_bytes + SPARE_BYTES), _loop()
        )
        try:
            return _checked(answer, future.result(), where)
        except StatusError as error:
            raise _refused(where, error) from error
        except TimeoutError as error:
            raise UnreachableError(f"{where} took longer than {SECONDS:g} s to answer") from error
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{self.address} cannot be reached: {one_line(str(error)) or type(error).__name__}"
            ) from error
        finally:
            future.cancel()

    async def _within_time(
        self, method: str, path: str, body: Record | None, max_bytes: int
    ) -> bytes:
        async with asyncio.timeout(SECONDS):
            content: bytes = await self._retrying(self._once, method, path, body, max_bytes)
        return content

    async def _once(self, method: str, path: str, body: Record | None, max_bytes: int) -> bytes:
        async with self._client.stream(method, path, json=body) as response:
            if response.status_code != 200:
                raise StatusError(response.status_code, await _beginning(response, MESSAGE_BYTES))
            kind = response.headers.get("content-type", "application/json").partition(";")[0]
            if kind.strip().lower() != "application/json":
                raise ModelError(
                    f"{self.address}{path} did not answer with JSON but with {one_line(kind)!r}; "
                    "is it a vLLM server?"
                )
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ModelOutputError(
                    f"{self.address}{path} answered compressed, which was not asked for"
                )
            content = await _beginning(response, max_bytes + 1)
            if len(content) > max_bytes:
                raise ModelOutputError(
                    f"{self.address}{path} answered more than {max_bytes} bytes, which is more "
                    "than was asked for"
                )
            return content


def split_address(given: str) -> tuple[str, tuple[str, str] | None]:
    """Return an address without the user and the password in it, and those if there are any.

    Raises InputError, which does not show it, for anything but http://HOST:PORT or the like.
    """
    try:
        parts = urlsplit(given)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise _no_address() from None
    if not is_server or parts.query or parts.fragment:
        raise _no_address()
    place = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return address, None
    return address, (unquote(parts.username), unquote(parts.password or ""))


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: no connection, a connection lost, a time-out,
    or a 5xx.
    """
    if isinstance(error, StatusError):
        return error.status >= 500
    return isinstance(error, httpx.TransportError)


def one_line(text: str) -> str:
    """Return a stranger's text as it may be shown: one line, cut, printable."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:400])
    return " ".join(shown.split())[:200]


@lru_cache(1)
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which all connections live, so that one time-out holds for all that an
    answer takes: a read's time-out begins anew with each byte.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dise-http", daemon=True).start()
    return loop


def _close(client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _loop())


async def _beginning(response: httpx.Response, num_bytes: int) -> bytes:
    """Return the first bytes of an answer as they travel, and take no more."""
    received = bytearray()
    async for chunk in response.aiter_raw():
        received += chunk
        if len(received) >= num_bytes:
            break
    return bytes(received[:num_bytes])


def _checked(answer: type[T], content: bytes, where: str) -> T:
    try:
        return answer.model_validate_json(content)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
        if problem["type"] == "json_invalid":
            raise ModelError(
                f"{where} did not answer with JSON ({problem['ctx']['error']}); is it a vLLM "
                "server?"
            ) from error
        place = one_line(".".join(map(str, problem["loc"]))) or "the answer"
        raise ModelOutputError(
            f"{where} gave an answer of another shape; is it a vLLM server? {place}: "
            f"{problem['msg']} (given: {problem['input']!r:.80})"
        ) from error


def _refused(where: str, error: StatusError) -> InputError | ModelError:
    try:
        message = str(_Refusal.model_validate_json(error.content).error.message)
    except ValidationError:
        message = error.content.decode("utf-8", "replace")
    text = f"{where} answered {error.status}: {one_line(message) or 'nothing more'}"
    if error.status in (400, 413, 422):
        return InputError(text)
    if 300 <= error.status < 400:
        text += "; redirects are not followed: name the server's own address"
    elif error.status == 404 and "/v1/dise" in where:
        text += "; start the server with VLLM_PLUGINS=dise,dise_http"
    return UnreachableError(text) if error.status in GONE else ModelError(text)


class _Message(BaseModel):
    message: str


class _Refusal(BaseModel):
    error: _Message


def _no_address() -> InputError:
    return InputError("the model's address is not that of a server; name http://HOST:PORT", "model")
