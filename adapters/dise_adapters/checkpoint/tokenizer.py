"""A tokenizer from a checkpoint's files, without remote code."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from dise_adapters.checkpoint.esm_tokenizer import esm_tokenizer
from dise_adapters.checkpoint.files import one_line, refused
from dise_adapters.checkpoint.gguf import GgufFile
from dise_adapters.checkpoint.gguf_tokenizer import gguf_tokenizer
from dise_adapters.checkpoint.spelling import spellings
from dise_core import CheckpointError, Ids, InputError, Tokenizer
from dise_core.models.inputs import check_messages
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.records import Fields
from dise_core.sequence import as_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FIRST_IDS = 256
"""Ids among which a word is looked for where the vocabulary has no "a"."""

GIVEN = "self messages conversations tools documents chat_template add_generation_prompt"
"""What a chat template is rendered with, beside its options and the special tokens."""


class FastTokenizer(Tokenizer):
    """A Tokenizer that wraps a fast tokenizer of transformers."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}
        self._template_kwargs: Fields = {}
        self._is_framed = False

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        tokenizer_class: str = "PreTrainedTokenizerFast",
        gguf: GgufFile | None = None,
    ) -> Self:
        """Return the tokenizer and chat template of a folder, or of its GGUF file, by
        that class of transformers; without a tokenizer.json, by the byte-level vocab.json
        and merges.txt.

        Raises CheckpointError if neither exists, or if they cannot be read.
        """
        import transformers

        is_ours = tokenizer_class == "PreTrainedTokenizerFast"
        if gguf is None and is_ours and not (folder / "tokenizer.json").is_file():
            for name in ("vocab.json", "merges.txt"):
                if not (folder / name).is_file():
                    raise CheckpointError(f"{folder} has neither tokenizer.json nor {name}")
            tokenizer_class = "Qwen2Tokenizer"
        source = {} if gguf is None else {"gguf_file": gguf.path.name}
        with refused(f"cannot load the tokenizer in {folder}"):
            try:
                if gguf is not None and is_ours:
                    loaded = gguf_tokenizer(gguf.metadata)
                else:
                    loaded = getattr(transformers, tokenizer_class).from_pretrained(
                        folder, local_files_only=True, trust_remote_code=False, **source
                    )
            except ValueError as error:
                if "trust_remote_code" in str(error):
                    raise ValueError("it asks for code of its own, which is never run") from error
                raise
            if isinstance(loaded, transformers.EsmTokenizer):
                loaded = esm_tokenizer(loaded)
            loaded.backend_tokenizer.no_padding()  # of every text to a given length
            loaded.backend_tokenizer.no_truncation()
            tokenizer = cls(loaded)
            trial = "it fails on a trial text, its special tokens or its chat template"
            with refused(f"cannot load the tokenizer in {folder}: {trial}"):
                tokenizer._try()
        return tokenizer

    def _try(self) -> None:
        """Raise what its files lead to once it is used."""
        backend = self._tokenizer.backend_tokenizer
        self._tokenizer.decode(backend.encode("a b\n7", add_special_tokens=False).ids)
        _ = self.mask_id, self.start_ids, self.added_tokens, self._unknown_id
        if self.has_chat_template:
            self._tokenizer.get_chat_template()

    @property
    def has_chat_template(self) -> bool:
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> Ids:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text holds half a surrogate pair at {error.start}: {text!r:.80}"
            ) from None
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

    def with_template_kwargs(self, kwargs: Fields) -> Self:
        options = inspect.signature(self._tokenizer.apply_chat_template).parameters
        for name in kwargs:
            if name in GIVEN.split() or name in options or name.endswith("_token"):
                raise InputError(
                    f"chat_template_kwargs may not hold {name:.80}, which the chat "
                    "template is given anyway; leave it out",
                    "chat_template_kwargs",
                )
        if not kwargs:
            return self
        tokenizer = copy.copy(self)
        tokenizer._template_kwargs = kwargs
        return tokenizer

    def chat_text(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[FunctionTool] = (),
    ) -> str:
        check_messages(messages)
        try:
            options = {
                **self._template_kwargs,
                "tokenize": False,
                "add_generation_prompt": add_generation_prompt,
                "tools": list(map(dict, tools)) or None,
            }
            text = self._tokenizer.apply_chat_template(list(map(dict, messages)), **options)
        except Exception as error:
            raise InputError(
                f"the model's chat template refuses the conversation: {one_line(error)}", "messages"
            ) from None
        return str(text)

    def framed(self) -> Self:
        """Return this tokenizer for texts that are read within a `frame`; itself where a
        chat template writes what stands around them.
        """
        if self.has_chat_template:
            return self
        tokenizer = copy.copy(self)
        tokenizer._is_framed = True
        return tokenizer

    @cached_property
    def frame(self) -> tuple[Ids, Ids]:
        """The special tokens between which a text is read, as its files put them before a
        text and behind it, int64 [F] each; none unless it is `framed`.
        """
        if not self._is_framed:
            return as_ids([]), as_ids([])
        encoding = self._tokenizer.backend_tokenizer.encode("a", add_special_tokens=True)
        of_text = np.flatnonzero(np.asarray(encoding.special_tokens_mask) == 0)
        ids, stop = as_ids(encoding.ids), len(encoding.ids)
        start, end = (of_text[0], of_text[-1] + 1) if len(of_text) else (stop // 2, stop // 2)
        return ids[:start], ids[end:]

    @property
    def start_ids(self) -> Ids:
        token_id = None if self._is_framed else self._tokenizer.bos_token_id
        return as_ids([] if token_id is None else [token_id])

    def decode(self, ids: Ids) -> str:
        with refused("the tokenizer fails on the tokens"):
            return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def token_text(self, token_id: int) -> str:
        if token_id not in self._texts:
            with refused("the tokenizer fails on the tokens"):
                self._texts[token_id] = self._text_behind(token_id)
        return self._texts[token_id]

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._spelled[0].get(token_id)

    @property
    def drops_first_space(self) -> bool:
        return self._spelled[1]

    @cached_property
    def _spelled(self) -> tuple[dict[int, bytes], bool]:
        with refused("the tokenizer fails on the tokens"):
            return spellings(self._tokenizer)

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
        token_id: int | None = self._tokenizer.backend_tokenizer.token_to_id(token)
        return token_id

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token, if the tokenizer's files name one."""
        token_id: int | None = self._tokenizer.mask_token_id
        return token_id

    @cached_property
    def added_tokens(self) -> Mapping[str, int]:
        """The ids of the tokens added to the vocabulary, special or not, by name."""
        ids: dict[str, int] = self._tokenizer.get_added_vocab()
        return ids

    @cached_property
    def _anchor(self) -> list[int]:
        """The last token of a word, behind which others are decoded; may be empty."""
        ids = self._tokenizer.backend_tokenizer.encode("a", add_special_tokens=False).ids[-1:]
        if self._unknown_id not in ids:
            return list(ids)
        other_ids = (i for i in range(FIRST_IDS) if i != self._unknown_id)
        word = next((i for i in other_ids if self._plain([i]).isalnum()), None)
        return [] if word is None else [word]

    @cached_property
    def _unknown_id(self) -> int:
        """The id of the unknown token; -1 if the vocabulary can express every text."""
        token = getattr(self._tokenizer.backend_tokenizer.model, "unk_token", None)
        token_id = None if token is None else self._tokenizer.convert_tokens_to_ids(token)
        return -1 if token_id is None else int(token_id)
