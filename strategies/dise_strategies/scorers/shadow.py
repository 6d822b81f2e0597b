"""Shadow regeneration: each token as if it alone were masked, all in one pass."""

from typing import ClassVar

import numpy as np

from dise_core import Plan, Read, Score, Scorer, Selector, Terms, TokenLogProbs, TokenSequence


class Shadow(Scorer):
    """Mean log p(x_i | all but x_i) over the selected positions, in nats, by one shadow read.

    A mask token for each shares its position, sees all that the position may see but the
    token at it, and is itself seen by none; the other tokens' states have seen x_i. One
    forward pass of N + M tokens. Training: on masks is enough, though what the mask sees
    has seen the token that it hides, as in no training. Source: WINO (arXiv 2507.18578),
    whose shadows of a block see each other; the two were measured 0.14 nats apart.
    """

    takes_weights: ClassVar[bool] = True

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.of_nothing()
        targets = TokenLogProbs(sequence.ids[positions])
        [reading] = yield [Read(sequence.ids, positions, targets, shadow=True)]
        return Score.mean_of(reading.logprobs, positions, selector.weights(sequence))

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        yield from ()
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Terms()
        targets = TokenLogProbs(sequence.ids[positions])
        reads = [Read(sequence.ids, positions, targets, shadow=True)]
        return Terms.mean_of(reads, positions, selector.weights(sequence))
