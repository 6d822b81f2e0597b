"""A toy model of three tokens and a mask, in float64: arbitrary conditionals for every canvas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dise_core import Plan, Read, Reading, Score, Scorer, TokenLogProbs, TokenSequence, drive
from dise_core.arrays import Floats, Ids
from dise_core.plans.cost import count_nfe
from dise_core.sequence import SpecialTokens
from dise_core.testing.toy_model import naive_readout
from dise_strategies.selectors.whole import Response

SPECIAL = SpecialTokens(3, frozenset({2}))


@cache
def _logits(canvas: tuple[int, ...]) -> Floats:
    return np.random.default_rng([7, *canvas]).normal(size=(len(canvas), 4))


@dataclass(frozen=True)
class ExactToy:
    """Answers Reads; block_length: of a block-causal model, None for full attention."""

    block_length: int | None = None

    def logits(self, canvas: Ids) -> Floats:
        """Return logits [N, 4], of no likeness to those of any other canvas."""
        return _logits(tuple(canvas))

    def logprobs(self, canvas: Sequence[int]) -> Floats:
        """Return the log-probabilities of the tokens, [N, 3], the mask left out."""
        tokens = self.logits(np.array(canvas))[:, :3]
        return tokens - np.logaddexp.reduce(tokens, axis=1, keepdims=True)

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [self._answer(read) for read in reads]

    def _answer(self, read: Read) -> Reading:
        logits = np.array([self.logits(self._canvas(read, at))[at] for at in read.positions])
        if not isinstance(read.readout, TokenLogProbs):
            return naive_readout(logits, read)
        exact = logits[np.arange(len(logits)), read.readout.targets]
        exact -= np.logaddexp.reduce(logits, axis=1)
        return Reading(read.readout.targets, exact)  # type: ignore[arg-type]  # float64

    def _canvas(self, read: Read, position: int) -> Ids:
        if self.block_length is None:
            return read.token_ids
        assert read.context_ids is not None
        start = position - position % self.block_length
        stop = start + self.block_length
        return np.append(read.context_ids[:start], read.token_ids[start:stop])

    def text(self, ids: Sequence[int], prompt_length: int = 0) -> TokenSequence:
        """Return the text, in blocks of 2 under full attention."""
        block_length, origin = self.block_length or 2, "text" if self.block_length else "response"
        return TokenSequence(
            np.array(ids),
            prompt_length,
            SPECIAL,
            block_length,
            origin=origin,  # type: ignore[arg-type]
        )

    def score(self, scorer: Scorer, text: TokenSequence) -> tuple[Score, int]:
        """Return the score of the response, and its forward passes."""
        plan: Plan[Score] = scorer.score(text, Response())
        return drive(count_nfe(plan), self.read)


def all_texts(length: int) -> list[list[int]]:
    """Return every text of so many tokens."""
    return [list(ids) for ids in itertools.product(range(3), repeat=length)]
