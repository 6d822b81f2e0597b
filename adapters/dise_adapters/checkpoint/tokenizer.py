"""A tokenizer from a checkpoint's files, without remote code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from dise_adapters.checkpoint.files import one_line, refused
from dise_core.arrays import Ids
from dise_core.errors import CheckpointError, InputError
from dise_core.model import Tokenizer
from dise_core.sequence import as_ids

FIRST_IDS = 256
"""Ids among which a word is looked for where the vocabulary has no "a"."""


class FastTokenizer(Tokenizer):
    """A Tokenizer that wraps a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        tokenizer_class: str = "PreTrainedTokenizerFast",
        gguf_file: str | None = None,
    ) -> Self:
        """Return the folder's tokenizer and chat template, loaded by that class of transformers;
        without a tokenizer.json, by the byte-level vocab.json and merges.txt.

        Raises CheckpointError if neither exists, or if they cannot be read.
        """
        import transformers

        if (
            tokenizer_class == "PreTrainedTokenizerFast"
            and not (folder / "tokenizer.json").is_file()
        ):
            for name in ("vocab.json", "merges.txt"):
                if not (folder / name).is_file():
                    raise CheckpointError(f"{folder} has neither tokenizer.json nor {name}")
            tokenizer_class = "Qwen2Tokenizer"
        source = {} if gguf_file is None else {"gguf_file": gguf_file}
        with refused(f"cannot load the tokenizer in {folder}"):
            try:
                loaded = getattr(transformers, tokenizer_class).from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False, **source
                )
            except ValueError as error:
                if "trust_remote_code" in str(error):
                    raise ValueError("it asks for code of its own, which is never run") from error
                raise
            return cls(loaded)._tried()

    def _tried(self) -> Self:
        """Return itself. Raises what its files lead to once it is used."""
        backend = self._tokenizer.backend_tokenizer
        backend.no_padding()  # of every text to a given length
        backend.no_truncation()
        self._tokenizer.decode(backend.encode("a b\n7", add_special_tokens=False).ids)
        _ = self.mask_id, self.start_ids, self.added_tokens, self._unknown_id
        if self.has_chat_template:
            self._tokenizer.get_chat_template()
        return self

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint has a chat template."""
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, int64 [N], without adding special tokens. Raises InputError for
        characters that the vocabulary lacks.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text holds half a surrogate pair at {error.start}: {text!r:.80}"
            ) from error
        with refused("the tokenizer fails on the text"):
            encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        ids = np.asarray(encoding.ids, dtype=np.int64)
        unknown = np.flatnonzero(ids == self._unknown_id)
        if len(unknown):
            start, end = encoding.offsets[unknown[0]]
            raise InputError(
                f"the model's vocabulary has no {text[start:end]!r:.80} (in {text!r:.80})"
            )
        return ids

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as the checkpoint's chat template renders it.

        Raises InputError for a message without "role" and "content", and for messages that the
        template refuses.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not all(
                isinstance(message.get(k), str) for k in ("role", "content")
            ):
                raise InputError(
                    f'a message needs "role" and "content", both text: {message!r:.80}', "messages"
                )
        turns = [dict(message) for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except Exception as error:
            raise InputError(
                f"the model's chat template refuses the conversation: {one_line(error)}", "messages"
            ) from error
        return str(text)

    @property
    def start_ids(self) -> Ids:
        """The begin-of-text token, int64 [1]; int64 [0] if there is none."""
        token_id = self._tokenizer.bos_token_id
        return as_ids([] if token_id is None else [token_id])

    def decode(self, ids: Ids) -> str:
        """Return the text of ids [N], without special tokens."""
        with refused("the tokenizer fails on the tokens"):
            return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def token_text(self, token_id: int) -> str:
        """Return one token as text, as it stands behind others: with its space, if it begins a
        word; a special token as its name.
        """
        if token_id not in self._texts:
            with refused("the tokenizer fails on the tokens"):
                self._texts[token_id] = self._text_behind(token_id)
        return self._texts[token_id]

    def _text_behind(self, token_id: int) -> str:
        alone, before = self._plain([token_id]), self._plain(self._anchor)
        if not self._tokenizer.decode([token_id], skip_special_tokens=True):
            return alone
        after = self._plain([*self._anchor, token_id])
        return after.removeprefix(before) if after.startswith(before) else alone

    def _plain(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def id_of(self, token: str) -> int | None:
        """Return the id of the token of that name; None if the vocabulary lacks it."""
        token_id = self._tokenizer.get_vocab().get(token)
        return None if token_id is None else int(token_id)

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token that the tokenizer's files name; None if they name none."""
        token_id = getattr(self._tokenizer, "mask_token_id", None)
        return None if token_id is None else int(token_id)

    @cached_property
    def added_tokens(self) -> Mapping[str, int]:
        """The ids of the tokens that were added to the vocabulary, special or not, by name."""
        return {name: int(token_id) for name, token_id in self._tokenizer.get_added_vocab().items()}

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _anchor(self) -> list[int]:
        """The last token of a word, behind which other tokens are looked at; empty without one."""
        ids = self._tokenizer.backend_tokenizer.encode("a", add_special_tokens=False).ids[-1:]
        if self._unknown_id not in ids:
            return list(ids)
        known = (token_id for token_id in range(FIRST_IDS) if token_id != self._unknown_id)
        word = next((token_id for token_id in known if self._plain([token_id]).isalnum()), None)
        return [] if word is None else [word]

    @cached_property
    def _unknown_id(self) -> int:
        """The id of the unknown token; -1 if the vocabulary can express every text."""
        token = getattr(self._tokenizer.backend_tokenizer.model, "unk_token", None)
        token_id = None if token is None else self._tokenizer.convert_tokens_to_ids(token)
        return -1 if token_id is None else int(token_id)
