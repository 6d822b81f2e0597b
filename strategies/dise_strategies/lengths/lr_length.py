"""LR-DLLM: the length at which a model is surer than length explains. Source: LR-DLLM, 2026."""

from typing import ClassVar

import numpy as np

from dise_core import Denoiser, Generation, Ids, LengthController, Plan, SequenceScorer
from dise_core.params.base import Length
from dise_strategies.lengths.probing import refuse_blocks, sureness, written


class LRLength(LengthController):
    """Finds the length with the least entropy for its length, then writes it.

    A(L) is the negative entropy in nats, the mean over L masks in their place. It is probed at
    L = 1, 2, 4, ... up to `longest_probe` and max_tokens, and A = a + k ln L is fitted by least
    squares. From the L with the largest CL(L) = A(L) - k ln L, of equals the shortest, it moves by
    one token as long as CL grows, then writes as usual; the paper finds the length anew after each
    token. In the trace `score` is CL. Made for infilling. Refuses block-causal models.
    """

    fills_gaps: ClassVar[bool] = True

    longest_probe: Length = 128
    """The longest length that is probed for the fit."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        refuse_blocks("lr-length", denoiser)
        limit = min(self.longest_probe, denoiser.max_tokens)
        lengths, values = [2**i for i in range(limit.bit_length())], dict[int, float]()
        entropies = yield from sureness(prompt, lengths, denoiser, "entropy")
        spread = np.log(lengths) - np.log(lengths).mean()
        slope = spread @ entropies / (spread @ spread or 1.0)
        while True:
            calibrated = (entropies - slope * np.log(lengths)).round(12)
            values |= zip(lengths, calibrated.tolist(), strict=True)
            best = max(values, key=values.__getitem__)
            near = (n for n in (best - 1, best + 1) if 0 < n <= denoiser.max_tokens)
            if not (lengths := [n for n in near if n not in values]):
                return (yield from written(prompt, values, denoiser, scorer, "entropy"))
            entropies = yield from sureness(prompt, lengths, denoiser, "entropy")
