"""A connection to a vLLM server, which is taken for a stranger: its answers are bounded
in time and size while they arrive, and checked against a schema before anything else sees
them.

Redirects are not followed, to no host: name the server's own address. Nothing is
decompressed. No proxy of the environment is asked, which would read every text and the
key.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from dise_adapters.checkpoint.files import one_line
from dise_adapters.vllm.server.schemas import Models, Served
from dise_core import InputError, ModelError, ModelOutputError, UnreachableError
from dise_core.records import Record

ATTEMPTS = 5
SECONDS = 600.0
"""Until an answer has arrived whole, with all attempts."""
AT_ONCE = 8
"""Requests that a server has from us at one time; of a model that writes canvases vLLM runs
no more by default.
"""
CONNECT_SECONDS = 5.0
SPARE_BYTES = 2**18
"""How much larger than what was asked for an answer may be."""
MESSAGE_BYTES = 2**14
"""What is read of a refusal."""
KEY_VARIABLE = "VLLM_API_KEY"
GONE = (502, 503, 504)
"""The statuses that say nothing of the request: no server is behind them now."""

T = TypeVar("T", bound=BaseModel)


class Connection:
    """A connection to a server. A lost one and 5xx are retried, refusals (4xx) never."""

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
        self._client = httpx.AsyncClient(
            base_url=self.address,
            timeout=timeout,
            headers=headers,
            auth=auth,
            verify=httpx.create_ssl_context(),  # by the environment's certificates, as before
            trust_env=False,
        )
        weakref.finalize(self, _close, self._client)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(httpx.TransportError)
            | retry_if_result(lambda response: response.is_server_error),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.2, max=10),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )

    def model(self) -> Served:
        return self.ask("/v1/models", Models).first

    def ask(self, path: str, schema: type[T], body: Record | None = None, num_bytes: int = 0) -> T:
        """Return the answer to a POST, or without a body to a GET; num_bytes: about its
        size, if it is long.

        Raises InputError for a request that the server cannot take (400, 413, 422),
        UnreachableError where it gives no answer, ModelError for any other failure,
        ModelOutputError for an answer of another shape.
        """
        [answer] = self.ask_all(path, schema, [(body, num_bytes)])
        return answer

    def ask_all(
        self, path: str, schema: type[T], requests: Sequence[tuple[Record | None, int]]
    ) -> list[T]:
        """Return the answers to several requests, of which AT_ONCE run together: bodies
        with the sizes of their answers. Raises as `ask`, for the first that fails.
        """
        future = asyncio.run_coroutine_threadsafe(self._responses(path, requests), _loop())
        try:
            responses = future.result()
        except TimeoutError as error:
            raise UnreachableError(
                f"{self.address}{path} took longer than {SECONDS:g} s to answer"
            ) from error
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{self.address} cannot be reached: {one_line(error)}"
            ) from error
        finally:
            future.cancel()
        url = self.address + path
        for response in responses:
            if response.status_code != 200:
                raise _refusal(url, response)
        return [_checked(schema, response.content, url) for response in responses]

    async def _responses(
        self, path: str, requests: Sequence[tuple[Record | None, int]]
    ) -> list[httpx.Response]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(body: Record | None, num_bytes: int) -> httpx.Response:
            async with room:
                max_bytes = num_bytes + SPARE_BYTES
                answer: Awaitable[httpx.Response]
                answer = self._retrying(self._once, path, body, max_bytes)
                return await asyncio.wait_for(answer, SECONDS)

        tasks = [asyncio.ensure_future(one(*request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _once(self, path: str, body: Record | None, max_bytes: int) -> httpx.Response:
        """Return the answer, not decompressed, or the beginning of a refusal."""
        content = bytearray()
        method = "GET" if body is None else "POST"
        async with self._client.stream(method, path, json=body) as response:
            max_bytes = max_bytes if response.status_code == 200 else MESSAGE_BYTES
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > max_bytes:
                    break
        if response.status_code == 200 and len(content) > max_bytes:
            raise ModelOutputError(
                f"{self.address}{path} answered more than {max_bytes} bytes, which is more than "
                "was asked for"
            )
        return httpx.Response(response.status_code, content=bytes(content[:max_bytes]))


def split_address(address: str) -> tuple[str, tuple[str, str] | None]:
    """Return an address without its user and password, and those if there are any. Raises
    InputError, which does not show it, for anything but http://HOST:PORT or the like.
    """
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL("")
    is_server = url.scheme in ("http", "https") and url.host and 0 < (url.port or 80) < 2**16
    if not is_server or url.query or url.fragment:
        raise InputError(
            "the model's address is not that of a server; name http://HOST:PORT", "model"
        )
    public = str(url.copy_with(userinfo=b"")).rstrip("/")
    return public, (url.username, url.password) if url.userinfo else None


@lru_cache(1)
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which all connections live, so that one time-out holds for all
    that an answer takes: a read's time-out begins anew with each byte, those of the head
    too.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dise-http", daemon=True).start()
    return loop


def _close(client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _loop())


def _checked(schema: type[T], content: bytes, url: str) -> T:
    try:
        return schema.model_validate_json(content)
    except ValidationError as error:
        problem: Any = error.errors(include_url=False)[0]
        if problem["type"] == "json_invalid":
            raise ModelError(
                f"{url} did not answer with JSON ({problem['ctx']['error']}); is it a vLLM server?"
            ) from error
        place = one_line(".".join(map(str, problem["loc"])) or "the answer")
        raise ModelOutputError(
            f"{url} gave an answer of another shape; is it a vLLM server? {place:.200}: "
            f"{problem['msg']} (given: {problem['input']!r:.80})"
        ) from error


def _refusal(url: str, response: httpx.Response) -> InputError | ModelError:
    status = response.status_code
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, TypeError, LookupError, RecursionError):
        message = response.text
    text = f"{url} answered {status}: {one_line(message or 'nothing more'):.200}"
    if status in (400, 413, 422):
        return InputError(text)
    if response.is_redirect:
        text += "; redirects are not followed: name the server's own address"
    elif status == 404 and "/v1/dise" in url:
        text += "; start the server with VLLM_PLUGINS=dise,dise_http"
    return UnreachableError(text) if status in GONE else ModelError(text)
