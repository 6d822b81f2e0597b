"""Replay: what the model says of each token where it wrote it, read again."""

from typing import ClassVar, Literal

import numpy as np

from dise_core import Ids, Plan, Scorer, Selector, Terms, TokenSequence
from dise_likelihoods.texts import masked_read


class Replay(Scorer):
    """How sure the model is now of the selected tokens at the steps that wrote them: log
    p(x_i | the text as it stood), in nats.

    "written" with gradients, from a text's own step map: its terms are what a trainer runs.
    They agree where no cache was used, no token edited, nothing cut off behind the end, and
    no constraint: it is about the model alone. One pass a step; a block-causal model
    replays its blocks side by side. Training: on masks alone is enough.
    """

    needs_writing: ClassVar[bool] = True
    reads_end: ClassVar[bool] = False
    needs_masks: ClassVar[bool] = True  # what uniform noise had drawn is not kept
    takes_weights: ClassVar[bool] = True

    aggregate: Literal["mean", "sum"] = "mean"
    """The mean or the sum over the tokens, by the selector's weights if it has some. The
    plain sum is a trajectory's log-probability."""

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        yield from ()
        passes = _passes(sequence)
        positions = np.flatnonzero(selector.select(sequence) & (passes >= 0))
        reads = []
        for number in np.unique(passes[positions]):
            places = positions[passes[positions] == number]
            reads.append(masked_read(sequence, np.flatnonzero(passes >= number), places))
        weights = selector.weights(sequence)
        if self.aggregate == "mean":
            return Terms.mean_of(reads, positions, weights)
        counts = np.ones(len(sequence)) if weights is None else weights
        return Terms(reads, [counts[read.positions] for read in reads], positions)


def _passes(text: TokenSequence) -> Ids:
    """Return the pass that replays each token, int64 [N], -1 for a given one. Steps of
    different blocks share a pass where a block sees nothing behind it.
    """
    writing = text.own_writing()
    assert writing is not None, "a scorer that needs the writing gets texts with it"
    is_by_block = text.origin == "text"
    spans = text.blocks.spans(0, len(text)) if is_by_block else [(0, len(text))]
    passes = np.full(len(text), -1)
    for start, stop in spans:
        places = start + np.flatnonzero(writing.steps[start:stop] >= 0)
        passes[places] = np.unique(writing.steps[places], return_inverse=True)[1]
    return passes
