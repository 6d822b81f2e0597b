"""Readers that ask a vLLM server."""

import base64
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from dise_adapters.vllm.own_tokens import OwnLogProbs, OwnTokensReader
from dise_adapters.vllm.server.http import Connection
from dise_adapters.vllm.server.schemas import Completions, RowVectors
from dise_adapters.vllm.wire import MAX_NUMBERS, READS, TextQuestion, Vector, VectorReader, checksum
from dise_core import ModelOutputError
from dise_core.records import Record

TEXTS_PER_REQUEST = 256
TOKENS_PER_REQUEST = 2**16
BYTES_PER_NUMBER = 6
"""A float32 in base64, and what stands around it."""
BYTES_PER_TOKEN = 2**10
"""An entry of prompt_logprobs: numbers and the token's text."""

T = TypeVar("T")


class ServerReader(VectorReader):
    """Answers Reads through POST /v1/dise/read."""

    def __init__(self, connection: Connection, model: str, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self._connection, self._model = connection, model

    def ask(self, questions: list[TextQuestion]) -> list[Vector]:
        vectors: list[Vector] = []
        for batch in batches(questions, lambda text: text.num_numbers, MAX_NUMBERS):
            rows = [
                {"token_ids": text.token_ids, "reads": READS.dump_python(text.reads)}
                for text in batch
            ]
            size = BYTES_PER_NUMBER * sum(text.num_numbers for text in batch)
            body = {"model": self._model, "rows": rows}
            answer = self._connection.ask("/v1/dise/read", RowVectors, body, size)
            vectors += _vectors(answer, [text.token_ids for text in batch])
        return vectors


def _vectors(answer: RowVectors, texts: list[list[int]]) -> list[Vector]:
    if len(answer.rows) != len(texts):
        raise ModelOutputError(f"the server answered {len(answer.rows)} of {len(texts)} texts")
    if answer.checksums not in (None, [checksum(token_ids) for token_ids in texts]):
        raise ModelOutputError("the server answered about other texts, or in another order")
    try:
        return [np.frombuffer(base64.b64decode(row, validate=True), "<f4") for row in answer.rows]
    except ValueError as error:
        raise ModelOutputError(f"the server's rows are not float32 in base64: {error}") from error


class ServerJudgeReader(OwnTokensReader):
    """Answers Reads of a judge through a stock server's prompt_logprobs."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model

    def ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        for batch in batches(texts, len, TOKENS_PER_REQUEST):
            body: Record = {"model": self._model, "prompt": batch}
            body |= {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
            size = BYTES_PER_TOKEN * sum(map(len, batch))
            answer = self._connection.ask("/v1/completions", Completions, body, size)
            for token_ids, choice in zip(batch, answer.in_order(len(batch)), strict=True):
                yield [math.nan, *choice.logprobs_of(token_ids)]


def batches(texts: list[T], size: Callable[[T], int], max_size: int) -> Iterator[list[T]]:
    """Yield the texts in lists that fit one request."""
    start = total = 0
    for number, text in enumerate(texts):
        total += size(text)
        if number > start and (number - start == TEXTS_PER_REQUEST or total > max_size):
            yield texts[start:number]
            start, total = number, size(text)
    if start < len(texts):
        yield texts[start:]
