"""Interleaved regeneration: every k-th token is masked at a time. Ours."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import ClassVar

import numpy as np
from pydantic import Field

from dise_core import (
    InputError,
    Plan,
    Read,
    Score,
    Scorer,
    Selector,
    Terms,
    TokenLogProbs,
    TokenSequence,
)
from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.models.completion import drawn_tokens
from dise_core.params.base import MAX_LENGTH
from dise_core.plans.plan import READS_AT_ONCE
from dise_strategies.scorers.masked import masked_read
from dise_strategies.scorers.words import words


class InterleavedRegeneration(Scorer):
    """Mean log p(x_i | unmasked rest) over the selected tokens, masked in k interleaved passes.

    Pass j masks the response positions r with r % k == j; prompt tokens are never masked,
    so selected ones are left out. A block-causal model reads each block after the
    finished earlier ones. Costs at most k passes. With k of the response's length or more
    one token is hidden at a time: pseudo-log-likelihood, PLL (Salazar et al. 2020).
    Training: on masks alone is enough.

    Under uniform noise a random token u stands where one is hidden, and pulls the model
    towards itself, as a token does in `loo`: that is divided out. With h of n tokens
    hidden, b = log(1 + K (n - h + 1) / h).
    """

    suits: ClassVar[str] = "given texts, if trained on masks alone: 0.77 (dise 0.40)"
    takes_weights: ClassVar[bool] = True

    k: int = Field(default=2, ge=1, le=MAX_LENGTH)
    """Parts that the text is split into; each is masked once."""
    within_word: bool = False
    """Mask beside each token the later ones of its word, which would tell it: PLL as Kauf and
    Ivanova (2023) count it, and minicons as `within_word_l2r`."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = self._positions(sequence, selector)
        if len(positions) == 0:
            return Score.empty()
        reads, values = self._reads(sequence, positions), np.zeros(len(positions))
        is_drawn = sequence.special.is_drawn
        while batch := list(islice(reads, READS_AT_ONCE)):
            of_drawn = [_of_drawn(read, sequence) for read in batch] if is_drawn else []
            readings = yield [*batch, *of_drawn]
            for read, reading in zip(batch, readings, strict=False):
                values[np.searchsorted(positions, read.positions)] = reading.logprobs
            for read, reading in zip(of_drawn, readings[len(batch) :], strict=True):
                at = np.searchsorted(positions, read.positions)
                is_same = reading.token_ids == sequence.ids[read.positions]
                values[at] = _without(reading.logprobs, values[at], is_same, _pull(sequence, read))
        return Score.mean_of(values, positions, selector.weights(sequence))

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        yield from ()
        if sequence.special.is_drawn:
            raise InputError(
                "scorer 'interleaved' has no terms under uniform noise, where it divides out what "
                "is drawn: take 'dise'",
                "scorer",
            )
        positions = self._positions(sequence, selector)
        reads = list(self._reads(sequence, positions))
        return Terms.mean_of(reads, positions, selector.weights(sequence))

    def _positions(self, sequence: TokenSequence, selector: Selector) -> Ids:
        response = sequence.response_positions
        return response[selector.select(sequence)[response]]

    def _reads(self, sequence: TokenSequence, positions: Ids) -> Iterator[Read]:
        """Yield the Read of each pass that masks some of the positions."""
        remainders = (positions - sequence.prompt_length) % self.k
        word = words(sequence)[sequence.response_positions] if self.within_word else None
        for number in np.unique(remainders).tolist():
            hidden = sequence.response_positions[number :: self.k]
            if word is not None:
                hidden = sequence.response_positions[_with_later_pieces(word, number, self.k)]
            yield masked_read(sequence, hidden, positions[remainders == number])


def _of_drawn(read: Read, sequence: TokenSequence) -> Read:
    """Return the same Read of the tokens that are drawn where its positions are hidden."""
    drawn = drawn_tokens(read.positions, sequence.special.masking_id)
    return replace(read, readout=TokenLogProbs(drawn))


def _pull(sequence: TokenSequence, read: Read) -> float:
    """Return what a token that is seen adds to its own log-odds in a Read, b."""
    num_response = len(sequence.response)
    num_tokens = sequence.canvas_length or num_response
    num_masks = int((read.token_ids == sequence.special.masking_id).sum())
    num_hidden = num_masks * min(1.0, num_tokens / num_response)
    odds = (num_tokens - num_hidden + 1) / num_hidden
    return math.log1p(sequence.special.masking_id * odds)


def _without(drawn: LogProbs, logprobs: Floats, is_same: Mask, pull: float) -> Floats:
    """Return log-probabilities [M] without the pull of the tokens that were drawn, whose
    log-probabilities are `drawn`. is_same: where the two are the same token.
    """
    pulled = np.minimum(drawn.astype(np.float64), 0.0)
    remaining = np.log(np.exp(pulled - pull) - np.expm1(pulled))  # beside 1 no difference is taken
    values: Floats = np.minimum(logprobs - pull * is_same - remaining, 0.0)
    return values


def _with_later_pieces(word: Ids, first: int, k: int) -> Mask:
    """Return which tokens are among every k-th from `first` on, or in the word of one before
    them. word: the number of each token's, ascending int64 [R].
    """
    at = np.arange(len(word))
    hidden = at - (at - first) % k
    is_hidden: Mask = (hidden >= 0) & (word[np.maximum(hidden, 0)] == word)
    return is_hidden
