"""The length controller that keeps the length that the user chose."""

from typing import ClassVar

from dise_core import Denoiser, Generation, Ids, LengthController, Plan, SequenceScorer


class FixedLength(LengthController):
    """Denoises a canvas of exactly max_tokens tokens."""

    fills_gaps: ClassVar[bool] = True

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        sequence = yield from denoiser.once().write(prompt, denoiser.max_tokens)
        return Generation(sequence, (yield from scorer.evaluate(sequence)))
