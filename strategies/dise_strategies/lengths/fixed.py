"""The length controller that keeps the length that the user chose."""

from __future__ import annotations

from dise_core import LengthController, Plan
from dise_core.arrays import Ids
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation


class FixedLength(LengthController):
    """Denoises a canvas of exactly max_tokens tokens."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        sequence = yield from denoiser.once().write(prompt, denoiser.max_tokens)
        evaluation = yield from scorer.evaluate(sequence)
        return Generation(sequence, evaluation)
