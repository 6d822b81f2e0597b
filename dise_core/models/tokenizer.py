"""The interface of a tokenizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

from dise_core.arrays import Ids
from dise_core.errors import InputError


class Tokenizer(ABC):
    """Converts text to token ids and back."""

    @property
    @abstractmethod
    def has_chat_template(self) -> bool:
        """Whether `chat_text` works."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of a text, int64 [N], without adding special tokens.

        Raises InputError for characters that the vocabulary lacks.
        """

    @abstractmethod
    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as the model's chat template renders it, ending where the model's
        answer begins if add_generation_prompt.

        Raises InputError for messages that the template refuses.
        """

    @cached_property
    def turn_end(self) -> str:
        """What the chat template puts after an assistant's message; "" if it says nothing."""
        if not self.has_chat_template:
            return ""
        asked, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
        try:
            text = self.chat_text([asked, answer], add_generation_prompt=False)
        except InputError:  # some templates refuse an assistant's message
            return ""
        return text.rpartition("!")[2]

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the ids of a conversation up to where the model answers, int64 [N]."""
        return self.encode(self.chat_text(messages))

    @property
    @abstractmethod
    def start_ids(self) -> Ids:
        """The begin-of-text token that precedes a text without a chat template, int64 [0 or 1]."""

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """Return the text of ids [N], without special tokens."""

    @abstractmethod
    def token_text(self, token_id: int) -> str:
        """Return one token as text, as it stands behind others; a special token as its name."""
