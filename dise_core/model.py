"""A loaded model: what it is, how its positions attend, and the interface that answers Reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.reading import CacheHint, Read, Reading
from dise_core.sequence import BlockOrigin, SpecialTokens

if TYPE_CHECKING:
    from dise_core.params import EngineConfig


class Attention(ABC):
    """Which positions of a text a position attends to."""

    @abstractmethod
    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return bool [Q, K], True where the query attends to the key; both int64."""


@dataclass(frozen=True, slots=True)
class Bidirectional(Attention):
    """Every position attends to all: LLaDA, Dream."""

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True everywhere."""
        return np.ones((len(query_positions), len(key_positions)), np.bool_)


BIDIRECTIONAL = Bidirectional()


@dataclass(frozen=True, slots=True)
class Causal(Attention):
    """A position attends to itself and those before it; it is answered from those before alone."""

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True where the key does not come after the query."""
        return np.asarray(key_positions <= query_positions[:, None])


@dataclass(frozen=True, slots=True)
class BlockCausal(Attention):
    """A position attends to its own block and all earlier ones; blocks of `length` positions count
    from position 0 of the text.
    """

    length: int

    def allows(self, query_positions: Ids, key_positions: Ids) -> Mask:
        """Return True where the key's block does not come after the query's."""
        return np.asarray(key_positions // self.length <= (query_positions // self.length)[:, None])


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is.

    name: how the user named it. vocab_size: token ids are below it. max_length: the longest text
    that it takes, in tokens. tempered_confidence: whether its published sampler ranks candidates by
    the distribution that they are drawn from.
    """

    name: str
    vocab_size: int
    max_length: int
    special: SpecialTokens
    attention: Attention = BIDIRECTIONAL
    tempered_confidence: bool = False

    @property
    def is_autoregressive(self) -> bool:
        """Whether it answers each position from those before it, and position 0 never."""
        return isinstance(self.attention, Causal)

    @property
    def block_origin(self) -> BlockOrigin:
        """Where the blocks of a text begin to count."""
        return "text" if isinstance(self.attention, BlockCausal) else "response"


class Tokenizer(ABC):
    """Turns text into ids and back."""

    @property
    @abstractmethod
    def has_chat_template(self) -> bool:
        """True if `chat_text` works."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of a text as it is, without special tokens around it, int64 [N].

        Raises InputError for characters that the vocabulary lacks.
        """

    @abstractmethod
    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as the model's chat template writes it, up to where it answers.

        Raises InputError for messages that the template refuses.
        """

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the ids of a conversation up to where the model answers, int64 [N]."""
        return self.encode(self.chat_text(messages))

    @property
    @abstractmethod
    def start_ids(self) -> Ids:
        """The begin-of-text token, which precedes a text without a chat template, int64 [0 or 1]"""

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """Return the text of ids, special tokens left out."""

    @abstractmethod
    def token_text(self, token_id: int) -> str:
        """Return one token as text, special tokens by their name."""


class CacheRoom(Protocol):
    """A predictor's KV cache, as the engine sees it: texts that find no room wait for some."""

    @property
    def num_free(self) -> int:
        """Tokens for which there is room."""

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return for how many more tokens there must be room to cache a text of that length.

        0 for a text that could never be cached.
        """


class MaskPredictor(ABC):
    """A loaded model that answers Reads."""

    info: ModelInfo

    tokenizer: Tokenizer

    room: CacheRoom | None = None
    """Its KV cache, filled as a Read's cache hint allows; None for a predictor without one."""

    @classmethod
    @abstractmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        """Return whether this adapter can load the model (a name, folder or hub id): False for one
        that it cannot know. revision: of a hub id, None for its main branch.

        Reads no weights, and asks the hub for nothing but a hub id's config.json.
        """

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:  # noqa: ARG003
        """Return, in one sentence, what this adapter knows of a model that no adapter claims; None
        knows nothing.

        Raises the InputError or ModelError that keeps it from knowing: there is no such folder, the
        hub does not answer.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Load the model. Raises ModelError with one line that says what to do."""

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads, in their order; a read alone and among others gets the same answer.

        Token ids are in [0, vocab_size) and rows no longer than max_length: the engine has checked.
        """
