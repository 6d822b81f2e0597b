"""Readers that ask a vLLM server."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from dise_adapters.vllm.http import Connection
from dise_adapters.vllm.own_tokens import OwnLogProbs, read_own_tokens
from dise_adapters.vllm.schemas import Completions, Rows
from dise_adapters.vllm.wire import Question, Vector, checksum, read_texts
from dise_core.backend import Reader
from dise_core.errors import ModelOutputError
from dise_core.reading import Read, Reading

TEXTS_PER_REQUEST = 256
NUMBERS_PER_REQUEST = 2**24
"""In the answer to several texts; one text may have more."""
TOKENS_PER_REQUEST = 2**16
BYTES_PER_NUMBER = 6
"""A float32 in base64, and what stands around it."""
BYTES_PER_TOKEN = 2**10
"""An entry of prompt_logprobs: numbers and the token's text."""

T = TypeVar("T")


class ServerReader(Reader):
    """Answers Reads through POST /v1/dise/read."""

    def __init__(self, connection: Connection, model: str, vocab_size: int) -> None:
        self._connection = connection
        self._model = model
        self._vocab_size = vocab_size

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return read_texts(reads, self._vocab_size, self._ask)

    def _ask(self, questions: list[Question]) -> list[Vector]:
        vectors: list[Vector] = []
        for some in _portions(questions, lambda each: each.num_numbers, NUMBERS_PER_REQUEST):
            rows = [{"token_ids": each.token_ids, "reads": each.asked} for each in some]
            size = BYTES_PER_NUMBER * sum(each.num_numbers for each in some)
            body = {"model": self._model, "rows": rows}
            answer = self._connection.post("/v1/dise/read", body, Rows, size)
            vectors += _vectors(answer, [each.token_ids for each in some])
        return vectors


def _vectors(answer: Rows, texts: list[list[int]]) -> list[Vector]:
    """Return the vector of each text. Raises ModelOutputError unless there is one for each, of that
    text.
    """
    if len(answer.rows) != len(texts):
        raise ModelOutputError(f"the server answered {len(answer.rows)} of {len(texts)} texts")
    if answer.checksums not in (None, [checksum(token_ids) for token_ids in texts]):
        raise ModelOutputError("the server answered about other texts, or in another order")
    try:
        return [np.frombuffer(base64.b64decode(row, validate=True), "<f4") for row in answer.rows]
    except ValueError as error:
        raise ModelOutputError(f"the server's rows are not float32 in base64: {error}") from error


class ServerJudgeReader(Reader):
    """Answers Reads of an auto-regressive model through stock POST /v1/completions, with
    prompt_logprobs.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._model = model

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return read_own_tokens(reads, self._ask)

    def _ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        for some in _portions(texts, len, TOKENS_PER_REQUEST):
            body = {
                "model": self._model,
                "prompt": some,
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 0,
            }
            size = BYTES_PER_TOKEN * sum(map(len, some))
            answer = self._connection.post("/v1/completions", body, Completions, size)
            for token_ids, choice in zip(some, answer.in_order(len(some)), strict=True):
                yield choice.logprobs_of(token_ids)


def _portions(texts: list[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the texts in lists that fit one request."""
    portion: list[T] = []
    total = 0
    for text in texts:
        if portion and (len(portion) == TEXTS_PER_REQUEST or total + size(text) > most):
            yield portion
            portion, total = [], 0
        portion.append(text)
        total += size(text)
    if portion:
        yield portion
