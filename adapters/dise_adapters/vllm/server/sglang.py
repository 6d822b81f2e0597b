"""A block-causal model on an SGLang server with dise_sglang."""

import uuid
from collections.abc import Iterator

from dise_adapters.vllm.own_tokens import OwnLogProbs, OwnTokensReader
from dise_adapters.vllm.server.http import Connection
from dise_adapters.vllm.server.remote import TOKENS_PER_REQUEST, batches
from dise_adapters.vllm.server.schemas import ReadPrompts
from dise_core import InputError, ModelError, ModelOutputError, Read
from dise_core.records import Record
from dise_core.scoring.memory import asks_own_tokens

BYTES_PER_TOKEN = 32


class SglangReader(OwnTokensReader):
    """Answers Reads of a finished text, which SGLang reads as a prompt: a forward a block, and
    one more block that it writes behind it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def check(self, read: Read) -> None:
        if not asks_own_tokens(read):
            raise InputError(
                "An SGLang server tells of a finished text's own tokens alone: score with "
                "'dise', and have answers written by SGLang itself, whose meta_info has their "
                "scores.",
                "scorer",
            )

    def ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        for batch in batches(texts, len, TOKENS_PER_REQUEST):
            params: Record = {"max_new_tokens": 1, "custom_params": {"dise": "prompt"}}
            # By a key of its own no prompt is known from before, and every block is read.
            body = {"input_ids": batch, "sampling_params": params, "extra_key": uuid.uuid4().hex}
            size = BYTES_PER_TOKEN * sum(map(len, batch))
            answers = self._connection.ask("/generate", ReadPrompts, body, size).root
            reports = [answer.meta_info.dise for answer in answers]
            if None in reports:
                raise ModelError(
                    f"{self._connection.address} runs SGLang without our plugin: install dise "
                    "where it runs, and look at its log for why it was not loaded."
                )
            values = [one.prompt for one in reports if one is not None]
            if [*map(len, values)] != [*map(len, batch)]:
                raise ModelOutputError(
                    f"{self._connection.address} told of texts of {[*map(len, values)]!s:.80} "
                    f"tokens, not of {[*map(len, batch)]!s:.80}."
                )
            yield from values
