"""Revisers look at a finished response again."""

from abc import abstractmethod

from dise_core.plans.plan import Plan
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.scoring.strategy import Strategy
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation


class Reviser(Strategy):
    """Looks at a finished response again, and rewrites what it doubts."""

    def check(self, scorer: SequenceScorer) -> None:
        """Raise InputError, before anything is written, for an unsuitable scorer."""

    @abstractmethod
    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        """Return a plan of the response as it stands after the revision, with a Revision
        for each round in `revisions`.

        The text keeps the prompt, holds no mask, and has no more response tokens than the
        given one or `denoiser.max_tokens`. Where it differs, an accepted Revision tells
        it. `generation.evaluation.tokens` reports on every token, as `scorer.evaluate`
        does on a new text. `denoiser.rewrite` writes chosen tokens again, and its steps
        may count from 0.
        """
