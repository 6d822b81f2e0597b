"""How a response was written: what was known of each token when it was committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dise_core.arrays import Floats, Ids, LogProbs, Mask

UNKNOWN = -1
"""The step of a token that no denoising step committed."""


@dataclass(slots=True, eq=False)
class Writing:
    """How a text was written; a denoiser fills it in. ids: int64 [N], the text. logprobs:
    float32 [N], the log-probability in nats that each token had, untempered, in the pass
    that committed it; NaN for a token that is given, or forced.
    steps: int64 [N], the denoising step of the commit, -1 for a token that is given: the
    prompt's, say. forced: bool [N], whether a constraint left no other token.
    confidences: float64 [N] by kind, those of the model's distribution in the pass that
    committed each token, of the kinds that were asked for; NaN for one that was not
    chosen. pending: the same of the step under way, at the positions that it reads.
    """

    ids: Ids
    logprobs: LogProbs
    steps: Ids
    forced: Mask
    confidences: dict[str, Floats] = field(default_factory=dict)
    pending: dict[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Ids) -> Self:
        """Return the writing of a text that is given, int64 [N], with a copy of it."""
        count = len(ids)
        logprobs, steps = np.full(count, np.nan, np.float32), np.full(count, UNKNOWN)
        return cls(ids.copy(), logprobs, steps, np.zeros(count, np.bool_))

    def see(self, positions: Ids, confidences: Mapping[str, Floats]) -> None:
        """Keep what a step learns at positions, [M] each by kind, until its commit."""
        for kind, values in confidences.items():
            self.pending[kind] = _spread(values, positions, len(self.ids))

    def commit(self, step: int, positions: Ids, token_ids: Ids, logprobs: LogProbs) -> None:
        """Write the candidates of a step at positions, [M] each."""
        self.ids[positions] = token_ids
        self.logprobs[positions] = logprobs
        self.steps[positions] = step
        for kind, values in self.pending.items():
            self.confidences.setdefault(kind, np.full(len(self.ids), np.nan))
            self.confidences[kind][positions] = values[positions]

    def force(self, span: slice, is_forced: Mask) -> None:
        """Note which tokens of a span were forced: no score counts them."""
        self.forced[span] = is_forced
        self.logprobs[span][is_forced] = np.nan

    def moved(self, ids: Ids, old: Ids, new: Ids) -> Self:
        """Return the writing of another text, int64 [M], whose tokens at the positions
        `new` are those that stand at `old` here, int64 [K] each; the others are given.
        """
        writing = self.of(ids)
        writing.logprobs[new], writing.steps[new] = self.logprobs[old], self.steps[old]
        writing.forced[new] = self.forced[old]
        for kind, values in self.confidences.items():
            writing.confidences[kind] = _spread(values[old], new, len(ids))
        return writing

    def onto(self, ids: Ids) -> Self:
        """Return this history for another text, where both have the same token."""
        length = min(len(ids), len(self.ids))
        same = np.flatnonzero(self.ids[:length] == ids[:length])
        return self.moved(ids, same, same)

    def at(self, positions: Ids) -> Self:
        """Return the writing of the tokens at positions alone, int64 [K]."""
        return self.moved(self.ids[positions], positions, np.arange(len(positions)))

    def inserted(self, position: int, ids: Ids) -> Self:
        """Return the writing with given tokens, int64 [K], before a position."""
        old = np.arange(len(self.ids))
        new = old + len(ids) * (old >= position)
        return self.moved(np.insert(self.ids, position, ids), old, new)

    def confidence(self, kind: str) -> Floats:
        """Return the confidence at each token's commit, float64 [N]; NaN if unknown."""
        values = self.confidences.get(kind)
        return np.full(len(self.ids), np.nan) if values is None else values


def _spread(values: Floats, positions: Ids, length: int) -> Floats:
    """Return values, float64 [M], at positions of such a text; NaN elsewhere."""
    spread = np.full(length, np.nan)
    spread[positions] = values
    return spread
