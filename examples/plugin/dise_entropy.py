"""A scorer and two selectors for DiSE, as a distribution of its own."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from dise_core import (
    Candidates,
    Floats,
    Mask,
    Plan,
    Read,
    Score,
    Scorer,
    Selector,
    TokenSequence,
    hookimpl,
)


class MeanEntropy(Scorer):
    """Feeds the finished text back and averages minus the entropy of the model's distribution at
    the selected positions.

    In nats, 0 at best: how sure the model is of some token there, whether or not it is the token
    that stands there.
    """

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the mean; one forward pass."""
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.empty()
        [reading] = yield [Read(sequence.ids, positions, Candidates(confidence="entropy"))]
        return Score(float(reading.confidences.mean()), positions)


class EveryK(Selector):
    """Selects every K-th token of the response that is not an end token, the first one included."""

    k: PositiveInt

    def select(self, sequence: TokenSequence) -> Mask:
        """Return the paper's mask M, bool [N]."""
        return sequence.mask_of(sequence.text_positions[:: self.k])


class Behind(Selector):
    """Selects what follows the last mark in the response; later tokens count more."""

    mark: str = "="

    def select(self, sequence: TokenSequence) -> Mask:
        """Return the paper's mask M, bool [N]."""
        start = sequence.response_bytes.rfind(self.mark.encode()) + 1
        return sequence.mask_of(sequence.covering(start, len(sequence.response_bytes)))

    def weights(self, sequence: TokenSequence) -> Floats:
        """Return what each token counts, float [N]: its place in the text, from 1."""
        return self.select(sequence) * np.arange(1.0, len(sequence) + 1)


@hookimpl
def dise_scorers() -> dict[str, type[Scorer]]:
    """Return the scorers by the names that users type."""
    return {"mean-entropy": MeanEntropy}


@hookimpl
def dise_selectors() -> dict[str, type[Selector]]:
    """Return the selectors; every-K is typed with a number, such as every-3."""
    return {"every-K": EveryK, "behind": Behind}
