"""DiSE: the mean log-probability of regenerating a text's own tokens."""

from typing import ClassVar

import numpy as np

from dise_core import Ids, Plan, Read, Score, Scorer, Selector, Terms, TokenLogProbs, TokenSequence


class DiSE(Scorer):
    """Mean log p(x_i | X) over the selected positions of the unmasked text X, in nats.

    Costs one forward pass, or none if no position is selected. Training: it reads tokens
    that the model sees, so a small model must have learnt from visible tokens, too: from
    finished texts with mistakes, or from edits. Source: the paper, Eq. (2).
    """

    suits: ClassVar[str] = "models trained on finished texts: ROC-AUC 0.86"
    takes_weights: ClassVar[bool] = True

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.empty()
        [reading] = yield [self._read(sequence, positions)]
        return Score.mean_of(reading.logprobs, positions, selector.weights(sequence))

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        yield from ()
        positions = np.flatnonzero(selector.select(sequence))
        reads = [self._read(sequence, positions)]
        return Terms.mean_of(reads, positions, selector.weights(sequence))

    def _read(self, sequence: TokenSequence, positions: Ids) -> Read:
        targets = TokenLogProbs(sequence.ids[positions])
        return Read(sequence.ids, positions, targets, start=sequence.prompt_length)
