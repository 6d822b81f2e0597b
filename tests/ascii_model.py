"""A toy model whose tokens are the characters of ASCII, so that it can be asked anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.info import ModelInfo
from dise_core.models.tokenizer import Tokenizer
from dise_core.records import Fields
from dise_core.sequence import SpecialTokens
from dise_core.testing import ToyPredictor

END, MASK, VOCAB_SIZE = 128, 129, 130


class AsciiTokenizer(Tokenizer):
    """One token per character; a turn of a conversation is written <role>content."""

    has_chat_template = False

    def __init__(self, has_chat_template: bool = False) -> None:
        self.has_chat_template = has_chat_template

    def encode(self, text: str) -> Ids:
        if not text.isascii():
            raise InputError(f"the model's vocabulary has not all of {text!r}")
        return np.array([ord(letter) for letter in text], dtype=np.int64)

    def chat_text(
        self,
        messages: Sequence[Fields],
        add_generation_prompt: bool = True,
        tools: Sequence[Fields] = (),
    ) -> str:
        turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in messages)
        return turns + "<assistant>" * add_generation_prompt

    @property
    def start_ids(self) -> Ids:
        return np.zeros(0, dtype=np.int64)

    def decode(self, ids: Ids) -> str:
        return "".join(chr(i) for i in ids if i < END)

    def token_text(self, token_id: int) -> str:
        return {END: "<end>", MASK: "<mask>"}.get(token_id) or chr(token_id)

    def token_bytes(self, token_id: int) -> bytes | None:
        return bytes([token_id]) if 0 <= token_id < END else None


class AsciiPredictor(ToyPredictor):
    """A ToyPredictor of that vocabulary."""

    def __init__(self, max_length: int = 1000, has_chat_template: bool = False) -> None:
        super().__init__(max_length)
        generator = np.random.default_rng(1)
        special = SpecialTokens(MASK, frozenset({END}), END)
        self.info = ModelInfo("ascii", VOCAB_SIZE, max_length, special)
        self.tokenizer = AsciiTokenizer(has_chat_template)  # type: ignore[assignment]
        self._embedding = generator.normal(size=(VOCAB_SIZE, 16))
        self._head = generator.normal(size=(16, VOCAB_SIZE))
