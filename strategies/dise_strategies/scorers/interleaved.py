"""Interleaved regeneration: each token is scored while it is masked, together with every k-th other
one.

Ours, not the paper's: between DiSE, which masks nothing, and pseudo-log-likelihood, which masks one
token at a time.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


class InterleavedRegeneration(Scorer):
    """Masks the response in k interleaved passes and averages log p(x_i | the unmasked rest) over
    the selected tokens.

    Pass j masks every response position that leaves the remainder j when divided by k, counted from
    the start of the response. Selected prompt tokens are never masked, so they are left out. Costs
    one forward pass for each pass that holds a selected token, k at most.
    """

    k: int = Field(2, ge=1)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the mean, in nats."""
        response = sequence.response_positions
        chosen = response[selector.select(sequence)[response]]
        passes = [chosen[(chosen - sequence.prompt_length) % self.k == j] for j in range(self.k)]
        asked = [(j, positions) for j, positions in enumerate(passes) if len(positions)]
        if not asked:
            return Score.of_nothing()
        readings = yield [
            Read(
                sequence.with_masks(response[j :: self.k]),
                positions,
                TokenLogProbs(sequence.ids[positions]),
            )
            for j, positions in asked
        ]
        return Score.mean_of(np.concatenate([reading.logprobs for reading in readings]), chosen)
