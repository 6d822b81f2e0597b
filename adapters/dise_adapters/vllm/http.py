"""The HTTP client of a vLLM server: a connection that retries, and readers that use it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

import httpx
import numpy as np
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from dise_adapters.vllm.own_tokens import OwnLogProbs, read_own_tokens
from dise_adapters.vllm.wire import Question, Vector, read_texts
from dise_core.backend import Reader
from dise_core.errors import InputError, ModelError
from dise_core.reading import Read, Reading
from dise_core.records import Record

ATTEMPTS = 5
TIMEOUT = httpx.Timeout(600.0, connect=10.0)
TEXTS_PER_REQUEST = 256
KEY_VARIABLE = "VLLM_API_KEY"

T = TypeVar("T")


class Connection:
    """A connection to a server. Lost connections and 5xx are retried, refusals (4xx) never."""

    def __init__(self, address: str) -> None:
        self.address = address
        key = os.environ.get(KEY_VARIABLE)
        headers = {} if not key else {"Authorization": f"Bearer {key}"}
        self._client = httpx.Client(base_url=address, timeout=TIMEOUT, headers=headers)
        self._retrying = Retrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.2, max=10),
            reraise=True,
        )

    def model(self) -> Record:
        """Return the server's entry for the first model that it serves."""
        models = self._ask("GET", "/v1/models").get("data")
        if not models:
            raise ModelError(f"{self.address} serves no model")
        return dict(models[0])

    def post(self, path: str, body: Record) -> Record:
        """Return the answer to a request. Raises InputError for a refusal (4xx), ModelError for any
        other failure and for a server without our endpoint.
        """
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Record | None = None) -> Record:
        try:
            answer: Record = self._retrying(self._once, method, path, body)
        except httpx.HTTPStatusError as error:
            raise self._refused(path, error.response) from error
        except httpx.HTTPError as error:
            raise ModelError(
                f"{self.address} cannot be reached: {str(error) or type(error).__name__}"
            ) from error
        except ValueError as error:
            raise ModelError(
                f"{self.address}{path} did not answer with JSON; is it a vLLM server?"
            ) from error
        return answer

    def _once(self, method: str, path: str, body: Record | None) -> Record:
        response = self._client.request(method, path, json=body)
        response.raise_for_status()
        answer: Record = response.json()
        return answer

    def _refused(self, path: str, response: httpx.Response) -> InputError | ModelError:
        try:
            message = response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = response.text[:200] or response.reason_phrase
        text = f"{self.address}{path} answered {response.status_code}: {message}"
        if response.status_code == 404 and path.startswith("/v1/dise"):
            return ModelError(f"{text}; start the server with VLLM_PLUGINS=dise,dise_http")
        return InputError(text) if response.status_code < 500 else ModelError(text)


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: no connection, a lost one, a timeout, or a 5xx."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


class ServerReader(Reader):
    """Answers Reads through POST /v1/dise/read."""

    def __init__(self, connection: Connection, model: str, vocab_size: int) -> None:
        self._connection = connection
        self._model = model
        self._vocab_size = vocab_size

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Return the answers in the order of the reads."""
        return read_texts(reads, self._vocab_size, self._ask)

    def _ask(self, questions: list[Question]) -> list[Vector]:
        packed: list[str] = []
        for some in _portions(questions):
            rows = [{"token_ids": token_ids, "reads": asked} for token_ids, asked in some]
            packed += self._connection.post("/v1/dise/read", {"model": self._model, "rows": rows})[
                "rows"
            ]
        return [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in packed]


class ServerJudgeReader(Reader):
    """Answers Reads of an auto-regressive model through stock POST /v1/completions, with
    prompt_logprobs.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._model = model

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Return the answers in the order of the reads. Raises InputError for anything but a text's
        own tokens.
        """
        return read_own_tokens(reads, self._ask)

    def _ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        for some in _portions(texts):
            body = {
                "model": self._model,
                "prompt": some,
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 0,
            }
            choices = sorted(
                self._connection.post("/v1/completions", body)["choices"],
                key=lambda choice: choice["index"],
            )
            for token_ids, choice in zip(some, choices, strict=True):
                rest = zip(token_ids[1:], choice["prompt_logprobs"][1:], strict=True)
                yield [entries[str(token_id)]["logprob"] for token_id, entries in rest]


def _portions(texts: list[T]) -> Iterator[list[T]]:
    """Yield the texts in lists that fit one request."""
    for start in range(0, len(texts), TEXTS_PER_REQUEST):
        yield texts[start : start + TEXTS_PER_REQUEST]
