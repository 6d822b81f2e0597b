"""Scores of answers under a constraint: about what it leaves open."""

from dataclasses import replace

from dise_core.arrays import Mask
from dise_core.scoring.score import Score
from dise_core.scoring.scorer import Narrowing
from dise_core.sequence import TokenSequence


class Unforced(Narrowing):
    """Selects what another selector does, except tokens that a constraint forced."""

    def select(self, sequence: TokenSequence) -> Mask:
        free = self.inner.select(sequence).copy()
        free[sequence.response_positions] &= ~sequence.is_forced
        return free

    def marked(self, score: Score, sequence: TokenSequence) -> Score:
        """Return the score with this selector, which then says what it leaves out; 0 where
        that is all that the other selects: nothing else could have been written.
        """
        score = replace(score, log_likelihood=None, bounds=None)  # it is not of the response
        if self.select(sequence).any() or not self.inner.select(sequence).any():
            return replace(score, under="forced tokens left out")
        return replace(score, value=0.0, under="forced")
