"""Scores of answers under a constraint: about what it leaves open."""

from dise_core.arrays import Mask
from dise_core.scoring.scorer import Narrowing
from dise_core.sequence import TokenSequence


class Unforced(Narrowing):
    """Selects what another selector does, except tokens that a constraint forced."""

    def select(self, sequence: TokenSequence) -> Mask:
        mask = self.inner.select(sequence)
        if (rule := sequence.rule) is None:
            return mask
        free = mask.copy()
        free[sequence.response_positions] &= ~rule.is_forced(sequence.response)
        return free
