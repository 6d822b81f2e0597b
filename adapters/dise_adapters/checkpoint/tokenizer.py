"""A tokenizer from a checkpoint's files, without remote code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from dise_adapters.checkpoint.template import render
from dise_core.arrays import Ids
from dise_core.errors import CheckpointError, InputError, ModelError
from dise_core.model import Tokenizer
from dise_core.sequence import as_ids


class FastTokenizer(Tokenizer):
    """Wraps a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        tokenizer_class: str = "PreTrainedTokenizerFast",
        gguf_file: str | None = None,
    ) -> Self:
        """Load a folder's tokenizer and chat template with that class of transformers; without a
        tokenizer.json, a byte-level vocabulary from vocab.json and merges.txt.

        Raises CheckpointError where neither is there, ModelError for one that cannot be read.
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
        try:
            tokenizer = getattr(transformers, tokenizer_class).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **source
            )
        except (OSError, ValueError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"cannot load the tokenizer in {folder}: {reason}") from error
        return cls(tokenizer)

    @property
    def has_chat_template(self) -> bool:
        """True if the checkpoint brings a chat template."""
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> Ids:
        """Return the ids of a text as it is, int64 [N]. Raises InputError for characters that the
        vocabulary lacks.
        """
        encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        ids = np.asarray(encoding.ids, dtype=np.int64)
        unknown = np.flatnonzero(ids == self._unknown_id)
        if len(unknown):
            start, end = encoding.offsets[unknown[0]]
            raise InputError(f"the model's vocabulary has no {text[start:end]!r} (in {text!r:.80})")
        return ids

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as the checkpoint's chat template writes it.

        Raises InputError for a message without "role" and "content", or that the template refuses.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not all(
                isinstance(message.get(k), str) for k in ("role", "content")
            ):
                raise InputError(
                    f'a message needs "role" and "content", both text: {message!r:.80}', "messages"
                )
        template = self._tokenizer.get_chat_template()
        variables = {"tools": None, "documents": None, **self._tokenizer.special_tokens_map}
        variables |= {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        return render(template, variables)

    @property
    def start_ids(self) -> Ids:
        """The begin-of-text token, int64 [1], or nothing, [0]."""
        token_id = self._tokenizer.bos_token_id
        return as_ids([] if token_id is None else [token_id])

    def decode(self, ids: Ids) -> str:
        """Return the text of ids, special tokens left out."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def token_text(self, token_id: int) -> str:
        """Return one token as text, special tokens by their name."""
        if token_id not in self._texts:
            self._texts[token_id] = str(
                self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
            )
        return self._texts[token_id]

    def id_of(self, token: str) -> int | None:
        """Return the id of a token by its name, None if the vocabulary has none."""
        token_id = self._tokenizer.get_vocab().get(token)
        return None if token_id is None else int(token_id)

    @property
    def mask_id(self) -> int | None:
        """The id of what the tokenizer's files call its mask token; None if they call none so."""
        token_id = getattr(self._tokenizer, "mask_token_id", None)
        return None if token_id is None else int(token_id)

    @cached_property
    def added_tokens(self) -> Mapping[str, int]:
        """The tokens that were added to the vocabulary, special or not."""
        return {name: int(token_id) for name, token_id in self._tokenizer.get_added_vocab().items()}

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _unknown_id(self) -> int:
        """The id that stands for what the vocabulary lacks; -1 where every text has tokens of its
        own.
        """
        token = getattr(self._tokenizer.backend_tokenizer.model, "unk_token", None)
        return -1 if token is None else int(self._tokenizer.convert_tokens_to_ids(token))
