"""Interleaved regeneration: scores each token while every k-th token, itself included, is masked.

Ours, not the paper's: it lies between DiSE, which masks nothing, and pseudo-log-likelihood, which
masks one token at a time.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


class InterleavedRegeneration(Scorer):
    """Mean log p(x_i | unmasked rest) over the selected tokens, masked in k interleaved passes.

    Pass j masks the response positions r with r % k == j, counted from the start of the response.
    Prompt tokens are never masked, so selected ones are left out. Costs one forward pass for each
    pass that masks a selected token, k at most.
    """

    k: int = Field(2, ge=1)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the mean, in nats; -inf if no response token is selected."""
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
