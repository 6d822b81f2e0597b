"""A tokenizer whose tokens are given words, and automata over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from dise_core.arrays import Ids
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.building import Source, build
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.models.tokenizer import Tokenizer
from dise_core.sequence import SpecialTokens


class WordTokenizer(Tokenizer):
    """The words, as bytes, then <end> and <mask>."""

    has_chat_template = False
    start_ids = np.zeros(0, np.int64)
    drops_first_space = False

    def __init__(self, words: Sequence[bytes], drops_first_space: bool = False) -> None:
        self.words, self.drops_first_space = list(words), drops_first_space
        self.end, self.mask, self.vocab_size = len(words), len(words) + 1, len(words) + 2
        self.special = SpecialTokens(self.mask, frozenset({self.end}), self.end)

    def encode(self, text: str) -> Ids:
        raise NotImplementedError

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        raise NotImplementedError

    def decode(self, ids: Ids) -> str:
        text = b"".join(self.words[i] for i in ids if i < self.end).decode()
        return text.removeprefix(" ") if self.drops_first_space else text

    def token_text(self, token_id: int) -> str:
        return [*self.words, b"<end>", b"<mask>"][token_id].decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        return self.words[token_id] if token_id < self.end else None


@cache
def automaton_of(expression: str) -> Automaton:
    return build(Source(expression))


def tokens_of(
    expression: str, words: WordTokenizer, unwritten: tuple[int, ...] = ()
) -> TokenAutomaton:
    """Return the automaton of an expression over those words, but for those never written."""
    return TokenAutomaton(
        automaton_of(expression), words, words.special, unwritten, words.vocab_size
    )
