"""A block under a constraint: the likeliest valid text of each step, or a drawn one."""

from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.constrained import NUM_CANDIDATES, OPEN, Constrained
from dise_core.constraints.programme import Choices, best, drawn
from dise_core.noise import Noise
from dise_core.plans.reading import Reading
from dise_core.plans.readouts import TopLogProbs


@dataclass(slots=True, eq=False)
class ValidBlock:
    """A block that is filled so that its text stays the beginning of a valid one. ids:
    int64 [N], its text, from position `start`, in which others fill masks with what
    `chosen` returns. last_valid: int64 [N], the valid text of the last step. state: before
    it; final: those it may end in.
    """

    constraint: Constrained
    start: int
    ids: Ids
    last_valid: Ids
    state: int
    final: Mask

    @property
    def _is_masked(self) -> Mask:
        is_masked: Mask = self.ids == self.constraint.order.special.mask_id
        return is_masked

    def readout(self) -> TopLogProbs:
        constraint, last_valid = self.constraint, self.last_valid[self._is_masked]
        targets = np.where(last_valid == OPEN, constraint.tokens.completion[0], last_valid)
        is_by_entropy = constraint.confidence == "entropy"
        return TopLogProbs(NUM_CANDIDATES, constraint.offered, targets, is_by_entropy)

    def chosen(self, reading: Reading, noise: Noise) -> Reading:
        """Return the candidates, [M], of the likeliest valid text, or of a drawn one."""
        constraint, is_masked = self.constraint, self._is_masked
        choices = Choices(self.ids, is_masked, reading.token_ids, constraint.weights(reading))
        text = constraint.tokens, self.state, choices, self.final
        if constraint.params.is_drawn:
            columns = drawn(*text, noise.uniforms(self.start + np.flatnonzero(is_masked)))
        else:
            columns = best(*text)
        places = np.arange(len(columns)), columns
        self.last_valid[is_masked] = reading.token_ids[places]
        return replace(
            reading,
            token_ids=reading.token_ids[places],
            logprobs=reading.logprobs[places],
            confidences=constraint.confidences(reading, columns),
        )
