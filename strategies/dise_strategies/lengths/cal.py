"""CAL: the length whose first guess is surest for its length. Source: CAL, 2026."""

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from dise_core import Candidates, Denoiser, Generation, Ids, LengthController, Plan, SequenceScorer
from dise_core.params.base import Length
from dise_core.plans.plan import READS_AT_ONCE
from dise_strategies.lengths.probing import probe, refuse_blocks, write_best

Constant = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Floor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Background = tuple[Constant, Constant, Constant, Constant, Floor]

PUBLISHED: Background = (1, 1.77, 0.56, 0.06, 0.24)
ONE: Background = (0, 0, 0, 0, 1)


class CAL(LengthController):
    """Climbs from `start` to the length whose masks the model is surest of, then writes
    it.

    A length L is worth phi(L) / B(L), `score` in the trace. phi is the mean over L masks
    of the likeliest token's probability, in one pass; B is what phi is at wrong lengths.
    Longer ones are probed first, then shorter ones, each way until `patience` in a row
    are not better; of equals the first probed wins. Made for infilling. Refuses
    block-causal models.
    """

    fills_gaps: ClassVar[bool] = True

    start: Length = 8
    """The length that is probed first; max_tokens if that is less."""
    step: Length = 1
    """Tokens between two lengths."""
    patience: Length = 4
    """Lengths in a row without improvement after which a direction ends."""
    background: Background | None = None
    """a, b, c, d, e of B(L) = a exp(-b L) + c exp(-d L) + e. Without it B is 1 in a gap,
    and otherwise (1, 1.77, 0.56, 0.06, 0.24), as published for LLaDA and Dream."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        refuse_blocks("cal", denoiser)
        readout = Candidates(forbidden=tuple(denoiser.params.forbidden_token_ids))
        background = self.background or (ONE if len(denoiser.suffix) else PUBLISHED)
        start, values = min(self.start, denoiser.max_tokens), dict[int, float]()
        upwards = range(start, denoiser.max_tokens + 1, self.step)
        for direction in (upwards, range(start - self.step, 0, -self.step)):
            best, num_failures = max(values.values(), default=-math.inf), 0
            lengths = direction
            while lengths and num_failures < self.patience:
                # So many are probed even if none of them is better.
                count = min(self.patience - num_failures, READS_AT_ONCE)
                batch, lengths = lengths[:count], lengths[count:]
                readings = yield from probe(prompt, batch, denoiser, readout)
                for length, reading in zip(batch, readings, strict=True):
                    phi = float(np.mean(reading.confidences, dtype=np.float64))
                    values[length] = phi / _at_wrong(length, background)
                    num_failures = 0 if values[length] > best else num_failures + 1
                    best = max(best, values[length])
        return (yield from write_best(prompt, values, denoiser, scorer, "patience"))


def _at_wrong(length: int, background: Background) -> float:
    a, b, c, d, e = background
    return a * math.exp(-b * length) + c * math.exp(-d * length) + e
