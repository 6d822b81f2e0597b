"""A block under a constraint: the likeliest valid text of each step, or a drawn one."""

from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.constrained import NUM_CANDIDATES, OPEN, Constrained
from dise_core.constraints.programme import Weighted, best, drawn
from dise_core.noise import Noise
from dise_core.plans.reading import Reading
from dise_core.plans.readouts import TopLogProbs
from dise_core.token_sets import TokenSets


@dataclass(slots=True, eq=False)
class ValidBlock:
    """A block that is filled so that its text stays the beginning of a valid one. ids:
    int64 [N], its text, from position `start`, in which others fill masks with what
    `chosen` returns. witness: int64 [N], the valid text of the last step. state: before
    it; final: those it may end in.
    """

    constraint: Constrained
    start: int
    ids: Ids
    witness: Ids
    state: int
    final: Mask

    @property
    def _is_masked(self) -> Mask:
        is_masked: Mask = self.ids == self.constraint.order.special.mask_id
        return is_masked

    def readout(self) -> TopLogProbs:
        constraint, witness = self.constraint, self.witness[self._is_masked]
        targets = np.where(witness == OPEN, constraint.tokens.completion[0], witness)
        is_by_entropy = constraint.confidence == "entropy"
        among = self.allowed() if constraint.is_told else None
        return TopLogProbs(NUM_CANDIDATES, constraint.offered, targets, is_by_entropy, among)

    def allowed(self) -> TokenSets:
        """Return the tokens at each mask, [M], of valid texts with what is written."""
        tokens, is_masked = self.constraint.tokens, self._is_masked
        ways, num_tokens = tokens.ways, len(self.ids)
        assert ways is not None, "the ways on are known where scores are told by them"
        maps = tokens.maps(self.ids)
        before, behind = np.zeros((2, num_tokens + 1, tokens.num_states), np.bool_)
        before[0, self.state], behind[num_tokens] = True, self.final
        for index in range(num_tokens):
            if is_masked[index]:
                before[index + 1] = ways.after(before[index])
            else:
                before[index + 1, maps[index, before[index]]] = True
        for index in reversed(range(num_tokens)):
            ahead = behind[index + 1]
            behind[index] = ways.before(ahead) if is_masked[index] else ahead[maps[index]]
        masks = np.flatnonzero(is_masked)
        return ways.between(before[masks], behind[masks + 1])

    def chosen(self, reading: Reading, noise: Noise) -> Reading:
        """Return the candidates, [M], of the likeliest valid text, or of a drawn one."""
        constraint, is_masked = self.constraint, self._is_masked
        masked = iter(zip(reading.token_ids, constraint.weights(reading), strict=True))
        rows: list[Weighted] = [
            next(masked) if is_mask else (self.ids[index : index + 1], np.zeros(1))
            for index, is_mask in enumerate(is_masked)
        ]
        text = constraint.tokens, self.state, rows, self.final
        if constraint.params.is_drawn:
            uniforms = noise.uniforms(self.start + np.arange(len(self.ids)))
            columns = drawn(*text, uniforms)[is_masked]
        else:
            columns = best(*text)[is_masked]
        places = np.arange(len(columns)), columns
        self.witness[is_masked] = reading.token_ids[places]
        return replace(
            reading,
            token_ids=reading.token_ids[places],
            logprobs=reading.logprobs[places],
            confidences=constraint.confidences(reading, columns),
        )
