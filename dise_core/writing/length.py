"""Length controllers decide the length of a response."""

from abc import abstractmethod
from typing import ClassVar

from dise_core.arrays import Ids
from dise_core.plans.plan import Plan
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.scoring.strategy import Strategy
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation


class LengthController(Strategy):
    """Decides the length of the response, and denoises it."""

    fills_gaps: ClassVar[bool] = False
    """Whether it also writes a response that `denoiser.suffix` follows, as
    `denoiser.write` does; one that looks for the answer's end does not."""

    def longest(self, max_tokens: int) -> int:
        """Return the most tokens that a response of max_tokens may grow to."""
        return max_tokens

    @abstractmethod
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Return a plan of the finished response to prompt, int64 [P], and its
        evaluation.

        `denoiser.max_tokens` is the base length. Raises InputError before its first read
        if the settings do not fit the request.
        """
