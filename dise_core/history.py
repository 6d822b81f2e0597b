"""How a response was written: what was known of each token when it was committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from dise_core.arrays import Floats, Ids, LogProbs

UNKNOWN = -1
"""The step of a token that no denoising step committed."""


class Look(NamedTuple):
    """What one denoising step saw: its candidates at positions, int64 [M] both, and by kind the
    confidences of the model's distribution there, float64 [M] each.
    """

    step: int
    positions: Ids
    candidates: Ids
    confidences: Mapping[str, Floats]


@dataclass(slots=True, eq=False)
class Writing:
    """How a text was written; a denoiser fills it in. ids: int64 [N], the text. logprobs: float32
    [N], the log-probability in nats that each token had, untempered, in the pass that committed it,
    under a constraint among the tokens that some valid text has there, and 0 for a forced one;
    NaN for one that was not chosen: the prompt's, say. steps: int64 [N], the denoising step of the
    commit, else -1. looks: of all steps, in order, where they were asked for: what is read of them
    is NaN for a token without the look that committed it.
    """

    ids: Ids
    logprobs: LogProbs
    steps: Ids
    looks: list[Look] = field(default_factory=list)

    @classmethod
    def of(cls, ids: Ids) -> Self:
        """Return the writing of a text that is given, int64 [N], with a copy of it."""
        unknown = np.full(len(ids), np.nan, np.float32)
        return cls(ids.copy(), unknown, np.full(len(ids), UNKNOWN))

    def commit(self, step: int, positions: Ids, token_ids: Ids, logprobs: LogProbs) -> None:
        """Write the candidates of a step at positions, [M] each."""
        self.ids[positions] = token_ids
        self.logprobs[positions] = logprobs
        self.steps[positions] = step

    def moved(self, ids: Ids, old: Ids, new: Ids) -> Self:
        """Return the writing of another text, int64 [M], whose tokens at the positions `new` are
        those that stand at `old` here, int64 [K] each; the others are given.
        """
        other = self.of(ids)
        other.logprobs[new], other.steps[new] = self.logprobs[old], self.steps[old]
        place = np.full(len(self.ids), UNKNOWN)
        place[old] = new
        for step, positions, candidates, confidences in self.looks:
            is_kept = place[positions] != UNKNOWN
            there = {kind: values[is_kept] for kind, values in confidences.items()}
            other.looks.append(Look(step, place[positions[is_kept]], candidates[is_kept], there))
        return other

    def onto(self, ids: Ids) -> Self:
        """Return the writing of another text, of which it tells where the same token stands."""
        length = min(len(ids), len(self.ids))
        same = np.flatnonzero(self.ids[:length] == ids[:length])
        return self.moved(ids, same, same)

    def at(self, positions: Ids) -> Self:
        """Return the writing of the tokens at positions alone, int64 [K]."""
        return self.moved(self.ids[positions], positions, np.arange(len(positions)))

    def inserted(self, position: int, ids: Ids) -> Self:
        """Return the writing with given tokens, int64 [K], before the one at a position."""
        old = np.arange(len(self.ids))
        new = old + len(ids) * (old >= position)
        return self.moved(np.insert(self.ids, position, ids), old, new)

    def confidences(self, kind: str) -> Floats:
        """Return the confidences of a kind at each token's commit, float64 [N]."""
        values = np.full(len(self.ids), np.nan)
        for look in self.looks:
            is_commit = self.steps[look.positions] == look.step
            values[look.positions[is_commit]] = look.confidences[kind][is_commit]
        return values

    def changes(self) -> tuple[Floats, Floats]:
        """Return how often each token's candidate changed before the commit, and the share of the
        steps that looked at its position before and had another one, float64 [N] each.
        """
        last = np.full(len(self.ids), UNKNOWN)
        flips, num_others, num_looks = np.zeros((3, len(self.ids)))
        unseen = np.full(len(self.ids), np.nan)
        for step, positions, candidates, _ in self.looks:
            unseen[positions[step == self.steps[positions]]] = 0
            is_before = step < self.steps[positions]
            here, now = positions[is_before], candidates[is_before]
            flips[here] += (last[here] != UNKNOWN) & (last[here] != now)
            num_others[here] += now != self.ids[here]
            num_looks[here] += 1
            last[here] = now
        return flips + unseen, num_others / np.maximum(num_looks, 1) + unseen
