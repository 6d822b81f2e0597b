"""DiSE: the mean log-probability of regenerating the text's own tokens. Source: the
paper, Eq. (2).
"""

from __future__ import annotations

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, TokenLogProbs, TokenSequence


class DiSE(Scorer):
    """Feeds the finished text back, unmasked, and averages log p(x_i | X) over the selected
    positions, in nats.

    One forward pass; none if no position is selected.
    """

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of DiSE(X)."""
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.of_nothing()
        [reading] = yield [Read(sequence.ids, positions, TokenLogProbs(sequence.ids[positions]))]
        return Score.mean_of(reading.logprobs, positions)
