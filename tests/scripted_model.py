"""Length controllers, and a model that does what a script says."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dise_core import (
    Candidates,
    Denoiser,
    Generation,
    LengthController,
    Noise,
    Read,
    Reading,
    SamplingParams,
    SequenceScorer,
    count_nfe,
    drive,
)
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK
from dise_strategies.unmasking.ranked import LowConfidence

PROMPT = [1, 2]


class ScriptedModel:
    """Fills each masked text with the next tokens of its script, or with 5s where there is none,
    and regenerates each finished one with the next score.
    """

    def __init__(
        self, scores: Iterable[float], fills: Iterable[Sequence[int]] | None = None
    ) -> None:
        self._scores = iter(scores)
        self._fills = None if fills is None else iter(fills)
        self.scored: list[list[int]] = []
        """The response of each text that was scored."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        if isinstance(reads[0].readout, Candidates):
            [read] = reads
            return [self._filled(read)]
        self.scored.append(reads[0].token_ids[len(PROMPT) :].tolist())
        value = next(self._scores)
        return [
            Reading(read.readout.targets, np.full(len(read.positions), value, np.float32))
            for read in reads
        ]  # type: ignore[union-attr]

    def _filled(self, read: Read) -> Reading:
        num_masks = len(read.positions)
        assert read.token_ids[-num_masks:].tolist() == [MASK] * num_masks
        tokens = np.full(num_masks, 5) if self._fills is None else np.array(next(self._fills))
        assert len(tokens) == num_masks
        return Reading(tokens, np.zeros(num_masks, np.float32), np.ones(num_masks))


def generated(
    controller: LengthController,
    answer: Callable[[Sequence[Read]], Sequence[Reading]],
    max_length: int,
    scorer: SequenceScorer,
    **settings: object,
) -> tuple[Generation, int]:
    """Return what a length controller writes behind PROMPT, and its passes. answer: of a
    model of max_length positions, with the toy model's tokens.
    """
    params = SamplingParams(**settings)  # type: ignore[arg-type]
    denoiser = Denoiser(ToyPredictor(max_length).info, LowConfidence(), Noise(0), params)
    return drive(count_nfe(controller.generate(np.array(PROMPT), denoiser, scorer)), answer)
