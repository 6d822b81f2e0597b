"""The interface of a tokenizer."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError, shown
from dise_core.records import Fields

Message = Fields
"""One turn, {"role": ..., "content": ...}, and what else its chat template reads."""

FunctionTool = Mapping[str, object]
"""A function that the model may call, in OpenAI's format."""


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
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[FunctionTool] = (),
    ) -> str:
        """Return a conversation as the model's chat template renders it, ending where the
        model's answer begins if add_generation_prompt. tools: functions in OpenAI's
        format; the template may leave them out.

        Raises InputError for messages that the template refuses.
        """

    def with_template_kwargs(self, kwargs: Fields) -> Self:
        """Return this tokenizer, whose chat template is also given these variables, of
        JSON.

        Raises InputError for names that the template is given anyway, and for any if the
        tokenizer takes none.
        """
        if kwargs:
            raise InputError(
                "this model's chat template takes no chat_template_kwargs, and "
                f"{shown(list(kwargs))} are given; leave them out",
                "chat_template_kwargs",
            )
        return self

    @cached_property
    def turn_end(self) -> str:
        """What the chat template puts after an assistant's message; "" if nothing."""
        if not self.has_chat_template:
            return ""
        question, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
        try:
            text = self.chat_text([question, answer], add_generation_prompt=False)
        except InputError:  # some templates refuse an assistant's message
            return ""
        return text.rpartition("!")[2]

    def encode_chat(self, messages: Sequence[Message], tools: Sequence[FunctionTool] = ()) -> Ids:
        """Return the ids of a conversation up to where the model answers, int64 [N].
        Tools that the template leaves out stand before the first message, whoever speaks
        there.
        """
        text = self.chat_text(messages)
        if tools:
            plain, text = text, self.chat_text(messages, tools=tools)
            if text == plain:
                listed = json.dumps(list(tools), ensure_ascii=False)
                offer = f"You can call these functions:\n{listed}\n\n"
                first = {**messages[0], "content": offer + messages[0]["content"]}
                text = self.chat_text([first, *messages[1:]])
        return self.encode(text)

    @property
    @abstractmethod
    def start_ids(self) -> Ids:
        """The begin-of-text token before a text without template, int64 [0 or 1]."""

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """Return the text of ids [N], without special tokens."""

    @abstractmethod
    def token_text(self, token_id: int) -> str:
        """Return one token's text behind others; a special token's name."""

    def token_bytes(self, token_id: int) -> bytes | None:  # noqa: ARG002
        """Return what one token adds to a text in UTF-8; None for a special token, or
        unknown.

        The bytes of a text's tokens, joined, are those of `decode`, but for its first
        space if `drops_first_space`.
        """
        return None

    def spell(self, ids: Ids) -> tuple[bytes, ...]:
        """Return the UTF-8 bytes of each token of a text, ids int64 [N]: its
        `token_bytes`, where these are unknown its `token_text`, b"" for a special token.
        """
        spellings = {number: self.token_bytes(number) for number in set(ids.tolist())}
        for number, data in spellings.items():
            if data is None and self.decode(np.array([number])):
                spellings[number] = self.token_text(number).encode()
        return tuple(spellings[number] or b"" for number in ids.tolist())

    @property
    def drops_first_space(self) -> bool:
        """Whether `decode` drops a space at the start of a text's first token."""
        return False
