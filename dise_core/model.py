"""The interface of a loaded model: its description, attention pattern, tokenizer and Reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.errors import InputError
from dise_core.reading import CacheHint, Read, Reading
from dise_core.sequence import BlockOrigin, SpecialTokens

if TYPE_CHECKING:
    from dise_core.params import EngineConfig


class Attention(ABC):
    """Which positions of a text a position attends to."""

    @abstractmethod
    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return bool [Q, K], True where the query attends to the key; positions int64 [Q], [K]."""


@dataclass(frozen=True, slots=True)
class Bidirectional(Attention):
    """Every position attends to every position, as in LLaDA and Dream."""

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True everywhere."""
        return np.ones((len(query_positions), len(key_positions)), np.bool_)


BIDIRECTIONAL = Bidirectional()


@dataclass(frozen=True, slots=True)
class Causal(Attention):
    """A position attends to itself and to those before it; the token at a position is predicted
    from those before it alone.
    """

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True where the key does not come after the query."""
        return np.asarray(key_positions <= query_positions[:, None])


@dataclass(frozen=True, slots=True)
class BlockCausal(Attention):
    """A position attends to its own block and all earlier ones; the blocks are `length` positions
    long and count from position 0 of the text.
    """

    length: int

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True where the key's block does not come after the query's."""
        return np.asarray(key_positions // self.length <= (query_positions // self.length)[:, None])


TemperedConfidence = bool | Literal["drawn"]
"""See ModelInfo."""

LastBlock = Literal["masks", "alone", "ends"]
"""How a response is written that ends inside a block: with masks up to the block's border, which
are written too and then cut; alone, as if the block were that short; or with end tokens up to the
border, as a finished text is read.
"""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a loaded model.

    name: as the user gave it. vocab_size: all token ids are below it. max_length: the longest text
    it accepts, in tokens. tempered_confidence: whether its published sampler ranks candidates by
    their probability after temperature, top-k and top-p rather than before; "drawn": only above
    temperature 0. last_block: how its published sampler writes the last block of a response; only
    block-causal attention has blocks of its own.
    """

    name: str
    vocab_size: int
    max_length: int
    special: SpecialTokens
    attention: Attention = BIDIRECTIONAL
    tempered_confidence: TemperedConfidence = False
    last_block: LastBlock = "masks"

    @property
    def is_autoregressive(self) -> bool:
        """Whether it predicts each token from those before it; position 0 then has no answer."""
        return isinstance(self.attention, Causal)

    @property
    def block_length(self) -> int | None:
        """The length of its own blocks under block-causal attention, else None."""
        return self.attention.length if isinstance(self.attention, BlockCausal) else None

    @property
    def block_origin(self) -> BlockOrigin:
        """Where a text's blocks count from: its own start under block-causal attention."""
        return "response" if self.block_length is None else "text"


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


class CacheRoom(Protocol):
    """A predictor's KV cache as the engine sees it; texts that do not fit wait for room."""

    @property
    def num_free(self) -> int:
        """The number of tokens for which there is room."""

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return how many more tokens of room a text of `length` tokens needs to be cached.

        0 for a text that could never be cached.
        """


Ability = Literal["two-stream", "shadow"]
"""A kind of Read that not every predictor answers: one with context_ids, where the model's
attention is block-causal; one of shadows.
"""


class MaskPredictor(ABC):
    """A loaded model that answers Reads."""

    info: ModelInfo

    tokenizer: Tokenizer

    checked_on: ClassVar[str] = ""
    """The weights that this adapter was checked on, as `dise models` shows it."""

    example: ClassVar[str] = ""
    """What a user may write to name a model of this adapter: a hub id, a folder, an address."""

    abilities: frozenset[Ability] = frozenset()
    """What it answers beyond plain Reads. The engine refuses the rest by name, before any pass."""

    calibration_file: PathLike[str] | None = None
    """The calibration that comes with the model, a file by `dise calibrate`. It holds where the
    user names none and the scores are computed as it says."""

    room: CacheRoom | None = None
    """Its KV cache, which Reads with a cache hint may fill; None for a predictor without one."""

    @classmethod
    @abstractmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        """Return whether this adapter can load the model (a name, folder or hub id); False for an
        unknown one. revision: of a hub id, None for its main branch.

        Reads no weights, and fetches nothing but config.json from the hub.
        """

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:  # noqa: ARG003
        """Return one sentence about a model that no adapter claims, or None if this adapter knows
        nothing of it.

        Raises InputError or ModelError if it cannot find out: there is no such folder, say, or the
        hub does not answer.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Return the loaded model. Raises ModelError with a one-line message saying what to do."""

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Return the answers in the order of the reads; a read gets the same answer in any batch.

        The engine has checked that token ids are in [0, vocab_size) and no row exceeds max_length.
        """
